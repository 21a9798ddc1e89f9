//! A question that can be asked: what it names is there, and a backend is there to answer it.

use std::sync::Arc;

use infer::InferenceRequest;
use media::RunId;

use super::{
    details,
    images::RequestImages,
    request::{InferRequest, MaxTokens},
};
use crate::{
    api::{App, error::ApiError, extract::Caller},
    base::json::FieldError,
    runs::registry::Run,
};

/// A question that was accepted.
pub struct PreparedInference {
    /// Request to the model, without its pictures.
    pub request: InferenceRequest,
    /// The run whose timeline tells of the answer.
    pub run: Option<Arc<Run>>,
    /// Its pictures.
    pub pictures: RequestImages,
    /// Tokens that it is expected to take.
    pub tokens: u64,
}

impl PreparedInference {
    /// Accepts a question of the caller's.
    pub async fn accept(
        app: &Arc<App>,
        caller: &Caller,
        asked: InferRequest,
    ) -> Result<PreparedInference, InferRejection> {
        let (mut request, run, pictures) = asked.parts();
        let run = run.map(|id| PreparedInference::run(app, caller, id)).transpose();
        let run = run.map_err(InferRejection::of("run_id"))?;
        let pictures = RequestImages::find(app, caller, &pictures).await;
        let pictures = pictures.map_err(InferRejection::of("images"))?;
        if app.inference.has_day_limit() {
            // The most that a question may cost is known before it is asked.
            request.max_tokens = request.max_tokens.or(u32::try_from(*MaxTokens::RANGE.end()).ok());
        }
        let tokens = request.tokens_estimate_with(pictures.len(), pictures.caption_bytes());
        app.inference.check(&request, pictures.bytes(), tokens).map_err(ApiError::Inference)?;
        Ok(PreparedInference { request, run, pictures, tokens })
    }

    fn run(app: &App, caller: &Caller, id: RunId) -> Result<Arc<Run>, ApiError> {
        let run = owned(app, caller, id)?;
        run.check_active()?;
        app.quota.check(&caller.principal)?;
        Ok(run)
    }
}

/// The caller's visible run of this id.
pub(super) fn owned(app: &App, caller: &Caller, id: RunId) -> Result<Arc<Run>, ApiError> {
    app.registry.find(id, &caller.principal).ok_or(ApiError::RUN_NOT_FOUND)
}

/// Reason for which a question is not accepted.
pub struct InferRejection {
    /// The field that says so, where the error names none itself.
    field: &'static str,
    error: ApiError,
}

impl InferRejection {
    fn of(field: &'static str) -> impl Fn(ApiError) -> InferRejection {
        move |error| InferRejection { field, error }
    }

    /// Details that refuse a batch for its question of this number; an error that is no matter of
    /// one question as it is.
    pub fn of_batch(self, index: usize) -> Result<Vec<FieldError>, ApiError> {
        let InferRejection { field, error } = self;
        let named = match &error {
            ApiError::NotFound(_) | ApiError::Run(_) => {
                vec![FieldError::new(field, error.to_string())]
            }
            ApiError::Inference(error) => details(error),
            _ => Vec::new(),
        };
        if named.is_empty() {
            return Err(error);
        }
        let of_question = |detail: FieldError| FieldError {
            field: format!("requests[{index}].{}", detail.field),
            ..detail
        };
        Ok(named.into_iter().map(of_question).collect())
    }
}

impl From<ApiError> for InferRejection {
    fn from(error: ApiError) -> InferRejection {
        InferRejection { field: "", error }
    }
}

impl From<InferRejection> for ApiError {
    fn from(unaccepted: InferRejection) -> ApiError {
        unaccepted.error
    }
}
