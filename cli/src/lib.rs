//! The `sightline` command line: arguments in, data on standard output, an exit code out.
//!
//! Each subcommand is one module. The same program is the sandboxed media worker when it is
//! re-executed with the hidden argument that [`worker::is_worker_invocation`] looks for.
#![forbid(unsafe_code)]

/// Prints a line to stderr; ignores a closed stderr.
macro_rules! note {
    ($($said:tt)*) => {{
        use std::io::Write as _;
        writeln!(std::io::stderr(), $($said)*).ok();
    }};
}

mod activity;
mod analysis;
mod analyze;
mod backup;
mod bench;
mod capacity;
mod certs;
mod client;
mod completions;
mod demo;
mod doctor;
mod embed_server;
mod environment;
mod error;
mod events;
mod export;
mod files;
mod fleet;
mod health;
mod interactions;
mod interrupt;
mod jobs;
mod keyframes;
mod log;
mod markers;
mod mcp;
mod models;
mod output;
mod progress;
mod replace;
mod report;
mod run;
mod runs;
mod search;
mod thresholds;
mod trust;
mod upload;
mod verify;
mod webhooks;
mod whip;
mod wire;
mod words;
mod work;
mod zones;

use std::process::ExitCode;

use clap::{Arg, CommandFactory, FromArgMatches, Parser, Subcommand};

use crate::error::{CliError, EXIT_CODES};

/// Analyse video, alone or with a Sightline server
#[derive(Parser)]
#[command(name = "sightline", version, propagate_version = true, after_long_help = EXIT_CODES)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

/// Makes the enum of the subcommands from their modules' arguments and functions.
macro_rules! commands {
    ($($(#[$($about:tt)*])* $name:ident($module:ident::$args:ident) => $run:ident,)*) => {
        #[derive(Subcommand)]
        enum Command {
            $($(#[$($about)*])* $name($module::$args),)*
        }

        impl Command {
            fn run(&self) -> Result<(), CliError> {
                match self {
                    $(Command::$name(args) => $module::$run(args),)*
                }
            }
        }
    };
}

commands! {
    /// Analyse a video file without a server
    Analyze(analyze::AnalyzeArgs) => run,
    /// Analyse a file, a URL or a camera on a server, and print its findings
    Run(run::RunArgs) => run,
    /// Manage runs on a server, step by step
    Runs(runs::RunsArgs) => run,
    /// Show the events of a run
    Events(events::EventsArgs) => run,
    /// Show the models' answers about a run
    Interactions(interactions::InteractionsArgs) => run,
    /// Find descriptions that contain a text
    Search(search::SearchArgs) => run,
    /// Read the runs of every server that mirrors its events to one database
    Fleet(fleet::FleetArgs) => run,
    /// Show the episodes of a run in which something moves
    Activity(activity::ActivityArgs) => run,
    /// Show the markers of a run
    Markers(markers::MarkersArgs) => run,
    /// Write a run's frames, episodes, markers and events as Parquet files
    Export(export::ExportArgs) => run,
    /// List the stills of a run
    Keyframes(keyframes::KeyframesArgs) => list,
    /// Save a still of a run as JPEG
    Keyframe(keyframes::KeyframeArgs) => get,
    /// Show the jobs of a run in progress, or cancel one
    Jobs(jobs::JobsArgs) => run,
    /// List the models of a server and what its backends have
    Models(models::ModelsArgs) => run,
    /// Upload a media file to a server
    Upload(upload::UploadArgs) => run,
    /// Manage your uploads on a server
    Files(files::FilesArgs) => run,
    /// Have events sent to a URL
    Webhooks(webhooks::WebhooksArgs) => run,
    /// Copy the data directory of a server, which may run
    Backup(backup::BackupArgs) => run,
    /// Verify, print or repair the run log on disk
    Log(log::LogArgs) => run,
    /// Decode a run's source again and check every signal, decision and still of the run
    Verify(verify::VerifyArgs) => run,
    /// Check this machine and its server, and say what is wrong and how to fix it
    Doctor(doctor::DoctorArgs) => run,
    /// Check that a server answers: a probe for containers and load balancers
    Health(health::HealthArgs) => run,
    /// Work out the machines, disks and traffic of a fleet, with the arithmetic
    Capacity(capacity::FleetArgs) => run,
    /// Benchmark this machine
    Bench(bench::BenchArgs) => run,
    /// Run an embedding sidecar for servers, over TCP
    EmbedServer(embed_server::EmbedServerArgs) => run,
    /// Publish video files as live streams
    Whip(whip::WhipArgs) => run,
    /// Run the demo: start a server, ingest and analyze a video, write a report
    Demo(demo::DemoArgs) => run,
    /// Make certificates to try TLS and HTTP/3 with
    Certs(certs::CertsArgs) => run,
    /// Let an assistant read a server's runs, by the Model Context Protocol
    Mcp(mcp::McpArgs) => run,
    /// Print a shell completion script
    Completions(completions::CompletionsArgs) => run,
}

/// Runs the command in the process's arguments, and returns its exit code.
pub fn main() -> ExitCode {
    if worker::is_worker_invocation() {
        return worker::worker_main();
    }
    match parsed().command.run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if error.is_closed_stdout() => ExitCode::SUCCESS,
        Err(error) => {
            report(&error);
            ExitCode::from(error.exit() as u8)
        }
    }
}

/// Parses the arguments. An empty variable counts as unset, as for the server.
fn parsed() -> Cli {
    let matches = without_empty(Cli::command()).get_matches();
    Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit())
}

/// Returns the command with no argument that takes an empty variable.
fn without_empty(command: clap::Command) -> clap::Command {
    let unset = |arg: Arg| match arg.get_env().is_some_and(environment::is_empty) {
        true => arg.env(None::<&'static str>),
        false => arg,
    };
    command.mut_args(unset).mut_subcommands(without_empty)
}

/// Prints an error; file names and server texts in it are untrusted, so hidden characters are replaced.
fn report(error: &CliError) {
    let text = error.to_string();
    let lines: Vec<String> = text.lines().map(output::printable).collect();
    note!("sightline: {}", lines.join("\n"));
}
