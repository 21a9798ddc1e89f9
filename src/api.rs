//! The HTTP API: one route table; handlers translate and nothing more.

mod analyze;
mod auth;
mod cors;
mod envelope;
mod error;
mod events;
mod extract;
mod feedback;
mod health;
mod ingest;
mod markers;
mod media;
mod metadata;
mod metrics;
mod page;
mod pieces;
mod rate;
mod runs;
mod wire;

use std::sync::Arc;

use axum::{
    Router,
    extract::DefaultBodyLimit,
    middleware::from_fn_with_state,
    response::Response,
    routing::{get, post},
};

use crate::app::App;

use error::ApiError;

pub use envelope::refusal_headers;
pub use rate::Rates;

type ApiResult = Result<Response, ApiError>;

/// Every route of the service.
pub fn router(app: Arc<App>) -> Router {
    let protected = Router::new()
        .route("/v1/ready", get(health::ready))
        .route("/v1/limits", get(health::limits))
        .route("/v1/runs", get(runs::list).post(runs::create))
        .route("/v1/runs/{id}", get(runs::fetch).delete(runs::delete))
        .route("/v1/runs/{id}/stop", post(runs::stop))
        .route("/v1/runs/{id}/keepalive", post(runs::keepalive))
        .route("/v1/runs/{id}/state", get(runs::state))
        .route("/v1/runs/{id}/ingest", post(ingest::ingest))
        .route("/v1/runs/{id}/analyze", post(analyze::analyze))
        .route("/v1/runs/{id}/events", get(events::list))
        .route("/v1/runs/{id}/markers", get(markers::list))
        .route("/v1/runs/{id}/keyframes", get(media::list))
        .route("/v1/runs/{id}/keyframes/{sha256}", get(media::fetch))
        .route("/v1/runs/{id}/feedback", post(feedback::submit))
        .route("/v1/feedback", get(feedback::list))
        .route("/v1/query", post(events::query))
        .route_layer(from_fn_with_state(Arc::clone(&app), auth::authenticate));
    Router::new()
        .route("/v1/health", get(health::health))
        .route("/v1/metrics", get(metrics::scrape))
        .merge(protected)
        .layer(DefaultBodyLimit::max(extract::BODY_BYTES_MAX))
        .layer(from_fn_with_state(Arc::clone(&app), envelope::wrap))
        .with_state(app)
}

impl App {
    /// Refuses new work while the server shuts down or the disk is almost full.
    fn check_open(&self) -> Result<(), ApiError> {
        if self.draining.is_cancelled() {
            return Err(ApiError::Draining);
        }
        match self.reserve.check() {
            Ok(Some(low)) => Err(ApiError::DiskLow(low)),
            // A disk that cannot be examined is for the log to refuse.
            Ok(None) | Err(_) => Ok(()),
        }
    }

    /// Runs what reads the disk away from the threads that serve sockets.
    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, ApiError> {
        let done = tokio::task::spawn_blocking(work).await;
        done.map_err(|_| ApiError::Bug("blocking work panicked"))
    }
}
