//! What models said of the chunks of a run, without the figures that its events carry.

use std::sync::Arc;

use axum::{Json, extract::State};
use http::Uri;
use media::{EventType, Label, RunId, Score, Seq};
use serde::Serialize;
use timeline::{Event, EventKind, SemanticChunkInferred, Timeline, TimelineError};
use utoipa::{IntoParams, ToSchema};

use super::{
    ApiResult, App,
    extract::{Owned, Params},
    openapi::terms,
    page::{PageQuery, linked, paging},
    wire::{fraction, shown},
};
use crate::json::parsed;

/// Events read from the log at a time; a payload is at most a MiB.
const READ: usize = 16;

/// What a model said of a chunk.
#[derive(Serialize, ToSchema)]
struct Interaction {
    chunk_index: u64,
    /// Position of the event that tells of it.
    seq: u64,
    /// Media time of the chunk's first frame; null where its event is of a time before it was told.
    #[schema(required = true)]
    start_pts_ms: Option<i64>,
    /// Media time of the chunk's last frame; null likewise.
    #[schema(required = true)]
    end_pts_ms: Option<i64>,
    #[serde(serialize_with = "named")]
    #[schema(value_type = String)]
    event_type: EventType,
    #[schema(required = true)]
    object_label: Option<String>,
    summary: String,
    description: String,
    #[serde(serialize_with = "fraction")]
    #[schema(value_type = terms::Fraction)]
    confidence: Score,
    /// The backend that answered.
    #[schema(required = true)]
    provider: Option<String>,
    #[serde(serialize_with = "label")]
    #[schema(value_type = Option<terms::Label>, required = true)]
    index_name: Option<Label>,
}

fn named<S: serde::Serializer>(value: &EventType, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(value.as_str())
}

fn label<S: serde::Serializer>(value: &Option<Label>, serializer: S) -> Result<S::Ok, S::Error> {
    value.as_ref().map(Label::as_str).serialize(serializer)
}

impl Interaction {
    fn of(seq: Seq, chunk: SemanticChunkInferred) -> Interaction {
        Interaction {
            chunk_index: chunk.chunk_index,
            seq: seq.0,
            start_pts_ms: chunk.start_pts_ms,
            end_pts_ms: chunk.end_pts_ms,
            event_type: chunk.event_type,
            object_label: chunk.object_label,
            summary: chunk.summary,
            description: chunk.description,
            confidence: chunk.confidence,
            provider: chunk.provider,
            index_name: chunk.index_name,
        }
    }
}

/// What is asked for.
struct Wanted {
    run: RunId,
    from: Seq,
    limit: usize,
    index: Option<Label>,
}

/// A page, and where the next one starts if there is more.
fn read(
    timeline: &Timeline,
    wanted: &Wanted,
) -> Result<(Vec<Interaction>, Option<Seq>), TimelineError> {
    let (mut found, mut from) = (Vec::new(), wanted.from);
    loop {
        let kind = Some(EventKind::SemanticChunkInferred);
        let page = timeline.read(wanted.run, from, READ, kind)?;
        let Some(last) = page.last() else { return Ok((found, None)) };
        from = Seq(last.head.seq.0 + 1);
        for stored in page {
            let Event::SemanticChunkInferred(chunk) = stored.decode()? else { continue };
            // Of a chunk without an answer nobody said anything.
            let is_said = chunk.semantic_error.is_none() && !chunk.semantic_fallback_used;
            if !is_said || wanted.index.is_some() && chunk.index_name != wanted.index {
                continue;
            }
            if found.len() == wanted.limit {
                return Ok((found, Some(stored.head.seq)));
            }
            found.push(Interaction::of(stored.head.seq, chunk));
        }
    }
}

/// Which interactions.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(dead_code, reason = "says what `list` reads")]
struct InteractionsQuery {
    /// Only those that were made with this `index_name`.
    index: Option<terms::Label>,
}

/// What models said of a run.
#[derive(Serialize, ToSchema)]
struct RunInteractions {
    #[serde(serialize_with = "shown")]
    #[schema(value_type = terms::RunId)]
    run_id: RunId,
    /// Number of `interactions` in this answer.
    count: usize,
    /// In the order in which they were made, which need not be that of the chunks.
    interactions: Vec<Interaction>,
}

/// List what models said of the chunks of a run.
///
/// Chunks that no model answered for are among the run's events only.
#[utoipa::path(
    get, path = "/v1/runs/{id}/interactions", operation_id = "getInteractions", tag = "timeline",
    params(InteractionsQuery, PageQuery),
    responses((status = 200, description = "A page", body = RunInteractions)),
)]
pub async fn list(
    State(app): State<Arc<App>>,
    Owned(run): Owned,
    params: Params,
    uri: Uri,
) -> ApiResult {
    let mut fields = params.fields()?;
    let index = fields.optional("index", parsed);
    let paging = paging(&mut fields);
    fields.finish(|| Some(()))?;
    let (timeline, run_id) = (app.registry.timeline().clone(), run.id());
    let from = paging.cursor.unwrap_or_default();
    let wanted = Wanted { run: run_id, from, limit: paging.limit, index };
    let (interactions, next) = app.blocking(move || read(&timeline, &wanted)).await??;
    let answer = RunInteractions { run_id, count: interactions.len(), interactions };
    Ok(linked(Json(answer), &uri, next))
}
