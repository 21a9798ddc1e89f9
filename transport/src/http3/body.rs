//! Request body on HTTP/3.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Waker, ready},
};

use bytes::{Buf, BufMut, Bytes, BytesMut};
use h3::{
    error::{Code, StreamError},
    server,
};
use http_body::{Body, Frame, SizeHint};

use super::quic::{BufferedBytes, RecvStream};

/// Most bytes passed on at once; the library returns them as the peer framed them.
const PART_BYTES: usize = 64 << 10;

type Receiving = server::RequestStream<RecvStream, Bytes>;

/// Error that ends a body early.
#[derive(Debug, thiserror::Error)]
pub(super) enum BodyError {
    #[error(transparent)]
    Stream(#[from] StreamError),
    /// The length differs from content-length (RFC 9114 4.1.2).
    #[error("the body has {seen} bytes and not {expected} as content-length says")]
    Length { seen: u64, expected: u64 },
    /// A frame other than DATA exceeds the server's buffer limit.
    #[error("a frame of the body is too long")]
    Frame,
}

/// Request body that sends STOP_SENDING if it is dropped before its end.
pub(super) struct RequestBody {
    stream: Receiving,
    held: Arc<BufferedBytes>,
    expected: Option<u64>,
    seen: u64,
    ended: bool,
}

impl RequestBody {
    /// Creates a body; `expected` is the content-length, if stated.
    pub fn new(stream: Receiving, held: Arc<BufferedBytes>, expected: Option<u64>) -> RequestBody {
        held.begin_body();
        RequestBody { stream, held, expected, seen: 0, ended: false }
    }

    fn fail(&mut self, error: BodyError) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        self.ended = true;
        self.stream.stop_sending(Code::H3_MESSAGE_ERROR);
        Poll::Ready(Some(Err(error)))
    }

    /// Returns the available bytes, up to one part; empty at the end of the body.
    fn poll_part(&mut self, cx: &mut Context<'_>) -> Poll<Result<Bytes, BodyError>> {
        let mut part = BytesMut::new();
        let mut empty = 0;
        while part.len() < PART_BYTES {
            match self.stream.poll_recv_data(cx) {
                Poll::Pending if part.is_empty() && self.held.is_full() => {
                    return Poll::Ready(Err(BodyError::Frame));
                }
                Poll::Pending if part.is_empty() => return Poll::Pending,
                Poll::Pending => break,
                Poll::Ready(Ok(Some(mut data))) => {
                    empty = 0;
                    self.seen += data.remaining() as u64;
                    part.reserve(data.remaining().max(PART_BYTES.min(self.held.bytes())));
                    // Copied, so that the underlying block no longer counts as buffered.
                    part.put(&mut data);
                }
                // The library reports an empty frame like the end. A frame has two bytes at least, so more
                // empty ones than fit into the buffered bytes are the end.
                Poll::Ready(Ok(None))
                    if self.held.has_ended() && 2 * empty >= self.held.bytes() =>
                {
                    self.ended = true;
                    break;
                }
                Poll::Ready(Ok(None)) => empty += 1,
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error.into())),
            }
        }
        Poll::Ready(Ok(part.freeze()))
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        if self.ended {
            return Poll::Ready(None);
        }
        let part = match ready!(self.poll_part(cx)) {
            Ok(part) => part,
            Err(error) => return self.fail(error),
        };
        let (seen, ended) = (self.seen, self.ended);
        match self.expected {
            Some(expected) if seen > expected || (ended && seen < expected) => {
                self.fail(BodyError::Length { seen, expected })
            }
            _ if part.is_empty() => Poll::Ready(None),
            _ => Poll::Ready(Some(Ok(Frame::data(part)))),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.ended
    }

    fn size_hint(&self) -> SizeHint {
        self.expected.map_or_else(SizeHint::default, |expected| {
            SizeHint::with_exact(expected.saturating_sub(self.seen))
        })
    }
}

impl Drop for RequestBody {
    fn drop(&mut self) {
        if self.ended {
            return;
        }
        // One read: a request without a body ends here.
        drop(self.poll_part(&mut Context::from_waker(Waker::noop())));
        if !self.ended {
            self.stream.stop_sending(Code::H3_NO_ERROR);
        }
    }
}
