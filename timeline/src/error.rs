//! Errors of the log, with the place of the fault.

use std::{io, path::PathBuf};

use media::{ErrorKind, Seq};

use crate::{held::FileError, journal::is_full, remote::RemoteError};

/// An error of the timeline; messages name the file and the offset of damage.
#[derive(Debug, thiserror::Error)]
pub enum TimelineError {
    /// A stored byte is not what was written.
    #[error("damaged log: {what} at offset {offset} of {}", file.display())]
    Damaged {
        /// The damaged file.
        file: PathBuf,
        /// Offset in it of the damage.
        offset: u64,
        /// Damage that was found there.
        what: &'static str,
    },
    /// The log was written by a version that this one does not know.
    #[error("format {version} of {} is unknown: a newer Sightline wrote it, or it is damaged", file.display())]
    UnknownFormat {
        /// The file.
        file: PathBuf,
        /// The version it names.
        version: u32,
    },
    /// Another process has the log open for writing.
    #[error("another process has this log open: {}", dir.display())]
    Locked {
        /// The directory of the log.
        dir: PathBuf,
    },
    /// An earlier write or sync failed in a way that leaves the disk's state unknown.
    #[error("the log is read-only since a write to disk failed: {reason}")]
    Poisoned {
        /// The first failure.
        reason: String,
    },
    /// The log is closed, or was opened for reading only.
    #[error("the log is not open for writing")]
    Closed,
    /// The queue of the writer is full.
    #[error("the log's queue is full at its limit of {limit} {unit}")]
    QueueFull {
        /// The limit that was reached.
        limit: usize,
        /// Unit of the limit.
        unit: &'static str,
    },
    /// An event or a batch is larger than the log takes.
    #[error("{what} of {size} exceeds the limit of {limit}")]
    TooLarge {
        /// Item that is too large, and the unit of its size.
        what: &'static str,
        /// Its size.
        size: usize,
        /// The limit.
        limit: usize,
    },
    /// The disk is full; nothing of the batch, the blob or the column was kept.
    #[error("no space left on the disk: {}", file.display())]
    DiskFull {
        /// The file that could not grow.
        file: PathBuf,
    },
    /// The payload of an event does not have the fields of its kind.
    #[error("event {seq} is not a valid {kind}: field {field}")]
    Payload {
        /// The event.
        seq: Seq,
        /// Its kind.
        kind: &'static str,
        /// The field that is missing or has another type.
        field: &'static str,
    },
    /// A file is not what was written.
    #[error("damaged file: {}: {source}", path.display())]
    NotTheFile {
        /// Path of it.
        path: PathBuf,
        /// Fault that was found there.
        source: FileError,
    },
    /// Files are only in an object store that is not the configured one.
    #[error(
        "{files} files of {} are only in the object store {place}: configure that one, or fetch them from there \
         and remove the file object-store in that directory",
        dir.display()
    )]
    Elsewhere {
        /// Directory of the files.
        dir: PathBuf,
        /// Name of the store that has them.
        place: String,
        /// Number of them.
        files: usize,
    },
    /// A file is only in the object store, which only the server reads.
    #[error("only the object store has this file, and the server fetches it: {}", path.display())]
    Away {
        /// Path that it would have here.
        path: PathBuf,
    },
    /// The object store does not have what it took.
    #[error("the object store {what}: {}", file.display())]
    Lost {
        /// Path that the file would have here.
        file: PathBuf,
        /// Fault of the store.
        what: &'static str,
    },
    /// The object store does not do what it is asked.
    #[error(transparent)]
    Remote(#[from] RemoteError),
    /// The operating system refused.
    #[error("cannot {what}: {source}: {}", path.display())]
    Io {
        /// Operation that failed.
        what: &'static str,
        /// On which file or directory.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
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
            TimelineError::QueueFull { .. } | TimelineError::DiskFull { .. } => {
                ErrorKind::Exhausted
            }
            TimelineError::TooLarge { .. } => ErrorKind::InvalidInput,
            TimelineError::Io { .. } => ErrorKind::Internal,
        }
    }

    /// For `map_err`: an I/O error with what was tried and where, or that the disk is full.
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

/// For `map_err`: what is wrong with the file at `path`, or what the system refused.
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
    fn a_disk_without_room_is_exhausted_whatever_was_written() {
        let full = std::fs::File::options().write(true).open("/dev/full").expect("there");
        let written = io::Write::write_all(&mut &full, b"x").expect_err("no room");
        let quota = io::Error::from(io::ErrorKind::QuotaExceeded);
        let other = io::Error::from(io::ErrorKind::PermissionDenied);
        for (source, kind) in [
            (written, ErrorKind::Exhausted),
            (quota, ErrorKind::Exhausted),
            (other, ErrorKind::Internal),
        ] {
            let text = source.to_string();
            assert_eq!(TimelineError::io("write a blob", "b")(source).kind(), kind, "{text}");
        }
    }
}
