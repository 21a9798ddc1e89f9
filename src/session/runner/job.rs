//! One job on its thread: a worker's events in, durable stills and timeline events out.
//!
//! Promises all or one: the events of a job are appended once its worker is done, and a worker
//! that died leaves one `run_failed` instead.

use std::{iter::once, ops::ControlFlow, sync::Arc};

use decode::{FileReport, Sampling, StreamInfo};
use gate::Gate;
use media::{BlobHash, EventType, Rate, RunId, Signal};
use timeline::{ColumnWriter, Event, FramesDecoded, IngestReceived, KeyframeStored, RunFailed};
use tokio::runtime::Handle;
use tracing::{Span, field::Empty};
use worker::{JobEvent, JobInput, JobSpec, Limits, ProtocolError, Spent, Still, WorkerError};

use super::{
    Ingest, IngestError, Ingested, JobGuard, JobProgress, Registry, Run, Runner, stores::Stores,
};
use crate::{
    session::remote::{Feed, RemoteError},
    source::Source,
    telemetry::SPANS,
};

/// Events appended at a time, about 2 MiB; a job that has no more is appended as one.
const BATCH: usize = 4096;

pub(super) struct Job {
    runner: Arc<Runner>,
    guard: JobGuard,
    ingest: Ingest,
    log: RunLog,
    opened: Option<StreamInfo>,
    signals: ColumnWriter,
    gate: Gate,
    /// From the opened container to the worker's report.
    decoding: Span,
    stills: Vec<Stored>,
    stored: Stores,
}

/// A durable still whose event waits for the end of the job.
struct Stored {
    frame_index: u64,
    pts_ms: i64,
    event_type: EventType,
    bytes: u64,
    hash: BlobHash,
}

impl Stored {
    fn event(self, run: RunId) -> Event {
        Event::KeyframeStored(KeyframeStored {
            frame_index: self.frame_index,
            pts_ms: self.pts_ms,
            event_type: self.event_type,
            description: String::new(),
            image_ref: format!("/v1/runs/{run}/keyframes/{}", self.hash),
            image_bytes: self.bytes,
            image_sha256: self.hash,
        })
    }
}

impl Job {
    pub(super) fn new(
        runner: Arc<Runner>,
        guard: JobGuard,
        ingest: Ingest,
        runtime: Handle,
    ) -> Job {
        let signals = runner.parts.registry.timeline().column_writer();
        let (registry, run) = (Arc::clone(&runner.parts.registry), Arc::clone(guard.run()));
        let log = RunLog { registry, run, runtime };
        let gate = Gate::new(runner.parts.gate);
        let stored = Stores::new(&runner.parts, guard.run());
        Job {
            runner,
            guard,
            ingest,
            log,
            opened: None,
            signals,
            gate,
            decoding: Span::none(),
            stills: Vec::new(),
            stored,
        }
    }

    pub(super) fn run(mut self) -> Result<Ingested, IngestError> {
        let (input, feed) = self.open()?;
        let limits = match &self.ingest.source {
            Source::File(_) => Limits::default(),
            Source::Remote(source) => source.limits(),
        };
        let spec = JobSpec {
            input,
            sampling: self.ingest.rate.map_or(Sampling::Every, Sampling::Fixed),
            max_frames: self.ingest.max_frames,
            stills: self.runner.parts.stills,
            views: None,
            gate: self.runner.parts.gate,
            threads: self.runner.parts.threads,
            limits,
        };
        let cancel = self.guard.token().running.clone();
        let _timer = self.runner.parts.metrics.job_seconds.start_timer();
        let runner = Arc::clone(&self.runner);
        let mut failed = None;
        let mut take = |event| match self.take(event) {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => {
                failed = Some(error);
                ControlFlow::Break(())
            }
        };
        let outcome = tracing::info_span!(target: SPANS, "worker")
            .in_scope(|| runner.parts.supervisor.run_job(spec, &cancel, &mut take));
        let outcome = failed.map_or(outcome.map_err(IngestError::Worker), Err);
        if let Some(feed) = &feed {
            runner.parts.metrics.remote_bytes.inc_by(feed.bytes());
        }
        let error = match explained(outcome, feed, self.ingest.max_frames) {
            Ok(report) => return self.finish(&report),
            Err(error) => error,
        };
        self.stored.take_back();
        if error.ends_the_run() {
            let (request_id, reason) = (Some(self.ingest.request_id), error.told());
            self.log.commit(vec![Event::RunFailed(RunFailed { request_id, reason })])?;
        }
        Err(error)
    }

    /// What the worker reads, and what feeds it from elsewhere.
    fn open(&self) -> Result<(JobInput, Option<Feed>), IngestError> {
        match &self.ingest.source {
            Source::File(file) => {
                let file = file.try_clone();
                let file = file.map_err(|error| IngestError::Worker(WorkerError::Spawn(error)))?;
                Ok((file.into(), None))
            }
            Source::Remote(source) => {
                let cancel = &self.guard.token().waiting;
                let opened = self.runner.parts.remote.open(source, cancel, &self.log.runtime);
                let (input, feed) = opened.map_err(told_by_host)?;
                Ok((input, Some(feed)))
            }
        }
    }

