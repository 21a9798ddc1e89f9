//! Secret of the installation, created at the first start. The ledger stores a mark (HMAC) of it, by which a
//! start refuses a secret that is damaged or of another installation.

use std::{
    fs::File,
    io::{self, Write},
    os::fd::OwnedFd,
    path::Path,
};

use hmac::{Hmac, KeyInit, Mac};
use redb::TableDefinition;
use rustix::fs::{AtFlags, Mode, OFlags};
use sha2::Sha256;
use timeline::held::{FileError, HeldDir, Size};

use super::meta_store::{MetaStore, MetaStoreError};

const NAME: &str = "secret";
const UNFINISHED: &str = "secret.unfinished";
/// Marks of every secret ever in use; an empty one stands for a secret that was lost before it had a mark.
const MARKS: TableDefinition<'_, &[u8], ()> = TableDefinition::new("secrets");

const LOST: [u8; 0] = [];

/// The secret as read or created by a start.
pub struct Secret {
    bytes: [u8; 32],
    /// Data directory, if the secret is new and not written yet.
    new_in: Option<OwnedFd>,
    /// True if the secret is new although a log exists: the previous secret is lost.
    is_anew: bool,
}

impl Secret {
    pub fn bytes(&self) -> &[u8; 32] {
        &self.bytes
    }

    /// Returns false if `ledger` has marks, but not one that admits this secret.
    pub fn is_known(&self, ledger: &MetaStore) -> Result<bool, MetaStoreError> {
        let is_known = |[own, lost]: [bool; 2]| own || lost;
        Ok(self.new_in.is_some() || self.marks(ledger)?.is_none_or(is_known))
    }

    /// Returns true if a server has opened a log beside `ledger`.
    pub fn is_marked(&self, ledger: &MetaStore) -> Result<bool, MetaStoreError> {
        Ok(self.marks(ledger)?.is_some())
    }

    /// Adds the mark to `ledger` and writes a new secret to disk; does nothing if both are done.
    pub fn keep(&self, ledger: &MetaStore) -> io::Result<()> {
        let marks = self.marks(ledger).map_err(io::Error::other)?;
        if marks.is_none_or(|[own, _]| !own) {
            let marked = ledger.write(|change| {
                let mut table = change.open_table(MARKS)?;
                table.insert(&self.mark()[..], ())?;
                if marks.is_none() && self.is_anew {
                    table.insert(&LOST[..], ())?;
                } else if self.new_in.is_none() {
                    table.remove(&LOST[..])?;
                }
                Ok(())
            });
            match marked {
                // Ignored if the disk is full; a later start adds the mark.
                Err(error) if self.new_in.is_none() => {
                    tracing::warn!(%error, "the ledger has no mark of the file `secret`");
                }
                marked => marked.map_err(io::Error::other)?,
            }
        }
        self.new_in.as_ref().map_or(Ok(()), |dir| self.write(dir))
    }

    /// Writes the secret with mode 0600; durable on return. The open ledger excludes other servers.
    fn write(&self, dir: &OwnedFd) -> io::Result<()> {
        if let Err(error) = rustix::fs::unlinkat(dir, UNFINISHED, AtFlags::empty()) {
            tracing::debug!(%error, "no start was cut off");
        }
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let mode = Mode::RUSR | Mode::WUSR;
        let mut file: File = rustix::fs::openat(dir, UNFINISHED, flags, mode)?.into();
        file.write_all(&self.bytes)?;
        file.sync_all()?;
        rustix::fs::renameat(dir, UNFINISHED, dir, NAME)?;
        Ok(rustix::fs::fsync(dir)?)
    }

    /// Returns two flags: `ledger` has this secret's mark, and a lost one's; `None` if it has no marks.
    fn marks(&self, ledger: &MetaStore) -> Result<Option<[bool; 2]>, MetaStoreError> {
        let own = self.mark();
        ledger.read(MARKS, |marks| {
            Ok(Some([marks.get(&own[..])?.is_some(), marks.get(&LOST[..])?.is_some()]))
        })
    }

