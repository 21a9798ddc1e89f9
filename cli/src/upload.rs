//! `sightline upload`: uploads a local file to the server, with a progress bar.

use std::{
    fs::File,
    io::{self, Read},
    path::{Path, PathBuf},
};

use serde_json::Value;

use crate::{
    client::{ApiClient, ServerArgs},
    error::CliError,
    output::{StdoutWriter, printable},
    progress::UploadProgress,
};

/// Arguments of `upload`.
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
    let mut out = StdoutWriter::stdout();
    if args.json {
        out.json(&reply)?;
    } else {
        out.line(printable(&path_of(&reply)))?;
    }
    out.finish()
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
    let bar = UploadProgress::start("uploading", metadata.len());
    let reader = Counted { file, bar: bar.clone() };
    let reply = client.upload("v1/upload", &name, reader, metadata.len());
    bar.clear();
    reply
}

/// A file that counts the bytes read from it.
struct Counted {
    file: File,
    bar: UploadProgress,
}

impl Read for Counted {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read(into)?;
        self.bar.more(read);
        Ok(read)
    }
}
