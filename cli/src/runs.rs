//! `sightline runs`: the life of a run over HTTP: create, ingest, analyze, look, stop, delete.

use std::path::Path;

use serde::Serialize;
use serde_json::{Map, Value};

use crate::{
    client::{Client, LONG, QUICK, ServerArgs},
    error::CliError,
    output::{Out, Table, printable},
    progress::Spinner,
    upload,
    wire::RunRecord,
};

/// Arguments of `runs`.
#[derive(clap::Args)]
pub struct RunsArgs {
    #[command(subcommand)]
    command: RunsCommand,
    #[command(flatten)]
    server: ServerArgs,
    /// Print the server's JSON
    #[arg(long, global = true)]
    json: bool,
}

#[derive(clap::Subcommand)]
enum RunsCommand {
    /// List your runs
    List {
        /// Only runs in this state
        #[arg(long, value_name = "STATE")]
        status: Option<String>,
        /// Most runs to list, 1 to 1000
        #[arg(long, value_name = "N", default_value_t = 100)]
        limit: u32,
    },
    /// Create a run and print its id
    Create {
        /// Processing mode
        #[arg(long, value_parser = ["balanced", "detailed", "efficiency", "custom"])]
        mode: Option<String>,
        /// Model of the server's catalog
        #[arg(long)]
        model: Option<String>,
    },
    /// Show one run
    Show {
        /// Run id
        run: String,
    },
    /// Stop a run; its events stay
    Stop {
        /// Run id
        run: String,
    },
    /// Keep an idle run from expiring
    Keepalive {
        /// Run id
        run: String,
    },
    /// Delete a run; it is no longer found afterwards
    Delete {
        /// Run id
        run: String,
    },
    /// Decode a file that the server can read into a run
    Ingest(IngestArgs),
    /// Derive markers from the frames of a run
    Analyze(AnalyzeArgs),
}

/// Arguments of `runs ingest`.
#[derive(clap::Args)]
struct IngestArgs {
    /// Run id
    run: String,
    /// Path or URL as the server sees it, under one of its ingest roots
    source: String,
    /// The source is a file of this machine: upload it first
    #[arg(long)]
    upload: bool,
    /// Analyse so many frames a second instead of all
    #[arg(long, value_name = "RATE")]
    fps: Option<f64>,
    /// Most frames to analyse, 500000 at most [default: the server's, 512]
    #[arg(long, value_name = "N")]
    max_frames: Option<u64>,
    /// Name of the stream
    #[arg(long, value_name = "NAME")]
    stream_id: Option<String>,
}

/// Arguments of `runs analyze`.
#[derive(clap::Args)]
struct AnalyzeArgs {
    /// Run id
    run: String,
    /// Model to record; the run's own when not given
    #[arg(long)]
    model: Option<String>,
    /// Frames in a window, 2 to 256
    #[arg(long, value_name = "N")]
    window_size: Option<u32>,
    /// Length of a segment in milliseconds, 50 to 60000
    #[arg(long, value_name = "MS")]
    segment_ms: Option<u32>,
    /// Frames within which a segment confirms the one before
    #[arg(long, value_name = "N")]
    correction_window: Option<u32>,
}

/// The body of `POST /v1/runs/{id}/ingest`.
#[derive(Serialize, Default)]
pub struct IngestBody {
    pub source_uri: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sampling_policy: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fixed_fps: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_frames: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stream_id: Option<String>,
}

/// The body of `POST /v1/runs/{id}/analyze`.
#[derive(Serialize, Default)]
pub struct AnalyzeBody {
    pub model: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub window_size: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub segment_ms: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub marker_correction_window_frames: Option<u32>,
}

/// Runs `runs`.
pub fn run(args: &RunsArgs) -> Result<(), CliError> {
    let client = Client::new(&args.server)?;
    let nothing = Map::new();
    let path = |run: &str, rest| client.run_path(run, rest);
    match &args.command {
        RunsCommand::List { status, limit } => list(&client, args.json, status.clone(), *limit),
        RunsCommand::Create { mode, model } => {
            let fields = [("mode", mode), ("model", model)];
            let body: Map<String, Value> = fields
                .into_iter()
                .filter_map(|(name, value)| Some((name.to_owned(), value.clone()?.into())))
                .collect();
            let reply: Value = client.post("v1/runs", &body, QUICK)?;
            say(args.json, &reply, |reply| reply["run_id"].as_str().unwrap_or_default().to_owned())
        }
        RunsCommand::Show { run } => {
            show(args.json, &client.get::<Map<_, _>>(&path(run, "")?, &[])?)
        }
        RunsCommand::Stop { run } => {
            let reply = client.post(&path(run, "/stop")?, &nothing, QUICK)?;
            say(args.json, &reply, |_| format!("{run} stopped"))
        }
        RunsCommand::Keepalive { run } => {
            let reply = client.post(&path(run, "/keepalive")?, &nothing, QUICK)?;
            say(args.json, &reply, |_| format!("{run} kept alive"))
        }
        RunsCommand::Delete { run } => {
            let reply = client.delete(&path(run, "")?)?;
            say(args.json, &reply, |_| format!("{run} deleted"))
        }
        RunsCommand::Ingest(ingest) => {
            let source_uri = match ingest.upload {
                true => {
                    let kept = upload::send(&client, Path::new(&ingest.source))?;
                    kept["file_path"].as_str().unwrap_or_default().to_owned()
                }
                false => ingest.source.clone(),
            };
            let body = IngestBody {
                source_uri,
                sampling_policy: ingest.fps.map(|_| "fixed"),
                fixed_fps: ingest.fps,
                max_frames: ingest.max_frames,
                stream_id: ingest.stream_id.clone(),
            };
            let spinner = Spinner::start("decoding on the server");
            let reply = client.post(&path(&ingest.run, "/ingest")?, &body, LONG);
            spinner.clear();
            say(args.json, &reply?, ingested)
        }
        RunsCommand::Analyze(analyze) => self::analyze(&client, args.json, analyze),
    }
}

