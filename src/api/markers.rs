//! Lists the markers of a run.

use std::{cmp::Reverse, collections::HashMap};

use media::{AnalysisId, Marker, MarkerId, MarkerOrigin, MarkerStatus};
use timeline::Event;

use super::{
    pagination::{NO_CURSOR, PageLimit, limit},
    prelude::*,
    streamed_json::{DamagedEvents, Snapshot},
};
use crate::{base::json::name, runs::registry::Made};

/// A finding over a range of frames.
#[derive(Serialize, ToSchema)]
#[schema(as = Marker)]
pub struct MarkerRecord {
    marker_id: schema_types::MarkerId,
    run_id: schema_types::RunId,
    #[schema(value_type = schema_types::Label)]
    stream_id: String,
    /// `scene_cut`, `artifact_suspected`, `keyframe_keep`, `context_observation`, or a custom name.
    event_type: String,
    status: schema_types::MarkerState,
    start_frame: u64,
    /// Last frame, inclusive.
    end_frame: u64,
    start_pts_ms: i64,
    end_pts_ms: i64,
    confidence: schema_types::Fraction,
    /// Provisional marker that this finalized one replaces; null otherwise.
    #[schema(value_type = Option<schema_types::MarkerId>, required = true)]
    supersedes_marker_id: Option<String>,
    /// Analysis that emitted the marker; absent for markers older than analysis ids.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = schema_types::AnalysisId)]
    analysis_id: Option<String>,
    /// `model` if a model named the type of some of its frames; absent for markers older than this field.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = schema_types::MarkerSource)]
    origin: Option<&'static str>,
    /// True for a finding of the gate over which a model's takes precedence; listed only if
    /// `origin` is given. Absent otherwise.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    beside: bool,
}

impl From<Marker> for MarkerRecord {
    fn from(marker: Marker) -> MarkerRecord {
        MarkerRecord {
            marker_id: marker.marker_id.into(),
            run_id: marker.run_id.into(),
            stream_id: marker.stream_id.as_str().to_owned(),
            event_type: marker.event_type.as_str().to_owned(),
            status: marker.status.into(),
            start_frame: marker.start_frame,
            end_frame: marker.end_frame,
            start_pts_ms: marker.start_pts_ms,
            end_pts_ms: marker.end_pts_ms,
            confidence: marker.confidence.into(),
            supersedes_marker_id: marker.supersedes_marker_id.map(|id| id.to_string()),
            analysis_id: marker.analysis_id.map(|id| id.to_string()),
            origin: marker.origin.map(MarkerOrigin::as_str),
            beside: marker.beside,
        }
    }
}

/// Sort key of a marker: first frame, last frame, id.
type Key = (u64, u64, MarkerId);

enum Analyses {
    /// The newest analysis of each stream; markers without an analysis id are of one older than such ids.
    Newest(HashMap<StreamId, Made>),
    One(AnalysisId),
    All,
}

impl Analyses {
    fn has(&self, marker: &Marker) -> bool {
        match self {
            Analyses::Newest(made) => {
                marker.analysis_id == made.get(&marker.stream_id).and_then(|made| made.id)
            }
            Analyses::One(id) => marker.analysis_id == Some(*id),
            Analyses::All => true,
        }
    }
}

enum Origins {
    /// The markers that the analysis derived: a model's finding takes precedence over the gate's.
    Derived,
    Of(MarkerOrigin),
    All,
}

impl Origins {
    fn from_name(name: &str) -> Option<Origins> {
        match name {
            "all" => Some(Origins::All),
            name => MarkerOrigin::from_name(name).map(Origins::Of),
        }
    }

    fn has(&self, marker: &Marker) -> bool {
        match self {
            Origins::Derived => !marker.beside,
            Origins::Of(origin) => marker.origin == Some(*origin),
            Origins::All => true,
        }
    }
}

struct Wanted {
    analyses: Analyses,
    origins: Origins,
    status: Option<MarkerStatus>,
    event_type: Option<String>,
    from_frame: u64,
    to_frame: u64,
    /// Only markers with a greater key.
    after: Option<Key>,
}

impl Wanted {
    fn has(&self, marker: &Marker) -> bool {
        self.analyses.has(marker)
            && self.origins.has(marker)
            && self.status.is_none_or(|status| marker.status == status)
            && self.event_type.as_deref().is_none_or(|name| marker.event_type.as_str() == name)
            && marker.end_frame >= self.from_frame
            && marker.start_frame <= self.to_frame
            && self.after.is_none_or(|after| key(marker) > after)
    }
}

fn key(marker: &Marker) -> Key {
    (marker.start_frame, marker.end_frame, marker.marker_id)
}

/// Returns key and event of each requested marker, sorted by key.
///
/// Repeated analyses from before analysis ids reuse marker ids; the last event of an id counts.
fn order(
    timeline: &Timeline,
    run: &Arc<Run>,
    wanted: &Wanted,
    damaged: &DamagedEvents,
) -> ApiResult<Vec<(Key, Seq)>> {
    let mut order = Vec::new();
    let events = Snapshot::new(timeline, run, Seq(0), Some(EventKind::MarkerEmitted));
    for event in events.filter(|event| damaged.intact(event)) {
        let event = event?;
        let Event::MarkerEmitted(marker) = event.decode()? else { continue };
        if wanted.has(&marker) {
            order.push((key(&marker), event.head.seq));
        }
    }
    order.sort_unstable_by_key(|(key, seq)| (*key, Reverse(*seq)));
    order.dedup_by_key(|(key, _)| *key);
    Ok(order)
}

