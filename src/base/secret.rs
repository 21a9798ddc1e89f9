//! The secret of the installation: made at the first start, and the same from then on. The ledger has a mark of it, by which
//! one that is damaged, or of another installation, is refused.

use std::{
    fs::File,
    io::{self, Read, Write},
    path::Path,
};

use hmac::{Hmac, KeyInit, Mac};
use redb::TableDefinition;
use rustix::fs::{AtFlags, Mode, OFlags};
use sha2::Sha256;

use super::meta_store::{self, MetaStore, MetaStoreError};

const NAME: &str = "secret";
const UNFINISHED: &str = "secret.unfinished";
/// Marks of every secret that was in force.
const MARKS: TableDefinition<'_, &[u8], ()> = TableDefinition::new("secrets");

/// The secret, as a start finds it.
pub struct Secret {
    bytes: [u8; 32],
    is_new: bool,
}

impl Secret {
    /// Its bytes.
    pub fn bytes(&self) -> &[u8; 32] {
        &self.bytes
    }

    /// Returns true if `ledger` knows it; it learns one that is new, and its first.
    pub fn is_known(&self, ledger: &MetaStore) -> Result<bool, MetaStoreError> {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.bytes).expect("a key of any length");
        mac.update(b"secret");
        let mark = mac.finalize().into_bytes();
        let known = ledger.read(|view| match meta_store::table(view, MARKS)? {
            Some(marks) => Ok(Some(marks.get(mark.as_slice())?.is_some())),
            None => Ok(None),
        })?;
        if !self.is_new
            && let Some(is_known) = known
        {
            return Ok(is_known);
        }
        ledger.write(|change| {
            change.open_table(MARKS)?.insert(mark.as_slice(), ())?;
            Ok(())
        })?;
        Ok(true)
    }
}

/// Reads the secret in `data_dir`, or makes one for its owner alone to read.
pub fn open(data_dir: &Path) -> io::Result<Secret> {
    let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
    let dir = rustix::fs::open(data_dir, flags, Mode::empty())?;
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    match rustix::fs::openat(&dir, NAME, flags, Mode::empty()) {
        Ok(file) => Ok(Secret { bytes: read(file.into())?, is_new: false }),
        Err(rustix::io::Errno::NOENT) => {
            if data_dir.join("log").exists() {
                tracing::error!(
                    "the file `secret` of the data directory is missing and is made anew: the runs of \
                     keys without a name have no owner until it is put back"
                );
            }
            let bytes: [u8; 32] = crate::base::random_bytes();
            if let Err(error) = rustix::fs::unlinkat(&dir, UNFINISHED, AtFlags::empty()) {
                tracing::debug!(%error, "no start was cut off");
            }
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
            let mode = Mode::RUSR | Mode::WUSR;
            let mut file: File = rustix::fs::openat(&dir, UNFINISHED, flags, mode)?.into();
            file.write_all(&bytes)?;
            file.sync_all()?;
            rustix::fs::renameat(&dir, UNFINISHED, &dir, NAME)?;
            rustix::fs::fsync(&dir)?;
            Ok(Secret { bytes, is_new: true })
        }
        Err(error) => Err(error.into()),
    }
}

fn read(file: File) -> io::Result<[u8; 32]> {
    let mut secret = [0; 32];
    let is_whole = file.metadata()?.is_file() && file.metadata()?.len() == secret.len() as u64;
    if !is_whole {
        return Err(unknown());
    }
    (&file).read_exact(&mut secret)?;
    Ok(secret)
}

/// Refusal of a secret that is not the one of this installation.
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
        let is_known = || open(dir.path()).expect("read").is_known(&ledger).expect("readable");
        let first = open(dir.path()).expect("made");
        assert_eq!(open(dir.path()).expect("read").bytes, first.bytes);
        assert!(is_known(), "a ledger of before takes what is there");
        let file = dir.path().join(NAME);
        let mut flipped = first.bytes;
        flipped[7] ^= 1;
        fs::write(&file, flipped).expect("written");
        assert!(!is_known(), "a bit of it");
        fs::remove_file(&file).expect("removed");
        assert!(is_known(), "one that is made anew");
        fs::write(&file, first.bytes).expect("written");
        assert!(is_known(), "the first one, put back");
        let mode = fs::metadata(&file).expect("there").permissions().mode() & 0o777;
        assert_eq!(mode, 0o600);
        fs::write(&file, b"short").expect("written");
        assert!(open(dir.path()).is_err());
        fs::remove_file(&file).expect("removed");
        std::os::unix::fs::symlink("/dev/zero", &file).expect("linked");
        assert!(open(dir.path()).is_err(), "a link is not followed");
    }
}
