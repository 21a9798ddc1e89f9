//! Cost of live sessions: `live_cost FILE [--workers N] [--each N] [--seconds N] [--fps N] [--stills]
//! [--shown]` feeds a file's pictures in real time, at N per second and in a loop, to N sessions in each of N
//! workers. Sessions begin within two seconds, each at another keyframe, as cameras are independent and not
//! all of their pictures are costly at the same time.
//!
//! Prints one line: frames, units refused, milliseconds from `push` to the signals (of a frame itself, and of
//! the second one after it, which completes its signal), CPU, time for which the workers' threads waited for
//! a core, CPU of all other processes, which shows how reliable the milliseconds are, and resident memory.
//! `--stills` encodes selected frames, `--shown` also makes views, clips and novelty inputs.
#![forbid(unsafe_code)]

use std::{
    error::Error,
    fs::{self, File},
    io::BufReader,
    path::PathBuf,
    process::ExitCode,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use decode::Demuxer;
use gate::GateConfig;
use media::{AccessUnit, Codec};
use worker::{
    ClipSpec, FrameImages, LiveWorker, LiveWorkerEvent, NoveltySpec, SessionSpec, Supervisor,
    WorkerLimits, WorkerProgram, WorkerSessionEvent,
};

/// Seconds within which the sessions begin.
const SPREAD_SECONDS: u32 = 2;

/// Frames after a frame on which its signal depends.
const AHEAD: usize = 2;

struct Arguments {
    file: String,
    workers: u32,
    each: u32,
    seconds: u32,
    fps: u32,
    spec: SessionSpec,
}

fn arguments() -> Option<Arguments> {
    let spec = SessionSpec::new(Codec::H264, GateConfig::default());
    let mut given =
        Arguments { file: String::new(), workers: 1, each: 8, seconds: 20, fps: 30, spec };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        match word.as_str() {
            "--workers" => given.workers = words.next()?.parse().ok()?,
            "--each" => given.each = words.next()?.parse().ok()?,
            "--seconds" => given.seconds = words.next()?.parse().ok()?,
            "--fps" => given.fps = words.next()?.parse().ok().filter(|&fps| fps > 0)?,
            "--stills" => given.spec.stills = true,
            "--shown" => {
                given.spec.view_edge = Some(512);
                given.spec.novelty = Some(NoveltySpec { side: 224 });
                given.spec.clip = Some(ClipSpec {
                    target_fps: 6,
                    length_ms: 500,
                    delay_ms: 500,
                    pictures: 8,
                    max_edge: 512,
                });
            }
            _ => given.file = word,
        }
    }
    (!given.file.is_empty() && given.workers > 0 && given.each > 0).then_some(given)
}

/// Returns the pictures of a file as a live source sends them, and their duration in ticks.
fn pictures(path: &str) -> Result<(Vec<AccessUnit>, i64), Box<dyn Error>> {
    let input = Box::new(BufReader::new(File::open(path)?));
    let coded = Demuxer::open(input, decode::DemuxLimits::default())?.into_coded_pictures();
    let units: Vec<AccessUnit> = coded.map(|picture| picture.access_unit).collect();
    let ticks = || units.iter().map(|unit| unit.pts.ticks);
    let (Some(first), Some(last)) = (ticks().min(), ticks().max()) else {
        return Err("the file has no pictures with times".into());
    };
    let span = last - first;
    let step = span / (units.len().max(2) as i64 - 1);
    Ok((units, span + step))
}

/// Times at which each unit of a session was pushed, and at which its frame's signal came.
#[derive(Default)]
struct Session {
    pushed: Vec<Instant>,
    heard: Vec<Instant>,
}

#[derive(Default)]
struct Tally {
    sessions: Vec<Session>,
    pictures: usize,
    picture_bytes: usize,
    trouble: Vec<String>,
}

