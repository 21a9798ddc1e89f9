//! Jobs: work of ingest, analyze and reason, which clients can leave running, look up and cancel.

mod desk;
mod layer;
mod record;

use axum::extract::FromRequestParts;
use http::request::Parts;
use media::JobId;

use super::{events::WaitMs, extract::path_id, prelude::*};
use crate::runs::registry::{JobToken, JobView};

pub use desk::Desk;
use desk::Entry;
pub use layer::{PREFERENCE_APPLIED, Prefer, Working, as_job, kind_in};
use record::answer;
pub use record::{Job, JobDetails};

/// Maximum wait for a cancelled job: its worker is killed and its last report recorded.
const CANCEL_WAIT: Duration = Duration::from_secs(30);

/// The server, the caller, and the job that the path names, with its run.
pub struct Named {
    app: Arc<App>,
    caller: Caller,
    run: Arc<Run>,
    id: JobId,
}

impl FromRequestParts<Arc<App>> for Named {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> ApiResult<Named> {
        let OwnedRun(app, caller, run) = OwnedRun::from_request_parts(parts, app).await?;
        let id = path_id(parts, &app, "job_id", "job_id").await?;
        Ok(Named { app, caller, run, id })
    }
}

impl Named {
    fn entry(&self) -> Option<Arc<Entry>> {
        self.app.tables.desk.find(self.run.id(), self.id)
    }

    async fn answer(&self) -> ApiResult {
        let Some(job) = self.view().await? else { return Err(ApiError::NotFound("job")) };
        let owner = &self.run.origin().principal;
        answer(&self.app, owner, &job, self.caller.request_id).await
    }

    async fn view(&self) -> ApiResult<Option<JobView>> {
        if let Some(job) = self.entry().and_then(|entry| entry.view()) {
            return Ok(Some(job));
        }
        let (runner, run, id) = (Arc::clone(&self.app.runner), self.run.id(), self.id);
        Ok(self.app.blocking(move || runner.find_job(run, id)).await??)
    }

    async fn wait(&self, wait: Duration) {
        if let Some(entry) = self.entry() {
            tokio::select! {
                _ = entry.ended() => {}
                () = tokio::time::sleep(wait) => {}
                () = self.app.draining.cancelled() => {}
            }
        }
    }
}

/// Parameters of a job lookup.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
pub struct JobQuery {
    /// Milliseconds to wait for the end of the job; 0 when missing.
    #[param(inline)]
    wait_ms: Option<WaitMs>,
}

declared!(JobQuery { wait_ms });

/// Fetch a job: its progress, and its outcome once it has ended.
#[utoipa::path(
    get, path = "/v1/runs/{id}/jobs/{job_id}", operation_id = "getJob", tag = "work",
    params(JobQuery),
    responses((status = 200, description = "The job", body = JobDetails), FailureResponse<503>),
)]
pub async fn fetch(
    named: Named,
    QueryParams(JobQuery { wait_ms }): QueryParams<JobQuery>,
) -> ApiResult {
    let wait = wait_ms.map_or(0, |BoundedInt(wait)| wait);
    named.wait(Duration::from_millis(wait)).await;
    named.answer().await
}

/// Cancel a job: its recorded events stay, and its run goes on.
///
/// Answers when the worker has stopped. A job that has ended is not changed.
#[utoipa::path(
    delete, path = "/v1/runs/{id}/jobs/{job_id}", operation_id = "cancelJob", tag = "work",
    responses((status = 200, description = "The job", body = JobDetails), FailureResponse<503>),
)]
pub async fn cancel(named: Named) -> ApiResult {
    if let Some(entry) = named.entry() {
        entry.token.call_off();
    }
    named.wait(CANCEL_WAIT).await;
    named.answer().await
}

/// The jobs of a run.
#[derive(Serialize, ToSchema)]
pub struct JobList {
    request_id: schema_types::RequestId,
    run_id: schema_types::RunId,
    /// Jobs in the order of their requests, without results.
    jobs: Vec<Job>,
}

/// List the jobs of a run: running ones, and those of the last day.
///
/// An analysis that has ended is listed only if it was requested with `Prefer: respond-async`.
#[utoipa::path(
    get, path = "/v1/runs/{id}/jobs", operation_id = "listJobs", tag = "work",
    responses((status = 200, description = "The jobs", body = JobList), FailureResponse<503>),
)]
pub async fn list(OwnedRun(app, caller, run): OwnedRun) -> ApiResult<Json<JobList>> {
    let (runner, id) = (Arc::clone(&app.runner), run.id());
    let under_way: Vec<_> =
        app.tables.desk.of_run(id).iter().filter_map(|entry| entry.view()).collect();
    let mut jobs = app.blocking(move || runner.jobs_of(id)).await??;
    // The state in memory is newer than the stored record.
    jobs.retain(|job| under_way.iter().all(|other| other.order.id != job.order.id));
    jobs.extend(under_way);
    jobs.sort_by_key(|job| (job.order.started_at, job.order.id));
    let jobs = jobs.iter().map(Job::new).collect();
    Ok(Json(JobList { request_id: caller.request_id.into(), run_id: id.into(), jobs }))
}
