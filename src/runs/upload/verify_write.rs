//! Checks an upload after the write of its record failed.

use std::{fs, path::Path};

use super::{StoredUpload, UploadError, UploadStore};
use crate::base::{meta_store::MetaStoreError, quota::QuotaReservation};

impl UploadStore {
    /// Returns `hold` if the record exists in spite of the failed write, with everything of the
    /// same transaction; else fails with `error`.
    pub(super) fn kept_all_the_same(
        &self,
        upload: &StoredUpload,
        path: &Path,
        hold: QuotaReservation,
        error: MetaStoreError,
    ) -> Result<QuotaReservation, UploadError> {
        match self.find(&upload.owner, &upload.name) {
            Ok(Some(_)) => return Ok(hold),
            // Best effort: the next start handles a file without a record.
            Ok(None) => drop(fs::remove_file(path)),
            // The file stays, charged, until the next start: a record without its file would be
            // worse.
            Err(unread) => {
                let charged = hold.keep();
                tracing::error!(%unread, path = %path.display(), charged, "upload state unknown after a failed write");
            }
        }
        Err(error.into())
    }
}
