//! Connects a media worker to sources on other hosts: resources through a pipe, RTSP through a socket.
//!
//! Fetches everything with `transport::egress`; each connection is copied by one task with one buffer, and
//! all of them end with the [`RemoteConnections`]. Records why bytes ended early, which explains the
//! decoder's error.

mod copy;
mod line;

use std::{
    io,
    os::fd::OwnedFd,
    sync::{Arc, OnceLock},
    time::{Duration, Instant},
};

use bytes::Bytes;
use media::ErrorKind;
use parking_lot::Mutex;
use tokio::{
    net::{UnixStream, unix::pipe},
    runtime::Handle,
};
use tokio_util::sync::{CancellationToken, DropGuard};
use transport::egress::{
    Download, DownloadBody, DownloadBudget, EgressClient, EgressError, Fetcher, RequestUrl,
    TimeoutPhase,
};
use worker::{
    JobInput, RemoteMedia, Resource, ResourceError, ResourceOpener, RtspMedia, WorkerLimits,
};

use crate::{
    base::metrics::RemoteFailure,
    runs::{
        job_queue::Lender,
        source::remote::{RemoteConfig, RemoteSource},
    },
};
use line::Line;
pub use line::{GRACE, RATE_MIN, WAIT_MAX};

/// Maximum requests of one job, including redirects.
pub const FETCHES_MAX: u64 = 4096;
/// Time limit of a source without an end: ten years.
const FOR_EVER: Duration = Duration::from_secs(10 * 365 * 24 * 3600);
/// Longest time to the first frame of a file or playlist that sends bytes.
const FIRST_FRAME: Duration = Duration::from_secs(30);

#[derive(Clone, Debug, thiserror::Error)]
pub enum RemoteError {
    #[error(transparent)]
    Egress(#[from] EgressError),
    #[error("scheme not enabled: HLS playlists need SERVICE_ALLOW_REMOTE_HLS=true on this server")]
    Playlist,
    #[error("timeout: the source sent too little to decode a frame within {} s", .0.as_secs())]
    Slow(Duration),
    #[error(
        "timeout: the source sent less than {RATE_MIN} bytes a second: ingest a copy of it that is \
         uploaded, or beneath an ingest root"
    )]
    Dripping,
    #[error("timeout: the source was waited for during {} s in all", WAIT_MAX.as_secs())]
    Late,
    #[error("no pipe to the media worker: {0}")]
    Pipe(Arc<io::Error>),
    #[error("the work was cancelled")]
    Cancelled,
}

impl RemoteError {
    pub fn kind(&self) -> ErrorKind {
        match self {
            RemoteError::Pipe(_) => ErrorKind::Unavailable,
            RemoteError::Cancelled => ErrorKind::Cancelled,
            _ => ErrorKind::InvalidInput,
        }
    }

    /// Returns true if the source ended early or fell silent: the frames decoded before are kept.
    pub fn is_cut(&self) -> bool {
        use EgressError::{Cut, Timeout};
        match self {
            RemoteError::Dripping | RemoteError::Late => true,
            RemoteError::Egress(error) => {
                matches!(error, Cut { .. } | Timeout { wait: TimeoutPhase::Idle, .. })
            }
            _ => false,
        }
    }
}

impl From<&RemoteError> for RemoteFailure {
    fn from(error: &RemoteError) -> RemoteFailure {
        use EgressError as E;
        match error {
            RemoteError::Playlist => RemoteFailure::Refused,
            RemoteError::Slow(_) | RemoteError::Dripping | RemoteError::Late => {
                RemoteFailure::Timeout
            }
            RemoteError::Pipe(_) | RemoteError::Cancelled => RemoteFailure::Internal,
            RemoteError::Egress(error) => match error {
                E::Malformed(_) | E::Scheme(_) | E::NotEnabled { .. } => RemoteFailure::Refused,
                E::Dns { .. } => RemoteFailure::Dns,
                E::Blocked { .. } => RemoteFailure::Blocked,
                E::Connect { .. } | E::Cut { .. } => RemoteFailure::Tcp,
                E::Tls { .. } => RemoteFailure::Tls,
                E::Status { .. }
                | E::Unanswered { .. }
                | E::Answer { .. }
                | E::Redirects { .. }
                | E::Changed { .. }
                | E::NoRanges { .. } => RemoteFailure::Http,
                E::Auth { .. } => RemoteFailure::Auth,
                E::Timeout { .. } => RemoteFailure::Timeout,
                E::TooMuch { .. } => RemoteFailure::TooLarge,
            },
        }
    }
}