    fn take(&mut self, event: JobEvent) -> Result<(), IngestError> {
        match event {
            JobEvent::Opened(stream) => {
                self.decoding = tracing::info_span!(
                    target: SPANS,
                    "decode",
                    codec = stream.codec.name(),
                    frames = Empty,
                    decode_us = Empty,
                    gate_us = Empty,
                );
                self.opened = Some(stream);
            }
            JobEvent::Signals(signals) => self.push(&signals)?,
            JobEvent::Still(still) => self.store(still)?,
            // None were asked for.
            JobEvent::Chunk(_) => {}
            JobEvent::Progress { frames, pts_ms } => {
                self.guard.token().advance(JobProgress { frames, pts_ms });
            }
            JobEvent::Spent(Spent { decode_us, gate_us }) => {
                self.decoding.record("decode_us", decode_us).record("gate_us", gate_us);
                let metrics = &self.runner.parts.metrics;
                metrics.decode_seconds.observe(decode_us as f64 / 1e6);
                metrics.gate_seconds.observe(gate_us as f64 / 1e6);
            }
            JobEvent::Done(report) => {
                self.decoding.record("frames", report.frames);
                self.decoding = Span::none();
            }
        }
        Ok(())
    }

    fn push(&mut self, signals: &[Signal]) -> Result<(), IngestError> {
        // The worker's decisions, which depend on the signals alone.
        let selected = signals.iter().filter(|signal| self.gate.offer(signal).selected).count();
        self.runner.parts.metrics.decided(signals.len() as u64, selected as u64);
        let before = self.signals.column_bytes();
        signals.iter().try_for_each(|signal| self.signals.push(signal))?;
        self.stored.charge(self.signals.column_bytes() - before)
    }

    fn store(&mut self, still: Still) -> Result<(), IngestError> {
        // A worker that was fooled must not fill our memory, nor name things.
        let too_many = self.stills.len() as u64 >= self.ingest.max_frames;
        if too_many || matches!(still.event_type, EventType::Named(_)) {
            return Err(IngestError::Worker(ProtocolError::Unexpected("still").into()));
        }
        let hash = self.stored.put(&still.jpeg)?;
        let Still { frame_index, pts_ms, event_type, jpeg, .. } = still;
        self.stills.push(Stored {
            frame_index,
            pts_ms,
            event_type,
            bytes: jpeg.len() as u64,
            hash,
        });
        Ok(())
    }

    fn finish(self, report: &FileReport) -> Result<Ingested, IngestError> {
        // The guard stays until the end: the run is busy while its last events are written.
        let Job { ingest, log, opened, signals, stills, stored, guard: _guard, .. } = self;
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
        let (signals, _column) = signals.finish()?;
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
            signals,
        };
        let run = log.run.id();
        let stills = stills.into_iter().map(|still| still.event(run));
        let mut events = once(Event::IngestReceived(received))
            .chain(stills)
            .chain(once(Event::FramesDecoded(decoded)))
            .peekable();
        let mut first = true;
        while events.peek().is_some() {
            match log.commit(events.by_ref().take(BATCH).collect()) {
                Ok(()) => first = false,
                Err(error) if first => {
                    stored.take_back();
                    return Err(error);
                }
                // Some of what is stored is named by events by now.
                Err(error) => {
                    stored.keep(&log.run);
                    return Err(error);
                }
            }
        }
        stored.keep(&log.run);
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

fn told_by_host(error: RemoteError) -> IngestError {
    match error {
        RemoteError::Cancelled => IngestError::Worker(WorkerError::Cancelled),
        error => IngestError::Remote(error),
    }
}

/// What came of a job, where what happened to its source explains what the worker made of it.
fn explained(
    outcome: Result<FileReport, IngestError>,
    feed: Option<Feed>,
    max_frames: u64,
) -> Result<FileReport, IngestError> {
    use WorkerError::{Cancelled, FirstFrameTimeout, Stalled};
    let Some(feed) = feed else { return outcome };
    match (outcome, feed.cause()) {
        // All that was asked for was there.
        (Ok(report), _) if report.frames >= max_frames => Ok(report),
        (Ok(report), Some(cause)) if cause.is_cut() => Ok(FileReport { truncated: true, ..report }),
        (Err(IngestError::Worker(Cancelled)), _) => Err(IngestError::Worker(Cancelled)),
        (Ok(_) | Err(IngestError::Worker(_)), Some(cause)) => Err(told_by_host(cause)),
        (Err(IngestError::Worker(FirstFrameTimeout { after } | Stalled { after })), None) => {
            Err(IngestError::Remote(RemoteError::Slow(after)))
        }
        (outcome, _) => outcome,
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
    let below = |a: Rate, b: Rate| {
        u64::from(a.num()) * u64::from(b.den()) < u64::from(b.num()) * u64::from(a.den())
    };
    if below(rate, Rate::SLOWEST) {
        Rate::SLOWEST
    } else if below(Rate::FASTEST, rate) {
        Rate::FASTEST
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
