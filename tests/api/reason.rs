//! Reasoning over real clips with a scripted model: what is asked, recorded and answered.

use std::time::Duration;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use scripted_model::{Seen, Step};
use serde_json::{Value, json};
use worker::Supervisor;

use crate::support::{
    Reply, Server, Setup, assert_has,
    model::{Model, prompt},
    wait_until, with,
};

pub const MODEL: &str = "qwen3-vl-4b";
pub const LARGE: &str = "qwen3-vl-32b";

/// Answer of a model about a chunk.
pub fn finding(event_type: &str, confidence: f64) -> String {
    json!({
        "event_type": event_type, "object_label": "Delivery Van", "summary": "a van",
        "description": format!("a van, and it is {event_type}"), "confidence": confidence,
    })
    .to_string()
}

/// Ninety frames of a clip with a model asked about each thirty.
fn body(more: &Value) -> Value {
    let body = json!({
        "source_uri": "talk.mp4", "model": MODEL, "max_frames": 90,
        "semantic_prompt": "Where is the van?",
    });
    with(body, more)
}

pub fn reason(server: &Server, run: &str, more: &Value) -> Reply {
    server.post_run(run, "reason", &body(more))
}

pub fn state(server: &Server, run: &str) -> String {
    let state = server.get(&format!("/v1/runs/{run}/state")).json();
    state["state"].as_str().unwrap_or_default().to_owned()
}

/// Requests to models in flight or waiting, in every unit, by the server's metrics: 0 once all is
/// given back.
pub fn load(server: &Server) -> f64 {
    let metrics = server.get("/v1/metrics").text;
    let gauges = metrics.lines().filter(|line| {
        let name = line.split(['{', ' ']).next().unwrap_or_default();
        let of_what = name.strip_prefix("service_inference_").unwrap_or_default();
        matches!(of_what, "waiting" | "in_flight" | "image_bytes" | "tokens_in_flight")
    });
    let values: Vec<f64> =
        gauges.filter_map(|line| line.rsplit(' ').next()?.parse().ok()).collect();
    assert!(values.len() == 6, "{values:?}");
    values.iter().sum()
}

/// Captions and pictures of a question.
fn shown(seen: &Seen) -> (Vec<String>, usize) {
    let question = seen.json();
    let contents = question["messages"].as_array().into_iter().flatten();
    let parts: Vec<Value> =
        contents.filter_map(|message| message["content"].as_array().cloned()).flatten().collect();
    let text = parts.iter().filter_map(|part| part["text"].as_str());
    let captions = text.filter(|text| text.contains(", at ") || text.starts_with("At "));
    let pictures = parts.iter().filter(|part| {
        let url = part["image_url"]["url"].as_str().unwrap_or_default();
        url.starts_with("data:image/jpeg;base64,")
    });
    (captions.map(str::to_owned).collect(), pictures.count())
}

/// Columns and rows of the first picture of a question.
fn picture_size(seen: &Seen) -> (u32, u32) {
    let body = String::from_utf8_lossy(&seen.body).into_owned();
    let encoded = body.split("data:image/jpeg;base64,").nth(1).expect("a picture");
    let encoded = encoded.split('"').next().expect("an end");
    let jpeg = STANDARD.decode(encoded).expect("base64");
    let extent = Supervisor::still_extent(&jpeg).expect("a JPEG");
    (extent.width, extent.height)
}

