//! Direct inference against a scripted backend: answers, failures, pictures, batches, and keys, which are found nowhere else.

use std::time::Duration;

use scripted_model::Step;
use serde_json::{Value, json};

use super::bodies::with;
use crate::support::{
    BOB, Reply, Server, Setup, assert_has, free_address,
    model::{Model, list, prompt},
};

const MODEL: &str = "qwen3-vl-4b";

fn question(prompt: &str) -> Value {
    json!({"model": MODEL, "prompt": prompt})
}

fn says_hello() -> Model {
    Model::start(|_| Step::chat("hello"))
}

/// Answers a question by what it says.
fn answers(said: &str) -> Step {
    match said {
        said if said.contains("good") => Step::chat(r#"{"n": 3}"#),
        said if said.contains("cut") => Step::chat_finished(r#"{"n": 3"#, "length"),
        said if said.contains("bad") => Step::chat(r#"{"n": "three"}"#),
        "http 5xx" => Step::html(502),
        "malformed" => Step::reply(200, "application/json", "{\"choices\": \"secret\"}"),
        _ => Step::chat("hello").after(Duration::from_millis(20)),
    }
}

#[test]
fn questions_alone_and_in_batches_are_answered_or_their_failure_told() {
    let words = "x".repeat(3 << 20);
    let model = Model::start(move |seen| match &*prompt(seen) {
        "long" => Step::chat(&words),
        said if said.starts_with("question ") => fails_some(said),
        said => answers(said),
    });
    let server = model.behind(Setup::temporary()).start();
    a_question_is_answered_and_told_of_on_its_run(&model, &server);
    the_answers_of_a_batch_are_held_within_a_limit(&model, &server);
    an_answer_with_a_schema_is_valid_json_or_a_failure(&server);
    a_failure_is_told_by_its_class_and_nothing_of_the_backend(&server);
    a_batch_returns_in_order_with_a_failure_for_each_that_failed(&model, &server);
}

fn a_question_is_answered_and_told_of_on_its_run(model: &Model, server: &Server) {
    let run = server.create_run();
    let body = json!({
        "model": MODEL, "prompt": "Say hello.", "run_id": run, "max_tokens": 7,
        "temperature": 0.5, "timeout_ms": 5000, "allow_fallback": false,
        "primary_provider": "vllm",
    });
    let reply = server.post("/v1/infer", &body).assert_ok();
    let answer = reply.json();
    let expected = json!({
        "request_id": reply.header("x-request-id"), "run_id": run, "provider": "vllm",
        "model": MODEL, "fallback_used": false, "output_text": "hello", "finish_reason": "stop",
        "inference_latency_ms": answer["inference_latency_ms"],
        "tokens": {
            "prompt_tokens": 12, "completion_tokens": 5, "thinking_tokens": 0, "total_tokens": 17,
        },
    });
    assert_eq!(answer, expected);
    assert!(answer["inference_latency_ms"].as_u64() >= Some(20), "{answer}");
    let sent = model.server.seen()[0].json();
    assert_has(&sent, &json!({"model": MODEL, "max_tokens": 7, "temperature": 0.5}));
    assert_eq!(server.kinds(&run), ["run_created", "inference_completed"]);
    let payload = server.events(&run)[1]["payload"].clone();
    let expected = json!({
        "request_id": reply.header("x-request-id"), "provider": "vllm", "model": MODEL,
        "fallback_used": false, "prompt_bytes": 10, "output_bytes": 5, "prompt_tokens": 12,
        "completion_tokens": 5, "thinking_tokens": 0, "total_tokens": 17, "tier": "first",
        "attempts": 1, "inference_latency_ms": answer["inference_latency_ms"],
    });
    assert_eq!(payload, expected);
    let untied = server.post("/v1/infer", &question("p"));
    assert_eq!((untied.status, &untied.json()["run_id"]), (200, &Value::Null), "{}", untied.text);
    assert!(untied.json()["output_json"].is_null());
    assert!(model.server.seen()[1].json()["max_tokens"].is_null(), "nothing bounds it");
}

fn an_answer_with_a_schema_is_valid_json_or_a_failure(server: &Server) {
    let schema = json!({
        "type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"],
    });
    let ask = |said: &str| {
        server.post("/v1/infer", &with(question(said), "output_schema", schema.clone()))
    };
    assert_eq!(ask("good").assert_ok().json()["output_json"], json!({"n": 3}));
    for (said, class) in [("bad", "does not match output_schema"), ("cut", "truncated")] {
        let message = failure(&ask(said));
        assert!(message.contains(class), "{said}: {message}");
    }
}

#[test]
fn what_cannot_be_asked_is_refused_by_name_and_asks_nothing() {
    let model = says_hello();
    let server = model.behind(Setup::temporary().clips()).start();
    what_cannot_be_accepted_is_named(&server);
    each_that_is_wrong_in_a_batch_is_named(&server);
    a_run_that_is_not_there_or_over_takes_no_question(&server);
    assert_eq!(model.server.seen().len(), 0, "nothing was asked");
    stills_of_owned_runs_are_shown_to_the_model(&model, &server);
}

/// Rules beyond those that the document states, which [`super::limits`] tries.
fn what_cannot_be_accepted_is_named(server: &Server) {
    let (run, hash) = (format!("run-{}", "0".repeat(32)), "ab".repeat(32));
    let still = |run: &str, hash: &str| json!([{"keyframe": {"run_id": run, "sha256": hash}}]);
    let deep = (0..40).fold(json!({}), |inner, _| json!({"not": inner}));
    let rows = [
        ("model", json!("no-such-model")),
        ("model", json!(null)),
        ("output_schema", json!({"type": "nonsense"})),
        ("output_schema", json!({"$ref": "https://example.com/schema"})),
        ("output_schema", json!({"$ref": "file:///etc/passwd"})),
        ("output_schema", deep),
        ("run_id", json!("run-1")),
        ("images[0].keyframe", json!([{}])),
        ("images[0].keyframe.run_id", still("run-1", &hash)),
        ("images[0].keyframe.sha256", still(&run, "ab")),
        ("primary_provider", json!("gemini")),
    ];
    for (named, value) in rows {
        let field = named.split('[').next().expect("a name");
        let body = with(question("p"), "allow_fallback", json!(value != "gemini"));
        let body = with(body, field, value.clone());
        server.post("/v1/infer", &body).assert_invalid(named, &value);
        let of_batch = format!("requests[1].{named}");
        assert_no_batch(server, &json!([question("a"), body]), &[&of_batch]);
    }
}

/// A batch of these requests is refused by these names.
fn assert_no_batch(server: &Server, requests: &Value, named: &[&str]) {
    let reply = server.post("/v1/infer/batch", &json!({ "requests": requests }));
    assert_eq!(reply.assert_status(422).fields(), named, "{requests}");
}

fn each_that_is_wrong_in_a_batch_is_named(server: &Server) {
    assert_no_batch(server, &Value::Null, &["requests"]);
    assert_no_batch(server, &json!([1]), &["requests[0]"]);
    let unserved = with(question("p"), "primary_provider", json!("gemini"));
    let unread = with(unserved.clone(), "temperature", json!(3));
    let unserved = with(unserved, "allow_fallback", json!(false));
    assert_no_batch(server, &json!([unread, unserved]), &["requests[0].temperature"]);
    let both = ["requests[0].primary_provider", "requests[1].primary_provider"];
    assert_no_batch(server, &json!([unserved, unserved]), &both);
}

#[track_caller]
fn failure(reply: &Reply) -> String {
    assert_eq!((reply.status, &*reply.code()), (500, "internal_error"), "{reply}");
    reply.json()["error"]["message"].as_str().expect("a text").to_owned()
}

/// `infer/tests/chain/failures.rs` has every class.
fn a_failure_is_told_by_its_class_and_nothing_of_the_backend(server: &Server) {
    let run = server.create_run();
    for class in ["http 5xx", "malformed"] {
        let asked = with(question(class), "run_id", json!(run));
        let message = failure(&server.post("/v1/infer", &asked));
        assert!(message.contains("the backend vllm") && message.contains(class), "{message}");
        for hidden in ["secret", "Bad Gateway", "127.0.0.1"] {
            assert!(!message.contains(hidden), "{class}: {message}");
        }
        // A success between failures keeps the backend from being left alone.
        server.post("/v1/infer", &question("p")).assert_ok();
    }
    assert_eq!(server.kinds(&run), ["run_created"], "a failure is no event");
}

fn gone(server: &Server) -> Vec<Value> {
    let bobs = server.call("POST", "/v1/runs").key(Some(BOB)).json(&json!({})).send();
    let deleted = server.create_run();
    assert_eq!(server.call("DELETE", &format!("/v1/runs/{deleted}")).send().status, 200);
    vec![bobs.json()["run_id"].clone(), json!(deleted), json!(format!("run-{}", "0".repeat(32)))]
}

fn stills_of_owned_runs_are_shown_to_the_model(model: &Model, server: &Server) {
    let run = server.ingested(&json!({"source_uri": "talk.mp4", "max_frames": 40}));
    let kept = server.get(&format!("/v1/runs/{run}/keyframes")).json();
    let hash = kept["keyframes"][0]["image_sha256"].as_str().expect("a still").to_owned();
    let still = |run: &Value, hash: &str| json!({"keyframe": {"run_id": run, "sha256": hash}});
    let images = json!([still(&json!(run), &hash), still(&json!(run), &hash)]);
    server.post("/v1/infer", &with(question("Look."), "images", images)).assert_ok();
    let sent = model.server.seen()[0].json().to_string();
    assert_eq!(sent.matches("data:image/jpeg;base64,/9j/").count(), 2, "both stills");
    let said = prompt(&model.server.seen()[0]);
    assert!(said.contains("Look.") && said.contains("Picture 2 of 2:"), "{said}");

    let mut cases: Vec<Value> = gone(server).iter().map(|run| still(run, &hash)).collect();
    cases.push(still(&json!(run), &"ab".repeat(32)));
    for image in cases {
        let body = with(question("Look."), "images", json!([image]));
        server.post("/v1/infer", &body).assert_refused(404, "not_found");
        assert_no_batch(server, &json!([question("p"), body]), &["requests[1].images"]);
    }
    assert_eq!(model.server.seen().len(), 1, "the first question alone");
}

fn a_run_that_is_not_there_or_over_takes_no_question(server: &Server) {
    let ended = server.create_run();
    assert_eq!(server.post_run(&ended, "stop", &json!({})).status, 200);
    let gone = gone(server).into_iter().map(|run| (run, 404, "not_found"));
    for (run, status, code) in gone.chain([(json!(ended), 409, "conflict")]) {
        let of_run = with(question("p"), "run_id", run);
        server.post("/v1/infer", &of_run).assert_refused(status, code);
        assert_no_batch(server, &json!([question("p"), of_run]), &["requests[1].run_id"]);
    }
}

/// Ten of 256, far enough apart that the backend is not left alone for them.
fn fails(number: usize) -> bool {
    number % 25 == 7 && number < 250
}

fn fails_some(said: &str) -> Step {
    let number: usize = said.trim_start_matches("question ").parse().expect("a number");
    // The first to arrive are answered last.
    let after = Duration::from_millis(if number % 16 < 4 { 20 } else { 0 });
    let step = if fails(number) { Step::html(503) } else { Step::chat(said) };
    step.after(after)
}

fn the_answers_of_a_batch_are_held_within_a_limit(model: &Model, server: &Server) {
    let before = model.server.seen().len();
    let batch = json!({"requests": vec![question("long"); 13], "max_parallel": 1});
    let answer = server.post("/v1/infer/batch", &batch).json();
    // Ten of 3 MiB are less than 32 MiB, the eleventh is read and dropped, and no more are asked.
    assert_has(&answer, &json!({"succeeded": 10, "failed": 3}));
    let asked = model.server.seen().len() - before;
    assert_eq!((asked, model.server.in_flight_max()), (11, 1));
    for item in &answer["results"].as_array().expect("an array")[10..] {
        assert_eq!(item["ok"], false, "{item}");
        assert_eq!(item["error"]["code"], "validation_error", "{item}");
        assert_eq!(item["error"]["details"][0]["field"], "requests", "{item}");
    }
}

fn a_batch_returns_in_order_with_a_failure_for_each_that_failed(model: &Model, server: &Server) {
    let run = server.create_run();
    let requests: Vec<Value> = (0..256)
        .map(|at| with(question(&format!("question {at}")), "run_id", json!(run)))
        .collect();
    let failing: Vec<usize> = (0..256).filter(|at| fails(*at)).collect();
    assert_eq!(failing.len(), 10);
    let body = json!({"requests": requests, "max_parallel": 64});
    let reply = server.post("/v1/infer/batch", &body).assert_ok();
    let answer = reply.json();
    assert_has(&answer, &json!({"processed": 256, "succeeded": 246, "failed": 10}));
    for (at, item) in answer["results"].as_array().expect("an array").iter().enumerate() {
        assert_has(item, &json!({"index": at, "ok": !fails(at)}));
        if fails(at) {
            assert_eq!(item["error"]["code"], "internal_error", "{item}");
            let message = item["error"]["message"].as_str().unwrap_or_default();
            assert!(message.contains("http 5xx") && item["result"].is_null(), "{item}");
        } else {
            assert_eq!(item["result"]["output_text"], format!("question {at}"));
        }
    }
    assert!(model.server.in_flight_max() <= 4, "{} at once", model.server.in_flight_max());
    let completed = server.kinds(&run).iter().filter(|kind| *kind == "inference_completed").count();
    assert_eq!(completed, 246);
}

#[test]
fn models_say_who_serves_them_and_whether_they_can_be_reached() {
    let model = says_hello();
    model.server.answer_probes(list(&["org/house-7b-awq"]));
    let house = "openai_kind = \"sglang\"\nmodel = \"house-7b\"\n\
        upstream_model = \"org/house-7b-awq\"\npriority = 1";
    let url = format!("{}/v1/", model.server.base_url());
    let nowhere = format!("http://{}", free_address());
    let setup = Setup::temporary().backend("house", &url, house);
    let server = setup.backend("gone", &nowhere, "model = \"qwen3-vl-2b\"\npriority = 2").start();
    let answer = server.get("/v1/models").json();
    let find = |id: &str| {
        let models = answer["models"].as_array().expect("an array").iter();
        models.clone().find(|model| model["id"] == id).cloned().expect("listed")
    };
    let served = |by: &[&str], how: &str| json!({"availability": how, "providers_available": by});
    assert_has(&find("house-7b"), &served(&["house"], "ready"));
    assert_eq!(find("house-7b")["tier"], "small");
    assert_has(&find("qwen3-vl-2b"), &served(&[], "unreachable"));
    assert_has(&find("qwen3-vl-4b"), &served(&[], "not_configured"));
    assert_eq!(answer["providers"].as_array().map(Vec::len), Some(2), "{answer}");
    let [house, gone] = [0, 1].map(|at: usize| &answer["providers"][at]);
    assert_has(house, &json!({"name": "house", "reachable": true, "last_error": null}));
    assert!(house["latency_ms"].is_u64(), "{house}");
    assert_has(gone, &json!({"name": "gone", "reachable": false, "latency_ms": null}));
    let error = gone["last_error"].as_str().expect("why");
    assert!(error.contains("refused") && !error.contains("127.0.0.1"), "{error}");
    let again: Vec<u16> = (0..5).map(|_| server.get("/v1/models").status).collect();
    assert_eq!((again, model.server.probes()), (vec![200; 5], 1), "looked at once in five seconds");
    // `models.rs` asks by other names.
    let reply = server.post("/v1/infer", &with(question("p"), "model", json!("house-7b")));
    assert_eq!(reply.json()["model"], "house-7b", "{}", reply.text);
    assert_eq!(model.server.seen()[0].json()["model"], "org/house-7b-awq");
}

const OPENAI_KEY: &str = "sk-one-that-is-never-shown";
const GEMINI_KEY: &str = "AIza-one-that-is-never-shown";

#[test]
fn keys_are_in_no_log_no_event_and_no_answer() {
    let dir = tempfile::tempdir().expect("a directory");
    let model = Model::start(|seen| match &*prompt(seen) {
        // A backend may well repeat what it was sent.
        "refused" => Step::json(401, &json!({"error": {"message": format!("no {OPENAI_KEY}")}})),
        "broken" => Step::close(),
        "malformed" => Step::reply(200, "application/json", format!("{{\"{OPENAI_KEY}\": 1}}")),
        _ => Step::chat("hello"),
    });
    let gemini = Model::start(|_| Step::html(500));
    let file = dir.path().join("backends.toml");
    let text = format!(
        "[[backends]]\nname = \"one\"\ntype = \"openai_compat\"\nbase_url = \"{}\"\n\
         api_key = \"${{ONE_KEY}}\"\nmodel = \"qwen3-vl-4b\"\npriority = 1\n\
         [[backends]]\nname = \"two\"\ntype = \"gemini\"\nbase_url = \"{}\"\n\
         api_key = \"{GEMINI_KEY}\"\nmodel = \"gemini-2.5-flash\"\npriority = 2\n",
        model.server.base_url(),
        gemini.server.base_url(),
    );
    std::fs::write(&file, text).expect("written");
    let log = dir.path().join("log");
    let server = Setup::new(dir.path())
        .var("SERVICE_CONFIG", &file.display().to_string())
        .var("ONE_KEY", OPENAI_KEY)
        .var("RUST_LOG", "trace")
        .log_to(&log)
        .start();
    let run = server.create_run();
    let mut answers = String::new();
    for (model, prompt) in [
        ("qwen3-vl-4b", "p"),
        ("qwen3-vl-4b", "refused"),
        ("qwen3-vl-4b", "broken"),
        ("qwen3-vl-4b", "malformed"),
        ("gemini-2.5-flash", "p"),
    ] {
        let asked = json!({"model": model, "prompt": prompt, "run_id": run});
        answers += &server.post("/v1/infer", &asked).text;
    }
    let events = server.post("/v1/query", &json!({"run_id": run})).text;
    drop(server);
    let sent = model.server.seen()[0].header("authorization").map(str::to_owned);
    assert_eq!(sent.as_deref(), Some(&*format!("Bearer {OPENAI_KEY}")));
    assert_eq!(gemini.server.seen()[0].header("x-goog-api-key"), Some(GEMINI_KEY));
    assert!(events.contains("inference_completed"), "{events}");
    let text = String::from_utf8_lossy(&std::fs::read(&log).expect("readable")).into_owned();
    assert!(text.contains("TRACE"), "nothing of the least is logged");
    for (place, text) in [("log", &text), ("events", &events), ("answers", &answers)] {
        for key in [OPENAI_KEY, GEMINI_KEY] {
            assert!(!text.contains(key), "in the {place}");
        }
    }
}
