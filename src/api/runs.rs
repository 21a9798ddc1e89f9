//! Handlers of runs: create, list, fetch, update, delete and end.

mod summary;

use std::collections::BTreeMap;

use media::WallTime;

use super::{
    jobs::Job,
    prelude::*,
    reason::{ModelName, SemanticResult},
};
use crate::{
    base::{json::Nullable, model_catalog::Mode},
    runs::{
        lifecycle::RunState,
        registry::{RunOrigin, RunRegistry},
        source::remote,
    },
};
use summary::RunSummary;

/// Runs fetched at a time for an unpaged list.
const SLICE: usize = 256;

/// A run, as in lists.
#[derive(Serialize, ToSchema)]
#[schema(as = Run)]
pub struct RunRecord {
    /// Id of the request; absent in lists.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = schema_types::RequestId)]
    request_id: Option<String>,
    run_id: schema_types::RunId,
    /// Label given by the owner.
    #[schema(value_type = Option<schema_types::Label>, required = true)]
    label: Option<String>,
    status: schema_types::RunState,
    #[schema(value_type = schema_types::AnalysisMode)]
    mode: String,
    /// Model given on creation, else the model of the last reason job.
    #[schema(required = true)]
    model: Option<String>,
    /// Outcome of the model stage of the last reason job; null without one.
    #[schema(required = true)]
    semantic: Option<SemanticResult>,
    /// Job that is running.
    #[schema(required = true)]
    active_job: Option<Job>,
    /// Source of the last ingest.
    #[schema(required = true)]
    source_uri: Option<String>,
    /// Kind of the source: `file`, `url`, `rtsp` or `whip`.
    #[schema(required = true)]
    source: Option<&'static str>,
    /// Live session that created the run.
    #[schema(value_type = Option<schema_types::SessionId>, required = true)]
    session_id: Option<String>,
    /// Tenant of the run: metadata, not an authorization boundary.
    #[schema(required = true)]
    tenant_id: Option<String>,
    /// Wall-clock time of each stream's first picture in epoch milliseconds: from the container or, for live
    /// video, its arrival, at its end by the sender's reports (RFC 3550 6.4.1); null if unknown.
    wall_start_ms: BTreeMap<String, Option<i64>>,
    created_at: schema_types::Timestamp,
    updated_at: schema_types::Timestamp,
    /// Time at which the run expires unless it is used; null once it has ended.
    #[schema(value_type = Option<schema_types::Timestamp>, required = true)]
    expires_at: Option<String>,
    /// Summary of the run; null if nothing is decoded, absent unless requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<RunSummary>)]
    summary: Option<Option<RunSummary>>,
    /// Number of events that cannot be read, so that this record lacks what they say; absent if there are none.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = u64)]
    damaged_events: Option<u64>,
}

impl RunRecord {
    /// Creates the record of `run`, with `request_id` if a single run is requested; may read the log.
    fn new(run: &Run, registry: &RunRegistry, request_id: Option<RequestId>) -> RunRecord {
        let (origin, snapshot) = (run.origin(), run.snapshot());
        let source = match (origin.session, &snapshot.source_uri) {
            (Some(_), _) => Some("whip"),
            (None, Some(uri)) => Some(remote::kind(uri)),
            (None, None) => None,
        };
        let walls = run.wall_starts(registry.timeline()).into_iter();
        let wall_start_ms = walls
            .map(|(stream, start)| (stream.as_str().to_owned(), start.map(|start| start.epoch_ms)));
        let wall_start_ms = wall_start_ms.collect();
        let damaged_events = run.damaged_events();
        RunRecord {
            request_id: request_id.map(|id| id.to_string()),
            run_id: run.id().into(),
            label: snapshot.label.as_ref().map(|label| label.as_str().to_owned()),
            status: snapshot.lifecycle.into(),
            mode: origin.mode.clone(),
            active_job: run.active_job().as_ref().map(Job::new),
            source,
            session_id: origin.session.map(|session| session.to_string()),
            tenant_id: origin.tenant.clone(),
            wall_start_ms,
            created_at: snapshot.created_at.into(),
            updated_at: snapshot.updated_at.into(),
            expires_at: snapshot.expires_at(registry.limits.ttl).map(WallTime::rfc3339),
            source_uri: snapshot.source_uri.as_deref().map(str::to_owned),
            semantic: snapshot.semantic.as_deref().map(SemanticResult::from),
            model: snapshot.model,
            summary: None,
            damaged_events: (damaged_events > 0).then_some(damaged_events),
        }
    }
}

/// Properties of the run to create.
#[derive(ToSchema)]
struct RunRequest {
    /// Trade-off between detail and cost of analyses; `balanced` when missing.
    mode: Option<schema_types::AnalysisMode>,
    /// Model that the run is meant for.
    #[schema(value_type = Option<schema_types::ModelId>)]
    model: Option<ModelName>,
    /// Label of the run.
    label: Option<schema_types::Label>,
}

declared!(RunRequest { mode, model, label });

