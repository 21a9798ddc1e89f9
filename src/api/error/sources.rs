//! Conversions of lower-layer errors into [`ApiError`].

use http::StatusCode;

use super::ApiError;
use crate::{
    base::json::{Faults, JsonError},
    deliver::webhook::WebhookError,
    record::{recording::RecordError, runner::IngestError},
    runs::{registry::RunError, upload::UploadError},
};

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
