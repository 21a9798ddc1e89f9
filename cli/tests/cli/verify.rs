//! `sightline verify` on runs as a server records them, and on modified runs.

use std::path::Path;

use media::{Activity, BlobHash, EventType, GateConfig, RequestId, RunId, Score, Signal};
use serde_json::Value;
use sha2::{Digest, Sha256};
use tempfile::TempDir;
use timeline::{
    Event, FramesDecoded, KeyframeStored, NewEvent, SamplingPolicy, SignalRecord, Signals, Timeline,
};

use crate::support::{Outcome, sightline};

const RUN: RunId = RunId::from_bytes([9; 16]);
const CLIP: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../decode/src/probe/clips/gops.mp4");
const OTHER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../decode/src/probe/clips/long.mp4");

/// A decode pass as the server would record it.
#[derive(Clone)]
struct Pass {
    signals: Vec<Signal>,
    stills: Vec<KeyframeStored>,
    gate: Option<GateConfig>,
    /// Reason for an early end.
    reason: Option<&'static str>,
}

/// Makes the pass that `analyze` gives for the clip with these thresholds.
fn analysed(thresholds: &[&str]) -> Pass {
    let dir = TempDir::new().expect("a folder");
    let stills = dir.path().to_str().expect("UTF-8");
    let outcome =
        sightline(&[&["analyze", CLIP, "--json", "--stills", stills], thresholds].concat());
    assert_eq!(outcome.code, 0, "{}", outcome.stderr);
    let found = outcome.json();
    let list = |name: &str| found[name].as_array().expect("a list").clone();
    Pass {
        signals: list("signals").into_iter().map(signal).collect(),
        stills: list("stills").iter().map(still).collect(),
        gate: None,
        reason: None,
    }
}

fn signal(record: Value) -> Signal {
    let record: SignalRecord = serde_json::from_value(record).expect("a signal");
    record.signal().expect("in range")
}

fn still(record: &Value) -> KeyframeStored {
    let jpeg = std::fs::read(record["path"].as_str().expect("a path")).expect("readable");
    KeyframeStored {
        frame_index: record["frame_index"].as_u64().expect("a number"),
        pts_ms: record["pts_ms"].as_i64().expect("a time"),
        event_type: EventType::SceneCut,
        reason: record["reason"].as_str().map(str::to_owned),
        description: String::new(),
        image_ref: String::new(),
        image_bytes: jpeg.len() as u64,
        image_sha256: BlobHash::from_bytes(Sha256::digest(&jpeg).into()),
        truncated: false,
    }
}

/// Makes a data directory whose log has `pass` for `source`.
fn recorded(pass: &Pass, source: &str) -> TempDir {
    let dir = TempDir::new().expect("a folder");
    let (log, _) = Timeline::open(&dir.path().join("log"), timeline::TimelineOptions::default())
        .expect("opens");
    let (request_id, stream_id) = (RequestId::from_bytes([1; 8]), "main".parse().expect("a label"));
    let policy = SamplingPolicy::SourceFpsAdaptive;
    let decoded = FramesDecoded {
        decoded_frames: pass.signals.len() as u64,
        width: 256,
        height: 192,
        pixel_format: "yuv420p".to_owned(),
        decoder: Some("software:h264".to_owned()),
        truncated: pass.reason.is_some(),
        reason: pass.reason.map(str::to_owned),
        gate: pass.gate,
        signals: Signals::Inline(pass.signals.clone()),
        ..FramesDecoded::new(request_id, source.to_owned(), stream_id, policy)
    };
    let stills = pass.stills.iter().cloned().map(Event::KeyframeStored);
    let events = stills.chain([Event::FramesDecoded(decoded)]);
    let batch = events.map(|event| NewEvent { run: RUN, event }).collect();
    log.append_wait(batch).expect("appended");
    log.close();
    dir
}

fn verify(dir: &Path, more: &[&str]) -> Outcome {
    let run = RUN.to_string();
    let dir = dir.to_str().expect("UTF-8");
    let args = [&["verify", &run, "--data-dir", dir, "--backend", "software"], more].concat();
    sightline(&args)
}

#[test]
fn a_run_is_proven_on_the_source_that_it_names_or_on_a_copy() {
    let pass = analysed(&[]);
    assert!(pass.stills.len() > 1 && pass.signals.len() == 96, "{}", pass.stills.len());
    let outcome = verify(recorded(&pass, CLIP).path(), &[]);
    assert_eq!(outcome.code, 0, "{}{}", outcome.stdout, outcome.stderr);
    assert!(outcome.stdout.contains("proven"), "{}", outcome.stdout);

    // An old recording has no activity, and none of the stills that are kept for it.
    let mut older = pass.clone();
    older.signals.iter_mut().for_each(|signal| signal.activity = None);
    older.stills.retain(|still| {
        !still.reason.as_deref().is_some_and(|reason| reason.starts_with("activity_"))
    });
    let outcome = verify(recorded(&older, CLIP).path(), &[]);
    assert_eq!(outcome.code, 0, "{}{}", outcome.stdout, outcome.stderr);
    verify(recorded(&pass, CLIP).path(), &["--zone", "a=0,0;1,0;1,1"]).says(2, "zones []");

    let moved = recorded(&pass, "https://elsewhere.example/clip.mp4");
    let outcome = verify(moved.path(), &["--source", CLIP, "--json"]);
    assert_eq!(outcome.code, 0, "{}", outcome.stderr);
    let found = outcome.json();
    assert_eq!(found["proven"], true);
    assert_eq!(found["passes"][0]["frames"], 96);
    assert_eq!(verify(moved.path(), &[]).code, 2, "not a file here");
}

