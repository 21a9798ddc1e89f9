//! Middleware that turns a request into a job: joins a running one, and answers early if asked to.
//!
//! The work runs in its own task: the caller may disconnect and find the job later. A request refused
//! before its work begins gets a normal error and leaves no job.

use axum::{
    extract::{FromRequestParts, State},
    middleware::Next,
};
use http::request::Parts;
use http_body_util::BodyExt;
use parking_lot::Mutex;
use tracing::Instrument;

use super::{
    JobToken, JobView,
    desk::{Entry, Outcome},
    record::{JobDetails, keep_long, scope},
};
use crate::{
    api::{
        error::ErrorExtension,
        extract::{caller, whole},
        idempotency::{JoinsOnly, Taken, run_in, taken},
        prelude::*,
    },
    base::clock::wall_now,
    record::runner::IngestError,
    runs::{
        idempotency::{BodyDigest, StoredResponse},
        registry::{JobKind, JobStatus},
    },
};

const PREFER: HeaderName = HeaderName::from_static("prefer");
/// Response header that names the preference applied (RFC 7240).
pub const PREFERENCE_APPLIED: HeaderName = HeaderName::from_static("preference-applied");
const RESPOND_ASYNC: &str = "respond-async";

/// Header that asks for an early answer; documented here, read by `prefers_async`.
#[derive(IntoParams)]
#[into_params(parameter_in = Header)]
#[expect(dead_code, reason = "says what `prefers_async` reads")]
pub struct Prefer {
    /// `respond-async` (RFC 7240) answers 202 with the job as soon as the work is accepted; it continues if
    /// the caller disconnects. Without it, the answer comes at the end.
    #[param(rename = "prefer")]
    prefer: Option<String>,
}

/// Job of a request, as an extension for its handler.
#[derive(Clone)]
pub struct Working {
    pub token: JobToken,
    /// True if the caller does not wait (`respond-async`), so the job is found by its record.
    pub is_left: bool,
}

impl FromRequestParts<Arc<App>> for Working {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &Arc<App>) -> ApiResult<Working> {
        let working = parts.extensions.get::<Working>().cloned();
        working.ok_or(ApiError::Bug("a route outside the layer of jobs asks for its job"))
    }
}

/// Returns the kind of job that the path starts.
pub fn kind_in(path: &str) -> Option<JobKind> {
    run_in(path).and_then(|_| JobKind::from_name(path.rsplit('/').next()?))
}

fn prefers_async(headers: &HeaderMap) -> bool {
    let values = headers.get_all(PREFER).into_iter().filter_map(|value| value.to_str().ok());
    let mut names =
        values.flat_map(|value| value.split(',')).filter_map(|one| one.split(';').next());
    names.any(|name| name.trim().eq_ignore_ascii_case(RESPOND_ASYNC))
}

/// Carries out a request as a job of its run.
pub async fn as_job(State(app): State<Arc<App>>, request: Request, next: Next) -> ApiResult {
    let caller = caller(&request)?;
    let path = request.uri().path();
    let owned = run_in(path).and_then(|run| app.registry.find(run, &caller.principal));
    let (Some(run), Some(kind)) = (owned, kind_in(path)) else {
        // The handler returns the error.
        return Ok(next.run(with_job(request, JobToken::default(), false)).await);
    };
    let is_async = prefers_async(request.headers());
    let may_begin = request.extensions().get::<JoinsOnly>().is_none();
    let (parts, body) = whole(request, &app).await?;
    let tenant = caller.tenant.as_deref().unwrap_or_default();
    let fingerprint = BodyDigest::of(&[kind.as_str().as_bytes(), tenant.as_bytes(), &body]);
    if is_async {
        let (keys, owner) = (Arc::clone(&app.idempotency), caller.principal.clone());
        if let Some(frees_in) = app.blocking(move || keys.frees_in(&owner)).await?? {
            return Err(ApiError::KeysFull { frees_in });
        }
    }
    let (entry, is_new) =
        app.tables.desk.ask(run.id(), kind, caller.request_id, fingerprint, may_begin)?;
    let told = entry.waits();
    if is_new {
        let ending = Ending { app: Arc::clone(&app), entry: Arc::clone(&entry), outcome: None };
        let request = Request::from_parts(parts, Body::from(body));
        let request = with_job(request, entry.token.clone(), is_async);
        if is_async {
            entry.keep();
        }
        tokio::spawn(ending.carry_out(caller.clone(), request, next).in_current_span());
    }
    // A job that ends without storing its answer gives it to whoever joins it.
    if is_async && entry.keep() {
        let mut refused = told.clone();
        tokio::select! {
            biased;
            () = entry.token.accepted() => return Ok(accepted(&entry, &caller)),
            _ = refused.wait_for(Option::is_some) => {}
        }
    }
    entry.answered(told).await
}

fn with_job(mut request: Request, token: JobToken, is_left: bool) -> Request {
    request.extensions_mut().insert(Working { token, is_left });
    request
}

fn accepted(entry: &Entry, caller: &Caller) -> Response {
    let order = &entry.order;
    let Some(job) = entry.token.view() else {
        return ApiError::Bug("a job that nobody asked for").into_response();
    };
    let body = JobDetails::new(&job, caller.request_id);
    let location = format!("/v1/runs/{}/jobs/{}", order.run, order.id);
    let mut response = (StatusCode::ACCEPTED, Json(body)).into_response();
    let headers = response.headers_mut();
    headers.insert(PREFERENCE_APPLIED, HeaderValue::from_static(RESPOND_ASYNC));
    if let Ok(location) = HeaderValue::from_str(&location) {
        headers.insert(header::LOCATION, location);
    }
    response
}

