//! Removal from a log on request: events of purged runs, and columns that no event names.

use std::{collections::HashSet, sync::PoisonError};

use media::{RunId, WallTime};

use crate::{
    CompactionStats, CompactionThrottle, EventKind, Result, SweepStats, Timeline,
    compaction::{self, compact},
};

impl Timeline {
    /// Returns the runs that were deleted before `at`, by the index in memory.
    pub fn deleted_before(&self, at: WallTime) -> HashSet<RunId> {
        self.runs_of(|head| head.kind == EventKind::RunDeleted && head.at < at)
    }

    /// Returns the bytes of the events of `run` in the journal.
    pub fn run_bytes(&self, run: RunId) -> u64 {
        self.0.store.index().run_bytes(run)
    }

    /// Removes every event of the runs in `purged`, to which nothing may be appended any more.
    ///
    /// All other events keep number and time. Appends and reads continue; the work runs on the caller's
    /// thread, and `pace` may slow it down or stop it. The next compaction completes what a failed one left;
    /// damage is returned at the end.
    pub fn compact(
        &self,
        purged: &HashSet<RunId>,
        pace: CompactionThrottle<'_>,
    ) -> Result<CompactionStats> {
        let _one = self.0.compacting.lock().unwrap_or_else(PoisonError::into_inner);
        self.refusal().map_or(Ok(()), Err)?;
        if compaction::concerns_last(&self.0.store.index(), purged) {
            self.wait_for(Vec::new(), 0, true)?;
        }
        compact(&self.0.store, purged, self.0.file_bytes, pace)
    }

    /// Removes the column files that no event names and no [`crate::ColumnWriter`] or lease of one holds;
    /// does nothing while another sweep runs.
    pub fn sweep_columns(&self) -> Result<SweepStats> {
        let columns = self.0.store.columns.files();
        let Some(sweeping) = columns.begin_sweep() else { return Ok(SweepStats::default()) };
        let mut decoded = Vec::new();
        self.scan(|head| {
            decoded.extend((head.kind == EventKind::FramesDecoded).then_some(head.seq))
        });
        let mut named = HashSet::new();
        for seq in decoded {
            let Some(event) = self.get_parts(seq)? else { continue };
            // The event's columns are unknown, so nothing is removed.
            event.damage().map_or(Ok(()), Err)?;
            named.extend(event.column());
        }
        columns.sweep(&sweeping, |hash| named.contains(hash), || ())
    }
}
