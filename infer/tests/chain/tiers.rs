//! Tests of one and two passes.

use std::time::Duration;

use infer::{BackendChain, InferenceRequest, Pass, TwoPassAnswer, TwoPassRequest};
use scripted_model::{ScriptedServer, Step};
use serde_json::json;

use crate::support::{alone, chain, field, structured};

/// Starts a backend whose small model is unsure and whose large model answers `large`.
async fn tiered(large: Step) -> (ScriptedServer, BackendChain) {
    let server = ScriptedServer::start(move |seen| match seen.json()["model"].as_str() {
        Some("qwen3-vl-8b") => Step::chat("{\"label\": \"small\", \"confidence\": 0.4}"),
        _ => large.clone(),
    });
    let server = server.await.expect("a server");
    let chain = chain(&[&server.base_url()]);
    (server, chain)
}

fn question(threshold: f64, second: Option<&str>) -> TwoPassRequest {
    TwoPassRequest { first: structured(), second_model: second.map(str::to_owned), threshold }
}

async fn described(chain: &BackendChain, tiered: &TwoPassRequest) -> TwoPassAnswer {
    chain.describe(tiered, &()).await.expect("a description")
}

#[tokio::test]
async fn an_unsure_first_pass_is_followed_by_a_second() {
    let (server, chain) = tiered(Step::chat("{\"label\": \"large\", \"confidence\": 0.3}")).await;
    let both = described(&chain, &question(0.7, Some("gemma-3-27b"))).await;
    assert_eq!((both.tier, field(&both.answer, "label")), (Pass::Second, json!("large")));
    assert_eq!((both.answer.model.as_str(), both.answer.cost.tokens.total), ("gemma-3-27b", 34));
    assert_eq!((both.answer.cost.attempts, server.seen().len()), (2, 2));
}

#[tokio::test]
async fn one_pass_is_enough_where_it_is_sure_or_alone() {
    let (server, chain) = tiered(Step::html(500)).await;
    for (name, question) in
        [("sure", question(0.4, Some("gemma-3-27b"))), ("no second model", question(0.7, None))]
    {
        let one = described(&chain, &question).await;
        assert_eq!((one.tier, &one.second_failed), (Pass::First, &None), "{name}");
        assert_eq!((one.answer.cost.attempts, one.answer.cost.tokens.total), (1, 17), "{name}");
    }
    assert_eq!(server.seen().len(), 2);
}

#[tokio::test]
async fn an_answer_without_a_confidence_is_taken_as_it_is() {
    let (server, chain) = alone(Vec::new(), Step::chat("{\"label\": \"small\"}")).await;
    let one = described(&chain, &question(1.0, Some("gemma-3-27b"))).await;
    assert_eq!((one.tier, server.seen().len()), (Pass::First, 1));
}

#[tokio::test]
async fn a_second_pass_that_fails_leaves_the_first_answer() {
    for (name, large, total, attempts) in [
        ("an error", Step::html(500).after(Duration::from_millis(30)), 17, 2),
        ("a violation", Step::chat("{\"label\": 1}").after(Duration::from_millis(15)), 51, 3),
    ] {
        let (_server, chain) = tiered(large).await;
        let kept = described(&chain, &question(0.7, Some("gemma-3-27b"))).await;
        assert_eq!(
            (kept.tier, field(&kept.answer, "label")),
            (Pass::First, json!("small")),
            "{name}"
        );
        assert!(kept.second_failed.is_some(), "{name}");
        assert_eq!(kept.answer.cost.tokens.total, total, "{name}: what failed was spent too");
        assert_eq!(kept.answer.cost.attempts, attempts, "{name}");
        assert!(kept.answer.cost.latency >= Duration::from_millis(30), "{name}: and took its time");
    }
}

#[tokio::test]
async fn a_correction_of_the_first_pass_is_the_only_one() {
    let server = ScriptedServer::start(|seen| {
        let told = seen.json()["messages"].as_array().map_or(0, Vec::len) > 1;
        match seen.json()["model"].as_str() {
            Some("qwen3-vl-8b") if told => Step::chat("{\"label\": \"a\", \"confidence\": 0.1}"),
            _ => Step::chat("{\"label\": 7}"),
        }
    });
    let server = server.await.expect("a server");
    let chain = chain(&[&server.base_url()]);
    let kept = described(&chain, &question(0.7, Some("gemma-3-27b"))).await;
    assert_eq!((kept.tier, kept.answer.cost.attempts, server.seen().len()), (Pass::First, 3, 3));
    assert!(kept.second_failed.is_some());
}

#[tokio::test]
async fn a_first_pass_that_fell_back_is_told_of_with_the_second() {
    let by_model = |small: Step, large: Step| {
        ScriptedServer::start(move |seen| match seen.json()["model"].as_str() {
            Some("qwen3-vl-8b") => small.clone(),
            _ => large.clone(),
        })
    };
    let unsure = Step::chat("{\"label\": \"small\", \"confidence\": 0.4}");
    let sure = Step::chat("{\"label\": \"large\", \"confidence\": 0.9}");
    let a = by_model(Step::html(500), sure.clone()).await.expect("a server");
    let b = by_model(unsure, sure).await.expect("a server");
    let chain = chain(&[&a.base_url(), &b.base_url()]);
    let both = described(&chain, &question(0.7, Some("gemma-3-27b"))).await;
    assert_eq!((&*both.answer.provider, both.tier), ("a", Pass::Second));
    assert!(both.answer.fallback_used, "the first pass was not the first backend's");
}

#[tokio::test]
async fn a_first_pass_that_fails_is_the_failure() {
    let (server, chain) = alone(Vec::new(), Step::html(500)).await;
    let unasked = InferenceRequest { model: "qwen3-vl-8b".to_owned(), ..structured() };
    let tiered = TwoPassRequest { first: unasked, ..question(0.7, Some("gemma-3-27b")) };
    let error = chain.describe(&tiered, &()).await.expect_err("a failure");
    assert_eq!((error.cost().attempts, error.failed().len()), (1, 1), "{error}");
    assert_eq!(server.seen().len(), 1);
}
