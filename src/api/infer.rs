//! Direct inference: one request to a model, or a batch of them.

mod batch;
mod prepare;
mod request;

use std::time::Instant;

use infer::{
    BackendError, Completion, FailureKind, FinishReason, RequestCost,
    scheduler::{AdmissionError, LimitKind, Priority},
};
use timeline::{Event, InferenceCompleted, Pass};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::prelude::*;
use crate::{
    base::{clock::millis, json::FieldError, retry_while_full::retry_while_full},
    record::{
        inference::{InferenceError, Requester, WaitBudget},
        reason::{ChunkAttempt, RetryPolicy},
    },
    runs::registry::RunError,
};
use prepare::PreparedInference;
use request::InferRequest;

pub use batch::{__path_infer_batch, MAX_PARALLEL_DEFAULT, MaxParallel, REQUESTS, infer_batch};
pub use request::{IMAGES, MaxTokens, PromptText, TEMPERATURE, TimeoutMs};

/// Answer of a model.
#[derive(Serialize, ToSchema)]
pub struct InferResult {
    request_id: schema_types::RequestId,
    /// Run that records the answer; null without a run, or if the run ended before the answer.
    #[schema(value_type = Option<schema_types::RunId>, required = true)]
    run_id: Option<String>,
    /// Name of the backend that answered.
    provider: String,
    model: String,
    /// True if a backend other than the first answered.
    fallback_used: bool,
    output_text: String,
    /// The text parsed as JSON, valid by `output_schema`; absent without a schema.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = schema_types::AnyValue)]
    output_json: Option<Value>,
    #[schema(value_type = schema_types::FinishReason)]
    finish_reason: &'static str,
    /// Milliseconds from the request to the complete answer, without the wait for a permit.
    inference_latency_ms: u64,
    tokens: TokenUsage,
}

/// Tokens spent, failed attempts included.
#[derive(Serialize, ToSchema)]
pub struct TokenUsage {
    prompt_tokens: u64,
    completion_tokens: u64,
    /// Tokens of hidden reasoning.
    thinking_tokens: u64,
    total_tokens: u64,
}

impl InferResult {
    fn new(request_id: RequestId, run: Option<RunId>, answer: Completion) -> InferResult {
        InferResult {
            request_id: request_id.into(),
            run_id: run.map(|run| run.to_string()),
            provider: answer.provider.to_string(),
            model: answer.model,
            fallback_used: answer.fallback_used,
            output_text: answer.text,
            output_json: answer.json,
            finish_reason: FinishReason::as_str(answer.finish),
            inference_latency_ms: millis(answer.cost.latency),
            tokens: TokenUsage {
                prompt_tokens: answer.cost.tokens.prompt,
                completion_tokens: answer.cost.tokens.completion,
                thinking_tokens: answer.cost.tokens.thinking,
                total_tokens: answer.cost.tokens.total,
            },
        }
    }

    fn held_bytes(&self) -> usize {
        self.output_text.len() + self.output_json.as_ref().map_or(0, held_bytes)
    }
}

fn held_bytes(value: &Value) -> usize {
    let inside = match value {
        Value::String(text) => text.len(),
        Value::Array(items) => items.iter().map(held_bytes).sum(),
        Value::Object(fields) => fields
            .iter()
            .map(|(name, field)| size_of::<String>() + name.len() + held_bytes(field))
            .sum(),
        _ => 0,
    };
    size_of::<Value>() + inside
}

/// Run an inference.
///
/// Waits for a permit, a few seconds at most and within `timeout_ms`. Backends are asked in order of
/// priority; the message of a 500 names the error of the last one.
#[utoipa::path(
    post, path = "/v1/infer", operation_id = "infer", tag = "work",
    params(super::idempotency::IdempotencyKey),
    request_body = InferRequest,
    responses(
        (status = 200, description = "The answer", body = InferResult),
        FailureResponse<404>, FailureResponse<409>, FailureResponse<503>,
    ),
)]
pub async fn infer(Call(app, caller): Call, body: JsonBody) -> ApiResult<Json<InferResult>> {
    let since = Instant::now();
    let catalog = app.inference.catalog_for(&body.models()).await;
    // Compiling the output schema is CPU work for a blocking thread.
    let asked =
        app.blocking(move || body.read_as::<InferRequest>(Form::Naming(&catalog))).await??;
    app.check_open()?;
    let question = PreparedInference::accept(&app, &caller, asked).await?;
    let manner =
        Manner { class: Priority::Live, since, patience: app.inference.wait(), outage: None };
    ask(&app, &caller, question, 0, manner).await.map(Json)
}

/// Terms of waiting for an answer.
#[derive(Clone)]
struct Manner {
    class: Priority,
    since: Instant,
    /// Maximum wait for a permit.
    patience: Duration,
    /// Policy of retries while breakers are open; `None` for a single request.
    outage: Option<Arc<RetryPolicy>>,
}

