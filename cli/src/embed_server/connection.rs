//! One client of the embedding server: its pictures are decoded and embedded concurrently, and answered in
//! order.
//!
//! Requests in flight are limited in number and, over all clients, in bytes; beyond that the client's socket
//! is not read. An unreadable picture is refused; an invalid request closes the connection.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use embed::{
    EmbedError, Embedder,
    protocol::{JPEG_BYTES_MAX, MessageDecoder, SidecarReply, SidecarStatus, encode_reply},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{
        TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::{Semaphore, SemaphorePermit, mpsc, watch},
    task::JoinHandle,
    time::timeout,
};

use super::picture;

/// Most pictures of a client whose answers wait for their turn to be sent.
const QUEUE: usize = 6;
/// Most pictures of a client in flight: the queue, one being answered and one just read.
pub const UNDER_WAY_MAX: usize = QUEUE + 2;
/// Most bytes of JPEGs in flight, of all clients.
const BYTES_MAX: usize = 128 << 20;
/// Longest pause within a request.
const READ_WAIT: Duration = Duration::from_secs(30);
/// Time limit of sending an answer to a client.
const WRITE_WAIT: Duration = Duration::from_secs(10);
const READ_BYTES: usize = 64 << 10;

/// State shared by all clients.
pub struct EmbedServerState {
    pub embedder: Embedder,
    decoders: Semaphore,
    /// Free space for JPEGs in KiB: a permit count is a 32-bit number.
    room: Semaphore,
    /// Number of pictures that were refused.
    pub refused: AtomicU64,
}

impl EmbedServerState {
    /// Creates the state; at most `decoders` pictures are decoded at once.
    pub fn new(embedder: Embedder, decoders: usize) -> EmbedServerState {
        const { assert!(JPEG_BYTES_MAX <= BYTES_MAX) };
        EmbedServerState {
            embedder,
            decoders: Semaphore::new(decoders),
            room: Semaphore::new(BYTES_MAX >> 10),
            refused: AtomicU64::new(0),
        }
    }
}

/// Reason for which a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DisconnectReason {
    /// The client closed the connection, broke the protocol, or was drained.
    Client,
    /// The model has stopped; no client can be served.
    Model,
}

/// Serves one client until it disconnects or `draining` turns true; then answers the requests in flight.
pub async fn serve(
    stream: TcpStream,
    number: u64,
    shared: Arc<EmbedServerState>,
    draining: watch::Receiver<bool>,
) -> DisconnectReason {
    // Sends answers without waiting for the acknowledgement of the one before; a failure only delays them.
    stream.set_nodelay(true).ok();
    let (reading, writing) = stream.into_split();
    let (answers, queue) = mpsc::channel(QUEUE);
    let (_, ended) =
        tokio::join!(read(reading, number, shared, answers, draining), write(writing, queue));
    ended
}

type Under = JoinHandle<Result<SidecarReply, DisconnectReason>>;

async fn read(
    mut reading: OwnedReadHalf,
    number: u64,
    shared: Arc<EmbedServerState>,
    answers: mpsc::Sender<Under>,
    mut draining: watch::Receiver<bool>,
) {
    let mut requests = MessageDecoder::default();
    let mut bytes = vec![0; READ_BYTES];
    loop {
        loop {
            let jpeg = match requests.poll_request() {
                Ok(Some(jpeg)) => jpeg,
                Ok(None) => break,
                // The start of the next request is unknown.
                Err(_) => return,
            };
            let answer = tokio::spawn(answer(Arc::clone(&shared), number, jpeg));
            if answers.send(answer).await.is_err() {
                return;
            }
        }
        let silence = if requests.is_empty() { Duration::MAX } else { READ_WAIT };
        let read = tokio::select! {
            // Returns also if the sender was dropped.
            _ = draining.wait_for(|draining| *draining) => return,
            read = timeout(silence, reading.read(&mut bytes)) => read,
        };
        match read {
            Ok(Ok(count)) if count > 0 => requests.push(&bytes[..count]),
            _ => return,
        }
    }
}

async fn write(mut writing: OwnedWriteHalf, mut queue: mpsc::Receiver<Under>) -> DisconnectReason {
    while let Some(under) = queue.recv().await {
        let answer = match under.await {
            Ok(Ok(answer)) => answer,
            Ok(Err(ended)) => return ended,
            // The task panicked: the picture counts as unreadable.
            Err(_) => SidecarReply::Refused(SidecarStatus::PICTURE),
        };
        let sent = timeout(WRITE_WAIT, writing.write_all(&encode_reply(&answer))).await;
        if !matches!(sent, Ok(Ok(()))) {
            return DisconnectReason::Client;
        }
    }
    DisconnectReason::Client
}

async fn answer(
    shared: Arc<EmbedServerState>,
    number: u64,
    jpeg: Bytes,
) -> Result<SidecarReply, DisconnectReason> {
    let kibibytes = jpeg.len().div_ceil(1024) as u32;
    let _room = never_closed(shared.room.acquire_many(kibibytes).await)?;
    let side = shared.embedder.side();
    let picture = {
        let _decoder = never_closed(shared.decoders.acquire().await)?;
        tokio::task::spawn_blocking(move || picture::decode(&jpeg, side)).await
    };
    let result = match picture {
        Ok(Ok(picture)) => shared.embedder.embed(number, picture).await,
        Ok(Err(_)) | Err(_) => {
            shared.refused.fetch_add(1, Ordering::Relaxed);
            return Ok(SidecarReply::Refused(SidecarStatus::PICTURE));
        }
    };
    let refusal = match result {
        Ok(embedding) => return Ok(SidecarReply::Embedding(embedding)),
        Err(EmbedError::Stopped) => return Err(DisconnectReason::Model),
        Err(EmbedError::Full | EmbedError::Late(_)) => SidecarStatus::BUSY,
        Err(EmbedError::Side { .. } | EmbedError::Model(_)) => SidecarStatus::MODEL,
    };
    shared.refused.fetch_add(1, Ordering::Relaxed);
    Ok(SidecarReply::Refused(refusal))
}

fn never_closed<'a>(
    permit: Result<SemaphorePermit<'a>, tokio::sync::AcquireError>,
) -> Result<SemaphorePermit<'a>, DisconnectReason> {
    permit.map_err(|_| DisconnectReason::Client)
}
