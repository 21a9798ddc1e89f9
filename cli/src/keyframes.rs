//! `sightline keyframes` and `keyframe`: lists the stills of a run, and saves one as JPEG.

use std::path::PathBuf;

use serde_json::Value;

use crate::{
    client::{ApiClient, ServerArgs, run_path},
    error::CliError,
    files::save,
    output::{self, TextTable, bytes, clock, printable, text},
};

#[derive(clap::Args)]
pub struct KeyframesArgs {
    /// Run id
    run: String,
    /// Print a JSON array
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: ServerArgs,
}

#[derive(clap::Args)]
pub struct KeyframeArgs {
    /// Run id
    run: String,
    /// SHA-256 of the still, as `keyframes` lists it; its first digits are enough
    hash: String,
    /// Target file; standard output when missing
    #[arg(long, short, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Scale its longer edge down to this length, 32 to 4096
    #[arg(long, value_name = "PIXELS")]
    max_edge: Option<u32>,
    #[command(flatten)]
    server: ServerArgs,
}

/// Fetches the stored stills of `run`.
pub fn fetch(client: &ApiClient, run: &str) -> Result<Vec<Value>, CliError> {
    client.pages(&run_path(run, "/keyframes")?, &[], "/keyframes")
}

pub fn list(args: &KeyframesArgs) -> Result<(), CliError> {
    let stills = fetch(&ApiClient::new(&args.server)?, &args.run)?;
    let row = |still: &Value| {
        [
            clock(still["pts_ms"].as_i64().unwrap_or(0)),
            text(&still["frame_index"]),
            text(&still["event_type"]),
            bytes(still["image_bytes"].as_u64().unwrap_or(0)),
            text(&still["image_sha256"]),
            text(&still["description"]),
        ]
    };
    let columns = [">TIME", ">FRAME", "TYPE", ">SIZE", "SHA256", "DESCRIPTION"];
    output::print(args.json, &stills, |stills| TextTable::of(columns, stills.iter().map(row)))
}

pub fn get(args: &KeyframeArgs) -> Result<(), CliError> {
    let client = ApiClient::new(&args.server)?;
    let hash = whole(&client, &args.run, &args.hash.to_ascii_lowercase())?;
    let edge = args.max_edge.map_or_else(String::new, |edge| format!("?max_edge={edge}"));
    let path = run_path(&args.run, &format!("/keyframes/{hash}{edge}"))?;
    save(&client, &path, args.out.as_deref())
}

/// Returns the only hash of the run's stills that begins with these digits.
fn whole(client: &ApiClient, run: &str, digits: &str) -> Result<String, CliError> {
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err(CliError::Usage(format!("no hexadecimal digits: {}", printable(digits))));
    }
    if digits.len() == 64 {
        return Ok(digits.to_owned());
    }
    only(&fetch(client, run)?, digits)
}

/// Returns the only hash of `stills` that begins with these digits; a still may recur.
fn only(stills: &[Value], digits: &str) -> Result<String, CliError> {
    let mut hashes: Vec<String> = stills.iter().map(|still| text(&still["image_sha256"])).collect();
    hashes.retain(|hash| hash.starts_with(digits));
    hashes.sort_unstable();
    hashes.dedup();
    match hashes.as_slice() {
        [one] => Ok(one.clone()),
        [] => Err(CliError::Usage(format!("no still of the run begins with {digits}"))),
        many => Err(CliError::Usage(format!("{} stills begin with {digits}", many.len()))),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_first_digits_of_a_still_that_recurs_are_enough() {
        let stills = ["a1", "a2", "a1"].map(|hash| json!({ "image_sha256": hash }));
        for (digits, expected) in [
            ("a1", Ok("a1")),
            ("a", Err("2 stills begin with a")),
            ("b", Err("no still of the run begins with b")),
        ] {
            let found = only(&stills, digits).map_err(|error| error.to_string());
            assert_eq!(found.as_deref().map_err(String::as_str), expected, "{digits}");
        }
    }
}