impl Manner {
    /// Returns the delay before a retry of `question` if `error` is that all its backends' breakers are open;
    /// without a delay, the rest of a batch would fail within a moment.
    fn pause(&self, error: &InferenceError, question: ChunkAttempt) -> Option<Duration> {
        let InferenceError::Infer(error) = error else { return None };
        let is_open = |one: &BackendError| matches!(one.failure, FailureKind::Open { .. });
        let is_left_alone = error.failed().iter().all(is_open);
        let outage = self.outage.as_ref().filter(|_| is_left_alone)?;
        outage.pause(error.failed(), question, Instant::now())
    }
}

/// Runs the inference number `index`, and records the answer on its run.
async fn ask(
    app: &Arc<App>,
    caller: &Caller,
    question: PreparedInference,
    index: u64,
    manner: Manner,
) -> ApiResult<InferResult> {
    let PreparedInference { mut request, run, pictures, tokens } = question;
    // The caller's timeout covers the wait for a permit; in a batch, it covers each inference alone.
    let is_awaited = manner.class == Priority::Live;
    let deadline = request.timeout.filter(|_| is_awaited).map(|whole| manner.since + whole);
    let left_until = |deadline: Instant| deadline.saturating_duration_since(Instant::now());
    let left = deadline.map(left_until);
    let patience = left.map_or(manner.patience, |left| left.min(manner.patience));
    let mut waiting = WaitBudget::new(patience, true);
    let asker = Requester {
        request_id: caller.request_id,
        principal: caller.principal.clone(),
        run,
        class: manner.class,
        patience: Some(patience),
        waits_out: true,
    };
    let mut attempt = ChunkAttempt { chunk: index, again: 0, since: Instant::now() };
    let answer = loop {
        let model = &request.model;
        let enter = |_| app.inference.enter(&asker, model, pictures.bytes(), tokens, &waiting);
        let in_queue = if is_awaited { Duration::ZERO } else { waiting.left() };
        let entered = retry_while_full(in_queue, &CancellationToken::new(), is_full, enter).await;
        let permit = entered.map_err(|error| waiting.failed_with_earlier(error))?;
        if let Some(run) = &asker.run {
            // The run may have ended during the wait for the permit.
            run.check_active()?;
        }
        // Loaded only with a permit, so that waiting requests hold no images.
        request.images = pictures.load(app).await?;
        request.timeout = deadline.map(left_until).or(request.timeout);
        let answered = app.inference.answer(&asker, permit, &request).await;
        request.images.clear();
        match answered {
            Err(error) if waiting.goes_on(&error) => {}
            Err(error) => {
                let pause = manner.pause(&error, attempt).ok_or(error)?;
                sleep(pause).await;
                // The pause does not count against the wait budget for a permit.
                waiting.put_off(pause);
                attempt.again += 1;
            }
            Ok(answer) => break waiting.with_earlier(answer),
        }
    };
    if let Some(outage) = &manner.outage {
        outage.answered(Instant::now());
    }
    let run_id = match &asker.run {
        Some(run) => record(app, run, caller.request_id, request.prompt.len(), &answer).await?,
        None => None,
    };
    Ok(InferResult::new(caller.request_id, run_id, answer))
}

fn is_full(error: &InferenceError) -> bool {
    matches!(error, InferenceError::Refused(AdmissionError::QueueFull { .. }))
}

/// Records the answer on the run's timeline. Returns `None` if the run has ended: the answer is still
/// charged and returned.
async fn record(
    app: &Arc<App>,
    run: &Arc<Run>,
    request_id: RequestId,
    prompt_bytes: usize,
    answer: &Completion,
) -> ApiResult<Option<RunId>> {
    let RequestCost { tokens, latency, attempts } = answer.cost;
    let completed = Event::InferenceCompleted(InferenceCompleted {
        request_id,
        provider: answer.provider.to_string(),
        model: answer.model.clone(),
        fallback_used: answer.fallback_used,
        prompt_bytes: prompt_bytes as u64,
        output_bytes: answer.text.len() as u64,
        prompt_tokens: Some(tokens.prompt),
        completion_tokens: Some(tokens.completion),
        thinking_tokens: Some(tokens.thinking),
        total_tokens: Some(tokens.total),
        inference_latency_ms: Some(millis(latency)),
        tier: Some(Pass::First),
        attempts: Some(attempts),
    });
    match app.registry.commit(run, vec![completed]).await {
        Ok(_) => Ok(Some(run.id())),
        Err(RunError::Terminal(_) | RunError::NotFound) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Returns the field that caused the error, if there is one.
pub fn details(error: &InferenceError) -> Vec<FieldError> {
    use infer::InferError::{NoProvider, NotServed};
    let field = match error {
        InferenceError::Infer(NotServed { .. }) => "model",
        InferenceError::Infer(NoProvider { .. }) => "primary_provider",
        InferenceError::Refused(AdmissionError::TooLarge { what, .. }) => match what {
            LimitKind::Pictures => "images",
            LimitKind::Tokens | LimitKind::DayTokens => "max_tokens",
            LimitKind::Answers => "requests",
        },
        _ => return Vec::new(),
    };
    vec![FieldError::new(field, error.to_string())]
}
