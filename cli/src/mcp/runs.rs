//! Tools about runs: their list, their descriptions, and the progress of their jobs.

use rmcp::schemars::{self, JsonSchema};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    api::{Api, run_path},
    text::{block, picked},
    tools::Told,
};
use crate::{
    client::{QUICK, given},
    error::CliError,
};

/// Fields of a run that a list shows.
pub const RUN: &[&str] = &[
    "run_id",
    "label",
    "status",
    "source",
    "source_uri",
    "model",
    "semantic",
    "active_job",
    "created_at",
    "updated_at",
];
/// Fields of a job that are shown.
const JOB: &[&str] = &[
    "job_id",
    "run_id",
    "kind",
    "status",
    "frames_done",
    "frames_total",
    "frames_per_second",
    "eta_ms",
    "started_at",
    "ended_at",
    "result",
    "error",
];
/// Most items of a list.
const MOST: u32 = 50;

/// Arguments of `list_runs`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ListRuns {
    /// Only runs in this state: pending, processing, completed, failed, cancelled or expired
    status: Option<String>,
    /// Most runs to tell of, 1 to 50; 20 when missing
    limit: Option<u32>,
    /// Position to go on from: the `next` of the answer before
    cursor: Option<String>,
}

/// Lists the newest runs.
pub async fn list(api: &Api, args: ListRuns) -> Told {
    let mut query = vec![("limit", args.limit.unwrap_or(20).clamp(1, MOST).to_string())];
    query.extend(args.status.map(|status| ("status", status)));
    query.extend(args.cursor.map(|cursor| ("cursor", cursor)));
    let page = api.page("v1/runs", &query).await?;
    let runs: Vec<Value> = items(&page.value).iter().map(|run| picked(run, RUN)).collect();
    let next = page.next.as_deref().and_then(cursor);
    Ok(vec![block(&given(json!({ "runs": runs, "next": next })))])
}

/// Returns the cursor in the query of a next page.
fn cursor(query: &str) -> Option<String> {
    let pairs = reqwest::Url::parse(&format!("http://x/?{query}")).ok()?;
    let found = pairs.query_pairs().find(|(name, _)| name == "cursor");
    found.map(|(_, value)| value.into_owned())
}

/// Arguments of `search`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Search {
    /// Text that the descriptions contain, in upper or lower case
    query: String,
    /// Only descriptions of this run
    run_id: Option<String>,
    /// Most hits to tell of, 1 to 50; 20 when missing
    limit: Option<u32>,
}

/// Searches the descriptions.
pub async fn search(api: &Api, args: Search) -> Told {
    let limit = args.limit.unwrap_or(20).clamp(1, MOST);
    let body = json!({ "query": args.query, "limit": limit, "run_id": args.run_id });
    let found = api.post("v1/search", &given(body), QUICK).await?;
    let fields = ["run_id", "pts_ms", "kind", "index_name", "snippet", "seq"];
    let hits: Vec<Value> = items(&found["hits"]).iter().map(|hit| picked(hit, &fields)).collect();
    let mut told = picked(&found, &["scanned", "total_hits", "damaged_events"]);
    let unseen = found["total_hits"].as_u64().unwrap_or(0).saturating_sub(hits.len() as u64);
    told["hits"] = hits.into();
    if unseen > 0 {
        told["left_out"] =
            format!("{unseen} later hits: ask for one run, for more words, or a greater limit")
                .into();
    }
    Ok(vec![block(&told)])
}

/// Arguments of `jobs`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Jobs {
    /// The run
    run_id: String,
    /// Only this job, with its result
    job_id: Option<String>,
    /// Seconds to wait for the end of that job, 30 at most; 0 when missing
    wait_seconds: Option<u32>,
}

/// Returns the jobs of a run, or one of them.
pub async fn jobs(api: &Api, args: Jobs) -> Told {
    let path = run_path(&args.run_id, "/jobs")?;
    let Some(job) = args.job_id else {
        let found = api.get(&path, &[]).await?;
        let jobs = items(&found["jobs"]);
        let shown = jobs.iter().rev().take(MOST as usize);
        let jobs: Vec<Value> = shown.map(|job| picked(job, JOB)).collect();
        return Ok(vec![block(&json!({ "newest_first": jobs }))]);
    };
    let wait_ms = args.wait_seconds.unwrap_or(0).min(30) * 1000;
    let path = job_path(&path, &job)?;
    let found = api.get_held(&path, &[("wait_ms", wait_ms.to_string())]).await?;
    Ok(vec![block(&picked(&found, JOB))])
}

/// Returns the path of a job; refuses ids that would lead elsewhere.
pub fn job_path(jobs: &str, job: &str) -> Result<String, CliError> {
    let digits = job.strip_prefix("job-");
    let is_id = digits.is_some_and(|digits| digits.bytes().all(|b| b.is_ascii_hexdigit()));
    let wrong = || CliError::Usage("job_id: begins with job-; `jobs` of the run tells them".into());
    is_id.then(|| format!("{jobs}/{job}")).ok_or_else(wrong)
}

/// Describes the job that a request started, and the way to wait for its end.
pub fn started(job: &Value) -> Value {
    let mut told = picked(job, JOB);
    told["next"] = "call jobs with run_id, job_id and wait_seconds".into();
    told
}

/// Returns the items of a list; none if `value` is no list.
pub fn items(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}
