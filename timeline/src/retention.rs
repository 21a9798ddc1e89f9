//! What a log gives up on request: the events of purged runs, and columns that none names.

use std::{collections::HashSet, sync::PoisonError};

use media::{RunId, WallTime};

use crate::{
    Compaction, EventKind, Pace, Result, Timeline,
    compact::{self, compact},
};

impl Timeline {
    /// The runs that were deleted before `at`, from memory.
    pub fn deleted_before(&self, at: WallTime) -> HashSet<RunId> {
        let mut deleted = HashSet::new();
        self.scan(|head| {
            if head.kind == EventKind::RunDeleted && head.at < at {
                deleted.insert(head.run);
            }
        });
        deleted
    }

    /// What the events of `run` take in the journal, in bytes.
    pub fn run_bytes(&self, run: RunId) -> u64 {
        self.0.store.index().run_bytes(run)
    }

    /// Removes every event of the runs in `purged`, to which nothing is appended any more.
    ///
    /// All other events keep number and time. Appends and reads go on meanwhile; the work is
    /// done on the caller's thread, which `pace` may slow down or stop. What a failure leaves
    /// undone, the next compaction does.
    pub fn compact(&self, purged: &HashSet<RunId>, pace: Pace<'_>) -> Result<Compaction> {
        let _one = self.0.compacting.lock().unwrap_or_else(PoisonError::into_inner);
        self.refusal().map_or(Ok(()), Err)?;
        if compact::concerns_last(&self.0.store.index(), purged) {
            self.wait_for(Vec::new(), 0, true)?;
        }
        compact(&self.0.store, purged, self.0.file_bytes, pace)
    }
}
