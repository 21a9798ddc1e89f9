//! Uploaded files: one folder per owner, one ledger record per file, no partial state.
//!
//! A record is written after its file is durable and removed before it, so that a crash leaves at most a file
//! without a record, which opening removes once it is old. An owner reaches only its own folder. Knows
//! neither HTTP nor file contents. Long because storing, finding and removing must agree on one order of file
//! and record.

mod folder;
mod kind;
mod name;

use std::{
    collections::HashSet,
    fs::{self, File},
    io,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, SystemTime},
};

use media::{BlobHash, ErrorKind, NodeTag, WallTime};
use redb::{ReadableTable, TableDefinition, WriteTransaction};
use timeline::held::{FileError, HeldDir, Links, check_size};

use crate::{
    base::{
        keys::Principal,
        meta_store::{MetaStore, MetaStoreError},
        owner_limit::{LimitScope, OwnerLimiter, OwnerPermit},
        quota::{Quota, QuotaError},
    },
    runs::source::SourceError,
};

use folder::{folder_of, is_folder, list, sync_parent};
use name::last_name;

pub use folder::UploadWriter;
pub use kind::{extension, media_type};
pub use name::StoredName;

type Key = (&'static str, &'static str);
/// Size in bytes, SHA-256, time in epoch ms, the uploader's file name, the owner.
type Value = (u64, [u8; 32], i64, &'static str, &'static str);
const UPLOADS: TableDefinition<'static, Key, Value> = TableDefinition::new("uploads");

/// Maximum uploads at once, of one owner and of all.
pub const OWN_MAX: usize = 4;
pub const ALL_MAX: usize = 16;
/// Folder of unfinished uploads; owners' folders have other names.
const INCOMING: &str = "incoming";
/// Last extension of a file without a record.
const UNRECORDED: &str = "unrecorded";
/// Time for which a file without a record is set aside before it is removed.
const UNRECORDED_KEPT: Duration = Duration::from_secs(7 * 24 * 3600);

/// Reason that a file is not stored, found or removed.
#[derive(Debug, thiserror::Error)]
pub enum UploadError {
    #[error("the file is larger than {max} bytes, the most that is accepted")]
    TooLarge { max: u64 },
    #[error("the limit of {limit} uploads {} is reached: retry later", told(*whose))]
    Busy { limit: usize, whose: LimitScope },
    #[error("the disk is full")]
    DiskFull,
    #[error("cannot {what} at {}: {source}", path.display())]
    Io { what: &'static str, path: PathBuf, source: io::Error },
    #[error(transparent)]
    Quota(#[from] QuotaError),
    #[error(transparent)]
    Ledger(#[from] MetaStoreError),
    #[error(
        "the ledger knows of no upload, and there are some at {}: put back the file `ledger` that was beside them, \
         or move them away",
        path.display()
    )]
    LedgerLost { path: PathBuf },
}

impl UploadError {
    pub fn kind(&self) -> ErrorKind {
        match self {
            UploadError::TooLarge { .. } => ErrorKind::InvalidInput,
            UploadError::Busy { .. } | UploadError::DiskFull => ErrorKind::Exhausted,
            // A folder was moved away under the server.
            UploadError::Io { source, .. } if source.kind() == io::ErrorKind::NotFound => {
                ErrorKind::Unavailable
            }
            UploadError::Io { .. } | UploadError::LedgerLost { .. } => ErrorKind::Internal,
            UploadError::Quota(error) => error.kind(),
            UploadError::Ledger(error) => error.kind(),
        }
    }

