//! Descriptions that stand for more than one picture, or change with the prompt, and are in a database while
//! the session lives; and what is told where none comes of a model.

use std::{
    io::{BufRead, BufReader},
    process::{Command, Stdio},
};

use scripted_model::Step;
use serde_json::{Value, json};

use crate::support::{
    Running, Setup,
    model::{Model, list, prompt},
    onnx_runtime,
    postgres::Postgres,
    this_test, wait_until,
    whip::{
        Publication, clip,
        shown::{pictures, says, scenes},
        sightline,
    },
};

fn text<'a>(payload: &'a Value, field: &str) -> &'a str {
    payload[field].as_str().unwrap_or_default()
}

/// Findings that a model was asked for, and how many repeat the one before them, which each must do as it was.
fn described(told: &[Value]) -> (Vec<&Value>, u32) {
    let (mut described, mut reused): (Vec<&Value>, u32) = (Vec::new(), 0);
    for event in told {
        let payload = &event["payload"];
        if payload["reused_from_seq"].is_null() {
            assert_eq!(payload["provider"], "vllm", "{payload}");
            described.push(event);
            continue;
        }
        reused += 1;
        let last = described.last().expect("the first picture is described");
        assert_eq!(payload["reused_from_seq"], last["seq"], "{payload}");
        for field in ["description", "summary", "event_type", "object_label", "confidence"] {
            assert_eq!(payload[field], last["payload"][field], "{field}: {payload}");
        }
        for field in ["provider", "model", "total_tokens", "inference_latency_ms"] {
            assert!(payload[field].is_null(), "{field}: {payload}");
        }
        let since = |event: &Value| event["pts_ms"].as_i64().expect("a time");
        assert!(since(payload) - since(&last["payload"]) <= 2000, "{payload}");
    }
    (described, reused)
}

/// A sidecar tells what is new; `api/reason_stills.rs` has an embedder of the server's own.
#[test]
fn a_picture_that_shows_nothing_new_is_given_the_last_description() {
    let Some(sightline) = sightline() else { return };
    let Some(library) = onnx_runtime::runtime(&this_test()) else { return };
    let mut command = Command::new(&sightline);
    command.args(["embed-server", "--listen", "127.0.0.1:0", "--onnxruntime"]).arg(library);
    let mut sidecar = Running(command.stderr(Stdio::piped()).spawn().expect("it starts"));
    let mut said = BufReader::new(sidecar.0.stderr.take().expect("piped"));
    let mut line = String::new();
    said.read_line(&mut line).expect("it speaks");
    let address = line.strip_prefix("listening on ").and_then(|line| line.split_once(": "));
    let (address, _) = address.unwrap_or_else(|| panic!("{line}"));
    let model = Model::start(|seen| {
        says(&format!("the painted wall is that of scene {}", scenes(seen)), 0.9)
    });
    let setup = model.behind(Setup::temporary()).var("SERVICE_NOVELTY_EMBEDDING_ADDR", address);
    let server = setup.var("SERVICE_GATE_KEEPALIVE_FRAMES", "5").start();
    // A scene that stands still, and another one.
    let file = clip::scenes("AAAB", 1);
    let (run, _) = Publication::start(&sightline, &server, &file, &json!({}), &[]).finish();
    let told: Vec<Value> =
        server.events(&run).into_iter().filter(|event| event["kind"] == "vlm").collect();
    let (described, reused) = described(&told);
    let stills = server.payloads(&run, "keyframe_stored").len();
    let shed = server.metric("service_live_shed_total{what=\"keyframes\"}");
    let all = told.len() as f64 + shed;
    assert!(all <= stills as f64, "{} and {shed} of {stills}: {told:?}", told.len());
    assert_eq!(model.server.seen().len(), described.len(), "only what is new is asked about");
    let times: Vec<_> = described.iter().map(|event| event["payload"]["pts_ms"].as_i64()).collect();
    // A busy machine may leave out the first frame of a scene.
    let seconds: Vec<_> = times.iter().flatten().map(|time| time / 1000).collect();
    assert!(seconds.first() == Some(&0) && seconds.contains(&3), "{times:?}");
    // Two seconds of the first scene by its first description, but for what is looked at anyway.
    let left_out = shed + (20 - stills.min(20)) as f64;
    assert!(f64::from(reused) + left_out >= 8.0, "{reused} of {}, {left_out}", told.len());
    for event in &told {
        let payload = &event["payload"];
        let scene = if payload["pts_ms"].as_i64() < Some(3000) { "A" } else { "B" };
        assert!(text(payload, "description").ends_with(scene), "{payload}");
    }
    let counted = server.metric("service_novelty_decisions_total{decision=\"reuse\"}");
    assert_eq!(counted, f64::from(reused));
}

