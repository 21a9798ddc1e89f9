//! Source file of a run, if the server has it: an upload, or a file beneath an ingest root.
//!
//! Ingest roots are not served: a run's owner gets only the file that the run has decoded. The file is
//! opened again by name, beneath the root's open directory and without following links.

use std::{fs::File, os::unix::fs::MetadataExt, path::Path, time::UNIX_EPOCH};

use super::{
    conditional::{Preconditions, ResourceVersion},
    files::{self, FileHeaders, Found},
    prelude::*,
    send_budget,
    tickets::TicketQuery,
};
use crate::runs::{
    source::{SourceError, path_of, remote},
    upload::media_type,
};

const MISSING: ApiError = ApiError::NotFound("source file of this run");

/// Returns the file that `run` decoded last.
pub fn find(app: &App, run: &Run) -> ApiResult<Found> {
    let decoded = app.registry.timeline().latest_frames(run.id(), None)?;
    let uri = decoded.map(|(_, decoded)| decoded.source_uri).ok_or(MISSING)?;
    if remote::kind(&uri) != "file" {
        return Err(MISSING);
    }
    let path = path_of(&uri).map_err(told)?;
    let owner = &run.origin().principal;
    let upload = match app.uploads.named(owner, &path) {
        Some(name) => app.uploads.find(owner, &name.map_err(told)?)?,
        None => match app.roots.open_served(&uri) {
            Ok(file) => return beneath_root(file, &path).map_err(told),
            Err(error) if error.is_missing() => app.uploads.moved(owner, &path)?,
            Err(error) => return Err(told(error)),
        },
    };
    files::stored(app, upload.ok_or(MISSING)?).map_err(told)
}

/// Returns a file of a root. Its entity tag is made of inode, size and mtime, as its hash is not known.
fn beneath_root(file: File, path: &Path) -> Result<Found, SourceError> {
    let stat = file.metadata().map_err(SourceError::Io)?;
    let etag =
        format!("\"{:x}-{:x}-{:x}.{:x}\"", stat.ino(), stat.len(), stat.mtime(), stat.mtime_nsec());
    let seconds = stat.modified().ok().and_then(|at| at.duration_since(UNIX_EPOCH).ok());
    let modified = seconds.map(|since| UNIX_EPOCH + Duration::from_secs(since.as_secs()));
    let version = ResourceVersion { etag, modified };
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    Ok(Found { file, size: stat.len(), version, kind: media_type(&name), name })
}

fn told(error: SourceError) -> ApiError {
    match error {
        SourceError::Io(_) | SourceError::Replaced(_) => ApiError::Source(error),
        _ => MISSING,
    }
}

/// Fetch the source of a run: the upload, or the file beneath an ingest root, that it decoded last.
///
/// Remote sources and live sessions are not stored and have none. The file is served in its current state.
#[utoipa::path(
    get, path = "/v1/runs/{id}/source", operation_id = "getSource", tag = "timeline",
    params(TicketQuery, FileHeaders, Preconditions),
    responses(
        (status = 200, description = "The bytes", content_type = "*/*", body = schema_types::Bytes, headers(
            ("etag" = String, description = "The version"),
            ("last-modified" = String, description = "When it was last changed"),
            ("accept-ranges" = String, description = "Always bytes"),
            ("content-disposition" = String, description = "What it is called"),
        )),
        (status = 206, description = "The bytes of the range", content_type = "*/*", body = schema_types::Bytes, headers(
            ("content-range" = String, description = "Which bytes, and of how many"),
        )),
        (status = 304, description = "Not modified: the caller has this version"),
        FailureResponse<412>, FailureResponse<416>, FailureResponse<503>,
    ),
)]
pub async fn fetch(
    OwnedRun(app, caller, run): OwnedRun,
    method: Method,
    headers: HeaderMap,
) -> ApiResult {
    let finder = Arc::clone(&app);
    let found = app.blocking(move || find(&finder, &run)).await??;
    // Checked again: requests looked up at the same time may have filled the budget.
    send_budget::check(&app, &caller.principal)?;
    files::answer(found, &method, &headers)
}
