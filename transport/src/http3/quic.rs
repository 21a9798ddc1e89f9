//! Adapter from QUIC to the HTTP/3 library, with a bound on the bytes buffered per stream.
//!
//! The library buffers a whole frame other than DATA before reading it, whatever its length, and reads on
//! while it returns DATA byte by byte. Therefore every stream here counts the bytes read and not yet
//! consumed, and reads no further than its bound. Long because the library requires the same methods on three
//! kinds of stream.

use std::{
    future::Future,
    pin::Pin,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    },
    task::{Context, Poll, ready},
};

use bytes::{Buf, BufMut, Bytes, BytesMut};
use h3::{
    error::Code,
    quic::{
        self, ConnectionErrorIncoming as ConnectionFailure, StreamErrorIncoming as StreamFailure,
        StreamId, WriteBuf,
    },
};
use quinn::{ConnectionError, ReadError, VarInt, WriteError};

/// Read sizes: small at first, doubled after each read that filled its buffer.
const READ_BYTES_MIN: usize = 2 << 10;
const READ_BYTES_MAX: usize = 64 << 10;
/// Bytes of small frames that are merged before writing.
pub(super) const GATHERED_BYTES: usize = 4 << 10;
/// Most bytes buffered of a control stream.
const CONTROL_BYTES: usize = 64 << 10;

pub(super) fn code(code: Code) -> VarInt {
    VarInt::from_u64(code.value()).unwrap_or(VarInt::MAX)
}

/// Count of the buffered bytes of one stream.
#[derive(Debug)]
pub(super) struct BufferedBytes {
    bytes: AtomicUsize,
    most: usize,
    /// True for a body, whose reads pause at `most`; other streams close the connection there.
    is_body: AtomicBool,
    ended: AtomicBool,
    /// True if small frames wait for the end of the response or for [`GATHERED_BYTES`].
    gathers: AtomicBool,
}

impl BufferedBytes {
    fn new(most: usize) -> Arc<BufferedBytes> {
        let [is_body, ended, gathers] = [false; 3].map(AtomicBool::new);
        Arc::new(BufferedBytes { bytes: AtomicUsize::new(0), most, is_body, ended, gathers })
    }

    /// Marks the start of the body; from here on the caller checks [`BufferedBytes::is_full`].
    pub fn begin_body(&self) {
        self.is_body.store(true, Relaxed);
    }

    /// Makes small frames of the response wait for its end, to be written together.
    pub fn gather(&self) {
        self.gathers.store(true, Relaxed);
    }

    /// Returns true if no byte is read until some are consumed.
    pub fn is_full(&self) -> bool {
        self.bytes() >= self.most
    }

    /// Returns true if the peer's last byte was read.
    pub fn has_ended(&self) -> bool {
        self.ended.load(Relaxed)
    }

    /// Returns the bytes read and not consumed, including others in the same blocks.
    pub fn bytes(&self) -> usize {
        self.bytes.load(Relaxed)
    }
}

/// Block of received bytes, counted as buffered until the last reference is dropped.
struct Block {
    bytes: Vec<u8>,
    held: Arc<BufferedBytes>,
}

impl AsRef<[u8]> for Block {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        self.held.bytes.fetch_sub(self.bytes.len(), Relaxed);
    }
}

pub(super) struct AcceptedStream {
    pub held: Arc<BufferedBytes>,
    /// Resolves when the peer wants no response any more or is gone.
    pub given_up: Pin<Box<dyn Future<Output = ()> + Send>>,
}

impl AcceptedStream {
    fn new((send, _): &Both, held: Arc<BufferedBytes>) -> AcceptedStream {
        let stopped = send.stopped();
        let given_up = async move {
            // Without an error code the peer has received the whole response.
            if let Ok(None) = stopped.await {
                std::future::pending().await
            }
        };
        AcceptedStream { held, given_up: Box::pin(given_up) }
    }
}

