//! `sightline analyze`: analyses a file without a server, into markers, JSON, stills and a report.
//!
//! Files are written before standard output, so a reader that closes it early loses none of them; one that cannot
//! be written costs no findings there.

use std::{
    io,
    num::{NonZeroU64, NonZeroUsize},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    time::{Instant, SystemTime, UNIX_EPOCH},
};

use decode::Sampling;
use gate::Loops;
use media::{FrameRate, RunId, Signal, WallTime};
use serde::Serialize;
use serde_json::{Value, json};
use timeline::SignalRecord;
use worker::{JobOptions, Supervisor};

use crate::{
    activity::{self, EpisodeRecord},
    analysis::{self, Analysis, AnalyzeJob, Still},
    doctor::DecodeArgs,
    environment,
    error::CliError,
    export, interrupt, markers,
    output::{StdoutWriter, counted, grouped, printable},
    replace::replace,
    report::{Report, ReportStill, StillSampler},
    thresholds::GateArgs,
    wire::MarkerRecord,
    zones::ZoneArgs,
};

/// Help on the output of `--json`, at the end of the long help.
const JSON_HELP: &str = "\
The object that --json prints:
  source    path, bytes, container, codec, width, height, rotation, pixel_format,
            source_fps, duration_ms, declared_frames (null where the file does not say)
  decoder   the decoder really used, such as \"software:h264\"
  sampling  policy (\"source_fps_adaptive\" or \"fixed\") and fixed_fps
  frames    analysed, source, more (the source goes on), truncated, damaged_packets
  episodes  in which something moves, as GET /v1/runs/{id}/activity gives them, without stills
  kept      one a frame that the gate keeps: frame_index, pts_ms, reason
  markers   as GET /v1/runs/{id}/markers gives them
  signals   one a frame, as in the event frames_decoded, with the gate's reason, selected and
            loop_entered; not with --no-signals
  stills    with --stills, one a selected frame: frame_index, pts_ms, reason, width, height,
            bytes, path
Scores lie in 0 to 1; the same file gives the same output.

Unless --backend, --gate-backend or --device names one, no device is tried: software decodes and the
CPU measures.

What the types and statuses of markers mean: `sightline markers --help`.";

#[derive(clap::Args)]
#[command(after_long_help = JSON_HELP)]
pub struct AnalyzeArgs {
    /// Video file
    file: PathBuf,
    /// Print everything as one JSON object (see the end of --help)
    #[arg(long)]
    json: bool,
    /// Leave the signals of the frames out of the JSON
    #[arg(long, requires = "json")]
    no_signals: bool,
    /// Write a self-contained HTML report
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Write the JPEG of each selected frame into this directory
    #[arg(long, value_name = "DIR")]
    stills: Option<PathBuf>,
    /// Write frames.parquet, episodes.parquet and markers.parquet into this directory
    #[arg(long, value_name = "DIR")]
    parquet: Option<PathBuf>,
    /// Run id in rows and markers: `run-` and 32 hexadecimal digits [default: zeros]
    #[arg(long, value_name = "ID", default_value_t = analysis::NO_RUN, hide_default_value = true)]
    run_id: RunId,
    /// Frames to analyse a second, 0.2 to 120 [default: all]
    #[arg(long, value_name = "RATE", value_parser = rate)]
    fps: Option<FrameRate>,
    /// Most frames to analyse
    #[arg(long, value_name = "N", default_value = "500000")]
    max_frames: NonZeroU64,
    /// Also show markers that only say that nothing happened
    #[arg(long)]
    all: bool,
    /// Backends, where one is named; without, software decodes and the CPU measures
    #[command(flatten)]
    decode: DecodeArgs,
    /// Decoding threads, 16 at most [default: one a core]
    #[arg(long, value_name = "N")]
    threads: Option<NonZeroUsize>,
    #[command(flatten)]
    gate: GateArgs,
    #[command(flatten)]
    zones: ZoneArgs,
}

/// Parses the rate of analysed frames.
pub fn rate(text: &str) -> Result<FrameRate, String> {
    let fps: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    FrameRate::from_f64(fps)
        .filter(|_| FrameRate::ANALYSED.contains(&fps))
        .ok_or_else(|| "must lie in 0.2 to 120".to_owned())
}

#[derive(Serialize)]
struct Document<'a> {
    source: Value,
    decoder: &'a str,
    sampling: Value,
    frames: Value,
    episodes: &'a [EpisodeRecord],
    kept: Vec<Value>,
    markers: &'a [MarkerRecord],
    #[serde(skip_serializing_if = "Option::is_none")]
    signals: Option<Vec<FrameRecord>>,
    stills: &'a [Value],
}

