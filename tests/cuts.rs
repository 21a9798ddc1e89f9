//! Hard cuts on real video with known cuts, and none on what only looks like one.
//!
//! Goes through the sandboxed worker, as an ingest does. The known-cut files are for development;
//! they come from `SIGHTLINE_MEDIA_DIR`, and the look-alikes are made here with ffmpeg filters.
#![allow(missing_docs)]
#![forbid(unsafe_code)]

#[path = "support/skip.rs"]
mod skip;

use std::{
    fs::File,
    ops::ControlFlow,
    path::{Path, PathBuf},
    process::Command,
};

use decode::Sampling;
use gate::{Gate, GateConfig, Reason};
use serde_json::Value;
use skip::skip;
use worker::{CancelToken, JobEvent, JobSpec, Limits, Supervisor, WorkerProgram};

/// Frames that the gate calls a scene cut.
fn cuts(path: &Path) -> Vec<u64> {
    let supervisor = Supervisor::new(WorkerProgram::at(env!("CARGO_BIN_EXE_sightline-server")));
    let spec = JobSpec {
        input: File::open(path)
            .unwrap_or_else(|error| panic!("{}: {error}", path.display()))
            .into(),
        sampling: Sampling::Every,
        max_frames: 500_000,
        stills: false,
        views: None,
        gate: GateConfig::default(),
        threads: 2,
        limits: Limits::default(),
    };
    let mut gate = Gate::new(GateConfig::default());
    let mut found = Vec::new();
    supervisor
        .run_job(spec, &CancelToken::new(), &mut |event| {
            if let JobEvent::Signals(signals) = event {
                found.extend(signals.iter().filter_map(|signal| {
                    (gate.offer(signal).reason == Reason::SceneCut).then_some(signal.frame_index)
                }));
            }
            ControlFlow::Continue(())
        })
        .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    found
}

#[expect(clippy::disallowed_methods, reason = "where the clips are is the one setting of a test")]
fn media_dir() -> Option<PathBuf> {
    let dir = std::env::var_os("SIGHTLINE_MEDIA_DIR").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/media"),
        PathBuf::from,
    );
    if !dir.is_dir() {
        skip("the cuts", format!("no clips at SIGHTLINE_MEDIA_DIR={}", dir.display()));
        return None;
    }
    Some(dir)
}

/// Found, missed and invented cuts, each true cut matched once, within one frame.
fn compare(found: &[u64], known: &[u64]) -> (usize, Vec<u64>, Vec<u64>) {
    let mut invented = found.to_vec();
    let mut missed = Vec::new();
    for &cut in known {
        match invented.iter().position(|&frame| frame.abs_diff(cut) <= 1) {
            Some(at) => {
                invented.remove(at);
            }
            None => missed.push(cut),
        }
    }
    (known.len() - missed.len(), missed, invented)
}

#[test]
fn known_cuts_are_found_and_no_other() {
    let Some(media) = media_dir() else { return };
    let (mut hits, mut misses, mut inventions) = (0, 0, 0);
    for name in ["cuts_dev_360p", "cuts_dev_720p"] {
        let truth = std::fs::read(media.join(format!("{name}.json"))).expect("readable");
        let truth: Value = serde_json::from_slice(&truth).expect("JSON");
        let known: Vec<u64> = serde_json::from_value(truth["cuts"].clone()).expect("integers");
        let (hit, missed, invented) = compare(&cuts(&media.join(format!("{name}.mp4"))), &known);
        eprintln!("{name}: {hit} of {}, missed {missed:?}, invented {invented:?}", known.len());
        hits += hit;
        misses += missed.len();
        inventions += invented.len();
    }
    let f1 = 2.0 * hits as f64 / (2 * hits + misses + inventions) as f64;
    assert!(f1 >= 0.995, "F1 {f1:.4}");
}

#[test]
fn clips_without_a_cut_have_none() {
    let Some(media) = media_dir() else { return };
    let names = [
        "surv_bottle-detection.mp4",
        "surv_car-detection.mp4",
        "surv_one-by-one-person.mp4",
        "surv_traffic-camera.mp4",
        "talk_asl-book.mkv",
        "talk_friday.mp4",
        "nature_flower.mp4",
        "nature_water.webm",
        "anim_adx-360p.mp4",
        "phone_adx-edit-list.mp4",
        "phone_adx-hdr10.mp4",
        "phone_adx-topshots.mp4",
    ];
    for name in names {
        assert_eq!(cuts(&media.join("clips").join(name)), Vec::<u64>::new(), "{name}");
    }
}

/// A made clip without a cut: a real clip and the filters it is put through.
struct Lookalike {
    name: &'static str,
    clip: &'static str,
    filter: &'static str,
}

