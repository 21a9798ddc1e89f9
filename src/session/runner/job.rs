//! One job on its thread: a worker's events in, durable stills and signals out.
//!
//! Tells first that its source was accepted. The events of a decoding are appended once its worker
//! is done; one that is cut off keeps what came before, and a worker that died leaves one
//! `run_failed` instead. What models say meanwhile is another's to append.

use std::{ops::ControlFlow, sync::Arc, time::Duration};

use decode::{FileReport, Sampling, StreamInfo};
use gate::Gate;
use media::{Rate, Signal};
use timeline::{ColumnWriter, Event};
use tokio::runtime::Handle;
use tracing::{Span, field::Empty};
use worker::{
    JobEvent, JobInput, JobSpec, Limits, MeasuredBy, ProtocolError, Spent, Still, WorkerError,
};

use super::{
    Decoding, Ingest, IngestError, Ingested, JobGuard, Runner,
    reason::{Chunks, WALL},
    record::{Charged, Decoded, RunLog, Stored, Tail, Undone},
    stores::Stores,
};
use crate::{
    clock::wall_now,
    session::{
        admission::Lender,
        registry::JobKind,
        remote::{Errand, Feed, RemoteError, RemoteSource},
    },
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
    /// Span from the opened container to the worker's report.
    decoding: Span,
    /// Stills that have not been handed on yet.
    stills: Vec<Stored>,
    stored: Stores,
    /// Recording for the start after a crash; of an ingest that is opened.
    recording: Option<Charged>,
    /// Signals so far.
    frames: u64,
    /// Sink of chunks, where they are wanted.
    chunks: Option<Chunks>,
    /// Lender that lets others decode while the source waits for the network.
    lender: Lender,
}

/// End of a decoding.
struct Ended {
    report: FileReport,
    /// Reason that no more came, where something cut it off.
    reason: Option<String>,
    /// Error that ends more than the decoding.
    cut: Option<IngestError>,
}

