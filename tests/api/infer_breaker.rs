//! A backend that keeps failing: who leaves it alone, and who waits for what a trial shows.

use std::{
    thread,
    time::{Duration, Instant},
};

use scripted_model::Step;
use serde_json::{Value, json};

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
fn a_backend_that_is_left_alone_is_waited_for_and_shut_for_nobody_else() {
    let model = Model::start(|seen| match &*prompt(seen) {
        "poison" => Step::html(500),
        "slow" => Step::chat("hello").after(Duration::from_millis(100)),
        _ => Step::chat("hello"),
    });
    let server = model.behind(Setup::temporary()).start();
    let poison = || server.post("/v1/infer", &question("poison")).assert_status(500);
    for _ in 0..5 {
        poison();
    }
    let refused = server.post("/v1/infer", &question("p"));
    assert!(refused.text.contains("open circuit breaker"), "{}", refused.text);
    assert_eq!(model.server.seen().len(), 5, "it is left alone");
    thread::sleep(PAUSE);
    let outcome = |requests: Vec<Value>, max_parallel: u32| {
        let batch = json!({"requests": requests, "max_parallel": max_parallel});
        let answer = server.post("/v1/infer/batch", &batch).json();
        ["succeeded", "failed"].map(|field| answer[field].as_u64())
    };
    let met = outcome(vec![question("slow"); 64], 64);
    assert_eq!(met, [Some(64), Some(0)], "a batch that meets a trial waits for what it shows");
    let left = outcome([vec![question("poison"); 5], vec![question("p"); 19]].concat(), 1);
    assert_eq!(left, [Some(19), Some(5)], "what is left of a batch waits for the backend");

    let until = Instant::now() + PAUSE * 2;
    let mut held_back = 0;
    while Instant::now() < until || held_back == 0 {
        held_back += u32::from(poison().text.contains("open circuit breaker"));
        let bobs = server.call("POST", "/v1/infer").key(Some(BOB)).json(&question("p"));
        bobs.send().assert_ok();
    }
}
