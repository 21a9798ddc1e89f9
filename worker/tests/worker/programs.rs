//! An external ffmpeg as the decoder: frames, times and stills equal those of libav's own decoders, even if
//! it fails.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::PathBuf,
    process::Command,
    time::{Duration, Instant},
};

use clips::pick;
use decode::DecodeBackend;
use fastrand::Rng;
use media::Codec;
use worker::{
    BackendChoice::Named, BackendRequest, CancelToken, DecodeSelection, GateBackend, JobEvent,
    JobSpec, Supervisor, WorkerLimits,
};

use crate::{
    backends::select,
    damaged::mutate,
    faults::children,
    gates::on_an_adapter,
    mutants::PATIENCE,
    support::{Heard, alone, long_clip, program, rendered, run, run_by, spec, with},
};

fn select_program() -> (Supervisor, DecodeSelection) {
    let (decode, gate) = (Named(DecodeBackend::FfmpegCli), Named(GateBackend::Cpu));
    select(decode, gate, None).expect("ffmpeg decodes")
}

/// Path of the system's ffmpeg, which `deploy/setup.sh test` installs.
pub fn ffmpeg() -> PathBuf {
    let found = Command::new("sh").args(["-c", "command -v ffmpeg"]).output().expect("a shell");
    PathBuf::from(String::from_utf8_lossy(&found.stdout).trim())
}

#[test]
fn it_decodes_a_clip_of_every_codec_that_it_is_asked_for() {
    let _alone = alone();
    let (_, found) = select_program();
    assert_eq!(found.backend, DecodeBackend::FfmpegCli);
    let missing = &found.sandbox.missing;
    assert_eq!(missing[..], ["closed file system (ffmpeg-cli reads its libraries)"]);
    assert!(found.sandbox.seccomp && found.sandbox.rlimits, "{}", found.sandbox);
    for tried in found.capabilities.codecs {
        let decoder = tried.decoder.clone().unwrap_or_default();
        let is_asked = !matches!(tried.codec, Codec::Mpeg4 | Codec::Mjpeg);
        assert_eq!(decoder.starts_with("ffmpeg-cli:"), is_asked, "{tried:?}");
        assert!(!is_asked || tried.reason.is_none(), "{tried:?}");
    }
}

#[test]
fn what_becomes_a_program_is_refused_everything_but_to_stat() {
    let _alone = alone();
    let attempts = Supervisor::new(program()).probe_program_sandbox().expect("survives");
    assert!(attempts.len() >= 12, "{attempts:?}");
    for attempt in attempts {
        // landlock has no right for this action.
        let may = attempt.what == "stat a path";
        assert_eq!(attempt.is_refused(), !may, "{attempt:?}");
    }
}

#[test]
fn beside_a_gate_on_a_device_files_say_what_they_say_without_both() {
    let _alone = alone();
    let test = "a program beside a gate on a device";
    let Some(supervisor) = on_an_adapter(test, DecodeBackend::FfmpegCli) else { return };
    let path = rendered("reordered.mp4", "testsrc2=s=320x180:r=30000/1001:d=4", "-bf 3");
    let mut found = by_program(&supervisor, spec(&path));
    let mut expected = settled(run(spec(&path)).expect("decodes"));
    let by = found.measured_by.take().expect("told");
    assert!(by.measurer.starts_with("wgpu:") && by.lost.is_none(), "{by:?}");
    assert!(expected.measured_by.take().is_some());
    assert!(found == expected, "signals, stills and report are equal");
}

/// Returns a job's result by the program; fails if another decoder was used.
fn by_program(supervisor: &Supervisor, spec: JobSpec) -> Heard {
    let heard = run_by(supervisor, spec).expect("decodes");
    let report = heard.done.as_ref().expect("told");
    assert!(report.decoder.starts_with("ffmpeg-cli:"), "{report:?}");
    assert_eq!(report.fallback, None);
    settled(heard)
}

