//! `sightline interactions`: the models' answers about a run.

use serde_json::Value;

use crate::{
    client::{ApiClient, ServerArgs, run_path},
    error::CliError,
    output::{self, TextTable, clock_or_dash, text},
};

#[derive(clap::Args)]
pub struct InteractionsArgs {
    /// Run id
    run: String,
    /// Only answers under this index name
    #[arg(long, value_name = "NAME")]
    index: Option<String>,
    /// Print a JSON array
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: ServerArgs,
}

pub fn run(args: &InteractionsArgs) -> Result<(), CliError> {
    let client = ApiClient::new(&args.server)?;
    output::print(args.json, &fetch(&client, &args.run, args.index.as_deref())?[..], table)
}

/// Fetches the models' answers about `run`, all or those of an index.
pub fn fetch(client: &ApiClient, run: &str, index: Option<&str>) -> Result<Vec<Value>, CliError> {
    let query: Vec<_> = index.map(|index| ("index", index.to_owned())).into_iter().collect();
    client.pages(&run_path(run, "/interactions")?, &query, "/interactions")
}

/// Makes a table with one line per answer.
pub fn table(said: &[Value]) -> TextTable {
    let row = |one: &Value| {
        let confidence = one["confidence"].as_f64();
        [
            clock_or_dash(&one["start_pts_ms"]),
            clock_or_dash(&one["end_pts_ms"]),
            text(&one["event_type"]),
            confidence.map_or_else(|| "-".to_owned(), |confidence| format!("{confidence:.3}")),
            text(&one["description"]),
        ]
    };
    let columns = [">START", ">END", "TYPE", ">CONFIDENCE", "DESCRIPTION"];
    TextTable::of(columns, said.iter().map(row))
}
