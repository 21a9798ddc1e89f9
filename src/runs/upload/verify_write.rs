//! Check of an upload whose record failed to be written.

use std::{fs, path::Path};

use super::{StoredUpload, UploadError, UploadStore};
use crate::base::{meta_store::MetaStoreError, quota::QuotaReservation};

impl UploadStore {
    /// Fails with `error` unless the record is there, as it may be after a failed write, and with
    /// it all that was written in the same step.
    pub(super) fn kept_all_the_same(
        &self,
        upload: &StoredUpload,
        path: &Path,
        hold: QuotaReservation,
        error: MetaStoreError,
    ) -> Result<QuotaReservation, UploadError> {
        match self.find(&upload.owner, &upload.name) {
            Ok(Some(_)) => return Ok(hold),
            // Best effort: a file without a record is removed at the next start.
            Ok(None) => drop(fs::remove_file(path)),
            // A record without its file would be worse than a file that waits, charged, for that
            // start.
            Err(unread) => {
                let charged = hold.keep();
                tracing::error!(%unread, path = %path.display(), charged, "upload state unknown after a failed write");
            }
        }
        Err(error.into())
    }
}
