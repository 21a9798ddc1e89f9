//! Server-Sent Events: live events of one run, or of all runs of the caller.

use super::{events::FromSeq, extract::RawParams, prelude::*};
use crate::deliver::sse::{EventStreamCursor, Filter, StreamScope};

const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

/// Events to follow.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
struct StreamQuery {
    /// Event after which the stream begins; the header `Last-Event-ID` takes precedence.
    #[param(inline)]
    after: Option<FromSeq>,
    /// Only events of this kind.
    kind: Option<schema_types::EventKind>,
    /// Only events whose payload has this `index_name`.
    index: Option<schema_types::Label>,
}

declared!(StreamQuery { after, kind, index });

/// Header with the position at which a reader resumes.
#[derive(IntoParams)]
#[into_params(parameter_in = Header)]
#[expect(dead_code, reason = "says what `asked` reads")]
struct Resume {
    /// `id` of the last event received.
    #[param(rename = "Last-Event-ID", inline)]
    last_event_id: Option<FromSeq>,
}

/// Reads the start of the stream and the filter of its events.
fn asked(app: &App, headers: &HeaderMap, params: &RawParams) -> ApiResult<(Seq, Filter)> {
    let mut faults = Faults::default();
    let query = faults.part("", params.read());
    let last = headers.get(LAST_EVENT_ID).map(|value| {
        let text = value.to_str().map_or(Value::Null, Value::from);
        FromSeq::digits(&text).map_err(|_| ValueError::from("must be the id of an event"))
    });
    let last = faults.part(LAST_EVENT_ID.as_str(), last.transpose());
    let (StreamQuery { after, kind, index }, last) = faults.finish(|| query.zip(last))?;
    let after = last.or(after.map(|BoundedInt(after)| after)).unwrap_or(0);
    if Seq(after) > app.registry.timeline().head() {
        let message = "no event has this id: the data were put back to before it; follow from \
                       the last event that there is";
        let field = last.map_or("after", |_| "last-event-id");
        return Err(ApiError::field(field, message));
    }
    let index = index.map(|schema_types::Label(index)| index.as_str().to_owned());
    Ok((Seq(after), Filter { kind: kind.map(|it| it.0), index }))
}

/// Follow the events of a run.
///
/// Each message has the event's `seq` as `id`, its kind as `event`, and the event itself as `data`. After
/// 15 s of silence a comment is sent. The stream ends after the event that ends the run, or on deletion
/// of the run; a comment states the reason. A reader that reconnects after that with the last id gets
/// 204, on which browsers stop. On shutdown the stream ends early; a reader that reconnects misses
/// nothing. An id that no event has yet is refused: the server's data is older than the reader.
#[utoipa::path(
    get, path = "/v1/runs/{id}/events/stream", operation_id = "followRunEvents", tag = "timeline",
    params(StreamQuery, Resume),
    responses(
        (status = 200, description = "The events", content_type = "text/event-stream", body = String),
        (status = 204, description = "The run has ended, and the caller has all its events"),
        FailureResponse<429>, FailureResponse<503>,
    ),
)]
pub async fn of_run(
    OwnedRun(app, caller, run): OwnedRun,
    headers: HeaderMap,
    params: RawParams,
) -> ApiResult {
    let (after, filter) = asked(&app, &headers, &params)?;
    stream(&app, caller.principal, StreamScope::Run(run), after, filter).await
}

/// Follow the events of all runs of the caller, later ones included.
///
/// Differs from the stream of a run: events name their run, of a deleted run only its deletion is sent, and
/// the stream does not end.
#[utoipa::path(
    get, path = "/v1/events/stream", operation_id = "followEvents", tag = "timeline",
    params(StreamQuery, Resume),
    responses(
        (status = 200, description = "The events", content_type = "text/event-stream", body = String),
        FailureResponse<429>, FailureResponse<503>,
    ),
)]
pub async fn of_all(Call(app, caller): Call, headers: HeaderMap, params: RawParams) -> ApiResult {
    let (after, filter) = asked(&app, &headers, &params)?;
    let scope = StreamScope::Owner(caller.principal.clone());
    stream(&app, caller.principal, scope, after, filter).await
}

async fn stream(
    app: &App,
    principal: Principal,
    scope: StreamScope,
    after: Seq,
    filter: Filter,
) -> ApiResult {
    let subscription = app.streams.subscribe(principal, scope).map_err(ApiError::Stream)?;
    let mut feed = EventStreamCursor::new(subscription, filter, after);
    if feed.is_over().await {
        return Ok(StatusCode::NO_CONTENT.into_response());
    }
    let headers = [
        (header::CONTENT_TYPE, "text/event-stream"),
        // Stops proxies from buffering the stream, which would deliver nothing.
        (HeaderName::from_static("x-accel-buffering"), "no"),
    ];
    Ok((headers, feed.body()).into_response())
}
