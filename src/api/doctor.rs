//! Runs the checks of the server's setup and reports them.

use axum::Json;
use serde::Serialize;
use utoipa::ToSchema;

use super::{
    checks::{self, Check},
    extract::Call,
    openapi::schema_types,
};

/// Results of all checks.
#[derive(Serialize, ToSchema)]
pub struct DoctorReport {
    request_id: schema_types::RequestId,
    checks: Vec<Check>,
}

/// Check for common mistakes in the setup: keys, addresses, roots, disk, backends, time, devices.
///
/// Returns no secret and no path of the server's files. Probes backends at most every five seconds.
#[utoipa::path(
    get, path = "/v1/doctor", operation_id = "diagnose", tag = "server",
    responses((status = 200, description = "What was found", body = DoctorReport)),
)]
pub async fn diagnose(Call(app, caller): Call) -> Json<DoctorReport> {
    let checks = checks::checks(&app).await;
    Json(DoctorReport { request_id: caller.request_id.into(), checks })
}
