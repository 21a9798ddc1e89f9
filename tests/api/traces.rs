//! Traces: what a real OTLP/gRPC collector receives, and what happens without one.

use std::{
    collections::HashMap,
    convert::Infallible,
    net::{SocketAddr, TcpListener},
    sync::{Arc, Mutex},
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body::Body;
use http_body_util::{BodyExt, Full};
use hyper::{body::Incoming, server::conn::http2, service::service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo};
use opentelemetry_proto::tonic::{
    collector::trace::v1::ExportTraceServiceRequest,
    common::v1::{AnyValue, KeyValue, any_value::Value as Any},
    trace::v1::{Span, status::StatusCode},
};
use prost::Message;
use scripted_model::Step;
use serde_json::json;
use tokio::runtime::Runtime;

use crate::{
    api::reason::finding,
    support::{Server, Setup, hex, model::Model, wait_until},
};

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const CALLER: &str = "b7ad6b7169203331";

/// Keeps every span it is sent.
#[derive(Clone, Default)]
struct Collector {
    spans: Arc<Mutex<Vec<Span>>>,
    resources: Arc<Mutex<Vec<KeyValue>>>,
}

impl Collector {
    /// Takes an `Export` call: one message with its five bytes of length, as gRPC frames it.
    fn take(&self, body: Bytes) {
        let request = ExportTraceServiceRequest::decode(body.slice(5..)).expect("a message");
        for sent in request.resource_spans {
            let resource = sent.resource.unwrap_or_default();
            self.resources.lock().expect("no panic").extend(resource.attributes);
            let spans = sent.scope_spans.into_iter().flat_map(|scope| scope.spans);
            self.spans.lock().expect("no panic").extend(spans);
        }
    }

    async fn answer(
        self,
        call: Request<Incoming>,
    ) -> Result<Response<impl Body<Data = Bytes, Error = Infallible>>, Infallible> {
        const EXPORT: &str = "/opentelemetry.proto.collector.trace.v1.TraceService/Export";
        assert_eq!(call.uri().path(), EXPORT);
        self.take(call.into_body().collect().await.expect("a whole body").to_bytes());
        let status = HeaderMap::from_iter([("grpc-status".parse().expect("a name"), 0.into())]);
        let empty_message = Full::new(Bytes::from_static(&[0; 5]));
        let body = empty_message.with_trailers(async { Some(Ok(status)) });
        let answer = Response::builder().header("content-type", "application/grpc");
        Ok(answer.body(Box::pin(body)).expect("an answer"))
    }
}

/// A collector that listens as long as the runtime lives.
fn collector() -> (Collector, SocketAddr, Runtime) {
    let runtime = Runtime::new().expect("a runtime");
    let collector = Collector::default();
    let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).expect("a port");
    let addr = listener.local_addr().expect("bound");
    let taking = collector.clone();
    runtime.spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let taking = taking.clone();
            let service = service_fn(move |call| taking.clone().answer(call));
            let connection = http2::Builder::new(TokioExecutor::new())
                .serve_connection(TokioIo::new(stream), service);
            tokio::spawn(connection);
        }
    });
    (collector, addr, runtime)
}

fn attribute(span: &Span, name: &str) -> String {
    let found = span.attributes.iter().find(|attribute| attribute.key == name);
    match found.and_then(|attribute| attribute.value.clone()) {
        Some(AnyValue { value: Some(Any::StringValue(text)) }) => text,
        Some(AnyValue { value: Some(Any::IntValue(number)) }) => number.to_string(),
        Some(AnyValue { value: Some(Any::ArrayValue(list)) }) => format!("{:?}", list.values),
        _ => String::new(),
    }
}

fn assert_attributes(span: &Span, expected: &[(&str, &str)]) {
    for (name, value) in expected {
        assert_eq!(attribute(span, name), *value, "{}: {name}", span.name);
    }
}

#[test]
fn a_collector_gets_the_whole_path_of_an_ingest_and_each_question_to_a_model() {
    let (collector, addr, _runtime) = collector();
    let models = models();
    let setup = models.behind(Setup::temporary().clips());
    let mut server = setup.var("SERVICE_TRACES_ENDPOINT", &format!("http://{addr}")).start();
    let run = server.create_run();
    let call = server.call("POST", &format!("/v1/runs/{run}/ingest"));
    let call = call.header("traceparent", &format!("00-{TRACE}-{CALLER}-01"));
    let ingest = json!({ "source_uri": "talk.mp4", "max_frames": 30 });
    let ingested = call.json(&ingest).send().assert_ok();
    let unsampled = format!("00-{}-{CALLER}-00", "1".repeat(32));
    server.call("GET", "/v1/runs").header("traceparent", &unsampled).send().assert_ok();
    let reasoned = ask_models(&server);
    server.terminate();
    assert!(server.wait(Duration::from_secs(30)).success());
    let spans = collector.spans.lock().expect("no panic").clone();
    check_questions(&spans, &reasoned);
    let ours: Vec<&Span> = spans.iter().filter(|span| hex(&span.trace_id) == TRACE).collect();
    let by_name: HashMap<&str, &Span> = ours.iter().map(|span| (&*span.name, *span)).collect();
    let request = by_name["POST /v1/runs/{id}/ingest"];
    assert_eq!(hex(&request.parent_span_id), CALLER, "the caller's trace is continued");
    let expected = [
        ("http.request.method", "POST"),
        ("http.route", "/v1/runs/{id}/ingest"),
        ("http.response.status_code", "200"),
        ("principal", "alice"),
        ("request_id", ingested.header("x-request-id")),
    ];
    assert_attributes(request, &expected);
    for (child, parent) in [("ingest", request.name.as_str()), ("worker", "ingest")] {
        assert_eq!(by_name[child].parent_span_id, by_name[parent].span_id, "{child}");
    }
    assert_eq!(by_name["decode"].parent_span_id, by_name["worker"].span_id);
    assert_eq!(by_name["append"].parent_span_id, by_name["ingest"].span_id);
    let frames = ingested.json()["decoded_frames"].to_string();
    assert_eq!(attribute(by_name["decode"], "frames"), frames);
    assert_eq!(attribute(by_name["ingest"], "run"), run);
    for span in &ours {
        assert!(span.start_time_unix_nano <= span.end_time_unix_nano, "{}", span.name);
    }
    assert!(spans.iter().any(|span| span.name == "POST /v1/runs"), "the other request's trace");
    assert!(!spans.iter().any(|span| span.name == "GET /v1/runs"), "the caller did not sample it");
    let resources = collector.resources.lock().expect("no panic");
    assert!(resources.iter().any(|attribute| attribute.key == "service.name"));
}

