//! Runs work on a run as a job: starts it, watches it, cancels it on Ctrl-C.
//!
//! Promises that Ctrl-C keeps what was recorded so far, and that a server which restarts is waited for as
//! long as with `events --follow`, or until Ctrl-C.

use reqwest::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use worker::CancelToken;

use crate::{
    client::{ApiClient, QUICK, api_error, given, run_path},
    error::{ApiError, CliError},
    events,
    output::{counted, grouped},
    progress,
    wire::EventRecord,
};

const PAGE: u32 = 500;
/// Time for which the server may hold an answer; the progress is fetched at that interval.
const LOOK_MS: u32 = 500;

/// Job, as in the response of `GET /v1/runs/{id}/jobs/{job_id}`.
#[derive(Deserialize)]
struct Job {
    job_id: String,
    status: String,
    frames_done: u64,
    frames_total: Option<u64>,
    frames_per_second: f64,
    eta_ms: Option<u64>,
    result: Option<Value>,
    error: Option<Value>,
}

/// Position in the events of a run, up to which they were read.
pub struct Cursor<'a> {
    run: &'a str,
    from_seq: u64,
}

impl Cursor<'_> {
    /// Starts at the first event of `run`.
    pub fn start(run: &str) -> Cursor<'_> {
        Cursor { run, from_seq: 0 }
    }

    /// Passes all new events to `on_event`; waits for one up to `wait_ms`, if given.
    fn read(
        &mut self,
        (client, cancel): (&ApiClient, &CancelToken),
        mut wait_ms: Option<u32>,
        on_event: &mut dyn FnMut(&EventRecord) -> Result<(), CliError>,
    ) -> Result<(), CliError> {
        loop {
            let (run_id, from_seq) = (self.run, self.from_seq);
            let query = json!({
                "run_id": run_id, "from_seq": from_seq, "limit": PAGE, "wait_ms": wait_ms.take(),
            });
            let reply = events::ask(client, &given(query), cancel)?;
            reply.matches.iter().try_for_each(&mut *on_event)?;
            self.from_seq = reply.next_from_seq;
            if !reply.has_more {
                return Ok(());
            }
        }
    }
}

/// Outcome of the work.
pub enum Ended {
    /// The work is done, with this result; null if the result was too long to be kept.
    Done(Value),
    /// Ctrl-C or somebody else cancelled the work; what was recorded before stays.
    Cancelled,
}

/// Returns the error of work that was cancelled, here or elsewhere.
pub fn cut(cancel: &CancelToken) -> CliError {
    match cancel.is_cancelled() {
        true => CliError::Interrupted,
        false => {
            CliError::Check("the job was cancelled elsewhere; what it recorded is kept".to_owned())
        }
    }
}

