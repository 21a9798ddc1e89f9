//! The steps of a run that do its work: ingest, analyze, reason.

use std::path::Path;

use media::FrameRate;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::{
    activity,
    analyze::rate,
    client::{ApiClient, LONG, given, run_path},
    error::CliError,
    interrupt, models,
    output::{StdoutWriter, counted, say, text},
    run::{reason_body, semantic},
    thresholds::GateArgs,
    upload,
    wire::RunRecord,
    work::{self, Cursor, Ended, explained},
    zones::ZoneArgs,
};

/// Source and sampling of an ingest.
#[derive(clap::Args)]
struct SourceArgs {
    /// Path or URL as the server sees it, under one of its ingest roots
    source: String,
    /// The source is a file of this machine: upload it first
    #[arg(long)]
    upload: bool,
    /// Frames to analyse a second, 0.2 to 120 [default: all]
    #[arg(long, value_name = "RATE", value_parser = rate)]
    fps: Option<FrameRate>,
    /// Most frames to analyse, 500000 at most [default: the server's, 512]
    #[arg(long, value_name = "N")]
    max_frames: Option<u64>,
    /// Name of the stream
    #[arg(long, value_name = "NAME")]
    stream_id: Option<String>,
    #[command(flatten)]
    gate: GateArgs,
    #[command(flatten)]
    zones: ZoneArgs,
}

#[derive(clap::Args)]
pub struct IngestArgs {
    /// Run id
    run: String,
    #[command(flatten)]
    source: SourceArgs,
}

#[derive(clap::Args)]
pub struct AnalyzeArgs {
    /// Run id
    run: String,
    /// Model to record, none is asked [default: the run's own, or else any]
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
    /// Show the effect of these thresholds and zones, and record nothing
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    gate: GateArgs,
    #[command(flatten)]
    zones: ZoneArgs,
}

#[derive(clap::Args)]
pub struct ReasonArgs {
    /// Run id
    run: String,
    /// Question about the footage
    #[arg(long, short, value_name = "TEXT")]
    prompt: String,
    /// Model to ask [default: the run's own, or else the first that is ready]
    #[arg(long)]
    model: Option<String>,
    #[command(flatten)]
    source: SourceArgs,
}

impl SourceArgs {
    /// Returns the body of `POST /v1/runs/{id}/ingest`.
    fn body(&self, client: &ApiClient) -> Result<Value, CliError> {
        let [zones, only] = self.zones.fields()?;
        let source_uri = match self.upload {
            true => upload::path_of(&upload::send(client, Path::new(&self.source))?),
            false => self.source.clone(),
        };
        Ok(given(json!({
            "source_uri": source_uri,
            "sampling_policy": self.fps.map(|_| "fixed"),
            "fixed_fps": self.fps.map(FrameRate::as_f64),
            "max_frames": self.max_frames,
            "stream_id": self.stream_id,
            "gate": self.gate.chosen(),
            "zones": zones,
            "activity_zones_only": only,
        })))
    }

    /// Runs `work` on the source as a job and shows its progress; Ctrl-C cancels it and keeps its results.
    fn work(
        &self,
        client: &ApiClient,
        (run, work): (&str, &'static str),
        body: &Value,
    ) -> Result<Value, CliError> {
        let cancel = interrupt::token()?;
        let mut quietly = |_: &_| Ok(());
        let order = (run, work);
        let ended =
            work::carry_out(client, order, body, &cancel, &mut Cursor::start(run), &mut quietly);
        match ended.map_err(|error| explained(error, &self.source))? {
            Ended::Done(answer) => Ok(answer),
            Ended::Cancelled => Err(work::cut(&cancel)),
        }
    }
}

impl IngestArgs {
    pub fn run(&self, client: &ApiClient, json: bool) -> Result<(), CliError> {
        let body = self.source.body(client)?;
        let reply = self.source.work(client, (&self.run, "ingest"), &body)?;
        say(json, &reply, |reply| {
            let frames = number(&reply["decoded_frames"], "frame");
            more(reply, format!("{frames} decoded ({})", text(&reply["decoder"])))
        })
    }
}

/// Formats a number of things in an answer.
fn number(count: &Value, thing: &str) -> String {
    counted(count.as_u64().unwrap_or(0), thing)
}

/// Appends a note if the source has more frames than the limit.
fn more(reply: &Value, line: String) -> String {
    match reply["more_frames"].as_bool() {
        Some(true) => format!("{line}; the source has more: --max-frames asks for them"),
        _ => line,
    }
}

/// Returns `named`, or else the run's model, or else one of the server's.
fn model(
    client: &ApiClient,
    run: &str,
    named: Option<&String>,
    asks: bool,
) -> Result<String, CliError> {
    if let Some(named) = named {
        return Ok(named.clone());
    }
    let run: RunRecord = client.get(&run_path(run, "")?, &[])?;
    run.model.map_or_else(|| models::choose(client, None, asks), Ok)
}

impl AnalyzeArgs {
    pub fn run(&self, client: &ApiClient, json: bool) -> Result<(), CliError> {
        let model = model(client, &self.run, self.model.as_ref(), false)?;
        let [zones, only] = self.zones.fields()?;
        let body = given(json!({
            "model": model,
            "window_size": self.window_size,
            "segment_ms": self.segment_ms,
            "marker_correction_window_frames": self.correction_window,
            "gate": self.gate.chosen(),
            "zones": zones,
            "activity_zones_only": only,
            "dry_run": self.dry_run.then_some(true),
        }));
        let reply: Value = client.post(&run_path(&self.run, "/analyze")?, &body, LONG)?;
        say(json, &reply, |reply| match self.dry_run {
            true => tried(&reply["dry_run"]),
            false => {
                let markers = reply["markers"].as_array().map_or(0, Vec::len);
                let markers = counted(markers as u64, "marker");
                format!("{} analysed, {markers}", number(&reply["generated"], "frame"))
            }
        })?;
        if json || !self.dry_run {
            return Ok(());
        }
        let episodes = Vec::deserialize(&reply["dry_run"]["episodes"]).unwrap_or_default();
        let mut out = StdoutWriter::stdout();
        activity::print(&mut out, &episodes)?;
        out.finish()
    }
}

/// Describes the effect of other thresholds.
fn tried(trial: &Value) -> String {
    let (before, after) = (&trial["before"]["kept"], &trial["after"]["kept"]);
    let types = trial["marker_types"].as_object().into_iter().flatten();
    let types: Vec<String> = types.map(|(kind, count)| format!("{count} {kind}")).collect();
    format!(
        "{after} frames kept instead of {before}, {} decided otherwise; markers: {}",
        trial["changed_frames"],
        types.join(", ")
    )
}

impl ReasonArgs {
    pub fn run(&self, client: &ApiClient, json: bool) -> Result<(), CliError> {
        let model = model(client, &self.run, self.model.as_ref(), true)?;
        let body = reason_body(self.source.body(client)?, &model, &self.prompt);
        let reply = self.source.work(client, (&self.run, "reason"), &body)?;
        say(json, &reply, |reply| {
            let line = format!(
                "{} decoded, {} described, {}",
                number(&reply["decoded_frames"], "frame"),
                number(&reply["tokens"]["chunks_analyzed"], "chunk"),
                number(&reply["markers_emitted"], "marker")
            );
            more(reply, line)
        })?;
        semantic(&reply["semantic"])
    }
}
