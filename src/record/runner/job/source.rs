//! Successive workers of a job: a lost live source is reconnected and continues after a gap.

use std::{ops::ControlFlow, sync::Arc, time::Duration};

use decode::{FileReport, Sampling, StreamInfo};
use media::Signal;
use timeline::{Event, SourceReconnected};
use tokio_util::sync::{CancellationToken, DropGuard};
use worker::{JobEvent, JobInput, JobOptions, JobSpec, LiveEnd, Resume, WorkerError, WorkerLimits};

use super::{
    super::{IngestError, reason::WALL},
    Ended, JobThread,
};
use crate::{
    base::{backoff::Backoff, telemetry::SPANS},
    record::remote::{Errand, RemoteConnections, RemoteError},
    runs::source::IngestSource,
};

/// Delays before a lost live source is reconnected.
const RECONNECT: Backoff =
    Backoff { first: Duration::from_secs(1), factor: 2, longest: Duration::from_secs(30) };
/// Time without a frame after which a live source is given up.
pub const RECONNECT_WITHIN: Duration = Duration::from_secs(600);

/// Gap of a lost live source.
pub(super) struct Gap {
    pub reason: String,
    attempts: u32,
}

impl JobThread {
    /// Decodes the source: with one worker, and another each time a live source is lost.
    pub(super) fn work(&mut self) -> Result<Ended, IngestError> {
        loop {
            let was_live = self.is_live();
            if was_live && self.drain.is_none() {
                self.drain = Some(self.end_with_drain());
            }
            let (end, outcome) = self.connect();
            if self.is_live() != was_live {
                // The source is live: it is opened again with the limits of a live source.
                continue;
            }
            let may_go_on = match end {
                LiveEnd::Lost | LiveEnd::Refused => self.is_live(),
                // A camera that restarts ends its stream as one that is switched off does.
                LiveEnd::Over => self.is_camera(),
                _ => false,
            };
            if !(may_go_on && self.waits_to_reconnect(end, &outcome)?) {
                return match (end, outcome) {
                    // The source ended regularly while it was lost.
                    (LiveEnd::Over, Err(_)) if self.has_recorded() => {
                        Ok(Ended { report: self.report(), reason: None, cut: None })
                    }
                    (_, outcome) => outcome,
                };
            }
        }
    }

    /// Cancels the job when a drain begins, which it would outlast, unless the guard is dropped before.
    fn end_with_drain(&self) -> DropGuard {
        let over = CancellationToken::new();
        let guard = over.clone().drop_guard();
        let (draining, token) = (self.runner.draining.clone(), self.guard.token.clone());
        self.log.runtime.spawn(async move {
            if over.run_until_cancelled(draining.cancelled()).await.is_some() {
                token.cancel();
            }
        });
        guard
    }

    /// Waits for the next attempt to reconnect; returns false if the source has been lost for too long.
    fn waits_to_reconnect(
        &mut self,
        end: LiveEnd,
        outcome: &Result<Ended, IngestError>,
    ) -> Result<bool, IngestError> {
        let is_playlist = self.is_growing;
        let Some(opened) = &mut self.opened else { return Ok(false) };
        let Some(came) = opened.came else { return Ok(false) };
        if came.elapsed() >= RECONNECT_WITHIN {
            return Ok(false);
        }
        opened.write()?;
        let gap = self.gap.get_or_insert_with(|| {
            let reason = match outcome {
                Ok(ended) => ended.reason.clone(),
                Err(error) => Some(error.told()),
            };
            let silent = match end {
                LiveEnd::Over => "it ended its stream",
                _ if is_playlist => "its playlist does not grow any more",
                _ => "its connection ended",
            };
            let reason = reason.unwrap_or_else(|| silent.to_owned());
            tracing::warn!(run = %self.log.run.id(), reason, "a live source is lost: it is tried again");
            Gap { reason, attempts: 0 }
        });
        gap.attempts += 1;
        let pause = RECONNECT.exact(gap.attempts);
        let waiting = &self.guard.token.waiting;
        // A timer must be created inside the runtime.
        let paused = waiting.run_until_cancelled(async { tokio::time::sleep(pause).await });
        // A job cancelled meanwhile ends in its next worker.
        self.log.runtime.block_on(self.places.slot.lender().lend_while(paused));
        Ok(true)
    }

    /// Returns the state to resume from after the last frame, if there was one.
    fn resume(&self) -> Option<Resume> {
        let opened = self.opened.as_ref()?;
        let (last, gate) = opened.recorder.last()?;
        let came = opened.came?;
        let gap_ms = i64::try_from(came.elapsed().as_millis()).unwrap_or(i64::MAX);
        let begins_at_ms = last.pts_ms.saturating_add(gap_ms.max(1));
        Some(Resume { last, gate, begins_at_ms, segment: self.segment })
    }

