//! Media workers of sessions: before the first picture, of two owners, and the death of that of one.

use rustix::process::{Signal, kill_process};
use serde_json::json;

use crate::support::{
    BOB, Server, Setup, eventually, wait_until,
    whip::{Publication, clip, sightline},
};

fn ended(server: &Server, end: &str) -> f64 {
    server.metric(&format!("service_live_sessions_ended_total{{end=\"{end}\"}}"))
}

#[test]
fn a_media_worker_starts_before_the_first_picture_and_a_killed_one_ends_its_own_sessions_alone() {
    let Some(sightline) = sightline() else { return };
    let file = clip::scenes("A", 2);
    let server = Setup::temporary().start();
    let publish = |options: &[&str]| {
        Publication::start(&sightline, &server, &file, &json!({}), &[&["--loop"], options].concat())
    };
    let is = |series, value| server.metric(series) == value;
    assert!(is("service_live_workers", 0.0));
    // The publisher connects, and no packet of a picture arrives.
    let early = publish(&["--loss", "100"]);
    wait_until("a connection", || is("service_live_connected_total", 1.0));
    wait_until("a worker", || is("service_live_workers", 1.0));
    assert!(is("service_live_pictures_total", 0.0));
    drop(early);
    wait_until("its end", || is("service_live_workers", 0.0));

    let (first, second) = (publish(&[]), publish(&[]));
    for run in [&first.run, &second.run] {
        let shown = || server.payloads(run, "keyframe_stored").pop();
        eventually("pictures of Alice's", shown);
    }
    let alices = server.workers();
    assert_eq!(alices.len(), 1, "both are in one worker");
    let bobs = publish(&["--api-key", BOB]);
    wait_until("a worker of Bob's", || server.workers().len() == 2);

    kill_process(alices[0], Signal::KILL).expect("signalled");
    for run in [&first.run, &second.run] {
        let failed = server.wait_for_event(run, "run_failed");
        let reason = failed["reason"].as_str().unwrap_or_default();
        assert!(reason.contains("media worker"), "{reason}");
    }
    let frames = || server.metric("service_pipeline_gate_frames_analyzed_total");
    let before = frames();
    wait_until("more of Bob's frames", || frames() > before + 50.0);
    assert_eq!((ended(&server, "failed"), server.workers().len()), (2.0, 1));
    bobs.interrupt();
    bobs.finish();
    assert_eq!((ended(&server, "failed"), ended(&server, "deleted")), (2.0, 1.0));
}
