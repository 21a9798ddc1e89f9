//! One job on its thread: a worker's events in, durable stills and timeline events out.

use std::{ops::ControlFlow, sync::Arc};

use decode::{FileReport, Sampling, StreamInfo};
use media::{Rate, Signal};
use timeline::{ColumnWriter, Event, FramesDecoded, IngestReceived, KeyframeStored, TimelineError};
use tokio::runtime::Handle;
use worker::{JobEvent, JobSpec, Limits, Still, WorkerError};

use super::{Ingest, IngestError, Ingested, JobGuard, Registry, Run, Runner};
/// Stills whose events wait for one append.
const STILLS_BATCH: usize = 32;
/// The rates that the contract can express.
const RATE_BOUNDS: [(u32, u32); 2] = [(1, 5), (120, 1)];

pub(super) struct Job {
    runner: Arc<Runner>,
    guard: JobGuard,
    ingest: Ingest,
    log: RunLog,
    opened: Option<StreamInfo>,
    signals: ColumnWriter,
    stored: Vec<Event>,
}

impl Job {
    pub(super) fn new(
        runner: Arc<Runner>,
        guard: JobGuard,
        ingest: Ingest,
        runtime: Handle,
    ) -> Job {
        let signals = runner.registry.timeline().column_writer();
        let (registry, run) = (Arc::clone(&runner.registry), Arc::clone(guard.run()));
        let log = RunLog { registry, run, runtime };
        Job { runner, guard, ingest, log, opened: None, signals, stored: Vec::new() }
    }

    pub(super) fn run(mut self) -> Result<Ingested, IngestError> {
        let spec = JobSpec {
            input: self
                .ingest
                .file
                .try_clone()
                .map_err(|error| IngestError::Worker(WorkerError::Spawn(error)))?,
            sampling: self.ingest.rate.map_or(Sampling::Every, Sampling::Fixed),
            max_frames: self.ingest.max_frames,
            stills: self.runner.stills,
            gate: self.runner.gate,
            threads: self.runner.threads,
            limits: Limits::default(),
        };
        let cancel = self.guard.token().running.clone();
        let runner = Arc::clone(&self.runner);
        let mut failed = None;
        let outcome =
            runner.supervisor.run_job(spec, &cancel, &mut |event| match self.take(event) {
                Ok(()) => ControlFlow::Continue(()),
                Err(error) => {
                    failed = Some(error);
                    ControlFlow::Break(())
                }
            });
        match (failed, outcome) {
            (Some(error), _) => Err(error),
            (None, Ok(report)) => self.finish(&report),
            (None, Err(error)) => Err(IngestError::Worker(error)),
        }
    }

    fn take(&mut self, event: JobEvent) -> Result<(), IngestError> {
        match event {
            JobEvent::Opened(stream) => self.opened = Some(stream),
            JobEvent::Signals(signals) => self.push(&signals)?,
            JobEvent::Still(still) => {
                self.store(still)?;
                if self.stored.len() >= STILLS_BATCH {
                    self.flush()?;
                }
            }
            // Comes several times a second: nobody waits long to see a still.
            JobEvent::Progress { .. } => self.flush()?,
            JobEvent::Done(_) => {}
        }
        Ok(())
    }

    fn push(&mut self, signals: &[Signal]) -> Result<(), TimelineError> {
        signals.iter().try_for_each(|signal| self.signals.push(signal))
    }

    fn store(&mut self, still: Still) -> Result<(), TimelineError> {
        let hash = self.runner.blobs.put(&still.jpeg)?;
        let run = self.guard.run().id();
        self.stored.push(Event::KeyframeStored(KeyframeStored {
            frame_index: still.frame_index,
            pts_ms: still.pts_ms,
            event_type: still.event_type,
            description: String::new(),
            image_ref: format!("/v1/runs/{run}/keyframes/{hash}"),
            image_bytes: still.jpeg.len() as u64,
            image_sha256: hash,
        }));
        Ok(())
    }

    fn flush(&mut self) -> Result<(), IngestError> {
        let events = std::mem::take(&mut self.stored);
        if events.is_empty() { Ok(()) } else { self.log.commit(events) }
    }

    fn finish(mut self, report: &FileReport) -> Result<Ingested, IngestError> {
        self.flush()?;
        // The guard stays until the end: the run is busy while its last events are written.
        let Job { ingest, log, opened, signals, guard: _guard, .. } = self;
        let stream = opened.ok_or(IngestError::Lost)?;
        let source_fps = report.source_rate.or(stream.source_rate);
        let sample_fps = ingest.rate.or_else(|| source_fps.map(clamped));
        let extent = report.first_extent.unwrap_or(stream.extent);
        let received = IngestReceived {
            request_id: ingest.request_id,
            ingest: ingest.echo,
            decoded_frames: Some(report.frames),
            source_uri: Some(ingest.source_uri.clone()),
            sampling_policy: Some(ingest.policy),
            sample_fps,
        };
        let decoded = FramesDecoded {
            request_id: ingest.request_id,
            source_uri: ingest.source_uri.clone(),
            stream_id: ingest.stream_id,
            sampling_policy: ingest.policy,
            source_fps,
            sample_fps,
            decoded_frames: report.frames,
            width: extent.width,
            height: extent.height,
            pixel_format: stream.pixel_format,
            truncated: report.truncated,
            signals: signals.finish()?,
        };
        log.commit(vec![Event::IngestReceived(received), Event::FramesDecoded(decoded)])?;
        log.run.set_source(Some(&ingest.source_uri));
        Ok(Ingested {
            decoded_frames: report.frames,
            source_fps,
            sample_fps,
            width: extent.width,
            height: extent.height,
            decoder: report.decoder.clone(),
            truncated: report.truncated,
        })
    }
}

/// Appends to the run's timeline from a thread outside the runtime.
struct RunLog {
    registry: Arc<Registry>,
    run: Arc<Run>,
    runtime: Handle,
}

impl RunLog {
    fn commit(&self, events: Vec<Event>) -> Result<(), IngestError> {
        self.runtime.block_on(self.registry.commit(&self.run, events))?;
        Ok(())
    }
}

/// The nearest rate that the contract can express.
fn clamped(rate: Rate) -> Rate {
    let [low, high] = RATE_BOUNDS.map(|(num, den)| Rate::new(num, den).expect("positive"));
    let below = |a: Rate, b: Rate| {
        u64::from(a.num()) * u64::from(b.den()) < u64::from(b.num()) * u64::from(a.den())
    };
    if below(rate, low) {
        low
    } else if below(high, rate) {
        high
    } else {
        rate
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reported_rate_stays_within_the_contract() {
        let cases = [
            ((1, 10), (1, 5)),
            ((1, 5), (1, 5)),
            ((30_000, 1001), (30_000, 1001)),
            ((240, 1), (120, 1)),
        ];
        for ((num, den), (to_num, to_den)) in cases {
            let found = clamped(Rate::new(num, den).expect("positive"));
            assert_eq!((found.num(), found.den()), (to_num, to_den), "{num}/{den}");
        }
    }
}
