//! Limits of inference, slots and the queue, a day's tokens and their events; backends that fail: who waits for them, or leaves
//! them alone.

use std::{
    thread,
    time::{Duration, Instant},
};

use scripted_model::Step;
use serde_json::{Value, json};

use crate::support::{
    ALICE, BOB, Reply, Server, Setup, assert_has,
    model::{Model, prompt},
    wait_until, with,
};

/// Hangs where it is asked to.
fn model() -> Model {
    Model::start(|seen| match &*prompt(seen) {
        "hang" => Step::hang(),
        "slow" => Step::chat("hello").after(Duration::from_secs(3)),
        "soon" => Step::chat("hello").after(Duration::from_millis(20)),
        _ => Step::chat("hello"),
    })
}

fn question(prompt: &str) -> Value {
    json!({"model": "qwen3-vl-4b", "prompt": prompt, "max_tokens": 10})
}

/// The same with `more` fields.
fn asking(prompt: &str, more: &Value) -> Value {
    with(question(prompt), more)
}

/// Waits until a series has a value.
fn until(server: &Server, series: &str, expected: f64) {
    wait_until(&format!("{series} is {expected}"), || server.metric(series) == expected);
}

const IN_FLIGHT: &str = r#"service_inference_in_flight{class="live"}"#;
const WAITING: &str = r#"service_inference_waiting{class="live"}"#;

/// Asserts that it is refused for now; returns the seconds until later.
#[track_caller]
fn unavailable(reply: Reply) -> u64 {
    let reply = reply.assert_refused(503, "unavailable");
    reply.header("retry-after").parse().expect("seconds")
}

