//! Authentication, tenants and the rate limit of principals.

use std::sync::atomic::Ordering::Relaxed;

use axum::{extract::State, middleware::Next};
use http::Extensions;
use media::Label;
use tracing::Span;
use transport::Peer;

use super::{error::is_refused, prelude::*, send_budget, tickets::Shown};
use crate::base::keys::ApiKeys;

const API_KEY: HeaderName = HeaderName::from_static("x-api-key");
const READY: &str = "/v1/ready";
const TENANT_ID: HeaderName = HeaderName::from_static("x-tenant-id");

/// Middleware that authenticates a request: adds its [`Caller`], or answers with an error.
pub async fn authenticate(
    State(app): State<Arc<App>>,
    mut request: Request,
    next: Next,
) -> Response {
    match caller(&app, &request) {
        Ok(caller) => {
            let principal = caller.principal.clone();
            Span::current().record("principal", principal.as_str());
            request.extensions_mut().insert(caller);
            let response = next.run(request).await;
            if is_refused(&response) {
                count_refusal(&app, &principal);
            }
            send_budget::count(&app, &principal, response)
        }
        Err(error) => error.into_response(),
    }
}

fn count_refusal(app: &App, principal: &Principal) {
    app.metrics.owners.of(principal).refused.fetch_add(1, Relaxed);
}

fn caller(app: &App, request: &Request) -> ApiResult<Caller> {
    let (extensions, headers) = (request.extensions(), request.headers());
    // An API key takes precedence over a keyless credential.
    let shown = Shown::of(request).filter(|_| matches!(credential(headers), Ok(None)));
    let principal = match (&shown, &app.settings.keys) {
        (Some(shown), _) => counted(app, extensions, shown.owner(app).ok_or(UNKNOWN))?,
        (None, None) => Principal::anonymous(),
        (None, Some(keys)) => principal(app, keys, extensions, headers)?,
    };
    let within = app.rates.of_principal(&principal).and_then(|()| {
        // Readiness probes are exempt: their answers are small, and monitoring must get them.
        let asks = request.method() == Method::GET && request.uri().path() != READY;
        if asks { send_budget::check(app, &principal) } else { Ok(()) }
    });
    within.inspect_err(|_| count_refusal(app, &principal))?;
    // Clients that cannot send a key cannot send a tenant either.
    let tenant = tenant(headers, app.settings.require_tenant_id && shown.is_none())?;
    let request_id = request.extensions().get::<RequestId>().copied();
    let request_id = request_id.ok_or(ApiError::Bug("a request outside the request id layer"))?;
    Ok(Caller { request_id, principal, tenant })
}

/// Checks the key of a metrics scrape, which belongs to no principal and needs no tenant.
pub fn check_scraper(app: &App, extensions: &Extensions, headers: &HeaderMap) -> ApiResult<()> {
    let Some(keys) = &app.settings.metrics_keys else { return Ok(()) };
    if keys.is_empty() {
        return Err(ApiError::MetricsUnavailable);
    }
    app.rates.of_principal(&principal(app, keys, extensions, headers)?)
}

const UNKNOWN: ApiError = ApiError::Unauthorized("missing or invalid API key");

fn principal(
    app: &App,
    keys: &ApiKeys,
    extensions: &Extensions,
    headers: &HeaderMap,
) -> ApiResult<Principal> {
    let found = match credential(headers) {
        Ok(None) => return Err(UNKNOWN),
        Ok(Some(key)) => keys.principal(key).cloned().ok_or(UNKNOWN),
        Err(error) => Err(error),
    };
    counted(app, extensions, found)
}

/// Returns the principal that was `found`. An invalid credential counts as a failed authentication, which is
/// limited per address; valid keys from the same address are not affected.
fn counted(
    app: &App,
    extensions: &Extensions,
    found: ApiResult<Principal>,
) -> ApiResult<Principal> {
    found.or_else(|error| {
        let Peer(address) = *extensions.get().ok_or(ApiError::Bug("a request from nowhere"))?;
        app.rates.of_failure(address)?;
        Err(error)
    })
}

/// Returns the request's credential from either header; fails if there are two different ones.
fn credential(headers: &HeaderMap) -> ApiResult<Option<&[u8]>> {
    let keys = headers.get_all(API_KEY).into_iter().map(|value| value.as_bytes());
    let bearers = headers.get_all(header::AUTHORIZATION).into_iter().filter_map(|value| {
        let (scheme, token) = value.as_bytes().split_at_checked(7)?;
        scheme.eq_ignore_ascii_case(b"bearer ").then(|| token.trim_ascii())
    });
    let mut found = None;
    for key in keys.chain(bearers) {
        if *found.get_or_insert(key) != key {
            return Err(ApiError::Unauthorized("two different credentials in one request"));
        }
    }
    Ok(found)
}

fn tenant(headers: &HeaderMap, required: bool) -> ApiResult<Option<String>> {
    let mut given = headers.get_all(TENANT_ID).iter();
    let first = given.next();
    if given.any(|other| Some(other) != first) {
        return Err(ApiError::field(
            "x-tenant-id",
            "is given more than once, with different values",
        ));
    }
    let Some(value) = first.filter(|value| !value.is_empty()) else {
        let missing = ApiError::Unauthorized("x-tenant-id is required");
        return if required { Err(missing) } else { Ok(None) };
    };
    let text = std::str::from_utf8(value.as_bytes()).ok();
    let label: Option<Label> = text.and_then(|text| text.parse().ok());
    let label = label.ok_or_else(|| {
        let problem = "must be 1 to 128 bytes of UTF-8 without control characters";
        ApiError::field("x-tenant-id", problem)
    })?;
    Ok(Some(label.as_str().to_owned()))
}
