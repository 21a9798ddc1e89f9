//! JSON records of jobs, with their stored answers. Answers too long to be held in memory are written to a
//! file as they are produced, and sent from that file.

use std::{fs::File, io};

use axum::{BoxError, Extension};
use http_body_util::BodyExt;
use media::{JobId, WallTime};
use serde_json::value::RawValue;

use crate::{
    api::{files::file_body, prelude::*, send_budget::BufferedBytes},
    base::stepped_body::{joined, stepped},
    record::runner::Writing,
    runs::{
        idempotency::{KeyScope, StoredResponse},
        registry::{JobOrder, JobStatus, JobView},
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
    pub fn new(job: &JobView, request_id: RequestId) -> JobDetails {
        JobDetails { request_id: request_id.into(), job: Job::new(job), result: None, error: None }
    }
}

/// Scope under which the answer of the job `id` of `owner` is stored.
pub fn scope(owner: &Principal, id: JobId) -> KeyScope {
    // "job" cannot collide with a route, which starts with a method.
    KeyScope::new(owner, "job", &id.to_string())
}

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
                    return Ok(with_result(&answer, file, bytes));
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

/// Stores the body of `response` for as long as its job is recorded; returns an equivalent response.
pub async fn keep_long(app: &Arc<App>, order: &JobOrder, response: Response) -> Response {
    let (mut parts, body) = response.into_parts();
    let (runner, (run, job)) = (Arc::clone(&app.runner), (order.run, order.id));
    let begun = app.blocking(move || runner.begin_answer(run, job)).await;
    let (body, stored) = match begun.map_err(io::Error::other).flatten() {
        Ok((writing, file)) => written(app, writing, file, body).await,
        Err(error) => (joined([body]), Err(error)),
    };
    match stored {
        // What was read is in the file, and no longer in memory.
        Ok(holds) => _ = parts.extensions.insert(holds),
        Err(error) => tracing::error!(%job, %error, "what a job came to could not be kept"),
    }
    Response::from_parts(parts, body)
}

/// Writes all of `body` to the file; returns a body that replays it, also after an error, and what that buffers.
async fn written(
    app: &Arc<App>,
    mut writing: Writing,
    file: File,
    mut body: Body,
) -> (Body, io::Result<BufferedBytes>) {
    let mut bytes = 0;
    let replayed = |bytes| file_body(file, 0..bytes);
    loop {
        let part = match body.frame().await.transpose() {
            Ok(Some(frame)) => frame.into_data().unwrap_or_default(),
            Ok(None) => break,
            Err(error) => {
                let told = io::Error::other(error.to_string());
                let ended = stepped(BoxError::from(error), None, |error| async { Err(error) });
                return (joined([replayed(bytes).0, ended]), Err(told));
            }
        };
        let given = part.clone();
        let wrote = app.blocking(move || writing.write(&given).map(|()| writing)).await;
        match wrote.map_err(io::Error::other).flatten() {
            Ok(back) => (writing, bytes) = (back, bytes + part.len() as u64),
            Err(error) => {
                let bodies = [replayed(bytes).0, Body::from(part), body];
                return (joined(bodies), Err(error));
            }
        }
    }
    let runner = Arc::clone(&app.runner);
    let stored = app.blocking(move || runner.keep_answer(writing)).await;
    let (body, holds) = replayed(bytes);
    let stored = stored.map_err(io::Error::other).flatten();
    (joined([body]), stored.map(|()| holds))
}

fn with_result(answer: &JobDetails, file: File, bytes: u64) -> Response {
    let text = serde_json::to_string(answer);
    let text = text.expect("our own types with string keys are writable");
    // `result` and `error` are both null and come last.
    let before = text.strip_suffix(NOTHING).unwrap_or(&text).to_owned() + r#","result":"#;
    let (body, holds) = file_body(file, 0..bytes);
    let bodies = [Body::from(before), body, Body::from(r#","error":null}"#)];
    let kind = [(header::CONTENT_TYPE, "application/json")];
    (Extension(holds), kind, joined(bodies)).into_response()
}

const NOTHING: &str = r#","result":null,"error":null}"#;
