//! Stills that an inference refers to: looked up before the wait for a permit, loaded after it.

use infer::PromptImage;
use media::BlobHash;

use super::{prepare::owned, request::StillRef};
use crate::api::prelude::*;

const MISSING: ApiError = ApiError::NotFound("keyframe");

/// Stills of the caller's runs.
#[derive(Clone, Debug, Default)]
pub struct RequestImages {
    /// Hash and size in bytes of each still.
    stills: Vec<(BlobHash, u64)>,
    bytes: u64,
}

impl RequestImages {
    /// Looks up `pictures`, each in its run.
    pub async fn find(
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
        let look = move || {
            let mut found = RequestImages::default();
            for (run, hash) in owned {
                let bytes = run.still_bytes(&timeline, &hash)?.ok_or(MISSING)?;
                if !blobs.has(&hash) {
                    return Err(MISSING);
                }
                found.bytes += bytes;
                found.stills.push((hash, bytes));
            }
            Ok(found)
        };
        app.blocking(look).await?
    }

    pub fn len(&self) -> usize {
        self.stills.len()
    }

    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    pub fn caption_bytes(&self) -> usize {
        (0..self.len()).map(|at| self.caption(at).len()).sum()
    }

    fn caption(&self, at: usize) -> String {
        format!("Picture {} of {}:", at + 1, self.len())
    }

    /// Loads the stills, each with its caption.
    pub async fn load(&self, app: &App) -> ApiResult<Vec<PromptImage>> {
        if self.stills.is_empty() {
            return Ok(Vec::new());
        }
        let (blobs, pictures) = (app.blobs.clone(), self.clone());
        let read = move || {
            let image = |(at, (hash, bytes)): (usize, &(BlobHash, u64))| {
                let jpeg = Bytes::from(blobs.get(hash, *bytes)?.ok_or(MISSING)?);
                Ok(PromptImage { jpeg, caption: pictures.caption(at) })
            };
            pictures.stills.iter().enumerate().map(image).collect()
        };
        app.blocking(read).await?
    }
}
