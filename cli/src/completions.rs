//! `sightline completions`: the script that teaches a shell the arguments.

use clap::CommandFactory;
use clap_complete::Shell;

use crate::{Cli, error::CliError, output::StdoutWriter};

/// Arguments of `completions`.
#[derive(clap::Args)]
pub struct CompletionsArgs {
    /// The shell
    shell: Shell,
}

/// Runs `completions`.
pub fn run(args: &CompletionsArgs) -> Result<(), CliError> {
    // Into memory first: the generator panics when its writer fails, as a closed pipe does.
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "sightline", &mut script);
    let mut out = StdoutWriter::stdout();
    out.bytes(&script)?;
    out.finish()
}
