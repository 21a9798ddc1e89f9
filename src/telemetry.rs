//! Logs: text for people on stdout, one JSON object a line on stderr.

use tracing_subscriber::{EnvFilter, fmt, layer::SubscriberExt, util::SubscriberInitExt};

/// Why logging cannot start.
#[derive(Debug, thiserror::Error)]
pub enum TelemetryError {
    /// The filter does not parse.
    #[error("log filter: {0}")]
    Filter(#[from] tracing_subscriber::filter::ParseError),
    /// A subscriber is there already.
    #[error("logging is set up twice: {0}")]
    Twice(#[from] tracing_subscriber::util::TryInitError),
}

/// Starts logging what `filter` lets through.
pub fn start(filter: &str) -> Result<(), TelemetryError> {
    tracing_subscriber::registry()
        .with(EnvFilter::try_new(filter)?)
        .with(fmt::layer().with_ansi(false).with_writer(std::io::stdout))
        .with(fmt::layer().json().flatten_event(true).with_writer(std::io::stderr))
        .try_init()?;
    Ok(())
}
