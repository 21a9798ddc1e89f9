//! Browser access: preflights, and which origins may read answers.

use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};

use axum::response::{IntoResponse, Response};

use super::error::ApiError;
use crate::config::Origins;

const METHODS: HeaderValue = HeaderValue::from_static("GET, HEAD, POST, PATCH, DELETE");
const HEADERS: HeaderValue = HeaderValue::from_static(
    "authorization, content-type, idempotency-key, if-none-match, last-event-id, x-api-key, \
     x-tenant-id",
);
const EXPOSED: HeaderValue = HeaderValue::from_static(
    "etag, idempotency-replayed, link, location, retry-after, x-request-id, x-service-run-id",
);
const MAX_AGE: HeaderValue = HeaderValue::from_static("600");

/// The answer to a preflight; `None` for every other request.
pub fn preflight(origins: &Origins, method: &Method, headers: &HeaderMap) -> Option<Response> {
    if method != Method::OPTIONS {
        return None;
    }
    let Some(origin) = headers.get(header::ORIGIN) else {
        return Some(ApiError::OriginMissing.into_response());
    };
    if allowed(origins, origin).is_none() {
        return Some(ApiError::CorsForbidden.into_response());
    }
    let answer = [
        (header::ACCESS_CONTROL_ALLOW_METHODS, METHODS),
        (header::ACCESS_CONTROL_ALLOW_HEADERS, HEADERS),
        (header::ACCESS_CONTROL_MAX_AGE, MAX_AGE),
    ];
    Some((StatusCode::NO_CONTENT, answer).into_response())
}

/// The headers that let an allowed origin read an answer.
pub fn readable(origins: &Origins, origin: Option<&HeaderValue>) -> Vec<(HeaderName, HeaderValue)> {
    if *origins == Origins::Listed(Vec::new()) {
        return Vec::new();
    }
    // Caches must keep the answers to different origins apart, allowed or not.
    let mut headers = vec![(header::VARY, HeaderValue::from_static("origin"))];
    if let Some(value) = origin.and_then(|origin| allowed(origins, origin)) {
        headers.push((header::ACCESS_CONTROL_ALLOW_ORIGIN, value));
        headers.push((header::ACCESS_CONTROL_EXPOSE_HEADERS, EXPOSED));
    }
    headers
}

fn allowed(origins: &Origins, origin: &HeaderValue) -> Option<HeaderValue> {
    match origins {
        Origins::Any => Some(HeaderValue::from_static("*")),
        Origins::Listed(listed) => listed.contains(origin).then(|| origin.clone()),
    }
}
