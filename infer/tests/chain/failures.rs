//! Tests of every way in which a backend can fail, by class, and the resulting retry or failure.

use std::time::{Duration, Instant};

use infer::{BackendChain, FailureKind, InferError, InferenceRequest, REPLY_BYTES_MAX};
use scripted_model::{ScriptedServer, Step, chat_body, refusing_url};
use serde_json::json;

use crate::support::{
    KEY, alone, chain, configs, known, only_failure, request, server, structured, tls, until,
};

/// Returns unusable answers, each with its failure class.
fn failing_steps() -> Vec<(&'static str, Step, &'static str)> {
    let whole = chat_body("a car", "stop").to_string();
    let huge = format!("\"{}\"", "x".repeat(10 * 1024 * 1024));
    vec![
        ("a page of HTML with 502", Step::html(502), "http 5xx"),
        ("a page of HTML with 200", Step::html(200), "malformed"),
        ("an internal error", Step::json(500, &json!({"error": "x"})), "http 5xx"),
        ("a wrong key", Step::json(401, &json!({"error": "no"})), "http 4xx"),
        ("a wrong model", Step::json(404, &json!({"error": {"code": 404}})), "http 4xx"),
        (
            "a redirect",
            Step::reply(307, "text/plain", "").with_header("location", "/v2"),
            "http other",
        ),
        ("too many requests", Step::rate_limited(None), "rate limited"),
        ("too many, for long", Step::rate_limited(Some("3600")), "rate limited"),
        ("JSON that is cut", Step::reply(200, "application/json", &whole[..40]), "malformed"),
        ("another protocol", Step::json(200, &json!({"result": "a car"})), "malformed"),
        ("ten megabytes", Step::reply(200, "application/json", huge), "too large"),
        ("the end in mid-stream", Step::cut(whole.clone(), 40), "closed"),
        ("the end at once", Step::close(), "closed"),
        ("no HTTP", Step::raw("SSH-2.0-OpenSSH_9.2\r\n\r\n"), "malformed"),
        ("a filter", Step::chat_finished("", "content_filter"), "filtered"),
        ("half an answer", Step::chat_finished("a ca", "abort"), "malformed"),
    ]
}

#[tokio::test]
async fn each_failure_has_its_class_and_shows_no_key() {
    for (name, step, class) in failing_steps() {
        let (_server, chain) = alone(Vec::new(), step).await;
        let result = chain.infer(&request(), &()).await;
        let shown = format!("{result:?}");
        assert!(!shown.contains(KEY), "{name}: {shown}");
        if let Err(error) = &result {
            let said = error.to_string();
            assert!(!said.contains("127.0.0.1") && !said.contains(KEY), "{name}: {said}");
            assert!(said.starts_with("the backend a "), "{name}: {said}");
        }
        assert_eq!(only_failure(result).class(), class, "{name}");
    }
}

#[tokio::test]
async fn the_key_goes_out_in_its_header_and_nowhere_else() {
    let (server, chain) = alone(Vec::new(), Step::chat("a car")).await;
    let answer = chain.infer(&request(), &()).await.expect("an answer");
    assert_eq!((answer.text.as_str(), answer.cost.attempts), ("a car", 1));
    let seen = server.seen();
    let [question] = seen.as_slice() else {
        panic!("one question: {seen:?}");
    };
    assert_eq!(question.header("authorization"), Some(format!("Bearer {KEY}").as_str()));
    assert_eq!(question.path, "/v1/chat/completions");
    assert!(!String::from_utf8_lossy(&question.body).contains(KEY));
}

#[tokio::test]
async fn nobody_there_is_refused_at_once() {
    let url = refusing_url().await.expect("a free port");
    let started = Instant::now();
    let failure = only_failure(chain(&[&url]).infer(&request(), &()).await);
    assert_eq!(failure, FailureKind::Refused);
    assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
}

#[tokio::test]
async fn a_server_without_tls_is_no_https_backend() {
    let server = server(Step::chat("a")).await;
    let url = server.base_url().replace("http://", "https://");
    assert_eq!(only_failure(chain(&[&url]).infer(&request(), &()).await), FailureKind::Refused);
    assert_eq!(server.seen().len(), 0, "nothing is said in the clear");
}

