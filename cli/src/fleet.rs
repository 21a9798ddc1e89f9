//! `sightline fleet`: runs and descriptions of all servers that mirror their events to one database.

use serde_json::{Value, json};

use crate::{
    client::{ApiClient, QUICK, ServerArgs},
    error::CliError,
    output::{self, TextTable, or_dash},
};

#[derive(clap::Args)]
pub struct FleetArgs {
    #[command(subcommand)]
    command: FleetCommand,
    #[command(flatten)]
    server: ServerArgs,
    /// Print the server's JSON
    #[arg(long, global = true)]
    json: bool,
}

#[derive(clap::Subcommand)]
enum FleetCommand {
    /// List your runs on every server, the newest first
    Runs {
        /// Most runs to list, 1 to 1000
        #[arg(long, value_name = "N", default_value_t = 100)]
        limit: u32,
    },
    /// Find descriptions of your runs on every server, the newest first
    Search {
        /// Text to find in descriptions, in upper or lower case
        query: String,
        /// Most hits to show, 1 to 500
        #[arg(long, value_name = "N", default_value_t = 50)]
        limit: u32,
    },
}

pub fn run(args: &FleetArgs) -> Result<(), CliError> {
    let client = ApiClient::new(&args.server)?;
    let (found, list, columns, fields): (Value, _, _, _) = match &args.command {
        FleetCommand::Runs { limit } => (
            client.get("v1/fleet/runs", &[("limit", limit.to_string())])?,
            "runs",
            ["NODE", "RUN", "STATUS", "CREATED", "LAST EVENT", "LABEL"],
            ["node", "run_id", "status", "created_at", "last_event_at", "label"],
        ),
        FleetCommand::Search { query, limit } => (
            client.post("v1/fleet/search", &json!({ "query": query, "limit": limit }), QUICK)?,
            "hits",
            ["NODE", "RUN", ">SEQ", "APPENDED", "LABEL", "TEXT"],
            ["node", "run_id", "seq", "appended_at", "label", "description"],
        ),
    };
    let rows = found[list].as_array().ok_or_else(|| client.target.odd(format!("no {list}")))?;
    let row = |row: &Value| fields.map(|field| or_dash(&row[field]));
    output::print(args.json, &found, |_| TextTable::of(columns, rows.iter().map(row)))
}
