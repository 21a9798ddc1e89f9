//! Formats errors as the envelope or as plain text, and carries them to the layer that sends them.

use timeline::{RemoteFault, TimelineError};

use crate::{
    api::prelude::*, base::json::FieldError, deliver::search::SearchFailure,
    runs::upload::UploadError,
};

/// `Retry-After` if no better value is known.
const RETRY_AFTER: Duration = Duration::from_secs(1);

impl ApiError {
    /// Returns the error as the envelope, or as plain text for [`ApiError::Plain`].
    pub fn envelope(&self, request_id: RequestId) -> Response {
        let (status, _) = self.status_and_code();
        if let ApiError::Plain(_, text) = self {
            return (status, text.clone()).into_response();
        }
        let mut response =
            (status, Json(ErrorResponse { error: self.body(request_id) })).into_response();
        self.add_headers(status, &mut response);
        response
    }

    /// Returns the error as plain text, for routes whose errors are all plain text.
    pub fn plain(&self, request_id: RequestId) -> Response {
        let (status, _) = self.status_and_code();
        let text = match self {
            ApiError::Plain(_, text) => text.clone(),
            _ => {
                let ErrorBody { message, details, .. } = self.body(request_id);
                let named = details.iter().map(|one| format!("{}: {}", one.field, one.message));
                let more = named.filter(|one| *one != message);
                more.fold(message.clone(), |text, one| text + "; " + &one)
            }
        };
        let mut response = (status, text).into_response();
        self.add_headers(status, &mut response);
        response
    }

    /// Returns the body of the envelope; logs the failure if the status is 500 or 503.
    pub fn body(&self, request_id: RequestId) -> ErrorBody {
        let (status, code) = self.status_and_code();
        let mut details = self.details();
        let message = match status {
            StatusCode::INTERNAL_SERVER_ERROR => {
                tracing::error!(%request_id, error = %self, "request failed");
                details.clear();
                match self {
                    // The API contract requires these messages; they reveal nothing internal.
                    ApiError::DatabaseMissing | ApiError::Inference(_) => self.to_string(),
                    ApiError::Database(_) => "the database does not answer now".to_owned(),
                    _ => "internal error".to_owned(),
                }
            }
            StatusCode::SERVICE_UNAVAILABLE => {
                tracing::warn!(%request_id, error = %self, "request refused");
                match self {
                    ApiError::Log(TimelineError::Remote(error)) => {
                        // The cause is for the operator only.
                        match error.fault {
                            RemoteFault::Unreachable | RemoteFault::Slow => {
                                format!("the object store {}: ask again later", error.fault)
                            }
                            _ => "the object store cannot be used now".to_owned(),
                        }
                    }
                    // The log's own errors name internal files.
                    ApiError::Log(_) => "events cannot be stored now".to_owned(),
                    ApiError::Ledger(_) => "records cannot be stored now".to_owned(),
                    ApiError::Upload(UploadError::Io { .. }) => {
                        "uploads cannot be stored now".to_owned()
                    }
                    ApiError::Search(SearchFailure::Log(_) | SearchFailure::Cache(_)) => {
                        "descriptions cannot be read now".to_owned()
                    }
                    _ => self.to_string(),
                }
            }
            StatusCode::UNPROCESSABLE_ENTITY if matches!(self, ApiError::Live(_)) => {
                self.to_string()
            }
            // Many clients print only the message, hence it names the field.
            StatusCode::UNPROCESSABLE_ENTITY => match details.first() {
                Some(FieldError { field, message }) => format!("{field}: {message}"),
                None => self.to_string(),
            },
            _ => self.to_string(),
        };
        let request_id = request_id.to_string();
        let details =
            details.into_iter().map(|FieldError { field, message }| ErrorDetail { field, message });
        ErrorBody { code, message, request_id, details: details.collect() }
    }

    fn add_headers(&self, status: StatusCode, response: &mut Response) {
        let retry_after = match self {
            ApiError::RateLimited { retry_after, .. } => Some(*retry_after),
            ApiError::KeysFull { frees_in } => Some(*frees_in),
            ApiError::UnderWay => Some(RETRY_AFTER),
            ApiError::Inference(error) if error.retry_after().is_some() => error.retry_after(),
            _ if matches!(status.as_u16(), 429 | 503) => Some(RETRY_AFTER),
            _ => None,
        };
        if let Some(after) = retry_after {
            let seconds = after.as_secs() + u64::from(after.subsec_nanos() > 0);
            response.headers_mut().insert(header::RETRY_AFTER, seconds.max(1).into());
        }
        if status == StatusCode::UNAUTHORIZED {
            let bearer = HeaderValue::from_static("Bearer");
            response.headers_mut().insert(header::WWW_AUTHENTICATE, bearer);
        }
    }
}

/// Error answer.
#[derive(Serialize, ToSchema)]
pub struct ErrorResponse {
    error: ErrorBody,
}

