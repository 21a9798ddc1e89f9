//! Input of a job: an opened file, or a source that the server fetches for it.
//!
//! A worker has no network. It asks for the bytes of a URL, and whoever started the job decides,
//! opens and times them; only descriptors cross to the worker.

use std::{fmt, fs::File, os::fd::OwnedFd};

/// Source of a job's media.
#[derive(Debug)]
pub enum JobInput {
    /// An opened file, which must be a regular one.
    File(File),
    /// A URL whose bytes the server fetches.
    Remote(RemoteMedia),
    /// An RTSP server that the server has connected to.
    Rtsp(RtspMedia),
}

impl From<File> for JobInput {
    fn from(file: File) -> JobInput {
        JobInput::File(file)
    }
}

/// Media behind a URL.
pub struct RemoteMedia {
    /// URL of its start.
    pub url: String,
    /// Opens that URL, and those that it leads to.
    pub resources: Box<dyn ResourceOpener>,
    /// A playlist is followed; otherwise it is refused.
    pub playlists: bool,
    /// It is known to go on for as long as somebody wants it.
    pub is_endless: bool,
}

impl fmt::Debug for RemoteMedia {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Remote")
            .field("url", &self.url)
            .field("playlists", &self.playlists)
            .finish_non_exhaustive()
    }
}

/// Opens what a worker asks for.
///
/// What a worker asks for may be chosen by hostile media: every address is checked, and all work,
/// bytes, times and the number of calls are bounded here.
pub trait ResourceOpener: Send {
    /// Opens `url` from byte `from` on, whether or not its server can begin there; called on the
    /// supervisor's thread, which waits for it.
    fn open(&mut self, url: &str, from: u64) -> Result<Resource, ResourceError>;
}

/// Bytes on their way to a worker.
#[derive(Debug)]
pub struct Resource {
    /// The read end of a pipe; its end is the end of the bytes, whatever the reason.
    pub bytes: OwnedFd,
    /// URL that the bytes came from, after redirects.
    pub url: String,
    /// Bytes of the whole resource, where they are known.
    pub size: Option<u64>,
    /// Its server can begin at any byte.
    pub seekable: bool,
}

/// Reason that a resource was not opened: one line for the person who asked for the job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourceError(pub String);

/// Live media behind a connection that the server has made.
pub struct RtspMedia {
    /// Connected, with nothing sent yet; whatever encrypts it is outside.
    pub socket: OwnedFd,
    /// URL to fetch, without credentials.
    pub url: String,
    /// User and password for a server that asks for them.
    pub credentials: Option<(String, String)>,
}

impl fmt::Debug for RtspMedia {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rtsp").field("url", &self.url).finish_non_exhaustive()
    }
}
