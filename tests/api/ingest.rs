//! Real media through the API: what comes out, and what a hostile source gets told.

use std::{os::unix::fs::symlink, path::Path, time::Duration};

use rustix::process::{Signal, kill_process};
use serde_json::json;

use super::{reason::state, remote::refused};
use crate::support::{Reply, Server, Setup, assert_has, clip_bytes, clips, is_of_frames, shared};

fn ingest(server: &Server, run: &str, source: &str) -> Reply {
    server.post_run(run, "ingest", &json!({ "source_uri": source }))
}

#[test]
fn a_clip_becomes_events_markers_and_stills() {
    let server = shared().with_clips();
    let run = server.create_run();
    let path = clips().join("motion.mp4").display().to_string();
    let answer = ingest(&server, &run, &path).assert_ok().json();
    let expected = json!({"width": 960, "height": 540, "decoded_frames": 150,
        "status": "processing", "decoder": "software:h264"});
    assert_has(&answer, &expected);
    let analyzed = server.post_run(&run, "analyze", &json!({"model": "qwen3-vl-8b"})).assert_ok();
    let metadata = analyzed.json()["metadata"].take();
    assert_eq!(metadata.as_array().map(Vec::len), Some(150));
    let key = format!("{run}:{}:3", metadata[3]["pts_ms"]);
    let expected = json!({"ordering_key": key, "finish_reason": "gate", "model": "qwen3-vl-8b"});
    assert_has(&metadata[3], &expected);
    let listed = server.get(&format!("/v1/runs/{run}/markers")).json();
    assert_eq!(listed["markers"], analyzed.json()["markers"]);
    check_keyframes(&server, &run);
    assert_has(&server.record(&run), &json!({"source": "file", "source_uri": path}));
}

fn check_keyframes(server: &Server, run: &str) {
    let listed = server.get(&format!("/v1/runs/{run}/keyframes")).json();
    let still = &listed["keyframes"][0];
    let path = still["image_ref"].as_str().expect("a path");
    let reply = server.get(path);
    assert_eq!((reply.status, reply.header("content-type")), (200, "image/jpeg"));
    assert!(reply.bytes.starts_with(&[0xff, 0xd8, 0xff]), "a JPEG");
    assert_eq!(still["image_bytes"], reply.bytes.len());
    let etag = format!("\"{}\"", still["image_sha256"].as_str().expect("a hash"));
    assert_eq!(reply.header("etag"), etag);
    assert_eq!(reply.header("cache-control"), "private, max-age=31536000, immutable");
    for known in [etag.as_str(), &format!("W/{etag}"), "\"x\", *"] {
        let reply = server.call("GET", path).header("if-none-match", known).send();
        assert_eq!((reply.status, reply.bytes.len()), (304, 0), "{known}");
        assert_eq!(reply.header("etag"), etag);
    }
    assert_eq!(server.call("GET", path).header("if-none-match", "\"x\"").send().status, 200);
    let other = server.create_run();
    assert_eq!(server.get(&path.replace(run, &other)).status, 404, "not one of this run's");
}

#[test]
fn sampling_takes_the_first_frame_at_or_after_each_instant() {
    let server = Setup::temporary().clips().var("SERVICE_INGEST_STILLS", "none").start();
    let run = server.create_run();
    // Neither the order nor the spelling that a serialiser would choose; fixed_fps wins.
    let body = r#"{ "stream_id":"cam", "source_uri": "motion.mp4", "sampling_policy": "fixed", "fixed_fps": 2.0, "sample_fps": 7e0, "max_frames": 6 }"#;
    for (refused, field) in [
        (json!({"source_uri": "motion.mp4", "sampling_policy": "fixed"}), "fixed_fps"),
        (json!({"source_uri": "motion.mp4", "unknown": 1}), "unknown"),
    ] {
        server.post_run(&run, "ingest", &refused).assert_invalid(field, &refused);
    }
    let call = server.call("POST", &format!("/v1/runs/{run}/ingest"));
    let answer = call.header("content-type", "application/json").body(body).send().json();
    assert_eq!((&answer["decoded_frames"], &answer["sample_fps"]), (&json!(6), &json!(2.0)));
    let mut kinds = server.kinds(&run);
    kinds.retain(|kind| !kind.starts_with("activity_"));
    let expected = ["run_created", "ingest_started", "ingest_received", "frames_decoded"];
    assert_eq!(kinds, expected, "stills are off");
    let text = server.get(&format!("/v1/runs/{run}/events")).text;
    assert!(text.contains(body), "the body is echoed byte for byte: {text}");
    let decoded = server.payloads(&run, "frames_decoded").remove(0);
    for (k, signal) in decoded["signals"].as_array().expect("an array").iter().enumerate() {
        let time = signal["pts_ms"].as_i64().expect("ms");
        let late = time - 500 * k as i64;
        assert!((0..=34).contains(&late), "sample {k} at {time} ms");
    }
}

/// Sources that must be refused, and what each is told: beside those of `decode`'s tests and of `remote.rs`.
fn hostile(root: &Path) -> Vec<(String, &'static str)> {
    let write = |name: &str, bytes: &[u8]| std::fs::write(root.join(name), bytes).expect("written");
    let outside = root.parent().expect("has one").join("outside.mp4");
    std::fs::write(&outside, b"secret").expect("written");
    let playlist = format!("#EXTM3U\n#EXTINF:1,\n{}\n#EXT-X-ENDLIST\n", outside.display());
    write("playlist.mp4", playlist.as_bytes());
    symlink(&outside, root.join("link.mp4")).expect("linked");
    write("audio.mp4", &clip_bytes("audio.mp4"));
    write("head.mp4", &clip_bytes("motion.mp4")[..2000]);
    vec![
        ("audio.mp4".to_owned(), "no video stream"),
        ("head.mp4".to_owned(), "truncated"),
        ("playlist.mp4".to_owned(), "playlist"),
        ("link.mp4".to_owned(), "symbolic link"),
        (outside.display().to_string(), "outside the ingest roots"),
    ]
}

