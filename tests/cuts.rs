//! Hard cuts of video whose cuts are known, and none where there is none.
//!
//! Goes through the sandboxed worker, as an ingest does; `gate/tests/gate/cuts.rs` has what only looks like a cut.

use std::{fs::File, ops::ControlFlow, path::Path};

use clips::{pick, sized, with_known_cuts};
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
