//! Checks for common mistakes in the setup of a server; each reports a status and a remedy.
//!
//! The reports contain no secret and no path of the server's files.

mod backends;
mod growth;
mod machine;
mod network;
mod store;

use super::prelude::*;
use crate::base::blocking::blocking;

pub use growth::Growth;

/// Status of a check's subject.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Status {
    /// Nothing to report.
    Ok,
    /// The subject works, but its setup could be improved.
    Advice,
    /// The subject does not work.
    Problem,
}

/// Result of one check.
#[derive(Serialize, ToSchema)]
#[schema(as = DoctorCheck)]
pub struct Check {
    name: String,
    #[schema(value_type = schema_types::CheckStatus)]
    status: Status,
    /// Finding of the check.
    message: String,
    /// Remedy; null if there is nothing to do.
    #[schema(required = true)]
    advice: Option<String>,
}

impl Check {
    fn new(
        name: impl Into<String>,
        status: Status,
        message: impl Into<String>,
        advice: Option<&str>,
    ) -> Check {
        let advice = advice.map(str::to_owned);
        Check { name: name.into(), status, message: message.into(), advice }
    }

    fn ok(name: impl Into<String>, message: impl Into<String>) -> Check {
        Check::new(name, Status::Ok, message, None)
    }

    fn advice(name: impl Into<String>, message: impl Into<String>, advice: &str) -> Check {
        Check::new(name, Status::Advice, message, Some(advice))
    }

    fn problem(name: impl Into<String>, message: impl Into<String>, advice: &str) -> Check {
        Check::new(name, Status::Problem, message, Some(advice))
    }
}

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
    let checks = checks(&app).await;
    Json(DoctorReport { request_id: caller.request_id.into(), checks })
}

async fn checks(app: &Arc<App>) -> Vec<Check> {
    let probes = app.inference.probe().await;
    let work = Arc::clone(app);
    let looked = blocking(move || {
        let mut checks = vec![network::keys(&work.settings), network::address(&work.settings)];
        checks.extend(store::checks(&work));
        checks.extend(backends::checks(&work, &probes));
        checks.push(network::webrtc(&work));
        checks.push(store::time(&work));
        checks.extend(machine::checks(&work));
        checks
    });
    let died = |_| vec![Check::problem("checks", "a check panicked", "look into the server's log")];
    looked.await.unwrap_or_else(died)
}
