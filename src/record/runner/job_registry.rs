//! Records of jobs: those that a crash cuts off are told of at the next start.
//!
//! A job is recorded before it begins and again behind its last event. A crash between those two leaves a record of a
//! job that is over: its last event in the log tells. What the disk does not take, a record or the end of a recording,
//! is written as soon as it does; no job is recorded before the records that wait.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use media::{ErrorKind, JobId, RunId, Seq, WallTime};
use parking_lot::Mutex;
use timeline::{Event, EventKind, INTERRUPTED, Timeline, TimelineError};
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

use super::{IngestError, JobRunner, records, recovered::failed};
use crate::{
    base::{
        blocking::{TaskPanicked, blocking},
        clock::wall_now,
        meta_store::{MetaStore, MetaStoreError},
    },
    runs::{
        idempotency,
        job_queue::JobLength,
        registry::{JobKind, JobOrder, JobStatus, JobView, Part},
    },
};

/// Heads of events looked at in one step.
const STEP: usize = 4096;
/// Time from one look for records that wait for the disk to the next.
const SETTLE_EVERY: Duration = Duration::from_secs(10);
/// Looks between two for records that are too old.
const LOOKS_TO_EXPIRE: u32 = 60;
/// Records forgotten in one step.
const EXPIRED_AT_ONCE: usize = 1000;

/// Models decide how long a reasoning decodes: it waits for their answers.
pub(super) fn stay(kind: JobKind) -> JobLength {
    if kind == JobKind::Reasoning { JobLength::Long } else { JobLength::Short }
}

/// Kind of the last event of a job that was not cut off.
fn last_event(kind: JobKind) -> EventKind {
    match kind {
        JobKind::Ingest => EventKind::FramesDecoded,
        JobKind::Analysis => EventKind::AnalysisGenerated,
        JobKind::Reasoning => EventKind::RunCompleted,
    }
}

/// Record of a job that is to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pending {
    Ended(JobView),
    Forgotten(JobOrder),
}

/// The records of jobs; every call waits for the disk.
#[derive(Clone)]
pub(super) struct Jobs {
    ledger: MetaStore,
    /// Records that the disk has not taken; no more than were in progress when it failed.
    pending: Arc<Mutex<HashMap<(RunId, JobId), Pending>>>,
}

impl Jobs {
    /// Jobs that are recorded in `ledger`.
    pub(super) fn new(ledger: MetaStore) -> Jobs {
        Jobs { ledger, pending: Arc::default() }
    }

    /// Records that a job begins; it must not where this fails.
    pub(super) fn begin(&self, job: &JobView) -> Result<(), MetaStoreError> {
        self.settle()?;
        let begun = self.ledger.write(|change| records::put(change, job));
        if begun.is_err() {
            // It may be there later all the same.
            self.note(Pending::Forgotten(job.order));
        }
        begun
    }

    /// Records how a job ended, now or once the disk takes it.
    pub(super) fn end(&self, job: JobView) -> Result<(), MetaStoreError> {
        self.note(Pending::Ended(job));
        self.settle()
    }

    /// Forgets a job that was refused.
    pub(super) fn forget(&self, order: JobOrder) -> Result<(), MetaStoreError> {
        self.note(Pending::Forgotten(order));
        self.settle()
    }

    fn note(&self, pending: Pending) {
        let (Pending::Ended(JobView { order, .. }) | Pending::Forgotten(order)) = pending;
        self.pending.lock().insert((order.run, order.id), pending);
    }

    /// Writes everything that the disk has not taken.
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

    /// The job `id` of `run`, as it is recorded or is to be.
    fn find(&self, run: RunId, id: JobId) -> Result<Option<JobView>, MetaStoreError> {
        if let Some(Pending::Ended(job)) = self.pending.lock().get(&(run, id)) {
            return Ok(Some(*job));
        }
        self.ledger.read(|view| records::find(view, run, id))
    }

    /// The jobs of `run`, as they are recorded or are to be.
    fn of_run(&self, run: RunId) -> Result<Vec<JobView>, MetaStoreError> {
        let mut jobs = self.ledger.read(|view| records::of_run(view, run))?;
        let pending = self.pending.lock();
        for job in &mut jobs {
            if let Some(Pending::Ended(ended)) = pending.get(&(run, job.order.id)) {
                *job = *ended;
            }
        }
        Ok(jobs)
    }

    /// Every job that is recorded as under way.
    fn under_way(&self) -> Result<Vec<JobView>, MetaStoreError> {
        self.ledger.read(|view| records::all(view, usize::MAX, |job| !job.status.is_over()))
    }

    /// Forgets jobs that ended before `oldest`.
    fn expire(&self, oldest: WallTime) -> Result<(), MetaStoreError> {
        loop {
            let is_old = |job: &JobView| job.ended_at.is_some_and(|at| at < oldest);
            let over = self.ledger.read(|view| records::all(view, EXPIRED_AT_ONCE, is_old))?;
            if over.is_empty() {
                return Ok(());
            }
            self.ledger.write(|change| {
                over.iter().try_for_each(|job| records::remove(change, &job.order))
            })?;
        }
    }
}

