//! Records of jobs: those that a crash interrupted are ended at the next start.
//!
//! A job is recorded before it begins and again after its last event. After a crash between those two, the
//! last event in the log shows that the job is over. A write that the disk refuses, of a record or of the end
//! of a recording, is retried; no new job is recorded before the pending records.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use media::{ErrorKind, JobId, RunId, Seq, WallTime};
use parking_lot::Mutex;
use timeline::{Event, EventKind, INTERRUPTED, Timeline, TimelineError};
use tokio_util::sync::CancellationToken;

use super::{IngestError, JobRunner, records};
use crate::{
    base::{
        blocking::{TaskPanicked, blocking},
        clock::wall_now,
        every,
        meta_store::{MetaStore, MetaStoreError},
    },
    record::recording::failed,
    runs::{
        idempotency,
        registry::{JobKind, JobOrder, JobStatus, JobView, Part, each_of_kind},
    },
};

/// Interval between retries of pending writes.
const SETTLE_EVERY: Duration = Duration::from_secs(10);
/// Retries between two removals of old records.
const LOOKS_TO_EXPIRE: u32 = 60;
/// Records removed in one transaction.
const EXPIRED_AT_ONCE: usize = 1000;

/// Kind of the last event of a job that ran to its end.
fn last_event(kind: JobKind) -> EventKind {
    match kind {
        JobKind::Ingest => EventKind::FramesDecoded,
        JobKind::Analysis => EventKind::AnalysisGenerated,
        JobKind::Reasoning => EventKind::RunCompleted,
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pending {
    Ended(JobView),
    Forgotten(JobOrder),
}

/// Job records in the ledger; every call blocks on the disk.
#[derive(Clone)]
pub(super) struct Jobs {
    ledger: MetaStore,
    /// Records not written yet: at most those of the jobs in progress when the disk failed.
    pending: Arc<Mutex<HashMap<(RunId, JobId), Pending>>>,
}

impl Jobs {
    pub(super) fn new(ledger: MetaStore) -> Jobs {
        Jobs { ledger, pending: Arc::default() }
    }

    /// Records that a job begins; if this fails, the job must not begin.
    pub(super) fn begin(&self, job: &JobView) -> Result<(), MetaStoreError> {
        self.settle()?;
        let begun = self.ledger.write(|change| records::put(change, job));
        if begun.is_err() {
            // The failed write may have become durable: the record is removed later.
            self.note(Pending::Forgotten(job.order));
        }
        begun
    }

    /// Records the end of a job, or removes the record of a refused one; pending until the disk takes it.
    fn close(&self, pending: Pending) -> Result<(), MetaStoreError> {
        self.note(pending);
        self.settle()
    }

    fn note(&self, pending: Pending) {
        let (Pending::Ended(JobView { order, .. }) | Pending::Forgotten(order)) = pending;
        self.pending.lock().insert((order.run, order.id), pending);
    }

    fn settle(&self) -> Result<(), MetaStoreError> {
        let pending: Vec<Pending> = self.pending.lock().values().copied().collect();
        if pending.is_empty() {
            return Ok(());
        }
        self.ledger.write(|change| {
            pending.iter().try_for_each(|pending| match pending {
                Pending::Ended(job) => {
                    records::put(change, job)?;
                    records::bound(change, job.order.run)
                }
                Pending::Forgotten(order) => records::remove(change, order),
            })
        })?;
        let mut left = self.pending.lock();
        left.retain(|_, one| !pending.contains(one));
        Ok(())
    }

    /// Returns the job `id` of `run`; a pending record counts as written.
    fn find(&self, run: RunId, id: JobId) -> Result<Option<JobView>, MetaStoreError> {
        let pending = self.pending.lock().get(&(run, id)).copied();
        match pending {
            Some(Pending::Ended(job)) => Ok(Some(job)),
            Some(Pending::Forgotten(_)) => Ok(None),
            None => records::find(&self.ledger, run, id),
        }
    }

    /// Returns the jobs of `run`; pending records count as written.
    fn of_run(&self, run: RunId) -> Result<Vec<JobView>, MetaStoreError> {
        // Before the records, which are written first.
        let pending = self.pending.lock().clone();
        let mut jobs = records::of_run(&self.ledger, run)?;
        jobs.retain_mut(|job| match pending.get(&(run, job.order.id)) {
            Some(Pending::Ended(ended)) => {
                *job = *ended;
                true
            }
            Some(Pending::Forgotten(_)) => false,
            None => true,
        });
        Ok(jobs)
    }

    /// Returns every job whose record is not over.
    fn under_way(&self) -> Result<Vec<JobView>, MetaStoreError> {
        records::all(&self.ledger, usize::MAX, |job| !job.status.is_over())
    }

    /// Removes records of jobs that ended before `oldest`.
    fn expire(&self, oldest: WallTime) -> Result<(), MetaStoreError> {
        loop {
            let is_old = |job: &JobView| job.ended_at.is_some_and(|at| at < oldest);
            let over = records::all(&self.ledger, EXPIRED_AT_ONCE, is_old)?;
            if over.is_empty() {
                return Ok(());
            }
            self.ledger.write(|change| {
                over.iter().try_for_each(|job| records::remove(change, &job.order))
            })?;
        }
    }
}

/// Returns true if the last event of a job that ran to its end is on the timeline.
fn is_over(timeline: &Timeline, order: &JobOrder) -> Result<bool, TimelineError> {
    let (kind, mut is_over) = (last_event(order.kind), false);
    each_of_kind(timeline, order.run, kind, &mut Seq(0), |_, event| {
        let request = match event {
            // Written by a recovery that was interrupted itself; the recording may be damaged, too.
            Some(Event::FramesDecoded(decoded))
                if decoded.reason.as_ref().is_some_and(|it| it.starts_with(INTERRUPTED)) =>
            {
                None
            }
            Some(Event::FramesDecoded(decoded)) => Some(decoded.request_id),
            Some(Event::AnalysisGenerated(generated)) => Some(generated.request_id),
            Some(Event::RunCompleted(completed)) => completed.request_id,
            // A damaged event may be another job's.
            _ => None,
        };
        is_over |= request == Some(order.request);
    })?;
    Ok(is_over)
}

/// Runs disk work on a blocking thread.
pub(super) async fn in_background<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, IngestError> {
    blocking(work).await.map_err(|TaskPanicked| IngestError::Lost)
}

impl JobRunner {
    pub fn find_job(&self, run: RunId, id: JobId) -> Result<Option<JobView>, MetaStoreError> {
        let left = self.left_jobs();
        Ok(self.records.find(run, id)?.map(|job| as_known(job, &left)))
    }

    /// Returns the recorded jobs of `run`, in the order of their requests.
    pub fn jobs_of(&self, run: RunId) -> Result<Vec<JobView>, MetaStoreError> {
        let left = self.left_jobs();
        let recorded = self.records.of_run(run)?;
        let mut jobs: Vec<_> = recorded.into_iter().map(|job| as_known(job, &left)).collect();
        jobs.sort_by_key(|job| (job.order.started_at, job.order.id));
        Ok(jobs)
    }

    /// Jobs that an earlier server left. Must be read before the records, which are updated first.
    fn left_jobs(&self) -> HashSet<JobId> {
        self.interrupted.lock().keys().map(|(_, job)| *job).collect()
    }

    /// Records that a job begins; if this fails, the job must not begin.
    pub async fn begin_job(&self, job: JobView) -> Result<(), IngestError> {
        let jobs = self.records.clone();
        Ok(in_background(move || jobs.begin(&job)).await??)
    }

    /// Records the end of a job; removes the record of a refused one, for which `ended` is `None`.
    pub async fn end_job(&self, order: JobOrder, ended: Option<JobView>) {
        let pending = ended.map_or(Pending::Forgotten(order), Pending::Ended);
        let jobs = self.records.clone();
        let written = in_background(move || jobs.close(pending)).await;
        if let Err(error) = written.and_then(|written| Ok(written?)) {
            let JobOrder { id, run, .. } = order;
            tracing::warn!(%run, job = %id, %error, "a job that is over stays recorded as under way");
        }
    }

    /// Retries pending records and ends of recordings periodically, and removes old records, until `stop`.
    pub async fn run(self: Arc<Self>, stop: CancellationToken) {
        let mut tick = every(SETTLE_EVERY);
        let mut looks = 0;
        while stop.run_until_cancelled(tick.tick()).await.is_some() {
            self.settle().await;
            self.close_left().await;
            self.sweep(false).await;
            if looks % LOOKS_TO_EXPIRE == 0 {
                let (jobs, now) = (self.records.clone(), self.parts.clock.now());
                let expired = in_background(move || jobs.expire(idempotency::oldest_kept(now)));
                if let Err(error) = expired.await.and_then(|expired| Ok(expired?)) {
                    tracing::error!(%error, "could not remove records of finished jobs; retrying");
                }
            }
            looks += 1;
        }
    }

    /// Writes the pending records of finished jobs.
    pub(super) async fn settle(&self) {
        let jobs = self.records.clone();
        let settled = in_background(move || jobs.settle()).await;
        if let Err(error) = settled.and_then(|settled| Ok(settled?)) {
            tracing::warn!(%error, "jobs that are over stay recorded as under way");
        }
    }

    async fn sweep(self: &Arc<Self>, unfinished: bool) {
        let runner = Arc::clone(self);
        let swept = in_background(move || runner.sweep_answers(unfinished)).await;
        if let Err(error) = swept.and_then(|swept| Ok(swept?)) {
            tracing::warn!(%error, "long answers of jobs are looked for later");
        }
    }

    /// Closes the recordings and ends the jobs that a crash left in progress; must run before new
    /// jobs. Whatever the disk has no room for is retried by [`JobRunner::run`].
    pub async fn tell_interrupted(self: &Arc<Self>) -> Result<(), IngestError> {
        let columns = self.columns().clone();
        let leave = |(run, job)| self.parts.registry.run(run).map(|run| run.leave_recording(job));
        in_background(move || columns.all()).await??.into_iter().map(leave).for_each(drop);
        let jobs = self.records.clone();
        for job in in_background(move || jobs.under_way()).await?? {
            let name = (job.order.run, job.order.id);
            leave(name);
            self.interrupted.lock().insert(name, job);
        }
        self.close_left().await;
        self.sweep(true).await;
        Ok(())
    }

    /// Closes the recordings that are left, and ends the interrupted jobs.
    async fn close_left(self: &Arc<Self>) {
        let columns = self.columns().clone();
        let open = match in_background(move || columns.all()).await.and_then(|all| Ok(all?)) {
            Ok(open) => open,
            Err(error) => {
                tracing::error!(%error, "recordings to be closed are looked for later");
                return;
            }
        };
        let is_left = |(run, job): &(RunId, JobId)| {
            self.parts.registry.run(*run).is_none_or(|run| run.has_left(*job))
        };
        let mut left: HashSet<_> = open.into_iter().filter(is_left).collect();
        left.extend(self.interrupted.lock().keys());
        for (run, job) in left {
            if let Err(error) = self.close_one(run, job).await {
                tracing::error!(%run, %job, %error, "a recording is left until there is room");
            }
        }
    }

    async fn close_one(self: &Arc<Self>, run: RunId, id: JobId) -> Result<(), IngestError> {
        let job = self.interrupted.lock().get(&(run, id)).copied();
        let (runner, is_cut_off) = (Arc::clone(self), job.is_some());
        let recovered = in_background(move || runner.recover((run, id), is_cut_off)).await?;
        let recorded = match recovered {
            // A retry would fail too: the recording stays on disk for inspection.
            Err(error) if !lacks_room(&error) => {
                tracing::error!(%run, job = %id, %error, "what a job had recorded cannot be told of");
                0
            }
            recovered => recovered?,
        };
        if let Some(job) = job {
            self.end_interrupted(job, recorded).await?;
        }
        self.interrupted.lock().remove(&(run, id));
        if let Some(run) = self.parts.registry.run(run) {
            run.end_recording(id);
        }
        Ok(())
    }

    /// Records the end of an interrupted job with `recorded` frames, and fails its run.
    async fn end_interrupted(&self, job: JobView, recorded: u64) -> Result<(), IngestError> {
        let JobOrder { run, request, kind, .. } = job.order;
        let registry = &self.parts.registry;
        let timeline = registry.timeline().clone();
        let over = move || if recorded > 0 { Ok(false) } else { is_over(&timeline, &job.order) };
        let is_over = in_background(over).await?.unwrap_or_else(|error| {
            tracing::error!(%run, job = %job.order.id, %error, "whether a job ended is unknown");
            false
        });
        // An analysis appends all its events or none: its run does not fail.
        let cut_off = !is_over && kind != JobKind::Analysis;
        if let Some(run) = registry.run(run).filter(|_| cut_off) {
            let last = Some(failed(Some(request), INTERRUPTED));
            let ended = registry.wind_up(&run, Part::End, Vec::new(), last);
            match ended.await.map_err(IngestError::from) {
                Err(error) if lacks_room(&error) => return Err(error),
                // The run is deleted, or the log cannot be written.
                Err(error) => {
                    tracing::error!(run = %run.id(), %error, "the end of a run is untold")
                }
                Ok(_) => {
                    tracing::warn!(request_id = %request, run = %run.id(), "job interrupted by a server restart");
                }
            }
        }
        let status = if is_over { JobStatus::Succeeded } else { JobStatus::Interrupted };
        let frames_done = if recorded > 0 { recorded } else { job.frames_done };
        let ended = JobView { status, frames_done, ended_at: Some(wall_now()), ..job };
        self.end_job(job.order, Some(ended)).await;
        Ok(())
    }
}

/// Returns the job of a record; a job in `left` counts as interrupted, even before that is recorded.
fn as_known(job: JobView, left: &HashSet<JobId>) -> JobView {
    let is_over = job.status.is_over() || !left.contains(&job.order.id);
    if is_over { job } else { JobView { status: JobStatus::Interrupted, ..job } }
}

/// Returns true if a retry may succeed.
fn lacks_room(error: &IngestError) -> bool {
    matches!(error.kind(), ErrorKind::Exhausted | ErrorKind::Unavailable)
}

#[cfg(test)]
mod tests;
