//! Converts answers to stored form and back.

use http::response::Parts;
use http_body_util::BodyExt;

use super::takes_events;
use crate::{
    api::{
        error::ErrorExtension, jobs::PREFERENCE_APPLIED, middleware::REQUEST_ID, prelude::*,
        send_budget::BufferedBytes,
    },
    base::stepped_body::joined,
    runs::idempotency::{
        ANSWER_BYTES_MAX, BodyDigest, KeyedRequest, RecoveredOutcome, StoredResponse, TRACED_MAX,
    },
};

const REPLAYED: HeaderName = HeaderName::from_static("idempotency-replayed");
/// Headers of the answer that are stored; all others belong to the one exchange.
const REPEATED: [HeaderName; 4] =
    [header::CONTENT_TYPE, header::LOCATION, header::ETAG, PREFERENCE_APPLIED];

/// Returns the stored answer, marked as a replay.
pub fn replay(answer: StoredResponse) -> Response {
    let mut response = response(answer);
    response.headers_mut().insert(REPLAYED, HeaderValue::from_static("true"));
    response
}

pub fn response(answer: StoredResponse) -> Response {
    let mut response = Response::new(Body::from(answer.body));
    *response.status_mut() = StatusCode::from_u16(answer.status).unwrap_or(StatusCode::OK);
    for (name, value) in answer.headers {
        // Both were valid header text when stored.
        if let (Ok(name), Ok(value)) = (HeaderName::try_from(name), HeaderValue::try_from(value)) {
            response.headers_mut().insert(name, value);
        }
    }
    response
}

/// A request that is carried out under its key.
pub struct KeyedRequestContext {
    pub attempt: KeyedRequest,
    pub fingerprint: BodyDigest,
    /// Run that the request is about.
    pub run: Option<RunId>,
    /// True if the log was not accepting events when the request began.
    pub log_failed: bool,
}

/// Stores `response` if it must be stored, and returns it.
pub async fn kept(
    app: &Arc<App>,
    caller: &Caller,
    asked: KeyedRequestContext,
    mut response: Response,
) -> ApiResult {
    let error =
        response.extensions_mut().remove::<ErrorExtension>().map(|ErrorExtension(error)| error);
    let status = response.status();
    let keeps = status.is_success() || error.as_deref().is_some_and(ApiError::ended_the_run);
    if let Some(error) = error {
        response = error.envelope(caller.request_id);
    }
    if !keeps {
        if !status.is_server_error() {
            app.blocking(move || asked.attempt.refused()).await??;
        } else {
            let server = Arc::clone(app);
            if let Err(error) = app.blocking(move || forget_idle(&server, &asked)).await? {
                tracing::warn!(%error, "a request that failed stays under its key");
            }
        }
        return Ok(response);
    }
    // A longer answer is not stored; a repetition gets an error, as the log shows the effect.
    let (answer, parts) = match taken(response, caller.request_id).await? {
        Taken::Whole(answer, parts) => (answer, parts),
        Taken::More(response) => return Ok(response),
    };
    let body = Body::from(answer.body.clone());
    let KeyedRequestContext { attempt, fingerprint, .. } = asked;
    let written = app.blocking(move || attempt.answered(fingerprint, answer)).await?;
    if let Err(error) = written {
        // The effect stays; a repetition finds it in the log.
        tracing::error!(%error, "an answer could not be kept for its key");
    }
    Ok(Response::from_parts(parts, body))
}

/// An answer, read whole unless it is too long to be stored.
pub enum Taken {
    /// The whole answer, with the parts of the original response.
    Whole(StoredResponse, Parts),
    /// A response equivalent to the original.
    More(Response),
}

/// Reads the answer to the request `request_id`.
pub async fn taken(response: Response, request_id: RequestId) -> ApiResult<Taken> {
    let (mut parts, mut body) = response.into_parts();
    let (mut read, mut size) = (Vec::new(), 0);
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| ApiError::Bug("an answer could not be written"))?;
        let Ok(bytes) = frame.into_data() else { continue };
        size += bytes.len();
        read.push(bytes);
        if size > ANSWER_BYTES_MAX {
            // What was read is buffered beside the rest's share.
            if let Some(BufferedBytes(bytes)) = parts.extensions.get_mut::<BufferedBytes>() {
                *bytes += ANSWER_BYTES_MAX as u64;
            }
            let body = joined(read.into_iter().map(Body::from).chain([body]));
            return Ok(Taken::More(Response::from_parts(parts, body)));
        }
    }
    // The answer buffers all of its bytes now.
    parts.extensions.remove::<BufferedBytes>();
    let repeated = REPEATED.into_iter().filter_map(|name| {
        let value = parts.headers.get(&name)?.to_str().ok()?;
        Some((name.as_str().to_owned(), value.to_owned()))
    });
    // Id of the original request, also when another request gets the answer.
    let own = (REQUEST_ID.as_str().to_owned(), request_id.to_string());
    let headers = repeated.chain([own]).collect();
    let answer = StoredResponse { status: parts.status.as_u16(), headers, body: read.concat() };
    Ok(Taken::Whole(answer, parts))
}

/// Removes the record of a failed request if the log shows that it had no effect: enough such records
/// would leave the caller without keys for a day.
fn forget_idle(app: &App, asked: &KeyedRequestContext) -> ApiResult<()> {
    let timeline = app.registry.timeline();
    let did_nothing = asked.log_failed
        || asked.attempt.trace(timeline, asked.run, TRACED_MAX)? == RecoveredOutcome::Nothing
            // Checked last: events given to a failing log may still appear in it.
            && takes_events(app);
    if did_nothing {
        asked.attempt.refused()?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_long_answer_is_passed_on_unchanged_and_charged_for_what_was_read_of_it() {
        let long = Some(5 + ANSWER_BYTES_MAX as u64);
        for (pieces, charged) in [(1, None), (8, None), (9, long), (20, long)] {
            let chunks = (0..pieces).map(|at: u8| vec![at; 1 << 20]);
            let sent: Vec<u8> = chunks.clone().flatten().collect();
            let mut response = Response::new(joined(chunks.map(Body::from)));
            response.extensions_mut().insert(BufferedBytes(5));
            let taken = taken(response, RequestId::from_bytes([7; 8])).await;
            let (found, parts) = match taken.expect("readable") {
                Taken::Whole(answer, parts) => (answer.body, parts),
                Taken::More(response) => {
                    let (parts, body) = response.into_parts();
                    (body.collect().await.expect("readable").to_bytes().into(), parts)
                }
            };
            assert!(found == sent, "{pieces} MiB");
            let buffered = parts.extensions.get().map(|BufferedBytes(bytes)| *bytes);
            assert_eq!(buffered, charged, "{pieces} MiB");
        }
    }
}
