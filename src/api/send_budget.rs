//! Answers that were made and are not yet sent: their bytes, of each principal and of all.
//!
//! A principal whose answers hold as much as they may is not read to before it has taken some of
//! them: what only reads is refused before anything is done for it. What acts is let in, and what
//! was done is always answered. Event streams are not counted: they have limits of their own.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use axum::{body::Body, response::Response};
use bytes::Bytes;
use http_body::{Body as HttpBody, Frame, SizeHint};

use super::{App, error::ApiError};
use crate::base::{
    keys::Principal,
    owner_limit::LimitScope,
    quota::{Quota, QuotaError, QuotaLimits, QuotaReservation},
};

/// Most bytes of the answers of all principals.
pub const ALL_BYTES_MAX: u64 = 256 << 20;
/// Most bytes of a principal's.
pub const OWN_BYTES_MAX: u64 = 64 << 20;
/// Answers below this are not counted.
const SMALL_BYTES: u64 = 4 << 10;

/// The bytes that a body holds while it is sent, where that is not all of them.
#[derive(Clone, Copy, Debug)]
pub struct BufferedBytes(pub u64);

/// Accounts without anything in them.
pub fn accounts() -> Arc<Quota> {
    let [global, principal] = [ALL_BYTES_MAX, OWN_BYTES_MAX].map(std::num::NonZeroU64::new);
    Quota::new(QuotaLimits { global, principal })
}

/// Refuses to read for `owner` while its answers, or all, wait to be taken.
pub fn check(app: &App, owner: &Principal) -> Result<(), ApiError> {
    app.unsent.check(owner).map_err(|error| match error {
        QuotaError::Principal { .. } => ApiError::SendBufferFull(LimitScope::Own),
        QuotaError::Global { .. } | QuotaError::Disk => ApiError::SendBufferFull(LimitScope::All),
    })
}

/// Counts what `response` holds as `owner`'s until the last byte of it has gone.
pub fn count(app: &App, owner: &Principal, mut response: Response) -> Response {
    let holds =
        response.extensions_mut().remove::<BufferedBytes>().map(|BufferedBytes(bytes)| bytes);
    let bytes = holds.or(response.body().size_hint().exact()).unwrap_or(0);
    if bytes < SMALL_BYTES {
        return response;
    }
    let mut hold = app.unsent.hold(owner);
    hold.record(bytes);
    response.map(|body| Body::new(Counted { body, hold: Arc::new(hold) }))
}

/// A body whose parts are counted also when they have left it.
struct Counted {
    body: Body,
    hold: Arc<QuotaReservation>,
}

/// Bytes that wait in a connection.
struct Part {
    bytes: Bytes,
    _hold: Arc<QuotaReservation>,
}

impl AsRef<[u8]> for Part {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl HttpBody for Counted {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        let counted = |bytes| Bytes::from_owner(Part { bytes, _hold: Arc::clone(&self.hold) });
        Poll::Ready(frame.map(|frame| frame.map(|frame| frame.map_data(counted))))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
