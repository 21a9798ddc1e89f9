//! Quota charges of a run, kept until its bytes are gone from the disk, even if it is deleted.

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

/// Bytes charged for a run.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Charged {
    log: u64,
    columns: u64,
    stills: u64,
}

impl Charged {
    /// Bytes that stay until the run's events are purged.
    fn records(self) -> u64 {
        self.log + self.columns
    }
}

impl Run {
    pub(super) fn account(&self, log_bytes: u64, quota: &Quota) {
        let mut charged = self.charged.lock();
        let owner = &self.origin().principal;
        quota.record(owner, log_bytes.saturating_sub(charged.log));
        quota.release(owner, charged.log.saturating_sub(log_bytes));
        charged.log = log_bytes;
    }

    /// Keeps a reservation as a charge for data beside the log: `column_bytes` of signals, the
    /// rest stills.
    pub fn keep(&self, hold: QuotaReservation, column_bytes: u64) {
        let mut charged = self.charged.lock();
        let bytes = hold.keep();
        let column_bytes = column_bytes.min(bytes);
        charged.columns += column_bytes;
        charged.stills += bytes - column_bytes;
    }

    /// Charges the owner for columns and stills stored before this start.
    pub fn record_stored(&self, column_bytes: u64, still_bytes: u64, quota: &Quota) {
        let mut charged = self.charged.lock();
        quota.record(&self.origin().principal, column_bytes + still_bytes);
        charged.columns += column_bytes;
        charged.stills += still_bytes;
    }

    pub fn release_stills(&self, bytes: u64, quota: &Quota) {
        let mut charged = self.charged.lock();
        let bytes = bytes.min(charged.stills);
        charged.stills -= bytes;
        quota.release(&self.origin().principal, bytes);
    }

    pub(super) fn release_all(&self, quota: &Quota) {
        let charged = std::mem::take(&mut *self.charged.lock());
        quota.release(&self.origin().principal, charged.records() + charged.stills);
    }

    fn charged(&self) -> Charged {
        *self.charged.lock()
    }
}

impl RunRegistry {
    /// Returns the deleted runs with stills still charged, and the bytes of each.
    pub fn deleted_stills(&self) -> Vec<(Arc<Run>, u64)> {
        let runs = self.deleted().into_iter().map(|run| (run.charged().stills, run));
        runs.filter(|(bytes, _)| *bytes > 0).map(|(bytes, run)| (run, bytes)).collect()
    }

    /// Returns the deleted runs whose records take too much of the owner's quota to be kept until
    /// their age.
    pub fn deleted_in_the_way(&self) -> HashSet<RunId> {
        let mut owners: HashMap<Principal, (u64, Vec<RunId>)> = HashMap::new();
        for run in self.deleted() {
            let (bytes, runs) = owners.entry(run.origin().principal.clone()).or_default();
            *bytes += run.charged().records();
            runs.push(run.id());
        }
        let quota = &self.quota;
        let crowded =
            owners.into_iter().filter(|(owner, (bytes, _))| quota.is_in_the_way(owner, *bytes));
        crowded.flat_map(|(_, (_, runs))| runs).collect()
    }

    /// Returns true if deleted runs have data to remove before their age.
    pub fn has_leftovers(&self) -> bool {
        !self.deleted_stills().is_empty() || !self.deleted_in_the_way().is_empty()
    }

    /// Deleted runs without a job.
    fn deleted(&self) -> Vec<Arc<Run>> {
        let tables = self.tables.lock();
        let deleted = tables.runs.values().filter(|run| run.lifecycle() == RunState::Deleted);
        deleted.filter(|run| run.is_at_rest()).cloned().collect()
    }
}
