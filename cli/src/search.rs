//! `sightline search`: finds descriptions that contain a text.

use serde::{Deserialize, Serialize};

use crate::{
    client::{ApiClient, QUICK, ServerArgs, note_damaged},
    error::CliError,
    output::{self, TextTable, clock, grouped},
};

/// Arguments of `search`.
#[derive(clap::Args)]
pub struct SearchArgs {
    /// Text to find in descriptions, in upper or lower case
    query: String,
    /// Only descriptions of this run
    #[arg(long, value_name = "RUN")]
    run: Option<String>,
    /// Most hits to show, 1 to 500
    #[arg(long, value_name = "N", default_value_t = 50)]
    limit: u32,
    /// Print the answer as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: ServerArgs,
}

#[derive(Serialize)]
struct Request<'a> {
    query: &'a str,
    limit: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    run_id: Option<&'a str>,
}

#[derive(Serialize, Deserialize)]
struct Reply {
    scanned: u64,
    total_hits: u64,
    hits: Vec<Hit>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    damaged_events: Option<u64>,
}

#[derive(Serialize, Deserialize)]
struct Hit {
    seq: u64,
    run_id: String,
    pts_ms: Option<i64>,
    kind: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    index_name: Option<String>,
    snippet: String,
}

/// Runs `search`.
pub fn run(args: &SearchArgs) -> Result<(), CliError> {
    let client = ApiClient::new(&args.server)?;
    let (query, limit, run_id) = (args.query.as_str(), args.limit, args.run.as_deref());
    let reply: Reply = client.post("v1/search", &Request { query, limit, run_id }, QUICK)?;
    note_damaged(reply.damaged_events.unwrap_or(0));
    output::print(args.json, &reply, table)?;
    if !args.json {
        let (hits, scanned) = (grouped(reply.total_hits), grouped(reply.scanned));
        note!("sightline: {hits} of {scanned} descriptions");
    }
    Ok(())
}

fn table(reply: &Reply) -> TextTable {
    let mut table = TextTable::new(&[">SEQ", "RUN", ">TIME", "KIND", "TEXT"]);
    for hit in &reply.hits {
        table.push([
            hit.seq.to_string(),
            hit.run_id.clone(),
            hit.pts_ms.map_or_else(|| "-".to_owned(), clock),
            hit.kind.clone(),
            hit.snippet.clone(),
        ]);
    }
    table
}