/// A new run.
#[derive(Serialize, ToSchema)]
pub struct RunCreated {
    request_id: schema_types::RequestId,
    run_id: schema_types::RunId,
    status: schema_types::RunState,
    mode: schema_types::AnalysisMode,
    #[schema(value_type = Option<schema_types::ModelId>, required = true)]
    model: Option<String>,
}

/// Create a run: the container of a timeline of events.
#[utoipa::path(
    post, path = "/v1/runs", operation_id = "createRun", tag = "runs",
    params(super::idempotency::IdempotencyKey),
    request_body = RunRequest,
    responses((status = 200, description = "The run", body = RunCreated), FailureResponse<409>, FailureResponse<503>),
)]
pub async fn create(Call(app, caller): Call, body: JsonBody) -> ApiResult<Json<RunCreated>> {
    let catalog = app.inference.catalog_for(&body.models()).await;
    let RunRequest { mode, model, label } = body.read_as(Form::Naming(&catalog))?;
    let mode = mode.map_or_else(Mode::default, |mode| mode.0);
    let model = model.map(|ModelName(model)| model.as_str().to_owned());
    let label = label.map(|schema_types::Label(label)| label);
    app.check_open()?;
    app.quota.check(&caller.principal)?;
    let origin = RunOrigin {
        principal: caller.principal,
        tenant: caller.tenant,
        mode: mode.as_str().to_owned(),
        model: model.clone(),
        session: None,
    };
    let run = app.registry.create(origin, label, caller.request_id).await?;
    Ok(Json(RunCreated {
        request_id: caller.request_id.into(),
        run_id: run.id().into(),
        status: RunState::Pending.into(),
        mode: mode.into(),
        model,
    }))
}

/// Runs to list.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
pub struct RunsQuery {
    /// Only runs in this state.
    status: Option<schema_types::RunState>,
    /// Optional part to add to each record.
    include: Option<schema_types::RunInclude>,
}

declared!(RunsQuery { status, include });

/// List the caller's runs, newest first.
///
/// With `include=summary` each has a `summary`: counts, a still and histograms; null if not decoded.
#[utoipa::path(
    get, path = "/v1/runs", operation_id = "listRuns", tag = "runs",
    params(RunsQuery, PageQuery),
    responses((status = 200, description = "The runs", body = Vec<RunRecord>), FailureResponse<503>),
)]
pub async fn list(
    Call(app, caller): Call,
    QueryParams((query, page)): QueryParams<(RunsQuery, PageQuery)>,
    uri: Uri,
) -> ApiResult {
    let RunsQuery { status, include } = query;
    let status = status.map(|it| it.0);
    let in_short = include.is_some();
    let before = page.cursor.unwrap_or(Seq(u64::MAX));
    let reader = Arc::clone(&app);
    let record = move |run: &Arc<Run>| RunRecord {
        summary: in_short.then(|| RunSummary::of(&reader, run)),
        ..RunRecord::new(run, &reader.registry, None)
    };
    let Some(limit) = page.limit else {
        let (registry, owner) = (Arc::clone(&app.registry), caller.principal.clone());
        let runs = sliced(before, move |at| Ok(registry.list(&owner, status, at, SLICE)));
        let texts = record_texts(runs.map(move |run| run.map(|run| record(&run))));
        let made = app.reading(&caller.principal, || {
            listed(String::new(), texts, String::new, READING_BYTES)
        });
        return made.await?;
    };
    let (runs, next) = app.registry.list(&caller.principal, status, before, limit);
    let records = move || runs.iter().map(record).collect::<Vec<_>>();
    Ok(linked(Json(app.reading(&caller.principal, records).await?), &uri, next))
}

/// Fetch a run.
#[utoipa::path(
    get, path = "/v1/runs/{id}", operation_id = "getRun", tag = "runs",
    responses((status = 200, description = "The run", body = RunRecord)),
)]
pub async fn fetch(OwnedRun(app, caller, run): OwnedRun) -> ApiResult<Json<RunRecord>> {
    record(&app, run, caller.request_id).await
}

async fn record(app: &App, run: Arc<Run>, request_id: RequestId) -> ApiResult<Json<RunRecord>> {
    let registry = Arc::clone(&app.registry);
    let record = move || RunRecord::new(&run, &registry, Some(request_id));
    Ok(Json(app.blocking(record).await?))
}

/// Changes of a run.
#[derive(ToSchema)]
struct RunUpdate {
    /// New label; null removes it.
    #[schema(value_type = Option<schema_types::Label>, required = true)]
    label: Nullable<schema_types::Label>,
}

declared!(RunUpdate { label });

/// Change the label of a run, also of one that has ended.
#[utoipa::path(
    patch, path = "/v1/runs/{id}", operation_id = "updateRun", tag = "runs",
    request_body = RunUpdate,
    responses((status = 200, description = "The run", body = RunRecord), FailureResponse<409>, FailureResponse<503>),
)]
pub async fn update(
    OwnedRun(app, caller, run): OwnedRun,
    body: JsonBody,
) -> ApiResult<Json<RunRecord>> {
    let RunUpdate { label: Nullable(label) } = body.read()?;
    let label = label.map(|schema_types::Label(label)| label);
    app.check_open()?;
    app.quota.check(&caller.principal)?;
    app.registry.label(&run, label, caller.request_id).await?;
    record(&app, run, caller.request_id).await
}

