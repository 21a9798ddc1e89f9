//! Outermost middleware: request id, log line, error envelope and default headers of every
//! response.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    pin::pin,
    task::Poll,
    time::Instant,
};

use axum::{
    extract::{MatchedPath, State},
    middleware::Next,
};
use tracing::{Instrument, Span, field::Empty};

use super::{cors, error::ErrorExtension, extract::Prefix, keyless, prelude::*, whip};
use crate::base::telemetry::{SPANS, continue_trace};

pub const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Route label in the metrics for requests that match no route.
const UNMATCHED: &str = "unmatched";

/// Maximum bytes of a method or a path in the log; those of the routes are shorter.
const LOGGED_BYTES_MAX: usize = 256;

/// Default response headers; a route may override them.
const DEFAULTS: [(HeaderName, HeaderValue); 4] = [
    (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
    (header::REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
    (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
    (
        header::CONTENT_SECURITY_POLICY,
        HeaderValue::from_static("default-src 'none'; frame-ancestors 'none'"),
    ),
];

/// Returns the headers of an answer given without any route.
pub fn refusal_headers() -> HeaderMap {
    let mut headers = HeaderMap::from_iter(DEFAULTS);
    headers.insert(REQUEST_ID, id_value(RequestId::from_bytes(crate::base::random_bytes())));
    headers
}

fn id_value(request_id: RequestId) -> HeaderValue {
    HeaderValue::from_str(&request_id.to_string()).expect("an id is visible ASCII")
}

pub async fn wrap(State(app): State<Arc<App>>, mut request: Request, next: Next) -> Response {
    let started = Instant::now();
    let request_id = RequestId::from_bytes(crate::base::random_bytes());
    request.extensions_mut().insert(request_id);
    let route = request.extensions().get::<MatchedPath>().cloned();
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let template = route.as_ref().map_or(UNMATCHED, MatchedPath::as_str);
    let span = span(&request, request_id, template);
    let origin = request.headers().get(header::ORIGIN).cloned();
    let prefix = Prefix::of(&request);
    let mut response = match refused(&app, &request) {
        Some(response) => response,
        None => run(next, request).instrument(span.clone()).await,
    };
    if let Some(ErrorExtension(error)) = response.extensions_mut().remove::<ErrorExtension>() {
        if let Some(refusal) = error.refusal() {
            app.metrics.refusals.of(refusal).inc();
            app.rates.give_back(refusal);
        }
        response = if fails_in_plain_text(&path) {
            error.plain(request_id)
        } else {
            error.envelope(request_id)
        };
    }
    let headers = response.headers_mut();
    for (name, value) in DEFAULTS {
        headers.entry(name).or_insert(value);
    }
    prefix.lead(headers);
    headers.extend(cors::readable(&app.settings.cors_origins, origin.as_ref()));
    // A replayed answer keeps the id of the original request, as its body does.
    headers.entry(REQUEST_ID).or_insert_with(|| id_value(request_id));
    let (status, took) = (response.status().as_u16(), started.elapsed());
    span.record("http.response.status_code", status);
    if status >= 500 {
        span.record("otel.status_code", "ERROR");
    }
    app.metrics.answered(template, &method, response.status(), took.as_secs_f64());
    let (method, path, us) = (logged(method.as_str()), logged(&path), took.as_micros() as u64);
    tracing::info!(%request_id, %method, path, status, us, "request");
    response
}

/// Returns the part of `text` that is logged: callers without a key must not fill the log.
fn logged(text: &str) -> &str {
    &text[..text.floor_char_boundary(LOGGED_BYTES_MAX)]
}

/// Returns true if every failure at `path` is plain text: WHIP, and serving files.
pub fn fails_in_plain_text(path: &str) -> bool {
    let is_below = |rest: &str| rest.is_empty() || rest.starts_with('/');
    path.strip_prefix(whip::BASE).is_some_and(is_below) || path.starts_with("/v1/files/")
}

/// Creates the span of a request, with OpenTelemetry's attribute names and own ones.
fn span(request: &Request, request_id: RequestId, route: &str) -> Span {
    let method = logged(request.method().as_str());
    let span = tracing::info_span!(
        target: SPANS,
        "request",
        otel.name = format!("{method} {route}"),
        otel.kind = "server",
        otel.status_code = Empty,
        http.request.method = %method,
        http.route = route,
        http.response.status_code = Empty,
        url.path = logged(request.uri().path()),
        %request_id,
        principal = Empty,
    );
    continue_trace(&span, request.headers());
    span
}

/// Returns the answer to a request that is refused before routing.
fn refused(app: &App, request: &Request) -> Option<Response> {
    let checked = app.rates.of_all().and_then(|()| keyless::check(&app.settings, request));
    if let Err(error) = checked {
        return Some(error.into_response());
    }
    let uri = request.uri();
    let decodes = |text: &str| crate::base::percent::decode(text.as_bytes()).is_some();
    if !decodes(uri.path()) || !uri.query().is_none_or(decodes) {
        let text = "the request target has percent-encoding that is broken or not UTF-8".to_owned();
        return Some(ApiError::Plain(StatusCode::BAD_REQUEST, text).into_response());
    }
    cors::preflight(&app.settings.cors_origins, request)
}

/// Runs the handler; a panic is a bug of the server and answers 500 without further harm.
async fn run(next: Next, request: Request) -> Response {
    let mut answer = pin!(next.run(request));
    std::future::poll_fn(|cx| {
        catch_unwind(AssertUnwindSafe(|| answer.as_mut().poll(cx)))
            .unwrap_or_else(|_| Poll::Ready(ApiError::Bug("a handler panicked").into_response()))
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_logged_of_a_request_is_bounded() {
        let (short, long) = ("/v1/runs", "/a".repeat(30_000));
        assert_eq!((logged(short), logged(&long).len()), (short, LOGGED_BYTES_MAX));
    }

    #[test]
    fn only_whip_and_files_fail_in_plain_text() {
        for (path, is_plain) in [
            ("/v1/stream/whip", true),
            ("/v1/stream/whip/sess-1", true),
            ("/v1/stream/whipped", false),
            ("/v1/files/a.mp4", true),
            ("/v1/files", false),
        ] {
            assert_eq!(fails_in_plain_text(path), is_plain, "{path}");
        }
    }
}
