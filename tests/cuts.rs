//! Hard cuts of video whose cuts are known, and none on what only looks like one.
//!
//! Goes through the sandboxed worker, as an ingest does. The look-alikes are made here with ffmpeg filters.

use std::{fs::File, ops::ControlFlow, path::Path};

use clips::{pick, pick_with, rendered_from, sized, with_known_cuts};
use gate::{Gate, GateConfig, SelectionReason};
use worker::{CancelToken, JobEvent, JobOptions, JobSpec, Supervisor, WorkerProgram};

use crate::support::sandbox;

/// More frames than a clip has.
const WHOLE: u64 = 500_000;

/// Frames of the first ones that the gate calls a scene cut.
fn cuts(path: &Path, max_frames: u64) -> Vec<u64> {
    let program = env!("CARGO_BIN_EXE_sightline-server");
    let program = WorkerProgram::at(program).with_sandbox(sandbox::policy(program));
    let supervisor = Supervisor::new(program);
    let file = File::open(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let spec = JobSpec::new(file, JobOptions { threads: 2, max_frames, ..JobOptions::default() });
    let mut gate = Gate::new(GateConfig::default());
    let mut found = Vec::new();
    supervisor
        .run_job(spec, &CancelToken::new(), &mut |event| {
            if let JobEvent::Frames(records) = event {
                found.extend(records.iter().map(|record| record.signal).filter_map(|signal| {
                    (gate.offer(&signal).reason == SelectionReason::SceneCut)
                        .then_some(signal.frame_index)
                }));
            }
            ControlFlow::Continue(())
        })
        .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    found
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
    let (mut hits, mut misses, mut inventions) = (0, 0, 0);
    for (path, known) in with_known_cuts() {
        let (hit, missed, invented) = compare(&cuts(&path, WHOLE), &known);
        let (name, count) = (path.display(), known.len());
        eprintln!("{name}: {hit} of {count}, missed {missed:?}, invented {invented:?}");
        hits += hit;
        misses += missed.len();
        inventions += invented.len();
    }
    let f1 = 2.0 * hits as f64 / (2 * hits + misses + inventions) as f64;
    assert!(hits >= 40, "{hits} cuts");
    assert!(f1 >= 0.998, "F1 {f1:.4}");
}

#[test]
fn clips_without_a_cut_have_none() {
    let built_in = [
        "bigbuckbunny.mp4",
        "carphone_distorted.mp4",
        "carphone_pristine.mp4",
        "hevc.mp4",
        "motion.mp4",
        "rotated.mp4",
        "signing.mkv",
        "street.mp4",
        "talk.mp4",
        "water.webm",
    ];
    let media = [
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
    for path in pick(&built_in, &media) {
        let found = cuts(&path, sized(500, WHOLE));
        assert_eq!(found, Vec::<u64>::new(), "{}", path.display());
    }
}

/// A made clip without a cut: a clip, built-in or of the media folder, and the filters it is put through.
#[derive(Clone, Copy)]
struct Lookalike {
    name: &'static str,
    clips: [&'static str; 2],
    filter: &'static str,
}

const LOOKALIKES: &[Lookalike] = &[
    Lookalike {
        name: "white flashes of one frame",
        clips: ["street.mp4", "surv_car-detection.mp4"],
        filter: "fps=30,drawbox=t=fill:color=white:enable='eq(mod(n,23),11)'",
    },
    Lookalike {
        name: "white flashes of two frames",
        clips: ["bigbuckbunny.mp4", "surv_traffic-camera.mp4"],
        filter: "fps=30,drawbox=t=fill:color=white:enable='between(mod(n,31),11,12)'",
    },
    Lookalike {
        name: "black frames of one and two",
        clips: ["talk.mp4", "talk_friday.mp4"],
        filter: "drawbox=t=fill:color=black:enable='between(mod(n,37),20,20+mod(n,2))'",
    },
    Lookalike {
        name: "camera flash that brightens",
        clips: ["street.mp4", "surv_bottle-detection.mp4"],
        filter: "eq=brightness=0.5:contrast=0.5:enable='between(mod(n,29),14,15)'",
    },
    Lookalike {
        name: "fast pan",
        clips: ["screen.mp4", "screen_gh-scoped-creds.mp4"],
        filter: "trim=end_frame=1,loop=loop=119:size=1,setpts=N/30/TB,crop=640:1400:'8*n':60,scale=640:360",
    },
    Lookalike {
        name: "fast pan and back over a street",
        clips: ["bigbuckbunny.mp4", "surv_traffic-camera.mp4"],
        filter: "fps=30,crop=640:480:'320+300*sin(n/12)':'100+60*cos(n/9)'",
    },
    Lookalike {
        name: "shaking camera",
        clips: ["bigbuckbunny.mp4", "surv_traffic-camera.mp4"],
        filter: "crop=1180:640:'50+40*sin(n*2.3)':'40+30*cos(n*1.7)'",
    },
    Lookalike {
        name: "fade in and out",
        clips: ["motion.mp4", "nature_flower.mp4"],
        filter: "fade=in:0:20,fade=out:60:15",
    },
    Lookalike {
        name: "exposure ramps",
        clips: ["street.mp4", "surv_car-detection.mp4"],
        filter: "fps=30,eq=brightness='0.3*sin(n/10)':eval=frame",
    },
    Lookalike {
        name: "pop-up over a third of the picture",
        clips: ["street.mp4", "surv_bottle-detection.mp4"],
        filter: "drawbox=x=60:y=40:w=300:h=260:t=fill:color=0xe0e0e0:enable='between(mod(n,50),20,40)'",
    },
    Lookalike {
        name: "lower third that comes and goes",
        clips: ["talk.mp4", "talk_friday.mp4"],
        filter: "drawbox=x=0:y=340:w=640:h=120:t=fill:color=0x2030a0:enable='between(mod(n,60),20,45)'",
    },
    Lookalike {
        name: "dark noisy camera",
        clips: ["street.mp4", "surv_one-by-one-person.mp4"],
        filter: "trim=end_frame=300,lutyuv=y='16+(val-16)/7',noise=alls=24:allf=t",
    },
];

/// Encoding of all that is made here.
const CODING: &str = "-an -c:v libx264 -preset ultrafast -crf 18 -pix_fmt yuv420p";

#[test]
fn what_only_looks_like_a_cut_is_none() {
    let of = |origin: usize| -> Vec<_> {
        LOOKALIKES.iter().map(|made| (made.clips[origin], *made)).collect()
    };
    let mut wrong = Vec::new();
    for (clip, Lookalike { name, filter, .. }) in pick_with(&of(0), &of(1)) {
        let line = format!("-i {{0}} -vf {filter} -frames:v 300 {CODING}");
        let invented = cuts(&rendered_from("lookalike.mp4", &line, &[&clip]), WHOLE);
        if !invented.is_empty() {
            wrong.push(format!("{name}: {invented:?}"));
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
}
