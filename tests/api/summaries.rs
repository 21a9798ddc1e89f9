//! Runs in short: counts, one still, a description, the shape; of files, of live video, after a restart.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use media::{BlobHash, RunId};
use serde_json::{Value, json};
use timeline::{BlobStore, Event, FindingKind, FindingPayload};

use crate::support::{BOB, Server, Setup, assert_has, seed, shared};

const LIVE: RunId = RunId::from_bytes([9; 16]);

fn array<'a>(value: &'a Value, field: &str) -> &'a Vec<Value> {
    value[field].as_array().unwrap_or_else(|| panic!("no {field}: {value}"))
}

/// The summary of `run` as the list has it.
fn summary(server: &Server, run: &str) -> Value {
    let list = server.get("/v1/runs?include=summary").json();
    let records = list.as_array().expect("an array");
    let record = records.iter().find(|record| record["run_id"] == run).expect("listed");
    assert!(record.get("summary").is_some(), "{record}");
    record["summary"].clone()
}

fn sum(values: &[Value]) -> u64 {
    values.iter().map(|value| value.as_u64().expect("a number")).sum()
}

/// Counts what `GET markers` lists, by type.
fn markers(server: &Server, run: &str) -> BTreeMap<String, u64> {
    let answer = server.get(&format!("/v1/runs/{run}/markers")).json();
    let mut counts = BTreeMap::new();
    for marker in array(&answer, "markers") {
        let name = marker["event_type"].as_str().expect("a name").to_owned();
        *counts.entry(name).or_default() += 1;
    }
    counts
}

#[test]
fn a_summary_says_what_the_routes_of_its_run_say_and_of_live_video_what_models_said() {
    let setup = Setup::temporary().clips();
    seed(setup.dir());
    let mut server = setup.start();
    let (run, empty) = (server.create_run(), server.create_run());
    assert_eq!(summary(&server, &run), Value::Null, "nothing is decoded");
    let ingest = json!({"source_uri": "talk.mp4", "max_frames": 100});
    let ingested = server.post_run(&run, "ingest", &ingest).assert_ok();
    assert_eq!(summary(&server, &run)["counts"]["markers"], json!({}));
    let analyze = json!({"model": "qwen3-vl-8b"});
    let eager = json!({"model": "qwen3-vl-8b", "gate": {"keepalive_frames": 2}});
    for body in [&eager, &analyze] {
        assert_eq!(server.post_run(&run, "analyze", body).status, 200);
        let found = summary(&server, &run);
        assert_eq!(found["counts"]["markers"], json!(markers(&server, &run)), "of the newest");
    }

    let found = summary(&server, &run);
    let signals = server.get(&format!("/v1/runs/{run}/signals")).json();
    let frames = array(&signals, "signals");
    let kept: Vec<&Value> = frames.iter().filter(|frame| frame["kept"] == true).collect();
    let counts = json!({"frames": 100, "kept": kept.len(), "descriptions": 0});
    assert_has(&found["counts"], &counts);
    let time = |frame: &Value| frame["pts_ms"].as_u64().expect("a time");
    let ingested = ingested.json();
    let expected = json!({
        "description": null, "length_ms": time(&frames[99]) - time(&frames[0]), "truncated": false,
        "width": ingested["width"], "height": ingested["height"], "source_fps": ingested["source_fps"],
    });
    assert_has(&found, &expected);
    assert!(found["took_ms"].is_u64(), "{found}");
    let stills = server.get(&format!("/v1/runs/{run}/keyframes")).json();
    let stills = array(&stills, "keyframes");
    let of = |name: &str| stills.iter().find(|still| still["event_type"] == name);
    let telling = of("scene_cut").or_else(|| of("artifact_suspected")).unwrap_or(&stills[0]);
    assert_eq!(found["still_sha256"], telling["image_sha256"]);

    check_shape(&found["shape"], frames, &kept);

    server.restart(&setup);
    assert_eq!(summary(&server, &run), found, "rebuilt from what is stored");
    assert_eq!(summary(&server, &empty), Value::Null);
    check_live(&summary(&server, &LIVE.to_string()));
    std::fs::remove_file(described(setup.dir())).expect("removed");
    assert_eq!(summary(&server, &LIVE.to_string())["still_sha256"], Value::Null);
    assert_eq!(server.call("DELETE", &format!("/v1/runs/{run}")).send().status, 200);
    let list = server.get("/v1/runs?include=summary").json();
    assert_eq!(list.as_array().expect("an array").len(), 2, "a deleted run is not told of");
}

