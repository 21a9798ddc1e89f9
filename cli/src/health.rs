//! `sightline health`: an exit code for supervisors and load balancers.

use serde::Deserialize;
use serde_json::Value;

use crate::{
    client::{ApiClient, ServerArgs},
    error::CliError,
    output::{StdoutWriter, printable},
};

#[derive(clap::Args)]
pub struct HealthArgs {
    /// Check that it can take work too; needs a key
    #[arg(long)]
    ready: bool,
    #[command(flatten)]
    server: ServerArgs,
}

/// Response of a server that is not ready.
#[derive(Deserialize)]
struct Unready {
    reasons: Vec<String>,
}

pub fn run(args: &HealthArgs) -> Result<(), CliError> {
    let path = if args.ready { "v1/ready" } else { "v1/health" };
    let answer: Value =
        ApiClient::new(&args.server)?.get_at_once(path).map_err(|error| match error {
            CliError::Api(error) if args.ready && error.status == 503 => unready(&error.message),
            error => error,
        })?;
    let mut out = StdoutWriter::stdout();
    out.line(printable(answer["status"].as_str().unwrap_or_default()))?;
    out.finish()
}

/// Makes an error with the server's reasons, or with a proxy's plain text.
fn unready(said: &str) -> CliError {
    let reasons = serde_json::from_str(said).map(|unready: Unready| unready.reasons.join("; "));
    CliError::Check(format!("not ready: {}", reasons.as_deref().unwrap_or(said)))
}
