//! Cameras whose server is started again: the recording goes on, and only a stop ends it.

use std::time::Duration;

use clips::sized;
use scripted_model::Step;
use serde_json::{Value, json};

use crate::{
    api::{
        reason::{MODEL, finding},
        recordings::{check_gaps, check_whole, recorded},
        remote::local,
        remote_rtsp::Camera,
    },
    support::{
        Server, Setup,
        model::{self, Model, prompt},
        wait_until, with,
    },
};

/// A live picture of 25 a second, with `more` properties of its source.
pub fn ball(more: &str) -> String {
    format!(
        "/live=( videotestsrc is-live=true pattern=ball {more} ! \
         video/x-raw,format=I420,width=320,height=240,framerate=25/1 ! jpegenc ! \
         rtpjpegpay name=pay0 )"
    )
}

/// Settings of a server that reads the cameras of this machine without TLS.
pub fn watching() -> Setup {
    local().var("SERVICE_ALLOW_UNENCRYPTED_RTSP", "true")
}

/// Begins the recording of the camera at `port`; returns its run.
pub fn record(server: &Server, port: u16) -> String {
    begin(server, port, "ingest", &json!({}))
}

/// The same for work of any kind, with `more` in its request.
pub fn begin(server: &Server, port: u16, what: &str, more: &Value) -> String {
    let run = server.create_run();
    let source = format!("rtsp://localhost:{port}/live");
    let body = json!({"source_uri": source, "max_frames": 500_000});
    server.start_job(&run, what, &with(body, more));
    run
}

fn stop(server: &Server, run: &str) {
    server.post_run(run, "stop", &json!({})).assert_ok();
    server.wait_for_event(run, "analysis_generated");
    let decoded = server.payloads(run, "frames_decoded");
    let told = (&decoded[0]["reason"], &decoded[0]["decoder"]);
    assert_eq!((decoded.len(), told), (1, (&json!("stopped"), &json!("software:mjpeg"))));
}

#[test]
fn a_stop_while_a_camera_is_lost_says_so() {
    let server = watching().start();
    let camera = Camera::start("none", &[ball("")]);
    let run = record(&server, camera.port);
    wait_until("frames come", || recorded(&server, &run).0 > 0);
    drop(camera);
    // Its connection ends at once, and no other is accepted.
    std::thread::sleep(Duration::from_secs(2));
    server.post_run(&run, "stop", &json!({})).assert_ok();
    let decoded = server.wait_for_event(&run, "frames_decoded");
    let reason = decoded["reason"].as_str().expect("a reason");
    assert!(reason.starts_with("stopped while the source was lost: "), "{reason}");
}

#[test]
fn a_drain_ends_a_camera_at_once() {
    let setup = watching();
    let mut server = setup.start();
    let camera = Camera::start("none", &[ball("")]);
    let run = record(&server, camera.port);
    wait_until("frames come", || recorded(&server, &run).0 > 0);
    server.terminate();
    // Other jobs have ten seconds.
    assert!(server.wait(Duration::from_secs(8)).success());
    let server = setup.start();
    for kind in ["frames_decoded", "run_failed"] {
        assert_eq!(server.payloads(&run, kind)[0]["reason"], "shutdown", "{kind}");
    }
}

/// A camera that is open takes memory of the budget, and where there is none it keeps its permit of a remote source.
#[test]
fn memory_limits_cameras_and_then_cores_do() {
    let budget = sightline::record::SESSION_BYTES.to_string();
    let server = watching().var("SERVICE_MEDIA_MEMORY_BUDGET_BYTES", &budget).start();
    let limits = server.get("/v1/limits").json()["limits"].clone();
    let permits = limits["principal_remote_jobs"]["max"].as_u64().expect("a number");
    let camera = Camera::start("none", &[ball("")]);
    let runs: Vec<String> = (0..=permits).map(|_| record(&server, camera.port)).collect();
    wait_until("they are recorded beside each other", || {
        runs.iter().all(|run| recorded(&server, run).0 > 0)
    });
    let further = record(&server, camera.port);
    let status = || server.record(&further)["active_job"]["status"].clone();
    assert_eq!(status(), "queued");
    server.post_run(&runs[0], "stop", &json!({})).assert_ok();
    wait_until("its place is taken", || status() == "running");
}

fn frame_of(event: &Value) -> u64 {
    event["frame_index"].as_u64().expect("a number")
}

