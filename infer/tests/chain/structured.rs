//! Tests of answers validated against a schema, over the wire.

use infer::{FailureKind, InferError};
use scripted_model::Step;
use serde_json::json;

use crate::support::{alone, chain, field, server, structured};

#[tokio::test]
async fn an_answer_that_matches_is_parsed() {
    let step = Step::chat("{\"label\": \"car\", \"confidence\": 0.9}");
    let (server, chain) = alone(Vec::new(), step).await;
    let answer = chain.infer(&structured(), &()).await.expect("an answer");
    assert_eq!((field(&answer, "label"), answer.attempts), (json!("car"), 1));
    assert_eq!(answer.finish.as_str(), "stop");
    assert_eq!(server.seen()[0].json()["response_format"]["type"], "json_schema");
}

#[tokio::test]
async fn a_violation_is_told_to_the_model_once() {
    let good = Step::chat("{\"label\": \"car\"}");
    let (server, chain) = alone(vec![Step::chat("{\"label\": 7}")], good).await;
    let answer = chain.infer(&structured(), &()).await.expect("an answer");
    assert_eq!((field(&answer, "label"), answer.attempts), (json!("car"), 2));
    assert_eq!(answer.tokens.total, 34, "tokens of both attempts");
    let messages = server.seen()[1].json()["messages"].clone();
    assert_eq!(messages.as_array().map(Vec::len), Some(3));
    assert!(messages[2]["content"].as_str().unwrap_or_default().contains("/label"), "{messages}");
}

#[tokio::test]
async fn one_correction_is_all_that_a_question_gets() {
    let wrong = || server(Step::chat("{\"label\": 7}"));
    let (first, second) = (wrong().await, wrong().await);
    let result = chain(&[&first.base_url(), &second.base_url()]).infer(&structured(), &()).await;
    let Err(InferError::Failed(failed)) = result else { panic!("a failure: {result:?}") };
    for (one, (attempts, tokens)) in failed.iter().zip([(2, 34), (1, 17)]) {
        let FailureKind::Schema { problem } = &one.failure else { panic!("{one:?}") };
        assert!(problem.contains("/label"), "{problem}");
        assert_eq!((one.attempts, one.tokens.total), (attempts, tokens), "{}", one.provider);
    }
    let asked = [&first, &second].map(|server| server.seen().len());
    assert_eq!((failed.len(), asked), (2, [2, 1]));
}