impl Job {
    pub(super) fn new(
        runner: Arc<Runner>,
        guard: Arc<JobGuard>,
        ingest: Ingest,
        runtime: Handle,
        places: &Decoding,
    ) -> Job {
        let signals = runner.parts.registry.timeline().column_writer();
        let (registry, run) = (Arc::clone(&runner.parts.registry), Arc::clone(guard.run()));
        let log = RunLog { registry, run, runtime };
        let gate = Gate::new(ingest.gate.unwrap_or(runner.parts.gate));
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
            recording: None,
            frames: 0,
            chunks: None,
            lender: places.slot.lender(),
        }
    }

    /// Decodes the source onto the run's timeline.
    pub(super) fn ingest(self) -> Result<Ingested, IngestError> {
        let mut decoded = self.decode().map_err(|undone| undone.take_back())?;
        let (cut, request_id) = (decoded.cut.take(), decoded.ingest.request_id);
        let last = cut.as_ref().and_then(|error| error.end_of_run(request_id));
        let (ingested, _) = decoded.record(Tail { events: Vec::new(), last })?;
        cut.map_or(Ok(ingested), Err)
    }

    /// Decodes the source, its chunks going to `chunks`.
    pub(super) fn reason(mut self, chunks: Option<Chunks>) -> Result<Decoded, Box<Undone>> {
        self.chunks = chunks;
        self.decode()
    }

    /// Decodes the source; of the decoding itself nothing is on the timeline yet.
    fn decode(mut self) -> Result<Decoded, Box<Undone>> {
        let job = self.guard.token().order().map(|order| order.id);
        let accepted = self.ingest.accept(job, &self.log);
        match accepted.and_then(|()| self.work()) {
            Ok(ended) => self.decoded(ended),
            Err(error) => Err(Box::new(self.undone(error))),
        }
    }

    /// Makes a worker decode the source.
    fn work(&mut self) -> Result<Ended, IngestError> {
        let limits = self.limits();
        let (input, feed) = self.open(limits.wall)?;
        let spec = JobSpec {
            input,
            sampling: self.ingest.rate.map_or(Sampling::Every, Sampling::Fixed),
            max_frames: self.ingest.max_frames,
            stills: self.runner.parts.stills,
            views: self.chunks.as_ref().map(|chunks| chunks.views),
            gate: self.ingest.gate.unwrap_or(self.runner.parts.gate),
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
            Err(error) if self.frames > 0 && error.keeps_what_came() => Ok(self.cut(error)),
            outcome => outcome,
        }
    }

    /// Part of the source that the worker had decoded when it was ended.
    fn cut(&self, error: IngestError) -> Ended {
        let report = FileReport {
            decoder: String::new(),
            fallback: None,
            frames: self.frames,
            source_frames: self.frames,
            source_rate: None,
            truncated: true,
            more_frames: false,
            damaged_packets: 0,
            first_extent: None,
        };
        let reason = Some(error.why_cut());
        // A source that may go on for ever has ended as well as it can.
        let cut = Some(error).filter(|error| !error.is_out_of_time());
        Ended { report, reason, cut }
    }

    /// Records on the timeline that it failed, where that ends the run.
    fn undone(self, error: IngestError) -> Undone {
        let Job { log, ingest, stored, opened, .. } = self;
        let told = error.end_of_run(ingest.request_id).map(|failed| log.commit(vec![failed]));
        let error = told.and_then(Result::err).unwrap_or(error);
        Undone { error, stored, run: log.run, is_opened: opened.is_some() }
    }

    fn limits(&self) -> Limits {
        let limits = match &self.ingest.source {
            Source::File(_) => Limits::default(),
            Source::Remote(source) => source.limits(),
        };
        if self.chunks.is_some() { Limits { wall: WALL, ..limits } } else { limits }
    }

    fn decoded(self, ended: Ended) -> Result<Decoded, Box<Undone>> {
        let Ended { report, reason, cut } = ended;
        if let Some(reason) = &report.fallback {
            let (decoder, run) = (&report.decoder, self.log.run.id());
            self.runner.parts.metrics.decode_fallbacks.inc();
            tracing::warn!(%run, decoder, reason, "not all was decoded by the backend asked for");
        }
        let Job { ingest, log, opened, signals, mut stills, stored, recording, .. } = self;
        // Of a frame without signals nothing is told.
        stills.retain(|still| still.frame_index < report.frames);
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
                reason,
                cut,
                _column,
                _recording: recording,
            }),
            Err(error) => Err(Box::new(Undone { error, stored, run: log.run, is_opened: true })),
        }
    }

    /// Input of the worker, and the feed of a remote one for as long as `wall`.
    fn open(&self, wall: Duration) -> Result<(JobInput, Option<Feed>), IngestError> {
        match &self.ingest.source {
            Source::File(file) => {
                let file = file.try_clone();
                let file = file.map_err(|error| IngestError::Worker(WorkerError::Spawn(error)))?;
                Ok((file.into(), None))
            }
            Source::Remote(source) => {
                let errand = Errand {
                    wall,
                    lender: self.lender.clone(),
                    cancel: &self.guard.token().waiting,
                    runtime: &self.log.runtime,
                };
                let opened = self.runner.parts.remote.open(source, errand);
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
                if let Some(frames) = expected(&stream, self.ingest.rate) {
                    self.guard.token().expect_frames(frames.min(self.ingest.max_frames));
                }
                let is_live = matches!(self.ingest.source, Source::Remote(RemoteSource::Rtsp(_)));
                let wall_start = if is_live { Some(wall_now()) } else { stream.wall_start };
                let stream = StreamInfo { wall_start, ..stream };
                self.record_opened(&stream)?;
                self.opened = Some(stream);
            }
            JobEvent::Signals(signals) => self.push(&signals)?,
            JobEvent::Still(still) => self.store(still)?,
            JobEvent::Chunk(chunk) => match &mut self.chunks {
                Some(chunks) => chunks.send(chunk, &mut self.stills, self.frames)?,
                None => return Err(IngestError::Worker(ProtocolError::Unexpected("chunk").into())),
            },
            JobEvent::Progress { frames, pts_ms } => {
                self.guard.token().advance(frames.min(self.ingest.max_frames), pts_ms);
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

    /// Begins what a crash leaves of an ingest; of a reasoning its chunks tell.
    fn record_opened(&mut self, stream: &StreamInfo) -> Result<(), IngestError> {
        let order = self.guard.token().order();
        let Some(order) = order.filter(|order| order.kind == JobKind::Ingest) else {
            return Ok(());
        };
        let recording = self.runner.parts.recordings.begin(order.id, order.run)?;
        let decoded = self.ingest.opened(stream);
        let received = self.ingest.received(0, decoded.sample_fps);
        let mut charged = Charged { recording, hold: self.stored.beside() };
        charged.note(|recording| recording.event(received))?;
        charged.note(|recording| recording.event(Event::FramesDecoded(decoded)))?;
        self.recording = Some(charged);
        Ok(())
    }

    fn push(&mut self, signals: &[Signal]) -> Result<(), IngestError> {
        // The worker's decisions, which depend on the signals alone.
        let selected = signals.iter().filter(|signal| self.gate.offer(signal).selected).count();
        let metrics = &self.runner.parts.metrics;
        metrics.decided(signals.len() as u64, selected as u64);
        let work = metrics.owners.of(&self.guard.run().origin().principal);
        work.decided(signals.len() as u64, selected as u64);
        let before = self.signals.column_bytes();
        signals.iter().try_for_each(|signal| self.signals.push(signal))?;
        if let Some(charged) = &mut self.recording {
            charged.note(|recording| recording.signals(signals))?;
        }
        self.frames += signals.len() as u64;
        if let Some(last) = signals.last() {
            self.guard.token().advance(self.frames, last.pts_ms);
        }
        self.stored.charge_column(self.signals.column_bytes() - before)
    }

    fn store(&mut self, still: Still) -> Result<(), IngestError> {
        let timer = self.runner.parts.metrics.still_seconds.start_timer();
        let hash = self.stored.put(&still.jpeg)?;
        drop(timer);
        let Still { frame_index, pts_ms, event_type, reason, jpeg, .. } = still;
        let bytes = jpeg.len() as u64;
        let still = Stored { frame_index, pts_ms, event_type, reason, bytes, hash };
        if let Some(charged) = &mut self.recording {
            let event = still.clone().event(self.log.run.id());
            charged.note(|recording| recording.event(event))?;
        }
        self.stills.push(still);
        Ok(())
    }
}

/// Frames that a source has by its own account, chosen at `rate` where one is asked for.
fn expected(stream: &StreamInfo, rate: Option<Rate>) -> Option<u64> {
    let seconds = stream.duration?.as_millis().max(0) as f64 / 1e3;
    let counted = stream.source_rate.map(|rate| seconds * rate.as_f64());
    let in_source = stream.declared_frames.map(|frames| frames as f64).or(counted);
    let chosen = rate.map(|rate| seconds * rate.as_f64());
    let least = [in_source, chosen].into_iter().flatten().reduce(f64::min)?;
    Some((least.ceil() as u64).max(1))
}

fn told_by_host(error: RemoteError) -> IngestError {
    match error {
        RemoteError::Cancelled => IngestError::Worker(WorkerError::Cancelled),
        error => IngestError::Remote(error),
    }
}

/// Outcome of a job, where a failure of its source explains the worker's.
fn explained(
    outcome: Result<FileReport, IngestError>,
    feed: Option<Feed>,
    max_frames: u64,
) -> Result<Ended, IngestError> {
    use WorkerError::{Cancelled, FirstFrameTimeout, Stalled};
    let whole = |report| Ended { report, reason: None, cut: None };
    let Some(feed) = feed else { return outcome.map(whole) };
    match (outcome, feed.cause()) {
        // All that was asked for was there.
        (Ok(report), _) if report.frames >= max_frames => Ok(whole(report)),
        (Ok(report), Some(cause)) if cause.is_cut() => {
            let report = FileReport { truncated: true, ..report };
            Ok(Ended { report, reason: Some(cause.to_string()), cut: None })
        }
        (Err(IngestError::Worker(Cancelled)), _) => Err(IngestError::Worker(Cancelled)),
        (Ok(_) | Err(IngestError::Worker(_)), Some(cause)) => Err(told_by_host(cause)),
        (Err(IngestError::Worker(FirstFrameTimeout { after } | Stalled { after })), None) => {
            Err(IngestError::Remote(RemoteError::Slow(after)))
        }
        (outcome, _) => outcome.map(whole),
    }
}
