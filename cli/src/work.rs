//! Work of a run as a job: asked for, watched while it goes on, cancelled by Ctrl-C.
//!
//! Promises that Ctrl-C keeps what was recorded until then, and that a server which restarts meanwhile
//! is waited for as long as `events --follow` waits.

use reqwest::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use worker::CancelToken;

use crate::{
    client::{ApiClient, LONG, QUICK, api_error},
    error::{ApiError, CliError},
    events::{self, Query},
    output::grouped,
    progress::FrameProgress,
    wire::EventRecord,
};

const PAGE: u32 = 500;
/// Longest time that the server holds the answer to a query for events; progress is looked at as often.
const LOOK_MS: u32 = 500;

/// A job as `GET /v1/runs/{id}/jobs/{job_id}` gives it.
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

/// Position up to which the events of a run were read.
pub struct Cursor<'a> {
    run: &'a str,
    from_seq: u64,
}

impl Cursor<'_> {
    /// The first event of `run`.
    pub fn start(run: &str) -> Cursor<'_> {
        Cursor { run, from_seq: 0 }
    }

    /// Reads on; waits for an event where `wait_ms` says so.
    pub fn read(
        &mut self,
        client: &ApiClient,
        wait_ms: Option<u32>,
        on_event: &mut dyn FnMut(&EventRecord) -> Result<(), CliError>,
    ) -> Result<(), CliError> {
        let mut wait_ms = wait_ms;
        loop {
            let (run_id, from_seq) = (self.run, self.from_seq);
            let query =
                Query { run_id, kind: None, from_seq, limit: PAGE, wait_ms: wait_ms.take() };
            let reply = events::ask(client, &query, true)?;
            reply.matches.iter().try_for_each(&mut *on_event)?;
            self.from_seq = reply.next_from_seq;
            if !reply.has_more {
                return Ok(());
            }
        }
    }
}

/// End of a piece of work.
pub enum Ended {
    /// The work has ended, with this answer; null where it was too long to be kept.
    Done(Value),
    /// Ctrl-C ended it: what was recorded until then stays.
    Cancelled,
}

/// Asks for `work` (`ingest`, `analyze`, `reason`) of a run and watches it; `on_event` is given each
/// event as it comes.
pub fn carry_out(
    client: &ApiClient,
    (run, work): (&str, &'static str),
    body: &impl Serialize,
    cancel: &CancelToken,
    cursor: &mut Cursor<'_>,
    on_event: &mut dyn FnMut(&EventRecord) -> Result<(), CliError>,
) -> Result<Ended, CliError> {
    let path = client.run_path(run, &format!("/{work}"))?;
    let asked = client.post_async(&path, body, LONG)?;
    // A server without jobs answers when it is done.
    let Some(id) = asked["job_id"].as_str() else { return Ok(Ended::Done(asked)) };
    let path = client.run_path(run, &format!("/jobs/{id}"))?;
    let mut bar = FrameProgress::start(work);
    let mut is_cancelled = false;
    loop {
        if cancel.is_cancelled() && !is_cancelled {
            is_cancelled = true;
            cancel_job(client, run, id)?;
        }
        let wait = (!is_cancelled).then_some(LOOK_MS);
        cursor.read(client, wait, &mut |event| bar.aside(|| on_event(event)))?;
        let job: Job = events::retry_unreachable(true, || client.get(&path, &[]))?;
        bar.at(job.frames_done, job.frames_total, job.line());
        if matches!(job.status.as_str(), "queued" | "running") {
            continue;
        }
        bar.clear();
        cursor.read(client, None, on_event)?;
        return match job.status.as_str() {
            "succeeded" => Ok(Ended::Done(job.result.unwrap_or_default())),
            "cancelled" => Ok(Ended::Cancelled),
            _ => Err(CliError::Api(job.failure())),
        };
    }
}

/// Cancels a job, which may have ended meanwhile.
fn cancel_job(client: &ApiClient, run: &str, id: &str) -> Result<(), CliError> {
    note!("sightline: ending; what came until now is kept");
    let path = client.run_path(run, &format!("/jobs/{id}"))?;
    match client.delete::<Value>(&path) {
        Ok(_) | Err(CliError::Api(ApiError { status: 404 | 409, .. })) => Ok(()),
        Err(error) => Err(error),
    }
}

impl Job {
    /// Progress in words.
    fn line(&self) -> String {
        let mut line = match self.frames_total {
            Some(total) => format!("{} of {} frames", grouped(self.frames_done), grouped(total)),
            None => format!("{} frames", grouped(self.frames_done)),
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
        // The status that the same failure has as an answer.
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

/// Adds to the error of a source that the server does not find what can be done about it.
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

/// `POST` with nothing to say, for what a command does on its way out.
pub fn post_nothing(client: &ApiClient, run: &str, rest: &str) -> Result<Value, CliError> {
    client.post(&client.run_path(run, rest)?, &serde_json::Map::new(), QUICK)
}
