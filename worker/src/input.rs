//! Input of a job: an open file, or a source whose bytes the server fetches.
//!
//! A worker has no network. It asks for the bytes of a URL; the job's owner checks, opens and times the
//! request, and passes a descriptor to the worker.

use std::{fs::File, os::fd::OwnedFd};

/// Source of a job's media.
pub enum JobInput {
    /// An open file, which must be a regular one.
    File(File),
    /// A URL whose bytes the server fetches.
    Remote(RemoteMedia),
    /// An RTSP source to which the server has connected.
    Rtsp(RtspMedia),
}

impl From<File> for JobInput {
    fn from(file: File) -> JobInput {
        JobInput::File(file)
    }
}

/// Media behind a URL.
pub struct RemoteMedia {
    /// URL at which the media starts.
    pub url: String,
    /// Opens this URL, and those that the media refers to.
    pub resources: Box<dyn ResourceOpener>,
    /// True to follow a playlist, false to refuse one.
    pub playlists: bool,
    /// True if the source goes on until the caller ends the job.
    pub is_endless: bool,
}

/// Opens resources for a worker.
///
/// Hostile media may choose the URLs: implementations must check every address, and bound the work, the
/// bytes, the times and the number of calls.
pub trait ResourceOpener: Send {
    /// Opens `url` from byte `from` on, even if its server can begin only at the start. Called on the
    /// supervisor's thread, which blocks meanwhile.
    fn open(&mut self, url: &str, from: u64) -> Result<Resource, ResourceError>;
}

/// Open resource whose bytes are passed to a worker.
#[derive(Debug)]
pub struct Resource<B = OwnedFd> {
    /// The read end of a pipe; closes at the end of the bytes, for whatever reason.
    pub bytes: B,
    /// URL that the bytes come from, after redirects.
    pub url: String,
    /// Bytes of the whole resource, if known.
    pub size: Option<u64>,
    /// True if the resource's server can begin at any byte.
    pub seekable: bool,
}

/// Reason that a resource was not opened: one line for the user who submitted the job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourceError(pub String);

/// Live media over a connection that the server has opened.
pub struct RtspMedia {
    /// Connected socket with nothing sent yet; TLS, if any, is terminated outside the worker.
    pub socket: OwnedFd,
    /// URL to request, without credentials.
    pub url: String,
    /// User and password, for a server that asks for them.
    pub credentials: Option<(String, String)>,
}
