//! Whether the server lives, whether it can work, and which limits it has.

use std::sync::Arc;

use axum::{
    Json,
    extract::State,
    response::{IntoResponse, Response},
};
use http::StatusCode;
use serde_json::json;
use timeline::Health;

use super::{
    ApiResult, App,
    extract::{BODY_BYTES_MAX, Caller},
};

/// `GET /v1/health`
pub async fn health() -> Response {
    Json(json!({ "status": "ok" })).into_response()
}

/// `GET /v1/ready`
pub async fn ready(State(app): State<Arc<App>>, caller: Caller) -> ApiResult {
    let work = Arc::clone(&app);
    let reasons = app.blocking(move || reasons(&work)).await?;
    let missing = app.config.tools.iter().filter(|tool| tool.path.is_none());
    let missing: Vec<_> = missing
        .map(|tool| {
            json!({ "name": tool.name, "variable": tool.variable, "searched": tool.searched })
        })
        .collect();
    let (status, word) = match reasons.is_empty() {
        true => (StatusCode::OK, "ready"),
        false => (StatusCode::SERVICE_UNAVAILABLE, "not_ready"),
    };
    let body = json!({
        "request_id": caller.request_id.to_string(),
        "status": word,
        "reasons": reasons,
        "missing_tools": missing,
        "sandbox": app.sandbox,
    });
    let mut response = (status, Json(body)).into_response();
    if status == StatusCode::SERVICE_UNAVAILABLE {
        response.headers_mut().insert(http::header::RETRY_AFTER, 5.into());
    }
    Ok(response)
}

/// Why the server cannot work now, in words.
fn reasons(app: &App) -> Vec<String> {
    let mut reasons = Vec::new();
    match app.registry.timeline().state() {
        Health::Writable => {}
        Health::Poisoned { reason } => reasons.push(format!("the log is read-only: {reason}")),
        Health::Closed => reasons.push("the log is closed".to_owned()),
    }
    match app.reserve.check() {
        Ok(low) => reasons.extend(low.map(|low| low.to_string())),
        Err(error) => reasons.push(format!("the data directory cannot be examined: {error}")),
    }
    if app.draining.is_cancelled() {
        reasons.push("shutting down".to_owned());
    }
    reasons
}

/// `GET /v1/limits`
pub async fn limits(State(app): State<Arc<App>>, caller: Caller) -> Response {
    let runs = app.registry.limits();
    let per_second = |rate: Option<std::num::NonZeroU32>| rate.map(std::num::NonZeroU32::get);
    let stored = app.quota.usage(&caller.principal);
    Json(json!({
        "request_id": caller.request_id.to_string(),
        "limits": {
            "body_bytes": BODY_BYTES_MAX,
            "active_runs": runs.active,
            "run_ttl_seconds": runs.ttl.as_secs(),
            "ingest": { "max_frames": [1, 500_000], "fixed_fps": [0.2, 120.0] },
            "analyze": {
                "frames": [1, 4096],
                "window_size": [2, 256],
                "segment_ms": [50, 60_000],
            },
            "query": { "limit": [1, 10_000], "wait_ms": [0, 30_000] },
            "list": { "limit": [1, 1000] },
            "picture": [8192, 8192],
            "container_streams": 16,
            "file_jobs": { "running": app.jobs, "waiting": crate::session::runner::QUEUE_MAX },
            "storage": { "used_bytes": stored.used, "quota_bytes": stored.quota },
            "rate": {
                "global_per_second": per_second(app.config.rate_global),
                "principal_per_second": per_second(app.config.rate_principal),
            },
        },
    }))
    .into_response()
}