/// What an ingest came to, and that there is more where it stopped at its limit.
fn ingested(reply: &Value) -> String {
    let frames = &reply["decoded_frames"];
    let line = format!("{frames} frames decoded ({})", text(&reply["decoder"]));
    match reply["more_frames"].as_bool() {
        Some(true) => format!("{line}; the source has more: --max-frames asks for them"),
        _ => line,
    }
}

fn analyze(client: &Client, json: bool, args: &AnalyzeArgs) -> Result<(), CliError> {
    let model = match &args.model {
        Some(model) => model.clone(),
        None => {
            let run: RunRecord = client.get(&client.run_path(&args.run, "")?, &[])?;
            run.model.ok_or_else(|| {
                CliError::Usage("the run names no model; give one with --model".to_owned())
            })?
        }
    };
    let body = AnalyzeBody {
        model,
        window_size: args.window_size,
        segment_ms: args.segment_ms,
        marker_correction_window_frames: args.correction_window,
    };
    let reply = client.post(&client.run_path(&args.run, "/analyze")?, &body, LONG)?;
    say(json, &reply, |reply| {
        let markers = reply["markers"].as_array().map_or(0, Vec::len);
        format!("{} frames analysed, {markers} markers", reply["generated"])
    })
}

fn list(client: &Client, json: bool, status: Option<String>, limit: u32) -> Result<(), CliError> {
    let mut query = vec![("limit", limit.to_string())];
    query.extend(status.map(|status| ("status", status)));
    let runs: Vec<RunRecord> = client.get("v1/runs", &query)?;
    let mut out = Out::stdout();
    if json {
        out.json(&runs)?;
        return out.finish();
    }
    let mut table = Table::new(&["RUN", "STATUS", "MODE", "CREATED", "SOURCE"]);
    let or_dash = |value: Option<String>| value.unwrap_or_else(|| "-".to_owned());
    for run in runs {
        table.push([
            run.run_id,
            run.status,
            or_dash(run.mode),
            or_dash(run.created_at),
            or_dash(run.source_uri),
        ]);
    }
    out.table(&table)?;
    out.finish()
}

fn show(json: bool, run: &Map<String, Value>) -> Result<(), CliError> {
    let mut out = Out::stdout();
    if json {
        out.json(run)?;
        return out.finish();
    }
    for (name, value) in run.iter().filter(|(_, value)| !value.is_null()) {
        let value = under_way(value).unwrap_or_else(|| text(value));
        out.line(format_args!("{:<12}{}", printable(name), value))?;
    }
    out.finish()
}

/// How far a job has come, if `value` is one.
fn under_way(value: &Value) -> Option<String> {
    let done = value["frames_done"].as_u64()?;
    let (kind, status) = (text(&value["kind"]), text(&value["status"]));
    let mut line = match value["frames_total"].as_u64() {
        Some(total) => format!("{kind} {status}, {done} of {total} frames"),
        None => format!("{kind} {status}, {done} frames"),
    };
    if let Some(rate) = value["frames_per_second"].as_f64() {
        line.push_str(&format!(", {rate:.0} a second"));
    }
    if let Some(left_ms) = value["eta_ms"].as_u64() {
        line.push_str(&format!(", {} s left", left_ms.div_ceil(1000)));
    }
    Some(line)
}

/// Prints the server's answer, or the one line that a person wants of it.
fn say(json: bool, reply: &Value, line: impl FnOnce(&Value) -> String) -> Result<(), CliError> {
    let mut out = Out::stdout();
    if json {
        out.json(reply)?
    } else {
        out.line(printable(&line(reply)))?
    }
    out.finish()
}

fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), printable)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_becomes_one_line_of_how_far_it_has_come() {
        let job = r#"{"kind":"ingest","status":"running","frames_done":64053,"frames_total":270000,
            "frames_per_second":10711.2,"eta_ms":19227}"#;
        let started = r#"{"kind":"reason","status":"queued","frames_done":0,"frames_total":null,
            "frames_per_second":0.0,"eta_ms":null}"#;
        let rows = [
            (job, Some("ingest running, 64053 of 270000 frames, 10711 a second, 20 s left")),
            (started, Some("reason queued, 0 frames, 0 a second")),
            (r#"{"requested":false}"#, None),
            (r#""text""#, None),
        ];
        for (value, expected) in rows {
            let value = serde_json::from_str(value).expect("JSON");
            assert_eq!(under_way(&value).as_deref(), expected, "{value}");
        }
    }
}
