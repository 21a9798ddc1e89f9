//! Tests of answers validated against a schema, over the wire.

use infer::{FailureKind, InferError, InferenceRequest};
use scripted_model::{ScriptedServer, Step};
use serde_json::json;

use crate::support::{alone, chain, field, only_failure, request, server, structured};

#[tokio::test]
async fn an_answer_that_matches_is_parsed() {
    let step = Step::chat("{\"label\": \"car\", \"confidence\": 0.9}");
    let (server, chain) = alone(Vec::new(), step).await;
    let answer = chain.infer(&structured(), &()).await.expect("an answer");
    assert_eq!((field(&answer, "label"), answer.attempts), (json!("car"), 1));
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
async fn a_violation_after_that_is_never_a_success() {
    let (server, chain) = alone(Vec::new(), Step::chat("{\"label\": 7}")).await;
    let result = chain.infer(&structured(), &()).await;
    let spent = result.as_ref().err().map(InferError::tokens).unwrap_or_default();
    assert_eq!((server.seen().len(), spent.total), (2, 34));
    let failure = only_failure(result);
    assert!(
        matches!(&failure, FailureKind::Schema { problem } if problem.contains("/label")),
        "{failure:?}"
    );
}

#[tokio::test]
async fn one_correction_is_all_that_a_question_gets() {
    let wrong = || server(Step::chat("{\"label\": 7}"));
    let (first, second) = (wrong().await, wrong().await);
    let result = chain(&[&first.base_url(), &second.base_url()]).infer(&structured(), &()).await;
    let Err(InferError::Failed(failed)) = result else { panic!("a failure: {result:?}") };
    let attempts: Vec<_> = failed.iter().map(|one| (one.failure.class(), one.attempts)).collect();
    assert_eq!(attempts, [("schema", 2), ("schema", 1)]);
}

#[tokio::test]
async fn an_answer_without_room_is_asked_for_with_more() {
    let cut = Step::chat_finished("{\"label\": \"c", "length");
    let good = Step::chat("{\"label\": \"car\"}");
    let (server, chain) = alone(vec![cut.clone()], good).await;
    let request = InferenceRequest { max_tokens: Some(10), ..structured() };
    let answer = chain.infer(&request, &()).await.expect("an answer");
    assert_eq!((field(&answer, "label"), answer.attempts), (json!("car"), 2));
    let rooms: Vec<_> =
        server.seen().iter().map(|seen| seen.json()["max_tokens"].clone()).collect();
    assert_eq!(rooms, [json!(10), json!(276)]);
    let (never, chain) = alone(Vec::new(), cut).await;
    let failure = only_failure(chain.infer(&request, &()).await);
    assert_eq!((failure, never.seen().len()), (FailureKind::Truncated, 2));
}

#[tokio::test]
async fn without_a_schema_an_early_end_is_an_answer() {
    let (_server, chain) = alone(Vec::new(), Step::chat_finished("a red c", "length")).await;
    let answer = chain.infer(&request(), &()).await.expect("an answer");
    assert_eq!((answer.text.as_str(), answer.finish.as_str()), ("a red c", "length"));
    assert_eq!(answer.json, None);
}

#[tokio::test]
async fn a_server_without_schemas_is_asked_in_the_forms_it_takes() {
    let server = ScriptedServer::start(|seen| {
        let format = seen.json()["response_format"]["type"].clone();
        if format.is_null() {
            Step::chat("{\"label\": \"car\"}")
        } else {
            let said = format!("response_format {format} is not supported");
            Step::json(400, &json!({"error": {"message": said}}))
        }
    });
    let server = server.await.expect("a server");
    let answer = chain(&[&server.base_url()]).infer(&structured(), &()).await.expect("an answer");
    assert_eq!((field(&answer, "label"), answer.attempts), (json!("car"), 3));
}
