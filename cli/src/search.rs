//! `sightline search`: finds descriptions that contain a text.

use serde_json::{Value, json};

use crate::{
    client::{ApiClient, QUICK, ServerArgs, given, note_damaged},
    error::CliError,
    output::{self, TextTable, clock_or_dash, grouped, text},
};

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

pub fn run(args: &SearchArgs) -> Result<(), CliError> {
    let client = ApiClient::new(&args.server)?;
    let asked = json!({ "query": args.query, "limit": args.limit, "run_id": args.run });
    let reply: Value = client.post("v1/search", &given(asked), QUICK)?;
    let hits = reply["hits"].as_array().ok_or_else(|| client.target.odd("no hits"))?;
    note_damaged(reply["damaged_events"].as_u64().unwrap_or(0));
    let row = |hit: &Value| {
        [
            text(&hit["seq"]),
            text(&hit["run_id"]),
            clock_or_dash(&hit["pts_ms"]),
            text(&hit["kind"]),
            text(&hit["snippet"]),
        ]
    };
    let columns = [">SEQ", "RUN", ">TIME", "KIND", "TEXT"];
    output::print(args.json, &reply, |_| TextTable::of(columns, hits.iter().map(row)))?;
    if !args.json {
        let count = |name: &str| grouped(reply[name].as_u64().unwrap_or(0));
        let (hits, scanned) = (count("total_hits"), count("scanned"));
        note!("sightline: {hits} of {scanned} descriptions");
    }
    Ok(())
}
