//! JSON records of jobs, with their stored answers.

use std::sync::Arc;

use media::{JobId, RequestId, WallTime};
use serde::Serialize;
use serde_json::value::RawValue;
use utoipa::ToSchema;

use axum::{Json, response::IntoResponse};

use super::long;
use crate::{
    api::{ApiResult, App, openapi::schema_types},
    base::keys::Principal,
    runs::{
        idempotency::{KeyScope, StoredResponse},
        registry::{JobStatus, JobView},
    },
};

/// A job as lists and the run's record show it.
#[derive(Serialize, ToSchema)]
#[schema(as = Job)]
pub struct JobRecord {
    run_id: schema_types::RunId,
    job_id: schema_types::JobId,
    kind: schema_types::JobKind,
    status: schema_types::JobStatus,
    /// Frames analysed.
    frames_done: u64,
    /// Frames that there will be, by what the source says of its length; null where it does not.
    #[schema(required = true)]
    frames_total: Option<u64>,
    /// Share of them that is done.
    #[schema(value_type = Option<schema_types::Fraction>, required = true)]
    fraction: Option<f64>,
    /// Rate of the work so far.
    frames_per_second: f64,
    /// Time that is left at this rate; null where that is not known.
    #[schema(required = true)]
    eta_ms: Option<u64>,
    /// Time at which it was requested.
    started_at: schema_types::Timestamp,
    #[schema(value_type = Option<schema_types::Timestamp>, required = true)]
    ended_at: Option<String>,
}

impl JobRecord {
    /// Creates the record of `job`.
    pub fn new(job: &JobView) -> JobRecord {
        JobRecord {
            run_id: job.order.run.into(),
            job_id: job.order.id.into(),
            kind: job.order.kind.into(),
            status: job.status.into(),
            frames_done: job.frames_done,
            frames_total: job.frames_total,
            fraction: job.fraction(),
            frames_per_second: job.frames_per_second(),
            eta_ms: job.eta_ms(),
            started_at: job.order.started_at.into(),
            ended_at: job.ended_at.map(WallTime::rfc3339),
        }
    }
}

/// A job, and what came of it.
#[derive(Serialize, ToSchema)]
#[schema(as = JobDetails)]
pub struct JobAnswer {
    request_id: schema_types::RequestId,
    #[serde(flatten)]
    #[schema(inline)]
    job: JobRecord,
    /// Answer to the request without `Prefer`: kept for a day where the job was requested with it
    /// or its caller went away; null elsewhere, and where the server ended between the last event
    /// of the job and its answer: the events tell then.
    #[schema(value_type = Option<schema_types::AnyObject>, required = true)]
    result: Option<Box<RawValue>>,
    /// Its failure, likewise.
    #[schema(value_type = Option<schema_types::AnyObject>, required = true)]
    error: Option<Box<RawValue>>,
}

impl JobAnswer {
    /// Creates the answer about a job without an outcome.
    pub fn new(job: &JobView, request_id: RequestId) -> JobAnswer {
        JobAnswer {
            request_id: request_id.into(),
            job: JobRecord::new(job),
            result: None,
            error: None,
        }
    }
}

/// Scope under which the answer of the job `id` of `owner` is stored.
pub fn scope(owner: &Principal, id: JobId) -> KeyScope {
    // "job" cannot collide with a route, which starts with a method.
    KeyScope::new(owner, "job", &id.to_string())
}

/// Answers with `job` and its stored outcome.
pub async fn answer(
    app: &Arc<App>,
    owner: &Principal,
    job: &JobView,
    request_id: RequestId,
) -> ApiResult {
    let mut answer = JobAnswer::new(job, request_id);
    if job.status.is_over() {
        let (keys, scope) = (Arc::clone(&app.idempotency), scope(owner, job.order.id));
        let kept = app.blocking(move || keys.kept(&scope)).await??;
        match kept {
            Some(kept) if (200..300).contains(&kept.status) => answer.result = raw(kept),
            Some(kept) => answer.error = raw(kept),
            None if job.status == JobStatus::Interrupted => answer.error = Some(interrupted(job)),
            None => {
                let (runner, order) = (Arc::clone(&app.runner), job.order);
                let long = app.blocking(move || runner.answer(order.run, order.id)).await?;
                if let Some((file, bytes)) = long {
                    return Ok(long::with_result(&answer, file, bytes));
                }
            }
        }
    }
    Ok(Json(answer).into_response())
}

fn raw(kept: StoredResponse) -> Option<Box<RawValue>> {
    // Valid JSON when it was stored.
    String::from_utf8(kept.body).ok().and_then(|text| RawValue::from_string(text).ok())
}

/// Returns the error of a job interrupted by the end of the server.
fn interrupted(job: &JobView) -> Box<RawValue> {
    let envelope = serde_json::json!({ "error": {
        "code": "unavailable",
        "message": "interrupted: the server ended while the job was under way",
        "request_id": job.order.request.to_string(),
        "details": [],
    }});
    serde_json::value::to_raw_value(&envelope).expect("our own text is writable")
}
