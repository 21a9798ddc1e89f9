//! kill -9 of a recording, wherever it falls: what was told of is there, and the rest is told of at the next start.

use std::{path::Path, thread::sleep, time::Duration};

use serde_json::{Value, json};

use crate::{
    api::{recordings::check_whole, remote::setup, remote_rtsp::Camera},
    support::{
        Server,
        host::Certificate,
        whip::{eventually, payloads},
    },
};

/// A hundred pictures a second, small ones: something is being written most of the time.
const FAST: &str = "( videotestsrc is-live=true pattern=ball ! \
    video/x-raw,format=I420,width=160,height=120,framerate=100/1 ! jpegenc ! rtpjpegpay name=pay0 )";
/// Time by which each kill is later than the one before.
const LATER: Duration = Duration::from_millis(7);

/// Begins a recording of a server that keeps every other picture, which closes a segment with each; returns its run once markers and an episode were told.
fn record(server: &Server, port: u16, zones: &Value) -> String {
    let run = server.create_run();
    let source = format!("rtsp://localhost:{port}/live");
    let body = json!({"source_uri": source, "max_frames": 500_000, "zones": zones});
    let call = server.call("POST", &format!("/v1/runs/{run}/ingest"));
    let reply = call.header("prefer", "respond-async").json(&body).send();
    assert_eq!(reply.status, 202, "{}", reply.text);
    eventually("markers and an episode are told", || {
        let kinds = server.kinds(&run);
        let is_told = |kind: &str| kinds.iter().any(|told| told == kind);
        (is_told("marker_emitted") && is_told("activity_started")).then_some(())
    });
    run
}

/// Number of stills on disk.
fn stills(dir: &Path) -> usize {
    let Ok(entries) = std::fs::read_dir(dir) else { return 0 };
    let count = |entry: std::fs::DirEntry| {
        if entry.path().is_dir() { stills(&entry.path()) } else { 1 }
    };
    entries.flatten().map(count).sum()
}

/// Checks what the kill of a recording has left: all that was `seen`, and no event about a frame that is not there.
fn check(server: &Server, run: &str, seen: &[Value], zones: &Value) {
    let events = server.events(run);
    assert_eq!(events[..seen.len()], *seen, "{run}: what was told of is there as it was");
    check_whole(server, run, run);
    let decoded = &payloads(server, run, "frames_decoded")[0];
    let ends = (&decoded["truncated"], &decoded["reason"]);
    assert_eq!(ends, (&json!(true), &json!("interrupted")), "{run}");
    assert_eq!(decoded["gate"]["keepalive_frames"], 2, "{run}: as it was made");
    let frames = decoded["decoded_frames"].as_u64();
    for event in &events {
        for field in ["frame_index", "start_frame", "end_frame", "peak_frame"] {
            let frame = event["payload"][field].as_u64();
            assert!(frame < frames, "{run}: {event}");
        }
        if event["kind"] == "keyframe_stored" {
            let still = event["payload"]["image_ref"].as_str().expect("a path");
            assert_eq!(server.get(still).status, 200, "{run}: {event}");
        }
    }
    // The ball moves all the time: the episode is open when the kill comes.
    let [started, ended] =
        ["activity_started", "activity_ended"].map(|kind| payloads(server, run, kind));
    assert_eq!((started.len(), ended.len()), (1, 1), "{run}: {started:?} {ended:?}");
    assert_eq!(started[0]["start_frame"], ended[0]["start_frame"], "{run}");
    let names: Vec<&Value> =
        zones.as_array().expect("an array").iter().map(|it| &it["name"]).collect();
    // It keeps them; without any it names none.
    let kept = if names.is_empty() { &Value::Null } else { zones };
    assert_eq!(decoded["zones"], *kept, "{run}");
    assert_eq!(ended[0]["zones"], json!(names), "{run}");
}

#[test]
fn a_kill_leaves_no_event_without_its_frame_wherever_it_falls() {
    let kills = clips::sized(16, 200);
    let dir = tempfile::tempdir().expect("a directory");
    let certificate = Certificate::new(dir.path());
    let setup = setup(dir.path(), &certificate).var("SERVICE_ALLOW_UNENCRYPTED_RTSP", "true");
    let camera = Camera::start("none", &[format!("/live={FAST}")]);
    let whole = [[0.0, 0.0], [1.0, 0.0], [1.0, 1.0], [0.0, 1.0]];
    let zones = [json!([]), json!([{"name": "all", "polygon": whole}])];
    let (mut untold, mut seen_events) = (0, 0);
    // Keeps every other picture; the server that finds what a kill has left has another keepalive.
    let setup = setup.var("SERVICE_GATE_KEEPALIVE_FRAMES", "2");
    let finder = setup.clone().var("SERVICE_GATE_KEEPALIVE_FRAMES", "7");
    for kill in 0..kills {
        let mut server = setup.start();
        let zones = &zones[kill % zones.len()];
        let before = stills(&dir.path().join("data/blobs"));
        let run = record(&server, camera.port, zones);
        sleep(LATER * (kill as u32 % 16));
        let seen = server.events(&run);
        server.signal_kill();
        server.kill();
        let stored = stills(&dir.path().join("data/blobs")) - before;
        let server = finder.start();
        check(&server, &run, &seen, zones);
        let told = payloads(&server, &run, "keyframe_stored").len();
        untold += usize::from(stored > told);
        seen_events += seen.len();
    }
    println!(
        "{kills} kills, {untold} between a still and its event; {seen_events} events seen before"
    );
    let left = std::fs::read_dir(dir.path().join("data/open-columns")).expect("there").count();
    assert_eq!(left, 0, "nothing stays of a recording that has ended");
}
