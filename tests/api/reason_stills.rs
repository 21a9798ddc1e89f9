//! Progress of a reasoning: stills no later than the answers about them, counts of chunks, answers that are repeated, and what a
//! failed one is charged.

use std::collections::BTreeMap;

use scripted_model::Step;
use serde_json::{Value, json};

use super::{
    reason::{MODEL, finding, reason},
    retention::used,
};
use crate::support::{Server, Setup, model::Model, onnx_runtime, this_test, wait_until};

/// Sequence number and media time of each event of a kind.
fn times(server: &Server, run: &str, kind: &str, field: &str) -> Vec<(u64, i64)> {
    let events = server.events(run).into_iter().filter(|event| event["kind"] == kind);
    let time = |event: &Value| Some((event["seq"].as_u64()?, event["payload"][field].as_i64()?));
    events.map(|event| time(&event).expect("a time")).collect()
}

#[test]
fn stills_are_there_no_later_than_what_is_said_of_their_chunk() {
    // The first two questions are answered, the others never.
    let model = Model::start(|seen| match seen.number {
        0 | 1 => Step::chat(&finding("van waits", 0.9)),
        _ => Step::hang(),
    });
    let setup = model.behind(Setup::temporary().clips());
    let mut server = setup.start();
    let run = server.create_run();
    std::thread::scope(|scope| {
        let path = format!("/v1/runs/{run}/reason");
        let body = json!({
            "source_uri": "talk.mp4", "model": MODEL, "max_frames": 90, "chunk_size": 30,
            "semantic_prompt": "p", "semantic_timeout_ms": 120_000,
        });
        let call = server.call("POST", &path).json(&body);
        // The server is killed under it.
        let asking = scope.spawn(|| call.try_send().ok());
        wait_until("two are answered", || {
            server.payloads(&run, "semantic_chunk_inferred").len() == 2
        });
        let progress = || server.get(&format!("/v1/runs/{run}/state")).json()["progress"].clone();
        let asked = json!({"asked": 3, "answered": 2, "unanswered": 0});
        wait_until("the third is asked", || progress()["chunks"] == asked);
        wait_until("all is decoded", || progress()["frames"] == 90);
        let analyzed = server.post_run(&run, "analyze", &json!({"model": MODEL}));
        assert_eq!(analyzed.status, 200, "of the frames so far");
        server.signal_kill();
        asking.join().expect("no panic");
    });
    server.restart(&setup);
    let said = times(&server, &run, "semantic_chunk_inferred", "end_pts_ms");
    let began = times(&server, &run, "semantic_chunk_inferred", "start_pts_ms");
    let stills = times(&server, &run, "keyframe_stored", "pts_ms");
    assert_eq!(said.len(), 2);
    assert!(stills.len() >= 2, "{stills:?}");
    for ((seq, end), (_, start)) in said.into_iter().zip(began) {
        let of_chunk = start..=end;
        let later = stills.iter().filter(|(still, pts)| of_chunk.contains(pts) && *still > seq);
        assert_eq!(later.count(), 0, "{stills:?} behind {seq}");
    }
    let jpeg = &server.payloads(&run, "keyframe_stored")[0]["image_ref"];
    assert_eq!(server.get(jpeg.as_str().expect("a path")).status, 200, "and its picture is");
}

#[test]
fn a_reasoning_that_fails_is_charged_for_what_its_events_name() {
    let model = Model::start(|seen| match seen.number {
        0 => Step::chat(&finding("van waits", 0.9)),
        _ => Step::hang(),
    });
    let setup = model.behind(Setup::temporary().clips());
    let mut server = setup.start();
    let run = server.create_run();
    let answer = std::thread::scope(|scope| {
        let path = format!("/v1/runs/{run}/reason");
        // Two chunks, one asked about and one waiting, hold the rest back, which no pipe holds.
        let body = json!({
            "source_uri": "street.mp4", "model": MODEL, "max_frames": 1000, "chunk_size": 60,
            "vlm_concurrency": 1, "semantic_prompt": "p", "semantic_timeout_ms": 120_000,
        });
        let call = server.call("POST", &path).json(&body);
        let asking = scope.spawn(|| call.send());
        wait_until("one is answered", || {
            server.payloads(&run, "semantic_chunk_inferred").len() == 1
        });
        // The first one killed may be the spare.
        wait_until("the worker that is held back ends", || {
            server.kill_workers();
            asking.is_finished()
        });
        asking.join().expect("no panic")
    });
    assert_eq!(answer.status, 503, "{}", answer.text);
    assert_eq!(server.kinds(&run).last().map(String::as_str), Some("run_failed"));
    let named = server.payloads(&run, "keyframe_stored");
    let bytes = named.iter().map(|still| still["image_bytes"].as_u64().expect("a size"));
    let bytes: u64 = bytes.sum();
    let before = used(&server);
    server.restart(&setup);
    let after = used(&server);
    assert!(bytes > 0 && after >= bytes, "{after} of {bytes}");
    assert_eq!(before, after, "as it is counted at a start");
    let image = named[0]["image_ref"].as_str().expect("a path");
    assert_eq!(server.get(image).status, 200, "what is named is there");
}

