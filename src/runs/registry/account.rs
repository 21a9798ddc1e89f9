//! Charges of a run to its owner: until the bytes are gone from the disk, deleted or not.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use media::RunId;

use super::{Run, RunRegistry};
use crate::{
    base::{
        keys::Principal,
        quota::{Quota, QuotaReservation},
    },
    runs::lifecycle::RunState,
};

/// Bytes that are charged for a run.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Charged {
    log: u64,
    columns: u64,
    stills: u64,
}

impl Charged {
    /// Bytes that stay until its events are purged.
    fn records(self) -> u64 {
        self.log + self.columns
    }
}

impl Run {
    /// Charges its owner for `log_bytes` of events.
    pub(super) fn account(&self, log_bytes: u64, quota: &Quota) {
        let mut charged = self.charged.lock();
        let owner = &self.origin().principal;
        quota.record(owner, log_bytes.saturating_sub(charged.log));
        quota.release(owner, charged.log.saturating_sub(log_bytes));
        charged.log = log_bytes;
    }

    /// Leaves its owner charged for what it stored beside the log: `column_bytes` of signals, and
    /// stills.
    pub fn keep(&self, hold: QuotaReservation, column_bytes: u64) {
        let mut charged = self.charged.lock();
        let bytes = hold.keep();
        let column_bytes = column_bytes.min(bytes);
        charged.columns += column_bytes;
        charged.stills += bytes - column_bytes;
    }

    /// Charges its owner for columns and stills that it had before this start.
    pub fn record_stored(&self, column_bytes: u64, still_bytes: u64, quota: &Quota) {
        let mut charged = self.charged.lock();
        quota.record(&self.origin().principal, column_bytes + still_bytes);
        charged.columns += column_bytes;
        charged.stills += still_bytes;
    }

    /// Gives back `bytes` of its stills: they were removed.
    pub fn release_stills(&self, bytes: u64, quota: &Quota) {
        let mut charged = self.charged.lock();
        let bytes = bytes.min(charged.stills);
        charged.stills -= bytes;
        quota.release(&self.origin().principal, bytes);
    }

    /// Gives back everything: nothing of it is left.
    pub(super) fn release_all(&self, quota: &Quota) {
        let charged = std::mem::take(&mut *self.charged.lock());
        quota.release(&self.origin().principal, charged.records() + charged.stills);
    }

    fn charged(&self) -> Charged {
        *self.charged.lock()
    }
}

impl RunRegistry {
    /// The deleted runs with stills that their owners are charged for, and how much that is.
    pub fn deleted_stills(&self) -> Vec<(Arc<Run>, u64)> {
        let runs = self.deleted().into_iter().map(|run| (run.charged().stills, run));
        runs.filter(|(bytes, _)| *bytes > 0).map(|(bytes, run)| (run, bytes)).collect()
    }

    /// The deleted runs whose records take too much of what their owners may store to be kept until
    /// they are old.
    pub fn deleted_in_the_way(&self) -> HashSet<RunId> {
        let mut owners: HashMap<Principal, (u64, Vec<RunId>)> = HashMap::new();
        for run in self.deleted() {
            let (bytes, runs) = owners.entry(run.origin().principal.clone()).or_default();
            *bytes += run.charged().records();
            runs.push(run.id());
        }
        let quota = self.quota();
        let crowded =
            owners.into_iter().filter(|(owner, (bytes, _))| quota.is_in_the_way(owner, *bytes));
        crowded.flat_map(|(_, (_, runs))| runs).collect()
    }

    /// Returns true if deleted runs hold something to remove before they are old.
    pub fn has_leftovers(&self) -> bool {
        !self.deleted_stills().is_empty() || !self.deleted_in_the_way().is_empty()
    }

    /// The deleted runs for which nothing is under way any more.
    fn deleted(&self) -> Vec<Arc<Run>> {
        let tables = self.tables.lock();
        let deleted = tables.runs.values().filter(|run| run.lifecycle() == RunState::Deleted);
        deleted.filter(|run| run.is_at_rest()).cloned().collect()
    }
}