/// A deleted run.
#[derive(Serialize, ToSchema)]
pub struct RunDeleted {
    request_id: schema_types::RequestId,
    run_id: schema_types::RunId,
}

/// Delete a run: later requests for it answer 404, also a second deletion.
#[utoipa::path(
    delete, path = "/v1/runs/{id}", operation_id = "deleteRun", tag = "runs",
    responses((status = 200, description = "Deleted", body = RunDeleted), FailureResponse<503>),
)]
pub async fn delete(OwnedRun(app, caller, run): OwnedRun) -> ApiResult<Json<RunDeleted>> {
    app.registry.delete(&run, caller.request_id).await?;
    Ok(Json(RunDeleted { request_id: caller.request_id.into(), run_id: run.id().into() }))
}

/// A run that has ended.
#[derive(Serialize, ToSchema)]
pub struct RunEnded {
    request_id: schema_types::RequestId,
    run_id: schema_types::RunId,
    status: schema_types::RunState,
}

/// Stop a run and its running job; the run is cancelled.
#[utoipa::path(
    post, path = "/v1/runs/{id}/stop", operation_id = "stopRun", tag = "runs",
    responses((status = 200, description = "Stopped", body = RunEnded), FailureResponse<409>, FailureResponse<503>),
)]
pub async fn stop(OwnedRun(app, caller, run): OwnedRun) -> ApiResult<Json<RunEnded>> {
    app.registry.stop(&run, caller.request_id).await?;
    let status = RunState::Cancelled.into();
    Ok(Json(RunEnded { request_id: caller.request_id.into(), run_id: run.id().into(), status }))
}

/// Finish a run and its running job; the run is completed.
#[utoipa::path(
    post, path = "/v1/runs/{id}/finish", operation_id = "finishRun", tag = "runs",
    responses((status = 200, description = "Completed", body = RunEnded), FailureResponse<409>, FailureResponse<503>),
)]
pub async fn finish(OwnedRun(app, caller, run): OwnedRun) -> ApiResult<Json<RunEnded>> {
    app.registry.finish(&run, caller.request_id).await?;
    let status = RunState::Completed.into();
    Ok(Json(RunEnded { request_id: caller.request_id.into(), run_id: run.id().into(), status }))
}

/// Progress of a job.
#[derive(Serialize, ToSchema)]
struct JobProgress {
    /// Frames analysed so far.
    frames: u64,
    /// Presentation time of the last frame, milliseconds.
    pts_ms: i64,
    /// Progress of a reason job, once models are asked; absent otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    chunks: Option<ChunkProgress>,
}

/// Progress of a reason job over the chunks of its source.
#[derive(Serialize, ToSchema)]
struct ChunkProgress {
    /// Chunks sent to models, or waiting to reuse another chunk's answer.
    asked: u64,
    /// Chunks among them with an answer.
    answered: u64,
    /// Chunks among them that stay without an answer.
    unanswered: u64,
}

/// State of a run.
#[derive(Serialize, ToSchema)]
pub struct RunStatus {
    request_id: schema_types::RequestId,
    run_id: schema_types::RunId,
    state: schema_types::RunState,
    /// Progress of the running ingest, reason job or live session.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    progress: Option<JobProgress>,
}

/// Refresh a run's idle time.
#[utoipa::path(
    post, path = "/v1/runs/{id}/keepalive", operation_id = "keepaliveRun", tag = "runs",
    responses((status = 200, description = "Refreshed", body = RunStatus), FailureResponse<409>, FailureResponse<503>),
)]
pub async fn keepalive(OwnedRun(app, caller, run): OwnedRun) -> ApiResult<Json<RunStatus>> {
    run.check_active()?;
    app.check_open()?;
    app.quota.check(&caller.principal)?;
    app.registry.keep_alive(&run, caller.request_id).await?;
    Ok(Json(RunStatus {
        request_id: caller.request_id.into(),
        run_id: run.id().into(),
        state: RunState::Processing.into(),
        progress: None,
    }))
}

/// Fetch the state of a run.
#[utoipa::path(
    get, path = "/v1/runs/{id}/state", operation_id = "getRunState", tag = "runs",
    responses((status = 200, description = "Its state", body = RunStatus)),
)]
pub async fn state(OwnedRun(_app, caller, run): OwnedRun) -> Json<RunStatus> {
    let progress = run.progress().map(|progress| JobProgress {
        frames: progress.frames,
        pts_ms: progress.pts_ms,
        chunks: progress.chunks.map(|chunks| ChunkProgress {
            asked: chunks.asked,
            answered: chunks.answered,
            unanswered: chunks.unanswered,
        }),
    });
    Json(RunStatus {
        request_id: caller.request_id.into(),
        run_id: run.id().into(),
        state: run.lifecycle().into(),
        progress,
    })
}
