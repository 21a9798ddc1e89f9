//! Prepares an inference: checks that its run and stills exist and that a backend serves the model. Stills
//! are looked up before the wait for a permit and loaded after it.

use infer::{InferenceRequest, PromptImage};
use media::BlobHash;

use super::{
    details,
    request::{InferRequest, MaxTokens, StillRef},
};
use crate::{api::prelude::*, base::json::FieldError};

const MISSING: ApiError = ApiError::NotFound("keyframe");

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
        let tokens = request.tokens_estimate_with(pictures.0.len(), pictures.caption_bytes());
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
fn owned(app: &App, caller: &Caller, id: RunId) -> ApiResult<Arc<Run>> {
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

/// Stills of the caller's runs: hash and size in bytes of each.
#[derive(Clone, Debug, Default)]
pub struct RequestImages(Vec<(BlobHash, u64)>);

impl RequestImages {
    async fn find(
        app: &Arc<App>,
        caller: &Caller,
        pictures: &[StillRef],
    ) -> ApiResult<RequestImages> {
        if pictures.is_empty() {
            return Ok(RequestImages::default());
        }
        let owned = pictures.iter().map(|one| Ok((owned(app, caller, one.run_id)?, one.sha256)));
        let owned: Vec<_> = owned.collect::<ApiResult<_>>()?;
        let (timeline, blobs) = (app.registry.timeline().clone(), app.blobs.clone());
        let look = move |(run, hash): (Arc<Run>, BlobHash)| -> ApiResult<(BlobHash, u64)> {
            let bytes = run.still_bytes(&timeline, &hash)?.ok_or(MISSING)?;
            if blobs.has(&hash) { Ok((hash, bytes)) } else { Err(MISSING) }
        };
        let found = app.blocking(move || owned.into_iter().map(look).collect::<ApiResult<_>>());
        found.await?.map(RequestImages)
    }

    pub fn bytes(&self) -> u64 {
        self.0.iter().map(|(_, bytes)| bytes).sum()
    }

    fn caption_bytes(&self) -> usize {
        (0..self.0.len()).map(|at| self.caption(at).len()).sum()
    }

    fn caption(&self, at: usize) -> String {
        format!("Picture {} of {}:", at + 1, self.0.len())
    }

    /// Loads the stills, each with its caption.
    pub async fn load(&self, app: &App) -> ApiResult<Vec<PromptImage>> {
        if self.0.is_empty() {
            return Ok(Vec::new());
        }
        let (blobs, pictures) = (app.blobs.clone(), self.clone());
        let read = move || {
            let image = |(at, (hash, bytes)): (usize, &(BlobHash, u64))| {
                let jpeg = Bytes::from(blobs.get(hash, *bytes)?.ok_or(MISSING)?);
                Ok(PromptImage { jpeg, caption: pictures.caption(at) })
            };
            pictures.0.iter().enumerate().map(image).collect()
        };
        app.blocking(read).await?
    }
}
