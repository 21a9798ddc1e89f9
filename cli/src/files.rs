//! `sightline files`: manages the caller's uploads on a server.

use std::{
    io::{self, Read},
    path::{Path, PathBuf},
};

use reqwest::blocking::Response;
use serde_json::Value;

use crate::{
    client::{ApiClient, ServerArgs, read_cause},
    error::CliError,
    interrupt,
    output::{self, StdoutWriter, TextTable, bytes, printable, say, text},
    replace::replace,
};

/// Most bytes that are held at a time.
const PIECE_BYTES: usize = 64 << 10;

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
        FilesCommand::Get { name, out } => save(&client, &path(name)?, out.as_deref()),
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

/// Writes the body of `GET path` to a file, which appears once it is whole, or to standard output.
pub fn save(client: &ApiClient, path: &str, to: Option<&Path>) -> Result<(), CliError> {
    let answer = client.reading(path, &[])?;
    let Some(to) = to else {
        let mut out = StdoutWriter::stdout();
        each_piece(client, answer, |piece| out.bytes(piece))?;
        return out.finish();
    };
    let mut failure = None;
    let written = replace(to, None, |out| {
        let put = |piece: &[u8]| {
            out.write_all(piece).map_err(|source| CliError::Write { path: to.to_owned(), source })
        };
        each_piece(client, answer, put).map_err(|error| {
            failure = Some(error);
            io::ErrorKind::Other.into()
        })
    });
    failure.map_or(written, Err)
}

fn each_piece(
    client: &ApiClient,
    mut answer: Response,
    mut take: impl FnMut(&[u8]) -> Result<(), CliError>,
) -> Result<(), CliError> {
    let cancel = interrupt::token()?;
    let mut piece = vec![0; PIECE_BYTES];
    loop {
        let len = answer.read(&mut piece).map_err(|error| CliError::Unreachable {
            server: client.target.server(),
            reason: read_cause(&error),
        })?;
        if cancel.is_cancelled() {
            return Err(CliError::Interrupted);
        }
        if len == 0 {
            return Ok(());
        }
        take(&piece[..len])?;
    }
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
