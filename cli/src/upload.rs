//! `sightline upload`: uploads a local file to the server, with a progress bar.

use std::{
    fs::File,
    io,
    path::{Path, PathBuf},
};

use serde_json::Value;

use crate::{
    client::{ApiClient, ServerArgs},
    error::CliError,
    output, progress,
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
    let failed = |source| CliError::Read { path: path.to_owned(), source };
    let file = File::open(path).map_err(failed)?;
    let metadata = file.metadata().map_err(failed)?;
    if !metadata.is_file() {
        return Err(failed(io::Error::other("not a regular file")));
    }
    let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy();
    let bar = progress::upload(metadata.len());
    let reply = client.upload("v1/upload", &name, bar.wrap_read(file), metadata.len());
    bar.finish_and_clear();
    reply
}