/// Models that answer, refuse, are unsure, and are sure.
fn models() -> Model {
    Model::start(|seen| match seen.json()["model"].as_str() {
        Some("qwen3-vl-4b") => Step::chat("hello"),
        Some("gemma-3-4b") => Step::chat_finished("", "content_filter"),
        Some("qwen3-vl-32b") => Step::chat(&finding("e", 0.1)),
        _ => Step::chat(&finding("e", 0.9)),
    })
}

/// Has every one of the models asked; returns the run that reasoned.
fn ask_models(server: &Server) -> String {
    for (model, status) in [("qwen3-vl-4b", 200), ("gemma-3-4b", 500)] {
        let body = json!({"model": model, "prompt": "private words", "max_tokens": 9});
        assert_eq!(server.post("/v1/infer", &body).status, status, "{model}");
    }
    let run = server.create_run();
    let body = json!({
        "source_uri": "talk.mp4", "model": "qwen3-vl-32b", "max_frames": 60, "chunk_size": 20,
        "semantic_prompt": "private words", "second_pass_model": "qwen3-vl-8b",
    });
    server.post_run(&run, "reason", &body).assert_ok();
    run
}

/// Each question is a span in the words of the conventions.
fn check_questions(spans: &[Span], run: &str) {
    let named = |name: &str| spans.iter().filter(|span| span.name == name).collect::<Vec<_>>();
    let answered = named("chat qwen3-vl-4b")[0];
    let expected = [
        ("gen_ai.operation.name", "chat"),
        ("gen_ai.provider.name", "vllm"),
        ("gen_ai.request.model", "qwen3-vl-4b"),
        ("gen_ai.request.max_tokens", "9"),
        ("gen_ai.usage.input_tokens", "12"),
        ("gen_ai.usage.output_tokens", "5"),
        ("principal", "alice"),
    ];
    assert_attributes(answered, &expected);
    let reasons = attribute(answered, "gen_ai.response.finish_reasons");
    assert!(reasons.starts_with('[') && reasons.contains("\"stop\""), "a list: {reasons}");
    let asked = &answered.parent_span_id;
    assert!(named("POST /v1/infer").iter().any(|span| span.span_id == *asked));
    assert!(named("admission").iter().any(|span| span.parent_span_id == *asked));

    let failed = named("chat gemma-3-4b")[0];
    let expected = [
        ("error.type", "filtered"),
        ("gen_ai.provider.name", "vllm"),
        ("gen_ai.usage.input_tokens", "12"),
        ("gen_ai.usage.output_tokens", "5"),
        ("gen_ai.response.model", ""),
    ];
    assert_attributes(failed, &expected);
    assert_eq!(failed.status.clone().expect("a status").code(), StatusCode::Error);

    let chunks = named("chat qwen3-vl-32b");
    assert_eq!(chunks.len(), 3);
    for chunk in chunks {
        let expected = [
            ("gen_ai.request.model", "qwen3-vl-32b"),
            ("gen_ai.response.model", "qwen3-vl-8b"),
            ("gen_ai.usage.input_tokens", "24"),
            ("gen_ai.output.type", "json"),
            ("run", run),
        ];
        assert_attributes(chunk, &expected);
    }
    assert!(!format!("{spans:?}").contains("private words"), "no prompt leaves in a span");
}

#[test]
fn a_collector_that_is_gone_or_hangs_delays_nothing() {
    // Its connections wait in the listen queue, and nobody ever answers.
    let hanging = TcpListener::bind("127.0.0.1:0").expect("a port");
    let hanging = (hanging.local_addr().expect("bound"), Some(hanging));
    let gone = TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("bound");
    for (addr, _listener) in [hanging, (gone, None)] {
        let endpoint = format!("http://{addr}");
        let mut server = Setup::temporary().var("SERVICE_TRACES_ENDPOINT", &endpoint).start();
        for _ in 0..200 {
            assert_eq!(server.get("/v1/runs").status, 200);
        }
        let dropped = r#"service_trace_spans_total{outcome="dropped"}"#;
        wait_until("the loss is counted", || server.metric(dropped) >= 200.0);
        server.terminate();
        assert!(server.wait(Duration::from_secs(20)).success(), "the end waits for no collector");
    }
}