/// Guard of a job that ends it when dropped.
struct Ending {
    app: Arc<App>,
    entry: Arc<Entry>,
    outcome: Option<Outcome>,
}

impl Drop for Ending {
    fn drop(&mut self) {
        let died = || Outcome::Failed(Arc::new(ApiError::Bug("a handler panicked")));
        self.app.tables.desk.end(&self.entry, self.outcome.take().unwrap_or_else(died));
    }
}

impl Ending {
    async fn carry_out(mut self, caller: Caller, request: Request, next: Next) {
        // A drain waits for the record of the job, too.
        let _held = self.app.runner.hold();
        let response = next.run(request).await;
        let outcome = outcome(response, caller.request_id).await;
        if self.entry.token.is_accepted() {
            self.record(&caller, &outcome).await;
        }
        self.outcome = Some(outcome);
    }

    /// Records the end of the job, and stores its answer if that is required.
    async fn record(&self, caller: &Caller, outcome: &Outcome) {
        let (app, entry) = (&self.app, &self.entry);
        let Some(job) = entry.token.view() else { return };
        let is_kept = entry.decide_storage();
        if is_kept {
            self.keep(caller, outcome).await;
        }
        let status = match outcome {
            Outcome::Answered(_) | Outcome::Long(_) => JobStatus::Succeeded,
            Outcome::Failed(error) if !ended_by_a_shutdown(error) && entry.token.is_cancelled() => {
                JobStatus::Cancelled
            }
            Outcome::Failed(_) => JobStatus::Failed,
        };
        // An analysis that a caller waited for leaves only its events.
        if is_kept || entry.order.kind != JobKind::Analysis {
            let ended = JobView { status, ended_at: Some(wall_now()), ..job };
            app.runner.end_job(entry.order, Some(ended)).await;
        }
    }

    async fn keep(&self, caller: &Caller, outcome: &Outcome) {
        let answer = match outcome {
            Outcome::Answered(answer) => StoredResponse::clone(answer),
            Outcome::Failed(error) => {
                let response = error.envelope(caller.request_id);
                let (status, body) = (response.status().as_u16(), response.into_body());
                let Ok(body) = body.collect().await else { return };
                StoredResponse { status, headers: Vec::new(), body: body.to_bytes().into() }
            }
            Outcome::Long(held) => {
                // Recorded before the file exists: files without a record are removed by the sweep.
                if let Some(job) = self.entry.token.view()
                    && let Err(error) = self.app.runner.begin_job(job).await
                {
                    tracing::warn!(%error, "a long answer is not kept");
                    return;
                }
                let answer = held.lock().take();
                if let Some(answer) = answer {
                    let kept = keep_long(&self.app, &self.entry.order, answer).await;
                    *held.lock() = Some(kept);
                }
                return;
            }
        };
        let (keys, scope) =
            (Arc::clone(&self.app.idempotency), scope(&caller.principal, self.entry.order.id));
        let fingerprint = BodyDigest::of(&[&answer.body]);
        let kept = self.app.blocking(move || keys.keep(&scope, fingerprint, answer)).await;
        if let Err(error) = kept.and_then(|kept| Ok(kept?)) {
            let job = self.entry.order.id;
            tracing::error!(%job, %error, "what a job came to could not be kept");
        }
    }
}

fn ended_by_a_shutdown(error: &ApiError) -> bool {
    matches!(error, ApiError::Draining | ApiError::Ingest(IngestError::Shutdown))
}

/// Returns the outcome of `response`, read whole unless it is too long.
async fn outcome(mut response: Response, request_id: RequestId) -> Outcome {
    if let Some(ErrorExtension(error)) = response.extensions_mut().remove::<ErrorExtension>() {
        return Outcome::Failed(error);
    }
    match taken(response, request_id).await {
        Ok(Taken::Whole(answer, _)) => Outcome::Answered(Arc::new(answer)),
        Ok(Taken::More(response)) => Outcome::Long(Arc::new(Mutex::new(Some(response)))),
        Err(error) => Outcome::Failed(Arc::new(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_preference_itself_leaves_work_to_itself() {
        let rows: [(&[&str], bool); 8] = [
            (&[], false),
            (&["respond-async"], true),
            (&["Respond-Async"], true),
            (&["wait=10, respond-async"], true),
            (&["return=minimal", "respond-async; foo=bar"], true),
            (&["respond-asynchronously"], false),
            (&["wait=10"], false),
            (&["x=\"respond\""], false),
        ];
        for (values, expected) in rows {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(PREFER, HeaderValue::from_str(value).expect("a value"));
            }
            assert_eq!(prefers_async(&headers), expected, "{values:?}");
        }
    }

    #[test]
    fn paths_of_work_name_its_kind() {
        let run = format!("/v1/runs/run-{}", "0".repeat(32));
        let rows = [
            ("/ingest", Some(JobKind::Ingest)),
            ("/analyze", Some(JobKind::Analysis)),
            ("/reason", Some(JobKind::Reasoning)),
            ("/stop", None),
            ("", None),
        ];
        for (tail, expected) in rows {
            assert_eq!(kind_in(&format!("{run}{tail}")), expected, "{tail}");
        }
        assert_eq!(kind_in("/v1/infer"), None);
    }
}