#[derive(Serialize)]
struct FrameRecord {
    #[serde(flatten)]
    signal: SignalRecord,
    reason: &'static str,
    selected: bool,
    loop_entered: bool,
}

/// Describes a still that was written to `path`.
fn described(still: &Still, path: &Path) -> Value {
    json!({
        "frame_index": still.frame_index,
        "pts_ms": still.pts_ms,
        "reason": still.reason.as_str(),
        "width": still.picture.extent.width,
        "height": still.picture.extent.height,
        "bytes": still.picture.jpeg.len(),
        "path": path.to_string_lossy(),
    })
}

impl From<Still> for ReportStill {
    fn from(still: Still) -> ReportStill {
        ReportStill {
            frame_index: still.frame_index,
            pts_ms: still.pts_ms,
            reason: still.reason.as_str().to_owned(),
            extent: Some((still.picture.extent.width, still.picture.extent.height)),
            jpeg: still.picture.jpeg,
        }
    }
}

pub fn run(args: &AnalyzeArgs) -> Result<(), CliError> {
    let started = Instant::now();
    if args.report.as_ref().is_some_and(|report| is_same_file(report, &args.file)) {
        let problem = "the report would overwrite the video: name another file";
        return Err(CliError::Usage(problem.into()));
    }
    let cancel = interrupt::token()?;
    for dir in args.stills.iter().chain(&args.parquet) {
        std::fs::create_dir_all(dir)
            .map_err(|source| CliError::Write { path: dir.clone(), source })?;
    }
    args.report.as_deref().map_or(Ok(()), check_place)?;
    let cores = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
    let options = JobOptions {
        sampling: args.fps.map_or(Sampling::Every, Sampling::Fixed),
        max_frames: args.max_frames.get(),
        threads: args.threads.map_or(cores, NonZeroUsize::get),
        stills: args.stills.is_some() || args.report.is_some(),
        gate: args.gate.config(),
        zones: args.zones.zones()?,
        ..JobOptions::default()
    };
    let job = AnalyzeJob { path: args.file.clone(), run: args.run_id, options };
    let mut shelf = StillSampler::default();
    let mut stills = Vec::new();
    let program = environment::worker_program()?;
    let supervisor = match args.decode.names_any() {
        true => Supervisor::select(&program, &args.decode.wanted())?.0,
        false => Supervisor::new(program),
    };
    let analysis = analysis::analyze(&supervisor, &job, &cancel, |still| {
        let path = args.stills.as_deref().map(|dir| save(dir, &still)).transpose()?;
        stills.extend(path.map(|path| described(&still, &path)));
        if args.report.is_some() {
            shelf.push(still.into());
        }
        Ok(())
    })?;
    let written = write(args, &analysis, &shelf);
    tell(args, &analysis, stills.len(), started, written.is_ok());
    written.and(print(args, &analysis, &stills))
}

/// Fails if the report has no folder to be in, which should not be told after hours of work.
fn check_place(report: &Path) -> Result<(), CliError> {
    let folder = report.parent().filter(|folder| !folder.as_os_str().is_empty());
    let found: io::Result<()> = match report.is_dir() {
        true => Err(io::ErrorKind::IsADirectory.into()),
        false => folder.map_or(Ok(()), |folder| folder.metadata().map(drop)),
    };
    found.map_err(|source| CliError::Write { path: report.to_owned(), source })
}

/// Writes the report and the tables, where they are asked for.
fn write(args: &AnalyzeArgs, analysis: &Analysis, shelf: &StillSampler) -> Result<(), CliError> {
    if let Some(path) = &args.report {
        let name = args.file.file_name().unwrap_or(args.file.as_os_str()).to_string_lossy();
        let report = Report {
            title: &name,
            facts: analysis::facts(analysis),
            warning: analysis::warning(&analysis.report),
            signals: &analysis.signals,
            episodes: &analysis.decided.episodes,
            markers: &analysis.decided.markers,
            stills: shelf,
            gate: analysis.gate,
            made_at: now(),
        };
        report.write(path)?;
    }
    args.parquet.as_deref().map_or(Ok(()), |dir| export::write_analysis(dir, analysis))
}

/// Returns true if both paths lead to the same existing file, links included.
fn is_same_file(one: &Path, other: &Path) -> bool {
    let identity = |path: &Path| path.metadata().map(|found| (found.dev(), found.ino())).ok();
    identity(one).is_some_and(|one| Some(one) == identity(other))
}

