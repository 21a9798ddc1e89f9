//! The handle on a run's job: what asked for it, how far it has come, and what ends it.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use media::{JobId, RequestId, RunId, WallTime};
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use crate::base::clock::wall_now;

media::named! {
    /// Kind of a job.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub enum JobKind {
        /// Decodes a source.
        Ingest = "ingest",
        /// Analyses signals.
        Analysis = "analyze",
        /// Decodes a source, has models describe it, and analyses it.
        Reasoning = "reason",
    }
}

/// State of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum JobStatus {
    /// Waits for a place.
    Queued,
    /// Works.
    Running,
    /// Came to its end.
    Succeeded,
    /// Ended by a failure.
    Failed,
    /// Ended on request.
    Cancelled,
    /// Cut off by the end of its server; shown as failed.
    Interrupted,
}

impl JobStatus {
    /// Names on the wire.
    pub const SHOWN: [&str; 5] = ["queued", "running", "succeeded", "failed", "cancelled"];

    /// Name on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            JobStatus::Queued => "queued",
            JobStatus::Running => "running",
            JobStatus::Succeeded => "succeeded",
            JobStatus::Failed | JobStatus::Interrupted => "failed",
            JobStatus::Cancelled => "cancelled",
        }
    }

    /// Returns true if no other state follows.
    pub fn is_over(self) -> bool {
        !matches!(self, JobStatus::Queued | JobStatus::Running)
    }
}

/// A job as it was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct JobOrder {
    /// Its name.
    pub id: JobId,
    /// Kind of the job.
    pub kind: JobKind,
    /// Its run.
    pub run: RunId,
    /// The request that asked for it.
    pub request: RequestId,
    /// Time of the start.
    pub started_at: WallTime,
}

/// A job as records show it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct JobView {
    /// Request that started it.
    pub order: JobOrder,
    /// State of the job.
    pub status: JobStatus,
    /// Frames analysed.
    pub frames_done: u64,
    /// Frames that it will have analysed, where its source says how long it is.
    pub frames_total: Option<u64>,
    /// Time that it has worked, or did, ms.
    pub worked_ms: u64,
    /// Time of its end.
    pub ended_at: Option<WallTime>,
}

impl JobView {
    /// Share of its frames that are done.
    pub fn fraction(&self) -> Option<f64> {
        let total = self.frames_total.filter(|total| *total > 0)?;
        Some((self.frames_done as f64 / total as f64).min(1.0))
    }

    /// Frames a second so far.
    pub fn frames_per_second(&self) -> f64 {
        if self.worked_ms == 0 {
            0.0
        } else {
            self.frames_done as f64 * 1e3 / self.worked_ms as f64
        }
    }

    /// Time that is left at this rate.
    pub fn eta_ms(&self) -> Option<u64> {
        let left = self.frames_total?.saturating_sub(self.frames_done);
        let rate = self.frames_per_second();
        (!self.status.is_over() && rate > 0.0).then(|| (left as f64 * 1e3 / rate) as u64)
    }
}

/// Progress of a reasoning through the chunks of its source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChunkProgress {
    /// Chunks that models were asked about, or an earlier answer is to stand for.
    pub asked: u64,
    /// Chunks among them with an answer.
    pub answered: u64,
    /// Chunks among them that are left without one.
    pub unanswered: u64,
}

/// Progress of a job; not durable, and gone with the job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JobProgress {
    /// Frames analysed.
    pub frames: u64,
    /// Presentation time of the last of them, ms.
    pub pts_ms: i64,
    /// Its chunks, where models are asked about them.
    pub chunks: Option<ChunkProgress>,
    /// Frames in all, where that is known.
    total: Option<u64>,
    /// Time at which it began to work.
    running_since: Option<Instant>,
}

/// Ends a job, whether it waits in the queue or runs in a worker, and shows its progress.
#[derive(Clone, Debug, Default)]
pub struct JobToken {
    /// Token for those that wait asynchronously.
    pub waiting: CancellationToken,
    /// Token for the worker.
    pub running: worker::CancelToken,
    /// Request that started it; none of live video.
    order: Option<JobOrder>,
    /// Signal once it is certain that it will be tried.
    accepted: CancellationToken,
    /// It ends by its owner's wish, and its run goes on.
    is_called_off: Arc<AtomicBool>,
    progress: Arc<Mutex<JobProgress>>,
}