fn pipe_failed(error: io::Error) -> RemoteError {
    RemoteError::Pipe(Arc::new(error))
}

impl RemoteSource {
    /// Resource limits of the worker: a slow file must not hold its permit as long as a camera or
    /// a growing playlist, which may send pictures rarely.
    pub fn limits(&self, is_endless: bool) -> WorkerLimits {
        let limits = WorkerLimits::remote();
        match self {
            RemoteSource::Url(_) if is_endless => WorkerLimits::camera(),
            RemoteSource::Url(_) => WorkerLimits {
                first_frame: FIRST_FRAME,
                niceness: WorkerLimits::file().niceness,
                ..limits
            },
            RemoteSource::Rtsp(_) => WorkerLimits::camera(),
        }
    }
}

#[derive(Clone)]
pub struct RemoteSources {
    pub egress: EgressClient,
    pub config: RemoteConfig,
}

/// First error of a job's connections; those that follow from it are dropped.
type Cause = Arc<OnceLock<RemoteError>>;

/// Arrival of the last media of a job, playlists excluded.
type MediaHeard = Arc<Mutex<Option<Instant>>>;

/// Context of a job that reads a remote source.
pub struct Errand<'a> {
    /// True if the source is a playlist that is known to grow.
    pub is_endless: bool,
    /// Time limit of all requests together.
    pub wall: Duration,
    /// Lends the job's permit to others while it waits.
    pub lender: Lender,
    pub cancel: &'a CancellationToken,
    pub runtime: &'a Handle,
}

/// Connections of a job, closed when dropped.
pub struct RemoteConnections {
    cause: Cause,
    budget: Arc<DownloadBudget>,
    heard: MediaHeard,
    _end: DropGuard,
}

impl RemoteConnections {
    /// Returns the error that ended the bytes, if any.
    pub fn cause(&self) -> Option<RemoteError> {
        self.cause.get().cloned()
    }

    pub fn bytes(&self) -> u64 {
        self.budget.used()
    }

    /// Returns when the last media arrived; `None` if none did.
    pub fn heard_at(&self) -> Option<Instant> {
        *self.heard.lock()
    }
}

impl RemoteSources {
    /// Prepares `source` for a worker; blocks, so it must not run on a runtime thread.
    pub fn open(
        &self,
        source: &RemoteSource,
        errand: Errand<'_>,
    ) -> Result<(JobInput, RemoteConnections), RemoteError> {
        let Errand { is_endless, wall, lender, cancel, runtime } = errand;
        let end = cancel.child_token();
        let cause = Cause::default();
        let budget = match source {
            RemoteSource::Url(_) if !is_endless => {
                DownloadBudget::new(self.config.bytes_max, FETCHES_MAX, wall)
            }
            // A camera or a growing playlist is read until its job is cancelled.
            RemoteSource::Url(_) | RemoteSource::Rtsp(_) => {
                DownloadBudget::new(u64::MAX, u64::MAX, FOR_EVER)
            }
        };
        let (counted, _end) = (Arc::clone(&budget), end.clone().drop_guard());
        let heard = MediaHeard::default();
        let feed =
            RemoteConnections { cause: cause.clone(), budget: counted, heard: heard.clone(), _end };
        let input = match source {
            RemoteSource::Url(target) => {
                let playlists = self.config.hls;
                let fetches = Fetches {
                    fetcher: Fetcher::new(self.egress.clone(), budget),
                    playlists,
                    first: Some(target.clone()),
                    is_playlist: false,
                    is_endless,
                    line: if is_endless { Line::endless(lender) } else { Line::new(lender) },
                    runtime: runtime.clone(),
                    end,
                    cause: cause.clone(),
                    heard,
                };
                let (url, resources) = (target.url().to_string(), Box::new(fetches));
                JobInput::Remote(RemoteMedia { url, resources, playlists, is_endless })
            }
            RemoteSource::Rtsp(target) => {
                let dialled = self.dial(target, budget, &end, &cause, lender.clone(), heard);
                let dialled = lender.lend_while(end.run_until_cancelled(dialled));
                let dialled = runtime.block_on(dialled);
                let socket = dialled.ok_or(RemoteError::Cancelled)??;
                let url = target.url().to_string();
                let named = target.credentials().cloned();
                let credentials = named.map(|named| (named.user, named.password));
                JobInput::Rtsp(RtspMedia { socket, url, credentials })
            }
        };
        Ok((input, feed))
    }

