//! JSON records of jobs, with their stored answers.

use media::{JobId, WallTime};
use serde_json::value::RawValue;

use super::long;
use crate::{
    api::prelude::*,
    runs::{
        idempotency::{KeyScope, StoredResponse},
        registry::{JobStatus, JobView},
    },
};

/// A job, as in lists and in the record of its run.
#[derive(Serialize, ToSchema)]
pub struct Job {
    run_id: schema_types::RunId,
    job_id: schema_types::JobId,
    kind: schema_types::JobKind,
    status: schema_types::JobStatus,
    /// Frames analysed.
    frames_done: u64,
    /// Expected number of frames, from the length of the source; null if that is unknown.
    #[schema(required = true)]
    frames_total: Option<u64>,
    /// Fraction of the expected frames that is done.
    #[schema(value_type = Option<schema_types::Fraction>, required = true)]
    fraction: Option<f64>,
    /// Frames per second so far.
    frames_per_second: f64,
    /// Remaining time at this rate, milliseconds; null if unknown.
    #[schema(required = true)]
    eta_ms: Option<u64>,
    /// Time of the request.
    started_at: schema_types::Timestamp,
    #[schema(value_type = Option<schema_types::Timestamp>, required = true)]
    ended_at: Option<String>,
}

impl Job {
    pub fn new(job: &JobView) -> Job {
        Job {
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

/// A job with its outcome.
#[derive(Serialize, ToSchema)]
pub struct JobDetails {
    request_id: schema_types::RequestId,
    #[serde(flatten)]
    #[schema(inline)]
    job: Job,
    /// Answer to the request without `Prefer`. Stored for a day if the job was requested with `Prefer` or
    /// its caller disconnected. Null otherwise, and if the server ended between the last event of the job
    /// and its answer; the events tell the outcome then.
    #[schema(value_type = Option<schema_types::AnyObject>, required = true)]
    result: Option<Box<RawValue>>,
    /// Error of the job, stored under the same conditions.
    #[schema(value_type = Option<schema_types::AnyObject>, required = true)]
    error: Option<Box<RawValue>>,
}

impl JobDetails {
    /// Creates the answer about a job without an outcome.
    pub fn new(job: &JobView, request_id: RequestId) -> JobDetails {
        JobDetails { request_id: request_id.into(), job: Job::new(job), result: None, error: None }
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
    let mut answer = JobDetails::new(job, request_id);
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
