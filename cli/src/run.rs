//! `sightline run`: analyses a source on a server in one step: create, then ingest and analyze, or reason if
//! there is a question, then finish.
//!
//! Promises that the run is ended with the command, whatever happened, and deleted if it has no results.

use std::path::Path;

use media::FrameRate;
use serde_json::{Value, json};
use worker::CancelToken;

use crate::{
    activity,
    analyze::rate,
    client::{ApiClient, QUICK, ServerArgs, given, run_path},
    error::{ApiError, CliError},
    events::{self, Printer},
    interactions, interrupt, markers, models,
    output::{StdoutWriter, clock, printable},
    thresholds::GateArgs,
    upload,
    wire::{EventRecord, MarkerRecord},
    work::{self, Cursor, Ended, explained, post_nothing},
    zones::ZoneArgs,
};

#[derive(clap::Args)]
pub struct RunArgs {
    /// A file beneath the server's ingest roots, or a URL: https, rtsps, and http, HLS or rtsp where the
    /// server allows them
    source: String,
    /// Ask a model this about the footage; without it the gate alone selects frames
    #[arg(long, short, value_name = "TEXT")]
    prompt: Option<String>,
    /// Model to ask [default: the first that is ready]
    #[arg(long, short)]
    model: Option<String>,
    /// Print every event as it comes, instead of the findings at the end
    #[arg(long, short)]
    follow: bool,
    /// Upload the source first: it is a file of this machine
    #[arg(long)]
    upload: bool,
    /// Frames to analyse a second, 0.2 to 120 [default: all]
    #[arg(long, value_name = "RATE", value_parser = rate)]
    fps: Option<FrameRate>,
    /// Most frames to analyse; a camera goes on until then, or until Ctrl-C
    #[arg(long, value_name = "N", default_value_t = 500_000)]
    max_frames: u64,
    /// Label of the run
    #[arg(long)]
    label: Option<String>,
    /// Also show markers that only say that nothing happened
    #[arg(long)]
    all: bool,
    /// Print JSON: one object at the end, or with --follow one event a line
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    gate: GateArgs,
    #[command(flatten)]
    zones: ZoneArgs,
    #[command(flatten)]
    server: ServerArgs,
}

/// Returns the body of `POST /v1/runs/{id}/reason`: that of an ingest, and the question.
pub fn reason_body(mut ingest: Value, model: &str, prompt: &str) -> Value {
    ingest["model"] = model.into();
    ingest["semantic_prompt"] = prompt.into();
    // An object per frame, which no command uses.
    ingest["include_frame_metadata"] = false.into();
    ingest
}

/// Returns a source without the credentials and the query of a URL.
fn shown(source: &str) -> String {
    let Some((scheme, rest)) = source.split_once("://") else { return source.to_owned() };
    let (address, query) =
        rest.split_once('?').map_or((rest, ""), |(address, _)| (address, "?***"));
    let authority = address.find('/').unwrap_or(address.len());
    let host = address[..authority].rfind('@').map_or(0, |at| at + 1);
    let user = if host > 0 { "***@" } else { "" };
    format!("{scheme}://{user}{}{query}", &address[host..])
}

pub fn run(args: &RunArgs) -> Result<(), CliError> {
    let client = ApiClient::new(&args.server)?;
    let asks = args.prompt.is_some();
    let model = models::choose(&client, args.model.as_deref(), asks)?;
    let source = match args.upload {
        true => upload::path_of(&upload::send(&client, Path::new(&args.source))?),
        false => as_the_server_sees(&args.source),
    };
    // Until here Ctrl-C ends the process, also in the middle of an upload.
    let cancel = interrupt::token()?;
    let created: Value =
        client.post("v1/runs", &json!({ "model": model, "label": args.label }), QUICK)?;
    let run = created["run_id"].as_str().unwrap_or_default();
    note!("sightline: {} of {}", printable(run), printable(&shown(&source)));
    let outcome = carry_out(args, &client, (run, &model), source, &cancel);
    let is_refused = matches!(&outcome, Err(CliError::Api(error)) if error.status == 422);
    // After Ctrl-C a server that is away is asked once more only.
    let is_away = cancel.is_cancelled() && matches!(outcome, Err(CliError::Unreachable { .. }));
    let ended = end(&client, run, is_refused, (!is_away).then_some(&cancel));
    let was_cut = outcome?;
    tell(args, &client, run, &ended?)?;
    // For a camera this is the normal end.
    if was_cut && !is_live(&args.source) { Err(work::cut(&cancel)) } else { Ok(()) }
}