/// Returns true if the last event of a job that was not cut off is on the timeline.
fn is_over(timeline: &Timeline, order: &JobOrder) -> Result<bool, TimelineError> {
    let mut from = Seq(1);
    loop {
        let heads = timeline.heads_of(order.run, from, STEP);
        let Some(last) = heads.last() else { return Ok(false) };
        from = Seq(last.seq.0 + 1);
        for head in heads.iter().filter(|head| head.kind == last_event(order.kind)) {
            let Some(parts) = timeline.get_parts(head.seq)? else { continue };
            let request = match parts.decode()? {
                // A start told of it that was cut off itself.
                Event::FramesDecoded(decoded) if decoded.reason.as_deref() == Some(INTERRUPTED) => {
                    None
                }
                Event::FramesDecoded(decoded) => Some(decoded.request_id),
                Event::AnalysisGenerated(generated) => Some(generated.request_id),
                Event::RunCompleted(completed) => completed.request_id,
                _ => None,
            };
            if request == Some(order.request) {
                return Ok(true);
            }
        }
    }
}

/// Runs what waits for the disk where it holds nobody up.
pub(super) async fn in_background<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, IngestError> {
    blocking(work).await.map_err(|TaskPanicked| IngestError::Lost)
}

impl JobRunner {
    /// The job `id` of `run`, under way or over.
    pub fn find_job(&self, run: RunId, id: JobId) -> Result<Option<JobView>, MetaStoreError> {
        let left = self.left_jobs();
        Ok(self.records.find(run, id)?.map(|job| as_known(job, &left)))
    }

    /// The jobs of `run` that are recorded, in the order in which they were asked for.
    pub fn jobs_of(&self, run: RunId) -> Result<Vec<JobView>, MetaStoreError> {
        let left = self.left_jobs();
        let recorded = self.records.of_run(run)?;
        let mut jobs: Vec<_> = recorded.into_iter().map(|job| as_known(job, &left)).collect();
        jobs.sort_by_key(|job| (job.order.started_at, job.order.id));
        Ok(jobs)
    }

    /// Jobs that an earlier server left; read before their records, which end first.
    fn left_jobs(&self) -> HashSet<JobId> {
        self.interrupted.lock().keys().map(|(_, job)| *job).collect()
    }

    /// Records that a job begins; it must not where this fails.
    pub async fn begin_job(&self, job: JobView) -> Result<(), IngestError> {
        let jobs = self.records.clone();
        Ok(in_background(move || jobs.begin(&job)).await??)
    }

    /// Records how a job ended; forgets one that was refused, which `ended` tells by its absence.
    pub async fn end_job(&self, order: JobOrder, ended: Option<JobView>) {
        let jobs = self.records.clone();
        let write = move || match ended {
            Some(job) => jobs.end(job),
            None => jobs.forget(order),
        };
        if let Err(error) = in_background(write).await.and_then(|written| Ok(written?)) {
            let JobOrder { id, run, .. } = order;
            tracing::warn!(%run, job = %id, %error, "a job that is over stays recorded as under way");
        }
    }

    /// Writes now and then what the disk did not take, the ends of recordings too, and forgets what is old, until `stop`.
    pub async fn run(self: Arc<Self>, stop: CancellationToken) {
        let mut tick = tokio::time::interval(SETTLE_EVERY);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
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

    /// Writes the records of jobs that are over and that the disk did not take.
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

    /// Closes what was recorded and ends the runs whose jobs were under way when the server last ended without a
    /// word; before there are new jobs. What finds no room is left, for [`JobRunner::run`].
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

    /// Closes the recordings that are left, and ends the jobs that were interrupted.
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

    /// Closes the recording of a job, and ends the job if it was interrupted.
    async fn close_one(self: &Arc<Self>, run: RunId, id: JobId) -> Result<(), IngestError> {
        let job = self.interrupted.lock().get(&(run, id)).copied();
        let (runner, is_cut_off) = (Arc::clone(self), job.is_some());
        let recovered = in_background(move || runner.recover((run, id), is_cut_off)).await?;
        let recorded = match recovered {
            // It will not be read tomorrow either, and stays for those who can.
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

    /// Records the end of a job that was cut off with so many frames recorded, and ends its run.
    async fn end_interrupted(&self, job: JobView, recorded: u64) -> Result<(), IngestError> {
        let JobOrder { run, request, kind, .. } = job.order;
        let registry = &self.parts.registry;
        let timeline = registry.timeline().clone();
        let over = move || if recorded > 0 { Ok(false) } else { is_over(&timeline, &job.order) };
        let is_over = in_background(over).await?.unwrap_or_else(|error| {
            tracing::error!(%run, job = %job.order.id, %error, "whether a job ended is unknown");
            false
        });
        // An analysis appends all or nothing.
        let cut_off = !is_over && kind != JobKind::Analysis;
        if let Some(run) = registry.run(run).filter(|_| cut_off) {
            let last = Some(failed(request, INTERRUPTED));
            let ended = registry.wind_up(&run, Part::End, Vec::new(), last);
            match ended.await.map_err(IngestError::from) {
                Err(error) if lacks_room(&error) => return Err(error),
                // It is deleted, or the log is read by nobody.
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

/// A job as its record says; one of those `left` is over, though its end waits to be recorded.
fn as_known(job: JobView, left: &HashSet<JobId>) -> JobView {
    let is_over = job.status.is_over() || !left.contains(&job.order.id);
    if is_over { job } else { JobView { status: JobStatus::Interrupted, ..job } }
}

/// Returns true of a refusal that may not be one later.
fn lacks_room(error: &IngestError) -> bool {
    matches!(error.kind(), ErrorKind::Exhausted | ErrorKind::Unavailable)
}

#[cfg(test)]
mod tests;