/// Followed for an hour at its real rate where tests are long.
#[test]
fn a_camera_whose_server_is_restarted_twice_is_one_recording() {
    let server = watching().start();
    let media = [ball("")];
    let mut camera = Camera::start("none", &media);
    let port = camera.port;
    let run = record(&server, port);
    let frames = || server.metric("service_pipeline_gate_frames_analyzed_total");
    let follow = || {
        for _ in 0..sized(1, 750) {
            let before = frames();
            wait_until("frames come", || frames() > before + 40.0);
        }
    };
    for restarts in 1..=2 {
        follow();
        let (rows, markers) = recorded(&server, &run);
        assert!(rows > 0 && !markers.is_empty(), "markers while it lasts");
        drop(camera);
        camera = Camera::start_on(port, "none", &media);
        wait_until("it is there again", || {
            server.payloads(&run, "source_reconnected").len() == restarts
        });
    }
    follow();
    stop(&server, &run);
    check_whole(&server, &run, "two restarts");
    check_gaps(&server, &run);
}

/// Chunks of thirty frames: nearly every restart is in the middle of one.
#[test]
fn reasonings_over_cameras_go_on_behind_a_restart_and_without_answers() {
    let model = Model::start(|seen| match prompt(seen) {
        said if said.contains("nobody answers this") => Step::hang(),
        _ => Step::chat(&finding("delivery", 0.9)),
    });
    model.server.answer_probes(model::list(&[MODEL]));
    let server = model.behind(watching()).start();
    let media = [ball("")];
    let camera = Camera::start("none", &media);
    let port = camera.port;
    let asked = json!({"model": MODEL, "semantic_prompt": "?"});
    let run = begin(&server, port, "reason", &asked);
    let chunks = || server.payloads(&run, "semantic_chunk_generated");
    wait_until("a chunk comes", || !chunks().is_empty());
    drop(camera);
    let _camera = Camera::start_on(port, "none", &media);
    let gap = frame_of(&server.wait_for_event(&run, "source_reconnected"));
    let told = || -> Vec<u64> {
        chunks().iter().filter_map(|chunk| chunk["chunk_frames"].as_u64()).collect()
    };
    wait_until("more is described", || told().iter().sum::<u64>() > gap + 30);
    let mut short = told();
    short.retain(|frames| *frames != 30);
    let expected = [gap % 30, 30 - gap % 30].into_iter().filter(|_| !gap.is_multiple_of(30));
    assert_eq!(short, expected.collect::<Vec<_>>(), "those around the gap alone");
    server.post_run(&run, "stop", &json!({})).assert_ok();
    server.wait_for_event(&run, "frames_decoded");
    a_model_that_never_answers_holds_no_camera_up(&server, port);
}

fn a_model_that_never_answers_holds_no_camera_up(server: &Server, port: u16) {
    let shed = || server.metric("service_live_shed_total{what=\"clips\"}");
    let before = shed();
    let asked = json!({"model": MODEL, "semantic_prompt": "nobody answers this", "chunk_size": 5});
    let run = begin(server, port, "reason", &asked);
    wait_until("frames go on", || recorded(server, &run).0 > 250);
    assert!(shed() > before);
    server.post_run(&run, "stop", &json!({})).assert_ok();
    server.wait_for_event(&run, "frames_decoded");
    assert!(server.payloads(&run, "source_reconnected").is_empty());
    let signals = server.get(&format!("/v1/runs/{run}/signals")).json();
    let times = signals["signals"].as_array().expect("an array").iter().map(|row| &row["pts_ms"]);
    let times: Vec<i64> = times.filter_map(Value::as_i64).collect();
    let longest = times.windows(2).map(|pair| pair[1] - pair[0]).max();
    assert!(longest < Some(1500), "no picture is missing for long: {longest:?} ms");
}

#[test]
fn a_camera_that_says_goodbye_is_dialled_again() {
    const SHOWN: u64 = 60;
    let server = watching().start();
    let camera = Camera::start("none", &[ball(&format!("num-buffers={SHOWN}"))]);
    let run = record(&server, camera.port);
    let gaps = || server.payloads(&run, "source_reconnected");
    wait_until("it is dialled twice more", || gaps().len() == 2);
    stop(&server, &run);
    check_whole(&server, &run, "two goodbyes");
    check_gaps(&server, &run);
    let mut before = 0;
    for gap in gaps() {
        let at = frame_of(&gap);
        // The server keeps the picture that it looks at before anyone plays.
        assert!((SHOWN - 1..=SHOWN).contains(&(at - before)), "all of it is recorded: {gap}");
        before = at;
        assert_eq!(gap["reason"], "it ended its stream");
    }
}