#[test]
fn a_clip_is_described_chunk_by_chunk_and_marked_so() {
    let dir = tempfile::tempdir().expect("a directory");
    // By the time of the picture: the first chunk is one thing, the others another.
    let model = Model::start(|seen| {
        let first = shown(seen).0.iter().any(|caption| caption.contains("at 0.000 s"));
        Step::chat(&finding(if first { "Van Arrives" } else { "van waits" }, 0.875))
    });
    let labels = dir.path().join("labels.json");
    let maps = json!({"*": {
        "event_types": {"van waits": "parked"}, "object_labels": {"delivery van": "vehicle"},
    }});
    std::fs::write(&labels, maps.to_string()).expect("written");
    let setup = model.behind(Setup::new(dir.path()).clips());
    let setup = setup.var("SERVICE_TENANT_LABEL_MAPS_PATH", labels.to_str().expect("UTF-8"));
    let server = setup.start();
    let run = server.create_run();
    let more = json!({"index_name": "yard", "trace_id": "trace-1", "semantic_frames_per_chunk": 2});
    let reply = reason(&server, &run, &more).assert_ok();
    let answer = reply.json();
    assert_has(&answer, &json!({"generated": 90, "decoded_frames": 90, "run_id": run}));
    assert_has(&answer["tokens"], &json!({"chunks_analyzed": 3, "total_tokens": 51}));
    assert_eq!(state(&server, &run), "completed");
    assert!(answer["lag_p95_ms"].is_i64() && answer["lag_p99_ms"].is_i64(), "{answer}");

    let inferred = server.payloads(&run, "semantic_chunk_inferred");
    let types: Vec<_> = inferred.iter().map(|chunk| chunk["event_type"].as_str()).collect();
    assert_eq!(types, [Some("van_arrives"), Some("parked"), Some("parked")]);
    for (index, chunk) in inferred.iter().enumerate() {
        let expected = json!({
            "provider": "vllm", "model": MODEL, "tier": "first", "prompt_version": "describe-1",
            "chunk_index": index, "semantic_error": null, "object_label": "vehicle", "index_name": "yard",
            "prompt_tokens": 12, "completion_tokens": 5, "request_id": reply.header("x-request-id"),
        });
        assert_has(chunk, &expected);
    }
    let generated = server.payloads(&run, "semantic_chunk_generated");
    let frames: Vec<_> = generated.iter().map(|chunk| chunk["chunk_frames"].as_u64()).collect();
    assert_eq!(frames, [Some(30); 3]);
    let kinds = server.kinds(&run);
    assert_eq!(kinds.last().map(String::as_str), Some("run_completed"), "{kinds:?}");
    assert_eq!(&kinds[kinds.len() - 2], "analysis_generated");

    let markers = answer["markers"].as_array().expect("an array");
    let found: Vec<_> = markers
        .iter()
        .map(|marker| [&marker["event_type"], &marker["start_frame"], &marker["end_frame"]])
        .collect();
    let (first, rest) = (json!("van_arrives"), json!("parked"));
    assert_eq!(found, [[&first, &json!(0), &json!(29)], [&rest, &json!(30), &json!(89)]]);
    assert_eq!(server.get(&format!("/v1/runs/{run}/markers")).json()["markers"], answer["markers"]);
    let metadata = &answer["metadata"][45];
    let parked = json!({"type": "parked", "score": 0.875, "description": "a van"});
    assert_eq!(metadata["annotations"]["events"][0], parked);
    assert_eq!(metadata["annotations"]["objects"][0]["label"], "vehicle");
    assert_eq!(metadata["annotations"]["summary"], "a van");
    assert_eq!(metadata["confidence"], 0.875);
    assert_eq!(metadata["trace"]["trace_id"], "trace-1");
    let signals = server.payloads(&run, "frames_decoded")[0]["signals"].clone();
    let times = signals.as_array().expect("an array").iter();
    let times: Vec<i64> = times.map(|signal| signal["pts_ms"].as_i64().expect("ms")).collect();
    check_questions(&model, &inferred, &times);

    let said = server.get(&format!("/v1/runs/{run}/interactions?index=yard")).json();
    assert_eq!((&said["count"], &said["run_id"]), (&json!(3), &json!(run)));
    let asked = json!({"query": "and it is", "run_id": run});
    let found = server.post("/v1/search", &asked).json();
    let hits = found["hits"].as_array().expect("an array");
    let mut starts: Vec<_> = hits.iter().map(|hit| hit["pts_ms"].clone()).collect();
    starts.sort_by_key(Value::as_i64);
    let of_chunks: Vec<_> = inferred.iter().map(|chunk| chunk["start_pts_ms"].clone()).collect();
    assert_eq!(starts, of_chunks, "where in the video they are");
    reason(&server, &run, &more).assert_refused(409, "conflict");
}

