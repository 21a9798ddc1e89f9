//! The secret of the installation: made at the first start, and the same from then on.

use std::{
    fs::File,
    io::{self, Read, Write},
    path::Path,
};

use rustix::fs::{AtFlags, Mode, OFlags};

const NAME: &str = "secret";
const UNFINISHED: &str = "secret.unfinished";

/// Reads the secret in `data_dir`, or makes one for its owner alone to read.
pub fn open(data_dir: &Path) -> io::Result<[u8; 32]> {
    let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
    let dir = rustix::fs::open(data_dir, flags, Mode::empty())?;
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    match rustix::fs::openat(&dir, NAME, flags, Mode::empty()) {
        Ok(file) => read(file.into()),
        Err(rustix::io::Errno::NOENT) => {
            if data_dir.join("log").exists() {
                tracing::error!(
                    "the file `secret` of the data directory is missing and is made anew: the runs of \
                     keys without a name have no owner until it is put back"
                );
            }
            let secret: [u8; 32] = crate::base::random_bytes();
            if let Err(error) = rustix::fs::unlinkat(&dir, UNFINISHED, AtFlags::empty()) {
                tracing::debug!(%error, "no start was cut off");
            }
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
            let mode = Mode::RUSR | Mode::WUSR;
            let mut file: File = rustix::fs::openat(&dir, UNFINISHED, flags, mode)?.into();
            file.write_all(&secret)?;
            file.sync_all()?;
            rustix::fs::renameat(&dir, UNFINISHED, &dir, NAME)?;
            rustix::fs::fsync(&dir)?;
            Ok(secret)
        }
        Err(error) => Err(error.into()),
    }
}

fn read(file: File) -> io::Result<[u8; 32]> {
    let mut secret = [0; 32];
    let is_whole = file.metadata()?.is_file() && file.metadata()?.len() == secret.len() as u64;
    if !is_whole {
        let text = "its file `secret` is not 32 bytes: put back the one that was there, or remove \
                    it, after which the runs of keys without a name have no owner";
        return Err(io::Error::new(io::ErrorKind::InvalidData, text));
    }
    (&file).read_exact(&mut secret)?;
    Ok(secret)
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt};

    use super::*;

    #[test]
    fn a_secret_is_made_once_and_nothing_else_is_taken_for_it() {
        let dir = tempfile::tempdir().expect("a directory");
        let first = open(dir.path()).expect("made");
        assert_eq!(open(dir.path()).expect("read"), first);
        let file = dir.path().join(NAME);
        let mode = fs::metadata(&file).expect("there").permissions().mode() & 0o777;
        assert_eq!(mode, 0o600);
        fs::write(&file, b"short").expect("written");
        assert!(open(dir.path()).is_err());
        fs::remove_file(&file).expect("removed");
        std::os::unix::fs::symlink("/dev/zero", &file).expect("linked");
        assert!(open(dir.path()).is_err(), "a link is not followed");
    }
}
