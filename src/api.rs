//! The HTTP API: one route table; handlers translate and nothing more.

mod activity;
mod analyze;
mod auth;
mod checks;
mod clip;
mod conditions;
mod console;
mod cors;
mod doctor;
mod envelope;
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
mod keyless;
mod limits;
mod linger;
mod live_health;
mod markers;
mod media;
mod metadata;
mod metrics;
mod models;
mod openapi;
mod page;
mod pieces;
mod rate;
mod reason;
mod runs;
mod search;
mod settings;
mod signals;
mod source;
mod state;
mod stats;
mod stream;
mod thresholds;
mod tickets;
mod unsent;
mod upload;
mod webhooks;
mod whip;
mod wire;
mod zones;

use std::sync::Arc;

use axum::{
    Router,
    extract::DefaultBodyLimit,
    middleware::{from_fn_with_state, map_request},
    response::Response,
};
use utoipa_axum::{router::OpenApiRouter, routes};

pub use checks::Growth;
pub use cors::Origins;
pub use envelope::refusal_headers;
pub use error::ApiError;
pub use health::reasons;
pub use jobs::Desk;
pub use rate::{FAILURES_MAX, Rates};
pub use settings::{Settings, Tool};
pub use state::{ANALYSES_WAITING, App, DRAIN, FETCHERS, READERS_WAITING};
pub use thresholds::KEEPALIVE_FRAMES_MAX;
pub use unsent::accounts as unsent_accounts;

type ApiResult = Result<Response, ApiError>;

/// Every route that needs a key. A route's method and path stand with its handler: what is
/// served and what the document says are one annotation.
fn protected() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::with_openapi(openapi::empty())
        .routes(routes!(openapi::document))
        .routes(routes!(health::ready))
        .routes(routes!(doctor::diagnose))
        .routes(routes!(limits::list))
        .routes(routes!(stats::list))
        .routes(routes!(models::list))
        .routes(routes!(runs::list))
        .routes(routes!(runs::fetch, runs::update, runs::delete))
        .routes(routes!(runs::stop))
        .routes(routes!(runs::finish))
        .routes(routes!(runs::keepalive))
        .routes(routes!(runs::state))
        .routes(routes!(jobs::list))
        .routes(routes!(jobs::fetch, jobs::cancel))
        .routes(routes!(events::list))
        .routes(routes!(activity::list))
        .routes(routes!(markers::list))
        .routes(routes!(interactions::list))
        .routes(routes!(signals::list))
        .routes(routes!(signals::fetch))
        .routes(routes!(source::fetch))
        .routes(routes!(clip::fetch))
        .routes(routes!(tickets::create))
        .routes(routes!(media::list))
        .routes(routes!(media::fetch))
        .routes(routes!(events::query))
        .routes(routes!(files::list))
        .routes(routes!(files::fetch, files::delete))
        .routes(routes!(search::search))
        .routes(routes!(fleet::list))
        .routes(routes!(fleet::search))
        .routes(routes!(stream::of_run))
        .routes(routes!(stream::of_all))
        .routes(routes!(feedback::submit))
        .routes(routes!(feedback::list))
        .routes(routes!(webhooks::list, webhooks::create))
        .routes(routes!(webhooks::remove))
        .routes(routes!(webhooks::dead_letters))
        .routes(routes!(webhooks::redeliver))
        .routes(routes!(webhooks::of_all::list, webhooks::of_all::create))
        .routes(routes!(webhooks::of_all::remove))
        .routes(routes!(webhooks::of_all::dead_letters))
        .routes(routes!(webhooks::of_all::redeliver))
        .routes(routes!(live_health::fetch))
        .routes(routes!(whip::offer))
        .routes(routes!(whip::patch, whip::terminate))
        .routes(routes!(whip::prompt))
}

/// Routes that need a key, and act once where a request asks for it.
fn acting_once() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new()
        .routes(routes!(runs::create))
        .routes(routes!(infer::infer))
        .routes(routes!(infer::infer_batch))
}

/// Routes likewise, whose work is a job of a run.
fn working() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new()
        .routes(routes!(ingest::ingest))
        .routes(routes!(analyze::analyze))
        .routes(routes!(reason::reason))
}

/// Routes likewise, with bodies that are not read whole before they are acted on.
fn streamed() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new().routes(routes!(upload::upload))
}

/// Every route that needs none, or sees to it by itself.
fn open() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new()
        .routes(routes!(health::health))
        .routes(routes!(metrics::scrape))
        .routes(routes!(whip::options))
}

/// Every route of the service.
pub fn router(app: Arc<App>) -> Router {
    let keyed = from_fn_with_state(Arc::clone(&app), auth::authenticate);
    let once = from_fn_with_state(Arc::clone(&app), idempotency::once);
    let once_at_its_end = from_fn_with_state(Arc::clone(&app), idempotency::once_at_its_end);
    let streamed = Router::from(streamed()).route_layer(once_at_its_end).route_layer(keyed.clone());
    let as_job = from_fn_with_state(Arc::clone(&app), jobs::as_job);
    let working = Router::from(working()).route_layer(as_job);
    let acting_once = Router::from(acting_once()).merge(working).route_layer(once);
    let protected = Router::from(protected()).merge(acting_once).route_layer(keyed).merge(streamed);
    let protected = protected.route_layer(map_request(linger::linger));
    let console = if app.settings.console { console::routes() } else { Router::new() };
    Router::from(open())
        .merge(protected)
        .merge(console)
        .layer(DefaultBodyLimit::max(extract::BODY_BYTES_MAX))
        .layer(from_fn_with_state(Arc::clone(&app), envelope::wrap))
        .with_state(app)
}

/// The OpenAPI document of [`router`].
pub fn document() -> utoipa::openapi::OpenApi {
    openapi::complete(
        protected()
            .merge(acting_once())
            .merge(working())
            .merge(streamed())
            .merge(open())
            .into_openapi(),
    )
}

/// The text of [`document`], for people to read and `schemas/openapi.json` to hold.
pub fn document_text() -> String {
    serde_json::to_string_pretty(&document()).expect("our own types with string keys are writable")
}