/// Clears the decoder's name, values that depend on timing, and the knowledge of frames past the last one, as
/// a program's output comes in other pieces.
fn settled(heard: Heard) -> Heard {
    let mut heard = heard.settled();
    if let Some(report) = &mut heard.done {
        report.decoder.clear();
        report.fallback = None;
        report.more_frames = false;
    }
    heard
}

#[test]
fn files_say_what_they_say_without_it() {
    let _alone = alone();
    let (supervisor, _) = select_program();
    let mut clips = vec![rendered("reordered.mp4", "testsrc2=s=320x180:r=30000/1001:d=4", "-bf 3")];
    // H.264, H.265 of 8 and 10 bits, AV1, VP8, VP9; reordered, cut by an edit list, of various rates.
    let built_in = [
        "av1.mp4",
        "bigbuckbunny.mp4",
        "bikes.mp4",
        "edit-list.mp4",
        "hevc.mp4",
        "signing.mkv",
        "vfr.mp4",
        "water.webm",
    ];
    let media = [
        "nature_flower.mp4",
        "nature_water.webm",
        "anim_bbb-1080p60-vp8.webm",
        "anim_mb-annexb.mkv",
        "phone_adx-1080p-av1.mp4",
        "phone_adx-edit-list.mp4",
        "phone_adx-hdr10.mp4",
        "phone_mb-h265.mp4",
        "screen_mb-vfr.mp4",
    ];
    clips.extend(pick(&built_in, &media));
    for path in clips {
        let limited = || with(spec(&path), |it| it.max_frames = 60);
        let expected = settled(run(limited()).expect("decodes"));
        let found = by_program(&supervisor, limited());
        assert_eq!(found.done, expected.done, "{}", path.display());
        assert!(found == expected, "{}", path.display());
        assert!(!expected.signals.is_empty());
    }
}

/// Returns the children of this process that run ffmpeg.
fn running() -> Vec<i32> {
    let name = |pid: &i32| fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    children().into_iter().filter(|pid| name(pid) == "ffmpeg\n").collect()
}

/// Returns the current memory of all workers and their programs, in bytes.
fn resident_bytes() -> u64 {
    let of = |pid: i32| {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
        line.trim_end_matches("kB").trim().parse::<u64>().ok()
    };
    children().into_iter().filter_map(of).sum::<u64>() << 10
}

#[test]
fn one_that_is_killed_midway_costs_no_frame() {
    let _alone = alone();
    let (supervisor, _) = select_program();
    let expected = settled(run(spec(&long_clip())).expect("decodes"));
    let (mut heard, mut killed) = (Heard::default(), Vec::new());
    let report = supervisor.run_job(spec(&long_clip()), &CancelToken::new(), &mut |event| {
        if killed.is_empty() && matches!(event, JobEvent::Progress { frames: 20.., .. }) {
            killed = running();
            for pid in &killed {
                let pid = rustix::process::Pid::from_raw(*pid).expect("a process");
                rustix::process::kill_process(pid, rustix::process::Signal::KILL).expect("ours");
            }
        }
        heard.take(event)
    });
    let report = report.expect("goes on");
    assert_eq!(killed.len(), 1, "one program decodes one stream");
    assert!(report.decoder.contains("software:h264"), "{report:?}");
    assert!(report.fallback.is_some_and(|reason| reason.contains("ffmpeg")));
    assert!(settled(heard) == expected, "every frame once");
    assert_eq!(running(), Vec::<i32>::new(), "none outlives its job");
}

