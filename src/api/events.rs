//! Reads a run's timeline: snapshots, pages and long polling.

use std::pin::pin;

use media::Label;
use timeline::{Event, StreamedEvent};

use super::{
    openapi::events::{EventRecord, QueryMatch},
    prelude::*,
    streamed_json::{Snapshot, event_texts},
    zones::ZoneName,
};
use crate::deliver::sse::index_of;

/// Bytes of payloads after which a page ends.
const PAGE_BYTES: u64 = 8 << 20;

/// Sequence number of the first event to read.
pub type FromSeq = BoundedInt<0, { u64::MAX }>;
pub type QueryLimit = BoundedInt<1, 10_000>;
pub type WaitMs = BoundedInt<0, 30_000>;
pub const QUERY_DEFAULT: u64 = 1000;

/// Selection of events to read.
#[derive(Clone)]
struct Wanted {
    from: Seq,
    limit: usize,
    kind: Option<EventKind>,
    chosen: Chosen,
}

/// Filter on fields of the payloads.
#[derive(Clone, Default)]
struct Chosen {
    index: Option<Label>,
    zone: Option<String>,
}

impl Chosen {
    /// Returns true if the event is chosen, or cannot be read, so that no list leaves it out silently.
    fn has(&self, event: &StreamedEvent) -> bool {
        if event.damage().is_some() {
            return true;
        }
        (self.index.is_none() || index_of(event) == self.index)
            && self.zone.as_ref().is_none_or(|zone| touches(event, zone))
    }
}

/// Returns true if the event is an episode of activity that touches the zone `zone`.
fn touches(event: &StreamedEvent, zone: &str) -> bool {
    use EventKind::{ActivityEnded, ActivityStarted};
    if !matches!(event.head.kind, ActivityStarted | ActivityEnded) {
        return false;
    }
    match event.decode() {
        Ok(Event::ActivityStarted(episode) | Event::ActivityEnded(episode)) => {
            episode.zones.iter().any(|name| name == zone)
        }
        Ok(_) => false,
        Err(error) => {
            tracing::error!(%error, seq = %event.head.seq, "cannot read an event's fields");
            false
        }
    }
}

/// Events, and the start of the next page.
struct Page {
    events: Vec<StreamedEvent>,
    next: Seq,
    more: bool,
}

impl Page {
    fn held_bytes(&self) -> usize {
        self.events.iter().map(StreamedEvent::held_bytes).sum()
    }
}

fn read(timeline: &Timeline, run: &Arc<Run>, wanted: &Wanted) -> ApiResult<Page> {
    let mut page = Page { events: Vec::new(), next: wanted.from, more: false };
    let mut bytes = 0;
    for event in Snapshot::new(timeline, run, wanted.from, wanted.kind) {
        let event = event?;
        let after = Seq(event.head.seq.0 + 1);
        if !wanted.chosen.has(&event) {
            page.next = after;
            continue;
        }
        let full = page.events.len() == wanted.limit;
        if full || !page.events.is_empty() && bytes + event.payload_bytes() > PAGE_BYTES {
            page.more = true;
            break;
        }
        page.next = after;
        bytes += event.payload_bytes();
        page.events.push(event);
    }
    Ok(page)
}

/// Events to list.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
pub struct EventsQuery {
    /// Lowest `seq` in the answer; `cursor` takes precedence.
    #[param(inline)]
    from_seq: Option<FromSeq>,
    /// Only events of this kind.
    kind: Option<schema_types::EventKind>,
    /// Only events whose payload has this `index_name`.
    index: Option<schema_types::Label>,
    /// Only episodes of activity that touch the zone with this name.
    #[param(inline)]
    zone: Option<ZoneName>,
}

declared!(EventsQuery { from_seq, kind, index, zone });

/// Events of a run.
#[derive(ToSchema)]
#[expect(dead_code, reason = "says what `list` writes")]
struct RunEvents {
    request_id: schema_types::RequestId,
    run_id: schema_types::RunId,
    events: Vec<EventRecord>,
}