    fn mark(&self) -> [u8; 32] {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.bytes).expect("a key of any length");
        mac.update(b"secret");
        mac.finalize().into_bytes().into()
    }
}

/// Reads the secret in `data_dir`, or creates one, which [`Secret::keep`] writes.
pub fn open(data_dir: &Path) -> io::Result<Secret> {
    match HeldDir::new(data_dir).read(Path::new(NAME), Size::Recorded(32)) {
        Ok(bytes) => {
            let bytes: [u8; 32] = bytes.try_into().map_err(|_| unknown())?;
            Ok(Secret { bytes, new_in: None, is_anew: false })
        }
        Err(FileError::NotFound) => {
            let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
            let dir = rustix::fs::open(data_dir, flags, Mode::empty())?;
            let is_anew = data_dir.join("log").exists();
            if is_anew {
                tracing::error!(
                    "the file `secret` of the data directory is missing and is made anew: the runs of \
                     keys without a name have no owner until it is put back"
                );
            }
            Ok(Secret { bytes: crate::base::random_bytes(), new_in: Some(dir), is_anew })
        }
        Err(FileError::NotAFile(_) | FileError::Size { .. }) => Err(unknown()),
        Err(error) => Err(error.into()),
    }
}

/// Returns the error for a secret that is not the one of this installation.
pub fn unknown() -> io::Error {
    let text = "its file `secret` is damaged or of another installation: put back the one that was there, or \
                remove it, after which the runs of keys without a name have no owner";
    io::Error::new(io::ErrorKind::InvalidData, text)
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt};

    use super::*;

    #[test]
    fn a_secret_is_made_once_and_nothing_else_is_taken_for_it() {
        let dir = tempfile::tempdir().expect("a directory");
        let ledger = MetaStore::open(&dir.path().join("ledger")).expect("made");
        let open = || open(dir.path());
        let is_known = || open().expect("read").is_known(&ledger).expect("readable");
        let file = dir.path().join(NAME);
        assert!(is_known() && !file.exists(), "a start that is refused leaves none");
        let first = open().expect("made");
        first.keep(&ledger).expect("kept");
        assert_eq!(open().expect("read").bytes, first.bytes);
        assert!(is_known());
        let mut flipped = first.bytes;
        flipped[7] ^= 1;
        fs::write(&file, flipped).expect("written");
        assert!(!is_known(), "a bit of it");
        let other = MetaStore::open(&dir.path().join("other")).expect("made");
        assert!(open().expect("read").is_known(&other).expect("readable"), "no mark is there");
        fs::remove_file(&file).expect("removed");
        let second = open().expect("made");
        second.keep(&ledger).expect("kept");
        assert!(second.bytes != first.bytes && is_known(), "one that is made anew");
        fs::remove_file(&file).expect("removed");
        fs::write(&file, first.bytes).expect("written");
        assert!(is_known(), "the first one, put back");
        fs::create_dir(dir.path().join("log")).expect("made");
        fs::remove_file(&file).expect("removed");
        open().expect("made anew").keep(&other).expect("kept");
        fs::write(&file, second.bytes).expect("written");
        let back = open().expect("read");
        assert!(back.is_known(&other).expect("readable"), "the one that an older server had");
        back.keep(&other).expect("kept");
        fs::write(&file, first.bytes).expect("written");
        assert!(!open().expect("read").is_known(&other).expect("readable"), "no third one");
        fs::remove_file(&file).expect("removed");
        open().expect("made").keep(&ledger).expect("kept");
        let mode = fs::metadata(&file).expect("there").permissions().mode() & 0o777;
        assert_eq!(mode, 0o600);
        fs::write(&file, b"short").expect("written");
        assert!(open().is_err());
        fs::remove_file(&file).expect("removed");
        std::os::unix::fs::symlink("/dev/zero", &file).expect("linked");
        assert!(open().is_err(), "a link is not followed");
    }
}
