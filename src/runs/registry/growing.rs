//! Open recording of a run: readers see its rows before an event names them.

use std::sync::{Arc, atomic::AtomicU64};

use media::{JobId, Seq};
use timeline::{AnalysisGenerated, FramesDecoded};

use super::run::Run;

#[derive(Debug)]
pub struct Growing {
    /// Job of the recording, which names its column.
    pub job: JobId,
    /// Bytes of the column that readers may see.
    pub synced: Arc<AtomicU64>,
    /// Last event of the log when the recording began.
    pub since: Seq,
    /// Reason of the end, if recovery has to close the recording.
    pub reason: &'static str,
    /// Event of the frames, still without any.
    pub decoded: FramesDecoded,
    /// Event of the recording's own analysis, if its markers are emitted as it grows.
    pub analysis: Option<AnalysisGenerated>,
}

/// Guard of a visible recording; if dropped before its end, the recording is left to be closed later.
pub struct RecordingGuard {
    run: Arc<Run>,
    job: JobId,
    is_over: bool,
}

impl RecordingGuard {
    /// Hides the recording: events name all of it, or it was removed.
    pub fn end(mut self) {
        self.is_over = true;
        self.run.end_recording(self.job);
    }
}

impl Drop for RecordingGuard {
    fn drop(&mut self) {
        if !self.is_over {
            self.run.leave_recording(self.job);
        }
    }
}

impl Run {
    pub fn begin_recording(self: &Arc<Self>, growing: Growing) -> RecordingGuard {
        let job = growing.job;
        self.show_recording(growing);
        RecordingGuard { run: Arc::clone(self), job, is_over: false }
    }

    /// Shows a recording, with or without a writer.
    pub fn show_recording(&self, growing: Growing) {
        *self.growing.lock() = Some(Arc::new(growing));
    }

    pub fn end_recording(&self, job: JobId) {
        self.growing.lock().take_if(|growing| growing.job == job);
        self.left.lock().retain(|left| *left != job);
        self.all_jobs.tell(self.id());
    }

    /// Notes that the recording of `job` has no writer and must be closed. Until then the run is
    /// busy, and further events follow.
    pub fn leave_recording(&self, job: JobId) {
        let mut left = self.left.lock();
        if !left.contains(&job) {
            left.push(job);
        }
    }

    pub fn has_left(&self, job: JobId) -> bool {
        self.left.lock().contains(&job)
    }

    pub fn left(&self) -> Option<JobId> {
        self.left.lock().first().copied()
    }

    pub fn growing(&self) -> Option<Arc<Growing>> {
        self.growing.lock().clone()
    }
}
