//! Tools that change something: start jobs, stop runs, cancel jobs.

use rmcp::schemars::{self, JsonSchema};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    api::{Api, run_path},
    runs::{job_path, started},
    text::{block, picked},
    tools::Told,
};
use crate::{
    client::{QUICK, given},
    error::CliError,
};

/// Arguments of `start_ingest`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StartIngest {
    /// Path, upload or URL as the server sees it; it refuses what it may not read
    source_uri: String,
    /// The run to add it to; a new one when missing
    run_id: Option<String>,
    /// Label of a new run
    label: Option<String>,
    /// Frames to analyse for each second of the video, 0.2 to 120; every frame when missing
    fps: Option<f64>,
    /// Most frames to analyse, 1 to 500000; 512 when missing
    max_frames: Option<u64>,
}

/// Starts decoding a source.
pub async fn ingest(api: &Api, args: StartIngest) -> Told {
    let body = given(json!({
        "source_uri": args.source_uri,
        "sampling_policy": args.fps.map(|_| "fixed"),
        "fixed_fps": args.fps,
        "max_frames": args.max_frames,
    }));
    let job = match args.run_id {
        Some(run) => begun(api, &run, "/ingest", &body).await?,
        None => begun_anew(api, &json!({ "label": args.label }), "/ingest", &body).await?,
    };
    Ok(vec![block(&job)])
}

/// Starts a job in a new run, which is deleted if the job is refused.
async fn begun_anew(api: &Api, about: &Value, rest: &str, body: &Value) -> Result<Value, CliError> {
    let made = api.post("v1/runs", about, QUICK).await?;
    let run = made["run_id"].as_str().unwrap_or_default();
    let begun = begun(api, run, rest, body).await;
    if let Err(CliError::Api(_)) = begun {
        // The refusal is the error to report; a run that stays empty expires.
        api.delete(&run_path(run, "")?).await.ok();
    }
    begun
}

/// Starts a job in `run`, and returns its description.
async fn begun(api: &Api, run: &str, rest: &str, body: &Value) -> Result<Value, CliError> {
    let job = api.start(&run_path(run, rest)?, body).await?;
    Ok(started(&job))
}

/// Arguments of `start_analysis`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StartAnalysis {
    /// The run, which has ingested something
    run_id: String,
    /// The model that the results are meant for, none of which is asked; the run's own when missing
    model: Option<String>,
}

/// Starts deriving markers.
pub async fn analysis(api: &Api, args: StartAnalysis) -> Told {
    let model = match args.model {
        Some(model) => model,
        None => {
            let run = api.get(&run_path(&args.run_id, "")?, &[]).await?;
            let own = run["model"].as_str().map(str::to_owned);
            own.ok_or_else(|| CliError::Usage("the run names no model: give one".to_owned()))?
        }
    };
    Ok(vec![block(&begun(api, &args.run_id, "/analyze", &json!({ "model": model })).await?)])
}

/// Arguments of `start_reasoning`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StartReasoning {
    /// Path, upload or URL as the server sees it; it refuses what it may not read
    source_uri: String,
    /// Question for the model about each part of the video
    question: String,
    /// A model of the server
    model: String,
    /// Label of the new run
    label: Option<String>,
    /// Frames to analyse for each second of the video, 0.2 to 120; every frame when missing
    fps: Option<f64>,
    /// Most frames to analyse, 1 to 500000; 512 when missing
    max_frames: Option<u64>,
}

/// Starts a job in which a model describes a source.
pub async fn reasoning(api: &Api, args: StartReasoning) -> Told {
    let about = json!({ "label": args.label, "model": args.model });
    let body = given(json!({
        "source_uri": args.source_uri,
        "model": args.model,
        "semantic_prompt": args.question,
        "include_frame_metadata": false,
        "sampling_policy": args.fps.map(|_| "fixed"),
        "fixed_fps": args.fps,
        "max_frames": args.max_frames,
    }));
    Ok(vec![block(&begun_anew(api, &about, "/reason", &body).await?)])
}

/// Arguments of `stop_run`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StopRun {
    /// The run
    run_id: String,
}

/// Stops a run.
pub async fn stop(api: &Api, args: StopRun) -> Told {
    let stopped = api.post(&run_path(&args.run_id, "/stop")?, &json!({}), QUICK).await?;
    Ok(vec![block(&picked(&stopped, &["run_id", "status"]))])
}

/// Arguments of `cancel_job`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CancelJob {
    /// The run
    run_id: String,
    /// The job, as `jobs` tells it
    job_id: String,
}

/// Cancels a job.
pub async fn cancel(api: &Api, args: CancelJob) -> Told {
    let path = job_path(&run_path(&args.run_id, "/jobs")?, &args.job_id)?;
    let job = api.delete(&path).await?;
    Ok(vec![block(&picked(&job, &["job_id", "run_id", "kind", "status", "frames_done"]))])
}