    fn io(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> UploadError {
        let path = path.to_owned();
        move |source| match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => UploadError::DiskFull,
            _ => UploadError::Io { what, path, source },
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredUpload {
    /// Name that it is served by.
    pub name: StoredName,
    pub owner: Principal,
    pub bytes: u64,
    pub sha256: BlobHash,
    pub at: WallTime,
    /// Name given by the uploader; no path, no control characters.
    pub original_name: String,
}

#[derive(Clone, Copy, Debug)]
pub struct NewUpload<'a> {
    pub owner: &'a Principal,
    pub extension: &'a str,
    pub file_name: &'a str,
    pub at: WallTime,
}

pub struct UploadStore {
    /// Path in the settings, and the path it resolves to: callers may use either.
    dirs: [PathBuf; 2],
    /// Tag of the node, with which names begin.
    tag: Option<NodeTag>,
    root: HeldDir,
    ledger: MetaStore,
    quota: Arc<Quota>,
    under_way: OwnerLimiter,
}

impl UploadStore {
    /// Opens the files in `dir`, created if missing; removes what a crash left, and charges the
    /// rest to its owners.
    pub fn open(
        dir: &Path,
        tag: Option<NodeTag>,
        ledger: MetaStore,
        quota: Arc<Quota>,
    ) -> Result<UploadStore, UploadError> {
        let failed = |what| UploadError::io(what, dir);
        fs::create_dir_all(dir.join(INCOMING)).map_err(failed("make the upload directory"))?;
        let absolute = std::path::absolute(dir).map_err(failed("find the upload directory"))?;
        let real = dir.canonicalize().map_err(failed("find the upload directory"))?;
        sync_parent(&real)?;
        let root = HeldDir::open(&real).map_err(failed("open the upload directory"))?;
        let under_way = OwnerLimiter::default();
        let uploads = UploadStore { dirs: [absolute, real], tag, root, ledger, quota, under_way };
        uploads.require_records()?;
        let swept = uploads.sweep()?;
        if swept > 0 {
            tracing::warn!(swept, "unfinished uploads removed");
        }
        uploads.ledger.read(UPLOADS, |table| {
            for entry in table.iter()? {
                let value = entry?.1;
                let (bytes, .., owner) = value.value();
                uploads.quota.record(&Principal::named(owner), bytes);
            }
            Ok(())
        })?;
        Ok(uploads)
    }

    /// Creates the table of records if no owner has a file. Fails if files exist without a table:
    /// they would be mistaken for the leavings of a crash.
    fn require_records(&self) -> Result<(), UploadError> {
        if self.ledger.read(UPLOADS, |_| Ok(true))? {
            return Ok(());
        }
        for path in list(&self.dirs[1])? {
            let is_owners = path.file_name().and_then(|name| name.to_str()).is_some_and(is_folder);
            if is_owners && path.is_dir() && !list(&path)?.is_empty() {
                return Err(UploadError::LedgerLost { path });
            }
        }
        let made = self.ledger.write(|transaction| {
            transaction.open_table(UPLOADS)?;
            Ok(())
        });
        Ok(made?)
    }

    /// Removes unfinished uploads and files without a record, which a crash leaves; returns their number.
    /// Complete files are first set aside for [`UNRECORDED_KEPT`] from the start that misses their record:
    /// the ledger may have been restored to an earlier time, and the right one still knows them.
    ///
    /// Runs at startup, before any upload. Unknown files and folders stay.
    fn sweep(&self) -> Result<usize, UploadError> {
        let (mut swept, mut kept) = (0, 0);
        for folder in list(&self.dirs[1])? {
            let name = folder.file_name().and_then(|name| name.to_str());
            let is_incoming = name == Some(INCOMING);
            let known = match name.filter(|_| folder.is_dir() && !folder.is_symlink()) {
                Some(INCOMING) => HashSet::new(),
                Some(owner) if is_folder(owner) => self.names(owner)?,
                _ => {
                    tracing::warn!(path = %folder.display(), "not an upload folder, left alone");
                    continue;
                }
            };
            for path in list(&folder)? {
                let name = path.file_name().and_then(|name| name.to_str());
                if name.is_some_and(|name| known.contains(name)) {
                    continue;
                }
                if path.is_dir() && !path.is_symlink() {
                    tracing::warn!(path = %path.display(), "not an upload, left alone");
                    continue;
                }
                let is_old = is_incoming
                    || match set_aside(&path, &known) {
                        Ok(Unrecorded::Old) => true,
                        Ok(Unrecorded::Named) => false,
                        aside => {
                            if let Err(error) = aside {
                                tracing::warn!(%error, path = %path.display(), "an upload is not set aside");
                            }
                            kept += 1;
                            false
                        }
                    };
                if !is_old {
                    continue;
                }
                fs::remove_file(&path)
                    .map_err(UploadError::io("remove an unfinished upload", &path))?;
                swept += 1;
            }
        }
        if kept > 0 {
            tracing::warn!(
                files = kept, path = %self.dirs[1].display(),
                "uploads that the ledger does not know are set aside for a week: put the right ledger back to have them"
            );
        }
        Ok(swept)
    }

    fn names(&self, folder: &str) -> Result<HashSet<String>, MetaStoreError> {
        self.ledger.read(UPLOADS, |table| {
            let range = table.range((folder, "")..(folder, "~"))?;
            range.map(|entry| Ok(entry?.0.value().1.to_owned())).collect()
        })
    }

    pub fn enter(&self, owner: &Principal) -> Result<OwnerPermit, UploadError> {
        self.under_way.enter(owner, ALL_MAX, OWN_MAX).map_err(|whose| {
            let limit = if whose == LimitScope::All { ALL_MAX } else { OWN_MAX };
            UploadError::Busy { limit, whose }
        })
    }

    /// Creates an empty file for up to `bytes_max` bytes, which are charged to `owner`.
    pub fn receive(&self, owner: &Principal, bytes_max: u64) -> Result<UploadWriter, UploadError> {
        self.quota.check(owner)?;
        UploadWriter::create(&self.dirs[1].join(INCOMING), bytes_max, self.quota.hold(owner))
    }

    /// Stores `incoming` with the fields `new`; durable on return. `also` writes in the same transaction.
    pub fn keep(
        &self,
        incoming: UploadWriter,
        new: NewUpload<'_>,
        also: impl FnOnce(&WriteTransaction, &StoredUpload) -> Result<(), redb::Error>,
    ) -> Result<StoredUpload, UploadError> {
        let upload = StoredUpload {
            name: StoredName::new(self.tag, new.at, new.extension),
            owner: new.owner.clone(),
            bytes: incoming.bytes(),
            sha256: incoming.sha256(),
            at: new.at,
            original_name: last_name(new.file_name),
        };
        let folder = folder_of(new.owner);
        let dir = self.dirs[1].join(&folder);
        match fs::create_dir(&dir) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                return Err(UploadError::io("make an upload folder", &dir)(error));
            }
            // An existing folder may not be durable yet.
            Ok(()) | Err(_) => sync_parent(&dir)?,
        }
        let path = dir.join(upload.name.as_str());
        let hold = incoming.publish(&path)?;
        let recorded = self.ledger.write(|change| {
            let StoredUpload { name, owner, bytes, sha256, original_name, .. } = &upload;
            let key = (folder.as_str(), name.as_str());
            let (sha256, epoch_ms) = (*sha256.as_bytes(), new.at.epoch_ms);
            let value = (*bytes, sha256, epoch_ms, original_name.as_str(), owner.as_str());
            change.open_table(UPLOADS)?.insert(key, value)?;
            also(change, &upload)
        });
        if let Err(error) = recorded {
            match self.find(new.owner, &upload.name) {
                // It was written all the same, with everything of the same transaction.
                Ok(Some(_)) => {}
                Ok(None) => {
                    // Best effort: the next start handles a file without a record.
                    drop(fs::remove_file(&path));
                    return Err(error.into());
                }
                // The file stays, charged, until the next start: a record without its file would be worse.
                Err(unread) => {
                    let charged = hold.keep();
                    tracing::error!(%unread, path = %path.display(), charged, "upload state unknown after a failed write");
                    return Err(error.into());
                }
            }
        }
        let charged = hold.keep();
        debug_assert_eq!(charged, upload.bytes, "every byte was charged");
        Ok(upload)
    }

