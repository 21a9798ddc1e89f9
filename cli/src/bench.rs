//! `sightline bench`: measures the capacity of this machine.

mod capacity;

use crate::error::CliError;

#[derive(clap::Args)]
pub struct BenchArgs {
    #[command(subcommand)]
    command: BenchCommand,
}

#[derive(clap::Subcommand)]
enum BenchCommand {
    /// Streams that this machine decodes and measures in real time, by codec and resolution
    Capacity(capacity::CapacityArgs),
}

pub fn run(args: &BenchArgs) -> Result<(), CliError> {
    match &args.command {
        BenchCommand::Capacity(args) => capacity::run(args),
    }
}
