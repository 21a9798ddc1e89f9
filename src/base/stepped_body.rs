//! Response bodies of pieces, each made in a future of its own when the client has room for it.

use std::{
    collections::VecDeque,
    pin::Pin,
    task::{Context, Poll, ready},
};

use axum::{BoxError, body::Body};
use bytes::Bytes;
use http_body::{Body as HttpBody, Frame, SizeHint};
use http_body_util::BodyExt;

/// Next piece, and the state from which the one after it is made; `None` at the end.
pub type Step<S> = Result<Option<(Bytes, S)>, BoxError>;

/// Returns the body of the pieces that `step` makes, the first one from `state`; an error cuts it off. `bytes` is
/// the length of all pieces, if known.
pub fn stepped<S, F, Made>(state: S, bytes: Option<u64>, step: F) -> Body
where
    S: Send + Unpin + 'static,
    F: Fn(S) -> Made + Send + Unpin + 'static,
    Made: Future<Output = Step<S>> + Send + 'static,
{
    Body::new(SteppedBody { state: Some(state), step, making: None, left: bytes })
}

/// Returns the body of `bodies`, one after the other.
pub fn joined(bodies: impl IntoIterator<Item = Body>) -> Body {
    let bodies: VecDeque<Body> = bodies.into_iter().collect();
    stepped(bodies, None, next_of)
}

async fn next_of(mut bodies: VecDeque<Body>) -> Step<VecDeque<Body>> {
    while let Some(body) = bodies.front_mut() {
        match body.frame().await.transpose()? {
            Some(frame) => return Ok(Some((frame.into_data().unwrap_or_default(), bodies))),
            None => _ = bodies.pop_front(),
        }
    }
    Ok(None)
}

struct SteppedBody<S, F, Made> {
    state: Option<S>,
    step: F,
    making: Option<Pin<Box<Made>>>,
    /// Length of the pieces that are not made, if known.
    left: Option<u64>,
}

impl<S, F, Made> HttpBody for SteppedBody<S, F, Made>
where
    S: Unpin,
    F: Fn(S) -> Made + Unpin,
    Made: Future<Output = Step<S>>,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let body = &mut *self;
        if let Some(state) = body.state.take() {
            body.making = Some(Box::pin((body.step)(state)));
        }
        let Some(making) = &mut body.making else { return Poll::Ready(None) };
        let made = ready!(making.as_mut().poll(cx));
        body.making = None;
        let framed = made.map(|next| {
            next.map(|(piece, state)| {
                body.state = Some(state);
                body.left = body.left.map(|left| left.saturating_sub(piece.len() as u64));
                Frame::data(piece)
            })
        });
        Poll::Ready(framed.transpose())
    }

    fn is_end_stream(&self) -> bool {
        self.left == Some(0)
    }

    fn size_hint(&self) -> SizeHint {
        self.left.map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}
