//! The handle on a run's job: how far it has come, and what ends it.

use std::sync::{Arc, Mutex};

use tokio_util::sync::CancellationToken;

use super::run::lock;

/// How far a reasoning has come with the chunks of its source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChunkProgress {
    /// Chunks that models were asked about, or an earlier answer is to stand for.
    pub asked: u64,
    /// Of these, those with an answer.
    pub answered: u64,
    /// Of these, those that are left without one.
    pub unanswered: u64,
}

/// How far a job has come; not durable, and gone with the job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JobProgress {
    /// Frames analysed.
    pub frames: u64,
    /// Presentation time of the last of them, ms.
    pub pts_ms: i64,
    /// Its chunks, where models are asked about them.
    pub chunks: Option<ChunkProgress>,
}

/// Ends a job, whether it waits in the queue or runs in a worker, and shows its progress.
#[derive(Clone, Debug, Default)]
pub struct JobToken {
    /// For whoever waits asynchronously.
    pub waiting: CancellationToken,
    /// For the worker.
    pub running: worker::CancelToken,
    progress: Arc<Mutex<JobProgress>>,
}

impl JobToken {
    /// Tells how far the job has come with its frames; what comes late takes nothing back.
    pub fn advance(&self, frames: u64, pts_ms: i64) {
        let mut progress = lock(&self.progress);
        if progress.frames < frames {
            (progress.frames, progress.pts_ms) = (frames, pts_ms);
        }
    }

    /// Tells how far it has come with its chunks.
    pub fn tell_chunks(&self, chunks: ChunkProgress) {
        lock(&self.progress).chunks = Some(chunks);
    }

    pub(super) fn progress(&self) -> JobProgress {
        *lock(&self.progress)
    }

    pub(super) fn cancel(&self) {
        self.waiting.cancel();
        self.running.cancel();
    }
}
