//! Tracing span of a model request, by OpenTelemetry's semantic conventions for generative AI.
//!
//! Holds no text of a prompt or an answer.

use infer::{Completion, InferError, InferenceRequest, TokenUsage};
use opentelemetry::{Array, StringValue, Value};
use tracing::{Span, field::Empty};
use tracing_opentelemetry::OpenTelemetrySpanExt;

use super::{Requester, error::class};
use crate::base::telemetry::SPANS;

pub fn begin(asker: &Requester, request: &InferenceRequest) -> Span {
    tracing::info_span!(
        target: SPANS,
        "inference",
        otel.name = format!("chat {}", request.model),
        otel.kind = "client",
        otel.status_code = Empty,
        "error.type" = Empty,
        gen_ai.operation.name = "chat",
        "gen_ai.output.type" = if request.schema.is_some() { "json" } else { "text" },
        gen_ai.provider.name = Empty,
        gen_ai.request.model = request.model,
        gen_ai.request.max_tokens = request.max_tokens,
        gen_ai.request.temperature = request.temperature,
        gen_ai.response.model = Empty,
        gen_ai.usage.input_tokens = Empty,
        gen_ai.usage.output_tokens = Empty,
        images = request.images.len(),
        principal = asker.principal.as_str(),
        request_id = %asker.request_id,
        run = asker.run.as_ref().map(|run| run.id().to_string()),
    )
}

pub fn end(span: &Span, answer: Result<&Completion, &InferError>) {
    match answer {
        Ok(answer) => {
            span.record("gen_ai.provider.name", &*answer.provider);
            span.record("gen_ai.response.model", answer.model.as_str());
            // The conventions require a list, which a `tracing` field cannot hold.
            let reasons = vec![StringValue::from(answer.finish.as_str())];
            let reasons = Value::Array(Array::String(reasons));
            span.set_attribute("gen_ai.response.finish_reasons", reasons);
            record_tokens(span, answer.cost.tokens);
        }
        Err(error) => {
            span.record("otel.status_code", "ERROR");
            span.record("error.type", class(error));
            if let Some(last) = error.failed().last() {
                span.record("gen_ai.provider.name", &*last.provider);
            }
            record_tokens(span, error.cost().tokens);
        }
    }
}

fn record_tokens(span: &Span, tokens: TokenUsage) {
    span.record("gen_ai.usage.input_tokens", tokens.prompt);
    span.record("gen_ai.usage.output_tokens", tokens.completion.saturating_add(tokens.thinking));
}