#[tokio::test]
async fn a_backend_that_dawdles_ends_with_the_time() {
    let whole = chat_body("a car", "stop").to_string();
    for (name, step) in [
        ("hangs", Step::hang()),
        ("drips", Step::drip(whole, Duration::from_millis(50))),
        ("is late", Step::chat("a car").after(Duration::from_secs(60))),
    ] {
        let (server, chain) = alone(Vec::new(), step).await;
        let hasty = InferenceRequest { timeout: Some(Duration::from_millis(300)), ..request() };
        let failure = only_failure(chain.infer(&hasty, &()).await);
        assert_eq!(failure.class(), "timeout", "{name}");
        until("the question is given up", || server.in_flight() == 0).await;
    }
}

#[tokio::test]
async fn a_call_that_is_dropped_gives_its_question_up() {
    let (server, chain) = alone(Vec::new(), Step::hang()).await;
    let chain = std::sync::Arc::new(chain);
    let asking = tokio::spawn({
        let chain = chain.clone();
        async move { chain.infer(&request(), &()).await }
    });
    until("the question arrives", || server.in_flight() == 1).await;
    asking.abort();
    until("the question is given up", || server.in_flight() == 0).await;
}

#[tokio::test]
async fn a_connection_that_was_given_up_is_replaced_and_counted() {
    let server = ScriptedServer::start(|seen| match seen.number % 2 {
        0 => Step::chat("a car"),
        _ => Step::close(),
    });
    let server = server.await.expect("a server");
    let chain = chain(&[&server.base_url()]);
    let deadline = Instant::now() + crate::support::PATIENCE;
    chain.infer(&request(), &()).await.expect("an answer");
    // The client decides when the connection is idle again.
    let answer = loop {
        match chain.infer(&request(), &()).await {
            Ok(answer) if answer.cost.attempts > 1 => break answer,
            other => assert!(Instant::now() < deadline, "never reused: {other:?}"),
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    };
    assert_eq!((answer.text.as_str(), answer.cost.attempts), ("a car", 2));
}

#[tokio::test]
async fn a_question_that_ends_a_new_connection_is_not_asked_twice() {
    let server = server(Step::close()).await;
    // A backend with a configured upstream model requests no list first.
    let told = "model = \"qwen3-vl-8b\"\nupstream_model = \"x\"";
    let configs = configs(&[("a", "openai_compat", &server.base_url(), told)]);
    let chain = BackendChain::new(configs, tls(), known).expect("a chain");
    let failure = only_failure(chain.infer(&request(), &()).await);
    assert_eq!((failure, server.seen().len()), (FailureKind::Closed, 1));
}

#[tokio::test]
async fn every_call_ends_and_leaves_nothing_behind() {
    let mut servers = Vec::new();
    for shift in 0..3 {
        let mut steps = failing_steps();
        // A single answer with a long retry-after would end the test for its server.
        steps.retain(|(name, ..)| *name != "too many, for long");
        let server = ScriptedServer::start(move |seen| match (seen.number + shift) % 20 {
            at if at < steps.len() => steps[at].1.clone(),
            15 => Step::hang(),
            16 => Step::chat("late").after(Duration::from_millis(30)),
            _ => Step::chat("a car"),
        });
        servers.push(server.await.expect("a server"));
    }
    let urls: Vec<String> = servers.iter().map(ScriptedServer::base_url).collect();
    let urls: Vec<&str> = urls.iter().map(String::as_str).collect();
    let chain = std::sync::Arc::new(chain(&urls));
    let callers: Vec<_> = (0..16)
        .map(|_| {
            let chain = chain.clone();
            tokio::spawn(async move {
                let timeout = Some(Duration::from_millis(200));
                for _ in 0..20 {
                    let result = chain.infer(&InferenceRequest { timeout, ..request() }, &()).await;
                    let said = format!("{result:?}");
                    assert!(!said.contains(KEY), "{said}");
                }
            })
        })
        .collect();
    for caller in callers {
        caller.await.expect("no caller fails");
    }
    for server in &servers {
        until("every question is given up", || server.in_flight() == 0).await;
    }
}

#[tokio::test]
async fn a_reply_of_the_longest_length_is_read() {
    let body = chat_body(&"x".repeat(REPLY_BYTES_MAX - 500), "stop").to_string();
    assert!(body.len() <= REPLY_BYTES_MAX);
    let step = Step::reply(200, "application/json", body);
    let (_server, chain) = alone(Vec::new(), step).await;
    let answer = chain.infer(&request(), &()).await.expect("an answer");
    assert_eq!(answer.text.len(), REPLY_BYTES_MAX - 500);
}

#[tokio::test]
async fn a_rest_within_the_time_is_waited_for_and_kept() {
    let (server, chain) = alone(vec![Step::rate_limited(Some("1"))], Step::chat("a car")).await;
    let started = Instant::now();
    let answer = chain.infer(&request(), &()).await.expect("an answer");
    assert!(started.elapsed() >= Duration::from_secs(1), "{:?}", started.elapsed());
    assert_eq!((answer.cost.attempts, server.seen().len()), (2, 2));
}

#[tokio::test]
async fn a_longer_rest_is_told_at_once_and_for_whom_there_is_no_other() {
    let (limited, alone) = alone(vec![Step::rate_limited(Some("50"))], Step::chat("a car")).await;
    let other = server(Step::chat("a van")).await;
    let both = chain(&[&limited.base_url(), &other.base_url()]);
    assert_eq!(alone.retry_after("qwen3-vl-8b"), None);
    let error = alone.infer(&request(), &()).await.expect_err("it rests for longer");
    let rest = error.retry_after().expect("a rest");
    assert!(rest > Duration::from_secs(40) && rest <= Duration::from_secs(50), "{rest:?}");
    let known = alone.retry_after("qwen3-vl-8b").expect("a rest");
    assert!(known > Duration::from_secs(40) && known <= rest, "{known:?}");
    assert_eq!(alone.retry_after("another"), None, "nobody to wait for");
    assert_eq!(only_failure(alone.infer(&request(), &()).await).class(), "rate limited");
    assert_eq!(limited.seen().len(), 1, "it is not asked by others");
    both.infer(&request(), &()).await.expect("an answer");
    assert_eq!(both.retry_after("qwen3-vl-8b"), None, "there is another");
}

#[tokio::test]
async fn a_backend_that_keeps_failing_is_left_alone_and_comes_back() {
    let (server, chain) = alone(vec![Step::html(503); 5], Step::chat("a car")).await;
    for _ in 0..5 {
        assert_eq!(only_failure(chain.infer(&request(), &()).await).class(), "http 5xx");
    }
    assert_eq!(only_failure(chain.infer(&request(), &()).await).class(), "open");
    assert_eq!(server.seen().len(), 5, "it is left alone");
    let deadline = Instant::now() + crate::support::PATIENCE;
    loop {
        match chain.infer(&request(), &()).await {
            Ok(answer) => break assert_eq!(answer.text, "a car"),
            Err(error) => assert!(Instant::now() < deadline, "{error}"),
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(server.seen().len(), 6, "one trial");
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
        assert_eq!(
            (one.cost.attempts, one.cost.tokens.total),
            (attempts, tokens),
            "{}",
            one.provider
        );
    }
    let asked = [&first, &second].map(|server| server.seen().len());
    assert_eq!((failed.len(), asked), (2, [2, 1]));
}

#[tokio::test]
async fn the_short_patience_of_one_caller_shuts_no_backend() {
    let server = ScriptedServer::start(|seen| match seen.json()["max_tokens"].as_u64() {
        Some(1) => Step::hang(),
        _ => Step::chat("a car"),
    });
    let server = server.await.expect("a server");
    let chain = chain(&[&server.base_url()]);
    let timeout = Some(Duration::from_millis(40));
    let hasty = InferenceRequest { timeout, max_tokens: Some(1), ..request() };
    for _ in 0..5 {
        assert_eq!(only_failure(chain.infer(&hasty, &()).await).class(), "timeout");
    }
    let patient = chain.infer(&request(), &()).await;
    assert!(patient.is_ok(), "{patient:?}");
}
