//! Cost of analysing a file: `analyze_cost FILE [--stills] [--views FRAMES:PER_CHUNK:EDGE]
//! [--worker] [--threads N] [--fps N]`, and cost of starting a worker and asking for its
//! capabilities: `analyze_cost --spawn N`.
//!
//! Prints one line: frames, signals, stills and views with their bytes, CPU and wall seconds. With
//! `--worker` the job runs in a sandboxed process, whose CPU time is counted as well.
#![forbid(unsafe_code)]

use std::{
    fs::File, io::BufReader, ops::ControlFlow, process::ExitCode, sync::Mutex, time::Instant,
};

use decode::Sampling;
use gate::GateConfig;
use media::{Rate, Zones};
use worker::{
    CancelToken, Chunking, JobEvent, JobOptions, JobSpec, Limits, Supervisor, ViewOptions,
    WorkerProgram, analyze,
};

struct Arguments {
    file: String,
    spawns: u32,
    stills: bool,
    views: Option<ViewOptions>,
    worker: bool,
    threads: usize,
    sampling: Sampling,
}

fn arguments() -> Option<Arguments> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let mut given = Arguments {
        file: String::new(),
        spawns: 0,
        stills: false,
        views: None,
        worker: false,
        threads,
        sampling: Sampling::Every,
    };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        match word.as_str() {
            "--stills" => given.stills = true,
            "--views" => given.views = Some(views(&words.next()?)?),
            "--worker" => given.worker = true,
            "--spawn" => given.spawns = words.next()?.parse().ok()?,
            "--threads" => given.threads = words.next()?.parse().ok()?,
            "--fps" => {
                let fps = words.next()?.parse().ok()?;
                given.sampling = Sampling::Fixed(Rate::from_f64(fps)?);
            }
            _ => given.file = word,
        }
    }
    (given.spawns > 0 || !given.file.is_empty()).then_some(given)
}

/// `FRAMES:PER_CHUNK:EDGE`, such as `30:4:512`; an edge of 0 is the largest.
fn views(words: &str) -> Option<ViewOptions> {
    let numbers: Vec<u32> = words.split(':').map(str::parse).collect::<Result<_, _>>().ok()?;
    let &[frames, per_chunk, edge] = &numbers[..] else { return None };
    let options = ViewOptions {
        chunks: Chunking::Frames(frames),
        per_chunk: per_chunk.try_into().ok()?,
        max_edge: (edge > 0).then_some(edge),
        crop: None,
        novelty: None,
    };
    Some(options.within_bounds())
}

#[derive(Default)]
struct Tally {
    signals: usize,
    stills: usize,
    still_bytes: usize,
    views: usize,
    view_bytes: usize,
}

impl Tally {
    fn count(&mut self, event: &JobEvent) {
        let JobEvent::Frames(records) = event else { return };
        self.signals += records.len();
        for pictures in records.iter().map(|record| &record.pictures) {
            let (still, view) = (pictures.still.as_ref(), pictures.shown());
            self.stills += usize::from(still.is_some());
            self.still_bytes += still.map_or(0, |still| still.jpeg.len());
            self.views += usize::from(view.is_some());
            self.view_bytes += view.map_or(0, |view| view.jpeg.len());
        }
    }
}

fn run(given: &Arguments, tally: &Mutex<Tally>) -> Result<u64, Box<dyn std::error::Error>> {
    let count = |event: JobEvent| {
        tally.lock().expect("no panic while counting").count(&event);
        ControlFlow::Continue(())
    };
    let input = File::open(&given.file)?;
    let Arguments { stills, views, threads, sampling, .. } = *given;
    let (max_frames, gate) = (500_000, GateConfig::default());
    let report = if given.worker {
        let limits = Limits::default();
        let input = input.into();
        let spec = JobSpec {
            input,
            sampling,
            max_frames,
            stills,
            views,
            gate,
            zones: Zones::default(),
            threads,
            resume: None,
            limits,
        };
        let supervisor = Supervisor::new(WorkerProgram::current());
        supervisor.run_job(spec, &CancelToken::new(), &mut |event| count(event))?
    } else {
        let options = JobOptions {
            sampling,
            max_frames,
            stills,
            views,
            gate,
            zones: Zones::default(),
            threads,
            resume: None,
        };
        analyze(BufReader::new(input), &options, &count)?
    };
    Ok(report.frames)
}

/// Starts, confines and ends workers one after the other.
fn spawn(count: u32) -> Result<(), worker::WorkerError> {
    let supervisor = Supervisor::new(WorkerProgram::current());
    let (started, cpu) = (Instant::now(), cpu_seconds());
    for _ in 0..count {
        supervisor.capabilities()?;
    }
    let each = |seconds: f64| seconds * 1000.0 / f64::from(count);
    let wall_ms = each(started.elapsed().as_secs_f64());
    println!("spawns {count} wall_ms {wall_ms:.2} cpu_ms {:.2}", each(cpu_seconds() - cpu));
    Ok(())
}

/// User and system time in clock ticks of 10 ms, of this process and of children that have ended.
fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The command in parentheses may hold spaces.
    let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
    let ticks: f64 = fields.skip(11).take(4).filter_map(|field| field.parse::<f64>().ok()).sum();
    ticks / 100.0
}

fn main() -> ExitCode {
    if worker::is_worker_invocation() {
        return worker::worker_main();
    }
    let Some(given) = arguments() else {
        eprintln!(
            "usage: analyze_cost FILE [--stills] [--views FRAMES:PER_CHUNK:EDGE] [--worker] \
             [--threads N] [--fps N] | --spawn N"
        );
        return ExitCode::FAILURE;
    };
    if given.spawns > 0 {
        return match spawn(given.spawns) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("analyze_cost: {error}");
                ExitCode::FAILURE
            }
        };
    }
    let (started, tally) = (Instant::now(), Mutex::default());
    match run(&given, &tally) {
        Ok(frames) => {
            let tally = tally.into_inner().expect("no panic while counting");
            println!(
                "frames {frames} signals {} stills {} still_bytes {} views {} view_bytes {} \
                 cpu_s {:.2} wall_s {:.3}",
                tally.signals,
                tally.stills,
                tally.still_bytes,
                tally.views,
                tally.view_bytes,
                cpu_seconds(),
                started.elapsed().as_secs_f64()
            );
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("analyze_cost: {error}");
            ExitCode::FAILURE
        }
    }
}