/// Makes the path of a local file or folder absolute, for a server on the same machine, which says what it is.
fn as_the_server_sees(source: &str) -> String {
    let path = Path::new(source);
    let here = !source.contains("://") && path.exists();
    let absolute = here.then(|| std::path::absolute(path).ok()).flatten();
    absolute.map_or_else(|| source.to_owned(), |path| path.to_string_lossy().into_owned())
}

fn is_live(source: &str) -> bool {
    let source = source.to_ascii_lowercase();
    source.starts_with("rtsp://") || source.starts_with("rtsps://") || source.contains(".m3u8")
}

/// Does the work; returns true if Ctrl-C cut it short.
fn carry_out(
    args: &RunArgs,
    client: &ApiClient,
    (run, model): (&str, &str),
    source_uri: String,
    cancel: &CancelToken,
) -> Result<bool, CliError> {
    let [zones, only] = args.zones.fields()?;
    let ingest = given(json!({
        "source_uri": source_uri,
        "sampling_policy": args.fps.map(|_| "fixed"),
        "fixed_fps": args.fps.map(FrameRate::as_f64),
        "max_frames": args.max_frames,
        "gate": args.gate.chosen(),
        "zones": zones,
        "activity_zones_only": only,
    }));
    let mut cursor = Cursor::start(run);
    let mut printer = Printer::new(args.json);
    let mut told = String::new();
    let mut on_event = |event: &EventRecord| match args.follow {
        true => printer.print(event).and_then(|()| printer.flush()),
        false => {
            found(event, &mut told);
            Ok(())
        }
    };
    let (kind, body) = match &args.prompt {
        Some(prompt) => ("reason", reason_body(ingest, model, prompt)),
        None => ("ingest", ingest),
    };
    let ended = work::carry_out(client, (run, kind), &body, cancel, &mut cursor, &mut on_event);
    let ended = ended.map_err(|error| explained(error, &args.source))?;
    let was_cut = matches!(ended, Ended::Cancelled);
    if was_cut {
        let path = run_path(run, "")?;
        let record: Value = events::retry_unreachable(Some(cancel), || client.get(&path, &[]))?;
        if matches!(record["status"].as_str(), Some("cancelled" | "completed")) {
            // Its end was asked for elsewhere; it takes no analysis any more.
            return Ok(false);
        }
    }
    if let Ended::Done(answer) = ended
        && answer["more_frames"] == true
    {
        note!(
            "sightline: the source goes on after {} frames: --max-frames asks for more",
            args.max_frames
        );
    }
    if args.prompt.is_none() {
        let analyze = json!({ "model": model });
        // Ctrl-C has ended the source, but the frames so far are analysed.
        let never = CancelToken::new();
        let analyzed =
            work::carry_out(client, (run, "analyze"), &analyze, &never, &mut cursor, &mut on_event);
        match analyzed {
            Err(CliError::Api(error)) if was_cut && has_no_frames(&error) => {
                note!("sightline: nothing was decoded before the end");
                return Err(work::cut(cancel));
            }
            analyzed => drop(analyzed?),
        }
    }
    Ok(was_cut)
}

/// Returns true of the refusal to analyse a run without decoded frames.
fn has_no_frames(error: &ApiError) -> bool {
    error.status == 422 && error.details.iter().any(|(field, _)| field == "frames")
}

