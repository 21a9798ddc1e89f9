//! Errors of handlers, and the only mapping from an error to its status and code.
//!
//! An error travels to the outermost middleware as a response extension and becomes the envelope
//! there, where the request id is known. Its sources are logged there, and only there.

mod answer;

use ::infer::scheduler::AdmissionError;
use media::{ErrorKind, JobId};
use timeline::TimelineError;
use transport::webrtc::SdpFragError;
use worker::WorkerError;

use super::{infer, prelude::*, rate_limit::exceeded};
use crate::{
    base::{
        database::DatabaseError,
        disk_reserve::DiskRefusal,
        json::{FieldError, JsonError},
        meta_store::MetaStoreError,
        metrics::RefusalReason,
        owner_limit::LimitScope,
        quota::QuotaError,
    },
    deliver::{search::SearchFailure, sse::StreamRefusal, webhook::WebhookError},
    record::{
        inference::InferenceError,
        live::{LiveError, PromptError},
        recording::RecordError,
        runner::IngestError,
    },
    runs::{registry::RunError, source::SourceError, upload::UploadError},
};

pub use answer::{ErrorBody, ErrorExtension, ErrorResponse, is_refused};

/// Error of a request.
#[derive(Debug, thiserror::Error)]
pub enum ApiError {
    #[error("validation failed")]
    Invalid(Vec<FieldError>),
    #[error("a preflight request needs an Origin header")]
    OriginMissing,
    /// The credential is missing, unknown or ambiguous, or the required tenant is missing.
    #[error("{0}")]
    Unauthorized(&'static str),
    #[error("this origin is not allowed")]
    CorsForbidden,
    /// The resource does not exist, or is not visible to the caller.
    #[error("{0} not found")]
    NotFound(&'static str),
    #[error("{0}")]
    Run(RunError),
    #[error("no live session fills this run now: health is of live video while it comes")]
    NotLive,
    #[error("{}", exceeded(*of))]
    RateLimited { of: RefusalReason, retry_after: Duration },
    /// Limit of unsent answer bytes, or of bytes of arriving bodies.
    #[error("{}", unsent(*.0))]
    SendBufferFull(LimitScope),
    #[error("{0}")]
    Source(#[from] SourceError),
    #[error("{0}")]
    Ingest(IngestError),
    #[error("{0}")]
    Log(#[from] TimelineError),
    #[error("the analysis queue is full: retry later")]
    AnalysesFull,
    #[error("too many large responses are being prepared: retry later")]
    ReadersFull,
    #[error("the database client is not configured: set SERVICE_DB_URL and restart the server")]
    DatabaseMissing,
    #[error("{0}")]
    Database(#[from] DatabaseError),
    #[error("{0}")]
    Webhook(WebhookError),
    #[error("{}", tickets_full(*.0))]
    TicketsFull(LimitScope),
    #[error("{0}")]
    Stream(StreamRefusal),
    #[error("{0}")]
    Search(#[from] SearchFailure),
    #[error("the server is shutting down")]
    Draining,
    #[error("nothing more is recorded: {0}")]
    Disk(DiskRefusal),
    #[error("{0}")]
    Quota(#[from] QuotaError),
    #[error(
        "metrics need an API key and none is configured: set SERVICE_API_KEYS, or \
         SERVICE_METRICS_REQUIRE_API_KEY=false"
    )]
    MetricsUnavailable,
    #[error("a request with this Idempotency-Key is in progress: retry when it has completed")]
    UnderWay,
    /// An earlier request with the same key took effect, but its answer was not stored.
    #[error(
        "a request with this Idempotency-Key was begun as {request_id}, and its response \
         was not stored: check the events of {run}"
    )]
    AnswerLost { request_id: String, run: RunId },
    /// An earlier request with the same key was started, and its outcome cannot be determined.
    #[error(
        "a request with this Idempotency-Key was begun as {request_id}, and its outcome is \
         unknown: check the resource, and use a new key"
    )]
    AnswerUnknown { request_id: String },
    #[error(
        "this request joined {0}, whose answer is longer than is kept: read the run's events and \
         markers"
    )]
    AnswerLong(JobId),
    #[error(
        "the storage of responses for your Idempotency-Keys and jobs is full: retry later, or \
         without a key and without Prefer"
    )]
    KeysFull {
        /// Time until the oldest stored answer expires.
        frees_in: Duration,
    },
    #[error("{0}")]
    Ledger(#[from] MetaStoreError),
    #[error("{0}")]
    Upload(UploadError),
    #[error("a still cannot be scaled down: {0}")]
    Shrink(WorkerError),
    #[error("{0}")]
    Inference(#[from] InferenceError),
    #[error("{0}")]
    MediaRefused(String),
    #[error("{0}")]
    Live(LiveError),
    #[error("{0}")]
    Fragment(SdpFragError),
    #[error("{0}")]
    Prompt(PromptError),
    #[error("{0}")]
    Bug(&'static str),
    /// The body is not JSON or contradicts its headers; answered in plain text.
    #[error("{1}")]
    Plain(StatusCode, String),
}

impl ApiError {
    pub fn field(field: &str, message: impl Into<String>) -> ApiError {
        ApiError::Invalid(vec![FieldError::new(field, message)])
    }

    /// Error for a run that does not exist or belongs to another caller.
    pub const RUN_NOT_FOUND: ApiError = ApiError::NotFound("run");

    fn kind(&self) -> ErrorKind {
        match self {
            ApiError::Invalid(_) | ApiError::OriginMissing | ApiError::Plain(..) => {
                ErrorKind::InvalidInput
            }
            ApiError::Unauthorized(_) => ErrorKind::Unauthenticated,
            ApiError::CorsForbidden => ErrorKind::Forbidden,
            ApiError::NotFound(_) => ErrorKind::NotFound,
            ApiError::Run(error) => error.kind(),
            ApiError::RateLimited { .. }
            | ApiError::SendBufferFull(_)
            | ApiError::AnalysesFull
            | ApiError::ReadersFull
            | ApiError::TicketsFull(_)
            | ApiError::KeysFull { .. } => ErrorKind::Exhausted,
            ApiError::Source(error) => error.kind(),
            ApiError::Ingest(error) => error.kind(),
            // No field of the request is to blame for a payload too large for the log.
            ApiError::Log(TimelineError::TooLarge { .. }) | ApiError::Bug(_) => ErrorKind::Internal,
            ApiError::Log(error) => error.kind(),
            // The API contract answers 500 for every failure of the database.
            ApiError::DatabaseMissing | ApiError::Database(_) | ApiError::Shrink(_) => {
                ErrorKind::Internal
            }
            ApiError::Webhook(error) => error.kind(),
            ApiError::Search(error) => error.kind(),
            ApiError::Draining | ApiError::MetricsUnavailable | ApiError::MediaRefused(_) => {
                ErrorKind::Unavailable
            }
            ApiError::Disk(_) | ApiError::Stream(_) => ErrorKind::Exhausted,
            ApiError::Quota(error) => error.kind(),
            ApiError::Upload(error) => error.kind(),
            ApiError::NotLive
            | ApiError::Prompt(_)
            | ApiError::UnderWay
            | ApiError::AnswerLost { .. }
            | ApiError::AnswerUnknown { .. }
            | ApiError::AnswerLong(_) => ErrorKind::Conflict,
            ApiError::Ledger(error) => error.kind(),
            ApiError::Inference(error) => error.kind(),
            ApiError::Live(error) => error.kind(),
            ApiError::Fragment(error) => error.kind(),
        }
    }

    /// Returns true if the failure was recorded as the end of the run.
    pub fn ended_the_run(&self) -> bool {
        matches!(self, ApiError::Ingest(error) if error.ends_the_run())
    }

    /// Returns the limit that refused the request, if one did.
    pub fn refusal(&self) -> Option<RefusalReason> {
        Some(match self {
            ApiError::RateLimited { of, .. } => *of,
            ApiError::SendBufferFull(_) => RefusalReason::Unsent,
            ApiError::AnalysesFull => RefusalReason::Analyses,
            ApiError::ReadersFull => RefusalReason::Readers,
            ApiError::TicketsFull(_) => RefusalReason::Tickets,
            ApiError::Run(RunError::ActiveLimit { .. }) => RefusalReason::ActiveRuns,
            ApiError::Ingest(IngestError::QueueFull(_)) => RefusalReason::FileJobs,
            ApiError::Draining | ApiError::Ingest(IngestError::Shutdown) => RefusalReason::Draining,
            ApiError::Disk(_) => RefusalReason::Disk,
            ApiError::KeysFull { .. } => RefusalReason::Keys,
            ApiError::Log(_) => RefusalReason::Log,
            ApiError::Ledger(error) if error.kind() == ErrorKind::Exhausted => RefusalReason::Disk,
            ApiError::Upload(UploadError::Busy { .. }) => RefusalReason::Uploads,
            ApiError::Upload(UploadError::DiskFull) => RefusalReason::Disk,
            ApiError::Webhook(WebhookError::TooMany { .. }) => RefusalReason::Webhooks,
            ApiError::Search(SearchFailure::Full(_)) => RefusalReason::Searches,
            ApiError::Stream(_) => RefusalReason::Streams,
            ApiError::Inference(InferenceError::Refused(error)) => match error {
                AdmissionError::DaySpent { .. } => RefusalReason::DayTokens,
                AdmissionError::QueueFull { .. } | AdmissionError::TimedOut { .. } => {
                    RefusalReason::Inferences
                }
                _ => return None,
            },
            _ => return None,
        })
    }

    fn status_and_code(&self) -> (StatusCode, &'static str) {
        match self {
            ApiError::OriginMissing => (StatusCode::BAD_REQUEST, "validation_error"),
            ApiError::RateLimited { .. }
            | ApiError::SendBufferFull(_)
            | ApiError::TicketsFull(LimitScope::Own)
            | ApiError::KeysFull { .. }
            | ApiError::Upload(UploadError::Busy { whose: LimitScope::Own, .. })
            | ApiError::Stream(StreamRefusal::Principal(_)) => {
                (StatusCode::TOO_MANY_REQUESTS, "rate_limited")
            }
            ApiError::MetricsUnavailable => {
                (StatusCode::SERVICE_UNAVAILABLE, "metrics_unavailable")
            }
            ApiError::Plain(status, _) => (*status, "plain"),
            ApiError::Fragment(SdpFragError::TagMissing) => {
                (StatusCode::PRECONDITION_REQUIRED, "precondition_required")
            }
            ApiError::Fragment(error) if error.kind() == ErrorKind::Conflict => {
                (StatusCode::PRECONDITION_FAILED, "precondition_failed")
            }
            // An unreadable message violates the protocol; no single field is to blame.
            ApiError::Live(_) | ApiError::Fragment(_) if self.kind() == ErrorKind::InvalidInput => {
                (StatusCode::BAD_REQUEST, "validation_error")
            }
            _ => match self.kind() {
                ErrorKind::InvalidInput | ErrorKind::Unsupported => {
                    (StatusCode::UNPROCESSABLE_ENTITY, "validation_error")
                }
                ErrorKind::Unauthenticated => (StatusCode::UNAUTHORIZED, "unauthorized"),
                ErrorKind::Forbidden => (StatusCode::FORBIDDEN, "cors_forbidden"),
                ErrorKind::NotFound => (StatusCode::NOT_FOUND, "not_found"),
                ErrorKind::Conflict | ErrorKind::Cancelled => (StatusCode::CONFLICT, "conflict"),
                ErrorKind::Exhausted | ErrorKind::Unavailable => {
                    (StatusCode::SERVICE_UNAVAILABLE, "unavailable")
                }
                ErrorKind::DataLoss | ErrorKind::Internal => {
                    (StatusCode::INTERNAL_SERVER_ERROR, "internal_error")
                }
            },
        }
    }

    fn details(&self) -> Vec<FieldError> {
        let one = |field: &str, message: String| vec![FieldError::new(field, message)];
        match self {
            ApiError::Invalid(details) => details.clone(),
            ApiError::Source(error) => one("source_uri", error.to_string()),
            ApiError::Ingest(error @ IngestError::Crop { .. }) => one("crop", error.to_string()),
            ApiError::Ingest(error) if self.kind() == ErrorKind::InvalidInput => {
                one("source_uri", error.told())
            }
            ApiError::Webhook(error @ (WebhookError::Url(_) | WebhookError::Target(_))) => {
                one("url", error.to_string())
            }
            ApiError::Webhook(WebhookError::TooMany { limit, count, .. }) => vec![
                FieldError::new("limit", limit.to_string()),
                FieldError::new("webhooks", count.to_string()),
            ],
            ApiError::Run(RunError::ActiveLimit { limit, active }) => vec![
                FieldError::new("limit", limit.to_string()),
                FieldError::new("active", active.to_string()),
            ],
            ApiError::Run(RunError::Busy { job: Some(job) }) => one("job_id", job.to_string()),
            ApiError::Inference(error) => infer::details(error),
            ApiError::AnswerLost { run, .. } => one("run_id", run.to_string()),
            ApiError::Quota(QuotaError::Principal { quota, used, asked }) => vec![
                FieldError::new("quota", quota.to_string()),
                FieldError::new("used", used.to_string()),
                FieldError::new("asked", asked.to_string()),
            ],
            _ => Vec::new(),
        }
    }
}

impl From<Faults> for ApiError {
    fn from(faults: Faults) -> ApiError {
        ApiError::Invalid(faults.into())
    }
}

impl From<JsonError> for ApiError {
    fn from(error: JsonError) -> ApiError {
        match error {
            JsonError::Malformed(text) => {
                ApiError::Plain(StatusCode::BAD_REQUEST, format!("malformed JSON: {text}"))
            }
            JsonError::Invalid(details) => ApiError::Invalid(details),
        }
    }
}

impl From<UploadError> for ApiError {
    fn from(error: UploadError) -> ApiError {
        match error {
            UploadError::Quota(error) => ApiError::Quota(error),
            UploadError::Ledger(error) => ApiError::Ledger(error),
            UploadError::TooLarge { .. } => {
                ApiError::Plain(StatusCode::PAYLOAD_TOO_LARGE, error.to_string())
            }
            error => ApiError::Upload(error),
        }
    }
}

impl From<WebhookError> for ApiError {
    fn from(error: WebhookError) -> ApiError {
        match error {
            WebhookError::Log(error) => ApiError::Log(error),
            WebhookError::Ledger(error) => ApiError::Ledger(error),
            error => ApiError::Webhook(error),
        }
    }
}

impl From<RunError> for ApiError {
    fn from(error: RunError) -> ApiError {
        match error {
            RunError::NotFound => ApiError::RUN_NOT_FOUND,
            RunError::Log(error) => ApiError::Log(error),
            error => ApiError::Run(error),
        }
    }
}

impl From<IngestError> for ApiError {
    fn from(error: IngestError) -> ApiError {
        match error {
            IngestError::Record(RecordError::Run(error)) => error.into(),
            IngestError::Record(RecordError::Store(error)) => ApiError::Log(error),
            IngestError::Record(RecordError::Quota(error)) => ApiError::Quota(error),
            IngestError::Record(RecordError::Disk(refusal)) => ApiError::Disk(refusal),
            IngestError::Ledger(error) => ApiError::Ledger(error),
            error => ApiError::Ingest(error),
        }
    }
}

fn tickets_full(whose: LimitScope) -> &'static str {
    match whose {
        LimitScope::Own => {
            "as many of your media tickets are open as may be: use one of those, or wait"
        }
        LimitScope::All => "the limit of open media tickets is reached: retry later",
    }
}

fn unsent(whose: LimitScope) -> &'static str {
    match whose {
        LimitScope::Own => {
            "your unread responses or unfinished requests fill their buffer: complete those first"
        }
        LimitScope::All => "the server's buffers of responses and requests are full: retry later",
    }
}
