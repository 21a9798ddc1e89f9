//! Client of an embedding sidecar over one kept connection; requests follow each other without waiting
//! for answers, which come in the same order.
//!
//! Every request ends within the deadline: with an embedding, or with an error that the caller answers by
//! describing the picture. A connection on which one answer is late or wrong is given up, as what
//! follows it would be later still; then nothing is tried until the back-off has passed.

mod connection;

#[cfg(test)]
mod tests;

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use media::ErrorKind;
use tokio::{
    sync::{mpsc, oneshot},
    task::JoinHandle,
    time::Instant,
};

use crate::{
    backoff::Backoff,
    embedding::Embedding,
    protocol::{JPEG_BYTES_MAX, SidecarProtocolError, SidecarStatus},
};

/// Most requests that wait for their replies; as many more may wait to be sent.
const IN_FLIGHT_MAX: usize = 64;

/// Default time limit of a request.
pub const DEADLINE: Duration = Duration::from_millis(2000);

/// Reason that a sidecar gave no embedding.
#[derive(Clone, Debug, thiserror::Error)]
pub enum SidecarError {
    /// Empty or larger than the protocol's limit.
    #[error("a picture of {0} bytes, not 1 to {JPEG_BYTES_MAX}")]
    Picture(usize),
    /// The queue of requests is full.
    #[error("{IN_FLIGHT_MAX} pictures wait for the sidecar already")]
    Full,
    /// It failed a moment ago.
    #[error("the sidecar is in back-off after a failure")]
    BackingOff,
    /// No connection, or it broke.
    #[error("the sidecar cannot be reached: {0}")]
    Io(Arc<io::Error>),
    /// It closed the connection.
    #[error("the sidecar closed the connection")]
    Closed,
    /// No answer in time.
    #[error("no answer of the sidecar within {} ms", .0.as_millis())]
    Late(Duration),
    /// Its reply breaks the protocol.
    #[error("the sidecar's answer: {0}")]
    Protocol(#[from] SidecarProtocolError),
    /// It replied to no request.
    #[error("the sidecar sent an unexpected response")]
    UnexpectedReply,
    /// It answered that it has none.
    #[error("the sidecar has no embedding: {0}")]
    Refused(SidecarStatus),
}

impl SidecarError {
    /// Returns the kind of the failure; after any of them the caller describes the picture anew.
    pub fn kind(&self) -> ErrorKind {
        match self {
            SidecarError::Picture(_) => ErrorKind::InvalidInput,
            SidecarError::Full => ErrorKind::Exhausted,
            _ => ErrorKind::Unavailable,
        }
    }

    /// The word for it in metrics.
    pub fn name(&self) -> &'static str {
        match self {
            SidecarError::Picture(_) => "picture",
            SidecarError::Full => "full",
            SidecarError::BackingOff => "backing_off",
            SidecarError::Io(_) => "io",
            SidecarError::Closed => "closed",
            SidecarError::Late(_) => "late",
            SidecarError::Protocol(_) => "protocol",
            SidecarError::UnexpectedReply => "unasked",
            SidecarError::Refused(_) => "refused",
        }
    }
}

/// Counts of the requests so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SidecarCounts {
    /// Asks that were answered with an embedding.
    pub embedded: u64,
    /// All others.
    pub failed: u64,
    /// Connections that were opened.
    pub connections: u64,
}

struct EmbedRequest {
    jpeg: Bytes,
    late: Instant,
    reply: oneshot::Sender<Result<Embedding, SidecarError>>,
}

/// Asks one sidecar. Dropping it closes the connection.
#[derive(Debug)]
pub struct SidecarClient {
    asks: mpsc::Sender<EmbedRequest>,
    deadline: Duration,
    embedded: AtomicU64,
    failed: AtomicU64,
    connections: Arc<AtomicU64>,
    task: JoinHandle<()>,
}

impl SidecarClient {
    /// A client of the sidecar at `address` (`host:port`), each request within `deadline`. Connects with
    /// the first one. Takes a tokio runtime to run in.
    pub fn new(address: impl Into<String>, deadline: Duration) -> SidecarClient {
        SidecarClient::resting(address, deadline, Backoff::default())
    }

    fn resting(address: impl Into<String>, deadline: Duration, backoff: Backoff) -> SidecarClient {
        let (asks, queue) = mpsc::channel(IN_FLIGHT_MAX);
        let connections = Arc::new(AtomicU64::new(0));
        let task =
            connection::serve(address.into(), deadline, queue, Arc::clone(&connections), backoff);
        SidecarClient {
            asks,
            deadline,
            embedded: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            connections,
            task: tokio::spawn(task),
        }
    }

    /// The embedding of the picture in `jpeg`.
    pub async fn embed(&self, jpeg: Bytes) -> Result<Embedding, SidecarError> {
        let result = self.ask(jpeg).await;
        let count = if result.is_ok() { &self.embedded } else { &self.failed };
        count.fetch_add(1, Ordering::Relaxed);
        result
    }

    /// Returns the counts of the requests so far.
    pub fn counts(&self) -> SidecarCounts {
        SidecarCounts {
            embedded: self.embedded.load(Ordering::Relaxed),
            failed: self.failed.load(Ordering::Relaxed),
            connections: self.connections.load(Ordering::Relaxed),
        }
    }

    async fn ask(&self, jpeg: Bytes) -> Result<Embedding, SidecarError> {
        if !(1..=JPEG_BYTES_MAX).contains(&jpeg.len()) {
            return Err(SidecarError::Picture(jpeg.len()));
        }
        let late = Instant::now() + self.deadline;
        let (reply, answer) = oneshot::channel();
        self.asks.try_send(EmbedRequest { jpeg, late, reply }).map_err(|_| SidecarError::Full)?;
        match tokio::time::timeout_at(late, answer).await {
            Ok(Ok(result)) => result,
            Ok(Err(_)) => Err(SidecarError::Closed),
            Err(_) => Err(SidecarError::Late(self.deadline)),
        }
    }
}

impl Drop for SidecarClient {
    fn drop(&mut self) {
        self.task.abort();
    }
}
