//! Cross-origin requests of browsers: preflights, and the origins that may read answers.

use super::{prelude::*, whip};
/// Origins whose pages may read answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CorsOrigins {
    /// Exactly these origins.
    Listed(Vec<HeaderValue>),
    /// Every origin; allowed only while keys are off.
    Any,
}

const METHODS: HeaderValue = HeaderValue::from_static("GET, HEAD, POST, PATCH, DELETE");
const HEADERS: HeaderValue = HeaderValue::from_static(
    "authorization, content-type, idempotency-key, if-match, if-modified-since, if-none-match, \
     if-range, if-unmodified-since, last-event-id, prefer, range, traceparent, x-api-key, \
     x-attach-config, x-requested-with, x-tenant-id",
);
const EXPOSED: HeaderValue = HeaderValue::from_static(
    "accept-patch, accept-post, accept-ranges, content-disposition, content-range, etag, \
     idempotency-replayed, link, location, preference-applied, retry-after, x-clip-starts-at-ms, \
     x-has-more, x-request-id, x-service-run-id",
);
const MAX_AGE: HeaderValue = HeaderValue::from_static("600");

/// Returns the answer to a preflight; `None` for every other request.
pub fn preflight(origins: &CorsOrigins, request: &Request) -> Option<Response> {
    if request.method() != Method::OPTIONS {
        return None;
    }
    let Some(origin) = request.headers().get(header::ORIGIN) else {
        if request.uri().path() == whip::BASE {
            // Not a browser: a WHIP client asks for the accepted methods (RFC 9725 4.2).
            return None;
        }
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
    let mut response = (StatusCode::NO_CONTENT, answer).into_response();
    if request.uri().path() == whip::BASE {
        response.headers_mut().extend(whip::accepted());
    }
    Some(response)
}

/// Returns the headers that allow `origin` to read an answer.
pub fn readable(
    origins: &CorsOrigins,
    origin: Option<&HeaderValue>,
) -> Vec<(HeaderName, HeaderValue)> {
    if *origins == CorsOrigins::Listed(Vec::new()) {
        return Vec::new();
    }
    // Caches must store answers to different origins separately, allowed or not.
    let mut headers = vec![(header::VARY, HeaderValue::from_static("origin"))];
    if let Some(value) = origin.and_then(|origin| allowed(origins, origin)) {
        headers.push((header::ACCESS_CONTROL_ALLOW_ORIGIN, value));
        headers.push((header::ACCESS_CONTROL_EXPOSE_HEADERS, EXPOSED));
    }
    headers
}

fn allowed(origins: &CorsOrigins, origin: &HeaderValue) -> Option<HeaderValue> {
    match origins {
        CorsOrigins::Any => Some(HeaderValue::from_static("*")),
        CorsOrigins::Listed(listed) => listed.contains(origin).then(|| origin.clone()),
    }
}
