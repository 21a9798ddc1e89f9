//! What analysing a file costs: `analyze_cost FILE [--stills] [--worker] [--threads N] [--fps N]`,
//! and what starting a worker costs: `analyze_cost --spawn N`.
//!
//! Prints one line: frames, signals, stills and their bytes, CPU and wall seconds. With `--worker`
//! the job runs in a sandboxed process, whose CPU time is counted as well.
#![forbid(unsafe_code)]

use std::{
    fs::File, io::BufReader, ops::ControlFlow, process::ExitCode, sync::Mutex, time::Instant,
};

use decode::Sampling;
use gate::GateConfig;
use media::Rate;
use worker::{
    CancelToken, JobEvent, JobOptions, JobSpec, Limits, Supervisor, WorkerProgram, analyze,
};

struct Arguments {
    file: String,
    spawns: u32,
    stills: bool,
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
        worker: false,
        threads,
        sampling: Sampling::Every,
    };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        match word.as_str() {
            "--stills" => given.stills = true,
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

#[derive(Default)]
struct Tally {
    signals: usize,
    stills: usize,
    still_bytes: usize,
}

impl Tally {
    fn count(&mut self, event: &JobEvent) {
        match event {
            JobEvent::Signals(signals) => self.signals += signals.len(),
            JobEvent::Still(still) => {
                self.stills += 1;
                self.still_bytes += still.jpeg.len();
            }
            _ => {}
        }
    }
}

fn run(given: &Arguments, tally: &Mutex<Tally>) -> Result<u64, Box<dyn std::error::Error>> {
    let count = |event: JobEvent| {
        tally.lock().expect("no panic while counting").count(&event);
        ControlFlow::Continue(())
    };
    let input = File::open(&given.file)?;
    let Arguments { stills, threads, sampling, .. } = *given;
    let (max_frames, gate) = (500_000, GateConfig::default());
    let report = if given.worker {
        let limits = Limits::default();
        let spec =
            JobSpec { input: input.into(), sampling, max_frames, stills, gate, threads, limits };
        let supervisor = Supervisor::new(WorkerProgram::current());
        supervisor.run_job(spec, &CancelToken::new(), &mut |event| count(event))?
    } else {
        let options = JobOptions { sampling, max_frames, stills, gate, threads };
        analyze(BufReader::new(input), &options, &count)?
    };
    Ok(report.frames)
}

/// Starts, confines and ends workers one after the other.
fn spawn(count: u32) -> Result<(), worker::WorkerError> {
    let supervisor = Supervisor::new(WorkerProgram::current());
    let (started, cpu) = (Instant::now(), cpu_seconds());
    for _ in 0..count {
        supervisor.sandbox_report()?;
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
            "usage: analyze_cost FILE [--stills] [--worker] [--threads N] [--fps N] | --spawn N"
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
                "frames {frames} signals {} stills {} still_bytes {} cpu_s {:.2} wall_s {:.3}",
                tally.signals,
                tally.stills,
                tally.still_bytes,
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
