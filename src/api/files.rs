//! Files: the caller's uploads only; files in the operator's ingest roots are not served.
//!
//! Errors of serving are plain text. Another caller's upload answers 404.

mod body;
mod range;
mod served;

use std::{path::Path, time::UNIX_EPOCH};

use axum::extract::Path as UrlPath;

use super::{
    conditional::{Preconditions, ResourceVersion},
    pagination::{NO_CURSOR, PageLimit, limit},
    prelude::*,
    send_budget,
};
use crate::runs::{
    source::SourceError,
    upload::{StoredName, StoredUpload, UploadError, media_type},
};
pub use body::file_body;
pub use served::{FileHeaders, Found, answer};

/// Uploads fetched at a time for an unpaged list.
const SLICE: usize = 256;

fn plain(status: StatusCode, text: &str) -> ApiError {
    ApiError::Plain(status, text.to_owned())
}

/// Returns the caller's upload named `path`.
fn find(app: &App, caller: &Principal, path: &str) -> ApiResult<Found> {
    let missing = || told(SourceError::NotFound);
    let name = app.uploads.named(caller, Path::new(path)).ok_or_else(missing)?;
    let upload = app.uploads.find(caller, &name.map_err(told)?)?.ok_or_else(missing)?;
    stored(app, upload).map_err(told)
}

pub fn stored(app: &App, upload: StoredUpload) -> Result<Found, SourceError> {
    let file = app.uploads.open_file(&upload)?;
    let StoredUpload { bytes, sha256, original_name, name, at, .. } = upload;
    let ms = u64::try_from(at.epoch_ms).unwrap_or(0);
    let modified = Some(UNIX_EPOCH + Duration::from_secs(ms / 1000));
    let version = ResourceVersion { etag: format!("\"{sha256}\""), modified };
    // The stored name has the extension of the detected format; the original name may not.
    let kind = media_type(name.as_str());
    let name = if original_name.is_empty() { name.to_string() } else { original_name };
    Ok(Found { file, size: bytes, version, name, kind })
}

fn told(error: SourceError) -> ApiError {
    match error {
        SourceError::ParentComponent | SourceError::Malformed(_) => {
            plain(StatusCode::BAD_REQUEST, &format!("the name {error}"))
        }
        SourceError::Io(_) | SourceError::Replaced(_) => ApiError::Source(error),
        _ => plain(StatusCode::NOT_FOUND, "file not found"),
    }
}

/// Fetch one of the caller's uploads by name.
///
/// A single byte range is served; several ranges are answered with the whole file.
#[utoipa::path(
    get, path = "/v1/files/{*name}", operation_id = "getFile", tag = "files",
    params(FileHeaders, Preconditions),
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
        (status = 404, description = "No such file", content_type = "text/plain", body = String),
        (status = 503, description = "Records cannot be read now", content_type = "text/plain", body = String),
        FailureResponse<412>, FailureResponse<416>,
    ),
)]
pub async fn fetch(
    Call(app, caller): Call,
    UrlPath(name): UrlPath<String>,
    method: Method,
    headers: HeaderMap,
) -> ApiResult {
    check_name(&name)?;
    let (finder, owner) = (Arc::clone(&app), caller.principal.clone());
    let found = app.blocking(move || find(&finder, &owner, &name)).await??;
    // Checked again: requests looked up at the same time may have filled the budget.
    send_budget::check(&app, &caller.principal)?;
    answer(found, &method, &headers)
}

fn check_name(name: &str) -> ApiResult<()> {
    let bad = |part: &str| matches!(part, "" | "." | "..");
    if name.split('/').any(bad) || name.bytes().any(|byte| byte.is_ascii_control()) {
        let text =
            "the name must be a path without empty parts, \".\", \"..\" and control characters";
        return Err(plain(StatusCode::BAD_REQUEST, text));
    }
    Ok(())
}

/// Page of a list of files.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
pub struct FilesQuery {
    /// Maximum number of items on the page; the list is whole when missing.
    #[param(inline, value_type = Option<PageLimit>)]
    limit: Option<usize>,
    /// Start of the page, from the `Link` header of the previous page.
    #[param(value_type = Option<schema_types::FileCursor>)]
    cursor: Option<StoredName>,
}

declared!(FilesQuery { limit: optional limit, cursor: optional cursor });

