//! What models said of the chunks of a run, without the figures that its events carry.

use std::sync::Arc;

use axum::{Json, extract::State};
use http::Uri;
use media::{EventType, Label, RunId, Score, Seq};
use serde::Serialize;
use timeline::{Event, SemanticChunkInferred, Timeline};
use utoipa::{IntoParams, ToSchema};

use super::{
    ApiError, ApiResult, App,
    extract::{Caller, Owned, Params},
    openapi::{Fails, terms},
    page::{PageQuery, linked, paging},
    wire::{fraction_or_null, shown},
};
use crate::{
    json::parsed,
    session::registry::{NoSuchChunk, Run},
};

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
    /// Null where the model said nothing of it.
    #[serde(serialize_with = "fraction_or_null")]
    #[schema(value_type = Option<terms::Fraction>, required = true)]
    confidence: Option<Score>,
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
    from: Option<Seq>,
    limit: usize,
    index: Option<Label>,
}

/// A page, and where the next one starts if there is more.
fn read(
    timeline: &Timeline,
    run: &Run,
    wanted: &Wanted,
) -> Result<(Vec<Interaction>, Option<Seq>), ApiError> {
    let mut found = Vec::new();
    let chunks = run.said_of_chunks(timeline, wanted.from)?;
    let unknown = |NoSuchChunk| ApiError::field("cursor", "is none of this run's interactions");
    for seq in chunks.map_err(unknown)? {
        let Some(stored) = timeline.get(seq)? else { continue };
        let Event::SemanticChunkInferred(chunk) = stored.decode()? else { continue };
        if wanted.index.is_some() && chunk.index_name != wanted.index {
            continue;
        }
        if found.len() == wanted.limit {
            return Ok((found, Some(seq)));
        }
        found.push(Interaction::of(seq, chunk));
    }
    Ok((found, None))
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
    /// In the order of their chunks.
    interactions: Vec<Interaction>,
}

/// List what models said of the chunks of a run.
///
/// Chunks that no model answered for are among the run's events only. Models answer in any order:
/// of a run under way, a chunk before the page that was read last may be answered later, so read
/// from the start once the run has ended, or follow its events.
#[utoipa::path(
    get, path = "/v1/runs/{id}/interactions", operation_id = "getInteractions", tag = "timeline",
    params(InteractionsQuery, PageQuery),
    responses((status = 200, description = "A page", body = RunInteractions), Fails<503>),
)]
pub async fn list(
    State(app): State<Arc<App>>,
    caller: Caller,
    Owned(run): Owned,
    params: Params,
    uri: Uri,
) -> ApiResult {
    let mut fields = params.fields()?;
    let index = fields.optional("index", parsed);
    let paging = paging(&mut fields);
    fields.finish(|| Some(()))?;
    let (timeline, run_id) = (app.registry.timeline().clone(), run.id());
    let wanted = Wanted { from: paging.cursor, limit: paging.limit, index };
    let (interactions, next) =
        app.reading(&caller.principal, move || read(&timeline, &run, &wanted)).await??;
    let answer = RunInteractions { run_id, count: interactions.len(), interactions };
    Ok(linked(Json(answer), &uri, next))
}