/// Every question shows two pictures of its chunk, each with the time of a frame in it, and the
/// caller's words.
fn check_questions(model: &Model, inferred: &[Value], frames_ms: &[i64]) {
    let seen = model.server.seen();
    assert_eq!(seen.len(), inferred.len());
    for question in &seen {
        let (captions, pictures) = shown(question);
        assert_eq!((captions.len(), pictures), (2, 2), "{captions:?}");
        let said = prompt(question);
        assert!(said.contains("Where is the van?"), "{said}");
        let times = captions.iter().map(|caption| {
            let seconds = caption.rsplit("at ").next().and_then(|text| text.split(' ').next());
            let seconds = seconds.and_then(|text| text.parse::<f64>().ok()).expect("a time");
            (seconds * 1000.0).round() as i64
        });
        let times: Vec<i64> = times.collect();
        let chunk = inferred.iter().find(|chunk| {
            let (start, end) = (chunk["start_pts_ms"].as_i64(), chunk["end_pts_ms"].as_i64());
            times.iter().all(|time| start <= Some(*time) && Some(*time) <= end)
        });
        assert!(times.iter().all(|time| frames_ms.contains(time)), "{times:?} of {frames_ms:?}");
        assert!(chunk.is_some() && times[0] < times[1], "{captions:?}");
    }
}

#[test]
fn a_second_model_is_asked_where_the_first_is_unsure_and_its_failure_told_beside_that() {
    let model = Model::start(|seen| match seen.json()["model"].as_str() {
        Some(MODEL) => Step::chat(&finding("something", 0.2)),
        Some(LARGE) => Step::chat(&finding("van leaves", 0.9)),
        _ => Step::html(502),
    });
    let server = model.behind(Setup::temporary().clips()).start();
    for (threshold, second, expected) in [
        (0.1, LARGE, ["first", MODEL, "something"]),
        (0.7, LARGE, ["second", LARGE, "van_leaves"]),
        (0.7, "qwen3-vl-8b", ["first", MODEL, "something"]),
    ] {
        let run = server.create_run();
        let more = json!({
            "max_frames": 30, "second_pass_model": second, "second_pass_threshold": threshold,
        });
        assert_eq!(reason(&server, &run, &more).status, 200);
        let chunk = &server.payloads(&run, "semantic_chunk_inferred")[0];
        let said = ["tier", "model", "event_type"].map(|field| chunk[field].clone());
        assert_eq!(said, expected, "{more}");
        assert_eq!(chunk["semantic_fallback_used"], false, "{more}");
        let error = chunk["semantic_error"].as_str().unwrap_or_default();
        let is_told = error.starts_with("the second pass") && error.contains("status 502");
        assert!(if second == LARGE { error.is_empty() } else { is_told }, "{more}: {error}");
    }
}

