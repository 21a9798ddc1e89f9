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

use clap::{Parser, Subcommand};

use crate::error::{CliError, EXIT_CODES};

/// Analyse video, alone or with a Sightline server
#[derive(Parser)]
#[command(name = "sightline", version, propagate_version = true, after_long_help = EXIT_CODES)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Analyse a video file without a server
    Analyze(analyze::AnalyzeArgs),
    /// Analyse a file, a URL or a camera on a server, and print its findings
    Run(run::RunArgs),
    /// Manage runs on a server, step by step
    Runs(runs::RunsArgs),
    /// Show the events of a run
    Events(events::EventsArgs),
    /// Show the models' answers about a run
    Interactions(interactions::InteractionsArgs),
    /// Find descriptions that have a text in them
    Search(search::SearchArgs),
    /// Read the runs of every server that mirrors its events to one database
    Fleet(fleet::FleetArgs),
    /// Show the episodes of a run in which something moves
    Activity(activity::ActivityArgs),
    /// Show the markers of a run
    Markers(markers::MarkersArgs),
    /// Write a run's frames, episodes, markers and events as Parquet files
    Export(export::ExportArgs),
    /// List the stills of a run
    Keyframes(keyframes::KeyframesArgs),
    /// Save a still of a run as JPEG
    Keyframe(keyframes::KeyframeArgs),
    /// Show the jobs of a run in progress, or cancel one
    Jobs(jobs::JobsArgs),
    /// List the models of a server and what its backends have
    Models(models::ModelsArgs),
    /// Upload a media file to a server
    Upload(upload::UploadArgs),
    /// Manage your uploads on a server
    Files(files::FilesArgs),
    /// Have events sent to a URL
    Webhooks(webhooks::WebhooksArgs),
    /// Copy the data directory of a server, which may run
    Backup(backup::BackupArgs),
    /// Verify, print or repair the run log on disk
    Log(log::LogArgs),
    /// Decode a run's source again and prove every signal, decision and still of it
    Verify(verify::VerifyArgs),
    /// Check this machine and its server, and say what is wrong and how to fix it
    Doctor(doctor::DoctorArgs),
    /// Check that a server answers, for what restarts it or sends it requests
    Health(health::HealthArgs),
    /// Work out the machines, disks and traffic of a fleet, with the arithmetic
    Capacity(capacity::FleetArgs),
    /// Benchmark this machine
    Bench(bench::BenchArgs),
    /// Run an embedding sidecar for servers, over TCP
    EmbedServer(embed_server::EmbedServerArgs),
    /// Publish video files as live streams
    Whip(whip::WhipArgs),
    /// Run the demo: start a server, ingest and analyze a video, write a report
    Demo(demo::DemoArgs),
    /// Make certificates to try TLS and HTTP/3 with
    Certs(certs::CertsArgs),
    /// Let an assistant read a server's runs, by the Model Context Protocol
    Mcp(mcp::McpArgs),
    /// Print a shell completion script
    Completions(completions::CompletionsArgs),
}

/// Runs the command in the process's arguments, and returns its exit code.
pub fn main() -> ExitCode {
    if worker::is_worker_invocation() {
        return worker::worker_main();
    }
    let outcome = match Cli::parse().command {
        Command::Analyze(args) => analyze::run(&args),
        Command::Run(args) => run::run(&args),
        Command::Runs(args) => runs::run(&args),
        Command::Events(args) => events::run(&args),
        Command::Interactions(args) => interactions::run(&args),
        Command::Search(args) => search::run(&args),
        Command::Fleet(args) => fleet::run(&args),
        Command::Activity(args) => activity::run(&args),
        Command::Markers(args) => markers::run(&args),
        Command::Export(args) => export::run(&args),
        Command::Keyframes(args) => keyframes::list(&args),
        Command::Keyframe(args) => keyframes::get(&args),
        Command::Jobs(args) => jobs::run(&args),
        Command::Models(args) => models::run(&args),
        Command::Upload(args) => upload::run(&args),
        Command::Files(args) => files::run(&args),
        Command::Webhooks(args) => webhooks::run(&args),
        Command::Backup(args) => backup::run(&args),
        Command::Log(args) => log::run(&args),
        Command::Verify(args) => verify::run(&args),
        Command::Doctor(args) => doctor::run(&args),
        Command::Health(args) => health::run(&args),
        Command::Capacity(args) => capacity::run(&args),
        Command::Bench(args) => bench::run(&args),
        Command::EmbedServer(args) => embed_server::run(&args),
        Command::Whip(args) => whip::run(&args),
        Command::Demo(args) => demo::run(&args),
        Command::Certs(args) => certs::run(&args),
        Command::Mcp(args) => mcp::run(&args),
        Command::Completions(args) => completions::run(&args),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if error.is_closed_stdout() => ExitCode::SUCCESS,
        Err(error) => {
            report(&error);
            ExitCode::from(error.exit() as u8)
        }
    }
}

/// Prints an error; file names and server texts in it are untrusted, so hidden characters are replaced.
fn report(error: &CliError) {
    let text = error.to_string();
    let lines: Vec<String> = text.lines().map(output::printable).collect();
    note!("sightline: {}", lines.join("\n"));
}
