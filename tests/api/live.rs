//! Live video by clients that somebody else wrote: what they send is decoded, selected, described; its memory is shared.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD};
use serde_json::{Value, json};

use super::whip::{offer, publishing};
use crate::support::{
    ALICE, BOB, Server, Setup,
    python::{installed, run},
    shared, this_test,
    whip::picture::{Picture, is_near},
};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/support/whip")
}

/// Publishes with aiortc and returns its report.
fn publish(python: &Path, server: &Server, codec: &str, attach: &Value) -> Value {
    let url = format!("http://{}/v1/stream/whip", server.addr());
    let mut command = Command::new(python.join("python"));
    let key = server.key(ALICE);
    command.arg(folder().join("publish.py")).arg(url).args(["--key", &key, "--codec", codec]);
    command.args(["--attach", &BASE64_URL_SAFE_NO_PAD.encode(attach.to_string())]);
    let said = run(&mut command).unwrap_or_else(|error| panic!("{error}"));
    serde_json::from_slice(&said.stdout).expect("JSON")
}

/// Red, green and blue in the middle of a still.
fn middle(server: &Server, still: &Value) -> [u8; 3] {
    let reply = server.get(still["image_ref"].as_str().expect("a path"));
    assert_eq!((reply.status, reply.header("content-type")), (200, "image/jpeg"));
    Picture::of(&reply.bytes).at(0.5, 0.5)
}

#[test]
fn aiortc_publishes_what_is_then_on_the_timeline() {
    let Some(python) = installed(&this_test(), &folder().join("requirements.txt")) else { return };
    let server = shared();
    for codec in ["VP8", "H264"] {
        let clips = json!({"clip_length_seconds": 0.5, "delay_seconds": 0.1});
        let attach = json!({"index_name": codec, "clip_mode": clips});
        let said = publish(&python, &server, codec, &attach);
        assert_eq!(
            (&said["status"], &said["trickled"], &said["ended"]),
            (&json!(201), &json!(204), &json!(200)),
            "{codec}: {said}"
        );
        let run = said["run"].as_str().expect("a run");
        let kinds = server.kinds(run);
        assert_eq!(kinds.last().map(String::as_str), Some("run_completed"), "{codec}: {kinds:?}");
        let stills = server.payloads(run, "keyframe_stored");
        assert_eq!(stills[0]["frame_index"], 0, "{codec}: {stills:?}");
        assert!(is_near(middle(&server, &stills[0]), [200, 40, 40]), "{codec}: the first picture");
        let cut = stills.iter().find(|still| still["event_type"] == "scene_cut");
        let cut = cut.unwrap_or_else(|| panic!("{codec}: no cut: {stills:?}"));
        assert!(is_near(middle(&server, cut), [60, 200, 60]), "{codec}: the picture of the cut");
        for kind in ["vlm", "clip_vlm"] {
            let described = server.payloads(run, kind);
            assert_eq!(described.len(), 1, "{codec}: {kind} says once that nobody describes");
            assert_eq!(described[0]["description"], "(no inference provider configured)");
            let told = ["index_name", "provider", "semantic_error"].map(|name| &described[0][name]);
            assert_eq!(told, [&json!(codec), &Value::Null, &Value::Null], "{codec}: {kind}");
        }
        let completed = &server.payloads(run, "run_completed")[0];
        assert_eq!(completed["stream_id"], "main", "{codec}");
        let frames = completed["frames"].as_u64().expect("a count");
        assert!((50..=120).contains(&frames), "{codec}: {frames} frames of at least 75");
    }
}

/// Memory reserved for a session.
const SESSION_BYTES: u64 = 25 << 20;

#[test]
fn one_principal_takes_half_of_the_media_memory_and_leaves_the_rest() {
    let memory = (4 * SESSION_BYTES).to_string();
    let server = Setup::temporary().var("SERVICE_MEDIA_MEMORY_BUDGET_BYTES", &memory).start();
    for key in [ALICE, BOB] {
        let publish = || publishing(&server, &offer("VP8")).key(Some(key)).send();
        let replies = [0, 1, 2].map(|_| publish());
        let statuses = replies.each_ref().map(|reply| reply.status);
        assert_eq!(statuses, [201, 201, 503], "{key}: {}", replies[2].text);
        let refused = &replies[2];
        assert!(refused.text.contains("SERVICE_MEDIA_MEMORY_BUDGET_BYTES"), "{}", refused.text);
        assert_ne!(refused.header("retry-after"), "");
        let path = replies[0].header("location");
        let deleted = server.call("DELETE", path).key(Some(key)).send();
        assert_eq!((deleted.status, publish().status), (200, 201), "{key}: it is given back");
    }
    let told = &server.get("/v1/limits").json()["limits"]["live_principal_memory"]["max"];
    assert_eq!(told.as_u64(), Some(2 * SESSION_BYTES));
}
