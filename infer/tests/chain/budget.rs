//! Tests of the budget: charges per request, and requests not sent for lack of budget.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use infer::{FailureKind, InferError, InferenceRequest, Pass, TokenBudget, TwoPassRequest};
use scripted_model::{Step, chat_body};
use serde_json::json;

use crate::support::{chain, request, server, structured};

/// Budget for a number of requests; records the amounts reserved and charged.
struct Requests {
    left: Mutex<usize>,
    reserved: Mutex<Vec<u64>>,
    spent: Mutex<Vec<u64>>,
}

impl Requests {
    fn new(count: usize) -> Requests {
        Requests { left: Mutex::new(count), reserved: Mutex::default(), spent: Mutex::default() }
    }

    fn reserved(&self) -> Vec<u64> {
        self.reserved.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn spent(&self) -> Vec<u64> {
        self.spent.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl TokenBudget for Requests {
    fn principal(&self) -> Arc<str> {
        "alice".into()
    }

    fn reserve(&self, tokens: u64) -> bool {
        let mut left = self.left.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(less) = left.checked_sub(1) else { return false };
        *left = less;
        self.reserved.lock().unwrap_or_else(PoisonError::into_inner).push(tokens);
        true
    }

    fn commit(&self, tokens: u64) {
        self.spent.lock().unwrap_or_else(PoisonError::into_inner).push(tokens);
    }
}

#[tokio::test]
async fn a_request_costs_what_was_counted_or_else_what_was_estimated() {
    let estimate = request().tokens_estimate();
    let mut uncounted = chat_body("a car", "stop");
    uncounted.as_object_mut().expect("an object").remove("usage");
    for (name, step, cost) in [
        ("counted", Step::chat("a car"), 17),
        ("not counted", Step::json(200, &uncounted), estimate),
        ("empty and counted", Step::chat(""), 17),
        ("no protocol", Step::json(200, &json!({})), estimate),
        ("given up", Step::hang(), estimate),
        ("broken off", Step::cut(chat_body("a car", "stop").to_string(), 40), estimate),
        ("an error", Step::html(503), 0),
        ("too many", Step::rate_limited(None), 0),
    ] {
        let (server, purse) = (server(step).await, Requests::new(1));
        let asked = InferenceRequest { timeout: Some(Duration::from_millis(300)), ..request() };
        // Other tests check the answer itself.
        chain(&[&server.base_url()]).infer(&asked, &purse).await.ok();
        assert_eq!((purse.reserved(), purse.spent()), (vec![estimate], vec![cost]), "{name}");
    }
}

/// Implausible counts are ignored, and missing counts are estimated.
#[tokio::test]
async fn counts_that_cannot_be_are_not_believed() {
    let asked = InferenceRequest { max_tokens: Some(50), ..request() };
    let all = asked.tokens_estimate();
    let prompt = all - 50;
    for (name, usage, cost) in [
        ("the prompt is not counted", json!({"completion_tokens": 5}), prompt + 5),
        ("a cached prompt", json!({"prompt_tokens": 0, "completion_tokens": 5}), prompt + 5),
        ("a vast prompt", json!({"prompt_tokens": 10_000_000, "completion_tokens": 5}), prompt + 5),
        ("a vast answer", json!({"prompt_tokens": 9, "completion_tokens": 10_000_000}), 9),
        (
            "a vast sum",
            json!({"prompt_tokens": 9, "completion_tokens": 5, "total_tokens": 1_000_000}),
            14,
        ),
        ("the sum alone", json!({"total_tokens": 33}), 33),
        ("nothing that can be", json!({"prompt_tokens": u64::MAX, "completion_tokens": -1}), all),
    ] {
        let mut body = chat_body("a car", "stop");
        body["usage"] = usage;
        let (server, purse) = (server(Step::json(200, &body)).await, Requests::new(1));
        let answer = chain(&[&server.base_url()]).infer(&asked, &purse).await.expect("an answer");
        assert_eq!(purse.spent(), vec![cost], "{name}");
        assert!(answer.cost.tokens.total <= 33, "{name}: {:?}", answer.cost.tokens);
    }
}

#[tokio::test]
async fn a_retry_is_reserved_for_by_what_it_asks_for_and_given_up_where_that_is_not_there() {
    let cut = Step::chat_finished("{\"label\": \"c", "length");
    let asked = InferenceRequest { max_tokens: Some(10), ..structured() };
    let estimate = asked.tokens_estimate();
    for (requests, reserved) in [(1, vec![estimate]), (9, vec![estimate, estimate + 266])] {
        let (server, purse) = (server(cut.clone()).await, Requests::new(requests));
        let result = chain(&[&server.base_url()]).infer(&asked, &purse).await;
        let Err(InferError::Failed(failed)) = result else { panic!("a failure: {result:?}") };
        assert_eq!(failed[0].failure, FailureKind::Truncated, "{requests}");
        assert_eq!(purse.reserved(), reserved, "{requests}");
        assert_eq!(purse.spent(), vec![17; reserved.len()], "{requests}");
        assert_eq!(server.seen().len(), reserved.len(), "{requests}");
    }
}

#[tokio::test]
async fn nobody_stands_in_without_the_tokens_for_it() {
    let (bad, good) = (server(Step::html(500)).await, server(Step::chat("a car")).await);
    let chain = chain(&[&bad.base_url(), &good.base_url()]);
    let Err(InferError::Failed(failed)) = chain.infer(&request(), &Requests::new(1)).await else {
        panic!("the first fails");
    };
    assert_eq!((failed.len(), good.seen().len()), (1, 0));
    let none = chain.infer(&request(), &Requests::new(0)).await;
    assert_eq!((none, bad.seen().len()), (Err(InferError::NoBudget), 1));
    let answer = chain.infer(&request(), &Requests::new(2)).await.expect("an answer");
    assert_eq!(&*answer.provider, "b");
}

#[tokio::test]
async fn a_second_pass_without_the_tokens_for_it_leaves_the_first_answer() {
    let unsure = server(Step::chat("{\"label\": \"car\", \"confidence\": 0.1}")).await;
    let second_model = Some("gemma-3-27b".to_owned());
    let tiered = TwoPassRequest { first: structured(), second_model, threshold: 0.7 };
    let purse = Requests::new(1);
    let described = chain(&[&unsure.base_url()]).describe(&tiered, &purse).await.expect("one");
    assert_eq!(
        (described.tier, described.second_failed),
        (Pass::First, Some(InferError::NoBudget))
    );
    assert_eq!((described.answer.cost.attempts, unsure.seen().len()), (1, 1));
}
