//! Errors that end a command, and their exit codes.
//!
//! Exit codes are part of the interface: scripts rely on them and `--help` lists them.

use std::{io, path::PathBuf};

use decode::DecodeError;
use media::ErrorKind;
use worker::{JobFault, WorkerError};

/// Exit code of a failed command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// The operation failed.
    Failed = 1,
    /// The arguments are invalid (clap's own code).
    Usage = 2,
    /// The file, run or log does not exist.
    NotFound = 3,
    /// The server does not answer.
    Unreachable = 4,
    /// The media or the request was understood and refused.
    Refused = 5,
    /// The API key is missing, wrong or not allowed to do this.
    Denied = 6,
    /// Stored data is damaged, or is not what its source gives.
    Damaged = 7,
    /// Ended by Ctrl-C.
    Interrupted = 130,
}

/// Exit codes, for the end of `--help`.
pub const EXIT_CODES: &str = "\
Exit codes:
  0    done (also when the reader of standard output went away)
  1    the operation failed
  2    wrong arguments
  3    no such file, run or log
  4    the server does not answer
  5    the media or the request was refused; the message says why
  6    the API key is missing, wrong or not allowed to do this
  7    stored data is damaged, or is not what its source gives
  130  ended by Ctrl-C

Data goes to standard output, progress and errors to standard error.";

/// Reason that a command ended early.
#[derive(Debug, thiserror::Error)]
pub enum CliError {
    #[error("cannot read {}: {source}", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("cannot write {}: {source}", path.display())]
    Write { path: PathBuf, source: io::Error },
    #[error("cannot write to standard output: {0}")]
    Stdout(io::Error),
    /// The media worker gave no result.
    #[error("{}: {source}{}", path.display(), supported(source))]
    Analysis { path: PathBuf, source: WorkerError },
    #[error("cannot start the media worker: {0}")]
    Worker(#[from] WorkerError),
    #[error("cannot start the media worker: {0}")]
    Select(#[from] worker::BackendSelectError),
    /// A run log cannot be read.
    #[error("{}: {source}", dir.display())]
    Log { dir: PathBuf, source: timeline::TimelineError },
    #[error(
        "no answer from {server}: {reason}; start sightline-server there, or name another with --server or SIGHTLINE_SERVER"
    )]
    Unreachable { server: String, reason: String },
    #[error("{0}")]
    Api(ApiError),
    #[error("unexpected answer from {server}: {reason}")]
    Reply { server: String, reason: String },
    #[error("cannot start the embedding model: {0}")]
    Model(#[from] embed::OnnxError),
    /// An argument parses but cannot be used.
    #[error("{0}")]
    Usage(String),
    /// Another reason, with its exit code.
    #[error("{1}")]
    Exit(Exit, String),
    #[error("interrupted")]
    Interrupted,
    /// A check has completed and found a fault.
    #[error("{0}")]
    Check(String),
}

/// Error response of the API: its envelope, or the bare status without one.
#[derive(Debug, PartialEq, Eq)]
pub struct ApiError {
    pub status: u16,
    pub message: String,
    /// `(field, message)` of each rejected field.
    pub details: Vec<(String, String)>,
    /// Id of the request, as in the server's log.
    pub request_id: Option<String>,
}

impl std::fmt::Display for ApiError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} (HTTP {}", self.message, self.status)?;
        if let Some(id) = &self.request_id {
            write!(f, ", {id}")?;
        }
        f.write_str(")")?;
        let named = self.details.iter().map(|(field, message)| format!("{field}: {message}"));
        // The message of the error repeats that of the first rejected field.
        for detail in named.filter(|detail| *detail != self.message) {
            write!(f, "\n  {detail}")?;
        }
        Ok(())
    }
}