/// Also one of which nothing was said yet: no run stays under way without anybody at work.
#[test]
fn a_reasoning_that_the_quota_refuses_ends_its_run() {
    let model = Model::start(|_| Step::hang());
    let setup = model.behind(Setup::temporary().clips());
    let server = setup.var("SERVICE_PRINCIPAL_QUOTA_BYTES", "20000").start();
    let run = server.create_run();
    reason(&server, &run, &json!({"max_frames": 60})).assert_refused(409, "conflict");
    let kinds = server.kinds(&run);
    assert_eq!(kinds[..2], ["run_created", "ingest_started"]);
    assert_eq!(kinds.last().map(String::as_str), Some("run_failed"));
    let why = server.payloads(&run, "run_failed")[0]["reason"].to_string();
    assert!(why.contains("delete runs or uploads"), "{why}");
    assert!(used(&server) < 20_000, "nothing of it is charged");
}

#[test]
fn what_shows_nothing_new_repeats_an_answer_of_the_last_two_seconds() {
    let Some(runtime) = onnx_runtime::runtime(&this_test()) else { return };
    let mut asked = 0;
    let model = Model::start(move |_| {
        asked += 1;
        Step::chat(&finding(&format!("answer {asked}"), 0.9))
    });
    let setup = model.behind(Setup::temporary().clips());
    let setup = setup.var("SERVICE_NOVELTY_MODEL_PATH", "built-in");
    let server = setup.var("SERVICE_ONNXRUNTIME_PATH", runtime.to_str().expect("text")).start();
    let run = server.create_run();
    let more = json!({"source_uri": "screen.mp4", "chunk_size": 10, "max_frames": 400});
    reason(&server, &run, &more).assert_ok();
    let events = server.events(&run);
    let of_kind = |event: &&Value| event["kind"] == "semantic_chunk_inferred";
    let chunks: BTreeMap<u64, &Value> = events
        .iter()
        .filter(of_kind)
        .map(|event| (event["seq"].as_u64().expect("a number"), &event["payload"]))
        .collect();
    assert!(chunks.len() > 10, "{} chunks", chunks.len());
    let repeats: Vec<(&Value, &Value)> = chunks
        .values()
        .filter_map(|chunk| Some((*chunk, chunks[&chunk["reused_from_seq"].as_u64()?])))
        .collect();
    let (asked, repeated) = (model.server.seen().len(), repeats.len());
    assert_eq!(asked + repeated, chunks.len(), "nobody is asked about what shows nothing new");
    assert!(asked > 0 && repeated > 0, "{asked} asked and {repeated} repeated");
    for (chunk, first) in repeats {
        for field in ["summary", "description", "event_type", "object_label", "confidence"] {
            assert_eq!(chunk[field], first[field], "{field} of {chunk}");
        }
        assert_eq!((&chunk["provider"], &chunk["total_tokens"]), (&Value::Null, &json!(0)));
        assert!(first.get("reused_from_seq").is_none(), "an answer of its own: {first}");
        let at = |chunk: &Value, field: &str| chunk[field].as_i64().expect("a number");
        let since = at(chunk, "start_pts_ms") - at(first, "end_pts_ms");
        assert!((0..=2000).contains(&since), "{since} ms after it");
    }
    let counted = server.metric("service_novelty_decisions_total{decision=\"reuse\"}");
    assert_eq!(counted, repeated as f64);
}
