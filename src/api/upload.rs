//! Upload: stores the file of a multipart form after a check by a media worker.
//!
//! Bytes go to disk as they arrive; memory use does not grow with the file. After any error, or if the
//! client disconnects, nothing is left on disk.

mod form;

use super::{
    extract::check_body,
    idempotency::{DeferredKey, response},
    middleware::REQUEST_ID,
    prelude::*,
};
use crate::{
    base::clock::wall_now,
    record::runner::IngestError,
    runs::{
        idempotency::{BodyDigest, StoredResponse},
        upload::{NewUpload, StoredUpload, UploadError, UploadWriter, extension, media_type},
    },
};
use form::{FormPart, MultipartForm};

const FIELD: &str = "file";
/// Bytes per write.
const WRITE: usize = 256 << 10;
/// Maximum bytes of the form other than the file.
pub const FORM_BYTES_MAX: u64 = 1 << 20;

/// Form with one file; other fields are ignored.
#[derive(ToSchema)]
#[expect(dead_code, reason = "says what `receive` reads")]
struct UploadForm {
    /// A media file with a video stream, at most `SERVICE_MAX_UPLOAD_BYTES` bytes.
    #[schema(value_type = schema_types::Bytes)]
    file: Bytes,
}

/// An uploaded file.
#[derive(Serialize, ToSchema)]
struct UploadResult {
    /// Path on the server: a `source_uri` for its owner.
    file_path: String,
    /// Name of the file under `/v1/files/`.
    #[schema(value_type = schema_types::FileName)]
    file_name: String,
    bytes: u64,
    sha256: schema_types::Sha256,
    media_type: &'static str,
}

impl UploadResult {
    fn answer(app: &App, upload: &StoredUpload, request_id: RequestId) -> StoredResponse {
        let result = UploadResult {
            file_path: app.uploads.path(upload).display().to_string(),
            file_name: upload.name.to_string(),
            bytes: upload.bytes,
            sha256: upload.sha256.into(),
            media_type: media_type(upload.name.as_str()),
        };
        let headers = [
            (header::CONTENT_TYPE, "application/json".to_owned()),
            (header::LOCATION, format!("/v1/files/{}", upload.name)),
            (REQUEST_ID, request_id.to_string()),
        ];
        let headers = headers.map(|(name, value)| (name.to_string(), value)).into();
        let body = serde_json::to_vec(&result).expect("our own types are writable");
        StoredResponse { status: 200, headers, body }
    }
}

/// Upload a media file.
///
/// The file is stored if a media worker finds a video stream in it; playlists are refused.
#[utoipa::path(
    post, path = "/v1/upload", operation_id = "uploadFile", tag = "files",
    params(super::idempotency::IdempotencyKey),
    request_body(content = inline(UploadForm), content_type = "multipart/form-data"),
    responses(
        (status = 200, description = "Kept", body = UploadResult, headers(
            ("location" = String, description = "Where it is served"),
        )),
        FailureResponse<409>, FailureResponse<503>,
    ),
)]
pub async fn upload(Call(app, caller): Call, mut request: Request) -> ApiResult {
    let ticket = request.extensions_mut().remove::<DeferredKey>();
    check_head(request.headers(), app.settings.upload_bytes_max)?;
    app.check_open()?;
    // An upload in progress may finish within the drain.
    let held = app.runner.hold();
    let place = app.uploads.enter(&caller.principal)?;
    let received = held.finish(receive(&app, &caller.principal, request)).await??;
    let (incoming, file_name) = received;
    let sha256 = incoming.sha256();
    let fingerprint = BodyDigest::of(&[file_name.as_bytes(), sha256.as_bytes()]);
    if let Some(ticket) = &ticket
        && let Some(answered) = ticket.check(fingerprint)?
    {
        app.metrics.replays.inc();
        return Ok(answered);
    }
    let container = probe(&app, &caller.principal, &incoming).await?;
    let server = Arc::clone(&app);
    let kept = move || -> ApiResult<StoredResponse> {
        // Holds the permit until the work ends, even if the caller disconnects.
        let _place = place;
        let extension = extension(&container, &file_name);
        let new = NewUpload {
            owner: &caller.principal,
            extension,
            file_name: &file_name,
            at: wall_now(),
        };
        let mut given = None;
        app.uploads.keep(incoming, new, |change, upload| {
            let answer = given.insert(UploadResult::answer(&app, upload, caller.request_id));
            match &ticket {
                Some(ticket) => ticket.answered(change, fingerprint, answer.clone()),
                None => Ok(()),
            }
        })?;
        given.ok_or(ApiError::Bug("an upload was kept without an answer"))
    };
    Ok(response(server.blocking(kept).await??))
}

