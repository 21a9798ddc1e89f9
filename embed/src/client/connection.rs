//! The single connection to a sidecar: opened for a request, closed at the first failure.
//!
//! Reads and writes concurrently, so that a sidecar which replies while pictures are still being sent cannot
//! deadlock with the client.

use std::{collections::VecDeque, io, sync::Arc, time::Duration};

use bytes::Bytes;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    sync::mpsc,
    time::{Instant, timeout_at},
};

use super::{EmbedRequest, IN_FLIGHT_MAX, PendingRequest, SidecarError};
use crate::{
    backoff::Backoff,
    protocol::{MessageDecoder, SidecarReply},
};

/// Bytes read at once: eight embeddings of 512 dimensions.
const READ_BYTES: usize = 16 << 10;

/// Serves requests until the client is dropped.
pub(super) async fn serve(
    address: String,
    deadline: Duration,
    mut asks: mpsc::Receiver<EmbedRequest>,
    mut backoff: Backoff,
) {
    while let Some(first) = asks.recv().await {
        if first.pending.reply.is_closed() {
            continue;
        }
        if backoff.holds(std::time::Instant::now()) {
            first.pending.tell(Err(SidecarError::BackingOff));
            continue;
        }
        let opened = timeout_at(first.pending.late, TcpStream::connect(&address)).await;
        let late = Err(SidecarError::Late(deadline));
        let stream = match opened.map_or(late, |opened| opened.map_err(broken)) {
            Ok(stream) => stream,
            Err(error) => {
                backoff.failed(std::time::Instant::now());
                first.pending.tell(Err(error));
                continue;
            }
        };
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

fn broken(error: io::Error) -> SidecarError {
    SidecarError::Io(Arc::new(error))
}

/// Requests in flight on an open connection.
struct SidecarConnection {
    deadline: Duration,
    waiting: VecDeque<PendingRequest>,
    /// Buffers to send; the first may be sent in part.
    sending: VecDeque<Bytes>,
    answers: MessageDecoder,
}

impl SidecarConnection {
    fn new(deadline: Duration, first: EmbedRequest) -> SidecarConnection {
        let (waiting, sending, answers) = Default::default();
        let mut connection = SidecarConnection { deadline, waiting, sending, answers };
        connection.take(first);
        connection
    }

    fn take(&mut self, ask: EmbedRequest) {
        if !ask.pending.reply.is_closed() {
            self.sending.extend(ask.message);
            self.waiting.push_back(ask.pending);
        }
    }

    /// Sends and receives until an error; returns `Ok` once the client is dropped.
    async fn run(
        &mut self,
        mut stream: TcpStream,
        asks: &mut mpsc::Receiver<EmbedRequest>,
        backoff: &mut Backoff,
    ) -> Result<(), SidecarError> {
        // A picture's last packet must not wait for the acknowledgement of the one before.
        stream.set_nodelay(true).map_err(broken)?;
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
                    self.sent(sent.map_err(broken)?);
                }
                read = reading.read(&mut bytes) => {
                    match read.map_err(broken)? {
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
        while let Some(answer) = self.answers.poll_reply().map_err(SidecarError::Protocol)? {
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