fn save(dir: &Path, still: &Still) -> Result<PathBuf, CliError> {
    let path = dir.join(format!("{:06}_{}.jpg", still.frame_index, still.reason.as_str()));
    replace(&path, None, |out| out.write_all(&still.picture.jpeg))?;
    Ok(path)
}

/// Returns the current time as RFC 3339.
pub fn now() -> String {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let epoch_ms = i64::try_from(since.as_millis()).unwrap_or(i64::MAX);
    WallTime { epoch_ms }.rfc3339()
}

/// Prints a summary to standard error, so that standard output holds only the table or JSON.
fn tell(
    args: &AnalyzeArgs,
    analysis: &Analysis,
    stills: usize,
    started: Instant,
    is_written: bool,
) {
    let facts = analysis::facts(analysis);
    let line: Vec<String> = facts.iter().map(|(_, value)| printable(value)).collect();
    let seconds = started.elapsed().as_secs_f64();
    note!("{}", line.join(", "));
    note!(
        "{}, {}, {seconds:.2} s, {:.0} frames/s",
        counted(analysis.decided.episodes.len() as u64, "episode"),
        counted(analysis.decided.markers.len() as u64, "marker"),
        analysis.report.frames as f64 / seconds.max(1e-9)
    );
    if let Some(warning) = analysis::warning(&analysis.report) {
        note!("warning: {warning}");
    }
    if let Some(dir) = &args.stills {
        let dir = printable(&dir.to_string_lossy());
        note!("stills: {} in {dir}", grouped(stills as u64));
    }
    if let Some(dir) = args.parquet.as_ref().filter(|_| is_written) {
        note!("parquet: {}", printable(&dir.to_string_lossy()));
    }
    if let Some(path) = args.report.as_ref().filter(|_| is_written) {
        note!("report: {}", printable(&path.to_string_lossy()));
    }
}

fn print(args: &AnalyzeArgs, analysis: &Analysis, stills: &[Value]) -> Result<(), CliError> {
    let mut out = StdoutWriter::stdout();
    if !args.json {
        activity::print(&mut out, &analysis.decided.episodes)?;
        markers::print(&mut out, &analysis.decided.markers, args.all)?;
        return out.finish();
    }
    let Analysis { stream, report, .. } = analysis;
    let extent = report.first_extent.unwrap_or(stream.extent);
    out.json(&Document {
        source: json!({
            "path": args.file.to_string_lossy(),
            "bytes": analysis.bytes,
            "container": stream.container,
            "codec": stream.codec.as_str(),
            "width": extent.width,
            "height": extent.height,
            "rotation": stream.rotation.degrees(),
            "pixel_format": stream.pixel_format,
            "source_fps": report.source_rate.or(stream.source_rate).map(FrameRate::as_f64),
            "duration_ms": stream.duration.map(|duration| duration.as_millis()),
            "declared_frames": stream.declared_frames,
        }),
        decoder: &report.decoder,
        sampling: json!({
            "policy": if args.fps.is_some() { "fixed" } else { "source_fps_adaptive" },
            "fixed_fps": args.fps.map(FrameRate::as_f64),
        }),
        frames: json!({
            "analysed": report.frames,
            "source": report.source_frames,
            "more": report.more_frames,
            "truncated": report.truncated,
            "damaged_packets": report.damaged_packets,
        }),
        episodes: &analysis.decided.episodes,
        kept: kept(analysis),
        markers: &analysis.decided.markers,
        signals: (!args.no_signals).then(|| frames(analysis)),
        stills,
    })?;
    out.finish()
}

fn kept(analysis: &Analysis) -> Vec<Value> {
    let pairs = analysis.signals.iter().zip(&analysis.decided.decisions);
    pairs
        .filter(|(_, decision)| decision.selected)
        .map(|(signal, decision)| {
            let Signal { frame_index, pts_ms, .. } = signal;
            let reason = decision.reason.as_str();
            json!({ "frame_index": frame_index, "pts_ms": pts_ms, "reason": reason })
        })
        .collect()
}

fn frames(analysis: &Analysis) -> Vec<FrameRecord> {
    let mut loops = Loops::default();
    let pairs = analysis.signals.iter().zip(&analysis.decided.decisions);
    pairs
        .map(|(signal, decision)| FrameRecord {
            signal: SignalRecord::from(signal),
            reason: decision.reason.as_str(),
            selected: decision.selected,
            loop_entered: loops.push(signal).is_some(),
        })
        .collect()
}
