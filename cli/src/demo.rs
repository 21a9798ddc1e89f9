//! `sightline demo`: takes a video through a real server and its HTTP API.
//!
//! Starts the given server on a free port, with default settings and a new key, creates a run, ingests,
//! analyses, prints the markers, writes the report and stops the server, at once or at Ctrl-C.

mod server;
mod video;

use std::{
    path::{Path, PathBuf},
    sync::mpsc::{RecvTimeoutError, sync_channel},
    time::{Duration, Instant},
};

use decode::StreamInfo;
use media::Signal;
use serde::Deserialize;
use serde_json::{Value, json};
use timeline::SignalRecord;
use worker::{CancelToken, SandboxPolicy, Supervisor, WorkerError, WorkerProgram};

use crate::{
    activity, analysis, analyze,
    client::{ApiClient, LONG, QUICK, run_path},
    environment,
    error::CliError,
    interrupt, keyframes, markers,
    output::{StdoutWriter, counted, grouped, printable},
    progress,
    report::{Report, ReportStill, StillSampler},
    wire::{QueryReply, RunRecord},
};

/// Model recorded in the run; the demo asks no model.
const MODEL: &str = "qwen3-vl-8b";
const MAX_FRAMES: u64 = 500_000;
const LOOK_EVERY: Duration = Duration::from_millis(150);

#[derive(clap::Args)]
pub struct DemoArgs {
    /// Video file [default: a clip of the media directory, else one that ffmpeg renders]
    video: Option<PathBuf>,
    /// The server to start
    #[arg(long, value_name = "FILE")]
    server_binary: PathBuf,
    /// Folder for the report, the server's log and its data
    #[arg(long, value_name = "DIR", default_value = "demo-out")]
    out: PathBuf,
    /// Leave the server running until Ctrl-C, and print the address of its console with the run open in it
    #[arg(long)]
    keep: bool,
    /// Folder with sample clips
    #[arg(long, value_name = "DIR", env = "SIGHTLINE_MEDIA_DIR")]
    media_dir: Option<PathBuf>,
}

/// Response of `POST /v1/runs/{id}/ingest`.
#[derive(Deserialize)]
struct Ingested {
    decoded_frames: u64,
    source_fps: Option<f64>,
    width: u32,
    height: u32,
    decoder: String,
    #[serde(default)]
    truncated: bool,
}

/// Fields used of a `frames_decoded` payload.
#[derive(Deserialize)]
struct FramesDecoded {
    pixel_format: Option<String>,
    signals: Vec<SignalRecord>,
}

/// Fields used of a still in the response of `GET /v1/runs/{id}/keyframes`.
#[derive(Deserialize)]
struct Still {
    frame_index: u64,
    pts_ms: i64,
    image_sha256: String,
}

pub fn run(args: &DemoArgs) -> Result<(), CliError> {
    let started = Instant::now();
    let cancel = interrupt::token()?;
    std::fs::create_dir_all(&args.out)
        .map_err(|source| CliError::Write { path: args.out.clone(), source })?;
    let video =
        video::choose(args.video.as_deref(), args.media_dir.as_deref(), &args.out, &cancel)?;
    let video = video::apart(video, &args.out)?;
    note!("video:  {}", printable(&video.to_string_lossy()));

    let sandbox = sandbox()?;
    let mut server =
        server::Server::start(&args.server_binary, &args.out, &video, sandbox, &cancel)?;
    note!("server: {}, ready", server.address());
    let client = server.client()?;
    let worker = Supervisor::new(WorkerProgram::current().with_sandbox(sandbox));
    let made = work(&client, &worker, &video, &args.out, started, &cancel);
    let outcome = match made {
        Ok(run) if args.keep => {
            note!("console: {}   (Ctrl-C ends the server)", server.console(&run));
            server.wait(&cancel)
        }
        Ok(_) => {
            note!(
                "console: stopped with its server; --keep (make demo KEEP=1) leaves it open at this run"
            );
            Ok(())
        }
        Err(error) => Err(error),
    };
    let (was_kept, stopped) = (args.keep && outcome.is_ok(), server.stop());
    // A terminal sends Ctrl-C to the server too, so a failure after it means nothing.
    if cancel.is_cancelled() && !was_kept {
        return Err(CliError::Interrupted);
    }
    outcome.and(stopped)
}

