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
    /// Event of its frames, without any.
    pub decoded: FramesDecoded,
    /// Event of the analysis that its markers are, where they are told as it grows.
    pub analysis: Option<AnalysisGenerated>,
}

impl Growing {
    /// Returns true if its writer is gone, with which it shares `synced`, and has not closed it.
    pub fn is_left(&self) -> bool {
        Arc::strong_count(&self.synced) == 1
    }

    /// Analysis that its markers are.
    pub(super) fn analysis_id(&self) -> Option<AnalysisId> {
        self.analysis.as_ref()?.analysis_id
    }
}

impl Run {
    /// Shows a recording that begins.
    pub fn begin_recording(&self, growing: Growing) {
        *self.growing.lock() = Some(Arc::new(growing));
    }

    /// Hides that of `job` again: events name all of it, or nothing does.
    pub fn end_recording(&self, job: JobId) {
        self.growing.lock().take_if(|growing| growing.job == job);
    }

    /// Recording that grows now.
    pub fn growing(&self) -> Option<Arc<Growing>> {
        self.growing.lock().clone()
    }
}