/// Returns the markers in the events `order` of `run`.
fn markers(
    timeline: Timeline,
    run: Arc<Run>,
    order: Vec<(Key, Seq)>,
) -> impl Iterator<Item = ApiResult<MarkerRecord>> + Send + 'static {
    let read = move |seq: Seq| -> ApiResult<MarkerRecord> {
        let stored = timeline.get(seq)?.filter(|_| run.lifecycle().is_visible());
        match stored.ok_or(ApiError::RUN_NOT_FOUND)?.decode()? {
            Event::MarkerEmitted(marker) => Ok(marker.into()),
            _ => Err(ApiError::Bug("a marker's event is another's")),
        }
    };
    order.into_iter().map(move |(_, seq)| read(seq))
}

/// Reads a cursor: the key of the previous page's last marker, and the event up to which analyses
/// count, so that an analysis made meanwhile does not mix with the one being read.
fn cursor(value: &Value) -> Result<(Key, Seq), ValueError> {
    let read = |text: &str| {
        let parts: Vec<&str> = text.splitn(4, '.').collect();
        let [start, end, id, until] = parts[..] else { return None };
        let number = |text: &str| text.parse().ok();
        // Every kind of malformed cursor gets the same error.
        Some(((number(start)?, number(end)?, id.parse().ok()?), Seq(number(until)?)))
    };
    value.as_str().and_then(read).ok_or(NO_CURSOR.into())
}

/// Markers to list.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
pub struct MarkersQuery {
    /// Analysis of the markers; the newest of each stream when missing.
    #[param(value_type = Option<schema_types::AnalysisFilter>)]
    analysis_id: Option<Analyses>,
    /// Only findings of the gate or of a model, or `all`; when missing, the result of the analysis,
    /// where a model's finding takes precedence over the gate's.
    #[param(value_type = Option<schema_types::OriginFilter>)]
    origin: Option<Origins>,
    status: Option<schema_types::MarkerState>,
    /// Exact event type.
    #[param(inline)]
    event_type: Option<EventTypeText>,
    /// Only markers that end at this frame or later.
    #[param(inline)]
    from_frame: Option<FrameNumber>,
    /// Only markers that start at this frame or earlier.
    #[param(inline)]
    to_frame: Option<FrameNumber>,
    /// Maximum number of items on the page; the list is whole when missing.
    #[param(inline, value_type = Option<PageLimit>)]
    limit: Option<usize>,
    /// Start of the page, from the `Link` header of the previous page.
    #[param(value_type = Option<schema_types::MarkerCursor>)]
    cursor: Option<(Key, Seq)>,
}

declared!(MarkersQuery {
    analysis_id: optional analyses,
    origin: optional name(["gate", "model", "all"], Origins::from_name),
    status,
    event_type,
    from_frame,
    to_frame,
    limit: optional limit,
    cursor: optional cursor,
});

fn analyses(value: &Value) -> Result<Analyses, ValueError> {
    match value.as_str() {
        Some("all") => Ok(Analyses::All),
        _ => {
            let id = parsed(value).map(Analyses::One);
            id.map_err(|_| "must be all, or an- and 16 hexadecimal digits".into())
        }
    }
}

type EventTypeText = BoundedText<1, 128>;
type FrameNumber = BoundedInt<0, { u64::MAX }>;

/// Markers of a run.
#[derive(ToSchema)]
#[expect(dead_code, reason = "says what `list` writes")]
struct RunMarkers {
    request_id: schema_types::RequestId,
    run_id: schema_types::RunId,
    markers: Vec<MarkerRecord>,
    /// Number of events that cannot be read, so that this answer leaves them out; absent if there are none.
    #[schema(required = false)]
    damaged_events: u64,
}

/// List the markers of a run in order of their frames.
#[utoipa::path(
    get, path = "/v1/runs/{id}/markers", operation_id = "getMarkers", tag = "timeline",
    params(MarkersQuery),
    responses((status = 200, description = "The markers", body = RunMarkers), FailureResponse<503>),
)]
pub async fn list(
    OwnedRun(app, caller, run): OwnedRun,
    QueryParams(query): QueryParams<MarkersQuery>,
    uri: Uri,
) -> ApiResult {
    let (after, until) = query.cursor.unzip();
    let mut wanted = Wanted {
        analyses: Analyses::All,
        origins: query.origin.unwrap_or(Origins::Derived),
        status: query.status.map(|it| it.0),
        event_type: query.event_type.map(|it| it.0),
        from_frame: query.from_frame.map_or(0, |it| it.0),
        to_frame: query.to_frame.map_or(u64::MAX, |it| it.0),
        after,
    };
    let timeline = app.registry.timeline().clone();
    let (request_id, run_id) = (caller.request_id, run.id());
    let before = format!(r#"{{"request_id":"{request_id}","run_id":"{run_id}","markers":"#);
    let damaged = DamagedEvents::default();
    let made = app.reading(&caller.principal, move || {
        let until = until.unwrap_or_else(|| timeline.head());
        wanted.analyses = match query.analysis_id {
            Some(analyses) => analyses,
            None => {
                let newest = run.newest_analyses(&timeline, until)?;
                damaged.add(run.damaged_analyses());
                Analyses::Newest(newest)
            }
        };
        let mut order = order(&timeline, &run, &wanted, &damaged)?;
        let most = query.limit.unwrap_or(usize::MAX);
        let more = order.len() > most;
        order.truncate(most);
        let next = order.last().filter(|_| more).map(|((start, end, id), _)| {
            // Key of the last marker of this page.
            format!("{start}.{end}.{id}.{until}")
        });
        let held = READING_BYTES + size_of_val(&*order);
        let items = record_texts(markers(timeline, run, order));
        Ok::<_, ApiError>((listed(before, items, move || damaged.end(), held)?, next))
    });
    let (answer, next) = made.await??;
    Ok(linked(answer, &uri, next))
}
