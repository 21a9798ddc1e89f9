//! Prepares an inference: checks that its run and stills exist and that a backend serves the model.

use infer::InferenceRequest;

use super::{
    details,
    images::RequestImages,
    request::{InferRequest, MaxTokens},
};
use crate::{api::prelude::*, base::json::FieldError};

/// An inference that was accepted.
pub struct PreparedInference {
    /// Request to the model, without images.
    pub request: InferenceRequest,
    /// Run on whose timeline the answer is recorded.
    pub run: Option<Arc<Run>>,
    pub pictures: RequestImages,
    /// Estimated number of tokens.
    pub tokens: u64,
}

impl PreparedInference {
    /// Checks a request of the caller and prepares it.
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
            // With a daily budget, the maximum cost must be known in advance.
            request.max_tokens = request.max_tokens.or(u32::try_from(*MaxTokens::RANGE.end()).ok());
        }
        let tokens = request.tokens_estimate_with(pictures.len(), pictures.caption_bytes());
        app.inference.check(&request, pictures.bytes(), tokens).map_err(ApiError::Inference)?;
        Ok(PreparedInference { request, run, pictures, tokens })
    }

    fn run(app: &App, caller: &Caller, id: RunId) -> ApiResult<Arc<Run>> {
        let run = owned(app, caller, id)?;
        run.check_active()?;
        app.quota.check(&caller.principal)?;
        Ok(run)
    }
}

/// Returns the caller's run `id` if it is visible.
pub(super) fn owned(app: &App, caller: &Caller, id: RunId) -> ApiResult<Arc<Run>> {
    app.registry.find(id, &caller.principal).ok_or(ApiError::RUN_NOT_FOUND)
}

/// Error of a request that cannot be accepted.
pub struct InferRejection {
    /// Field to blame if the error itself names none.
    field: &'static str,
    error: ApiError,
}

impl InferRejection {
    fn of(field: &'static str) -> impl Fn(ApiError) -> InferRejection {
        move |error| InferRejection { field, error }
    }

    /// Returns the faults of request number `index` of a batch; an error that does not concern a single
    /// request is returned as `Err`.
    pub fn of_batch(self, index: usize) -> ApiResult<Vec<FieldError>> {
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
