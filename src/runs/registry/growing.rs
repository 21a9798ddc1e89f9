//! The recording of a run that grows: readers find its rows before an event names them.

use std::sync::{Arc, atomic::AtomicU64};

use media::{AnalysisId, JobId, Seq};
use timeline::{AnalysisGenerated, FramesDecoded};

use super::run::Run;

/// A recording in progress.
#[derive(Debug)]
pub struct Growing {
    /// Job that records it, which its column is called by.
    pub job: JobId,
    /// Bytes of its column that readers see.
    pub synced: Arc<AtomicU64>,
    /// Last event of the log when it began.
    pub since: Seq,
    /// Reason of its end, where that is told later than it came.
    pub reason: &'static str,
    /// Event of its frames, without any.
    pub decoded: FramesDecoded,
    /// Event of the analysis that its markers are, where they are told as it grows.
    pub analysis: Option<AnalysisGenerated>,
}

impl Growing {
    /// Analysis that its markers are.
    pub(super) fn analysis_id(&self) -> Option<AnalysisId> {
        self.analysis.as_ref()?.analysis_id
    }
}

/// The recording of a job that shows; dropped before its end, it is left to be closed later.
pub struct RecordingGuard {
    run: Arc<Run>,
    job: JobId,
    is_over: bool,
}

impl RecordingGuard {
    /// Hides it: events name all of it, or nothing does.
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
    /// Shows a recording that begins.
    pub fn begin_recording(self: &Arc<Self>, growing: Growing) -> RecordingGuard {
        let job = growing.job;
        self.show_recording(growing);
        RecordingGuard { run: Arc::clone(self), job, is_over: false }
    }

    /// Shows a recording, with a writer or without.
    pub fn show_recording(&self, growing: Growing) {
        *self.growing.lock() = Some(Arc::new(growing));
    }

    /// Hides that of `job`, which is over.
    pub fn end_recording(&self, job: JobId) {
        self.growing.lock().take_if(|growing| growing.job == job);
        self.left.lock().retain(|left| *left != job);
        self.all_jobs.tell(self.id());
    }

    /// Notes that nobody writes the recording of `job` any more, and that it is to be closed: until it is, the run is
    /// busy and has more to tell.
    pub fn leave_recording(&self, job: JobId) {
        let mut left = self.left.lock();
        if !left.contains(&job) {
            left.push(job);
        }
    }

    /// Returns true if the recording of `job` is left.
    pub fn has_left(&self, job: JobId) -> bool {
        self.left.lock().contains(&job)
    }

    /// A job whose recording is left, if there is one.
    pub fn left(&self) -> Option<JobId> {
        self.left.lock().first().copied()
    }

    /// Recording that grows now, or is left.
    pub fn growing(&self) -> Option<Arc<Growing>> {
        self.growing.lock().clone()
    }
}
