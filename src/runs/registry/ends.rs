//! Ends of runs: on request, or after idling for too long; and their deletion long after, for retention.

use std::{
    collections::HashSet,
    sync::Arc,
    time::{Duration, Instant},
};

use media::{RequestId, RunId, StreamId, WallTime};
use timeline::{Event, EventKind, RequestMarkerPayload, RunCompleted, RunExpired, Timeline};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use super::{Run, RunError, RunRegistry, change::RunTransition};
use crate::{
    base::blocking::{TaskPanicked, blocking},
    runs::lifecycle::RunState,
};

/// Reason of a `run_completed` event after idling.
pub const IDLE: &str = "idle";
/// Longest wait of a requested end for the job's last events.
const REST_MAX: Duration = Duration::from_secs(10);

impl RunRegistry {
    /// Stops an active run on request and ends its job.
    pub async fn stop(
        self: &Arc<Self>,
        run: &Arc<Run>,
        request_id: RequestId,
    ) -> Result<(), RunError> {
        self.end(run, RunState::Cancelled, request_id).await
    }

    /// Completes an active run on request and ends its job.
    pub async fn finish(
        self: &Arc<Self>,
        run: &Arc<Run>,
        request_id: RequestId,
    ) -> Result<(), RunError> {
        self.end(run, RunState::Completed, request_id).await
    }

    /// Ends an active run at once; returns once the event of the end is durable, after the job's last events.
    pub(super) async fn end(
        self: &Arc<Self>,
        run: &Arc<Run>,
        end: RunState,
        request_id: RequestId,
    ) -> Result<(), RunError> {
        let (registry, run) = (Arc::clone(self), Arc::clone(run));
        // Runs in its own task: a caller that goes away must not leave an end without an event.
        let ended = async move {
            run.begin_end(end).await?;
            if timeout(REST_MAX, run.rests()).await.is_err() {
                tracing::warn!(run = %run.id(), "the last of a job follows the end of its run");
            }
            let told = async {
                let event = match end {
                    RunState::Completed => registry.completed(&run, Some(request_id), None).await?,
                    _ => Event::StopRequested(RequestMarkerPayload { request_id }),
                };
                registry.change(&run, RunTransition::End(event)).await.map(drop)
            };
            told.await.inspect_err(|_| run.forget_end())
        };
        tokio::spawn(ended.in_current_span()).await.map_err(|_| RunError::Unfinished)?
    }

    /// Ends the active runs that are idle at `now`: completes those with an analysis, and expires
    /// the others. Returns their number.
    pub async fn end_idle(self: &Arc<Self>, now: Instant) -> usize {
        let idle: Vec<Arc<Run>> = {
            let tables = self.tables.lock();
            let active = tables.owners.values().flat_map(|owner| &owner.active);
            let runs = active.filter_map(|id| tables.runs.get(id));
            runs.filter(|run| run.is_idle(now)).cloned().collect()
        };
        let mut ended = 0;
        for run in idle {
            match self.end_if_idle(&run, now).await {
                Ok(count) => ended += count,
                Err(error) => tracing::warn!(run = %run.id(), %error, "cannot end an idle run"),
            }
        }
        ended
    }

    async fn end_if_idle(
        self: &Arc<Self>,
        run: &Arc<Run>,
        now: Instant,
    ) -> Result<usize, RunError> {
        let end = if run.is_analysed() {
            self.completed(run, None, Some(IDLE)).await?
        } else {
            Event::RunExpired(RunExpired {})
        };
        // An event since then makes the run not idle, and `end` is dropped.
        Ok(self.change(run, RunTransition::EndIdle(now, end)).await?.len())
    }

    /// Returns the event of the normal end of `run`, with the counts of its newest analysis, or
    /// else of its newest decoding.
    async fn completed(
        &self,
        run: &Run,
        request_id: Option<RequestId>,
        reason: Option<&str>,
    ) -> Result<Event, RunError> {
        let (timeline, id) = (self.timeline.clone(), run.id());
        let read = move || {
            let kinds = [EventKind::AnalysisGenerated, EventKind::FramesDecoded];
            kinds.into_iter().find_map(|kind| figures(&timeline, id, kind))
        };
        let read = blocking(read).await.map_err(|TaskPanicked| RunError::Unfinished)?;
        let (stream_id, frames, markers) = read.unwrap_or_default();
        Ok(Event::RunCompleted(RunCompleted {
            request_id,
            stream_id,
            frames,
            markers,
            reason: reason.map(str::to_owned),
            ..RunCompleted::default()
        }))
    }

    /// Deletes the runs that ended, and had their last event, before `before`, except `kept`;
    /// returns their number.
    pub async fn delete_ended_before(
        self: &Arc<Self>,
        before: WallTime,
        kept: &HashSet<RunId>,
        stop: &CancellationToken,
    ) -> u64 {
        let ended: Vec<Arc<Run>> = {
            let tables = self.tables.lock();
            let ended = tables.runs.values().filter(|run| run.ended_before(before));
            ended.filter(|run| !kept.contains(&run.id())).cloned().collect()
        };
        let mut deleted = 0;
        for run in ended.iter().take_while(|_| !stop.is_cancelled()) {
            match self.change(run, RunTransition::Reclaim(before)).await {
                Ok(appended) => deleted += appended.len() as u64,
                Err(error) => tracing::warn!(run = %run.id(), %error, "cannot delete an old run"),
            }
        }
        deleted
    }

    /// Forgets deleted runs whose records are purged, and releases their charges.
    pub fn forget(&self, purged: &HashSet<RunId>) {
        let mut tables = self.tables.lock();
        for id in purged {
            if tables.runs.get(id).is_some_and(|run| run.lifecycle() == RunState::Deleted)
                && let Some(run) = tables.runs.remove(id)
            {
                run.release_all(&self.quota);
            }
        }
    }
}

/// Returns stream, frames and markers of the newest event of `kind`. `None` if it cannot be read,
/// so that the run can still end.
fn figures(
    timeline: &Timeline,
    run: RunId,
    kind: EventKind,
) -> Option<(Option<StreamId>, u64, u64)> {
    let head = timeline.latest(run, kind)?;
    let parts = timeline.get_parts(head.seq).ok()??;
    match parts.decode().ok()? {
        Event::AnalysisGenerated(last) => Some((Some(last.stream_id), last.frames, last.markers)),
        Event::FramesDecoded(last) => Some((Some(last.stream_id), last.decoded_frames, 0)),
        _ => None,
    }
}