#[test]
fn the_ways_to_show_and_to_ask_reach_the_model_and_the_gates_markers_stand_beside_its() {
    let model = Model::start(|_| Step::chat(&finding("van waits", 0.9)));
    let server = model.behind(Setup::temporary().clips()).start();
    let asked = |more: Value| {
        let before = model.server.seen().len();
        let run = server.create_run();
        let reply = reason(&server, &run, &more);
        assert_eq!(reply.status, 200, "{more}: {}", reply.text);
        let versions = server.payloads(&run, "semantic_chunk_inferred");
        let versions = versions.iter().map(|chunk| chunk["prompt_version"].clone());
        (model.server.seen().split_off(before), versions.collect::<Vec<_>>())
    };
    let (chained, versions) = asked(json!({"temporal_chain": true}));
    assert_eq!(versions, ["describe-1", "describe-1+chain-1", "describe-1+chain-1"]);
    assert!(!prompt(&chained[0]).contains("<previous>"));
    assert!(prompt(&chained[1]).contains("a van, and it is van waits"), "{}", prompt(&chained[1]));
    let (compared, versions) = asked(json!({"visual_diff": true}));
    assert_eq!(versions, ["describe-1", "diff-1", "diff-1"]);
    let mut pictures: Vec<usize> = compared.iter().map(|seen| shown(seen).1).collect();
    pictures.sort_unstable();
    assert_eq!(pictures, [1, 2, 2]);
    let (both, _) = asked(json!({"visual_diff": true, "video_clip_mode": true}));
    assert!(both.iter().any(|seen| shown(seen).0 == ["At 0.000 s:"]), "what the gate selected");
    let (clips, versions) = asked(json!({"video_clip_mode": true, "video_clip_duration_s": 1.5}));
    assert!(
        versions.len() > 1 && versions.iter().all(|version| version == "clip-2"),
        "{versions:?}"
    );
    assert_eq!(shown(&clips[0]).1, 4);
    let half = json!({"x": 0.25, "y": 0, "width": 0.5, "height": 1});
    let rows = [
        (json!({}), (640, 480)),
        (json!({"semantic_frame_max_edge": 64}), (64, 48)),
        (json!({"crop": half}), (320, 480)),
        (json!({"crop": half, "semantic_frame_max_edge": 96}), (64, 96)),
    ];
    for (more, expected) in rows {
        let wanted = with(json!({"max_frames": 30}), &more);
        assert_eq!(picture_size(&asked(wanted).0[0]), expected, "{more}");
    }
    let schema = json!({"type": "object", "required": ["event_type"]});
    let (own, _) = asked(json!({"max_frames": 30, "output_schema": schema}));
    let sent = String::from_utf8_lossy(&own[0].body).into_owned();
    assert!(sent.contains(r#""required":["event_type"]"#), "the caller's own schema is sent");
    check_origins(&server);
}

#[test]
fn chunks_are_asked_about_at_once_while_the_rest_is_decoded_and_once_by_a_key() {
    let model =
        Model::start(|_| Step::chat(&finding("van waits", 0.9)).after(Duration::from_millis(200)));
    let server = model.behind(Setup::temporary().clips()).start();
    // No more than a principal may have under way, whatever it asks for.
    for (asked, at_once) in [(1, 1), (2, 2), (64, 4)] {
        let run = server.create_run();
        let more = json!({"chunk_size": 5, "vlm_concurrency": asked});
        let reply = reason(&server, &run, &more).assert_ok();
        assert_eq!(reply.json()["tokens"]["chunks_analyzed"], 18);
        assert_eq!(model.server.in_flight_max(), at_once, "{asked}");
        wait_until("every place comes back", || load(&server) == 0.0);
    }
    let (path, before) =
        (format!("/v1/runs/{}/reason", server.create_run()), model.server.seen().len());
    let keyed =
        || server.call("POST", &path).header("idempotency-key", "k").json(&body(&json!({})));
    let (first, again) = (keyed().send(), keyed().send());
    assert_eq!((first.status, again.status), (200, 200), "{}", again.text);
    assert_eq!(again.header("idempotency-replayed"), "true");
    assert!(again.bytes == first.bytes, "the same answer");
    assert_eq!(model.server.seen().len(), before + 3, "asked once");
}

fn markers(server: &Server, run: &str, query: &str) -> Vec<Value> {
    let reply = server.get(&format!("/v1/runs/{run}/markers?{query}")).assert_ok();
    reply.json()["markers"].as_array().expect("an array").clone()
}

/// Fields of markers without those that differ from run to run.
fn outline(markers: &[Value]) -> Vec<Value> {
    let names = ["event_type", "status", "start_frame", "end_frame", "confidence", "origin"];
    let of = |marker: &Value| names.iter().map(|name| marker[*name].clone()).collect::<Value>();
    markers.iter().map(of).collect()
}

/// The gate's own markers are recorded beside those of a model for which a van waits.
fn check_origins(server: &Server) {
    let plain = server.create_run();
    reason(server, &plain, &json!({"semantic_inference": false})).assert_ok();
    let own = markers(server, &plain, "");
    assert!(own.len() > 1 && own.iter().all(|marker| marker["origin"] == "gate"), "{own:?}");
    assert_eq!(own, markers(server, &plain, "origin=gate"));
    assert_eq!(markers(server, &plain, "origin=model"), Vec::<Value>::new());
    let analysed = server.ingested(&json!({"source_uri": "talk.mp4", "max_frames": 90}));
    server.post_run(&analysed, "analyze", &json!({"model": MODEL})).assert_ok();
    let spans = |all: &[Value]| -> Vec<Value> {
        all.iter().map(|it| json!([it["event_type"], it["start_frame"]])).collect()
    };
    assert_eq!(spans(&own), spans(&markers(server, &analysed, "")), "as an analysis gives them");

    let run = server.create_run();
    let reply = reason(server, &run, &json!({})).assert_ok();
    let derived = markers(server, &run, "");
    assert_eq!(Some(&derived), reply.json()["markers"].as_array());
    assert_eq!(derived, markers(server, &run, "origin=model"));
    let found: Vec<_> = derived.iter().map(|marker| &marker["event_type"]).collect();
    assert_eq!(found, ["van_waits"]);
    let gates = markers(server, &run, "origin=gate");
    assert_eq!(outline(&gates), outline(&own));
    assert!(gates.iter().all(|marker| marker["beside"] == true), "{gates:?}");
    assert_eq!(markers(server, &run, "origin=all").len(), derived.len() + gates.len());
    let told = &server.payloads(&run, "analysis_generated")[0]["markers"];
    assert_eq!(told, &json!(derived.len()), "what is beside the analysis is not counted");

    server.get(&format!("/v1/runs/{run}/markers?origin=models")).assert_invalid("origin", "models");
}

#[test]
fn crops_are_told_or_refused_and_words_may_be_few_or_long() {
    let mut long: Value = serde_json::from_str(&finding("van waits", 0.9)).expect("JSON");
    long["description"] = json!("d".repeat(20_000));
    let model = Model::start(move |seen| match seen.json()["model"].as_str() {
        Some(LARGE) => Step::chat(&long.to_string()),
        _ => Step::chat(r#"{"event_type": "van waits"}"#),
    });
    let server = model.behind(Setup::temporary().clips()).start();
    let run = server.create_run();
    let crop = json!({"x": 0.5, "y": 0.5, "width": 0.000_001, "height": 0.5});
    reason(&server, &run, &json!({"crop": crop})).assert_invalid("crop", &crop);
    assert_eq!(model.server.seen().len(), 0, "nobody was asked");

    // A schema of one's own needs no confidence.
    let more = json!({
        "max_frames": 30, "crop": {"x": 0.25, "y": 0, "width": 0.5, "height": 1},
        "semantic_frame_max_edge": 64,
        "output_schema": {"type": "object", "required": ["event_type"]},
    });
    let reply = reason(&server, &run, &more).assert_ok();
    let answer = reply.json();
    assert_eq!(answer["metadata"][29]["coordinate_schema"], "sightline.image.v1");
    let coordinates = &answer["metadata"][29]["coordinates"];
    assert_eq!(coordinates["requested_region"]["x"], 0.25);
    let decoded = &server.payloads(&run, "frames_decoded")[0];
    assert_eq!(coordinates["source_extent"]["width"], decoded["width"]);
    let chunk = &server.payloads(&run, "semantic_chunk_inferred")[0];
    assert_eq!((&chunk["event_type"], &chunk["confidence"]), (&json!("van_waits"), &Value::Null));
    let said = server.get(&format!("/v1/runs/{run}/interactions")).json();
    assert_eq!(said["interactions"][0]["confidence"], Value::Null);
    let marker = &answer["markers"][0];
    assert_eq!(marker["event_type"], "van_waits");
    assert!(marker["confidence"].as_f64() > Some(0.0), "the gate's: {marker}");
    assert_eq!(server.record(&run)["model"], MODEL);

    let run = server.create_run();
    let more = json!({"max_frames": 30, "first_pass_model": LARGE});
    let answer = reason(&server, &run, &more).json();
    assert_eq!(answer["metadata"][0]["model"], LARGE, "who was asked");
    let chunk = &server.payloads(&run, "semantic_chunk_inferred")[0];
    assert_eq!(
        (&chunk["truncated"], chunk["description"].as_str().map(str::len)),
        (&json!(true), Some(16_384))
    );
    assert_eq!(server.payloads(&run, "analysis_generated")[0]["model"], LARGE);
}
