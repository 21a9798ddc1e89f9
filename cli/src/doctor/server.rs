//! Checks of a running server; if none runs, of the settings that one would have.

use std::process::{Command, Stdio};

use serde::Deserialize;

use super::{Check, CheckState};
use crate::{
    client::{ApiClient, ServerArgs},
    environment,
    error::CliError,
    output::printable,
};

/// Response of `GET /v1/doctor`.
#[derive(Deserialize)]
struct Diagnosis {
    checks: Vec<Found>,
}

#[derive(Deserialize)]
struct Found {
    name: String,
    status: String,
    message: String,
    advice: Option<String>,
}

/// Checks that the server answers, and returns the results of its own checks.
pub fn checks(args: &ServerArgs) -> Vec<Check> {
    let check = |state, detail: String| Check::new("server", "answers", state, detail);
    let client = match ApiClient::new(args) {
        Ok(client) => client,
        Err(error) => return vec![check(CheckState::Fail, error.to_string())],
    };
    let found: Diagnosis = match client.get("v1/doctor", &[]) {
        Ok(found) => found,
        Err(error @ CliError::Unreachable { .. }) => {
            return vec![check(CheckState::Absent, error.to_string()), configuration()];
        }
        Err(CliError::Api(error)) if matches!(error.status, 401 | 404) => {
            return vec![check(CheckState::Warn, error.message)];
        }
        Err(error @ CliError::Reply { .. }) => {
            let said = format!("{error}; another program has the port (SERVICE_BIND_ADDR)");
            return vec![check(CheckState::Fail, said)];
        }
        Err(error) => return vec![check(CheckState::Fail, error.to_string())],
    };
    let mut checks = vec![check(CheckState::Ok, printable(&client.target.server()))];
    checks.extend(found.checks.into_iter().map(Check::from));
    checks
}

impl From<Found> for Check {
    fn from(found: Found) -> Check {
        let state = match found.status.as_str() {
            "ok" => CheckState::Ok,
            "problem" => CheckState::Fail,
            _ => CheckState::Warn,
        };
        let advice = found.advice.map_or_else(String::new, |advice| format!(": {advice}"));
        let detail = printable(&format!("{}{advice}", found.message));
        Check::new("server", &printable(&found.name), state, detail)
    }
}

/// Checks the settings that a server would have in this environment.
fn configuration() -> Check {
    let check = |state, detail: &str| Check::new("server", "settings", state, printable(detail));
    let Some(server) = environment::server_program() else {
        return check(
            CheckState::Absent,
            "no sightline-server beside this program or on PATH to ask",
        );
    };
    let asked = Command::new(&server).arg("--check-config").stdin(Stdio::null()).output();
    let said = match asked {
        Ok(said) => said,
        Err(error) => {
            let said = format!("{} does not start: {error}", server.display());
            return check(CheckState::Fail, &said);
        }
    };
    let text = String::from_utf8_lossy(&said.stderr);
    let text: Vec<&str> =
        text.lines().map(|line| line.trim_start_matches("sightline-server: ")).collect();
    match (said.status.success(), text.is_empty()) {
        (true, true) => check(CheckState::Ok, "a server would start with this environment's"),
        (true, false) => check(CheckState::Warn, &text.join("; ")),
        (false, _) => {
            check(CheckState::Warn, &format!("a server would not start: {}", text.join("; ")))
        }
    }
}