impl Tally {
    fn take(&mut self, first: u32, event: LiveWorkerEvent) {
        let (session, event) = match event {
            LiveWorkerEvent::Session { session, event } => (first + session, event),
            LiveWorkerEvent::Ended(error) => return self.trouble.push(error.to_string()),
            LiveWorkerEvent::GateLate => return self.trouble.push("a late batch".to_owned()),
            LiveWorkerEvent::GateLost(reason) | LiveWorkerEvent::DecoderLost(reason) => {
                return self.trouble.push(reason);
            }
        };
        match event {
            WorkerSessionEvent::Frames(records) => {
                let heard = &mut self.sessions[session as usize].heard;
                heard.extend(records.iter().map(|_| Instant::now()));
                for FrameImages { still, clip, .. } in records.into_iter().map(|it| it.pictures) {
                    for picture in [still, clip].into_iter().flatten() {
                        self.pictures += 1;
                        self.picture_bytes += picture.jpeg.len();
                    }
                }
            }
            WorkerSessionEvent::Damaged { detail } => self.trouble.push(detail),
            WorkerSessionEvent::Failed(fault) => self.trouble.push(fault.to_string()),
            WorkerSessionEvent::Closed { .. } => {}
        }
    }
}

fn run(given: &Arguments) -> Result<(), Box<dyn Error>> {
    let (units, length) = pictures(&given.file)?;
    let spec = SessionSpec { codec: units[0].codec, ..given.spec.clone() };
    let sessions = given.workers * given.each;
    let tally = Arc::new(Mutex::new(Tally::default()));
    lock(&tally).sessions.resize_with(sessions as usize, Session::default);
    let supervisor = Supervisor::new(WorkerProgram::current());
    let mut workers = Vec::new();
    for first in (0..sessions).step_by(given.each as usize) {
        let tally = Arc::clone(&tally);
        let listen = move |event| {
            lock(&tally).take(first, event);
            Ok(())
        };
        let live = supervisor.start_live(WorkerLimits::default(), listen)?;
        (0..given.each).try_for_each(|session| live.open(session, spec.clone()))?;
        workers.push(live);
    }
    let (started, busy) = (Instant::now(), busy_seconds() - own_seconds());
    let refused = feed(given, (&units, length), &workers, &tally);
    // Signals in flight still arrive.
    std::thread::sleep(Duration::from_millis(300));
    let others = busy_seconds() - own_seconds() - busy;
    report(given, &lock(&tally), (refused, others), started.elapsed());
    Ok(())
}

/// Pushes units when they are due, sessions spread over a frame's time; returns the number refused.
fn feed(
    given: &Arguments,
    (units, length): (&[AccessUnit], i64),
    workers: &[LiveWorker],
    tally: &Mutex<Tally>,
) -> u32 {
    let sessions = given.workers * given.each;
    let is_start = |at: &usize| units[*at].keyframe;
    let starts: Vec<usize> = (0..units.len()).filter(is_start).collect();
    let (began, mut refused) = (Instant::now(), 0);
    for turn in 0..given.seconds * given.fps * sessions {
        let (frame, session) = (turn / sessions, turn % sessions);
        let begin = session * SPREAD_SECONDS * given.fps / sessions;
        let Some(at) = frame.checked_sub(begin) else { continue };
        let at = starts.get(session as usize % starts.len().max(1)).unwrap_or(&0) + at as usize;
        let due = began + Duration::from_secs(1) * turn / (given.fps * sessions);
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        let mut unit = units[at % units.len()].clone();
        unit.pts.ticks += length * (at / units.len()) as i64;
        lock(tally).sessions[session as usize].pushed.push(Instant::now());
        let live = &workers[(session / given.each) as usize];
        if live.push(session % given.each, unit).is_err() {
            lock(tally).sessions[session as usize].pushed.pop();
            refused += 1;
        }
    }
    refused
}

fn lock(tally: &Mutex<Tally>) -> std::sync::MutexGuard<'_, Tally> {
    tally.lock().expect("no panic while counting")
}

