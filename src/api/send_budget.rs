//! Send budget: bytes of answers that are ready but not yet sent, and bytes of JSON bodies that have not arrived
//! completely, per principal and in total.
//!
//! While a principal's unsent answers reach its limit, its read requests are refused before any work is
//! done. Requests that act are always answered once their body has arrived. Event streams are not counted;
//! they have limits of their own.

use std::{
    pin::Pin,
    task::{Context, Poll, ready},
};

use http_body::{Body as HttpBody, Frame, SizeHint};

use super::prelude::*;
use crate::base::{
    owner_limit::LimitScope,
    quota::{Quota, QuotaError, QuotaLimits, QuotaReservation},
};

/// Limit of unsent bytes of all principals, and of arriving ones.
pub const ALL_BYTES_MAX: u64 = 256 << 20;
/// Limit of unsent bytes of one principal, and of arriving ones.
pub const OWN_BYTES_MAX: u64 = 64 << 20;
/// Size below which answers are not counted.
const SMALL_BYTES: u64 = 4 << 10;

/// Response extension: bytes that a body buffers while it is sent, if that is less than the whole.
#[derive(Clone, Copy, Debug)]
pub struct BufferedBytes(pub u64);

/// Creates empty accounts with the limits of this module.
pub fn accounts() -> Arc<Quota> {
    let [global, principal] = [ALL_BYTES_MAX, OWN_BYTES_MAX].map(std::num::NonZeroU64::new);
    Quota::new(QuotaLimits { global, principal }, None)
}

/// Refuses a read request of `owner` while the unsent bytes, its own or all, reach their limit.
pub fn check(app: &App, owner: &Principal) -> ApiResult<()> {
    app.unsent.check(owner).map_err(full)
}

/// Charges `owner` for a body of at most `bytes` that arrives, until the result is dropped.
pub fn receive(app: &App, owner: &Principal, bytes: u64) -> ApiResult<QuotaReservation> {
    let mut hold = app.arriving.hold(owner);
    hold.grow(bytes).map_err(full)?;
    Ok(hold)
}

fn full(error: QuotaError) -> ApiError {
    ApiError::SendBufferFull(match error {
        QuotaError::Principal { .. } => LimitScope::Own,
        QuotaError::Global { .. } | QuotaError::Disk => LimitScope::All,
    })
}

/// Charges `owner` for the buffered bytes of `response` until its last byte is sent.
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

/// Body whose frames stay charged after they are handed to the connection.
struct Counted {
    body: Body,
    hold: Arc<QuotaReservation>,
}

/// Bytes of a frame, charged until the connection drops them.
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
