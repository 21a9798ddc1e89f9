//! Processing of one request, for all versions of HTTP.

use std::{
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
};

use axum::body::Body;
use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode, Version, header};
use http_body::{Body as HttpBody, Frame, SizeHint};
use tower::ServiceExt;

use crate::{
    ServiceConfig,
    connection_state::{PeerStallGuard, RequestGuard},
    error_response,
    timeouts::{BodyExpired, TimeoutBody},
};

/// Most headers of a request; hyper's default is 100. The limit on bytes is the one that matters.
pub(crate) const HEADERS_MAX: usize = 1024;

/// Answers `request`; enforces the limits on its headers and its silence.
pub(crate) async fn handle_request<B>(
    mut request: Request<B>,
    site: ServiceConfig,
    in_flight: RequestGuard,
) -> Response<TrackedBody>
where
    B: HttpBody<Data = Bytes, Error: Into<axum::BoxError>> + Send + Unpin + 'static,
{
    let (limits, state) = (site.limits, &in_flight.0);
    request.extensions_mut().insert(state.peer);
    let too_large = head_bytes(&request) > limits.header_bytes_max;
    let elsewhere = site.elsewhere.filter(|_| request.version() < Version::HTTP_3);
    let is_head = request.method() == Method::HEAD;
    let mut response = if too_large || request.headers().len() > HEADERS_MAX {
        let status = StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE;
        error_response::response(status, "request headers too large", site.refusal_headers)
    } else if !names_its_host(&request) {
        let text = "a request names its host once";
        error_response::response(StatusCode::BAD_REQUEST, text, site.refusal_headers)
    } else {
        let close = request.version() < Version::HTTP_2;
        let expired: BodyExpired = Arc::new(AtomicBool::new(false));
        let body =
            |body| Body::new(TimeoutBody::new(body, limits.idle, Arc::clone(&expired), state));
        let response = match site.router.oneshot(request.map(body)).await {
            Ok(response) => response,
            Err(never) => match never {},
        };
        if expired.load(Ordering::Relaxed) { timed_out(response, close) } else { response }
    };
    if let Some(elsewhere) = elsewhere {
        response.headers_mut().insert(header::ALT_SVC, elsewhere);
    }
    if !is_head {
        set_length(&mut response);
    }
    let body = std::mem::take(response.body_mut());
    let mut debt = PeerStallGuard::new(state);
    debt.set(true);
    response.map(|_| TrackedBody { body, debt, _in_flight: in_flight })
}

/// Returns true if the request has exactly one Host as HTTP/1.1 requires (RFC 9112 3.2): otherwise proxies
/// and this server might disagree about the site.
fn names_its_host<B>(request: &Request<B>) -> bool {
    let hosts = request.headers().get_all(header::HOST).iter().count();
    request.version() != Version::HTTP_11 || hosts == 1
}

/// Sets the content-length: none if the status permits no body (RFC 9110 8.6), else the length of the body if
/// known.
fn set_length(response: &mut Response<Body>) {
    let is_bodiless =
        matches!(response.status(), StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
    let known = response.body().size_hint().exact();
    let headers = response.headers_mut();
    if is_bodiless {
        headers.remove(header::CONTENT_LENGTH);
    } else if let Some(len) = known {
        headers.entry(header::CONTENT_LENGTH).or_insert_with(|| len.into());
    }
}

/// Returns the size of the head in HTTP/1.1 form, in bytes.
fn head_bytes<B>(request: &Request<B>) -> usize {
    let target = request.uri().path_and_query().map_or(0, |target| target.as_str().len());
    let line = request.method().as_str().len() + target + " HTTP/1.1\r\n\r\n".len() + 1;
    let field = |(name, value): (&http::HeaderName, &HeaderValue)| {
        name.as_str().len() + value.len() + ": \r\n".len()
    };
    line + request.headers().iter().map(field).sum::<usize>()
}

/// Turns the router's response to a timed-out body into a 408; its headers stay, above all the request id.
fn timed_out(mut response: Response<Body>, close: bool) -> Response<Body> {
    *response.status_mut() = StatusCode::REQUEST_TIMEOUT;
    *response.body_mut() = Body::from("request timed out");
    let headers = response.headers_mut();
    headers.remove(header::CONTENT_LENGTH);
    headers.insert(header::CONTENT_TYPE, error_response::PLAIN);
    if close {
        headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

/// Response body that counts its request as in progress until the last byte is taken.
pub(crate) struct TrackedBody {
    body: Body,
    /// Set after each part until the next one is requested.
    debt: PeerStallGuard,
    _in_flight: RequestGuard,
}

impl HttpBody for TrackedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let frame = Pin::new(&mut self.body).poll_frame(cx);
        self.debt.set(matches!(frame, Poll::Ready(Some(_))));
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