/// Request stream accepted last.
#[derive(Clone, Default)]
pub(super) struct LatestStream(Arc<Mutex<Option<AcceptedStream>>>);

impl LatestStream {
    fn set(&self, accepted: AcceptedStream) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(accepted);
    }

    pub fn take(&self) -> Option<AcceptedStream> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

type Both = (quinn::SendStream, quinn::RecvStream);
type Coming<T> = Pin<Box<dyn Future<Output = Result<T, ConnectionError>> + Send>>;

/// Returns the next stream, for which `ask` waits.
fn poll_next<T>(
    coming: &mut Option<Coming<T>>,
    cx: &mut Context<'_>,
    quic: &quinn::Connection,
    ask: fn(quinn::Connection) -> Coming<T>,
) -> Poll<Result<T, ConnectionError>> {
    let stream = ready!(coming.get_or_insert_with(|| ask(quic.clone())).as_mut().poll(cx));
    *coming = None;
    Poll::Ready(stream)
}

/// QUIC connection for the HTTP/3 library.
pub(super) struct QuicConnection {
    quic: quinn::Connection,
    held_bytes_max: usize,
    bidi: Option<Coming<Both>>,
    uni: Option<Coming<quinn::RecvStream>>,
    opening: Option<Coming<quinn::SendStream>>,
    newest: LatestStream,
}

impl QuicConnection {
    /// Creates the adapter; each request stream may buffer `held_bytes_max` bytes.
    pub fn new(quic: quinn::Connection, held_bytes_max: usize) -> (QuicConnection, LatestStream) {
        let latest = LatestStream::default();
        let (bidi, uni, opening, newest) = (None, None, None, latest.clone());
        (QuicConnection { quic, held_bytes_max, bidi, uni, opening, newest }, latest)
    }
}

impl quic::Connection<Bytes> for QuicConnection {
    type RecvStream = RecvStream;
    type OpenStreams = QuicConnection;

