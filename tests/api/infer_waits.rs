//! Requests that wait for a slot in inference: their limits, and the resources they hold meanwhile.

use std::{thread, time::Duration};

use scripted_model::Step;
use serde_json::{Value, json};

use crate::{
    api::infer_limits::{IN_FLIGHT, WAITING, hanging, is_unavailable, question, until},
    support::{
        Setup,
        model::{Model, prompt},
    },
};

const OFFLINE_IN_FLIGHT: &str = r#"service_inference_in_flight{class="offline"}"#;

#[test]
fn a_callers_time_is_for_the_wait_too() {
    let model = Model::start(|seen| match &*prompt(seen) {
        "hang" => Step::hang(),
        _ => Step::chat("hello"),
    });
    let setup = model.behind(Setup::temporary());
    let server = setup
        .var("SERVICE_INFERENCE_GLOBAL_LIMIT", "1")
        .var("SERVICE_INFERENCE_WAIT_TIMEOUT_MS", "120000")
        .start();
    thread::scope(|scope| {
        let holds = scope.spawn(|| server.post("/v1/infer", &hanging(4_000)));
        until(&server, IN_FLIGHT, 1.0);
        let mut hasty = question("p");
        hasty["timeout_ms"] = json!(200);
        let late = server.post("/v1/infer", &hasty);
        assert!(is_unavailable(&late), "{} {}", late.status, late.text);
        assert_eq!(server.metric(IN_FLIGHT), 1.0, "the place was never free");
        assert_eq!(holds.join().expect("no panic").status, 500);
    });
    assert_eq!(model.server.seen().len(), 1, "nothing was asked for it");
}

#[test]
fn a_batch_waits_for_places_in_the_queue() {
    let model = Model::start(|_| Step::chat("hello").after(Duration::from_millis(20)));
    let setup = model.behind(Setup::temporary());
    let server = setup
        .var("SERVICE_INFERENCE_PER_PRINCIPAL_LIMIT", "1")
        .var("SERVICE_INFERENCE_WAITER_LIMIT", "2")
        .start();
    let batch = json!({"requests": vec![question("p"); 24], "max_parallel": 16});
    let answer = server.post("/v1/infer/batch", &batch).json();
    assert_eq!((&answer["succeeded"], &answer["failed"]), (&json!(24), &json!(0)), "{answer}");
    let refused = server.metric(r#"service_inference_refusals_total{reason="queue_full"}"#);
    assert!(refused > 0.0, "the queue was never full");
    assert_eq!(server.metric(OFFLINE_IN_FLIGHT), 0.0);
}

#[test]
fn no_more_of_a_batch_is_asked_at_once_than_it_says() {
    let model = Model::start(|_| Step::chat("hello").after(Duration::from_millis(10)));
    let server = model.behind(Setup::temporary()).start();
    let batch = json!({"requests": vec![question("p"); 12], "max_parallel": 1});
    let answer = server.post("/v1/infer/batch", &batch).json();
    assert_eq!(answer["succeeded"], 12, "{answer}");
    assert_eq!((model.server.seen().len(), model.server.in_flight_max()), (12, 1));
}

#[test]
fn the_answers_of_a_batch_are_held_within_a_limit() {
    let words = "x".repeat(3 << 20);
    let model = Model::start(move |_| Step::chat(&words));
    let server = model.behind(Setup::temporary()).start();
    let batch = json!({"requests": vec![question("p"); 13], "max_parallel": 1});
    let answer = server.post("/v1/infer/batch", &batch).json();
    // Ten of 3 MiB are less than 32 MiB, the eleventh is read and dropped, and no more are asked.
    assert_eq!((&answer["succeeded"], &answer["failed"]), (&json!(10), &json!(3)));
    assert_eq!(model.server.seen().len(), 11);
    for item in &answer["results"].as_array().expect("an array")[10..] {
        let error = &item["error"];
        assert_eq!((&item["ok"], &error["code"]), (&json!(false), &json!("validation_error")));
        assert_eq!(error["details"][0]["field"], "requests", "{error}");
    }
}

/// Two backends, each with a model of its own.
fn two(first: &Model, second: &Model) -> Setup {
    let weary = "model = \"weary-model\"\npriority = 1";
    let setup = Setup::temporary().backend("weary", &first.server.base_url(), weary);
    let fresh = "model = \"fresh-model\"\npriority = 2";
    setup.backend("fresh", &second.server.base_url(), fresh)
}

fn to(model: &str) -> Value {
    json!({"model": model, "prompt": "p", "max_tokens": 10})
}

#[test]
fn a_backend_that_rests_holds_nobodys_place() {
    let weary = Model::start(|seen| match seen.number {
        0 => Step::rate_limited(Some("5")),
        _ => Step::chat("awake"),
    });
    let fresh = Model::start(|_| Step::chat("hello"));
    let server = two(&weary, &fresh)
        .var("SERVICE_INFERENCE_GLOBAL_LIMIT", "1")
        .var("SERVICE_INFERENCE_WAIT_TIMEOUT_MS", "60000")
        .start();
    thread::scope(|scope| {
        let waits = scope.spawn(|| server.post("/v1/infer", &to("weary-model")));
        until(&server, WAITING, 1.0);
        assert_eq!(server.metric(IN_FLIGHT), 0.0, "the one place is free");
        server.post("/v1/infer", &to("fresh-model")).assert_ok();
        let answer = waits.join().expect("no panic");
        assert_eq!((answer.status, &answer.json()["output_text"]), (200, &json!("awake")));
    });
    assert_eq!((weary.server.seen().len(), fresh.server.seen().len()), (2, 1));
    assert_eq!((server.metric(WAITING), server.metric(IN_FLIGHT)), (0.0, 0.0));
}

#[test]
fn a_rest_that_is_too_long_is_a_failure_at_once_and_kept() {
    let weary = Model::start(|_| Step::rate_limited(Some("3600")));
    let server = weary.behind(Setup::temporary()).start();
    for _ in 0..3 {
        let reply = server.post("/v1/infer", &question("p")).assert_refused(500, "internal_error");
        assert!(reply.text.contains("rate limited"), "{}", reply.text);
    }
    assert_eq!(weary.server.seen().len(), 1, "it is left alone");
}

#[test]
fn who_stood_in_for_a_backend_that_fails_is_told() {
    let (bad, good) = (Model::start(|_| Step::html(500)), Model::start(|_| Step::chat("hello")));
    let setup = bad.behind(Setup::temporary());
    let server = setup.var("SERVICE_SGLANG_BASE_URL", &good.server.base_url()).start();
    let run = server.create_run();
    let mut body = question("p");
    body["run_id"] = json!(run);
    let reply = server.post("/v1/infer", &body).assert_ok();
    let answer = reply.json();
    assert_eq!((&answer["provider"], &answer["fallback_used"]), (&json!("sglang"), &json!(true)));
    assert_eq!(answer["tokens"]["total_tokens"], 17, "an error costs nothing");
    let event = server.events(&run)[1]["payload"].clone();
    let told = ["provider", "fallback_used", "attempts", "total_tokens"].map(|name| &event[name]);
    assert_eq!(told, [&json!("sglang"), &json!(true), &json!(2), &json!(17)], "{event}");
    body["allow_fallback"] = json!(false);
    assert_eq!(server.post("/v1/infer", &body).status, 500);
    assert_eq!(good.server.seen().len(), 1);
}