#[test]
fn a_hostile_source_is_refused_and_a_damaged_one_kept_with_its_reason() {
    let dir = tempfile::tempdir().expect("a directory");
    let root = dir.path().canonicalize().expect("there").join("root");
    std::fs::create_dir(&root).expect("made");
    let rows = hostile(&root);
    let server = Setup::new(dir.path()).root(&root).start();
    let run = server.create_run();
    refused(&server, &run, rows);
    a_clip_cut_short_or_damaged_keeps_the_frames_it_has_and_says_so(&server, &root);
}

fn a_clip_cut_short_or_damaged_keeps_the_frames_it_has_and_says_so(server: &Server, root: &Path) {
    let (mut cut, mut damaged) = (clip_bytes("water.webm"), clip_bytes("street.mp4"));
    cut.truncate(cut.len() / 2);
    let middle = damaged.len() / 2;
    damaged[middle..middle + 4000].fill(0xa5);
    for (name, bytes, why) in
        [("cut.webm", cut, "the source ends early"), ("damaged.mp4", damaged, "damaged packets: ")]
    {
        std::fs::write(root.join(name), &bytes).expect("written");
        let run = server.create_run();
        let body = json!({"source_uri": name, "max_frames": 2000});
        let answer = server.post_run(&run, "ingest", &body).json();
        assert_eq!(answer["truncated"], true, "{answer}");
        assert!(answer["decoded_frames"].as_u64().is_some_and(|frames| frames > 10), "{answer}");
        let listed = server.get("/v1/runs?include=summary").json()[0].take();
        assert_eq!(
            (&listed["run_id"], &listed["summary"]["truncated"]),
            (&json!(run), &json!(true))
        );
        let reason = &server.payloads(&run, "frames_decoded")[0]["reason"];
        assert!(reason.as_str().is_some_and(|reason| reason.starts_with(why)), "{reason}");
    }
}

/// Sends an ingest that takes a while, ends its worker by `signal` meanwhile, and returns the ingest's answer.
fn struck(server: &Server, run: &str, signal: Signal) -> Reply {
    std::thread::scope(|scope| {
        let body = json!({"source_uri": "screen.mp4", "max_frames": 500_000});
        let long = scope.spawn(move || server.post_run(run, "ingest", &body));
        std::thread::sleep(Duration::from_millis(700));
        assert!(!long.is_finished(), "the clip is too short for this test");
        let workers = server.workers();
        assert_eq!(workers.len(), 1, "one worker");
        kill_process(workers[0], signal).expect("signalled");
        long.join().expect("no panic")
    })
}

#[test]
fn a_worker_that_crashes_ends_its_run_and_one_killed_from_outside_costs_a_retry() {
    let server = Setup::temporary().clips().start();
    let run = server.create_run();
    let message = "the media worker crashed on this source";
    let reply = struck(&server, &run, Signal::ILL);
    assert_eq!(reply.assert_invalid("source_uri", "a crash").source_message(), message);
    let last = server.events(&run).pop().expect("its end");
    let end = (&last["kind"], &last["payload"]["reason"]);
    assert_eq!(end, (&json!("run_failed"), &json!(message)));
    // It may have died before its first frame.
    for decoded in server.payloads(&run, "frames_decoded") {
        assert_has(&decoded, &json!({"truncated": true, "reason": message}));
    }
    assert_eq!(state(&server, &run), "failed");

    let run = server.create_run();
    let reply = struck(&server, &run, Signal::KILL);
    let reply = reply.assert_refused(503, "unavailable");
    let message = &reply.json()["error"]["message"];
    assert!(message.as_str().is_some_and(|told| told.contains("killed from outside")), "{message}");
    assert!(!reply.header("retry-after").is_empty());
    let next = server.create_run();
    for run in [run, next.clone()] {
        assert_eq!(ingest(&server, &run, "motion.mp4").status, 200, "the run and the server go on");
    }
    let kinds = server.kinds(&next);
    let (last, stills) = (kinds.len() - 2, &kinds[2..kinds.len() - 2]);
    assert_eq!(kinds[..2], ["run_created", "ingest_started"]);
    assert!(!stills.is_empty() && stills.iter().all(|kind| is_of_frames(kind)), "{kinds:?}");
    assert_eq!(kinds[last..], ["ingest_received", "frames_decoded"]);
}

#[test]
fn a_body_is_as_long_as_an_event_repeats_and_no_longer() {
    let server = shared().with_clips();
    let asked = r#"{"source_uri":"motion.mp4","max_frames":1"#;
    for (len, fields) in [(524_288, vec![]), (524_289, vec!["body"])] {
        let body = [asked, &" ".repeat(len - asked.len() - 1), "}"].concat();
        let call = server.call("POST", &format!("/v1/runs/{}/ingest", server.create_run()));
        let reply = call.header("content-type", "application/json").body(body).send();
        assert_eq!(reply.fields(), fields, "{len}: {}", reply.text);
    }
}