    /// Runs one worker on the source, from where the source was lost.
    fn connect(&mut self) -> (LiveEnd, Result<Ended, IngestError>) {
        let limits = self.limits();
        let (input, feed) = match self.open(limits.wall) {
            Ok(opened) => opened,
            Err(error @ IngestError::Remote(_)) => return (LiveEnd::Refused, Err(error)),
            Err(error) => return (LiveEnd::Failed, Err(error)),
        };
        let options = JobOptions {
            resume: self.resume(),
            sampling: self.ingest.rate.map_or(Sampling::Every, Sampling::Fixed),
            max_frames: self.ingest.max_frames,
            stills: self.runner.parts.stills,
            views: self.chunks.as_ref().map(|chunks| chunks.chunker.options()),
            gate: self.ingest.gate,
            zones: self.ingest.zones.clone(),
            threads: self.runner.parts.threads,
        };
        let spec = JobSpec { input, options, limits };
        let cancel = self.guard.token.running.clone();
        let _timer = self.runner.parts.metrics.job_seconds.start_timer();
        let runner = Arc::clone(&self.runner);
        let mut failed = None;
        let mut take = |event| {
            if let JobEvent::Opened(StreamInfo { is_endless: true, .. }) = &event
                && !self.is_live()
            {
                self.is_growing = true;
                return ControlFlow::Break(());
            }
            match self.take(event) {
                Ok(()) => ControlFlow::Continue(()),
                Err(error) => {
                    failed = Some(error);
                    ControlFlow::Break(())
                }
            }
        };
        let outcome = tracing::info_span!(target: SPANS, "worker")
            .in_scope(|| runner.parts.supervisor.run_job(spec, &cancel, &mut take));
        let max_frames = self.ingest.max_frames;
        let end = match &failed {
            Some(_) => LiveEnd::Failed,
            None => LiveEnd::of(&outcome, max_frames),
        };
        let outcome = failed.map_or(outcome.map_err(IngestError::Worker), Err);
        if let Some(feed) = &feed {
            runner.parts.metrics.remote_bytes.inc_by(feed.bytes());
            // The last picture is held until more comes, or the source is given up.
            if let (Some(opened), Some(heard)) = (&mut self.opened, feed.heard_at()) {
                opened.came = opened.came.map(|came| came.min(heard));
            }
        }
        (end, explained(outcome, feed, max_frames))
    }

    fn limits(&self) -> WorkerLimits {
        let limits = match &self.ingest.source {
            IngestSource::File(_) => WorkerLimits::file(),
            IngestSource::Remote(source) => source.limits(self.is_growing),
        };
        let waits_for_models = self.chunks.is_some() && !self.is_live();
        if waits_for_models { WorkerLimits { wall: WALL, ..limits } } else { limits }
    }

    /// Opens the input of the worker, and the connections of a remote source with the time limit `wall`.
    fn open(&self, wall: Duration) -> Result<(JobInput, Option<RemoteConnections>), IngestError> {
        match &self.ingest.source {
            IngestSource::File(file) => {
                let file = file.try_clone();
                let file = file.map_err(|error| IngestError::Worker(WorkerError::Spawn(error)))?;
                Ok((file.into(), None))
            }
            IngestSource::Remote(source) => {
                let errand = Errand {
                    is_endless: self.is_growing,
                    wall,
                    lender: self.places.slot.lender(),
                    cancel: &self.guard.token.waiting,
                    runtime: &self.log.runtime,
                };
                let opened = self.runner.parts.remote.open(source, errand);
                let (input, feed) = opened.map_err(told_by_host)?;
                Ok((input, Some(feed)))
            }
        }
    }

    /// Returns the event of the source's return, and its frame index.
    pub(super) fn came_back(&self, first: &Signal, gap: Gap) -> (u64, Event) {
        let last = self.opened.as_ref().and_then(|opened| opened.recorder.last());
        let gap_ms = last.map_or(0, |(last, _)| first.pts_ms.saturating_sub(last.pts_ms));
        let Gap { reason, attempts } = gap;
        let event = Event::SourceReconnected(SourceReconnected {
            request_id: self.ingest.request_id,
            stream_id: self.ingest.stream_id.clone(),
            frame_index: first.frame_index,
            pts_ms: first.pts_ms,
            gap_ms: u64::try_from(gap_ms).unwrap_or(0),
            attempts,
            reason,
        });
        (first.frame_index, event)
    }
}

fn told_by_host(error: RemoteError) -> IngestError {
    match error {
        RemoteError::Cancelled => IngestError::Worker(WorkerError::Cancelled),
        error => IngestError::Remote(error),
    }
}

/// End of the decoding of a file; damage is reported, which for a network source may be momentary.
fn whole_file(report: FileReport) -> Ended {
    let reason = match (report.truncated, report.damaged_packets) {
        (false, 0) => None,
        (true, 0) => Some("the source ends early".to_owned()),
        (false, damaged) => Some(format!("damaged packets: {damaged}")),
        (true, damaged) => Some(format!("the source ends early, damaged packets: {damaged}")),
    };
    let truncated = reason.is_some();
    Ended { report: FileReport { truncated, ..report }, reason, cut: None }
}

/// Returns the outcome of a job; a failure of the remote source explains the worker's.
fn explained(
    outcome: Result<FileReport, IngestError>,
    feed: Option<RemoteConnections>,
    max_frames: u64,
) -> Result<Ended, IngestError> {
    use WorkerError::{Cancelled, FirstFrameTimeout, Stalled};
    let whole = |report| Ended { report, reason: None, cut: None };
    let Some(feed) = feed else { return outcome.map(whole_file) };
    match (outcome, feed.cause()) {
        // All requested frames were decoded: a later failure of the source does not matter.
        (Ok(report), _) if report.frames >= max_frames => Ok(whole(report)),
        (Ok(report), Some(cause)) if cause.is_cut() => {
            let report = FileReport { truncated: true, ..report };
            Ok(Ended { report, reason: Some(cause.to_string()), cut: None })
        }
        (Err(IngestError::Worker(Cancelled)), _) => Err(IngestError::Worker(Cancelled)),
        (Ok(_) | Err(IngestError::Worker(_)), Some(cause)) => Err(told_by_host(cause)),
        (Err(IngestError::Worker(FirstFrameTimeout(after) | Stalled(after))), None) => {
            Err(IngestError::Remote(RemoteError::Slow(after)))
        }
        (outcome, _) => outcome.map(whole),
    }
}
