//! Folders on disk: how an owner's is called, what is in one, and that a name in it lasts.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
};

use sha2::{Digest, Sha256};

use super::UploadError;
use crate::base::keys::Principal;

/// A folder that tells nothing about its owner.
pub(super) fn folder_of(owner: &Principal) -> String {
    let digest: [u8; 32] = Sha256::new_with_prefix(b"upload folder of ")
        .chain_update(owner.as_str())
        .finalize()
        .into();
    crate::base::hex(&digest[..16])
}

/// Returns true if [`folder_of`] gives such names.
pub(super) fn is_folder(name: &str) -> bool {
    name.len() == 32 && name.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// Paths in `dir`.
pub(super) fn list(dir: &Path) -> Result<Vec<PathBuf>, UploadError> {
    let paths = |entries: fs::ReadDir| entries.map(|entry| Ok(entry?.path())).collect();
    fs::read_dir(dir).and_then(paths).map_err(UploadError::io("list a directory", dir))
}

/// Makes the name of `path` durable.
pub(super) fn sync_parent(path: &Path) -> Result<(), UploadError> {
    let dir = path.parent().unwrap_or(path);
    let synced = File::open(dir).and_then(|dir| dir.sync_all());
    synced.map_err(UploadError::io("sync a directory", dir))
}