/// Checks the shape of a recording against its frames and those that are kept.
fn check_shape(shape: &Value, frames: &[Value], kept: &[&Value]) {
    let with = |reason: &str| kept.iter().filter(|frame| frame["reason"] == reason).count();
    assert_eq!(sum(array(shape, "kept")), kept.len() as u64);
    assert_eq!(sum(array(shape, "cuts")), with("scene_cut") as u64);
    let artifacts = ["flicker_suspected", "ghosting_suspected", "noise_variance_spike"];
    let artifacts: usize = artifacts.map(with).iter().sum();
    assert_eq!(sum(array(shape, "artifacts")), artifacts as u64);
    assert!(shape["kept"][0].as_u64() >= Some(1), "the first frame is kept");
    let first = frames[0]["luma_mean"].as_f64().expect("a number");
    let told = shape["luma_mean"][0].as_f64().expect("a number");
    assert!((told - first).abs() < 0.05, "{told} and {first}");
    assert_eq!(sum(array(shape, "descriptions")), 0);
    ["luma_mean", "kept", "cuts", "artifacts", "descriptions"]
        .iter()
        .for_each(|field| assert_eq!(array(shape, field).len(), 64, "{field}"));
}

/// Checks the summary of the live run of the log.
fn check_live(found: &Value) {
    let counts = json!({"frames": 31, "kept": 2, "markers": {}, "descriptions": 2});
    // The still is the described one.
    let expected = json!({
        "counts": counts, "length_ms": 1200, "took_ms": null, "truncated": false,
        "still_sha256": BlobHash::from_bytes([30; 32]).to_string(),
    });
    assert_has(found, &expected);
    let words = found["description"].as_str().expect("words");
    assert!(words.len() <= 256 && words.ends_with("\u{fc}\u{2026}"), "{words}");
    let shape = &found["shape"];
    assert_eq!((&shape["kept"][0], &shape["kept"][63]), (&json!(1), &json!(1)), "{shape}");
    assert_eq!(shape["luma_mean"][0], Value::Null, "nothing measured is kept of it");
    let named: Vec<usize> = (0..64).filter(|at| shape["descriptions"][at] != json!(0)).collect();
    assert_eq!(named, [31], "what a model named in the middle");
}

/// The file of the still that a model described.
fn described(dir: &Path) -> PathBuf {
    BlobStore::at(&dir.join("data/blobs")).path(&BlobHash::from_bytes([30; 32]))
}

/// A live run of Alice's whose session told a cut, and what a model said of another picture.
fn seed(dir: &Path) {
    let log = seed::log(dir);
    let file = described(dir);
    std::fs::create_dir_all(file.parent().expect("a folder")).expect("made");
    std::fs::write(file, "a still").expect("written");
    let still = |frame_index| Event::KeyframeStored(seed::still(frame_index));
    let said = |frame_index: u64, description: &str, summary: Option<&str>| {
        let finding = FindingPayload {
            frame_index,
            pts_ms: frame_index as i64 * 40,
            description: description.to_owned(),
            summary: summary.map(str::to_owned),
            object_label: (frame_index == 15).then(|| "van".to_owned()),
            ..FindingPayload::default()
        };
        Event::Found(FindingKind::Vlm, finding)
    };
    let long = "\u{fc}".repeat(400);
    let events = [
        seed::session_created("alice"),
        still(0),
        said(0, "(no inference provider configured)", None),
        said(15, "a van", Some("s")),
        still(30),
        said(30, &long, Some("s")),
    ];
    seed::append(&log, LIVE, events);
}

#[test]
fn summaries_are_asked_for_by_name_and_their_owners() {
    let server = shared().with_clips();
    let run = server.ingested(&json!({"source_uri": "talk.mp4", "max_frames": 3}));
    server.create_run();
    let newest = server.get("/v1/runs?include=summary&limit=1");
    assert_eq!(newest.json()[0]["summary"], Value::Null);
    let next = newest.next_page().expect("a link");
    assert!(next.contains("include=summary"), "{next}");
    let page = server.get(&next).json();
    assert_eq!(page[0]["run_id"], run);
    assert_eq!(page[0]["summary"]["counts"]["frames"], 3);
    let plain = server.get("/v1/runs").json();
    assert!(plain[0].get("summary").is_none(), "{plain}");
    let foreign = server.call("GET", "/v1/runs?include=summary").key(Some(BOB)).send();
    assert_eq!(foreign.json(), json!([]));
    for query in ["include=summary,shape", "include=summary&include=summary"] {
        server.get(&format!("/v1/runs?{query}")).assert_invalid("include", query);
    }
}
