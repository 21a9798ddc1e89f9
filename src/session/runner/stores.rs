//! Files that a job stores beside the log: charged before the write, removed when it fails.

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
    named: Named,
    /// Bytes among the charged ones that are for signals.
    column_bytes: u64,
}

/// Part of a job's stored bytes that its events name before it is done.
#[derive(Clone, Copy, Debug)]
pub(super) enum Named {
    /// Stills of so many bytes.
    Bytes(u64),
    /// The number of bytes is unknown.
    Unknown,
}

impl Stores {
    pub(super) fn new(parts: &RunnerParts, run: &Run) -> Stores {
        let hold = parts.registry.quota().hold(&run.origin().principal);
        let (blobs, reserve) = (parts.blobs.lease(), Arc::clone(&parts.reserve));
        Stores { blobs, hold, reserve, named: Named::Bytes(0), column_bytes: 0 }
    }

    /// Opens another account of the same owner, which ends with its use.
    pub(super) fn beside(&self) -> Hold {
        self.hold.beside()
    }

    /// Charges the run's owner for signals.
    pub(super) fn charge_column(&mut self, bytes: u64) -> Result<(), IngestError> {
        self.charge(bytes)?;
        self.column_bytes += bytes;
        Ok(())
    }

    /// Charges the run's owner, and stops a job before it takes the disk's reserve.
    fn charge(&mut self, bytes: u64) -> Result<(), IngestError> {
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

    /// Charges for signals of before this start, whatever the quotas say.
    pub(super) fn record_column(&mut self, bytes: u64) {
        self.hold.record(bytes);
        self.column_bytes += bytes;
    }

    /// Charges for a still of before this start likewise; tells whether it is there.
    pub(super) fn keep_still(&mut self, hash: BlobHash, bytes: u64) -> bool {
        let is_there = self.blobs.keep(hash);
        if is_there {
            self.hold.record(bytes);
        }
        is_there
    }

    /// Sets the bytes that events of the run name already.
    pub(super) fn name(&mut self, named: Named) {
        self.named = named;
    }

    /// Removes what no event of `run` names, now or, where some of it is named, in the next sweep; the
    /// owner pays for the rest.
    pub(super) fn take_back(mut self, run: &Run) {
        match self.named {
            Named::Bytes(0) => {
                if let Err(error) = self.blobs.discard() {
                    tracing::warn!(%error, "stills of a failed job stay until the next sweep");
                }
            }
            Named::Bytes(bytes) => {
                self.hold.shrink_to(bytes);
                self.column_bytes = 0;
                self.keep(run);
            }
            Named::Unknown => self.keep(run),
        }
    }

    /// The owner of `run` pays for all that is left.
    pub(super) fn keep(self, run: &Run) {
        let Stores { blobs, hold, column_bytes, .. } = self;
        // First: what a sweep spares for the lease alone is charged until the next.
        drop(blobs);
        run.keep(hold, column_bytes);
    }
}
