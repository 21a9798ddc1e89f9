//! A backend that keeps failing: who leaves it alone, and who waits for what a trial shows.

use std::{
    thread,
    time::{Duration, Instant},
};

use scripted_model::Step;
use serde_json::json;

use crate::{
    api::infer_limits::question,
    support::{
        BOB, Setup,
        model::{Model, prompt},
    },
};

/// Longer than the first pause.
const PAUSE: Duration = Duration::from_millis(1200);

#[test]
fn a_batch_that_meets_a_trial_waits_for_what_it_shows() {
    let model = Model::start(|seen| match seen.number {
        0..5 => Step::html(500),
        _ => Step::chat("hello").after(Duration::from_millis(100)),
    });
    let server = model.behind(Setup::temporary()).start();
    for _ in 0..5 {
        assert_eq!(server.post("/v1/infer", &question("p")).status, 500);
    }
    let refused = server.post("/v1/infer", &question("p"));
    assert!(refused.text.contains("open circuit breaker"), "{}", refused.text);
    assert_eq!(model.server.seen().len(), 5, "it is left alone");
    thread::sleep(PAUSE);
    let batch = json!({"requests": vec![question("p"); 64], "max_parallel": 64});
    let answer = server.post("/v1/infer/batch", &batch).json();
    assert_eq!((&answer["succeeded"], &answer["failed"]), (&json!(64), &json!(0)), "{answer}");
}

#[test]
fn what_is_left_of_a_batch_waits_for_a_backend_that_is_left_alone() {
    let model = Model::start(|seen| match seen.number {
        0..5 => Step::html(500),
        _ => Step::chat("hello"),
    });
    let server = model.behind(Setup::temporary()).start();
    let batch = json!({"requests": vec![question("p"); 24], "max_parallel": 1});
    let answer = server.post("/v1/infer/batch", &batch).json();
    assert_eq!((&answer["succeeded"], &answer["failed"]), (&json!(19), &json!(5)), "{answer}");
}

#[test]
fn the_questions_of_one_principal_shut_no_backend_for_another() {
    let model = Model::start(|seen| match &*prompt(seen) {
        "poison" => Step::html(500),
        _ => Step::chat("hello"),
    });
    let server = model.behind(Setup::temporary()).start();
    let asked_by = |key, text| {
        let call = server.call("POST", "/v1/infer").key(key);
        call.json(&question(text)).send()
    };
    let until = Instant::now() + PAUSE * 2;
    let mut held_back = 0;
    while Instant::now() < until || held_back == 0 {
        let poisoned = server.post("/v1/infer", &question("poison")).assert_status(500);
        held_back += u32::from(poisoned.text.contains("open circuit breaker"));
        asked_by(Some(BOB), "p").assert_ok();
    }
}