#[test]
fn a_full_queue_refuses_and_places_come_back() {
    let model = model();
    let server = model
        .behind(Setup::temporary())
        .var("SERVICE_INFERENCE_GLOBAL_LIMIT", "1")
        .var("SERVICE_INFERENCE_WAITER_LIMIT", "1")
        .var("SERVICE_INFERENCE_WAIT_TIMEOUT_MS", "60000")
        .start();
    let hanging = asking("hang", &json!({"timeout_ms": 4000}));
    thread::scope(|scope| {
        let holds = scope.spawn(|| server.post("/v1/infer", &hanging));
        until(&server, IN_FLIGHT, 1.0);
        let waits = scope.spawn(|| server.post("/v1/infer", &question("p")));
        until(&server, WAITING, 1.0);
        for key in [ALICE, BOB] {
            let call = server.call("POST", "/v1/infer").key(Some(key));
            unavailable(call.json(&question("p")).send());
        }
        holds.join().expect("no panic").assert_refused(500, "internal_error");
        assert_eq!(waits.join().expect("no panic").status, 200);
    });
    let rows = [
        (IN_FLIGHT, 0.0),
        (WAITING, 0.0),
        (r#"service_inference_refusals_total{reason="queue_full"}"#, 2.0),
        (r#"service_refusals_total{reason="inferences"}"#, 2.0),
        (r#"service_inference_requests_total{outcome="timeout",provider="vllm"}"#, 1.0),
        (r#"service_inference_requests_total{outcome="ok",provider="vllm"}"#, 1.0),
        (r#"service_inference_tokens_total{kind="prompt",provider="vllm"}"#, 12.0),
        (r#"service_inference_tokens_total{kind="completion",provider="vllm"}"#, 5.0),
        (r#"service_inference_request_duration_seconds_count{provider="vllm"}"#, 2.0),
        ("service_inference_wait_seconds_count", 2.0),
        ("service_inference_tokens_in_flight", 0.0),
    ];
    for (series, expected) in rows {
        assert_eq!(server.metric(series), expected, "{series}");
    }
}

#[test]
fn one_place_of_a_principal_is_waited_for_and_comes_back() {
    let model = model();
    let setup = model.behind(Setup::temporary());
    let server = setup
        .var("SERVICE_INFERENCE_PER_PRINCIPAL_LIMIT", "1")
        .var("SERVICE_INFERENCE_WAITER_LIMIT", "2")
        .var("SERVICE_INFERENCE_WAIT_TIMEOUT_MS", "10000")
        .var("SERVICE_INFERENCE_TOKENS_PER_DAY", "1000000")
        .start();
    a_caller_that_goes_away_takes_its_question_back(&model, &server);
    an_answer_is_the_callers_though_its_run_was_stopped(&server);
    a_batch_waits_for_places_in_the_queue(&server);
}

fn a_caller_that_goes_away_takes_its_question_back(model: &Model, server: &Server) {
    let hanging = asking("hang", &json!({"timeout_ms": 120_000}));
    let send = || server.call("POST", "/v1/infer").json(&hanging).begin();
    let first = send();
    until(server, IN_FLIGHT, 1.0);
    wait_until("it is asked", || model.server.seen().len() == 1);
    // The time of a caller is for the wait too.
    let hasty = asking("p", &json!({"timeout_ms": 200}));
    let since = Instant::now();
    unavailable(server.post("/v1/infer", &hasty));
    assert!(since.elapsed() < Duration::from_secs(9), "it waited for as long as others may");
    unavailable(server.post("/v1/infer", &question("p")));
    assert_eq!(server.metric(r#"service_inference_refusals_total{reason="timed_out"}"#), 2.0);
    assert_eq!((server.metric(IN_FLIGHT), model.server.seen().len()), (1.0, 1), "never asked");
    let unbounded = json!({"model": "qwen3-vl-4b", "prompt": "p"});
    server.call("POST", "/v1/infer").key(Some(BOB)).json(&unbounded).send().assert_ok();
    assert_eq!(model.server.seen()[1].json()["max_tokens"], 4096, "a budget needs a bound");
    let second = send();
    until(server, WAITING, 1.0);
    drop(second);
    until(server, WAITING, 0.0);
    drop(first);
    until(server, IN_FLIGHT, 0.0);
    wait_until("the backend ends", || model.server.in_flight() == 0);
    assert_eq!(server.post("/v1/infer", &question("p")).status, 200);
}

fn an_answer_is_the_callers_though_its_run_was_stopped(server: &Server) {
    let run = server.create_run();
    let body = asking("slow", &json!({ "run_id": run }));
    let reply = thread::scope(|scope| {
        let asks = scope.spawn(|| server.post("/v1/infer", &body));
        until(server, IN_FLIGHT, 1.0);
        server.post_run(&run, "stop", &json!({})).assert_ok();
        asks.join().expect("no panic")
    });
    assert_has(&reply.assert_ok().json(), &json!({"output_text": "hello", "run_id": null}));
    let told = server.payloads(&run, "inference_completed");
    assert!(told.is_empty(), "nothing is added to a run that has ended");
}

fn a_batch_waits_for_places_in_the_queue(server: &Server) {
    let batch = json!({"requests": vec![question("soon"); 24], "max_parallel": 16});
    let answer = server.post("/v1/infer/batch", &batch).json();
    assert_has(&answer, &json!({"succeeded": 24, "failed": 0}));
    let refused = server.metric(r#"service_inference_refusals_total{reason="queue_full"}"#);
    assert!(refused > 0.0, "the queue was never full");
    assert_eq!(server.metric(r#"service_inference_in_flight{class="offline"}"#), 0.0);
}

/// A question that waits for a rest of more than 2 s gives its place back meanwhile.
#[test]
fn a_backend_that_rests_holds_nobodys_place() {
    let weary = Model::start(|seen| match seen.number {
        0 => Step::rate_limited(Some("5")),
        _ => Step::chat("awake"),
    });
    let fresh = Model::start(|_| Step::chat("hello"));
    let (first, second) =
        ("model = \"weary-model\"\npriority = 1", "model = \"fresh-model\"\npriority = 2");
    let server = Setup::temporary()
        .backend("weary", &weary.server.base_url(), first)
        .backend("fresh", &fresh.server.base_url(), second)
        .var("SERVICE_INFERENCE_GLOBAL_LIMIT", "1")
        .var("SERVICE_INFERENCE_WAIT_TIMEOUT_MS", "60000")
        .start();
    let ask = |model: &str| server.post("/v1/infer", &json!({"model": model, "prompt": "p"}));
    thread::scope(|scope| {
        let waits = scope.spawn(|| ask("weary-model"));
        until(&server, WAITING, 1.0);
        assert_eq!(server.metric(IN_FLIGHT), 0.0, "the one place is free");
        ask("fresh-model").assert_ok();
        assert_eq!(waits.join().expect("no panic").assert_ok().json()["output_text"], "awake");
    });
    assert_eq!((weary.server.seen().len(), fresh.server.seen().len()), (2, 1));
}

/// Longer than the first pause of a breaker.
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

/// Tokens that each question costs, whatever its estimate.
const COST: u64 = 17;

#[track_caller]
fn spent(reply: Reply) {
    let seconds = unavailable(reply);
    assert!((1..=86_400).contains(&seconds), "{seconds} to midnight");
}

fn told(server: &Server, run: &str) -> Vec<Value> {
    server.payloads(run, "token_budget_low")
}

#[test]
fn a_day_of_tokens_ends_with_a_word_before_and_survives_a_restart() {
    let model = Model::start(|_| Step::chat("hello"));
    // A question is estimated at a token for its prompt and those of its answer.
    let setup = model.behind(Setup::temporary()).var("SERVICE_INFERENCE_TOKENS_PER_DAY", "60");
    let mut server = setup.start();
    let run = server.create_run();
    let ask = |server: &Server, max_tokens: u64| {
        let more = json!({"max_tokens": max_tokens, "run_id": run});
        server.post("/v1/infer", &asking("p", &more))
    };
    ask(&server, 60).assert_invalid("max_tokens", "more than there is");
    ask(&server, 10).assert_ok();
    ask(&server, 30).assert_ok();
    assert_eq!(told(&server, &run).len(), 0, "{} of 60 are spent", 2 * COST);
    // 26 are left.
    let third = ask(&server, 25).assert_ok();
    let request = third.header("x-request-id");
    let low = json!({"principal_key": "alice", "used_tokens": 2 * COST, "limit_tokens": 60,
        "request_id": request});
    assert_has(&told(&server, &run)[0], &low);
    let kinds = server.kinds(&run);
    assert_eq!(kinds[kinds.len() - 2..], ["token_budget_low", "inference_completed"], "before");
    spent(ask(&server, 9));
    assert_eq!(ask(&server, 8).status, 200, "9 are left, and an estimate is all that is known");
    spent(ask(&server, 1));
    let batch = json!({"requests": [asking("p", &json!({"max_tokens": 1}))]});
    let batch = server.post("/v1/infer/batch", &batch).json();
    assert_eq!(batch["results"][0]["error"]["code"], "unavailable", "{batch}");
    let limits = server.get("/v1/limits").json()["limits"]["principal_day_tokens"].clone();
    assert_has(&limits, &json!({"max": 60, "used": 4 * COST}));
    assert_eq!(server.metric("service_inference_token_budgets_low_total"), 1.0);
    assert_eq!(server.metric(r#"service_inference_refusals_total{reason="day_spent"}"#), 3.0);
    assert_eq!(server.get(&format!("/v1/runs/{run}/state")).json()["state"], "processing");
    // A budget of his own.
    server.call("POST", "/v1/infer").key(Some(BOB)).json(&question("p")).send().assert_ok();
    server.terminate();
    assert!(server.wait(Duration::from_secs(30)).success());
    server = setup.start();
    spent(ask(&server, 1));
    assert_eq!(told(&server, &run).len(), 1, "once a day");
    assert_eq!(model.server.seen().len(), 5, "what is refused is not asked");
}

#[test]
fn the_word_is_owed_until_a_run_can_take_it() {
    let model = Model::start(|_| Step::chat("hello"));
    let setup = model.behind(Setup::temporary()).var("SERVICE_INFERENCE_TOKENS_PER_DAY", "56");
    let server = setup.start();
    let ended = server.create_run();
    assert_eq!(server.post_run(&ended, "stop", &json!({})).status, 200);
    let asked = asking("p", &json!({"max_tokens": 4}));
    for _ in 0..3 {
        server.post("/v1/infer", &asked).assert_ok();
    }
    assert_eq!(server.metric("service_inference_token_budgets_low_total"), 1.0);
    assert_eq!(told(&server, &ended).len(), 0, "it takes no events");
    let runs = [server.create_run(), server.create_run()];
    server.post("/v1/infer", &asked).assert_ok();
    let found = runs.each_ref().map(|run| told(&server, run).len());
    assert_eq!(found, [0, 1], "the youngest takes the word, though nothing is asked for it");
    assert_eq!(told(&server, &runs[1])[0]["used_tokens"], 3 * COST);
}
