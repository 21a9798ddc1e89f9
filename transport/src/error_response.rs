//! Responses without a router: to request heads that are too large, too slow or invalid.

use axum::body::Body;
use http::{HeaderMap, HeaderValue, Response, StatusCode, header};

/// Function that returns the extra headers of every refusal.
pub type ExtraHeaders = fn() -> HeaderMap;

/// Content type of every refusal.
pub(crate) const PLAIN: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");

pub(crate) fn response(
    status: StatusCode,
    text: &'static str,
    headers: ExtraHeaders,
) -> Response<Body> {
    let mut response = Response::new(Body::from(text));
    *response.status_mut() = status;
    *response.headers_mut() = headers();
    response.headers_mut().insert(header::CONTENT_TYPE, PLAIN);
    response
}

/// Serialises a refusal as HTTP/1.1 with `connection: close`.
pub(crate) fn bytes(status: StatusCode, text: &str, headers: ExtraHeaders) -> Vec<u8> {
    let mut bytes = format!(
        "HTTP/1.1 {status}\r\ncontent-type: text/plain; charset=utf-8\r\ncontent-length: {}\r\n\
         connection: close\r\n",
        text.len()
    )
    .into_bytes();
    if status == StatusCode::SERVICE_UNAVAILABLE {
        bytes.extend_from_slice(b"retry-after: 1\r\n");
    }
    for (name, value) in &headers() {
        bytes.extend([name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"].concat());
    }
    bytes.extend([b"\r\n", text.as_bytes()].concat());
    bytes
}

/// Returns the status if `written` is a refusal by hyper itself: a 4xx head with no body and no type.
pub(crate) fn bare(written: &[u8]) -> Option<StatusCode> {
    let rest = written.strip_prefix(b"HTTP/1.1 ").filter(|rest| rest.starts_with(b"4"))?;
    let head = std::str::from_utf8(rest.strip_suffix(b"\r\n\r\n")?).ok()?;
    let ours = |line: &str| {
        let name = line.split(':').next().unwrap_or_default();
        !["content-length", "date", "connection"].contains(&name)
    };
    let mut lines = head.split("\r\n");
    let status = lines.next()?.get(..3)?.parse().ok()?;
    (!lines.any(ours)).then_some(status)
}