/// Refuses the request by its headers alone, if possible.
fn check_head(headers: &HeaderMap, bytes_max: u64) -> ApiResult<()> {
    check_body(headers, "multipart/form-data", |essence| essence == "multipart/form-data")?;
    let length = headers.get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok());
    let length: Option<u64> = length.and_then(|length| length.parse().ok());
    if length.is_some_and(|length| length > bytes_max.saturating_add(FORM_BYTES_MAX)) {
        return Err(UploadError::TooLarge { max: bytes_max }.into());
    }
    Ok(())
}

/// Receives the one file of the form, and its name.
async fn receive(
    app: &Arc<App>,
    owner: &Principal,
    request: Request,
) -> ApiResult<(UploadWriter, String)> {
    let mut form = MultipartForm::open(request, app).await?;
    let mut received = None;
    while let Some(mut part) = form.next().await? {
        if part.name() != Some(FIELD) {
            continue;
        }
        if received.is_some() {
            return Err(ApiError::field(FIELD, "appears twice: upload one file at a time"));
        }
        let file_name = part.file_name();
        if file_name.chars().any(char::is_control) {
            return Err(ApiError::field(FIELD, "has a file name with a control character in it"));
        }
        let (uploads, owner) = (Arc::clone(&app.uploads), owner.clone());
        let bytes_max = app.settings.upload_bytes_max;
        let incoming = app.blocking(move || uploads.receive(&owner, bytes_max)).await??;
        let timer = app.metrics.upload_seconds.start_timer();
        let incoming = store(app, &mut part, incoming).await?;
        drop(timer);
        received = Some((incoming, file_name));
    }
    match received {
        None => Err(ApiError::field(FIELD, "is required")),
        Some((incoming, _)) if incoming.bytes() == 0 => Err(ApiError::field(FIELD, "is empty")),
        Some(received) => Ok(received),
    }
}

async fn store(
    app: &App,
    part: &mut FormPart<'_>,
    mut incoming: UploadWriter,
) -> ApiResult<UploadWriter> {
    let (mut batch, mut size) = (Vec::new(), 0);
    loop {
        let chunk = part.chunk().await?;
        let ended = chunk.is_none();
        size += chunk.as_ref().map_or(0, Bytes::len);
        batch.extend(chunk);
        if size < WRITE && !ended {
            continue;
        }
        app.check_disk()?;
        app.metrics.upload_bytes.inc_by(size as u64);
        let written = std::mem::take(&mut batch);
        size = 0;
        incoming = app
            .blocking(move || {
                written.iter().try_for_each(|chunk| incoming.write(chunk)).map(|()| incoming)
            })
            .await??;
        if ended {
            return Ok(incoming);
        }
    }
}

/// Returns the container format of the file, as detected by a media worker.
async fn probe(app: &App, owner: &Principal, incoming: &UploadWriter) -> ApiResult<String> {
    let file = incoming.reopen()?;
    let probed = app.runner.probe(owner, file).await;
    probed.map(|stream| stream.container).map_err(refusal)
}

fn refusal(error: IngestError) -> ApiError {
    use media::ErrorKind::{InvalidInput, Unsupported};
    match &error {
        IngestError::Worker(cause) if matches!(cause.kind(), InvalidInput | Unsupported) => {
            tracing::info!(%error, "an upload is no media");
            ApiError::field(FIELD, error.told())
        }
        _ => error.into(),
    }
}
