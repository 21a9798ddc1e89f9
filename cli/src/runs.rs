//! `sightline runs`: manages runs over HTTP, step by step.

mod steps;

use serde_json::{Map, Value, json};

use crate::{
    client::{ApiClient, QUICK, ServerArgs, run_path},
    error::CliError,
    output::{self, StdoutWriter, TextTable, or_dash, printable, say, text},
    wire::RunRecord,
    work::post_nothing,
};

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
        /// Label
        #[arg(long)]
        label: Option<String>,
    },
    /// Show one run
    Show {
        /// Run id
        run: String,
    },
    /// Set the label of a run
    Label {
        /// Run id
        run: String,
        /// New label; without one the label is removed
        label: Option<String>,
    },
    /// Complete a run: it accepts no more work
    Finish {
        /// Run id
        run: String,
    },
    /// Stop a run, or all that are active; their events stay
    Stop {
        /// Run id
        #[arg(required_unless_present = "all", conflicts_with = "all")]
        run: Option<String>,
        /// Every active run of yours
        #[arg(long)]
        all: bool,
    },
    /// Show the health of a live run: loss, jitter, bit rate, and a rating
    Health {
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
    /// Decode a source that the server can read into a run
    Ingest(steps::IngestArgs),
    /// Derive markers from the frames of a run
    Analyze(steps::AnalyzeArgs),
    /// Decode a source, ask a model about it chunk by chunk, derive markers, end the run
    Reason(steps::ReasonArgs),
}

pub fn run(args: &RunsArgs) -> Result<(), CliError> {
    let client = ApiClient::new(&args.server)?;
    let json = args.json;
    match &args.command {
        RunsCommand::List { status, limit } => list(&client, json, status.clone(), *limit),
        RunsCommand::Create { mode, model, label } => {
            let fields = [("mode", mode), ("model", model), ("label", label)];
            let body: Map<String, Value> = fields
                .into_iter()
                .filter_map(|(name, value)| Some((name.to_owned(), value.clone()?.into())))
                .collect();
            let reply: Value = client.post("v1/runs", &body, QUICK)?;
            say(json, &reply, |reply| text(&reply["run_id"]))
        }
        RunsCommand::Show { run } => {
            show(json, &client.get::<Map<_, _>>(&run_path(run, "")?, &[])?)
        }
        RunsCommand::Label { run, label } => {
            let reply = client.patch(&run_path(run, "")?, &json!({ "label": label }))?;
            say(json, &reply, |_| format!("{run} labelled"))
        }
        RunsCommand::Finish { run } => {
            let reply = post_nothing(&client, run, "/finish")?;
            say(json, &reply, |_| format!("{run} finished"))
        }
        RunsCommand::Stop { run: Some(run), .. } => {
            let reply = post_nothing(&client, run, "/stop")?;
            say(json, &reply, |_| format!("{run} stopped"))
        }
        RunsCommand::Stop { run: None, .. } => stop_all(&client, json),
        RunsCommand::Health { run } => {
            show(json, &client.get::<Map<_, _>>(&run_path(run, "/health")?, &[])?)
        }
        RunsCommand::Keepalive { run } => {
            let reply = post_nothing(&client, run, "/keepalive")?;
            say(json, &reply, |_| format!("{run} kept alive"))
        }
        RunsCommand::Delete { run } => {
            let reply = client.delete(&run_path(run, "")?)?;
            say(json, &reply, |_| format!("{run} deleted"))
        }
        RunsCommand::Ingest(ingest) => ingest.run(&client, json),
        RunsCommand::Analyze(analyze) => analyze.run(&client, json),
        RunsCommand::Reason(reason) => reason.run(&client, json),
    }
}

/// Stops every active run of the caller.
fn stop_all(client: &ApiClient, json: bool) -> Result<(), CliError> {
    let mut runs = Vec::new();
    for status in ["pending", "processing"] {
        let query = [("status", status.to_owned()), ("limit", "1000".to_owned())];
        runs.extend(client.pages::<RunRecord>("v1/runs", &query, "")?);
    }
    let mut out = StdoutWriter::stdout();
    for RunRecord { run_id, .. } in &runs {
        match post_nothing(client, run_id, "/stop") {
            Ok(reply) if json => out.json_line(&reply)?,
            Ok(_) => out.line(format!("{run_id} stopped"))?,
            // The run has ended meanwhile.
            Err(CliError::Api(error)) if matches!(error.status, 404 | 409) => {}
            Err(error) => return Err(error),
        }
    }
    out.finish()?;
    if runs.is_empty() {
        note!("sightline: no run of yours is active");
    }
    Ok(())
}

fn list(
    client: &ApiClient,
    json: bool,
    status: Option<String>,
    limit: u32,
) -> Result<(), CliError> {
    let mut query = vec![("limit", limit.to_string())];
    query.extend(status.map(|status| ("status", status)));
    let runs: Vec<Value> = client.get("v1/runs", &query)?;
    let row = |run: &Value| {
        let live = || match run["session_id"].is_null() {
            true => "-".to_owned(),
            false => or_dash(&run["source"]),
        };
        [
            text(&run["run_id"]),
            text(&run["status"]),
            under_way(&run["active_job"]).unwrap_or_else(live),
            or_dash(&run["created_at"]),
            or_dash(&run["label"]),
            or_dash(&run["source_uri"]),
        ]
    };
    let columns = ["RUN", "STATUS", "NOW", "CREATED", "LABEL", "SOURCE"];
    output::print(json, &runs, |runs| TextTable::of(columns, runs.iter().map(row)))
}

fn show(json: bool, run: &Map<String, Value>) -> Result<(), CliError> {
    let mut out = StdoutWriter::stdout();
    if json {
        out.json(run)?;
        return out.finish();
    }
    let fields: Vec<_> = run.iter().filter(|(_, value)| !value.is_null()).collect();
    let width = fields.iter().map(|(name, _)| name.len()).max().unwrap_or(0) + 2;
    for (name, value) in fields {
        let value = under_way(value).unwrap_or_else(|| text(value));
        out.line(format_args!("{:<width$}{value}", printable(name)))?;
    }
    out.finish()
}

/// Describes the progress of a job, if `value` is one.
pub fn under_way(value: &Value) -> Option<String> {
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
