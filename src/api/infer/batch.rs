//! Batches of inferences: run in parallel, listed in order, each with its own error.

use std::{ops::RangeInclusive, time::Instant};

use infer::scheduler::{AdmissionError, LimitKind, Priority};
use tokio::task::JoinSet;
use tracing::Instrument;

use super::{InferResult, Manner, ask, prepare::PreparedInference, request::InferRequest};
use crate::{
    api::{error::ErrorBody, prelude::*},
    base::json::List,
    record::{inference::InferenceError, reason::RetryPolicy},
};

pub const REQUESTS: RangeInclusive<usize> = 1..=256;
pub type MaxParallel = BoundedInt<1, 64>;
pub const MAX_PARALLEL_DEFAULT: u64 = 8;
/// Maximum wait of a batch's request for a permit; long, as no caller waits for one request alone.
const PATIENCE: Duration = Duration::from_secs(120);
/// Maximum size of a batch's answers, held in memory until the last one is complete: room for 256
/// answers of eight times the usual size of 4096 tokens.
const ANSWERS_BYTES_MAX: usize = 32 << 20;

/// Inference requests.
#[derive(ToSchema)]
struct BatchRequest {
    #[schema(value_type = Vec<InferRequest>, min_items = 1, max_items = 256)]
    requests: List<InferRequest, { *REQUESTS.start() }, { *REQUESTS.end() }>,
    /// Number of requests that run in parallel; 8 when missing.
    #[schema(inline)]
    max_parallel: Option<MaxParallel>,
}

declared!(BatchRequest { requests, max_parallel });

/// Outcome of a batch.
#[derive(Serialize, ToSchema)]
pub struct BatchResult {
    request_id: schema_types::RequestId,
    /// Number of requests in the batch.
    processed: usize,
    /// Number of requests with an answer.
    succeeded: usize,
    /// Number of requests without an answer.
    failed: usize,
    /// One result per request, in order.
    results: Vec<BatchItem>,
}

/// Result of a request of a batch.
#[derive(Serialize, ToSchema)]
struct BatchItem {
    index: usize,
    ok: bool,
    /// Answer; null if there is none.
    #[schema(required = true)]
    result: Option<InferResult>,
    /// Error, as in the envelope of a single request; null beside an answer.
    #[schema(required = true)]
    error: Option<ErrorBody>,
}

/// Run a batch of inferences.
///
/// An invalid request refuses the whole batch before any is sent; a later failure concerns its
/// request only. A request waits up to two minutes for a permit and for room in the queue, and as
/// long, from the last answer, for backends with an open breaker. Once the answers exceed 32 MiB,
/// the remaining requests fail unsent.
#[utoipa::path(
    post, path = "/v1/infer/batch", operation_id = "inferBatch", tag = "work",
    params(super::super::idempotency::IdempotencyKey),
    request_body = BatchRequest,
    responses((status = 200, description = "The result of each request", body = BatchResult), FailureResponse<409>, FailureResponse<503>),
)]
pub async fn infer_batch(Call(app, caller): Call, body: JsonBody) -> ApiResult<Json<BatchResult>> {
    let catalog = app.inference.catalog_for(&body.models()).await;
    let read = app.blocking(move || body.read_as(Form::Naming(&catalog)));
    let BatchRequest { requests: List(asked), max_parallel } = read.await??;
    let max_parallel = max_parallel.map_or(MAX_PARALLEL_DEFAULT, |BoundedInt(most)| most) as usize;
    app.check_open()?;
    let questions = accept(&app, &caller, asked).await?;
    let results = ask_all(&app, &caller, questions, max_parallel).await;
    let succeeded = results.iter().filter(|item| item.ok).count();
    Ok(Json(BatchResult {
        request_id: caller.request_id.into(),
        processed: results.len(),
        succeeded,
        failed: results.len() - succeeded,
        results,
    }))
}

/// Prepares all requests, or returns the faults of those that cannot be accepted.
async fn accept(
    app: &Arc<App>,
    caller: &Caller,
    asked: Vec<InferRequest>,
) -> ApiResult<Vec<PreparedInference>> {
    let (mut questions, mut refused) = (Vec::with_capacity(asked.len()), Vec::new());
    for (index, asked) in asked.into_iter().enumerate() {
        match PreparedInference::accept(app, caller, asked).await {
            Ok(question) => questions.push(question),
            Err(unaccepted) => refused.append(&mut unaccepted.of_batch(index)?),
        }
    }
    if refused.is_empty() { Ok(questions) } else { Err(ApiError::Invalid(refused)) }
}

/// Runs every request; dropping the returned future aborts the tasks.
async fn ask_all(
    app: &Arc<App>,
    caller: &Caller,
    questions: Vec<PreparedInference>,
    max_parallel: usize,
) -> Vec<BatchItem> {
    let outage = Some(Arc::new(RetryPolicy::new(PATIENCE)));
    let manner =
        Manner { class: Priority::Offline, since: Instant::now(), patience: PATIENCE, outage };
    let mut held = 0;
    let mut outcomes: Vec<_> = questions.iter().map(|_| None).collect();
    let (mut waiting, mut tasks) = (questions.into_iter().enumerate(), JoinSet::new());
    loop {
        while tasks.len() < max_parallel
            && held <= ANSWERS_BYTES_MAX
            && let Some((index, question)) = waiting.next()
        {
            let (app, caller, manner) = (Arc::clone(app), caller.clone(), manner.clone());
            let asking =
                async move { (index, ask(&app, &caller, question, index as u64, manner).await) };
            tasks.spawn(asking.in_current_span());
        }
        match tasks.join_next().await {
            Some(Ok((index, outcome))) => {
                held += outcome.as_ref().map_or(0, InferResult::held_bytes);
                let fits = held <= ANSWERS_BYTES_MAX;
                outcomes[index] =
                    Some(outcome.and_then(|a| if fits { Ok(a) } else { too_large(held) }));
            }
            // The outcome stays `None` and becomes an internal error.
            Some(Err(error)) => tracing::error!(%error, "a question of a batch panicked"),
            None => break,
        }
    }
    for (index, _) in waiting {
        outcomes[index] = Some(too_large(held));
    }
    let told = outcomes.into_iter().enumerate().map(|(index, outcome)| {
        let panicked = || Err(ApiError::Bug("a question of a batch panicked"));
        let (result, error) = match outcome.unwrap_or_else(panicked) {
            Ok(answer) => (Some(answer), None),
            Err(error) => (None, Some(error.body(caller.request_id))),
        };
        BatchItem { index, ok: result.is_some(), result, error }
    });
    told.collect()
}

fn too_large(held: usize) -> ApiResult<InferResult> {
    let (asked, limit) = (held as u64, ANSWERS_BYTES_MAX as u64);
    let refused = AdmissionError::TooLarge { what: LimitKind::Answers, asked, limit };
    Err(InferenceError::from(refused).into())
}
