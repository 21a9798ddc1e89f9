//! The marker timeline of a run.

use std::{collections::HashMap, sync::Arc};

use axum::{Json, extract::State, response::IntoResponse};
use media::{Marker, MarkerStatus, RequestId, RunId, Seq};
use serde::Serialize;
use timeline::{Event, EventKind, Timeline, TimelineError};

use super::{
    ApiResult, App,
    extract::{Caller, Owned, Params},
    wire::{MarkerRecord, shown},
};
use crate::json::{digits, name, text};

/// Events read from the log at a time.
const READ: usize = 1000;

/// The markers of `run`; an analysis repeated gives the same ids, of which the last counts.
fn read(timeline: &Timeline, run: RunId) -> Result<Vec<Marker>, TimelineError> {
    let mut markers = HashMap::new();
    let mut from = Seq(0);
    loop {
        let page = timeline.read(run, from, READ, Some(EventKind::MarkerEmitted))?;
        let Some(last) = page.last() else { break };
        from = Seq(last.head.seq.0 + 1);
        for stored in page {
            if let Event::MarkerEmitted(marker) = stored.decode()? {
                markers.insert(marker.marker_id, marker);
            }
        }
    }
    Ok(markers.into_values().collect())
}

/// `GET /v1/runs/{id}/markers`
pub async fn list(
    State(app): State<Arc<App>>,
    caller: Caller,
    Owned(run): Owned,
    params: Params,
) -> ApiResult {
    let mut fields = params.fields()?;
    let names = "exact, provisional, finalized";
    let status = fields.optional("status", name(names, MarkerStatus::from_name));
    let event_type = fields.optional("event_type", text(1..=128));
    let from_frame = fields.optional("from_frame", digits(0..=u64::MAX)).unwrap_or(0);
    let to_frame = fields.optional("to_frame", digits(0..=u64::MAX)).unwrap_or(u64::MAX);
    fields.finish(|| Some(()))?;
    let (timeline, id) = (app.registry.timeline().clone(), run.id());
    let mut markers = app.blocking(move || read(&timeline, id)).await??;
    markers.retain(|marker| {
        status.is_none_or(|status| marker.status == status)
            && event_type.is_none_or(|name| marker.event_type.as_str() == name)
            && marker.end_frame >= from_frame
            && marker.start_frame <= to_frame
    });
    markers.sort_by_key(|marker| (marker.start_frame, marker.end_frame, marker.marker_id));
    #[derive(Serialize)]
    struct Answer<'a> {
        #[serde(serialize_with = "shown")]
        request_id: RequestId,
        #[serde(serialize_with = "shown")]
        run_id: RunId,
        markers: Vec<MarkerRecord<'a>>,
    }
    let records = markers.iter().map(MarkerRecord::new).collect();
    let answer = Answer { request_id: caller.request_id, run_id: run.id(), markers: records };
    Ok(Json(answer).into_response())
}
