//! Errors of the log, with the location of the fault.

use std::{io, path::PathBuf};

use media::{ErrorKind, Seq};
use rustix::io::Errno;

use crate::{held::FileError, journal::is_full, remote::RemoteError};

/// Error of the timeline; messages name the file and the offset of damage.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum TimelineError {
    /// A stored byte is not the one written.
    #[error("damaged log: {what} at offset {offset} of {}", file.display())]
    Damaged { file: PathBuf, offset: u64, what: &'static str },
    #[error("format {version} of {} is unknown: a newer Sightline wrote it, or it is damaged", file.display())]
    UnknownFormat { file: PathBuf, version: u32 },
    #[error("another process has this log open: {}", dir.display())]
    Locked { dir: PathBuf },
    /// An earlier write or sync failed in a way that leaves the disk's state unknown.
    #[error("the log is read-only since a write to disk failed: {reason}")]
    Poisoned { reason: String },
    /// The log is closed, or was opened for reading only.
    #[error("the log is not open for writing")]
    Closed,
    #[error("the log's queue is full at its limit of {limit} {unit}")]
    QueueFull { limit: usize, unit: &'static str },
    #[error("the log is full at its limit of {limit} {unit}")]
    LogFull { limit: u64, unit: &'static str },
    #[error("{what} of {size} exceeds the limit of {limit}")]
    TooLarge { what: &'static str, size: usize, limit: usize },
    /// The disk is full; nothing of the batch, the blob or the column was kept.
    #[error("no space left on the disk: {}", file.display())]
    DiskFull { file: PathBuf },
    #[error("event {seq} is not a valid {kind}: field {field}")]
    Payload { seq: Seq, kind: &'static str, field: &'static str },
    #[error("damaged file: {}: {source}", path.display())]
    NotTheFile { path: PathBuf, source: FileError },
    /// Some files exist only in an object store other than the configured one.
    #[error(
        "{files} files of {} are only in the object store {place}: configure that one, or fetch them from there \
         and remove the file object-store in that directory",
        dir.display()
    )]
    Elsewhere { dir: PathBuf, place: String, files: usize },
    /// The file exists only in the object store, which only the server reads.
    #[error("only the object store has this file, and the server fetches it: {}", path.display())]
    Away { path: PathBuf },
    #[error("the object store {what}: {}", file.display())]
    Lost { file: PathBuf, what: &'static str },
    #[error(transparent)]
    Remote(#[from] RemoteError),
    #[error("cannot {what}: {source}: {}", path.display())]
    Io { what: &'static str, path: PathBuf, source: io::Error },
}

impl TimelineError {
    /// Returns the kind of the failure.
    pub fn kind(&self) -> ErrorKind {
        match self {
            TimelineError::Damaged { .. }
            | TimelineError::Lost { .. }
            | TimelineError::UnknownFormat { .. }
            | TimelineError::NotTheFile { .. }
            | TimelineError::Payload { .. } => ErrorKind::DataLoss,
            TimelineError::Locked { .. } | TimelineError::Elsewhere { .. } => ErrorKind::Conflict,
            TimelineError::Poisoned { .. }
            | TimelineError::Closed
            | TimelineError::Away { .. }
            | TimelineError::Remote(_) => ErrorKind::Unavailable,
            TimelineError::QueueFull { .. }
            | TimelineError::LogFull { .. }
            | TimelineError::DiskFull { .. } => ErrorKind::Exhausted,
            TimelineError::TooLarge { .. } => ErrorKind::InvalidInput,
            // A folder was moved away under the server.
            TimelineError::Io { source, .. } if source.kind() == io::ErrorKind::NotFound => {
                ErrorKind::Unavailable
            }
            TimelineError::Io { .. } => ErrorKind::Internal,
        }
    }

    /// Returns true if a retry would find what was stored as unreadable: damage, or a medium that fails (EIO).
    pub fn is_lasting(&self) -> bool {
        let has_failed = |error: &io::Error| error.raw_os_error() == Some(Errno::IO.raw_os_error());
        self.kind() == ErrorKind::DataLoss
            || matches!(self, TimelineError::Io { source, .. } if has_failed(source))
    }

    /// Returns a function for `map_err`: an I/O error with operation and path, or a full disk.
    pub(crate) fn io(
        what: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(io::Error) -> TimelineError {
        let path = path.into();
        move |source| {
            if is_full(&source) {
                TimelineError::DiskFull { file: path }
            } else {
                TimelineError::Io { what, path, source }
            }
        }
    }
}

/// Returns a function for `map_err`: the fault of the file at `path`, or an I/O error.
pub(crate) fn unread(
    what: &'static str,
    path: impl Into<PathBuf>,
) -> impl FnOnce(FileError) -> TimelineError {
    let path = path.into();
    move |error| match error {
        FileError::NotFound => TimelineError::io(what, path)(error.into()),
        FileError::Io(source) => TimelineError::io(what, path)(source),
        source => TimelineError::NotTheFile { path, source },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_without_room_or_folder_takes_a_retry() {
        let full = std::fs::File::options().write(true).open("/dev/full").expect("there");
        let written = io::Write::write_all(&mut &full, b"x").expect_err("no room");
        let quota = io::Error::from(io::ErrorKind::QuotaExceeded);
        let other = io::Error::from(io::ErrorKind::PermissionDenied);
        for (source, kind) in [
            (written, ErrorKind::Exhausted),
            (quota, ErrorKind::Exhausted),
            (io::ErrorKind::NotFound.into(), ErrorKind::Unavailable),
            (other, ErrorKind::Internal),
        ] {
            let text = source.to_string();
            let error = TimelineError::io("write a blob", "b")(source);
            assert_eq!((error.kind(), error.is_lasting()), (kind, false), "{text}");
        }
        assert!(TimelineError::io("read a column", "c")(Errno::IO.into()).is_lasting());
    }
}
