//! Answers on their way to being kept, and from there back to a caller.

use std::{
    collections::VecDeque,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use axum::{
    body::{Body, Bytes},
    response::Response,
};
use http::{HeaderName, HeaderValue, StatusCode, header};
use http_body::{Body as HttpBody, Frame};
use http_body_util::BodyExt;

use super::{ApiResult, App, did_something};
use crate::{
    api::{
        envelope::REQUEST_ID,
        error::{ApiError, Carried},
        extract::Caller,
    },
    idempotency::{ANSWER_BYTES_MAX, Answer, Attempt, Fingerprint},
};

const REPLAYED: HeaderName = HeaderName::from_static("idempotency-replayed");
/// Headers that belong to what is answered; all others belong to the one exchange.
const REPEATED: [HeaderName; 3] = [header::CONTENT_TYPE, header::LOCATION, header::ETAG];

/// The answer again, marked as one.
pub fn replay(answer: Answer) -> Response {
    let mut response = response(answer);
    response.headers_mut().insert(REPLAYED, HeaderValue::from_static("true"));
    response
}

/// The answer as a response.
pub fn response(answer: Answer) -> Response {
    let mut response = Response::new(Body::from(answer.body));
    *response.status_mut() = StatusCode::from_u16(answer.status).unwrap_or(StatusCode::OK);
    for (name, value) in answer.headers {
        // Both were header text when they were kept.
        if let (Ok(name), Ok(value)) = (HeaderName::try_from(name), HeaderValue::try_from(value)) {
            response.headers_mut().insert(name, value);
        }
    }
    response
}

/// Keeps `response` where it is worth it, and passes it on.
pub async fn kept(
    app: &Arc<App>,
    caller: &Caller,
    attempt: Attempt,
    fingerprint: Fingerprint,
    mut response: Response,
) -> ApiResult {
    let error = response.extensions_mut().remove::<Carried>().map(|Carried(error)| error);
    let status = response.status();
    let keeps = did_something(status, error.as_deref());
    if let Some(error) = error {
        response = error.envelope(caller.request_id);
    }
    if !keeps {
        // After a failure of the server the log must say whether something was done.
        if !status.is_server_error() {
            app.blocking(move || attempt.refused()).await??;
        }
        return Ok(response);
    }
    let (parts, body) = response.into_parts();
    let (body, whole) = match collect(body).await? {
        Collected::Whole(bytes) => (Body::from(bytes.clone()), bytes),
        // Longer than is kept: a repetition is told so, for the log shows that it was done.
        Collected::More(body) => return Ok(Response::from_parts(parts, body)),
    };
    let repeated = REPEATED.iter().filter_map(|name| {
        let value = parts.headers.get(name)?.to_str().ok()?;
        Some((name.as_str().to_owned(), value.to_owned()))
    });
    // Of the request that is answered, also when another is given the answer.
    let own = (REQUEST_ID.as_str().to_owned(), caller.request_id.to_string());
    let headers = repeated.chain([own]).collect();
    let answer = Answer { status: status.as_u16(), headers, body: whole.into() };
    let written = app.blocking(move || attempt.answered(fingerprint, answer)).await?;
    if let Err(error) = written {
        // What was done stays done, and the log shows it to a repetition.
        tracing::error!(%error, "an answer could not be kept for its key");
    }
    Ok(Response::from_parts(parts, body))
}

enum Collected {
    Whole(Bytes),
    More(Body),
}

/// All of `body`, or a body that is equal to it where it is long.
async fn collect(mut body: Body) -> Result<Collected, ApiError> {
    let (mut read, mut size) = (VecDeque::new(), 0);
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| ApiError::Bug("an answer could not be written"))?;
        let Ok(bytes) = frame.into_data() else { continue };
        size += bytes.len();
        read.push_back(bytes);
        if size > ANSWER_BYTES_MAX {
            return Ok(Collected::More(Body::new(Joined { read, rest: body })));
        }
    }
    Ok(Collected::Whole(Vec::from(read).concat().into()))
}

/// What was read of a body, and the rest of it.
struct Joined {
    read: VecDeque<Bytes>,
    rest: Body,
}

impl HttpBody for Joined {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        match self.read.pop_front() {
            Some(bytes) => Poll::Ready(Some(Ok(Frame::data(bytes)))),
            None => Pin::new(&mut self.rest).poll_frame(cx),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A body that comes in pieces of a MiB.
    struct Pieces(std::ops::Range<u8>);

    impl HttpBody for Pieces {
        type Data = Bytes;
        type Error = axum::Error;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
            Poll::Ready(self.0.next().map(|at| Ok(Frame::data(vec![at; 1 << 20].into()))))
        }
    }

    #[tokio::test]
    async fn a_long_answer_is_passed_on_unchanged() {
        for (pieces, is_kept) in [(8, true), (9, false), (20, false)] {
            let sent: Vec<u8> = (0..pieces).flat_map(|at| vec![at; 1 << 20]).collect();
            let (found, whole) = match collect(Body::new(Pieces(0..pieces))).await {
                Ok(Collected::Whole(bytes)) => (bytes, true),
                Ok(Collected::More(body)) => {
                    (body.collect().await.expect("readable").to_bytes(), false)
                }
                Err(error) => panic!("{error}"),
            };
            assert!(found == sent, "{pieces} MiB");
            assert_eq!(whole, is_kept, "{pieces} MiB");
        }
    }
}
