//! `sightline export` and `analyze --parquet`: traces of files that are not completed.

use std::{collections::BTreeMap, fs, path::Path};

use serde_json::json;

use crate::{
    remote::{RUN, Script, event},
    support::{rendered, sightline},
};

/// Returns the files in a directory by name, with their contents.
fn files(dir: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = fs::read_dir(dir).expect("a directory").map(|entry| entry.expect("an entry"));
    entries
        .map(|entry| {
            let name = entry.file_name().into_string().expect("UTF-8");
            (name, fs::read(entry.path()).expect("readable"))
        })
        .collect()
}

#[test]
fn an_answer_that_is_cut_short_changes_no_file() {
    let events = json!({"events": [event(1, "run_created", json!({}))]}).to_string();
    let signals = r#"{"stream_id":"main","signals":[{"frame_index":0,"source_frame_index":0,"pts_ms":0,"perceptual_hash":"00ff00ff00ff00ff","luma_mean":0.5,"flicker_score":0.0,"ghosting_score":0.0,"noise_variance_score":0.0,"scene_score":null,"kept":true,"reason":"initial_frame"}"#;
    let whole = format!("{signals}]}}");
    let markers = json!({"markers": []}).to_string();
    let activity = json!({"episodes": [{"stream_id": "main", "start_frame": 3, "end_frame": null, "start_pts_ms": 120, "end_pts_ms": null,
        "peak_score": 0.1, "peak_frame": 3, "region": null, "zones": ["door"], "image_sha256": null}]});
    let activity = activity.to_string();
    let odd = whole.replace("00ff00ff00ff00ff", "no hash");
    for (case, answers, code, says) in [
        ("cut", vec![events.clone(), signals.to_owned()], 4, "cut short: try again"),
        ("odd", vec![events.clone(), odd], 1, "unexpected answer"),
        ("whole", vec![events, whole, activity, markers], 0, ""),
    ] {
        let dir = tempfile::tempdir().expect("a directory");
        fs::write(dir.path().join("frames.parquet"), "old").expect("written");
        let before = files(dir.path());
        let script = Script::start(answers.into_iter().map(|body| (200, body)).collect());
        let out = dir.path().to_str().expect("UTF-8");
        script.run(&["export", RUN, "--out", out]).says(code, says);
        let after = files(dir.path());
        if code != 0 {
            assert_eq!(after, before, "{case}");
            continue;
        }
        let names: Vec<&str> = after.keys().map(String::as_str).collect();
        assert_eq!(
            names,
            ["episodes.parquet", "events.parquet", "frames.parquet", "markers.parquet"],
            "{case}"
        );
        assert!(after.values().all(|file| file.starts_with(b"PAR1") && file.ends_with(b"PAR1")));
    }
}

#[test]
fn analyze_writes_frames_and_markers() {
    let dir = tempfile::tempdir().expect("a directory");
    let out = dir.path().join("new/folder");
    let path = out.to_str().expect("UTF-8");
    let run = "run-00ff0123456789abcdef0123456789ab";
    let clip = rendered();
    let analyze = ["analyze", &clip, "--max-frames", "30", "--parquet", path, "--run-id", run];
    let outcome = sightline(&analyze);
    assert_eq!(outcome.code, 0, "{}", outcome.stderr);
    let files = files(&out);
    let names: Vec<&str> = files.keys().map(String::as_str).collect();
    assert_eq!(names, ["episodes.parquet", "frames.parquet", "markers.parquet"]);
    assert!(files.values().all(|file| file.starts_with(b"PAR1") && file.ends_with(b"PAR1")));
    let names = |file: &Vec<u8>| file.windows(run.len()).any(|part| part == run.as_bytes());
    assert!(files.values().all(names));
    assert_eq!(sightline(&[&analyze[..7], &["run-1"]].concat()).code, 2);
}
