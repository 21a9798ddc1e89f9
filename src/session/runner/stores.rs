//! What a job stores beside the log: charged before it is written, taken back when it fails.

use std::sync::Arc;

use media::BlobHash;
use timeline::BlobLease;

use super::{IngestError, Run, RunnerParts};
use crate::{disk::Reserve, quota::Hold};

/// The stills of one job, and the account of all that it stores.
pub(super) struct Stores {
    blobs: BlobLease,
    hold: Hold,
    reserve: Arc<Reserve>,
    /// Events may name some of it before the job is done.
    is_named: bool,
}

impl Stores {
    pub(super) fn new(parts: &RunnerParts, run: &Run) -> Stores {
        let hold = parts.registry.quota().hold(&run.origin().principal);
        let (blobs, reserve) = (parts.blobs.lease(), Arc::clone(&parts.reserve));
        Stores { blobs, hold, reserve, is_named: false }
    }

    /// Charges the run's owner, and stops a job before it takes the disk's reserve.
    pub(super) fn charge(&mut self, bytes: u64) -> Result<(), IngestError> {
        // A disk that cannot be examined is for the write to refuse.
        if let Ok(Some(low)) = self.reserve.check() {
            return Err(IngestError::DiskLow(low));
        }
        Ok(self.hold.grow(bytes)?)
    }

    /// Stores a still that an event will name.
    pub(super) fn put(&mut self, still: &[u8]) -> Result<BlobHash, IngestError> {
        self.charge(still.len() as u64)?;
        Ok(self.blobs.put(still)?)
    }

    /// Whoever has the stills from now on has events of the run name them.
    pub(super) fn hand_over(&mut self) {
        self.is_named = true;
    }

    /// Removes what no event of `run` will name; where some of it may be named, all stays until the
    /// next sweep, which knows.
    pub(super) fn take_back(self, run: &Run) {
        if self.is_named {
            return self.keep(run);
        }
        if let Err(error) = self.blobs.discard() {
            tracing::warn!(%error, "stills of a failed job stay until the next sweep");
        }
    }

    /// Everything is named by events of `run`.
    pub(super) fn keep(self, run: &Run) {
        run.keep(self.hold);
    }
}