impl CliError {
    pub fn exit(&self) -> Exit {
        match self {
            CliError::Read { source, .. } if source.kind() == io::ErrorKind::NotFound => {
                Exit::NotFound
            }
            CliError::Exit(exit, _) => *exit,
            CliError::Read { .. }
            | CliError::Write { .. }
            | CliError::Stdout(_)
            | CliError::Reply { .. }
            | CliError::Check(_) => Exit::Failed,
            CliError::Analysis { source, .. } | CliError::Worker(source) => of_kind(source.kind()),
            CliError::Select(error) => of_kind(error.kind()),
            CliError::Log { source, .. } => of_kind(source.kind()),
            CliError::Model(error) => of_kind(error.kind()),
            CliError::Unreachable { .. } => Exit::Unreachable,
            CliError::Api(error) => match error.status {
                401 | 403 => Exit::Denied,
                404 => Exit::NotFound,
                400 | 409 | 413 | 415 | 422 => Exit::Refused,
                _ => Exit::Failed,
            },
            CliError::Usage(_) => Exit::Usage,
            CliError::Interrupted => Exit::Interrupted,
        }
    }

    /// Returns true if the reader of standard output has gone (`| head`), which is no failure.
    pub fn is_closed_stdout(&self) -> bool {
        matches!(self, CliError::Stdout(error) if error.kind() == io::ErrorKind::BrokenPipe)
    }
}

/// Returns what is read instead of an unsupported container or codec, to follow the message.
fn supported(error: &WorkerError) -> &'static str {
    match error {
        WorkerError::Fault(JobFault::Decode(DecodeError::UnsupportedContainer(_))) => {
            "; MP4, MOV, Matroska, WebM, MPEG-TS, AVI, FLV and raw video streams are read"
        }
        WorkerError::Fault(JobFault::Decode(DecodeError::UnsupportedCodec(_))) => {
            "; H.264, H.265, VP8, VP9, AV1, MPEG-4 part 2 and MJPEG are decoded"
        }
        _ => "",
    }
}

/// Returns the exit code of a failure other than a server that does not answer.
pub fn of_kind(kind: ErrorKind) -> Exit {
    match kind {
        ErrorKind::InvalidInput | ErrorKind::Unsupported | ErrorKind::Conflict => Exit::Refused,
        ErrorKind::Unauthenticated | ErrorKind::Forbidden => Exit::Denied,
        ErrorKind::NotFound => Exit::NotFound,
        ErrorKind::Cancelled => Exit::Interrupted,
        ErrorKind::DataLoss => Exit::Damaged,
        ErrorKind::Exhausted | ErrorKind::Internal | ErrorKind::Unavailable => Exit::Failed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn api(status: u16) -> CliError {
        CliError::Api(ApiError {
            status,
            message: "no".to_owned(),
            details: Vec::new(),
            request_id: None,
        })
    }

    #[test]
    fn each_answer_of_the_server_has_its_exit_code() {
        let cases = [
            (400, Exit::Refused),
            (401, Exit::Denied),
            (403, Exit::Denied),
            (404, Exit::NotFound),
            (409, Exit::Refused),
            (422, Exit::Refused),
            (429, Exit::Failed),
            (500, Exit::Failed),
            (503, Exit::Failed),
        ];
        for (status, exit) in cases {
            assert_eq!(api(status).exit(), exit, "HTTP {status}");
        }
        let ended = CliError::Worker(WorkerError::Ended);
        assert_eq!(ended.exit(), Exit::Failed, "a worker is no server");
    }

    #[test]
    fn an_api_error_names_fields_and_request() {
        let error = ApiError {
            status: 422,
            message: "source_uri: not found".to_owned(),
            details: [("source_uri", "not found"), ("fixed_fps", "is required")]
                .map(|(field, message)| (field.to_owned(), message.to_owned()))
                .into(),
            request_id: Some("req-0011223344556677".to_owned()),
        };
        assert_eq!(
            error.to_string(),
            "source_uri: not found (HTTP 422, req-0011223344556677)\n  fixed_fps: is required"
        );
    }
}
