//! `sightline fleet`: runs and descriptions of all servers that mirror their events to one database.

use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::{
    client::{ApiClient, QUICK, ServerArgs},
    error::CliError,
    output::{self, TextTable},
};

/// Arguments of `fleet`.
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

#[derive(Serialize, Deserialize)]
struct Runs {
    runs: Vec<Run>,
}

#[derive(Serialize, Deserialize)]
struct Run {
    node: String,
    run_id: String,
    label: Option<String>,
    status: String,
    created_at: String,
    last_event_at: String,
}

#[derive(Serialize, Deserialize)]
struct Hits {
    hits: Vec<Hit>,
}

#[derive(Serialize, Deserialize)]
struct Hit {
    node: String,
    run_id: String,
    label: Option<String>,
    seq: u64,
    kind: String,
    appended_at: String,
    description: String,
}

/// Runs `fleet`.
pub fn run(args: &FleetArgs) -> Result<(), CliError> {
    let client = ApiClient::new(&args.server)?;
    match &args.command {
        FleetCommand::Runs { limit } => {
            let found: Runs = client.get("v1/fleet/runs", &[("limit", limit.to_string())])?;
            output::print(args.json, &found, |found| {
                let columns = ["NODE", "RUN", "STATUS", "CREATED", "LAST EVENT", "LABEL"];
                let mut table = TextTable::new(&columns);
                for Run { node, run_id, label, status, created_at, last_event_at } in &found.runs {
                    let label = or_dash(label);
                    let cells = [node, run_id, status, created_at, last_event_at, &label];
                    table.push(cells.map(String::clone));
                }
                table
            })
        }
        FleetCommand::Search { query, limit } => {
            let wanted = json!({ "query": query, "limit": limit });
            let found: Hits = client.post("v1/fleet/search", &wanted, QUICK)?;
            output::print(args.json, &found, |found| {
                let columns = ["NODE", "RUN", ">SEQ", "APPENDED", "LABEL", "TEXT"];
                let mut table = TextTable::new(&columns);
                for Hit { node, run_id, label, seq, appended_at, description, .. } in &found.hits {
                    let (seq, label) = (seq.to_string(), or_dash(label));
                    let cells = [node, run_id, &seq, appended_at, &label, description];
                    table.push(cells.map(String::clone));
                }
                table
            })
        }
    }
}

fn or_dash(text: &Option<String>) -> String {
    text.clone().unwrap_or_else(|| "-".to_owned())
}
