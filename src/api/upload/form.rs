//! Multipart form, read in pieces, with a limit on all bytes other than the file.
//!
//! The parser buffers part headers, and bytes before the first part, until their end, and takes all bytes
//! available. [`Guard`] therefore hands over one frame at a time, and fails a body with too many bytes
//! that yield no content.

use std::{
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    task::{Context, Poll, ready},
};

use axum::{
    body::Body,
    extract::{
        DefaultBodyLimit, FromRequest, Multipart, Request,
        multipart::{Field, MultipartError},
    },
};
use bytes::Bytes;
use http::StatusCode;
use http_body::{Body as HttpBody, Frame, SizeHint};

use super::{ApiError, ApiResult, App, FORM_BYTES_MAX};

/// A form being read.
pub struct MultipartForm {
    parts: Multipart,
    idle_bytes: Arc<AtomicU64>,
}

pub struct FormPart<'a> {
    field: Field<'a>,
    idle_bytes: &'a AtomicU64,
}

impl MultipartForm {
    /// Opens the form in the body of `request`.
    pub async fn open(request: Request, app: &Arc<App>) -> ApiResult<MultipartForm> {
        let idle_bytes = Arc::new(AtomicU64::new(0));
        let counter = Arc::clone(&idle_bytes);
        let mut request =
            request.map(|body| Body::new(Guard { body, idle_bytes: counter, paused: false }));
        // The file has a limit of its own; all else is limited by the guard.
        DefaultBodyLimit::disable().apply(&mut request);
        let parts = Multipart::from_request(request, app)
            .await
            .map_err(|rejection| ApiError::Plain(rejection.status(), rejection.body_text()))?;
        Ok(MultipartForm { parts, idle_bytes })
    }

    /// Returns the next part; skips the rest of the previous one.
    pub async fn next(&mut self) -> ApiResult<Option<FormPart<'_>>> {
        let idle_bytes = &*self.idle_bytes;
        match self.parts.next_field().await {
            Ok(field) => Ok(field.map(|field| FormPart { field, idle_bytes })),
            Err(error) => Err(refusal(&error, idle_bytes)),
        }
    }
}

impl FormPart<'_> {
    pub fn name(&self) -> Option<&str> {
        self.field.name()
    }

    pub fn file_name(&self) -> String {
        self.field.file_name().unwrap_or_default().to_owned()
    }

    /// Returns the next bytes of the content; `None` at its end.
    pub async fn chunk(&mut self) -> ApiResult<Option<Bytes>> {
        let chunk = self.field.chunk().await.map_err(|error| refusal(&error, self.idle_bytes))?;
        self.idle_bytes.store(0, Relaxed);
        Ok(chunk)
    }
}

fn refusal(error: &MultipartError, idle_bytes: &AtomicU64) -> ApiError {
    if idle_bytes.load(Relaxed) > FORM_BYTES_MAX {
        let text = format!("the form has more than {FORM_BYTES_MAX} bytes beside its file");
        return ApiError::Plain(StatusCode::BAD_REQUEST, text);
    }
    match error.status() {
        StatusCode::INTERNAL_SERVER_ERROR => {
            let text = "the body of the request ended early".to_owned();
            ApiError::Plain(StatusCode::BAD_REQUEST, text)
        }
        status => ApiError::Plain(status, error.body_text()),
    }
}

/// The bytes other than the file exceed their limit.
#[derive(Debug, thiserror::Error)]
#[error("the fields other than the file exceed the form's size limit")]
struct TooMuch;

/// Body of a form that counts the bytes since the last content of a part.
struct Guard {
    body: Body,
    idle_bytes: Arc<AtomicU64>,
    /// True if a frame was handed over that the parser has not processed yet.
    paused: bool,
}

impl HttpBody for Guard {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if std::mem::take(&mut self.paused) {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        let len = match &frame {
            Some(Ok(frame)) => frame.data_ref().map_or(0, Bytes::len) as u64,
            _ => 0,
        };
        self.paused = len > 0;
        if len > 0 && self.idle_bytes.fetch_add(len, Relaxed) + len > FORM_BYTES_MAX {
            return Poll::Ready(Some(Err(axum::Error::new(TooMuch))));
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
