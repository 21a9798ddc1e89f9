//! One job on its thread: a worker's events in, durable stills and signals out.
//!
//! Promises all or one: the events of a decoding are appended once its worker is done, and a worker
//! that died leaves one `run_failed` instead. A reasoning tells before that it was accepted, for it
//! may take hours; what models say meanwhile is another's to append.

use std::{ops::ControlFlow, sync::Arc, time::Duration};

use decode::{FileReport, Sampling, StreamInfo};
use gate::Gate;
use media::{EventType, Signal};
use timeline::{ColumnWriter, Event, RunFailed};
use tokio::runtime::Handle;
use tracing::{Span, field::Empty};
use worker::{
    JobEvent, JobInput, JobSpec, Limits, MeasuredBy, ProtocolError, Spent, Still, WorkerError,
};

use super::{
    Ingest, IngestError, Ingested, JobGuard, Runner,
    reason::{Chunks, WALL},
    record::{Decoded, RunLog, Stored, Tail, Undone},
    stores::Stores,
};
use crate::{
    session::remote::{Feed, RemoteError},
    source::Source,
    telemetry::SPANS,
};

pub(super) struct Job {
    runner: Arc<Runner>,
    guard: Arc<JobGuard>,
    ingest: Ingest,
    log: RunLog,
    opened: Option<StreamInfo>,
    signals: ColumnWriter,
    gate: Gate,
    /// From the opened container to the worker's report.
    decoding: Span,
    /// Those that went nowhere yet.
    stills: Vec<Stored>,
    /// How many there were.
    stills_seen: u64,
    stored: Stores,
    /// Signals so far.
    frames: u64,
    /// Where chunks go, where they are wanted.
    chunks: Option<Chunks>,
    /// That it was accepted is on the timeline.
    is_received: bool,
}