/// Prints the findings of an event, if any; a failure equal to the last one, `told`, only once.
fn found(event: &EventRecord, told: &mut String) {
    let Ok(payload) = serde_json::from_str::<Value>(event.payload.get()) else { return };
    if let Some((at_ms, words)) = activity::words(&event.kind, &payload) {
        return say(&clock(at_ms), &words);
    }
    let text = |name: &str| payload[name].as_str().unwrap_or_default();
    let said = match event.kind.as_str() {
        "semantic_chunk_inferred" if !text("description").is_empty() => text("description"),
        "semantic_chunk_inferred" if text("semantic_error") == told => return,
        "semantic_chunk_inferred" => {
            told.replace_range(.., text("semantic_error"));
            text("semantic_error")
        }
        "semantic_fallback_activated" | "run_failed" => text("reason"),
        "frames_decoded" if payload["truncated"] == true => text("reason"),
        "loop_detected" => "the pictures repeat",
        "source_reconnected" => "the source came back after a gap",
        "keyframe_stored" if text("event_type") == "scene_cut" => "scene cut",
        "keyframe_stored" if text("event_type") == "artifact_suspected" => "artifact suspected",
        _ => return,
    };
    let at = ["pts_ms", "start_pts_ms"].iter().find_map(|name| payload[*name].as_i64());
    let at = at.map_or_else(|| "-".to_owned(), clock);
    if !said.is_empty() {
        say(&at, said);
    }
}

fn say(at: &str, words: &str) {
    note!("{at:>12}  {}", printable(words));
}

/// Ends the run, or deletes it if it is empty or its source was refused; returns its record.
fn end(
    client: &ApiClient,
    run: &str,
    is_refused: bool,
    cancel: Option<&CancelToken>,
) -> Result<Value, CliError> {
    let path = run_path(run, "")?;
    // All of it is tried again: an answer may be lost although the run has ended.
    events::retry_unreachable(cancel, || {
        let record: Value = client.get(&path, &[])?;
        match record["status"].as_str() {
            Some("pending") => client.delete(&path),
            Some("processing") if is_refused => client.delete(&path),
            Some("processing") => {
                post_nothing(client, run, "/finish")?;
                client.get(&path, &[])
            }
            _ => Ok(record),
        }
    })
}

fn tell(args: &RunArgs, client: &ApiClient, run: &str, record: &Value) -> Result<(), CliError> {
    let episodes = activity::fetch(client, run)?;
    let all = markers::fetch(client, run, &[])?;
    let said = interactions::fetch(client, run, None)?;
    let mut out = StdoutWriter::stdout();
    match (args.follow, args.json) {
        (true, _) => {}
        (false, true) => {
            out.json(&json!({ "run": record, "episodes": episodes, "markers": all, "interactions": said }))?;
        }
        (false, false) if args.prompt.is_some() && !said.is_empty() => {
            out.table(&interactions::table(&said))?;
        }
        (false, false) => {
            activity::print(&mut out, &episodes)?;
            markers::print(&mut out, &all, args.all)?;
        }
    }
    out.finish()?;
    let status = record["status"].as_str().unwrap_or("ended");
    note!(
        "sightline: {run} {}: {}; `sightline markers {run}` and `keyframes {run}` show more",
        printable(status),
        counts(&all)
    );
    semantic(&record["semantic"])
}

/// Counts markers by type, as text.
fn counts(all: &[MarkerRecord]) -> String {
    let mut counts = std::collections::BTreeMap::<&str, usize>::new();
    for marker in all {
        *counts.entry(&marker.event_type).or_default() += 1;
    }
    let each: Vec<String> =
        counts.iter().map(|(kind, count)| format!("{count} {}", printable(kind))).collect();
    if each.is_empty() { "no markers".to_owned() } else { each.join(", ") }
}

/// Fails if the model failed for every chunk; prints a note if it failed for some.
pub fn semantic(semantic: &Value) -> Result<(), CliError> {
    let count = |name: &str| semantic[name].as_u64().unwrap_or(0);
    let (asked, failed) = (count("chunks_asked"), count("chunks_failed"));
    let error = semantic["error"].as_str().unwrap_or("no model could be asked");
    let said = format!("the model failed for {failed} of {asked} chunks: {}", printable(error));
    let asked_for = semantic["requested"] == true;
    if asked_for && failed >= asked {
        return Err(CliError::Check(said));
    }
    if failed > 0 {
        note!("sightline: {said}");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::shown;

    #[test]
    fn a_source_is_shown_without_its_secrets() {
        for (source, expected) in [
            ("a@b?c.mp4", "a@b?c.mp4"),
            ("https://host/a@b.mp4", "https://host/a@b.mp4"),
            ("rtsp://user:pass@word@host:554/live", "rtsp://***@host:554/live"),
            ("https://user@host?key=1", "https://***@host?***"),
        ] {
            assert_eq!(shown(source), expected);
        }
    }
}
