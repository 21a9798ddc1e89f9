//! Runs the checks of the server's setup and reports them.

use std::sync::Arc;

use axum::{Json, extract::State};
use serde::Serialize;
use utoipa::ToSchema;

use super::{
    App,
    checks::{self, Check},
    extract::Caller,
    openapi::schema_types,
};

/// Results of all checks.
#[derive(Serialize, ToSchema)]
pub struct DoctorReport {
    request_id: schema_types::RequestId,
    checks: Vec<CheckRecord>,
}

/// Result of one check.
#[derive(Serialize, ToSchema)]
#[schema(as = DoctorCheck)]
struct CheckRecord {
    name: String,
    #[schema(value_type = schema_types::CheckStatus)]
    status: &'static str,
    /// Finding of the check.
    message: String,
    /// Remedy; null if there is nothing to do.
    #[schema(required = true)]
    advice: Option<String>,
}

impl From<Check> for CheckRecord {
    fn from(check: Check) -> CheckRecord {
        let Check { name, status, message, advice } = check;
        CheckRecord { name, status: status.as_str(), message, advice }
    }
}

/// Check for common mistakes in the setup: keys, addresses, roots, disk, backends, time, devices.
///
/// Returns no secret and no path of the server's files. Probes backends at most every five seconds.
#[utoipa::path(
    get, path = "/v1/doctor", operation_id = "diagnose", tag = "server",
    responses((status = 200, description = "What was found", body = DoctorReport)),
)]
pub async fn diagnose(State(app): State<Arc<App>>, caller: Caller) -> Json<DoctorReport> {
    let checks = checks::checks(&app).await;
    let checks = checks.into_iter().map(CheckRecord::from).collect();
    Json(DoctorReport { request_id: caller.request_id.into(), checks })
}