/// Returns the sandbox policy of media workers. The demo decodes the user's own clip: if the kernel lacks a
/// part and no policy is set, it goes on without and prints a note.
fn sandbox() -> Result<SandboxPolicy, CliError> {
    if let Some(asked) = environment::sandbox()? {
        return Ok(asked);
    }
    match Supervisor::new(environment::worker_program()?).sandbox() {
        Err(WorkerError::Sandbox(report)) => {
            note!(
                "sandbox: {report}; the demo decodes without it ({}=best-effort)",
                environment::SANDBOX
            );
            Ok(SandboxPolicy::BestEffort)
        }
        // Other failures of workers are in the server's log.
        Ok(_) | Err(_) => Ok(SandboxPolicy::Require),
    }
}

/// Creates a run, ingests, analyses, fetches, writes the report and prints. Returns the run's id.
fn work(
    client: &ApiClient,
    worker: &Supervisor,
    video: &Path,
    folder: &Path,
    started: Instant,
    cancel: &CancelToken,
) -> Result<String, CliError> {
    let run: RunRecord = client.post("v1/runs", &json!({ "model": MODEL }), QUICK)?;
    note!("run:    {}", printable(&run.run_id));
    let stream = video::look(worker, video);
    let duration = stream.as_ref().and_then(|stream| stream.duration);
    let duration_ms = duration.and_then(|length| u64::try_from(length.as_millis()).ok());
    let ingested = ingest(client, &run.run_id, video, duration_ms, cancel)?;
    let analyze = run_path(&run.run_id, "/analyze")?;
    let _: Value = client.post(&analyze, &json!({ "model": MODEL }), LONG)?;
    let markers = markers::fetch(client, &run.run_id, &[])?;
    let decoded = frames_decoded(client, &run.run_id)?;
    let signals: Option<Vec<Signal>> = decoded.signals.iter().map(SignalRecord::signal).collect();
    let signals = signals.ok_or_else(|| client.target.odd("a signal is out of range"))?;
    let gate = gate::GateConfig::default();
    let decided = analysis::decide(analysis::NO_RUN, gate, &[], &signals);
    let analysis::Decided { decisions, episodes, .. } = decided;
    let reason = |frame: u64| {
        let decision = usize::try_from(frame).ok().and_then(|frame| decisions.get(frame));
        decision.map_or("selected", |decision| decision.reason.as_str())
    };
    let extent = (ingested.width, ingested.height);
    let stills = stills(client, &run.run_id, extent, reason, cancel)?;
    let report = folder.join("report.html");
    let report = std::path::absolute(&report).unwrap_or(report);
    let name = video.file_name().unwrap_or(video.as_os_str()).to_string_lossy();
    Report {
        title: &name,
        facts: facts(stream.as_ref(), &ingested, decoded.pixel_format, &run.run_id),
        warning: ingested.truncated.then(|| "The source ends early.".to_owned()),
        signals: &signals,
        episodes: &episodes,
        markers: &markers,
        stills: &stills,
        gate,
        made_at: analyze::now(),
    }
    .write(&report)?;

    let mut out = StdoutWriter::stdout();
    activity::print(&mut out, &episodes)?;
    markers::print(&mut out, &markers, false)?;
    out.finish()?;
    let found = counted(markers.len() as u64, "marker");
    note!("{found} in {:.1} s", started.elapsed().as_secs_f64());
    note!("report: {}", printable(&report.to_string_lossy()));
    Ok(run.run_id)
}

