//! The single connection to a sidecar: opened for a request, closed at the first failure.
//!
//! Reads and writes concurrently, so that a sidecar which replies while pictures are still being sent cannot
//! deadlock with the client.

use std::{
    collections::VecDeque,
    io,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    sync::{mpsc, oneshot},
    time::{Instant, timeout_at},
};

use super::{EmbedRequest, IN_FLIGHT_MAX, SidecarError};
use crate::{
    backoff::Backoff,
    embedding::Embedding,
    protocol::{ReplyDecoder, SidecarReply, request_header},
};

/// Bytes read at once: eight embeddings of 512 dimensions.
const READ_BYTES: usize = 16 << 10;

/// Request whose picture has been or is being sent.
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

/// Serves requests until the client is dropped.
pub(super) async fn serve(
    address: String,
    deadline: Duration,
    mut asks: mpsc::Receiver<EmbedRequest>,
    connections: Arc<AtomicU64>,
    mut backoff: Backoff,
) {
    while let Some(first) = asks.recv().await {
        if first.reply.is_closed() {
            continue;
        }
        if backoff.holds(std::time::Instant::now()) {
            tell(first, SidecarError::BackingOff);
            continue;
        }
        let opened = timeout_at(first.late, TcpStream::connect(&address)).await;
        let stream = match opened {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => {
                backoff.failed(std::time::Instant::now());
                tell(first, SidecarError::Io(Arc::new(error)));
                continue;
            }
            Err(_) => {
                backoff.failed(std::time::Instant::now());
                tell(first, SidecarError::Late(deadline));
                continue;
            }
        };
        connections.fetch_add(1, Ordering::Relaxed);
        let mut connection = SidecarConnection::new(deadline, first);
        let Err(error) = connection.run(stream, &mut asks, &mut backoff).await else { return };
        if connection.waiting.is_empty() && matches!(error, SidecarError::Closed) {
            // No request waited: the sidecar may have restarted; the next request connects without back-off.
            continue;
        }
        tracing::warn!(%error, %address, "the embedding sidecar failed");
        backoff.failed(std::time::Instant::now());
        for waiting in connection.waiting {
            waiting.tell(Err(error.clone()));
        }
    }
}

fn tell(ask: EmbedRequest, error: SidecarError) {
    // The caller may have given up.
    ask.reply.send(Err(error)).ok();
}

/// Requests in flight on an open connection.
struct SidecarConnection {
    deadline: Duration,
    waiting: VecDeque<PendingRequest>,
    /// Buffers to send; the first may be sent in part.
    sending: VecDeque<Bytes>,
    answers: ReplyDecoder,
}

impl SidecarConnection {
    fn new(deadline: Duration, first: EmbedRequest) -> SidecarConnection {
        let (waiting, sending, answers) = Default::default();
        let mut connection = SidecarConnection { deadline, waiting, sending, answers };
        connection.take(first);
        connection
    }

    fn take(&mut self, ask: EmbedRequest) {
        if ask.reply.is_closed() {
            return;
        }
        let Some(header) = request_header(ask.jpeg.len()) else {
            let length = ask.jpeg.len();
            return tell(ask, SidecarError::Picture(length));
        };
        self.sending.extend([Bytes::copy_from_slice(&header), ask.jpeg]);
        self.waiting.push_back(PendingRequest { late: ask.late, reply: ask.reply });
    }

    /// Sends and receives until an error; returns `Ok` once the client is dropped.
    async fn run(
        &mut self,
        mut stream: TcpStream,
        asks: &mut mpsc::Receiver<EmbedRequest>,
        backoff: &mut Backoff,
    ) -> Result<(), SidecarError> {
        let io = |error: io::Error| SidecarError::Io(Arc::new(error));
        // A picture's last packet must not wait for the acknowledgement of the one before.
        stream.set_nodelay(true).map_err(io)?;
        let (mut reading, mut writing) = stream.split();
        let mut bytes = vec![0; READ_BYTES];
        loop {
            let part = self.sending.front().cloned();
            let room = self.waiting.len() < IN_FLIGHT_MAX;
            let late = self.waiting.front().map(|waiting| waiting.late);
            tokio::select! {
                ask = asks.recv(), if room => match ask {
                    Some(ask) => self.take(ask),
                    None => return Ok(()),
                },
                sent = writing.write(part.as_deref().unwrap_or_default()), if part.is_some() => {
                    self.sent(sent.map_err(io)?);
                }
                read = reading.read(&mut bytes) => {
                    match read.map_err(io)? {
                        0 => return Err(SidecarError::Closed),
                        count => self.received(&bytes[..count], backoff)?,
                    }
                }
                () = tokio::time::sleep_until(late.unwrap_or_else(Instant::now)), if late.is_some() => {
                    return Err(SidecarError::Late(self.deadline));
                }
            }
        }
    }

    fn sent(&mut self, count: usize) {
        if let Some(part) = self.sending.front_mut() {
            drop(part.split_to(count));
            if part.is_empty() {
                self.sending.pop_front();
            }
        }
    }

    fn received(&mut self, bytes: &[u8], backoff: &mut Backoff) -> Result<(), SidecarError> {
        self.answers.push(bytes);
        while let Some(answer) = self.answers.poll()? {
            let Some(waiting) = self.waiting.pop_front() else {
                return Err(SidecarError::UnexpectedReply);
            };
            backoff.worked();
            waiting.tell(match answer {
                SidecarReply::Embedding(embedding) => Ok(embedding),
                SidecarReply::Refused(refusal) => Err(SidecarError::Refused(refusal)),
            });
        }
        Ok(())
    }
}
