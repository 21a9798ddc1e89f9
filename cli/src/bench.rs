//! `sightline bench capacity`: real-time streams that this machine can handle, by codec and resolution.
//!
//! Each row decodes, measures and decides on all cores at once, by default with one worker per core, so a
//! frame's cost is that of a fully loaded machine. Receiving, models and the log are not included. ffmpeg
//! renders the clips from its moving test picture, or the user names files.

use std::{
    fs::File,
    ops::ControlFlow,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use media::Codec;
use serde::Serialize;
use worker::{CancelToken, JobEvent, JobOptions, JobSpec, StageTimings, Supervisor, WorkerError};

use crate::{
    analysis::{self, rounded},
    doctor::DecodeArgs,
    environment,
    error::CliError,
    interrupt,
    output::{self, TextTable},
};

/// Least time for which a row is measured; a clip is always decoded to its end.
const MEASURED: Duration = Duration::from_secs(1);
/// Length of a rendered clip: two GOPs of a common camera.
const CLIP_SECONDS: u32 = 4;

#[derive(clap::Args)]
pub struct BenchArgs {
    #[command(subcommand)]
    command: BenchCommand,
}

#[derive(clap::Subcommand)]
enum BenchCommand {
    /// Streams that this machine decodes and measures in real time, by codec and resolution
    Capacity(CapacityArgs),
}

#[derive(clap::Args)]
struct CapacityArgs {
    /// Video files to measure with, instead of rendered clips
    files: Vec<PathBuf>,
    /// Frames a second of a stream
    #[arg(long, value_name = "RATE", default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..=240))]
    fps: u32,
    /// Workers that decode at once, the rate being that of all of them [default: one a core]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=256))]
    workers: Option<u32>,
    /// Heights to render
    #[arg(long, value_name = "ROWS", value_delimiter = ',', default_value = "360,720,1080",
        value_parser = clap::value_parser!(u32).range(64..=4320))]
    heights: Vec<u32>,
    /// Leave out the stills of selected frames
    #[arg(long)]
    no_stills: bool,
    /// Print one JSON object: cores, workers, fps, rows[{codec, width, height, decoder, frames, ms_per_frame,
    /// gate_ms_per_frame, frames_per_second, wall_frames_per_second, streams}]
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    decode: DecodeArgs,
}

#[derive(Serialize)]
struct Capacity {
    cores: usize,
    workers: usize,
    fps: u32,
    rows: Vec<Row>,
}

#[derive(Serialize)]
struct Row {
    codec: &'static str,
    width: u32,
    height: u32,
    decoder: String,
    /// Frames measured by all workers.
    frames: u64,
    /// Time that one worker takes for a frame while all work, decoding and gate, in milliseconds.
    ms_per_frame: f64,
    /// Part of it that the gate takes, in milliseconds.
    gate_ms_per_frame: f64,
    /// Frames per second of the whole machine while all workers run.
    frames_per_second: f64,
    /// Frames per second of the whole machine from the start of the first worker to the end of the last,
    /// which includes starting workers and opening files and devices.
    wall_frames_per_second: f64,
    /// Number of streams of `fps` frames per second, rounded down.
    streams: u64,
}

pub fn run(args: &BenchArgs) -> Result<(), CliError> {
    let BenchCommand::Capacity(args) = &args.command;
    let cancel = interrupt::token()?;
    for file in &args.files {
        analysis::open(file)?;
    }
    let program = environment::worker_program()?;
    let (supervisor, _) = Supervisor::select(&program, &args.decode.wanted())?;
    let rendered = tempfile::tempdir()
        .map_err(|source| CliError::Write { path: std::env::temp_dir(), source })?;
    let clips = match args.files.as_slice() {
        [] => render_all(rendered.path(), &args.heights, args.fps, &cancel)?,
        files => files.to_vec(),
    };
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let workers = args.workers.map_or(cores, |workers| workers as usize);
    let mut rows = Vec::new();
    for clip in &clips {
        rows.push(measure(&supervisor, clip, workers, args, &cancel)?);
    }
    output::print(args.json, &Capacity { cores, workers, fps: args.fps, rows }, table)?;
    if !args.json {
        note!(
            "{workers} workers on {cores} cores at full load, what else runs here included; decoding and \
             gate alone: leave room for models and the log"
        );
    }
    Ok(())
}

#[derive(Default)]
struct WorkerResult {
    frames: u64,
    spent: StageTimings,
    stream: Option<(Codec, u32, u32)>,
    decoder: String,
}

