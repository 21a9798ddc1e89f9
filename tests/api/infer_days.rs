//! Day budget of a principal, and the events about it for its owner.

use std::time::Duration;

use scripted_model::Step;
use serde_json::{Value, json};

use crate::{
    api::infer_limits::{is_unavailable, question},
    support::{BOB, Reply, Server, Setup, model::Model},
};

/// Tokens that each question costs, whatever its estimate.
const COST: u64 = 17;

fn asking(max_tokens: u64) -> Value {
    let mut body = question("p");
    body["max_tokens"] = json!(max_tokens);
    body
}

fn refused(reply: &Reply) {
    assert!(is_unavailable(reply), "{} {}", reply.status, reply.text);
    let seconds: u64 = reply.header("retry-after").parse().expect("seconds");
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
    let ask = |server: &Server, max_tokens| {
        let mut body = asking(max_tokens);
        body["run_id"] = json!(run);
        server.post("/v1/infer", &body)
    };
    let never = ask(&server, 60);
    assert_eq!((never.status, never.fields()), (422, vec!["max_tokens".to_owned()]));
    assert_eq!(ask(&server, 10).status, 200);
    assert_eq!(ask(&server, 30).status, 200);
    assert_eq!(told(&server, &run).len(), 0, "{} of 60 are spent", 2 * COST);
    let third = ask(&server, 25);
    assert_eq!(third.status, 200, "26 are left: {}", third.text);
    let low = told(&server, &run);
    let payload = &low[0];
    let shown = ["principal_key", "used_tokens", "limit_tokens"].map(|name| payload[name].clone());
    assert_eq!(shown, [json!("alice"), json!(2 * COST), json!(60)], "{payload}");
    assert_eq!(payload["request_id"], third.header("x-request-id"));
    let kinds = server.kinds(&run);
    assert_eq!(kinds[kinds.len() - 2..], ["token_budget_low", "inference_completed"], "before");
    refused(&ask(&server, 9));
    assert_eq!(ask(&server, 8).status, 200, "9 are left, and an estimate is all that is known");
    refused(&ask(&server, 1));
    let batch = server.post("/v1/infer/batch", &json!({"requests": [asking(1)]})).json();
    assert_eq!(batch["results"][0]["error"]["code"], "unavailable", "{batch}");
    let limits = server.get("/v1/limits").json()["limits"]["principal_day_tokens"].clone();
    assert_eq!((&limits["max"], &limits["used"]), (&json!(60), &json!(4 * COST)));
    assert_eq!(server.metric("service_inference_token_budgets_low_total"), 1.0);
    let of = r#"service_inference_refusals_total{reason="day_spent"}"#;
    assert_eq!(server.metric(of), 3.0);
    assert_eq!(server.get(&format!("/v1/runs/{run}/state")).json()["state"], "processing");
    let bobs = server.call("POST", "/v1/infer").key(Some(BOB)).json(&question("p")).send();
    assert_eq!(bobs.status, 200, "a budget of his own: {}", bobs.text);
    server.terminate();
    assert!(server.wait(Duration::from_secs(30)).success());
    server = setup.start();
    refused(&ask(&server, 1));
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
    for _ in 0..3 {
        assert_eq!(server.post("/v1/infer", &asking(4)).status, 200);
    }
    assert_eq!(server.metric("service_inference_token_budgets_low_total"), 1.0);
    assert_eq!(told(&server, &ended).len(), 0, "it takes no events");
    let runs = [server.create_run(), server.create_run()];
    assert_eq!(server.post("/v1/infer", &asking(4)).status, 200);
    let found = runs.each_ref().map(|run| told(&server, run).len());
    assert_eq!(found, [0, 1], "the youngest takes the word, though nothing is asked for it");
    assert_eq!(told(&server, &runs[1])[0]["used_tokens"], 3 * COST);
}

#[test]
fn a_question_without_a_bound_is_given_one_by_a_budget() {
    let model = Model::start(|_| Step::chat("hello"));
    let setup = model.behind(Setup::temporary()).var("SERVICE_INFERENCE_TOKENS_PER_DAY", "10000");
    let body = json!({"model": "qwen3-vl-4b", "prompt": "p"});
    setup.start().post("/v1/infer", &body).assert_ok();
    assert_eq!(model.server.seen()[0].json()["max_tokens"], 4096);
}
