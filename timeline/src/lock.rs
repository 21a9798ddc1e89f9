//! Lock for one writer per log: an exclusive `flock` on a file of its directory, released by the kernel when
//! the process ends, however it ends.
//!
//! The file also records that the log has begun; otherwise a log whose only journal file was lost would look
//! like a new one.

use std::{
    fs::{self, File},
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
};

use rustix::{
    fs::{FlockOperation, flock},
    io::Errno,
};

use crate::{Result, TimelineError, error::unread, held::HeldDir};

const NAME: &str = "lock";
/// Content of the lock file of a log that has begun.
const BEGUN: &[u8] = b"begun\n";

pub(crate) struct LogLock {
    path: PathBuf,
    /// Locked as long as it is open.
    file: File,
}

/// Returns an error if the log in `dir` has begun but has no journal file.
pub(crate) fn check_journal(dir: &Path, journal_files: usize) -> Result<()> {
    let path = dir.join(NAME);
    let has_begun = fs::metadata(&path).is_ok_and(|found| found.len() > 0);
    if journal_files > 0 || !has_begun {
        return Ok(());
    }
    let what = "the journal of this log is gone: restore it, or remove this file to begin anew";
    Err(TimelineError::Damaged { file: path, offset: 0, what })
}

impl LogLock {
    /// Locks the log in `dir`, which has `journal_files` journal files.
    pub(crate) fn take(dir: &Path, journal_files: usize) -> Result<LogLock> {
        let path = dir.join(NAME);
        let file = HeldDir::new(dir).file_to_write(Path::new(NAME));
        let file = file.map_err(unread("open the lock file", &path))?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => check_journal(dir, journal_files).map(|()| LogLock { path, file }),
            Err(Errno::WOULDBLOCK) => Err(TimelineError::Locked { dir: dir.to_owned() }),
            Err(errno) => Err(TimelineError::io("lock the log", path)(errno.into())),
        }
    }

    /// Records that the log has a journal file, which must be durable already.
    pub(crate) fn remember_journal(&self) -> Result<()> {
        let written = self.file.write_all_at(BEGUN, 0).and_then(|()| self.file.sync_data());
        written.map_err(TimelineError::io("write the lock file", &self.path))
    }
}
