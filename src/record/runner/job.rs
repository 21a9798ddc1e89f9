//! One job on its thread: turns a worker's events into a recording.
//!
//! Records first that the source was accepted, then the decisions about its frames as they arrive. However a
//! decoding ends, the earlier frames are kept. Answers of models are appended elsewhere.

mod opened;
mod source;
mod writer;

use std::{sync::Arc, time::Instant};

use decode::{FileReport, StreamInfo};
use media::FrameRate;
use tokio_util::sync::DropGuard;
use tracing::{Span, field::Empty};
use worker::{
    ChunkBuilder, FrameChunk, FrameRecord, GateBackendReport, JobEvent, ModelImage, StageTimings,
    WireError, WorkerError,
};

use super::{
    Begun, IngestError, IngestJob, IngestResult, JobGuard, JobRunner, SHUTDOWN,
    decode_events::{DecodedSource, FailedJob},
    reason::ChunkSender,
};
use crate::{
    base::{clock::wall_now, keys::Principal, telemetry::SPANS},
    record::{
        MemoryBudget, MemoryReservation,
        recording::{self, Head, RecordError, Recording, RunLog},
    },
    runs::{
        job_queue::JobPermit,
        registry::RunError,
        source::{IngestSource, remote::RemoteSource},
    },
};

use opened::{Opened, To};
use source::Gap;
use writer::Writer;

pub use source::RECONNECT_WITHIN;

/// Permits of a job that decodes.
pub(super) struct Decoding {
    /// Permit to decode; lent while the source waits for the network.
    pub(super) slot: JobPermit,
    /// Of a remote source, unless it is live, has brought frames and got memory.
    pub(super) remote: Option<JobPermit>,
    /// Of a live source.
    pub(super) _memory: Option<MemoryReservation>,
}

impl Decoding {
    /// Exchanges the permit of a live source, which may stay for ever, for memory of a live session, as soon as
    /// `budget` has room.
    fn stay(&mut self, budget: &MemoryBudget, owner: &Principal) {
        if self.remote.is_some()
            && let Ok(memory) = budget.reserve(owner)
        {
            (self.remote, self._memory) = (None, Some(memory));
        }
    }
}

pub(super) struct JobThread {
    runner: Arc<JobRunner>,
    guard: Arc<JobGuard>,
    ingest: IngestJob,
    log: RunLog,
    /// Source and recording, once the worker has opened the source.
    opened: Option<Opened>,
    /// True of a growing playlist, which is known once it was opened.
    is_growing: bool,
    /// Number of the next segment of the playlist.
    segment: Option<u64>,
    /// Decoders of a live source, in the order of its connections.
    decoders: Vec<String>,
    /// Gap of a lost live source, until its next frame.
    gap: Option<Gap>,
    /// Span from the opened container to the worker's report.
    decoding: Span,
    chunks: Option<ChunkSender>,
    /// Lent to other jobs while the source waits for the network.
    places: Decoding,
    /// Of a live source; see [`JobThread::end_with_drain`].
    drain: Option<DropGuard>,
}

struct Ended {
    report: FileReport,
    reason: Option<String>,
    /// Error of an early end that the caller gets too.
    cut: Option<IngestError>,
}

impl JobThread {
    pub(super) fn new(begun: Begun, ingest: IngestJob, chunks: Option<ChunkSender>) -> JobThread {
        let Begun { runner, guard, places, log } = begun;
        JobThread {
            runner,
            guard,
            ingest,
            log,
            opened: None,
            is_growing: false,
            segment: None,
            decoders: Vec::new(),
            gap: None,
            decoding: Span::none(),
            chunks,
            places,
            drain: None,
        }
    }

    /// Decodes the source and records it on the run's timeline.
    pub(super) fn ingest(self) -> Result<IngestResult, IngestError> {
        let mut decoded = self.decode().map_err(|undone| undone.error)?;
        let (cut, request_id) = (decoded.cut.take(), decoded.ingest.request_id);
        let last = cut.as_ref().and_then(|error| error.end_of_run(request_id));
        let (ingested, _) = decoded.record(Vec::new(), last)?;
        cut.map_or(Ok(ingested), Err)
    }

    /// Decodes the source; the events of its end remain to be recorded.
    pub(super) fn decode(mut self) -> Result<DecodedSource, FailedJob> {
        let job = self.guard.token.order().map(|order| order.id);
        let accepted = self.ingest.accept(job, &self.log);
        match accepted.and_then(|()| self.work()) {
            Ok(ended) => self.decoded(ended),
            Err(error) if self.has_recorded() => {
                let ended = self.cut(error);
                self.decoded(ended)
            }
            Err(error) => Err(self.undone(error)),
        }
    }

    fn has_recorded(&self) -> bool {
        self.opened.as_ref().is_some_and(|opened| opened.to.has_written())
    }

    fn frames(&self) -> u64 {
        self.opened.as_ref().map_or(0, |opened| opened.recorder.frames())
    }