    pub fn find(
        &self,
        owner: &Principal,
        name: &StoredName,
    ) -> Result<Option<StoredUpload>, UploadError> {
        let folder = folder_of(owner);
        let found = self.ledger.read(UPLOADS, |table| {
            let found = table.get((folder.as_str(), name.as_str()))?;
            Ok(found.map(|value| upload(name.clone(), value.value())))
        });
        Ok(found?)
    }

    /// Lists the owner's files before `before`, newest first; one more than `limit` if there are more.
    pub fn list(
        &self,
        owner: &Principal,
        before: Option<&StoredName>,
        limit: usize,
    ) -> Result<Vec<StoredUpload>, UploadError> {
        let folder = folder_of(owner);
        let before = before.map_or("~", StoredName::as_str);
        let listed = self.ledger.read(UPLOADS, |table| {
            let range = table.range((folder.as_str(), "")..(folder.as_str(), before))?;
            let mut files = Vec::new();
            for entry in range.rev() {
                if files.len() > limit {
                    break;
                }
                let (key, value) = entry?;
                // A name of another form is not one of ours.
                let Ok(name) = key.value().1.parse() else { continue };
                files.push(upload(name, value.value()));
            }
            Ok(files)
        });
        Ok(listed?)
    }

    /// Removes the file `name` of `owner`, which open readers keep. Returns false if there is none.
    pub fn remove(&self, owner: &Principal, name: &StoredName) -> Result<bool, UploadError> {
        let folder = folder_of(owner);
        let removed = self.ledger.write(|change| {
            let mut table = change.open_table(UPLOADS)?;
            let removed = table.remove((folder.as_str(), name.as_str()))?;
            Ok(removed.map(|value| value.value().0))
        })?;
        let Some(bytes) = removed else { return Ok(false) };
        let path = self.dirs[1].join(folder).join(name.as_str());
        // The next start removes the file from there if its removal fails.
        let gone = self.dirs[1].join(INCOMING).join(name.as_str());
        match fs::rename(&path, &gone).and_then(|()| fs::remove_file(&gone)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                tracing::warn!(%error, %name, "a removed upload stays, charged, until the next start, or for a week if it is not in `incoming`");
            }
            Ok(()) | Err(_) => self.quota.release(owner, bytes),
        }
        Ok(true)
    }

