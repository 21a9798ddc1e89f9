//! One writer a log: an exclusive `flock` on a file of its directory, released by the kernel
//! when the process ends, however it ends.

use std::{fs::File, path::Path};

use rustix::{
    fs::{FlockOperation, flock},
    io::Errno,
};

use crate::{Result, TimelineError};

pub(crate) struct Lock {
    /// Holds the lock as long as it is open.
    _file: File,
}

impl Lock {
    pub(crate) fn take(dir: &Path) -> Result<Lock> {
        let path = dir.join("lock");
        let file = File::options().write(true).create(true).truncate(false).open(&path);
        let file = file.map_err(TimelineError::io("open the lock file", &path))?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Lock { _file: file }),
            Err(Errno::WOULDBLOCK) => Err(TimelineError::Locked { dir: dir.to_owned() }),
            Err(errno) => Err(TimelineError::io("lock the log", path)(errno.into())),
        }
    }
}