    fn is_live(&self) -> bool {
        self.is_growing || self.is_rtsp()
    }

    fn is_rtsp(&self) -> bool {
        matches!(self.ingest.source, IngestSource::Remote(RemoteSource::Rtsp(_)))
    }

    /// Returns true of a camera, which never signals the end of its source; a playlist does.
    fn is_camera(&self) -> bool {
        self.is_rtsp() && self.opened.as_ref().is_some_and(|opened| opened.stream.is_endless)
    }

    /// Returns the end of a decoding that `error` cut off.
    fn cut(&self, error: IngestError) -> Ended {
        let report = FileReport { truncated: true, ..self.report() };
        if let IngestError::Record(error) = &error {
            tracing::warn!(run = %self.log.run.id(), %error, "a recording is cut off");
        }
        let mut reason = error.why_cut();
        if matches!(error, IngestError::Worker(WorkerError::Cancelled)) {
            if self.is_shut_down() {
                SHUTDOWN.clone_into(&mut reason);
            }
            if let Some(gap) = &self.gap {
                reason = format!("{reason} while the source was lost: {}", gap.reason);
            }
        }
        // A source that may be endless ends regularly at the time limit.
        let cut = Some(error).filter(|error| !error.is_out_of_time());
        Ended { report, reason: Some(reason), cut }
    }

    /// Returns true if the job is cancelled by neither its owner nor the end of its run.
    fn is_shut_down(&self) -> bool {
        let JobGuard { run, token } = &*self.guard;
        token.is_cancelled() && !token.is_called_off() && run.check_active().is_ok()
    }

    fn report(&self) -> FileReport {
        let frames = self.frames();
        FileReport { frames, source_frames: frames, ..FileReport::default() }
    }

    /// Records on the timeline that the job failed, if that ends the run.
    fn undone(self, error: IngestError) -> FailedJob {
        let JobThread { log, ingest, opened, .. } = self;
        let is_opened = opened.is_some();
        // If the writer thread panicked, the recording is left to be closed later.
        if let Some(Ok((recording, _))) = opened.map(|opened| opened.to.finish()) {
            recording.discard();
        }
        let told = error.end_of_run(ingest.request_id).map(|failed| log.commit(vec![failed]));
        let error = told.and_then(Result::err).map_or(error, IngestError::from);
        FailedJob { error, is_opened }
    }

    fn decoded(self, ended: Ended) -> Result<DecodedSource, FailedJob> {
        let Ended { mut report, reason, mut cut } = ended;
        if self.is_live() {
            // A worker that is cut off reports none, another only its own.
            report.decoder = self.decoders.join("+");
        }
        if let Some(reason) = &report.fallback {
            let (decoder, run) = (&report.decoder, self.log.run.id());
            self.runner.parts.metrics.decode_fallbacks.inc();
            tracing::warn!(%run, decoder, reason, "software decoding was used for part of the file");
        }
        let Some(mut opened) = self.opened else {
            return Err(FailedJob { error: IngestError::Lost, is_opened: false });
        };
        opened.recorder.end();
        let given = opened.write();
        let Opened { stream, recorder, to, analysis, .. } = opened;
        let lost = |error| FailedJob { error, is_opened: true };
        let (recording, rest) = to.finish().map_err(lost)?;
        let rest = given.and(rest);
        let sealed = match rest {
            // The run is deleted: its recording is removed.
            Err(error @ RecordError::Run(RunError::NotFound)) => {
                recording.discard();
                Err(error)
            }
            Err(error @ RecordError::Run(RunError::Log(_) | RunError::Unfinished)) => Err(error),
            // A refusal by a quota, the disk or an ended run keeps the frames written before.
            rest => {
                cut = cut.or(rest.err().map(IngestError::from));
                recording.seal()
            }
        };
        let sealed = sealed.map_err(|error| lost(error.into()))?;
        let analysis = analysis.map(|analysis| (analysis, recorder.markers()));
        Ok(DecodedSource { ingest: self.ingest, stream, report, sealed, analysis, reason, cut })
    }

