//! The marker timeline of a run.

use std::{collections::BTreeMap, sync::Arc};

use axum::{Json, extract::State};
use http::Uri;
use media::{Marker, MarkerId, MarkerStatus, RequestId, RunId, Seq};
use serde::Serialize;
use serde_json::Value;
use timeline::{Event, EventKind, Timeline, TimelineError};
use utoipa::{IntoParams, ToSchema};

use super::{
    ApiResult, App,
    extract::{Caller, Owned, Params},
    openapi::{Fails, terms},
    page::{NO_CURSOR, PageLimit, limit, linked},
    wire::{MarkerRecord, shown},
};
use crate::json::{Int, Problem, Text, name};

/// Events read from the log at a time.
const READ: usize = 1000;

/// What markers are sorted by: first frame, last frame, id.
type Key = (u64, u64, MarkerId);

/// Which markers are asked for.
struct Wanted {
    run: RunId,
    status: Option<MarkerStatus>,
    event_type: Option<String>,
    from_frame: u64,
    to_frame: u64,
    /// Only those that come later.
    after: Option<Key>,
    limit: usize,
}

impl Wanted {
    fn has(&self, marker: &Marker) -> bool {
        self.status.is_none_or(|status| marker.status == status)
            && self.event_type.as_deref().is_none_or(|name| marker.event_type.as_str() == name)
            && marker.end_frame >= self.from_frame
            && marker.start_frame <= self.to_frame
            && self.after.is_none_or(|after| key(marker) > after)
    }
}

fn key(marker: &Marker) -> Key {
    (marker.start_frame, marker.end_frame, marker.marker_id)
}

/// The first markers that are asked for, one more than the limit where there are more.
///
/// An analysis repeated gives the same ids, of which the last counts.
fn read(timeline: &Timeline, wanted: &Wanted) -> Result<BTreeMap<Key, Marker>, TimelineError> {
    let mut markers = BTreeMap::new();
    let mut from = Seq(0);
    loop {
        let page = timeline.read(wanted.run, from, READ, Some(EventKind::MarkerEmitted))?;
        let Some(last) = page.last() else { return Ok(markers) };
        from = Seq(last.head.seq.0 + 1);
        for stored in page {
            let Event::MarkerEmitted(marker) = stored.decode()? else { continue };
            if wanted.has(&marker) {
                markers.insert(key(&marker), marker);
            }
            if markers.len() > wanted.limit + 1 {
                markers.pop_last();
            }
        }
    }
}

/// A cursor is the key of the last marker of the page before.
fn cursor(value: &Value) -> Result<Key, Problem> {
    let read = |text: &str| {
        let mut parts = text.splitn(3, '.');
        let mut number = || parts.next()?.parse().ok();
        let (start, end) = (number()?, number()?);
        Some((start, end, parts.next()?.parse().ok()?))
    };
    value.as_str().and_then(read).ok_or(NO_CURSOR.into())
}

/// Which markers.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(dead_code, reason = "says what `list` reads")]
struct MarkersQuery {
    status: Option<terms::MarkerState>,
    /// Exactly this event type.
    #[param(inline)]
    event_type: Option<EventTypeText>,
    /// Only markers that end at this frame or later.
    #[param(inline)]
    from_frame: Option<FrameNumber>,
    /// Only markers that start at this frame or earlier.
    #[param(inline)]
    to_frame: Option<FrameNumber>,
    /// Most items of the page; 100 when missing.
    #[param(inline)]
    limit: Option<PageLimit>,
    /// Where the page starts, as the `Link` header of the page before says.
    cursor: Option<terms::MarkerCursor>,
}

type EventTypeText = Text<1, 128>;
type FrameNumber = Int<0, { u64::MAX }>;

/// Markers of a run.
#[derive(Serialize, ToSchema)]
struct RunMarkers<'a> {
    #[serde(serialize_with = "shown")]
    #[schema(value_type = terms::RequestId)]
    request_id: RequestId,
    #[serde(serialize_with = "shown")]
    #[schema(value_type = terms::RunId)]
    run_id: RunId,
    markers: Vec<MarkerRecord<'a>>,
}

/// List the markers of a run by their frames.
#[utoipa::path(
    get, path = "/v1/runs/{id}/markers", operation_id = "getMarkers", tag = "timeline",
    params(MarkersQuery),
    responses((status = 200, description = "A page", body = RunMarkers<'_>), Fails<503>),
)]
pub async fn list(
    State(app): State<Arc<App>>,
    caller: Caller,
    Owned(run): Owned,
    params: Params,
    uri: Uri,
) -> ApiResult {
    let mut fields = params.fields()?;
    let names = "exact, provisional, finalized";
    let wanted = Wanted {
        run: run.id(),
        status: fields.optional("status", name(names, MarkerStatus::from_name)),
        event_type: fields.optional("event_type", EventTypeText::read).map(str::to_owned),
        from_frame: fields.optional("from_frame", FrameNumber::digits).unwrap_or(0),
        to_frame: fields.optional("to_frame", FrameNumber::digits).unwrap_or(u64::MAX),
        after: fields.optional("cursor", cursor),
        limit: limit(&mut fields),
    };
    fields.finish(|| Some(()))?;
    let (timeline, most) = (app.registry.timeline().clone(), wanted.limit);
    let mut markers = app.reading(&caller.principal, move || read(&timeline, &wanted)).await??;
    let more = markers.len() > most;
    if more {
        markers.pop_last();
    }
    let last = markers.last_key_value().filter(|_| more);
    let next = last.map(|((start, end, id), _)| format!("{start}.{end}.{id}"));
    let records = markers.values().map(MarkerRecord::new).collect();
    let answer = RunMarkers { request_id: caller.request_id, run_id: run.id(), markers: records };
    Ok(linked(Json(answer), &uri, next))
}