const LOOKALIKES: &[Lookalike] = &[
    Lookalike {
        name: "white flashes of one frame",
        clip: "surv_car-detection.mp4",
        filter: "fps=30,drawbox=t=fill:color=white:enable='eq(mod(n,23),11)'",
    },
    Lookalike {
        name: "white flashes of two frames",
        clip: "surv_traffic-camera.mp4",
        filter: "fps=30,drawbox=t=fill:color=white:enable='between(mod(n,31),11,12)'",
    },
    Lookalike {
        name: "black frames of one and two",
        clip: "talk_friday.mp4",
        filter: "drawbox=t=fill:color=black:enable='between(mod(n,37),20,20+mod(n,2))'",
    },
    Lookalike {
        name: "camera flash that brightens",
        clip: "surv_bottle-detection.mp4",
        filter: "eq=brightness=0.5:contrast=0.5:enable='between(mod(n,29),14,15)'",
    },
    Lookalike {
        name: "fast pan",
        clip: "screen_gh-scoped-creds.mp4",
        filter: "trim=end_frame=1,loop=loop=119:size=1,setpts=N/30/TB,crop=640:1400:'8*n':60,scale=640:360",
    },
    Lookalike {
        name: "fast pan and back over a street",
        clip: "surv_traffic-camera.mp4",
        filter: "fps=30,crop=640:480:'320+300*sin(n/12)':'100+60*cos(n/9)'",
    },
    Lookalike {
        name: "shaking camera",
        clip: "surv_traffic-camera.mp4",
        filter: "crop=1180:640:'50+40*sin(n*2.3)':'40+30*cos(n*1.7)'",
    },
    Lookalike {
        name: "fade in and out",
        clip: "nature_flower.mp4",
        filter: "fade=in:0:20,fade=out:60:15",
    },
    Lookalike {
        name: "exposure ramps",
        clip: "surv_car-detection.mp4",
        filter: "fps=30,eq=brightness='0.3*sin(n/10)':eval=frame",
    },
    Lookalike {
        name: "pop-up over a third of the picture",
        clip: "surv_bottle-detection.mp4",
        filter: "drawbox=x=60:y=40:w=300:h=260:t=fill:color=0xe0e0e0:enable='between(mod(n,50),20,40)'",
    },
    Lookalike {
        name: "lower third that comes and goes",
        clip: "talk_friday.mp4",
        filter: "drawbox=x=0:y=340:w=640:h=120:t=fill:color=0x2030a0:enable='between(mod(n,60),20,45)'",
    },
    Lookalike {
        name: "dark noisy camera",
        clip: "surv_one-by-one-person.mp4",
        filter: "trim=end_frame=300,lutyuv=y='16+(val-16)/7',noise=alls=24:allf=t",
    },
];

fn render(clip: &Path, filter: &str, out: &Path) {
    let status = Command::new("ffmpeg")
        .args(["-nostdin", "-loglevel", "error", "-y", "-i"])
        .arg(clip)
        .args(["-an", "-vf", filter, "-frames:v", "300", "-c:v", "libx264", "-preset", "ultrafast"])
        .args(["-crf", "18", "-pix_fmt", "yuv420p"])
        .arg(out)
        .status()
        .expect("ffmpeg is installed by `make setup`");
    assert!(status.success(), "ffmpeg: {filter}");
}

#[test]
fn what_only_looks_like_a_cut_is_none() {
    let Some(media) = media_dir() else { return };
    let folder = tempfile::tempdir().expect("temporary folder");
    let mut wrong = Vec::new();
    for (number, Lookalike { name, clip, filter }) in LOOKALIKES.iter().enumerate() {
        let path = folder.path().join(format!("{number}.mp4"));
        render(&media.join("clips").join(clip), filter, &path);
        let invented = cuts(&path);
        if !invented.is_empty() {
            wrong.push(format!("{name}: {invented:?}"));
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
}

#[test]
fn real_cuts_in_hard_conditions_are_found() {
    let Some(media) = media_dir() else { return };
    let folder = tempfile::tempdir().expect("temporary folder");
    let conditions = [
        ("plain", "null"),
        ("dark and noisy", "lutyuv=y='16+(val-16)/6',noise=alls=12:allf=t"),
        ("grey", "hue=s=0"),
        ("flat", "eq=contrast=0.25"),
    ];
    let clips = ["surv_car-detection.mp4", "talk_friday.mp4", "nature_flower.mp4"];
    for (number, (name, condition)) in conditions.iter().enumerate() {
        let path = folder.path().join(format!("{number}.mp4"));
        let parts: Vec<String> = (0..clips.len())
            .map(|clip| {
                format!(
                    "[{clip}:v]fps=30,trim=end_frame=60,setpts=N/30/TB,scale=640:360,setsar=1[v{clip}]"
                )
            })
            .collect();
        let inputs: String = (0..clips.len()).map(|clip| format!("[v{clip}]")).collect();
        let graph = format!("{};{inputs}concat=n={}:v=1,{condition}", parts.join(";"), clips.len());
        let mut command = Command::new("ffmpeg");
        command.args(["-nostdin", "-loglevel", "error", "-y"]);
        for clip in clips {
            command.arg("-i").arg(media.join("clips").join(clip));
        }
        let status = command
            .args(["-filter_complex", &graph, "-c:v", "libx264", "-preset", "ultrafast"])
            .args(["-pix_fmt", "yuv420p"])
            .arg(&path)
            .status()
            .expect("ffmpeg is installed by `make setup`");
        assert!(status.success(), "ffmpeg: {graph}");
        assert_eq!(cuts(&path), [60, 120], "{name}");
    }
}
