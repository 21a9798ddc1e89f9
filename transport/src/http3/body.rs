//! The body of a request on HTTP/3.

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

/// Bytes that are handed on at once: the library gives them as the peer framed them.
const PART_BYTES: usize = 64 << 10;

type Receiving = server::RequestStream<RecvStream, Bytes>;

/// Reason for the early end of a body.
#[derive(Debug, thiserror::Error)]
pub(super) enum BodyError {
    /// The stream broke off.
    #[error(transparent)]
    Stream(#[from] StreamError),
    /// It is not as long as its head said (RFC 9114 4.1.2).
    #[error("the body has {seen} bytes and not {expected} as content-length says")]
    Length {
        /// Bytes that came.
        seen: u64,
        /// Bytes that should have come.
        expected: u64,
    },
    /// It holds a frame other than data that is longer than the server keeps.
    #[error("a frame of the body is too long")]
    Frame,
}

/// A request body that tells its peer to stop when nobody reads it to its end.
pub(super) struct RequestBody {
    stream: Receiving,
    held: Arc<BufferedBytes>,
    expected: Option<u64>,
    seen: u64,
    ended: bool,
}

impl RequestBody {
    /// Of `expected` bytes, where the head says how many.
    pub fn new(stream: Receiving, held: Arc<BufferedBytes>, expected: Option<u64>) -> RequestBody {
        held.begin_body();
        RequestBody { stream, held, expected, seen: 0, ended: false }
    }

    fn fail(&mut self, error: BodyError) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        self.ended = true;
        self.stream.stop_sending(Code::H3_MESSAGE_ERROR);
        Poll::Ready(Some(Err(error)))
    }

    /// Takes the bytes that have come since, up to a part; none at the end.
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
                    // Copied, so that the block behind it no longer counts as held.
                    part.put(&mut data);
                }
                // An empty frame looks like the end. As each has two bytes, more of them than
                // what is held has room for are the end.
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
        // Reads once: a request without a body has its end here already.
        let looked = self.poll_part(&mut Context::from_waker(Waker::noop()));
        if looked.is_pending() || !self.ended {
            self.stream.stop_sending(Code::H3_NO_ERROR);
        }
    }
}