/// Error of a request.
#[derive(Serialize, ToSchema)]
pub struct ErrorBody {
    /// Machine-readable kind of the error.
    code: &'static str,
    /// Description of the error; for invalid fields, the first of `details`.
    message: String,
    #[schema(value_type = schema_types::RequestId)]
    request_id: String,
    /// Invalid fields.
    details: Vec<ErrorDetail>,
}

/// An invalid field, or a figure of the error, such as `limit`.
#[derive(Serialize, ToSchema)]
struct ErrorDetail {
    /// Path of the field, such as `frames[3].pts_ms`.
    field: String,
    /// Fault of the field, or the value of the figure.
    message: String,
}

/// Response extension that carries an error from the handler to the layer that writes the answer.
#[derive(Clone)]
pub struct ErrorExtension(pub Arc<ApiError>);

/// Returns true if the answer reports that a limit refused the request.
pub fn is_refused(response: &Response) -> bool {
    let carried = response.extensions().get::<ErrorExtension>();
    carried.is_some_and(|ErrorExtension(error)| error.refusal().is_some())
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        ErrorExtension(Arc::new(self)).into_response()
    }
}

impl IntoResponse for ErrorExtension {
    fn into_response(self) -> Response {
        let mut response = self.0.status_and_code().0.into_response();
        response.extensions_mut().insert(self);
        response
    }
}

#[cfg(test)]
mod tests {
    use std::{io, path::PathBuf};

    use timeline::{RemoteError, RemoteFault, TimelineError};

    use super::*;
    use crate::{
        base::{meta_store::MetaStoreError, owner_limit::LimitScope},
        deliver::webhook::WebhookError,
        record::runner::IngestError,
        runs::registry::RunError,
    };

    const REQUEST: RequestId = RequestId::from_bytes([7; 8]);

    fn full() -> TimelineError {
        TimelineError::DiskFull { file: PathBuf::from("/srv/secret/journal") }
    }

    fn damaged() -> TimelineError {
        let file = PathBuf::from("/srv/secret/journal");
        TimelineError::Damaged { file, offset: 7, what: "a bad checksum" }
    }

    fn failed_write() -> TimelineError {
        TimelineError::Poisoned { reason: "cannot sync /srv/secret/journal".to_owned() }
    }

    #[test]
    fn a_limit_of_the_callers_own_is_429_and_one_of_all_is_503() {
        let uploads = |whose| ApiError::Upload(UploadError::Busy { limit: 4, whose });
        let rows = [
            (uploads(LimitScope::Own), 429),
            (uploads(LimitScope::All), 503),
            (ApiError::TicketsFull(LimitScope::Own), 429),
            (ApiError::TicketsFull(LimitScope::All), 503),
            (ApiError::KeysFull { frees_in: RETRY_AFTER }, 429),
        ];
        for (error, status) in rows {
            let response = error.envelope(REQUEST);
            assert_eq!(response.status().as_u16(), status, "{error:?}");
            assert_eq!(response.headers()[header::RETRY_AFTER], "1", "{error:?}");
        }
    }

    #[test]
    fn a_failure_of_ours_tells_nothing_of_the_disk() {
        let records =
            || MetaStoreError::from(redb::Error::Io(io::Error::other("/srv/secret/ledger")));
        let upload = |source: io::Error| {
            let path = PathBuf::from("/srv/secret/uploads");
            ApiError::from(UploadError::Io { what: "write", path, source })
        };
        const EVENTS: &str = "events cannot be stored now";
        const RECORDS: &str = "records cannot be stored now";
        const STORE: &str = "the object store cannot be used now";
        let remote = RemoteError { fault: RemoteFault::Denied, detail: "key AKIA".to_owned() };
        let rows: [(ApiError, u16, &str); 15] = [
            (TimelineError::Remote(remote).into(), 503, STORE),
            (full().into(), 503, EVENTS),
            (failed_write().into(), 503, EVENTS),
            (TimelineError::Closed.into(), 503, EVENTS),
            (RunError::Log(failed_write()).into(), 503, EVENTS),
            (IngestError::from(full()).into(), 503, EVENTS),
            (IngestError::from(RunError::Log(full())).into(), 503, EVENTS),
            (WebhookError::Log(full()).into(), 503, EVENTS),
            (damaged().into(), 500, "internal error"),
            (RunError::Log(damaged()).into(), 500, "internal error"),
            (upload(io::Error::other("no")), 500, "internal error"),
            (upload(io::ErrorKind::NotFound.into()), 503, "uploads cannot be stored now"),
            (WebhookError::Ledger(records()).into(), 503, RECORDS),
            (UploadError::Ledger(records()).into(), 503, RECORDS),
            (IngestError::Ledger(records()).into(), 503, RECORDS),
        ];
        for (error, status, message) in rows {
            let name = format!("{error:?}");
            assert_eq!(error.status_and_code().0, status, "{name}");
            let body = error.body(REQUEST);
            assert_eq!((body.message.as_str(), body.details.len()), (message, 0), "{name}");
            for response in [error.envelope(REQUEST), error.plain(REQUEST)] {
                let waits = response.headers().contains_key(header::RETRY_AFTER);
                assert_eq!(waits, status == 503, "{name}");
            }
        }
    }
}
