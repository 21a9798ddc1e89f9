//! Files of uploads: their folders, their durability, and the writer of an unfinished one.

use std::{
    fs::{self, File},
    io::Write,
    path::{Path, PathBuf},
};

use media::BlobHash;
use sha2::{Digest, Sha256};
use tempfile::TempPath;

use super::UploadError;
use crate::base::{keys::Principal, quota::QuotaReservation};

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

/// Unfinished upload; dropping it removes the file.
#[derive(Debug)]
pub struct UploadWriter {
    /// Removed when dropped, unless renamed; best effort, as the next start removes the file.
    path: TempPath,
    file: File,
    digest: Sha256,
    bytes: u64,
    bytes_max: u64,
    hold: QuotaReservation,
}

impl UploadWriter {
    /// Creates an empty file in `dir` for up to `bytes_max` bytes, as far as `hold` can grow.
    pub(super) fn create(
        dir: &Path,
        bytes_max: u64,
        hold: QuotaReservation,
    ) -> Result<UploadWriter, UploadError> {
        let path = dir.join(crate::base::hex(&crate::base::random_bytes::<16>()));
        let file = File::options().write(true).create_new(true).open(&path);
        let file = file.map_err(UploadError::io("create an upload", &path))?;
        let path = TempPath::try_from_path(path).map_err(UploadError::io("find an upload", dir))?;
        Ok(UploadWriter { path, file, digest: Sha256::new(), bytes: 0, bytes_max, hold })
    }

    /// Appends `bytes`; fails if they exceed the limit or the quota.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), UploadError> {
        self.bytes += bytes.len() as u64;
        if self.bytes > self.bytes_max {
            return Err(UploadError::TooLarge { max: self.bytes_max });
        }
        self.hold.grow(bytes.len() as u64)?;
        self.digest.update(bytes);
        self.file.write_all(bytes).map_err(UploadError::io("write an upload", &self.path))
    }

    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    pub fn sha256(&self) -> BlobHash {
        BlobHash::from_bytes(self.digest.clone().finalize().into())
    }

    /// Opens the written bytes for reading from their start.
    pub fn reopen(&self) -> Result<File, UploadError> {
        File::open(&self.path).map_err(UploadError::io("open an upload", &self.path))
    }

    /// Renames the file to `target`, durable on return; the caller must keep the returned charge.
    pub(super) fn publish(self, target: &Path) -> Result<QuotaReservation, UploadError> {
        let UploadWriter { path, file, hold, .. } = self;
        // Synced before the rename: the name must never stand for incomplete content.
        file.sync_data().map_err(UploadError::io("sync an upload", &path))?;
        // By std, not `persist`: tests make it fail, and record it, where libc is called.
        fs::rename(&path, target).map_err(UploadError::io("name an upload", target))?;
        drop(path.keep());
        sync_parent(target)?;
        Ok(hold)
    }
}