/// Starts `work` (`ingest`, `analyze`, `reason`) on a run and watches it; `on_event` gets each event as it
/// comes.
pub fn carry_out(
    client: &ApiClient,
    (run, work): (&str, &'static str),
    body: &impl Serialize,
    cancel: &CancelToken,
    cursor: &mut Cursor<'_>,
    on_event: &mut dyn FnMut(&EventRecord) -> Result<(), CliError>,
) -> Result<Ended, CliError> {
    let path = run_path(run, &format!("/{work}"))?;
    let asked = client.post_async(&path, body)?;
    // A server without jobs answers when the work is done.
    let Some(id) = asked["job_id"].as_str() else { return Ok(Ended::Done(asked)) };
    let path = run_path(run, &format!("/jobs/{id}"))?;
    let bar = progress::start(work, None);
    let (mut is_cancelled, mut looks_queued) = (false, 0);
    loop {
        if cancel.is_cancelled() && !is_cancelled {
            is_cancelled = true;
            note!("sightline: ending; what came until now is kept");
            events::retry_unreachable(Some(cancel), || cancel_job(client, run, id))?;
        }
        let wait = (!is_cancelled).then_some(LOOK_MS);
        let from = (client, cancel);
        cursor.read(from, wait, &mut |event| bar.suspend(|| on_event(event)))?;
        // A cancelled job that runs on is waited for here, as no event may come.
        let held = is_cancelled.then(|| ("wait_ms", LOOK_MS.to_string()));
        let look = || client.get(&path, held.as_slice());
        let job: Job = events::retry_unreachable(Some(cancel), look)?;
        progress::show(&bar, job.frames_done, job.frames_total, job.line());
        looks_queued += u32::from(job.status == "queued");
        // A job that begins at once may be queued at the first look.
        if job.status == "queued" && looks_queued == 2 {
            bar.suspend(|| {
                note!(
                    "sightline: queued until another job ends: GET /v1/limits says how many run at \
                     once (file_jobs, principal_remote_jobs)"
                );
            });
        }
        if matches!(job.status.as_str(), "queued" | "running") {
            if is_cancelled {
                std::thread::sleep(events::POLL_EVERY);
            }
            continue;
        }
        bar.finish_and_clear();
        cursor.read(from, None, on_event)?;
        return match job.status.as_str() {
            "succeeded" => Ok(Ended::Done(job.result.unwrap_or_default())),
            "cancelled" => Ok(Ended::Cancelled),
            _ => Err(CliError::Api(job.failure())),
        };
    }
}

/// Cancels a job; a job that has ended is no error.
fn cancel_job(client: &ApiClient, run: &str, id: &str) -> Result<(), CliError> {
    let path = run_path(run, &format!("/jobs/{id}"))?;
    match client.delete::<Value>(&path) {
        Ok(_) | Err(CliError::Api(ApiError { status: 404 | 409, .. })) => Ok(()),
        Err(error) => Err(error),
    }
}

impl Job {
    /// Describes the progress.
    fn line(&self) -> String {
        let mut line = match self.frames_total {
            Some(total) => format!("{} of {}", grouped(self.frames_done), counted(total, "frame")),
            None => counted(self.frames_done, "frame"),
        };
        if self.frames_per_second > 0.0 {
            line.push_str(&format!(", {:.0} a second", self.frames_per_second));
        }
        if let Some(left) = self.eta_ms {
            line.push_str(&format!(", {} s left", left.div_ceil(1000)));
        }
        line
    }

    fn failure(&self) -> ApiError {
        let text = self.error.as_ref().map(Value::to_string).unwrap_or_default();
        // The status that the same failure has as an HTTP response.
        let code = self.error.as_ref().and_then(|error| error["error"]["code"].as_str());
        let status = match code {
            Some("not_found") => StatusCode::NOT_FOUND,
            Some("conflict") => StatusCode::CONFLICT,
            Some("unavailable") => StatusCode::SERVICE_UNAVAILABLE,
            Some("internal_error") => StatusCode::INTERNAL_SERVER_ERROR,
            _ => StatusCode::UNPROCESSABLE_ENTITY,
        };
        let mut error = api_error(status, &text);
        if self.error.is_none() {
            error.message = format!("{} ended as {}", self.job_id, self.status);
        }
        error
    }
}

/// Adds advice to the error of a source that the server does not find.
pub fn explained(error: CliError, source: &str) -> CliError {
    let CliError::Api(mut error) = error else { return error };
    let is_path = !source.contains("://");
    let said = error.details.iter().find(|(field, _)| field == "source_uri" && is_path);
    let hint = match said.map(|(_, message)| message.as_str()) {
        Some("no ingest root is configured") => {
            "the server has no ingest root (SERVICE_INGEST_FILE_ROOTS); --upload sends a local file"
        }
        Some("not found" | "is outside the ingest roots") => {
            "not found beneath the server's ingest roots; --upload sends a local file"
        }
        _ => return CliError::Api(error),
    };
    error.message = format!("{source}: {hint}");
    error.details.retain(|(field, _)| field != "source_uri");
    CliError::Api(error)
}

/// Sends `POST` with an empty object.
pub fn post_nothing(client: &ApiClient, run: &str, rest: &str) -> Result<Value, CliError> {
    client.post(&run_path(run, rest)?, &serde_json::Map::new(), QUICK)
}