#[test]
fn damaged_files_end_as_they_do_without_it() {
    const MUTANTS: u64 = 40;
    let _alone = alone();
    let (supervisor, _) = select_program();
    let whole = rendered("small.mp4", "testsrc2=s=176x144:r=25:d=1", "-g 8 -bf 2");
    let whole = fs::read(whole).expect("readable");
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("mutant.mp4");
    let mut decoded = 0;
    for seed in 1..=MUTANTS {
        let mut bytes = whole.clone();
        mutate(&mut bytes, &mut Rng::with_seed(seed));
        fs::write(&path, &bytes).expect("written");
        let expected = run(spec(&path)).map(settled).map_err(|error| error.to_string());
        let started = Instant::now();
        let found = run_by(&supervisor, spec(&path)).map_err(|error| error.to_string());
        assert!(started.elapsed() < PATIENCE, "mutant {seed}");
        decoded += usize::from(found.is_ok());
        let told = found.as_ref().map(|heard| heard.done.clone());
        let ended = format!("mutant {seed}: {told:?}, {:?}", expected.as_ref().err());
        assert!(found.map(settled) == expected, "{ended}");
    }
    println!("{decoded} of {MUTANTS} decoded");
    assert!(decoded > 0);
}

/// Returns a job's result, and the peak memory of its processes in bytes.
fn weighed(supervisor: &Supervisor, spec: JobSpec) -> (Heard, u64) {
    let (mut heard, mut most, mut looked) = (Heard::default(), 0, Instant::now());
    let mut hear = |event| {
        if looked.elapsed() > Duration::from_millis(10) {
            most = most.max(resident_bytes());
            looked = Instant::now();
        }
        heard.take(event)
    };
    supervisor.run_job(spec, &CancelToken::new(), &mut hear).expect("decodes");
    (heard, most)
}

#[test]
fn a_program_that_takes_too_much_is_done_without() {
    let _alone = alone();
    let (supervisor, _) = select_program();
    let path = rendered("small-pictures.mp4", "testsrc2=s=320x180:r=25:d=60", "");
    let (expected, without) = weighed(&crate::support::supervisor(), spec(&path));
    let expected = settled(expected);
    let (heard, with) = weighed(&supervisor, spec(&path));
    let fallback = |heard: &Heard| heard.done.clone().expect("told").fallback;
    assert_eq!(fallback(&heard), None, "it may take {with} bytes");
    // Most of ffmpeg's memory is its libraries, whose size depends on the system.
    println!("{without} bytes without it, {with} with it");
    assert!(with > without + (8 << 20), "{without} bytes without it, {with} with it");
    // The worker alone stays within the limit; the worker with the program does not.
    let limits = WorkerLimits { memory_bytes: without.midpoint(with), ..WorkerLimits::default() };
    let (heard, _) = weighed(&supervisor, JobSpec { limits, ..spec(&path) });
    assert!(fallback(&heard).is_some_and(|reason| reason.contains("ffmpeg")), "{with} bytes");
    assert!(settled(heard) == expected, "every frame once");
}

#[test]
fn what_is_no_ffmpeg_is_an_error_that_says_so() {
    let _alone = alone();
    let dir = tempfile::tempdir().expect("a directory");
    let script = dir.path().join("ffmpeg");
    fs::write(&script, "#!/bin/sh\necho out of its sandbox >\"$0.proof\"\n").expect("written");
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).expect("made executable");
    let rows: [(Option<&str>, &str); 4] = [
        (None, "no program to run, looked for at SERVICE_FFMPEG_PATH and PATH"),
        (Some("/bin/true"), "/bin/true is no ffmpeg of version 5.1 or later"),
        (Some("/nonexistent/ffmpeg"), "it says \"media program: No such file"),
        // The script's interpreter is not among the files that a program may read.
        (script.to_str(), "is no ffmpeg of version 5.1 or later"),
    ];
    for (path, words) in rows {
        let (choice, ffmpeg) = (Named(DecodeBackend::FfmpegCli), path.map(PathBuf::from));
        let wanted = BackendRequest { choice, ffmpeg, ..BackendRequest::default() };
        let error = Supervisor::select(&program(), &wanted).expect_err(words).to_string();
        assert!(error.contains(words), "{path:?}: {error}");
    }
    assert!(!script.with_extension("proof").exists());
}
