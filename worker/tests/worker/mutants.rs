//! A thousand damaged files: each ends with a result or with an error that names the fault.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::Write,
    ops::ControlFlow,
    path::PathBuf,
    sync::Mutex,
    thread,
    time::{Duration, Instant},
};

use clips::{pick, rendered};
use fastrand::Rng;
use media::ErrorKind;
use worker::{CancelToken, JobSpec, Supervisor, WorkerError, WorkerLimits};

use crate::support::{alone, program, spec};

/// Far more time than forty frames of 176x144 take on the busiest machine: only a hang reaches it.
pub const PATIENCE: Duration = Duration::from_secs(120);

const MUTANTS: u64 = 1000;
/// Most mutants that may exceed the memory limit: a header can announce pictures of 8192x8192.
const HUNGRY_MAX: usize = 5;

/// Returns one small file per container and codec.
pub fn made() -> Vec<PathBuf> {
    const KINDS: [(&str, &str); 14] = [
        ("h264.mp4", "-c:v libx264 -g 8"),
        ("fragmented.mp4", "-c:v libx264 -g 8 -movflags frag_keyframe+empty_moov"),
        ("hevc.mp4", "-c:v libx265 -x265-params log-level=none"),
        ("mpeg4.mov", "-c:v mpeg4"),
        ("mjpeg.mov", "-c:v mjpeg -pix_fmt yuvj422p"),
        ("h264.mkv", "-c:v libx264 -pix_fmt yuv420p10le"),
        ("vp8.webm", "-c:v libvpx -deadline realtime"),
        ("vp9.webm", "-c:v libvpx-vp9 -deadline realtime -cpu-used 8"),
        ("av1.mkv", "-c:v libsvtav1 -preset 12"),
        ("h264.ts", "-c:v libx264 -g 8"),
        ("mpeg4.avi", "-c:v mpeg4"),
        ("h264.flv", "-c:v libx264 -g 8"),
        ("annexb.h264", "-c:v libx264 -g 8"),
        ("annexb.hevc", "-c:v libx265 -x265-params log-level=none"),
    ];
    let source = "-f lavfi -i testsrc2=s=176x144:r=25:d=0.8";
    KINDS.map(|(name, codec)| rendered(name, &format!("{source} {codec}"))).to_vec()
}

pub fn mutate(bytes: &mut Vec<u8>, dice: &mut Rng) {
    let len = bytes.len();
    match dice.usize(..6) {
        0 => bytes.truncate(dice.usize(..len.max(1))),
        1 => {
            // In most containers headers are at the start.
            for _ in 0..=dice.usize(..8) {
                let at = dice.usize(..len.clamp(1, 2048));
                bytes[at] = dice.usize(..256) as u8;
            }
        }
        2 => {
            for _ in 0..=dice.usize(..64) {
                let at = dice.usize(..len.max(1));
                bytes[at] ^= 1 << dice.usize(..8);
            }
        }
        3 => {
            let (from, to) = (dice.usize(..len.max(1)), dice.usize(..len.max(1)));
            let piece = dice.usize(..4096).min(len - from).min(len - to);
            bytes.copy_within(from..from + piece, to);
        }
        4 => {
            let (at, piece) = (dice.usize(..len.max(1)), dice.usize(..512));
            bytes.drain(at..(at + piece).min(len));
        }
        _ => {
            // Sets sizes or counts to impossible values.
            let at = dice.usize(..len.saturating_sub(4).max(1));
            bytes[at..(at + 4).min(len)].fill(0xff);
        }
    }
}

pub fn verdict(error: &WorkerError) -> &'static str {
    match error {
        WorkerError::Fault(fault) if fault.kind() == ErrorKind::Internal => "internal",
        WorkerError::Fault(_) => "clear error",
        WorkerError::FirstFrameTimeout { .. }
        | WorkerError::Stalled { .. }
        | WorkerError::WallClock { .. } => "watchdog",
        WorkerError::MemoryLimit { .. } => "memory limit",
        WorkerError::Killed { .. } | WorkerError::Exited { .. } => "crash",
        _ => "other",
    }
}

#[test]
fn mutants_end_in_a_result_or_a_clear_error() {
    let _alone = alone();
    let supervisor = Supervisor::new(program().with_fork_server(|_, _| ()));
    let folder = tempfile::tempdir().expect("a folder");
    let mut sources = made();
    sources.extend(pick(
        &["carphone_pristine.mp4", "signing.mkv", "water.webm"],
        &["film_nasa.mp4", "nature_water.webm", "talk_asl-book.mkv"],
    ));
    let originals: Vec<Vec<u8>> =
        sources.iter().map(|path| fs::read(path).expect("readable")).collect();
    #[expect(clippy::disallowed_methods, reason = "another seed by hand finds other mutants")]
    let seed = std::env::var("SIGHTLINE_MUTANT_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed: u64 = seed.unwrap_or(1);

    let tally = Mutex::new(BTreeMap::<&str, usize>::new());
    let slowest = Mutex::new((Duration::ZERO, 0));
    let work = &|share: u64| {
        for number in (share..MUTANTS).step_by(2) {
            let mut dice = Rng::with_seed(seed << 32 | number);
            let source = number as usize % originals.len();
            let mut bytes = originals[source].clone();
            for _ in 0..=dice.usize(..3) {
                mutate(&mut bytes, &mut dice);
            }
            let path = folder.path().join(format!("mutant-{share}"));
            File::create(&path).and_then(|mut file| file.write_all(&bytes)).expect("written");
            let started = Instant::now();
            let limits = WorkerLimits {
                first_frame: PATIENCE,
                stall: PATIENCE,
                wall: PATIENCE,
                ..WorkerLimits::default()
            };
            let spec = JobSpec { max_frames: 40, threads: 1, limits, ..spec(&path) };
            let heard = &mut |_| ControlFlow::Continue(());
            let outcome = supervisor.run_job(spec, &CancelToken::new(), heard);
            let took = started.elapsed();
            let name = sources[source].display();
            let verdict = outcome.as_ref().map_or_else(verdict, |_| "result");
            if !matches!(verdict, "result" | "clear error") {
                eprintln!("mutant {number} of {name}: {:?}", outcome.err());
            }
            assert!(verdict != "other", "mutant {number} of {name}");
            *tally.lock().expect("no panic").entry(verdict).or_default() += 1;
            let mut slowest = slowest.lock().expect("no panic");
            *slowest = (took, number).max(*slowest);
        }
    };
    thread::scope(|scope| {
        for share in 0..2 {
            thread::Builder::new()
                .name(format!("mutants-{share}"))
                .spawn_scoped(scope, move || work(share))
                .expect("a thread");
        }
    });
    let tally = tally.into_inner().expect("no panic");
    let (took, number) = slowest.into_inner().expect("no panic");
    let source = sources[number as usize % sources.len()].display();
    eprintln!("seed {seed}: {tally:?}, slowest {number} of {source} in {took:?}");
    assert_eq!(tally.values().sum::<usize>() as u64, MUTANTS);
    assert_eq!(tally.get("internal"), None, "damage is the file's fault, not ours");
    assert_eq!(tally.get("watchdog"), None, "something hangs: contained, and worth a report");
    let hungry = tally.get("memory limit").copied().unwrap_or(0);
    assert!(hungry <= HUNGRY_MAX, "{hungry} mutants reached the memory limit");
    assert_eq!(tally.get("crash"), None, "a decoder crashed: contained, and still worth a report");
}