/// Prints the figures; `others` is the CPU time of other processes, in seconds.
fn report(given: &Arguments, tally: &Tally, (refused, others): (u32, f64), wall: Duration) {
    let (mut own, mut completed) = (Vec::new(), Vec::new());
    for Session { pushed, heard } in &tally.sessions {
        let ms = |from: &Instant, to: &Instant| to.duration_since(*from).as_secs_f64() * 1000.0;
        own.extend(pushed.iter().zip(heard).map(|(from, to)| ms(from, to)));
        completed.extend(pushed.iter().skip(AHEAD).zip(heard).map(|(from, to)| ms(from, to)));
    }
    let frames = own.len();
    let cores = |seconds: f64| seconds / wall.as_secs_f64();
    let children = children();
    let workers_cpu: f64 = children.iter().map(|pid| cpu_seconds(pid)).sum();
    let waited: f64 = children.iter().map(|pid| waited_seconds(pid)).sum();
    let memory: Vec<u64> = children.iter().map(|pid| resident_mib(pid)).collect();
    println!(
        "sessions {} workers {} frames {frames} refused {refused} pictures {} KiB {} | own ms {} | \
         completed ms {} | cores: workers {:.2} and waited for {:.2} server {:.2} others {:.2} | worker MiB {memory:?}",
        given.workers * given.each,
        given.workers,
        tally.pictures,
        tally.picture_bytes >> 10,
        spread(own),
        spread(completed),
        cores(workers_cpu),
        cores(waited),
        cores(cpu_seconds("self")),
        cores(others),
    );
    tally.trouble.iter().take(5).for_each(|trouble| println!("trouble: {trouble}"));
}

fn spread(mut ms: Vec<f64>) -> String {
    ms.sort_by(f64::total_cmp);
    let at = |share: f64| ms.get((ms.len() as f64 * share) as usize).copied().unwrap_or(f64::NAN);
    let most = ms.last().copied().unwrap_or(f64::NAN);
    format!("p50 {:.1} p99 {:.1} max {most:.1}", at(0.5), at(0.99))
}

/// Process ids of this process's children.
fn children() -> Vec<String> {
    let own = std::process::id().to_string();
    let parent = |pid: &String| stat(pid).get(1).is_some_and(|parent| *parent == own);
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    names.filter(|name| name.bytes().all(|byte| byte.is_ascii_digit())).filter(parent).collect()
}

/// Returns the fields of a process's `stat` after its name, which may contain spaces.
fn stat(pid: &str) -> Vec<String> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(')').next().unwrap_or_default().split_whitespace().map(str::to_owned).collect()
}

/// Returns user and system time in seconds, from clock ticks of 10 ms.
fn cpu_seconds(pid: &str) -> f64 {
    let ticks = |at: usize| stat(pid).get(at).and_then(|it| it.parse::<f64>().ok()).unwrap_or(0.0);
    (ticks(11) + ticks(12)) / 100.0
}

/// Returns the seconds for which a process's threads were ready to run without a core.
fn waited_seconds(pid: &str) -> f64 {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let waited = |path: PathBuf| {
        let text = fs::read_to_string(path.join("schedstat")).ok()?;
        text.split_whitespace().nth(1)?.parse::<f64>().ok()
    };
    threads.filter_map(|thread| waited(thread.path())).sum::<f64>() / 1e9
}

/// Returns the CPU time of this process and its children, in seconds.
fn own_seconds() -> f64 {
    cpu_seconds("self") + children().iter().map(|pid| cpu_seconds(pid)).sum::<f64>()
}

/// Returns the busy time of all cores since the machine started, in seconds.
fn busy_seconds() -> f64 {
    let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
    let first = stat.lines().next().unwrap_or_default();
    let ticks: Vec<f64> = first.split_whitespace().filter_map(|it| it.parse().ok()).collect();
    // Idle, and waiting for storage: proc_stat(5).
    let idle = |at: &usize| matches!(at, 3 | 4);
    // Guest time is part of the other fields already.
    ticks.iter().take(8).enumerate().filter(|(at, _)| !idle(at)).map(|(_, it)| it / 100.0).sum()
}

fn resident_mib(pid: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or_default();
    let kib: u64 = line.split_whitespace().next().and_then(|it| it.parse().ok()).unwrap_or(0);
    kib >> 10
}

fn main() -> ExitCode {
    if worker::is_worker_invocation() {
        return worker::worker_main();
    }
    let Some(given) = arguments() else {
        eprintln!(
            "usage: live_cost FILE [--workers N] [--each N] [--seconds N] [--fps N] [--stills] \
             [--shown]"
        );
        return ExitCode::FAILURE;
    };
    match run(&given) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("live_cost: {error}");
            ExitCode::FAILURE
        }
    }
}