    /// Opens the file of an upload; fails if its size differs from the record.
    pub fn open_file(&self, upload: &StoredUpload) -> Result<File, SourceError> {
        let beneath = Path::new(&folder_of(&upload.owner)).join(upload.name.as_str());
        let opened = self.root.file(&beneath, Links::Never).and_then(|file| {
            check_size(&file, upload.bytes)?;
            Ok(file)
        });
        opened.map_err(|error| match error {
            FileError::NotFound => SourceError::NotFound,
            error => SourceError::Replaced(error),
        })
    }

    /// Parses `path` as the name of an upload: its path on this server, or the name alone.
    ///
    /// Returns `None` if it names anything else; another owner's upload is not found.
    pub fn named(&self, owner: &Principal, path: &Path) -> Option<Result<StoredName, SourceError>> {
        let beneath = self.dirs.iter().find_map(|dir| path.strip_prefix(dir).ok());
        let Some(beneath) = beneath else {
            return path.to_str()?.parse().ok().map(Ok);
        };
        let own = beneath.strip_prefix(folder_of(owner)).ok().and_then(Path::to_str);
        Some(own.and_then(|name| name.parse().ok()).ok_or(SourceError::NotFound))
    }

    /// Finds an upload of `owner` by its path when the data directory was elsewhere: before a restore or a move.
    pub fn moved(
        &self,
        owner: &Principal,
        path: &Path,
    ) -> Result<Option<StoredUpload>, UploadError> {
        let is_own = path.parent().is_some_and(|folder| folder.ends_with(folder_of(owner)));
        let name = path.file_name().filter(|_| is_own).and_then(|name| name.to_str());
        match name.and_then(|name| name.parse::<StoredName>().ok()) {
            Some(name) => self.find(owner, &name),
            None => Ok(None),
        }
    }

    pub fn path(&self, upload: &StoredUpload) -> PathBuf {
        self.dirs[0].join(folder_of(&upload.owner)).join(upload.name.as_str())
    }
}

/// Scope of the limit, for the error message.
fn told(whose: LimitScope) -> &'static str {
    match whose {
        LimitScope::All => "of all callers",
        LimitScope::Own => "of yours",
    }
}

/// State of a complete file without a record.
enum Unrecorded {
    /// A record of the file exists again.
    Named,
    /// The file is set aside.
    Aside,
    /// The file was set aside long enough, or is no regular file.
    Old,
}

/// Sets a file aside that is not in `known`, or restores its name if that is known again.
fn set_aside(path: &Path, known: &HashSet<String>) -> io::Result<Unrecorded> {
    let metadata = fs::symlink_metadata(path)?;
    if !metadata.is_file() {
        return Ok(Unrecorded::Old);
    }
    if path.extension().is_none_or(|extension| extension != UNRECORDED) {
        File::open(path)?.set_modified(SystemTime::now())?;
        return fs::rename(path, path.with_added_extension(UNRECORDED)).map(|()| Unrecorded::Aside);
    }
    let own = path.with_extension("");
    if own.file_name().and_then(|name| name.to_str()).is_some_and(|name| known.contains(name)) {
        return fs::rename(path, own).map(|()| Unrecorded::Named);
    }
    let is_old = metadata.modified()?.elapsed().is_ok_and(|age| age >= UNRECORDED_KEPT);
    Ok(if is_old { Unrecorded::Old } else { Unrecorded::Aside })
}

fn upload(name: StoredName, value: (u64, [u8; 32], i64, &str, &str)) -> StoredUpload {
    let (bytes, sha256, epoch_ms, original_name, owner) = value;
    StoredUpload {
        name,
        owner: Principal::named(owner),
        bytes,
        sha256: BlobHash::from_bytes(sha256),
        at: WallTime { epoch_ms },
        original_name: original_name.to_owned(),
    }
}

#[cfg(test)]
mod tests;
