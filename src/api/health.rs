//! Liveness of the server, and its readiness to work.

use timeline::LogState;

use super::prelude::*;

/// Liveness of the server.
#[derive(Serialize, ToSchema)]
pub struct Liveness {
    /// Always `ok`.
    status: &'static str,
}

/// Return 200 while the server answers.
#[utoipa::path(
    get, path = "/v1/health", operation_id = "health", tag = "server", security(()),
    responses((status = 200, description = "The server answers", body = Liveness)),
)]
pub async fn health() -> Json<Liveness> {
    Json(Liveness { status: "ok" })
}

/// Readiness of the server.
#[derive(Serialize, ToSchema)]
struct Readiness {
    request_id: schema_types::RequestId,
    /// `ready` or `not_ready`.
    status: &'static str,
    /// Reasons why the server is not ready, as text.
    reasons: Vec<String>,
    /// External programs that were not found at the start.
    missing_tools: Vec<MissingTool>,
    /// Isolation of media workers: `full`, `partial` or `unavailable`.
    sandbox: &'static str,
    /// Missing parts of the isolation, and the setting that allows to read media without them; null if it
    /// is full.
    #[schema(required = true)]
    sandbox_detail: Option<String>,
}

/// An external program that was not found.
#[derive(Serialize, ToSchema)]
struct MissingTool {
    name: &'static str,
    /// Setting with the path of the program.
    variable: &'static str,
    /// Directories, or the path, that were searched.
    searched: String,
}

/// Return whether the server is ready to work.
#[utoipa::path(
    get, path = "/v1/ready", operation_id = "ready", tag = "server",
    responses(
        (status = 200, description = "Ready", body = Readiness),
        (status = 503, description = "Not ready, for these `reasons`", body = Readiness,
         headers(("retry-after" = u32, description = "Seconds after which to ask again"))),
    ),
)]
pub async fn ready(Call(app, caller): Call) -> ApiResult {
    let work = Arc::clone(&app);
    let reasons = app.blocking(move || reasons(&work)).await?;
    let missing = app.settings.tools.iter().filter(|tool| tool.path.is_none());
    let missing_tools = missing.map(|tool| MissingTool {
        name: tool.name,
        variable: tool.variable,
        searched: tool.searched.clone(),
    });
    let (code, status) = match reasons.is_empty() {
        true => (StatusCode::OK, "ready"),
        false => (StatusCode::SERVICE_UNAVAILABLE, "not_ready"),
    };
    let body = Readiness {
        request_id: caller.request_id.into(),
        status,
        reasons,
        missing_tools: missing_tools.collect(),
        sandbox: app.workers.sandbox(),
        sandbox_detail: app.workers.sandbox_detail(),
    };
    let mut response = (code, Json(body)).into_response();
    if code == StatusCode::SERVICE_UNAVAILABLE {
        response.headers_mut().insert(http::header::RETRY_AFTER, 5.into());
    }
    Ok(response)
}

/// Returns the reasons why the server cannot work, as text.
pub fn reasons(app: &App) -> Vec<String> {
    let mut reasons = Vec::new();
    match app.registry.timeline().state() {
        LogState::Writable => {}
        LogState::Poisoned { reason } => reasons.push(format!("the log is read-only: {reason}")),
        LogState::Closed => reasons.push("the log is closed".to_owned()),
    }
    match app.reserve.check() {
        Ok(refusal) => reasons.extend(refusal.map(|refusal| refusal.to_string())),
        Err(error) => reasons.push(format!("the data directory cannot be examined: {error}")),
    }
    if let Err(error) = app.ledger.check() {
        reasons.push(format!("records cannot be written: {error}"));
    }
    reasons.extend(app.search.death().map(|death| death.to_string()));
    if !app.live.port.is_open() {
        reasons
            .push("live video is not received: its receiver ended, another is opened".to_owned());
    }
    if app.draining.is_cancelled() {
        reasons.push("shutting down".to_owned());
    }
    reasons
}
