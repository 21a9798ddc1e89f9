//! Lists answers of models about chunks of a run, or about a live session, without the events' metrics.

use std::sync::atomic::{AtomicUsize, Ordering};

use media::Label;
use serde_json::value::RawValue;
use timeline::{Event, FindingPayload, SemanticChunkInferred};

use super::{
    prelude::*,
    streamed_json::{DamagedEvents, list as list_answer},
};
use crate::runs::registry::{NoSuchChunk, readable};

/// Answer of a model about a chunk, or about a picture or clip of a live session.
#[derive(Serialize, ToSchema)]
struct Interaction {
    /// Number of the chunk; for a live session, that of the frame, or of the first frame of a clip.
    chunk_index: u64,
    /// Sequence number of the event.
    seq: u64,
    /// Media time of the chunk's first frame; null for events of an older server.
    #[schema(required = true)]
    start_pts_ms: Option<i64>,
    /// Media time of the chunk's last frame; null for events of an older server.
    #[schema(required = true)]
    end_pts_ms: Option<i64>,
    /// Event type of the model or, for a chunk whose model named none, of the gate; null for a live description
    /// whose model named none.
    #[schema(required = true)]
    event_type: Option<String>,
    #[schema(required = true)]
    object_label: Option<String>,
    summary: String,
    description: String,
    /// The model's JSON object, if the request had an `output_schema`; absent otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = schema_types::AnyObject)]
    output: Option<Box<RawValue>>,
    /// Confidence; if the model gave none, null for a chunk and 0 for a live description.
    #[schema(required = true)]
    confidence: Option<schema_types::Fraction>,
    /// Backend that answered.
    #[schema(required = true)]
    provider: Option<String>,
    #[schema(value_type = Option<schema_types::Label>, required = true)]
    index_name: Option<String>,
    /// Live description that this one reuses; absent otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    reused_from_seq: Option<u64>,
}

impl Interaction {
    fn of(seq: Seq, chunk: SemanticChunkInferred) -> Interaction {
        Interaction {
            chunk_index: chunk.chunk_index,
            seq: seq.0,
            start_pts_ms: chunk.start_pts_ms,
            end_pts_ms: chunk.end_pts_ms,
            event_type: Some(chunk.event_type.as_str().to_owned()),
            object_label: chunk.object_label,
            summary: chunk.summary,
            description: chunk.description,
            // Valid JSON, since the log parsed it.
            output: chunk
                .output
                .and_then(|text| RawValue::from_string(text.as_str().to_owned()).ok()),
            confidence: chunk.confidence.map(Into::into),
            provider: chunk.provider,
            index_name: chunk.index_name.map(|name| name.as_str().to_owned()),
            reused_from_seq: None,
        }
    }

    fn of_live(seq: Seq, found: FindingPayload) -> Interaction {
        Interaction {
            chunk_index: found.frame_index,
            seq: seq.0,
            start_pts_ms: Some(found.pts_ms),
            end_pts_ms: found.end_pts_ms.or(Some(found.pts_ms)),
            event_type: found.event_type.map(|name| name.as_str().to_owned()),
            object_label: found.object_label,
            summary: found.summary.unwrap_or_default(),
            description: found.description,
            output: None,
            confidence: Some(found.confidence.into()),
            provider: found.provider,
            index_name: found.index_name.map(|name| name.as_str().to_owned()),
            reused_from_seq: found.reused_from_seq.map(|seq| seq.0),
        }
    }
}