    fn take(&mut self, event: JobEvent) -> Result<(), IngestError> {
        match event {
            JobEvent::Opened(stream) => {
                self.decoding = tracing::info_span!(
                    target: SPANS,
                    "decode",
                    codec = stream.codec.as_str(),
                    frames = Empty,
                    decode_us = Empty,
                    gate_us = Empty,
                );
                if let Some(chunks) = &self.chunks {
                    chunks.check(&stream)?;
                }
                if let Some(frames) = expected(&stream, self.ingest.rate) {
                    self.guard.token.expect_frames(frames.min(self.ingest.max_frames));
                }
                let decoder = decode::software_decoder(stream.codec);
                if !self.decoders.contains(&decoder) {
                    self.decoders.push(decoder);
                }
                let wall_start = if self.is_live() { Some(wall_now()) } else { stream.wall_start };
                if self.opened.is_none() {
                    self.opened = Some(self.begin(StreamInfo { wall_start, ..stream })?);
                }
                self.end_chunk(ChunkBuilder::restart)?;
            }
            JobEvent::Segment { next } => self.segment = Some(next),
            JobEvent::Frames(records) => {
                if self.is_live() {
                    let owner = &self.log.run.origin().principal;
                    self.places.stay(&self.runner.parts.budget, owner);
                }
                self.push(records)?;
            }
            JobEvent::Progress { frames, pts_ms } => {
                self.guard.token.advance(frames.min(self.ingest.max_frames), pts_ms);
            }
            JobEvent::Measured(GateBackendReport { measurer, lost, late }) => {
                self.runner.parts.metrics.gate_batches_late.inc_by(u64::from(late));
                if let Some(reason) = lost {
                    self.runner.parts.metrics.gate_devices_lost.inc();
                    let run = self.log.run.id();
                    tracing::warn!(%run, measurer, reason, "the gate's device was given up");
                }
            }
            JobEvent::Spent(StageTimings { decode_us, gate_us }) => {
                self.decoding.record("decode_us", decode_us).record("gate_us", gate_us);
                let metrics = &self.runner.parts.metrics;
                metrics.decode_seconds.observe(decode_us as f64 / 1e6);
                metrics.gate_seconds.observe(gate_us as f64 / 1e6);
            }
            JobEvent::Done(report) => {
                self.decoding.record("frames", report.frames);
                self.decoding = Span::none();
                self.end_chunk(ChunkBuilder::finish)?;
            }
        }
        Ok(())
    }

    fn begin(&self, stream: StreamInfo) -> Result<Opened, IngestError> {
        let job = self.guard.token.order().ok_or(IngestError::Lost)?.id;
        let stream_id = &self.ingest.stream_id;
        let gate = self.ingest.gate;
        let key = if self.is_live() {
            Some(self.log.run.next_analysis(self.log.registry.timeline(), stream_id)?)
        } else {
            None
        };
        let decoded = self.ingest.opened(&stream);
        let analysis = key.as_ref();
        let analysis = analysis.map(|key| recording::analysis(key, &decoded, &self.log.run));
        let received = Some(self.ingest.received(decoded.sample_fps));
        let head = Head { received, decoded, analysis: analysis.clone(), index_name: None };
        let recorder = head.recorder(gate, self.ingest.words.clone(), key, None);
        let stores = self.runner.parts.stores.clone();
        let recording = Recording::begin(self.log.clone(), stores, job, head)?;
        let to = if self.is_live() {
            let chunks = self.chunks.as_ref().map(|chunks| chunks.to.clone());
            let metrics = Arc::clone(&self.runner.parts.metrics);
            To::Beside(Writer::start(recording, metrics, chunks)?)
        } else {
            To::Here(Box::new(recording), None)
        };
        Ok(Opened { stream, recorder, to, analysis, came: None })
    }

    fn end_chunk(
        &mut self,
        close: fn(&mut ChunkBuilder<ModelImage>) -> Option<FrameChunk>,
    ) -> Result<(), IngestError> {
        match (&mut self.chunks, &mut self.opened) {
            (Some(chunks), Some(opened)) => opened.send(close(&mut chunks.chunker), chunks),
            _ => Ok(()),
        }
    }

    fn push(&mut self, records: Vec<FrameRecord>) -> Result<(), IngestError> {
        let (Some(first), Some(last)) = (records.first(), records.last()) else { return Ok(()) };
        let (first, last) = (first.signal, last.signal);
        let mut came_back = self.gap.take().map(|gap| self.came_back(&first, gap));
        let (stills, mut selected) = (self.runner.parts.stills, 0);
        let JobThread { opened, chunks, .. } = self;
        let unexpected = || WireError::Unexpected("frame before its source is opened");
        let opened = opened.as_mut().ok_or_else(unexpected)?;
        // Start of the next gap.
        opened.came = Some(Instant::now());
        let before = opened.recorder.frames();
        let taken = records.into_iter().try_for_each(|record| {
            selected +=
                u64::from(opened.frame(record, stills, chunks.as_mut(), came_back.take())?);
            Ok::<_, IngestError>(())
        });
        let frames = opened.recorder.frames();
        let written = taken.and_then(|()| Ok(opened.write_due()?));
        let metrics = &self.runner.parts.metrics;
        metrics.decided(&self.guard.run.origin().principal, frames - before, selected);
        self.guard.token.advance(frames, last.pts_ms);
        written
    }
}

/// Number of frames that the source declares, at `rate` if one is given.
fn expected(stream: &StreamInfo, rate: Option<FrameRate>) -> Option<u64> {
    let seconds = stream.duration?.as_millis().max(0) as f64 / 1e3;
    let counted = stream.source_rate.map(|rate| seconds * rate.as_f64());
    let in_source = stream.declared_frames.map(|frames| frames as f64).or(counted);
    let chosen = rate.map(|rate| seconds * rate.as_f64());
    let least = [in_source, chosen].into_iter().flatten().reduce(f64::min)?;
    Some((least.ceil() as u64).max(1))
}