impl Job {
    pub(super) fn new(
        runner: Arc<Runner>,
        guard: Arc<JobGuard>,
        ingest: Ingest,
        runtime: Handle,
    ) -> Job {
        let signals = runner.parts.registry.timeline().column_writer();
        let (registry, run) = (Arc::clone(&runner.parts.registry), Arc::clone(guard.run()));
        let log = RunLog { registry, run, runtime, keeps_what_is_cut: false };
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
            stills_seen: 0,
            stored,
            frames: 0,
            chunks: None,
            is_received: false,
        }
    }

    /// Decodes the source onto the run's timeline.
    pub(super) fn ingest(self) -> Result<Ingested, IngestError> {
        self.decode().map_err(|undone| undone.take_back())?.record(Tail::default())
    }

    /// Decodes the source, its chunks going to `chunks`; what there is when it is stopped is kept.
    pub(super) fn reason(mut self, chunks: Option<Chunks>) -> Result<Decoded, Box<Undone>> {
        self.chunks = chunks;
        self.log.keeps_what_is_cut = true;
        self.decode()
    }

    /// Decodes the source; nothing of the decoding is on the timeline yet.
    fn decode(mut self) -> Result<Decoded, Box<Undone>> {
        match self.work() {
            Ok((report, is_cut)) => self.decoded(report, is_cut),
            Err(error) => Err(Box::new(self.undone(error))),
        }
    }

    /// Has a worker decode the source; the flag says that it was stopped before the end.
    fn work(&mut self) -> Result<(FileReport, bool), IngestError> {
        let limits = self.limits();
        let (input, feed) = self.open(limits.wall)?;
        let spec = JobSpec {
            input,
            sampling: self.ingest.rate.map_or(Sampling::Every, Sampling::Fixed),
            max_frames: self.ingest.max_frames,
            stills: self.runner.parts.stills,
            views: self.chunks.as_ref().map(|chunks| chunks.views),
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
        match explained(outcome, feed, self.ingest.max_frames) {
            Err(IngestError::Worker(WorkerError::Cancelled)) if self.keeps_what_is_cut() => {
                Ok((self.report_of_a_cut(), true))
            }
            outcome => Ok((outcome?, false)),
        }
    }

    /// Says on the timeline that it failed, where that ends the run.
    fn undone(self, error: IngestError) -> Undone {
        let Job { log, ingest, stored, is_received, .. } = self;
        let told = if error.ends_the_run() {
            let (request_id, reason) = (Some(ingest.request_id), error.told());
            log.commit(vec![Event::RunFailed(RunFailed { request_id, reason })])
        } else {
            Ok(())
        };
        Undone { error: told.err().unwrap_or(error), stored, run: log.run, is_received }
    }

    fn limits(&self) -> Limits {
        let limits = match &self.ingest.source {
            Source::File(_) => Limits::default(),
            Source::Remote(source) => source.limits(),
        };
        if self.chunks.is_some() { Limits { wall: WALL, ..limits } } else { limits }
    }

    fn keeps_what_is_cut(&self) -> bool {
        self.log.keeps_what_is_cut && self.frames > 0
    }

    /// As far as the worker had come when it was ended.
    fn report_of_a_cut(&self) -> FileReport {
        FileReport {
            decoder: String::new(),
            fallback: None,
            frames: self.frames,
            source_frames: self.frames,
            source_rate: None,
            truncated: true,
            damaged_packets: 0,
            first_extent: None,
        }
    }

    fn decoded(self, report: FileReport, is_cut: bool) -> Result<Decoded, Box<Undone>> {
        if let Some(reason) = &report.fallback {
            let (decoder, run) = (&report.decoder, self.log.run.id());
            self.runner.parts.metrics.decode_fallbacks.inc();
            tracing::warn!(%run, decoder, reason, "not all was decoded by the backend asked for");
        }
        let Job { ingest, log, opened, signals, stills, stored, is_received, .. } = self;
        let signals = opened.ok_or(IngestError::Lost).and_then(|stream| {
            let (signals, column) = signals.finish()?;
            Ok((stream, signals, column))
        });
        match signals {
            Ok((stream, signals, _column)) => Ok(Decoded {
                ingest,
                log,
                stream,
                report,
                signals,
                stills,
                stored,
                is_cut,
                is_received,
                _column,
            }),
            Err(error) => Err(Box::new(Undone { error, stored, run: log.run, is_received })),
        }
    }

    /// What the worker reads, and what feeds it from elsewhere for as long as `wall`.
    fn open(&self, wall: Duration) -> Result<(JobInput, Option<Feed>), IngestError> {
        match &self.ingest.source {
            Source::File(file) => {
                let file = file.try_clone();
                let file = file.map_err(|error| IngestError::Worker(WorkerError::Spawn(error)))?;
                Ok((file.into(), None))
            }
            Source::Remote(source) => {
                let cancel = &self.guard.token().waiting;
                let opened = self.runner.parts.remote.open(source, wall, cancel, &self.log.runtime);
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
                if let Some(chunks) = &self.chunks {
                    chunks.check(&stream)?;
                }
                if self.log.keeps_what_is_cut {
                    self.ingest.accept(&stream, &self.log)?;
                    self.is_received = true;
                }
                self.opened = Some(stream);
            }
            JobEvent::Signals(signals) => self.push(&signals)?,
            JobEvent::Still(still) => self.store(still)?,
            JobEvent::Chunk(chunk) => match &mut self.chunks {
                Some(chunks) => chunks.send(chunk, &mut self.stills, self.frames)?,
                None => return Err(IngestError::Worker(ProtocolError::Unexpected("chunk").into())),
            },
            JobEvent::Progress { frames, pts_ms } => {
                self.guard.token().advance(frames, pts_ms);
            }
            JobEvent::Measured(MeasuredBy { measurer, lost, late }) => {
                self.runner.parts.metrics.gate_batches_late.inc_by(u64::from(late));
                if let Some(reason) = lost {
                    self.runner.parts.metrics.gate_devices_lost.inc();
                    let run = self.log.run.id();
                    tracing::warn!(%run, measurer, reason, "the gate's device was given up");
                }
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
        self.frames += signals.len() as u64;
        if let Some(last) = signals.last() {
            self.guard.token().advance(self.frames, last.pts_ms);
        }
        self.stored.charge(self.signals.column_bytes() - before)
    }

    fn store(&mut self, still: Still) -> Result<(), IngestError> {
        // A worker that was fooled must not fill our memory, nor name things.
        let too_many = self.stills_seen >= self.ingest.max_frames;
        if too_many || matches!(still.event_type, EventType::Named(_)) {
            return Err(IngestError::Worker(ProtocolError::Unexpected("still").into()));
        }
        let timer = self.runner.parts.metrics.still_seconds.start_timer();
        let hash = self.stored.put(&still.jpeg)?;
        drop(timer);
        let Still { frame_index, pts_ms, event_type, jpeg, .. } = still;
        self.stills_seen += 1;
        self.stills.push(Stored {
            frame_index,
            pts_ms,
            event_type,
            bytes: jpeg.len() as u64,
            hash,
        });
        Ok(())
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