/// An uploaded file.
#[derive(Serialize, ToSchema)]
#[schema(as = File)]
struct FileRecord {
    /// Path on the server: a `source_uri` for its owner.
    file_path: String,
    /// Name of the file under `/v1/files/`.
    #[schema(value_type = schema_types::FileName)]
    file_name: String,
    /// Name given by the uploader.
    original_name: String,
    bytes: u64,
    sha256: schema_types::Sha256,
    media_type: &'static str,
    uploaded_at: schema_types::Timestamp,
}

/// The caller's uploads.
#[derive(ToSchema)]
#[expect(dead_code, reason = "says what `list` writes")]
struct FilePage {
    request_id: schema_types::RequestId,
    files: Vec<FileRecord>,
}

/// A removed upload.
#[derive(Serialize, ToSchema)]
struct FileDeleted {
    request_id: schema_types::RequestId,
    #[schema(value_type = schema_types::FileName)]
    file_name: String,
}

/// Reads a cursor: the name of the last file of the previous page.
fn cursor(value: &Value) -> Result<StoredName, ValueError> {
    let name = value.as_str().and_then(|text| text.parse().ok());
    name.ok_or(NO_CURSOR.into())
}

/// List the caller's uploads, newest first.
#[utoipa::path(
    get, path = "/v1/files", operation_id = "listFiles", tag = "files",
    params(FilesQuery),
    responses((status = 200, description = "The uploads", body = FilePage), FailureResponse<503>),
)]
pub async fn list(
    Call(app, caller): Call,
    QueryParams(FilesQuery { limit, cursor: before }): QueryParams<FilesQuery>,
    uri: Uri,
) -> ApiResult {
    let (request_id, owner) = (caller.request_id, caller.principal);
    let text = format!(r#"{{"request_id":"{request_id}","files":"#);
    let end = || "}".to_owned();
    let lister = Arc::clone(&app);
    let made = app.blocking(move || {
        let Some(limit) = limit else {
            let files = sliced(before, move |before| {
                let (files, next) = slice(&lister, &owner, before.as_ref(), SLICE)?;
                Ok((files, next.map(Some)))
            });
            return Ok((listed(text, record_texts(files), end, READING_BYTES)?, None));
        };
        let (files, next) = slice(&lister, &owner, before.as_ref(), limit)?;
        let files = record_texts(files.into_iter().map(Ok));
        Ok::<_, ApiError>((listed(text, files, end, READING_BYTES)?, next))
    });
    let (answer, next) = made.await??;
    Ok(linked(answer, &uri, next))
}

/// Returns at most `limit` uploads of `owner` before `before`, newest first, and the last one's name if more follow.
fn slice(
    app: &App,
    owner: &Principal,
    before: Option<&StoredName>,
    limit: usize,
) -> ApiResult<(Vec<FileRecord>, Option<StoredName>)> {
    let mut files = app.uploads.list(owner, before, limit)?;
    let more = files.len() > limit;
    files.truncate(limit);
    let next = files.last().filter(|_| more).map(|last| last.name.clone());
    let records = files.into_iter().map(|upload| FileRecord {
        file_path: app.uploads.path(&upload).display().to_string(),
        media_type: media_type(upload.name.as_str()),
        file_name: upload.name.to_string(),
        original_name: upload.original_name,
        bytes: upload.bytes,
        sha256: upload.sha256.into(),
        uploaded_at: upload.at.into(),
    });
    Ok((records.collect(), next))
}

/// Remove an upload; requests that are reading it are not interrupted.
#[utoipa::path(
    delete, path = "/v1/files/{*name}", operation_id = "deleteFile", tag = "files",
    responses(
        (status = 200, description = "Removed", body = FileDeleted),
        (status = 404, description = "No such upload", content_type = "text/plain", body = String),
        (status = 503, description = "Records cannot be read or written now", content_type = "text/plain", body = String),
    ),
)]
pub async fn delete(Call(app, caller): Call, UrlPath(name): UrlPath<String>) -> ApiResult {
    check_name(&name)?;
    let (uploads, owner) = (Arc::clone(&app.uploads), caller.principal);
    let removed = app.blocking(move || -> Result<Option<StoredName>, UploadError> {
        let Some(Ok(name)) = uploads.named(&owner, Path::new(&name)) else { return Ok(None) };
        Ok(uploads.remove(&owner, &name)?.then_some(name))
    });
    let Some(name) = removed.await?? else {
        return Err(plain(StatusCode::NOT_FOUND, "file not found"));
    };
    let (request_id, file_name) = (caller.request_id.into(), name.to_string());
    Ok(Json(FileDeleted { request_id, file_name }).into_response())
}

#[cfg(test)]
mod tests;
