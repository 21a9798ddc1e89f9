//! The server binary: arguments, configuration, run, exit code.
#![forbid(unsafe_code)]

use std::{fmt::Display, io::Write, process::ExitCode, sync::Arc, time::Duration};

use clap::Parser;
use sightline::{
    app,
    base::{metrics::Metrics, telemetry},
    config::{Config, TraceEndpoint},
    server::Signals,
};
use worker::WorkerProgram;

/// Video analysis server. Settings come from SERVICE_* environment variables.
#[derive(Parser)]
#[command(name = "sightline-server", version)]
struct Arguments {
    /// Print the resolved configuration, secrets masked, and exit
    #[arg(long)]
    check_config: bool,
    /// Print the OpenAPI document of the API and exit
    #[arg(long)]
    print_openapi: bool,
}

/// Exit status after an invalid configuration.
const BAD_CONFIG: u8 = 2;

/// Idle time after which a thread of the blocking pool exits. Idle threads take calls in turn, so a few
/// calls a second keep one thread for each call within this time, and each thread holds memory.
const BLOCKING_IDLE_MAX: Duration = Duration::from_secs(1);

fn main() -> ExitCode {
    // First of all: a media worker shares only the executable file with the server.
    if worker::is_worker_invocation() {
        return worker::worker_main();
    }
    worker::limit_arenas();
    sightline::base::tls::install_provider();
    let arguments = Arguments::parse();
    // Files of the server are unreadable to other users of the machine.
    rustix::process::umask(rustix::fs::Mode::RWXG | rustix::fs::Mode::RWXO);
    if arguments.print_openapi {
        let written = std::io::stdout().write_all(&sightline::api::published_document());
        return if written.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    }
    let config = match Config::from_env() {
        Ok(config) => config,
        Err(errors) => {
            for error in errors {
                eprintln!("sightline-server: {error}");
            }
            return ExitCode::from(BAD_CONFIG);
        }
    };
    if arguments.check_config {
        return check(&config);
    }
    let metrics = Arc::new(Metrics::new());
    let collector = config.traces_endpoint.as_ref().map(TraceEndpoint::as_str);
    let _flush = match telemetry::start(&config.log_filter, config.log_format, collector, &metrics)
    {
        Ok(flush) => flush,
        Err(error) => return failed(error),
    };
    for warning in &config.warnings {
        tracing::warn!("{warning}");
    }
    for tool in config.api.tools.iter().filter(|tool| tool.path.is_none()) {
        let (name, variable, searched) = (tool.name, tool.variable, &tool.searched);
        tracing::warn!(name, variable, searched, "a program is missing");
    }
    serve(config, metrics).unwrap_or_else(failed)
}

fn failed(error: impl Display) -> ExitCode {
    eprintln!("sightline-server: {error}");
    ExitCode::FAILURE
}

fn check(config: &Config) -> ExitCode {
    let shown: String = config.shown.iter().map(|shown| format!("{shown}\n")).collect();
    // An early close of the pipe by its reader, as by `head`, is no error.
    std::io::stdout().write_all(shown.as_bytes()).ok();
    for warning in &config.warnings {
        eprintln!("sightline-server: {warning}");
    }
    app::check(config).map_or_else(failed, |()| ExitCode::SUCCESS)
}

type Failure = Box<dyn std::error::Error>;

fn serve(config: Config, metrics: Arc<Metrics>) -> Result<ExitCode, Failure> {
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.enable_all().thread_keep_alive(BLOCKING_IDLE_MAX).build()?;
    runtime.block_on(async {
        // A signal during the start is handled, as a normal end, once the server runs.
        let signals = Signals::catch()?;
        let server = app::start(config, WorkerProgram::current(), metrics).await?;
        let intact = server.run(signals).await;
        Ok(if intact { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    })
}