/// Returns the answers of models in the events `seqs` of `run`, filtered by `index` if it is given.
fn said(
    timeline: Timeline,
    run: Arc<Run>,
    seqs: Vec<Seq>,
    index: Option<Label>,
    damaged: DamagedEvents,
) -> impl Iterator<Item = ApiResult<Interaction>> + Send + 'static {
    let read = move |seq: Seq| -> ApiResult<Option<Interaction>> {
        let stored = timeline.get_parts(seq)?;
        if !run.lifecycle().is_visible() {
            return Err(ApiError::RUN_NOT_FOUND);
        }
        let Some(stored) = stored else { return Ok(None) };
        let interaction = match readable(&stored) {
            Some(Event::SemanticChunkInferred(chunk)) => Interaction::of(seq, chunk),
            Some(Event::Found(_, found)) => Interaction::of_live(seq, found),
            Some(_) => return Ok(None),
            None => {
                damaged.add(1);
                return Ok(None);
            }
        };
        let is_wanted = |name: &Label| interaction.index_name.as_deref() == Some(name.as_str());
        Ok(index.as_ref().is_none_or(is_wanted).then_some(interaction))
    };
    seqs.into_iter().filter_map(move |seq| read(seq).transpose())
}

/// Interactions to list.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
pub struct InteractionsQuery {
    /// Only interactions with this `index_name`.
    index: Option<schema_types::Label>,
}

declared!(InteractionsQuery { index });

/// Answers of models about a run.
#[derive(ToSchema)]
#[expect(dead_code, reason = "says what `list` writes")]
struct RunInteractions {
    run_id: schema_types::RunId,
    /// Number of `interactions` in this answer.
    count: usize,
    /// Interactions in order of their chunks or frames.
    interactions: Vec<Interaction>,
    /// Number of events that cannot be read, so that this answer leaves them out; absent if there are none.
    #[schema(required = false)]
    damaged_events: u64,
}

/// List the answers of models about the chunks of a run, or about a live session.
///
/// Chunks without an answer appear only among the run's events. Models answer in any order: while a run is
/// in progress, a chunk before the last page read may still be answered. Read again from the start once the
/// run has ended, or follow its events.
#[utoipa::path(
    get, path = "/v1/runs/{id}/interactions", operation_id = "getInteractions", tag = "timeline",
    params(InteractionsQuery, PageQuery),
    responses((status = 200, description = "The answers", body = RunInteractions), FailureResponse<503>),
)]
pub async fn list(
    OwnedRun(app, caller, run): OwnedRun,
    QueryParams((query, page)): QueryParams<(InteractionsQuery, PageQuery)>,
    uri: Uri,
) -> ApiResult {
    let InteractionsQuery { index } = query;
    let index = index.map(|it| it.0);
    let timeline = app.registry.timeline().clone();
    let before = format!(r#"{{"run_id":"{}","interactions":"#, run.id());
    let damaged = DamagedEvents::default();
    let made = app.reading(&caller.principal, move || {
        let unknown = |NoSuchChunk| ApiError::field("cursor", "is none of this run's interactions");
        let seqs = run.said_of_chunks(&timeline, page.cursor)?.map_err(unknown)?;
        damaged.add(run.damaged_chunks());
        let held = READING_BYTES + size_of_val(&*seqs);
        let mut said = said(timeline, run, seqs, index, damaged.clone());
        let Some(limit) = page.limit else {
            return Ok((listed(before, said, damaged, held)?, None));
        };
        let page = said.by_ref().take(limit).collect::<Result<Vec<_>, _>>()?;
        let next = said.next().transpose()?.map(|next| next.seq);
        let answer = listed(before, page.into_iter().map(Ok), damaged, READING_BYTES)?;
        Ok::<_, ApiError>((answer, next))
    });
    let (answer, next) = made.await??;
    Ok(linked(answer, &uri, next))
}

/// Streams the list of `interactions`, followed by their count and that of the `damaged` events.
fn listed(
    before: String,
    interactions: impl Iterator<Item = ApiResult<Interaction>> + Send + 'static,
    damaged: DamagedEvents,
    held: usize,
) -> ApiResult {
    let written = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&written);
    let counted = interactions.inspect(move |_| {
        counter.fetch_add(1, Ordering::Relaxed);
    });
    let after = move || format!(r#","count":{}{}"#, written.load(Ordering::Relaxed), damaged.end());
    list_answer(before, record_texts(counted), after, held)
}
