//! `sightline files`: manages the caller's uploads on a server.

use std::path::PathBuf;

use serde_json::Value;

use crate::{
    client::{ApiClient, ServerArgs},
    error::CliError,
    output::{self, StdoutWriter, TextTable, bytes, printable, say, text},
    replace::replace,
};

#[derive(clap::Args)]
pub struct FilesArgs {
    #[command(subcommand)]
    command: FilesCommand,
    #[command(flatten)]
    server: ServerArgs,
    /// Print JSON
    #[arg(long, global = true)]
    json: bool,
}

#[derive(clap::Subcommand)]
enum FilesCommand {
    /// List your uploads
    List,
    /// Save an upload
    Get {
        /// Its name in the list
        name: String,
        /// Target file; standard output when missing
        #[arg(long, short, value_name = "FILE")]
        out: Option<PathBuf>,
    },
    /// Delete an upload
    Delete {
        /// Its name in the list
        name: String,
    },
}

pub fn run(args: &FilesArgs) -> Result<(), CliError> {
    let client = ApiClient::new(&args.server)?;
    match &args.command {
        FilesCommand::List => list(&client, args.json),
        FilesCommand::Get { name, out } => save(&client.bytes(&path(name)?)?, out.as_deref()),
        FilesCommand::Delete { name } => {
            say(args.json, &client.delete(&path(name)?)?, |_| format!("{name} deleted"))
        }
    }
}

/// Returns the path of an upload; refuses names that would lead elsewhere.
fn path(name: &str) -> Result<String, CliError> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    match name.bytes().all(is_plain) && !name.starts_with('.') && !name.is_empty() {
        true => Ok(format!("v1/files/{name}")),
        false => Err(CliError::Usage(format!(
            "no name of an upload, which `sightline files list` shows: {}",
            printable(name)
        ))),
    }
}

/// Writes `content` to a file, or to standard output.
pub fn save(content: &[u8], to: Option<&std::path::Path>) -> Result<(), CliError> {
    if let Some(path) = to {
        return replace(path, None, |out| out.write_all(content));
    }
    let mut out = StdoutWriter::stdout();
    out.bytes(content)?;
    out.finish()
}

fn list(client: &ApiClient, json: bool) -> Result<(), CliError> {
    let files: Vec<Value> = client.pages("v1/files", &[], "/files")?;
    let row = |file: &Value| {
        [
            text(&file["file_name"]),
            text(&file["uploaded_at"]),
            bytes(file["bytes"].as_u64().unwrap_or(0)),
            text(&file["media_type"]),
            text(&file["original_name"]),
            text(&file["file_path"]),
        ]
    };
    let columns = ["NAME", "UPLOADED", ">SIZE", "TYPE", "CALLED", "SOURCE"];
    output::print(json, &files, |files| TextTable::of(columns, files.iter().map(row)))
}