    async fn dial(
        &self,
        target: &RequestUrl,
        budget: Arc<DownloadBudget>,
        end: &CancellationToken,
        cause: &Cause,
        lender: Lender,
        heard: MediaHeard,
    ) -> Result<OwnedFd, RemoteError> {
        let stream = self.egress.dial(target).await?;
        let (ours, theirs) = UnixStream::pair().map_err(pipe_failed)?;
        let theirs = theirs.into_std().map_err(pipe_failed)?;
        theirs.set_nonblocking(false).map_err(pipe_failed)?;
        let host = target.host().to_owned();
        let (end, cause) = (end.clone(), cause.clone());
        tokio::spawn(async move {
            let relay = copy::relay(stream, ours, &host, &budget, &lender, &heard);
            if let Some(Err(error)) = end.run_until_cancelled(relay).await {
                cause.set(error.into()).ok();
            }
        });
        Ok(theirs.into())
    }
}

struct Fetches {
    fetcher: Fetcher,
    playlists: bool,
    /// First target, with its credentials, until it is fetched.
    first: Option<RequestUrl>,
    /// True of a playlist and its segments, which arrive only as fast as they are produced.
    is_playlist: bool,
    /// True if the worker sees a failure as an end, so that it first delivers what it has.
    is_endless: bool,
    line: Line,
    runtime: Handle,
    end: CancellationToken,
    cause: Cause,
    heard: MediaHeard,
}

impl ResourceOpener for Fetches {
    fn open(&mut self, url: &str, from: u64) -> Result<Resource, ResourceError> {
        let (runtime, end) = (self.runtime.clone(), self.end.clone());
        // A missing segment is an end, too: media before it is kept.
        let is_end = self.is_endless || self.is_playlist;
        let opened = runtime.block_on(end.run_until_cancelled(self.fetch(url, from)));
        opened.unwrap_or(Err(RemoteError::Cancelled)).or_else(|error| {
            let refusal = ResourceError(error.to_string());
            self.cause.set(error).ok();
            match cut(url) {
                Ok(nothing) if is_end => Ok(nothing),
                _ => Err(refusal),
            }
        })
    }
}

impl Fetches {
    async fn fetch(&mut self, url: &str, from: u64) -> Result<Resource, RemoteError> {
        let target = match self.first.take() {
            Some(first) => first,
            None => RequestUrl::parse(url)?,
        };
        let got = self.line.wait(self.fetcher.get(&target, from)).await?;
        let Download { url, size, seekable, mut body } = got;
        let mut heard = Some(self.heard.clone());
        if from == 0 {
            let head = self.line.wait(head(&mut body)).await?;
            self.line.took(head.len());
            if decode::is_playlist(&head) {
                self.is_playlist = true;
                heard = None;
                if !self.playlists {
                    return Err(RemoteError::Playlist);
                }
                // A live playlist differs on each fetch: its validators are dropped.
                self.fetcher.forget(target.url());
                self.fetcher.forget(&url);
            }
            body.unread(head);
        }
        let (reader, writer) = io::pipe().map_err(pipe_failed)?;
        let mut writer = pipe::Sender::from_owned_fd(writer.into()).map_err(pipe_failed)?;
        let (end, cause) = (self.end.clone(), self.cause.clone());
        let (line, is_playlist) = (self.line.clone(), self.is_playlist);
        tokio::spawn(async move {
            let pouring = copy::copy_to_pipe(&mut body, &mut writer, &line, heard.as_ref());
            let copied = end.run_until_cancelled(pouring).await;
            if is_playlist {
                // The worker waits until the next segment is produced.
                line.lend();
            }
            if let Some(Err(error)) = copied {
                // Set before the pipe closes, so that the error is known when the worker reports the end.
                cause.set(error).ok();
            }
            drop(writer);
        });
        Ok(Resource { bytes: reader.into(), url: url.into(), size, seekable })
    }
}

/// Resource without bytes, whose size says that one is missing.
fn cut(url: &str) -> io::Result<Resource> {
    let (reader, _) = io::pipe()?;
    Ok(Resource { bytes: reader.into(), url: url.to_owned(), size: Some(1), seekable: false })
}

/// Reads the first bytes of `body`, enough to recognise a playlist.
async fn head(body: &mut DownloadBody) -> Result<Bytes, EgressError> {
    let mut head = body.next().await?.unwrap_or_default();
    while head.len() < decode::PLAYLIST_HEAD_BYTES {
        let Some(more) = body.next().await? else { break };
        head = [head, more].concat().into();
    }
    Ok(head)
}

#[cfg(test)]
mod tests;