/// List the events of a run in order: all events at the time of the request, or a page of them.
#[utoipa::path(
    get, path = "/v1/runs/{id}/events", operation_id = "getEvents", tag = "timeline",
    params(EventsQuery, PageQuery),
    responses((status = 200, description = "Its events as they are now", body = RunEvents), FailureResponse<503>),
)]
pub async fn list(
    OwnedRun(app, caller, run): OwnedRun,
    QueryParams((query, page)): QueryParams<(EventsQuery, PageQuery)>,
    uri: Uri,
) -> ApiResult {
    let EventsQuery { from_seq, kind, index, zone } = query;
    let kind = kind.map(|it| it.0);
    let chosen = Chosen { index: index.map(|it| it.0), zone: zone.map(|it| it.0) };
    let from = page.cursor.or(from_seq.map(|BoundedInt(from)| Seq(from))).unwrap_or_default();
    let timeline = app.registry.timeline().clone();
    let (request_id, run_id) = (caller.request_id, run.id());
    let before = format!(r#"{{"request_id":"{request_id}","run_id":"{run_id}","events":"#);
    let end = || "}".to_owned();
    let made = app.reading(&caller.principal, move || {
        let Some(limit) = page.limit else {
            let events = Snapshot::new(&timeline, &run, from, kind)
                .filter(move |event| event.as_ref().map_or(true, |event| chosen.has(event)));
            let answer = listed(before, event_texts(events, false), end, READING_BYTES)?;
            return Ok((answer, None));
        };
        let page = read(&timeline, &run, &Wanted { from, limit, kind, chosen })?;
        let (held, next) = (page.held_bytes(), page.more.then_some(page.next));
        let events = page.events.into_iter().map(Ok);
        let answer = listed(before, event_texts(events, false), end, held)?;
        Ok::<_, ApiError>((answer, next))
    });
    let (answer, next) = made.await??;
    Ok(linked(answer, &uri, next))
}

pub fn kind(value: &Value) -> Result<EventKind, ValueError> {
    value.as_str().and_then(EventKind::from_name).ok_or_else(|| {
        let names: Vec<_> = EventKind::ALL.iter().map(|kind| kind.as_str()).collect();
        format!("must be one of {}", names.join(", ")).into()
    })
}

/// Events to find.
#[derive(ToSchema)]
struct QueryRequest {
    run_id: schema_types::RunId,
    /// Only events of this kind.
    kind: Option<schema_types::EventKind>,
    /// Lowest `seq` in the answer; 0 when missing.
    #[schema(inline)]
    from_seq: Option<FromSeq>,
    /// Maximum number of events; 1000 when missing.
    #[schema(inline)]
    limit: Option<QueryLimit>,
    /// Milliseconds to wait for a first event; 0 when missing.
    #[schema(inline)]
    wait_ms: Option<WaitMs>,
}

declared!(QueryRequest { run_id, kind, from_seq, limit, wait_ms });

/// Events found, and the start of the next query.
#[derive(ToSchema)]
#[expect(dead_code, reason = "says what `query` writes")]
struct QueryResult {
    request_id: schema_types::RequestId,
    query: AppliedQuery,
    matches: Vec<QueryMatch>,
    /// The `from_seq` of the next query.
    next_from_seq: u64,
    /// True if more events can be read at once.
    has_more: bool,
}

/// The query as it was applied.
#[derive(ToSchema)]
#[expect(dead_code, reason = "says what `query` writes")]
struct AppliedQuery {
    run_id: schema_types::RunId,
    #[schema(required = true)]
    kind: Option<schema_types::EventKind>,
    from_seq: u64,
}

/// Find events of a run, and optionally wait for the first of them.
#[utoipa::path(
    post, path = "/v1/query", operation_id = "query", tag = "timeline",
    request_body = QueryRequest,
    responses((status = 200, description = "What was found", body = QueryResult), FailureResponse<404>, FailureResponse<503>),
)]
pub async fn query(Call(app, caller): Call, body: JsonBody) -> ApiResult {
    let QueryRequest { run_id: schema_types::RunId(id), kind, from_seq, limit, wait_ms } =
        body.read()?;
    let kind = kind.map(|schema_types::EventKind(kind)| kind);
    let from = from_seq.map_or(0, |BoundedInt(from)| from);
    let limit = limit.map_or(QUERY_DEFAULT, |BoundedInt(limit)| limit) as usize;
    let wait = wait_ms.map_or(0, |BoundedInt(wait)| wait);
    let run = app.registry.find(id, &caller.principal).ok_or(ApiError::RUN_NOT_FOUND)?;
    let wanted = Wanted { from: Seq(from), limit, kind, chosen: Chosen::default() };
    let wait = Duration::from_millis(wait);
    let page = poll(&app, &caller.principal, &run, wanted, wait).await?;
    let kind = kind.map_or("null".to_owned(), |kind| format!("\"{}\"", kind.as_str()));
    let (request_id, run_id, next, more) = (caller.request_id, run.id(), page.next, page.more);
    let before = format!(
        r#"{{"request_id":"{request_id}","query":{{"run_id":"{run_id}","kind":{kind},"from_seq":{from}}},"matches":"#
    );
    let after = format!(r#","next_from_seq":{next},"has_more":{more}}}"#);
    let held = page.held_bytes();
    let texts = event_texts(page.events.into_iter().map(Ok), true);
    app.blocking(move || listed(before, texts, || after, held)).await?
}

/// Returns the first page that is not empty, or an empty one once `wait` or the run has ended.
async fn poll(
    app: &Arc<App>,
    owner: &Principal,
    run: &Arc<Run>,
    wanted: Wanted,
    wait: Duration,
) -> ApiResult<Page> {
    let mut over = pin!(tokio::time::sleep(wait));
    loop {
        let mut published = pin!(run.published());
        // Enabled before the read: an event in between must wake this task.
        published.as_mut().enable();
        // Read before the events: if the run has ended, no event follows those read.
        let has_ended = run.has_ended();
        let (timeline, wanted, source) =
            (app.registry.timeline().clone(), wanted.clone(), Arc::clone(run));
        let page = app.reading(owner, move || read(&timeline, &source, &wanted)).await??;
        if !page.events.is_empty() || wait.is_zero() || has_ended {
            return Ok(page);
        }
        tokio::select! {
            () = published => {}
            () = over.as_mut() => return Ok(page),
            () = app.draining.cancelled() => return Ok(page),
        }
    }
}