fn facts(
    stream: Option<&StreamInfo>,
    ingested: &Ingested,
    pixel_format: Option<String>,
    run: &str,
) -> Vec<(&'static str, String)> {
    let mut facts = Vec::new();
    if let Some(stream) = stream {
        facts.push(("Codec", stream.codec.as_str().to_owned()));
        facts.push(("Container", analysis::container(stream)));
    }
    facts.push(("Picture", format!("{}×{}", ingested.width, ingested.height)));
    facts.extend(pixel_format.map(|format| ("Pixels", format)));
    facts
        .extend(ingested.source_fps.map(|fps| ("Rate", format!("{} fps", analysis::rounded(fps)))));
    facts.push(("Frames", format!("{} analysed", grouped(ingested.decoded_frames))));
    facts.push(("Decoder", ingested.decoder.clone()));
    facts.push(("Run", run.to_owned()));
    facts
}

/// Ingests on a thread of its own while this one shows the server's progress.
fn ingest(
    client: &ApiClient,
    run: &str,
    video: &Path,
    duration_ms: Option<u64>,
    cancel: &CancelToken,
) -> Result<Ingested, CliError> {
    let body = json!({ "source_uri": video.to_string_lossy(), "max_frames": MAX_FRAMES });
    let path = run_path(run, "/ingest")?;
    let (done, outcome) = sync_channel(1);
    std::thread::scope(|scope| {
        let ingest = || {
            // The receiver is gone only after an interrupt, when the result is not needed.
            done.send(client.post::<Ingested>(&path, &body, LONG)).ok();
        };
        std::thread::Builder::new()
            .name("ingest".to_owned())
            .spawn_scoped(scope, ingest)
            .map_err(|source| CliError::Worker(worker::WorkerError::Spawn(source)))?;
        let bar = progress::start("ingest", duration_ms);
        let state = run_path(run, "/state")?;
        let result = loop {
            match outcome.recv_timeout(LOOK_EVERY) {
                Ok(result) => break result,
                Err(RecvTimeoutError::Disconnected) => break Err(CliError::Interrupted),
                Err(RecvTimeoutError::Timeout) if cancel.is_cancelled() => {
                    // Stopping the run ends the request that the other thread waits for.
                    client.post::<Value>(&run_path(run, "/stop")?, &json!({}), QUICK)?;
                    break Err(CliError::Interrupted);
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
            // A failed look is passed over: the ingest tells what is wrong, and has to be waited for anyway.
            let found: Value = client.get(&state, &[]).unwrap_or_default();
            let done = &found["progress"];
            if let (Some(frames), Some(pts_ms)) = (done["frames"].as_u64(), done["pts_ms"].as_i64())
            {
                let at = u64::try_from(pts_ms).unwrap_or(0);
                progress::show(&bar, at, None, counted(frames, "frame"));
            }
        };
        bar.finish_and_clear();
        result
    })
}

fn frames_decoded(client: &ApiClient, run: &str) -> Result<FramesDecoded, CliError> {
    let query = json!({ "run_id": run, "kind": "frames_decoded", "from_seq": 0, "limit": 1 });
    let reply: QueryReply = client.post("v1/query", &query, LONG)?;
    let event = reply.matches.first();
    let event = event.ok_or_else(|| client.target.odd("no frames_decoded event"))?;
    serde_json::from_str(event.payload.get()).map_err(|error| client.target.odd(error))
}

/// Fetches the stored stills, thinned to what a report holds.
fn stills<'a>(
    client: &ApiClient,
    run: &str,
    extent: (u32, u32),
    reason: impl Fn(u64) -> &'a str,
    cancel: &CancelToken,
) -> Result<StillSampler, CliError> {
    let mut shelf = StillSampler::default();
    for still in keyframes::fetch(client, run)? {
        if cancel.is_cancelled() {
            return Err(CliError::Interrupted);
        }
        // Skips a still of another form, which a later server may write, as the API contract asks.
        let Ok(still) = serde_json::from_value::<Still>(still) else { continue };
        let path = run_path(run, &format!("/keyframes/{}", still.image_sha256))?;
        shelf.push(ReportStill {
            frame_index: still.frame_index,
            pts_ms: still.pts_ms,
            reason: reason(still.frame_index).to_owned(),
            extent: Some(extent),
            jpeg: client.bytes(&path)?,
        });
    }
    Ok(shelf)
}
