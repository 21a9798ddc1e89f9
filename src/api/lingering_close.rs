//! Lingering close: keeps reading the body of a refused request for a while.
//!
//! A connection or stream closed while the peer still sends is reset, and the reset can overtake the
//! answer: the client would then see "broken pipe" in place of the error.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use http::Version;
use http_body::{Body as HttpBody, Frame, SizeHint};
use http_body_util::BodyExt;
use tokio::runtime::Handle;

use super::prelude::*;

const LINGER: Duration = Duration::from_secs(5);
const LINGER_BYTES: usize = 64 << 20;

/// Wraps the body of a request so that it is read on after a refusal.
pub async fn linger(request: Request) -> Request {
    match *request.method() {
        // These methods carry no body.
        Method::GET | Method::HEAD | Method::DELETE | Method::OPTIONS => request,
        _ => {
            // The client waits for 100 (Continue) before it sends the body (RFC 9110 10.1.1).
            let is_held_back = request.version() < Version::HTTP_2
                && request.headers().contains_key(header::EXPECT);
            request.map(|body| Body::new(Lingering { body, is_held_back }))
        }
    }
}

/// Request body; dropped before its end, it is read on in a task.
struct Lingering {
    body: Body,
    is_held_back: bool,
}

impl HttpBody for Lingering {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        self.is_held_back = false;
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for Lingering {
    fn drop(&mut self) {
        if self.is_held_back {
            return;
        }
        let body = std::mem::take(&mut self.body);
        // Outside a runtime no client waits for an answer.
        if let (false, Ok(runtime)) = (body.is_end_stream(), Handle::try_current()) {
            runtime.spawn(tokio::time::timeout(LINGER, discard(body)));
        }
    }
}

async fn discard(mut body: Body) {
    let mut left = LINGER_BYTES;
    while let Some(Ok(frame)) = body.frame().await {
        let read = frame.data_ref().map_or(0, Bytes::len);
        let Some(rest) = left.checked_sub(read) else { return };
        left = rest;
    }
}