    fn poll_accept_recv(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<RecvStream, ConnectionFailure>> {
        let next = poll_next(&mut self.uni, cx, &self.quic, |quic| {
            Box::pin(async move { quic.accept_uni().await })
        });
        let (stream, held) = (ready!(next).map_err(connection)?, BufferedBytes::new(CONTROL_BYTES));
        Poll::Ready(Ok(RecvStream::new(stream, &self.quic, held)))
    }

    fn poll_accept_bidi(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<BidiStream, ConnectionFailure>> {
        let next = poll_next(&mut self.bidi, cx, &self.quic, |quic| {
            Box::pin(async move { quic.accept_bi().await })
        });
        let both = ready!(next).map_err(connection)?;
        let held = BufferedBytes::new(self.held_bytes_max);
        self.newest.set(AcceptedStream::new(&both, Arc::clone(&held)));
        Poll::Ready(Ok(BidiStream::new(both, &self.quic, held)))
    }

    /// Returns what a client opens its requests with; the library's server asks for none.
    fn opener(&self) -> QuicConnection {
        QuicConnection::new(self.quic.clone(), self.held_bytes_max).0
    }
}

impl quic::OpenStreams<Bytes> for QuicConnection {
    type BidiStream = BidiStream;
    type SendStream = SendStream;

    fn poll_open_bidi(&mut self, _: &mut Context<'_>) -> Poll<Result<BidiStream, StreamFailure>> {
        Poll::Ready(Err(StreamFailure::Unknown("a server opens no requests".into())))
    }

    fn poll_open_send(&mut self, cx: &mut Context<'_>) -> Poll<Result<SendStream, StreamFailure>> {
        let next = poll_next(&mut self.opening, cx, &self.quic, |quic| {
            Box::pin(async move { quic.open_uni().await })
        });
        next.map_ok(|stream| SendStream::new(stream, None)).map_err(lost)
    }

    fn close(&mut self, closing: Code, reason: &[u8]) {
        self.quic.close(code(closing), reason);
    }
}

pub(super) struct BidiStream {
    outgoing: SendStream,
    incoming: RecvStream,
}

impl BidiStream {
    fn new(
        (send, receive): Both,
        quic: &quinn::Connection,
        held: Arc<BufferedBytes>,
    ) -> BidiStream {
        let outgoing = SendStream::new(send, Some(Arc::clone(&held)));
        BidiStream { outgoing, incoming: RecvStream::new(receive, quic, held) }
    }
}

impl quic::BidiStream<Bytes> for BidiStream {
    type SendStream = SendStream;
    type RecvStream = RecvStream;

    fn split(self) -> (SendStream, RecvStream) {
        (self.outgoing, self.incoming)
    }
}

impl quic::RecvStream for BidiStream {
    type Buf = Bytes;

    fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, StreamFailure>> {
        self.incoming.poll_data(cx)
    }

    fn stop_sending(&mut self, error_code: u64) {
        self.incoming.stop_sending(error_code);
    }

    fn recv_id(&self) -> StreamId {
        self.incoming.recv_id()
    }
}

impl quic::SendStream<Bytes> for BidiStream {
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), StreamFailure>> {
        self.outgoing.poll_ready(cx)
    }

    fn send_data<T: Into<WriteBuf<Bytes>>>(&mut self, data: T) -> Result<(), StreamFailure> {
        self.outgoing.send_data(data)
    }

    fn poll_finish(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), StreamFailure>> {
        self.outgoing.poll_finish(cx)
    }

    fn reset(&mut self, reset_code: u64) {
        self.outgoing.reset(reset_code);
    }

    fn send_id(&self) -> StreamId {
        self.outgoing.send_id()
    }
}

pub(super) struct RecvStream {
    stream: quinn::RecvStream,
    quic: quinn::Connection,
    held: Arc<BufferedBytes>,
    /// Buffer of the next read.
    room: Vec<u8>,
    read_bytes: usize,
}

impl RecvStream {
    fn new(
        stream: quinn::RecvStream,
        quic: &quinn::Connection,
        held: Arc<BufferedBytes>,
    ) -> RecvStream {
        let (quic, room) = (quic.clone(), Vec::new());
        RecvStream { stream, quic, held, room, read_bytes: READ_BYTES_MIN }
    }
}

impl quic::RecvStream for RecvStream {
    type Buf = Bytes;

    fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, StreamFailure>> {
        if self.held.is_full() {
            if self.held.is_body.load(Relaxed) {
                return Poll::Pending;
            }
            self.quic.close(code(Code::H3_EXCESSIVE_LOAD), b"a frame is too long");
            return Poll::Ready(Err(lost(ConnectionError::LocallyClosed)));
        }
        self.room.resize(self.read_bytes, 0);
        let read =
            ready!(self.stream.poll_read(cx, &mut self.room)).map_err(|error| match error {
                ReadError::Reset(reason) => terminated(reason),
                ReadError::ConnectionLost(error) => lost(error),
                error => StreamFailure::Unknown(error.into()),
            })?;
        if read == 0 {
            self.held.ended.store(true, Relaxed);
            return Poll::Ready(Ok(None));
        }
        if read == self.room.len() {
            self.read_bytes = (2 * self.read_bytes).min(READ_BYTES_MAX);
        }
        let mut bytes = std::mem::take(&mut self.room);
        bytes.truncate(read);
        self.held.bytes.fetch_add(read, Relaxed);
        let block = Block { bytes, held: Arc::clone(&self.held) };
        Poll::Ready(Ok(Some(Bytes::from_owner(block))))
    }

    fn stop_sending(&mut self, error_code: u64) {
        // The call fails if the peer has already sent everything.
        self.stream.stop(VarInt::from_u64(error_code).unwrap_or(VarInt::MAX)).ok();
    }

