//! `sightline upload`: uploads a local file to the server, with a progress bar.

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::{
    analysis,
    client::{ApiClient, ServerArgs},
    error::CliError,
    output::{self, printable},
    progress,
};

#[derive(clap::Args)]
pub struct UploadArgs {
    /// Media file to upload
    file: PathBuf,
    #[command(flatten)]
    server: ServerArgs,
    /// Print the server's JSON
    #[arg(long)]
    json: bool,
}

/// Runs `upload`: prints the path that `runs ingest` takes as its source.
pub fn run(args: &UploadArgs) -> Result<(), CliError> {
    let reply = send(&ApiClient::new(&args.server)?, &args.file)?;
    output::say(args.json, &reply, path_of)
}

/// Returns the uploaded file's path in the server's response.
pub fn path_of(reply: &Value) -> String {
    reply["file_path"].as_str().unwrap_or_default().to_owned()
}

/// Uploads the file at `path`; the response has its name and path at the server.
pub fn send(client: &ApiClient, path: &Path) -> Result<Value, CliError> {
    let (file, len) = analysis::open(path)?;
    // No header of a form can carry a control character.
    let name = printable(&path.file_name().unwrap_or(path.as_os_str()).to_string_lossy());
    let bar = progress::upload(len);
    let reply = client.upload("v1/upload", &name, (file, len), &bar);
    bar.finish_and_clear();
    reply
}
