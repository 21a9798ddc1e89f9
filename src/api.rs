//! The HTTP API: one route table; handlers only translate between HTTP and the layers below.

mod activity;
mod analyze;
mod auth;
mod checks;
mod clip;
mod conditional;
mod console;
mod cors;
mod embedded;
mod error;
mod events;
mod extract;
mod feedback;
mod files;
mod fleet;
mod health;
mod idempotency;
mod infer;
mod ingest;
mod interactions;
mod jobs;
mod keyframes;
mod keyless;
mod limits;
mod lingering_close;
mod live_health;
mod markers;
mod metadata;
mod metrics;
mod middleware;
mod models;
mod openapi;
mod pagination;
mod prelude;
mod rate_limit;
mod reason;
mod routes;
mod runs;
mod search;
mod send_budget;
mod signals;
mod source;
mod state;
mod stats;
mod stream;
mod streamed_json;
mod thresholds;
mod tickets;
mod upload;
mod webhooks;
mod whip;
mod zones;

use std::sync::Arc;

use axum::{
    Router,
    extract::DefaultBodyLimit,
    middleware::{from_fn_with_state, map_request},
    response::Response,
};
use routes::{Routes, routes};
use webhooks::of_all as webhooks_of_all;

pub(crate) use cors::CorsOrigins;
pub(crate) use error::ApiError;
pub(crate) use health::reasons;
pub use middleware::refusal_headers;
pub(crate) use rate_limit::{FAILURES_MAX, RateLimits};
pub(crate) use send_budget::accounts as byte_accounts;
pub use state::App;
pub(crate) use state::{
    ANALYSES_WAITING, DRAIN, FETCHERS, READERS_WAITING, Settings, Tables, Tool,
};
pub(crate) use thresholds::KEEPALIVE_FRAMES_MAX;

type ApiResult<T = Response> = Result<T, ApiError>;

/// Routes that need a key. The annotation at each handler gives its method and path, both for the
/// router and for the OpenAPI document.
fn protected<R: Routes>(table: R) -> R {
    routes!(
        table,
        openapi::document,
        health::ready,
        checks::diagnose,
        limits::list,
        stats::list,
        models::list,
        runs::list,
        runs::fetch,
        runs::update,
        runs::delete,
        runs::stop,
        runs::finish,
        runs::keepalive,
        runs::state,
        jobs::list,
        jobs::fetch,
        jobs::cancel,
        events::list,
        activity::list,
        markers::list,
        interactions::list,
        signals::list,
        signals::fetch,
        source::fetch,
        clip::fetch,
        tickets::create,
        keyframes::list,
        keyframes::fetch,
        events::query,
        files::list,
        files::fetch,
        files::delete,
        search::search,
        fleet::list,
        fleet::search,
        stream::of_run,
        stream::of_all,
        feedback::submit,
        feedback::list,
        webhooks::list,
        webhooks::create,
        webhooks::remove,
        webhooks::dead_letters,
        webhooks::redeliver,
        webhooks_of_all::list,
        webhooks_of_all::create,
        webhooks_of_all::remove,
        webhooks_of_all::dead_letters,
        webhooks_of_all::redeliver,
        live_health::fetch,
        whip::offer,
        whip::patch,
        whip::terminate,
        whip::prompt,
    )
}

/// Routes that need a key and honour an `Idempotency-Key`.
fn acting_once<R: Routes>(table: R) -> R {
    routes!(table, runs::create, infer::infer, infer::infer_batch,)
}

/// Routes that need a key, honour an `Idempotency-Key`, and whose work is a job of a run.
fn working<R: Routes>(table: R) -> R {
    routes!(table, ingest::ingest, analyze::analyze, reason::reason,)
}

/// Routes that need a key and honour an `Idempotency-Key`, and whose handler streams the body.
fn streamed<R: Routes>(table: R) -> R {
    routes!(table, upload::upload,)
}

/// Routes that need no key, or check it in the handler.
fn open<R: Routes>(table: R) -> R {
    routes!(table, health::health, metrics::scrape, whip::options,)
}

/// Every route of the service.
pub fn router(app: Arc<App>) -> Router {
    let keyed = from_fn_with_state(Arc::clone(&app), auth::authenticate);
    let once = from_fn_with_state(Arc::clone(&app), idempotency::idempotent);
    let once_at_its_end = from_fn_with_state(Arc::clone(&app), idempotency::idempotent_deferred);
    let streamed = streamed(Router::new()).route_layer(once_at_its_end).route_layer(keyed.clone());
    let as_job = from_fn_with_state(Arc::clone(&app), jobs::as_job);
    let working = working(Router::new()).route_layer(as_job);
    let acting_once = acting_once(Router::new()).merge(working).route_layer(once);
    let protected = protected(Router::new()).merge(acting_once).route_layer(keyed).merge(streamed);
    let protected = protected.route_layer(map_request(lingering_close::linger));
    let console = if app.settings.console { console::routes() } else { Router::new() };
    open(Router::new())
        .merge(protected)
        .merge(console)
        .layer(DefaultBodyLimit::max(extract::BODY_BYTES_MAX))
        .layer(from_fn_with_state(Arc::clone(&app), middleware::wrap))
        .with_state(app)
}

/// `schemas/openapi.json` as of the build.
pub fn published_document() -> bytes::Bytes {
    openapi::PUBLISHED.whole()
}

/// Returns the OpenAPI document of [`router`], for readers and for `schemas/openapi.json`.
///
/// Not used by a running server, which serves [`published_document`].
pub fn document() -> String {
    let paths = protected(acting_once(working(streamed(open(openapi::empty())))));
    let document = serde_json::to_string_pretty(&openapi::complete(paths));
    document.expect("our own types with string keys are writable")
}