#[test]
fn a_new_prompt_holds_from_the_frame_that_its_answer_names() {
    let Some(sightline) = sightline() else { return };
    // Half of the width and a quarter of the height is shown.
    let model = Model::start(|seen| {
        let shown = &pictures(seen)[0];
        let size = format!("{}x{}", shown.width, shown.height);
        let words = if prompt(seen).contains("second words") { "second" } else { "first" };
        says(&format!("{words} words at {size} of scene {}", scenes(seen)), 0.9)
    });
    // A session that names no model uses one that the backend has.
    model.server.answer_probes(list(&["qwen3-vl-8b"]));
    let postgres = Postgres::start();
    let setup = model.behind(Setup::temporary()).var("SERVICE_DB_URL", &postgres.url());
    let server = setup.var("SERVICE_GATE_KEEPALIVE_FRAMES", "10").start();
    let file = clip::scenes("C", 0);
    let attach = json!({
        "prompt": "first words", "index_name": "gate",
        "crop": {"x": 0.25, "y": 0.25, "width": 0.5, "height": 0.25},
    });
    let publication = Publication::start(&sightline, &server, &file, &attach, &["--loop"]);
    let run = publication.run.clone();
    let described = |words: &str| {
        let told = server.payloads(&run, "vlm");
        let count = told.iter().filter(|told| text(told, "description").starts_with(words)).count();
        count >= 2
    };
    wait_until("two descriptions by the first prompt", || described("first words"));
    let record = server.get(&format!("/v1/runs/{run}")).json();
    let path = format!("/v1/stream/whip/{}/prompt", text(&record, "session_id"));
    let reply =
        server.call("PATCH", &path).json(&json!({"prompt": "second words"})).send().assert_ok();
    let from = reply.json()["applied_from_frame"].as_u64().expect("a frame");
    wait_until("two descriptions by the second prompt", || described("second words"));
    postgres.wait_for("SELECT to_regclass('sightline_events') IS NOT NULL", "t");
    postgres.wait_for("SELECT count(*) >= 4 FROM sightline_events WHERE kind = 'vlm'", "t");
    publication.interrupt();
    publication.finish();
    let told = server.payloads(&run, "vlm");
    postgres.wait_for("SELECT count(*) FROM sightline_events", &told.len().to_string());
    for payload in &told {
        let words = if payload["frame_index"].as_u64() < Some(from) { "first" } else { "second" };
        let expected = format!("{words} words at 160x60 of scene C");
        assert_eq!(text(payload, "description"), expected, "from {from}: {payload}");
        assert_eq!(
            (&payload["index_name"], &payload["model"]),
            (&json!("gate"), &json!("qwen3-vl-8b")),
            "{payload}"
        );
    }
}

/// A name, what the backend does, and what the event of a picture says of it.
type Failure = (&'static str, fn() -> Step, &'static str);

#[test]
fn a_picture_without_a_description_is_told_once() {
    let Some(sightline) = sightline() else { return };
    let rows: [Failure; 2] = [
        ("half of JSON", || Step::chat("{\"description\": \"a wa"), "JSON"),
        ("a page of HTML", || Step::html(502), "5"),
    ];
    for (name, step, says) in rows {
        let model = Model::start(move |_| step());
        let server = model.behind(Setup::temporary()).start();
        let file = clip::scenes("ABC", 0);
        let (run, _) = Publication::start(&sightline, &server, &file, &json!({}), &[]).finish();
        let told = server.payloads(&run, "vlm");
        let undescribed = server.metric("service_live_undescribed_total");
        assert!((told.len() as f64) < undescribed, "{name}: {told:?} of {undescribed}");
        let first = told.first().unwrap_or_else(|| panic!("{name}: {:?}", server.kinds(&run)));
        assert_eq!((text(first, "description"), &first["confidence"]), ("", &json!(0.0)), "{name}");
        assert!(text(first, "semantic_error").contains(says), "{name}: {first}");
        assert!(first["attempts"].as_u64().is_some_and(|asked| asked >= 1), "{name}: {first}");
        assert_eq!(server.kinds(&run).last().map(String::as_str), Some("run_completed"), "{name}");
    }
}
