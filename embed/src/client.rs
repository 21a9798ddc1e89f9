//! Client of an embedding sidecar over one persistent connection, with pipelined requests: the replies come
//! in the order of the requests.
//!
//! Every request ends within the deadline: with an embedding, or with an error after which the caller has the
//! picture described. A late or wrong reply closes the connection, as all replies behind it would be later
//! still; no connection is opened before the back-off has passed.

mod connection;

#[cfg(test)]
mod tests;

use std::{io, sync::Arc, time::Duration};

use bytes::Bytes;
use tokio::{
    sync::{mpsc, oneshot},
    task::JoinHandle,
    time::Instant,
};

use crate::{
    backoff::Backoff,
    embedding::Embedding,
    protocol::{JPEG_BYTES_MAX, SidecarStatus, request_header},
};

/// Most requests that wait for their replies; as many more may wait to be sent.
const IN_FLIGHT_MAX: usize = 64;

/// Default time limit of a request.
pub const DEADLINE: Duration = Duration::from_millis(2000);

/// Reason that a sidecar gave no embedding.
#[derive(Clone, Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum SidecarError {
    /// The picture is empty or larger than the protocol's limit.
    #[error("a picture of {0} bytes, not 1 to {JPEG_BYTES_MAX}")]
    Picture(usize),
    #[error("{IN_FLIGHT_MAX} pictures wait for the sidecar already")]
    Full,
    /// The sidecar failed a moment ago.
    #[error("the sidecar is in back-off after a failure")]
    BackingOff,
    #[error("the sidecar cannot be reached: {0}")]
    Io(Arc<io::Error>),
    #[error("the sidecar closed the connection")]
    Closed,
    #[error("no answer of the sidecar within {} ms", .0.as_millis())]
    Late(Duration),
    #[error("the sidecar's answer: {0}")]
    Protocol(String),
    /// The sidecar sent a reply although no request waited for one.
    #[error("the sidecar sent an unexpected response")]
    UnexpectedReply,
    #[error("the sidecar has no embedding: {0}")]
    Refused(SidecarStatus),
}

struct EmbedRequest {
    /// Header and picture.
    message: [Bytes; 2],
    pending: PendingRequest,
}

/// Request without its picture, which has been sent or will be.
struct PendingRequest {
    late: Instant,
    reply: oneshot::Sender<Result<Embedding, SidecarError>>,
}

impl PendingRequest {
    fn tell(self, result: Result<Embedding, SidecarError>) {
        // The caller may have given up; its reply had to be read from the connection all the same.
        self.reply.send(result).ok();
    }
}

/// Client of one sidecar. Dropping it closes the connection.
#[derive(Debug)]
pub struct SidecarClient {
    asks: mpsc::Sender<EmbedRequest>,
    deadline: Duration,
    task: JoinHandle<()>,
}

impl SidecarClient {
    /// Creates a client of the sidecar at `address` (`host:port`); each request ends within `deadline`. The
    /// first request opens the connection. Must be called in a tokio runtime.
    pub fn new(address: impl Into<String>, deadline: Duration) -> SidecarClient {
        SidecarClient::resting(address, deadline, Backoff::default())
    }

    fn resting(address: impl Into<String>, deadline: Duration, backoff: Backoff) -> SidecarClient {
        let (asks, queue) = mpsc::channel(IN_FLIGHT_MAX);
        let task = tokio::spawn(connection::serve(address.into(), deadline, queue, backoff));
        SidecarClient { asks, deadline, task }
    }

    /// Returns the embedding of the picture in `jpeg`.
    pub async fn embed(&self, jpeg: Bytes) -> Result<Embedding, SidecarError> {
        let header = request_header(jpeg.len()).ok_or(SidecarError::Picture(jpeg.len()))?;
        let message = [Bytes::copy_from_slice(&header), jpeg];
        let late = Instant::now() + self.deadline;
        let (reply, answer) = oneshot::channel();
        let pending = PendingRequest { late, reply };
        self.asks.try_send(EmbedRequest { message, pending }).map_err(|refused| match refused {
            mpsc::error::TrySendError::Full(_) => SidecarError::Full,
            mpsc::error::TrySendError::Closed(_) => SidecarError::Closed,
        })?;
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