#[test]
fn the_thresholds_of_a_recording_are_those_it_is_proven_by() {
    let base = GateConfig::default();
    let rows: [(&[&str], GateConfig); 3] = [
        (
            &["--keepalive-ms", "700"],
            GateConfig { keepalive_frames: 0, keepalive_ms: Some(700), ..base },
        ),
        (
            &["--keepalive-ms", "700", "--keepalive-frames", "9"],
            GateConfig { keepalive_frames: 9, keepalive_ms: Some(700), ..base },
        ),
        (
            &["--scene-cut", "0", "--ghosting", "0"],
            GateConfig { scene_cut: Score::ZERO, ghosting: Score::ZERO, ..base },
        ),
    ];
    for (chosen, gate) in rows {
        let mut pass = Pass { gate: Some(gate), ..analysed(chosen) };
        // The server's thresholds, which must have no effect here.
        let outcome = verify(recorded(&pass, CLIP).path(), &["--keepalive-frames", "1"]);
        assert_eq!(outcome.code, 0, "{chosen:?}: {}{}", outcome.stdout, outcome.stderr);
        pass.gate = None;
        let outcome = verify(recorded(&pass, CLIP).path(), &[]);
        assert_eq!(outcome.code, 7, "{chosen:?}: {}{}", outcome.stdout, outcome.stderr);
    }
}

#[test]
fn what_was_changed_is_found_at_the_first_frame_that_differs() {
    type Change = fn(&mut Pass);
    let pass = analysed(&[]);
    let rows: [(&str, Change, &str); 8] = [
        (
            "a movement",
            |pass| pass.signals[33].activity = Some(Activity { zones: 5, ..Activity::default() }),
            "frame 33: activity",
        ),
        ("a score", |pass| pass.signals[41].flicker_score = Score::ONE, "frame 41: flicker_score"),
        ("a time", |pass| pass.signals[7].pts_ms += 1, "frame 7: pts_ms"),
        ("a frame less", |pass| drop(pass.signals.drain(60..61)), "frame 61: frame_index"),
        ("a still gone", |pass| drop(pass.stills.drain(..1)), "frame 0: the decision"),
        (
            "another reason",
            |pass| pass.stills[0].reason = Some("scene_cut".to_owned()),
            "frame 0: the decision was recorded as selected (scene_cut) and is selected (initial_frame)",
        ),
        (
            "another picture",
            |pass| pass.stills[1].image_sha256 = BlobHash::from_bytes([3; 32]),
            "the still",
        ),
        (
            "two changes",
            |pass| {
                pass.signals[90].perceptual_hash ^= 1;
                pass.signals[12].luma_mean = Score::ZERO;
            },
            "frame 12: luma_mean",
        ),
    ];
    for (name, change, expected) in rows {
        let mut changed = pass.clone();
        change(&mut changed);
        let outcome = verify(recorded(&changed, CLIP).path(), &[]);
        assert_eq!(outcome.code, 7, "{name}: {}{}", outcome.stdout, outcome.stderr);
        assert!(outcome.stdout.contains("DIVERGES"), "{name}: {}", outcome.stdout);
        assert!(outcome.stderr.contains(expected), "{name}: {}", outcome.stderr);
    }
}

/// Stills are recorded after their signals.
#[test]
fn a_recording_that_was_cut_off_is_judged_as_far_as_its_stills_were_told() {
    let whole = analysed(&["--keepalive-frames", "10"]);
    let cut = |stills: std::ops::Range<usize>, reason| Pass {
        signals: whole.signals[..75].to_vec(),
        stills: whole.stills[stills].to_vec(),
        gate: Some(GateConfig { keepalive_frames: 10, ..GateConfig::default() }),
        reason,
    };
    let rows = [
        ("the last stills are not told", cut(0..4, Some("interrupted")), 0),
        ("one before is not told", cut(1..4, Some("interrupted")), 7),
        ("no room was left for them", cut(0..4, Some("1 MiB is free on disk")), 0),
        ("it was not cut off", cut(0..4, None), 7),
    ];
    for (name, pass, code) in rows {
        let outcome = verify(recorded(&pass, CLIP).path(), &[]);
        assert_eq!(outcome.code, code, "{name}: {}{}", outcome.stdout, outcome.stderr);
    }
}

#[test]
fn a_wrong_source_wrong_thresholds_and_no_run_are_told_apart() {
    let pass = analysed(&[]);
    let dir = recorded(&pass, CLIP);
    let outcome = verify(dir.path(), &["--source", OTHER]);
    assert_eq!(outcome.code, 7, "{}", outcome.stderr);
    verify(dir.path(), &["--keepalive-frames", "7"]).says(7, "the decision");
    assert_eq!(verify(dir.path(), &["--source", "/nowhere.mp4"]).code, 3);
    let unknown = RunId::from_bytes([8; 16]).to_string();
    let data = dir.path().to_str().expect("UTF-8");
    let outcome = sightline(&["verify", &unknown, "--data-dir", data]);
    assert_eq!(outcome.code, 3, "{}", outcome.stderr);
}
