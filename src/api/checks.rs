//! Checks for common mistakes in the setup of a server; each reports a status and a remedy.
//!
//! The reports contain no secret and no path of the server's files.

mod backends;
mod growth;
mod machine;
mod network;
mod store;

use std::sync::Arc;

use crate::{api::App, base::blocking::blocking};

pub use growth::Growth;

media::named! {
    /// Status of a check's subject.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Status {
        /// Nothing to report.
        Ok = "ok",
        /// The subject works, but its setup could be improved.
        Advice = "advice",
        /// The subject does not work.
        Problem = "problem",
    }
}

/// Result of one check.
#[derive(Clone, Debug)]
pub struct Check {
    /// Name of the check.
    pub name: String,
    /// Status of the subject.
    pub status: Status,
    /// Finding of the check.
    pub message: String,
    /// Remedy; `None` if there is nothing to do.
    pub advice: Option<String>,
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

/// Runs every check of the server.
pub async fn checks(app: &Arc<App>) -> Vec<Check> {
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