    fn recv_id(&self) -> StreamId {
        stream_id(self.stream.id())
    }
}

/// Sending half of a stream; reset if dropped before its end.
pub(super) struct SendStream {
    stream: quinn::SendStream,
    /// Buffer count of the request; `None` for a control stream.
    held: Option<Arc<BufferedBytes>>,
    /// Small frames to be written together, before `writing`.
    gathered: BytesMut,
    writing: Option<WriteBuf<Bytes>>,
    ended: bool,
}

impl SendStream {
    fn new(stream: quinn::SendStream, held: Option<Arc<BufferedBytes>>) -> SendStream {
        SendStream { stream, held, gathered: BytesMut::new(), writing: None, ended: false }
    }

    fn poll_write(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), StreamFailure>> {
        let stream = &mut self.stream;
        ready!(write(stream, &mut self.gathered, cx))?;
        if let Some(data) = &mut self.writing {
            ready!(write(stream, data, cx))?;
        }
        self.writing = None;
        Poll::Ready(Ok(()))
    }
}

fn write(
    stream: &mut quinn::SendStream,
    data: &mut impl Buf,
    cx: &mut Context<'_>,
) -> Poll<Result<(), StreamFailure>> {
    while data.has_remaining() {
        let written = Pin::new(&mut *stream).poll_write(cx, data.chunk());
        data.advance(ready!(written).map_err(|error| match error {
            WriteError::Stopped(reason) => terminated(reason),
            WriteError::ConnectionLost(error) => lost(error),
            error => StreamFailure::Unknown(error.into()),
        })?);
    }
    Poll::Ready(Ok(()))
}

impl quic::SendStream<Bytes> for SendStream {
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), StreamFailure>> {
        let gathers = self.held.as_ref().is_some_and(|held| held.gathers.load(Relaxed));
        if gathers && self.writing.is_none() {
            return Poll::Ready(Ok(()));
        }
        self.poll_write(cx)
    }

    fn send_data<T: Into<WriteBuf<Bytes>>>(&mut self, data: T) -> Result<(), StreamFailure> {
        if self.writing.is_some() {
            let told = "data while other data wait".to_owned();
            let connection_error = ConnectionFailure::InternalError(told);
            return Err(StreamFailure::ConnectionErrorIncoming { connection_error });
        }
        let data = data.into();
        if self.gathered.len() + data.remaining() <= GATHERED_BYTES {
            self.gathered.put(data);
        } else {
            self.writing = Some(data);
        }
        Ok(())
    }

    fn poll_finish(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), StreamFailure>> {
        ready!(self.poll_write(cx))?;
        self.ended = true;
        Poll::Ready(self.stream.finish().map_err(|error| StreamFailure::Unknown(error.into())))
    }

    fn reset(&mut self, reset_code: u64) {
        self.ended = true;
        // The call fails if the stream has ended.
        self.stream.reset(VarInt::from_u64(reset_code).unwrap_or(VarInt::MAX)).ok();
    }

    fn send_id(&self) -> StreamId {
        stream_id(self.stream.id())
    }
}

impl Drop for SendStream {
    fn drop(&mut self) {
        if !self.ended {
            // Without a reset, the library would end the stream as if it were complete.
            self.stream.reset(code(Code::H3_INTERNAL_ERROR)).ok();
        }
    }
}

fn stream_id(id: quinn::StreamId) -> StreamId {
    u64::from(id).try_into().expect("both are 62 bits of RFC 9000")
}

fn terminated(reason: VarInt) -> StreamFailure {
    StreamFailure::StreamTerminated { error_code: reason.into_inner() }
}

fn lost(error: ConnectionError) -> StreamFailure {
    StreamFailure::ConnectionErrorIncoming { connection_error: connection(error) }
}

fn connection(error: ConnectionError) -> ConnectionFailure {
    match error {
        ConnectionError::ApplicationClosed(close) => {
            ConnectionFailure::ApplicationClose { error_code: close.error_code.into_inner() }
        }
        ConnectionError::TimedOut => ConnectionFailure::Timeout,
        error => ConnectionFailure::Undefined(Arc::new(error)),
    }
}