impl JobToken {
    /// The handle on a job that is asked for now.
    pub fn asked(kind: JobKind, run: RunId, request: RequestId) -> (JobToken, JobOrder) {
        let mut id: [u8; 16] = crate::base::random_bytes();
        // It begins as its run does, with the node's tag where there is one.
        id[..2].copy_from_slice(&run.as_bytes()[..2]);
        let id = JobId::from_bytes(id);
        let order = JobOrder { id, kind, run, request, started_at: wall_now() };
        (JobToken { order: Some(order), ..JobToken::default() }, order)
    }

    pub(super) fn is_analysis(&self) -> bool {
        self.order().is_some_and(|order| order.kind == JobKind::Analysis)
    }

    /// Request that started it.
    pub fn order(&self) -> Option<&JobOrder> {
        self.order.as_ref()
    }

    /// Has it taken: from now on no queue refuses it.
    pub fn accept(&self) {
        self.accepted.cancel();
    }

    /// Returns true once it is accepted.
    pub fn is_accepted(&self) -> bool {
        self.accepted.is_cancelled()
    }

    /// Resolves once it is taken.
    pub async fn accepted(&self) {
        self.accepted.cancelled().await;
    }

    /// Marks that it waits no longer.
    pub fn begin_work(&self) {
        self.progress.lock().running_since.get_or_insert_with(Instant::now);
    }

    /// Sets the progress of the job in frames; what comes late takes nothing back.
    pub fn advance(&self, frames: u64, pts_ms: i64) {
        let mut progress = self.progress.lock();
        if progress.frames < frames {
            (progress.frames, progress.pts_ms) = (frames, pts_ms);
        }
    }

    /// Sets the number of frames that there will be.
    pub fn expect_frames(&self, total: u64) {
        self.progress.lock().total = Some(total);
    }

    /// Sets the progress in chunks.
    pub fn tell_chunks(&self, chunks: ChunkProgress) {
        self.progress.lock().chunks = Some(chunks);
    }

    /// Progress of the job.
    pub fn progress(&self) -> JobProgress {
        *self.progress.lock()
    }

    /// The job as it stands now, where it was asked for.
    pub fn view(&self) -> Option<JobView> {
        let (order, progress) = (*self.order()?, self.progress());
        let worked = progress.running_since.map_or(Duration::ZERO, |since| since.elapsed());
        let is_running = progress.running_since.is_some();
        Some(JobView {
            order,
            status: if is_running { JobStatus::Running } else { JobStatus::Queued },
            frames_done: progress.frames,
            frames_total: progress.total,
            worked_ms: u64::try_from(worked.as_millis()).unwrap_or(u64::MAX),
            ended_at: None,
        })
    }

    /// Ends the job, and not its run.
    pub fn call_off(&self) {
        self.is_called_off.store(true, Ordering::Relaxed);
        self.cancel();
    }

    /// Returns true if its owner cancelled it.
    pub fn is_called_off(&self) -> bool {
        self.is_called_off.load(Ordering::Relaxed)
    }

    /// Returns true if it is to end, for any reason.
    pub fn is_cancelled(&self) -> bool {
        self.waiting.is_cancelled()
    }

    pub(super) fn cancel(&self) {
        self.waiting.cancel();
        self.running.cancel();
    }
}

/// Jobs of a run that are in progress.
#[derive(Default)]
pub(super) struct Jobs {
    /// The one that appends frames.
    pub(super) work: Option<JobToken>,
    /// An analysis, which may run beside it.
    analysis: Option<JobToken>,
}

impl Jobs {
    /// The place for the job of `token`.
    pub(super) fn place(&mut self, token: &JobToken) -> &mut Option<JobToken> {
        if token.is_analysis() { &mut self.analysis } else { &mut self.work }
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &JobToken> {
        self.work.iter().chain(&self.analysis)
    }
}

/// Message for a further job, which is refused.
pub(super) fn busy(job: Option<JobId>) -> String {
    match job {
        Some(job) => format!("{job} of this run is under way: wait for it or cancel it"),
        None => "live video of this run is under way".to_owned(),
    }
}