/// Decodes the clip over and over in this many workers at the same time.
fn measure(
    supervisor: &Supervisor,
    clip: &Path,
    workers: usize,
    args: &CapacityArgs,
    cancel: &CancelToken,
) -> Result<Row, CliError> {
    let failed = |source| CliError::Analysis { path: clip.to_owned(), source };
    let (stills, started) = (!args.no_stills, Instant::now());
    let done = thread::scope(|scope| {
        let threads: Vec<_> = (0..workers)
            .map(|_| scope.spawn(|| decode_for_a_while(supervisor, clip, stills, cancel)))
            .collect();
        let join = |thread: thread::ScopedJoinHandle<'_, Result<WorkerResult, WorkerError>>| {
            thread.join().unwrap_or(Err(WorkerError::Listener))
        };
        threads.into_iter().map(join).collect::<Result<Vec<WorkerResult>, WorkerError>>()
    });
    let wall = started.elapsed();
    if cancel.is_cancelled() {
        return Err(CliError::Interrupted);
    }
    let done = done.map_err(failed)?;
    let frames: u64 = done.iter().map(|done| done.frames).sum();
    let per_frame = |of: fn(&StageTimings) -> u64| {
        let us: u64 = done.iter().map(|done| of(&done.spent)).sum();
        us as f64 / frames.max(1) as f64
    };
    let (decode_us, gate_us) =
        (per_frame(|spent| spent.decode_us), per_frame(|spent| spent.gate_us));
    let us = decode_us + gate_us;
    let first = done.into_iter().next().unwrap_or_default();
    let (codec, width, height) = first.stream.ok_or_else(|| failed(WorkerError::Ended))?;
    let frames_per_second = rounded(workers as f64 * 1e6 / us.max(1.0));
    Ok(Row {
        codec: codec.as_str(),
        width,
        height,
        decoder: first.decoder,
        frames,
        ms_per_frame: rounded(us / 1000.0),
        gate_ms_per_frame: rounded(gate_us / 1000.0),
        frames_per_second,
        wall_frames_per_second: rounded(frames as f64 / wall.as_secs_f64()),
        streams: (frames_per_second / f64::from(args.fps)) as u64,
    })
}

fn decode_for_a_while(
    supervisor: &Supervisor,
    clip: &Path,
    stills: bool,
    cancel: &CancelToken,
) -> Result<WorkerResult, WorkerError> {
    let started = Instant::now();
    let mut done = WorkerResult::default();
    while started.elapsed() < MEASURED {
        let options = JobOptions { stills, ..JobOptions::default() };
        let spec = JobSpec::new(File::open(clip).map_err(WorkerError::Spawn)?, options);
        let report = supervisor.run_job(spec, cancel, &mut |event| {
            match event {
                JobEvent::Opened(stream) => {
                    done.stream = Some((stream.codec, stream.extent.width, stream.extent.height));
                }
                JobEvent::Spent(StageTimings { decode_us, gate_us }) => {
                    done.spent.decode_us += decode_us;
                    done.spent.gate_us += gate_us;
                }
                _ => {}
            }
            ControlFlow::Continue(())
        })?;
        done.frames += report.frames;
        done.decoder = report.decoder;
    }
    Ok(done)
}

/// Encoders with the settings of common cameras: one keyframe in two seconds, no B-frames.
const ENCODERS: [(&str, &[&str]); 2] = [
    ("h264", &["-c:v", "libx264", "-preset", "veryfast", "-tune", "zerolatency"]),
    (
        "hevc",
        &["-c:v", "libx265", "-preset", "ultrafast", "-x265-params", "log-level=none:bframes=0"],
    ),
];

/// Renders one 16:9 clip per codec and height.
fn render_all(
    dir: &Path,
    heights: &[u32],
    fps: u32,
    cancel: &CancelToken,
) -> Result<Vec<PathBuf>, CliError> {
    let ffmpeg = environment::find_program("SERVICE_FFMPEG_PATH", "ffmpeg").ok_or_else(|| {
        CliError::Usage("no ffmpeg to render clips with: name video files".to_owned())
    })?;
    let mut clips = Vec::new();
    for (name, encoder) in ENCODERS {
        for height in heights {
            let path = dir.join(format!("{name}-{height}.mp4"));
            let outcome = render(&ffmpeg, &path, encoder, *height, fps);
            // Ctrl-C ends ffmpeg too, which then has not failed.
            if cancel.is_cancelled() {
                return Err(CliError::Interrupted);
            }
            outcome?;
            clips.push(path);
        }
    }
    Ok(clips)
}

fn render(
    ffmpeg: &Path,
    path: &Path,
    encoder: &[&str],
    height: u32,
    fps: u32,
) -> Result<(), CliError> {
    let (height, width) = (height & !1, (height * 16 / 9) & !1);
    let source = format!("testsrc2=size={width}x{height}:rate={fps}:duration={CLIP_SECONDS}");
    let output = Command::new(ffmpeg)
        .args(["-v", "error", "-nostdin", "-y", "-f", "lavfi", "-i", &source])
        .args(["-pix_fmt", "yuv420p", "-g", &(2 * fps).to_string()])
        .args(encoder)
        .arg(path)
        .stdin(Stdio::null())
        .output()
        .map_err(|source| CliError::Read { path: ffmpeg.to_owned(), source })?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        return Err(CliError::Check(format!("ffmpeg cannot render a clip: {said}")));
    }
    Ok(())
}

fn table(capacity: &Capacity) -> TextTable {
    let streams = format!("STREAMS AT {}/S", capacity.fps);
    let columns = ["CODEC", "PICTURE", "DECODER", "MS/FRAME", "FRAMES/S", &streams];
    let rows = capacity.rows.iter().map(|row| {
        [
            row.codec.to_owned(),
            format!("{}x{}", row.width, row.height),
            row.decoder.clone(),
            format!("{:.2}", row.ms_per_frame),
            format!("{:.0}", row.frames_per_second),
            row.streams.to_string(),
        ]
    });
    TextTable::of(columns, rows)
}
