//! `sightline completions`: prints a completion script for a shell.

use clap::CommandFactory;
use clap_complete::Shell;

use crate::{Cli, error::CliError, output::StdoutWriter};

#[derive(clap::Args)]
pub struct CompletionsArgs {
    /// The shell
    shell: Shell,
}

pub fn run(args: &CompletionsArgs) -> Result<(), CliError> {
    // Generated in memory, as the generator panics if its writer fails, for example on a closed pipe.
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "sightline", &mut script);
    let mut out = StdoutWriter::stdout();
    out.bytes(&script)?;
    out.finish()
}
