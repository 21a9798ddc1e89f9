//! Folders of uploads on disk: their names, their contents, and their durability.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
};

use sha2::{Digest, Sha256};

use super::UploadError;
use crate::base::keys::Principal;

/// Returns the folder name of `owner`: a digest, which does not reveal the owner.
pub(super) fn folder_of(owner: &Principal) -> String {
    let digest: [u8; 32] = Sha256::new_with_prefix(b"upload folder of ")
        .chain_update(owner.as_str())
        .finalize()
        .into();
    crate::base::hex(&digest[..16])
}

pub(super) fn is_folder(name: &str) -> bool {
    name.len() == 32 && name.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

pub(super) fn list(dir: &Path) -> Result<Vec<PathBuf>, UploadError> {
    let paths = |entries: fs::ReadDir| entries.map(|entry| Ok(entry?.path())).collect();
    fs::read_dir(dir).and_then(paths).map_err(UploadError::io("list a directory", dir))
}

/// Syncs the parent directory of `path`, which makes its name durable.
pub(super) fn sync_parent(path: &Path) -> Result<(), UploadError> {
    let dir = path.parent().unwrap_or(path);
    let synced = File::open(dir).and_then(|dir| dir.sync_all());
    synced.map_err(UploadError::io("sync a directory", dir))
}
