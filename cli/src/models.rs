//! `sightline models`: the models of a server, and their availability at its backends.

use serde::Deserialize;
use serde_json::Value;

use crate::{
    client::{ApiClient, ServerArgs},
    error::CliError,
    output::{StdoutWriter, TextTable, joined, or_dash, text},
};

const READY: &str = "ready";

#[derive(clap::Args)]
pub struct ModelsArgs {
    /// Also list models that no backend has
    #[arg(long)]
    all: bool,
    /// Print the server's JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: ServerArgs,
}

/// Fields used of a model.
#[derive(Deserialize)]
struct Model {
    id: String,
    tier: String,
    availability: String,
    providers_available: Vec<String>,
}

#[derive(Deserialize)]
struct Models {
    models: Vec<Model>,
    providers: Vec<Value>,
}

pub fn run(args: &ModelsArgs) -> Result<(), CliError> {
    let client = ApiClient::new(&args.server)?;
    let mut out = StdoutWriter::stdout();
    if args.json {
        out.json(&client.get::<Value>("v1/models", &[])?)?;
        return out.finish();
    }
    let found: Models = client.get("v1/models", &[])?;
    let total = found.models.len();
    let is_there = |model: &Model| matches!(&*model.availability, READY | "unreachable");
    let shown = |model: &Model| args.all || is_there(model);
    let listed: Vec<Model> = found.models.into_iter().filter(shown).collect();
    let left_out = total - listed.len();
    let row = |model: Model| {
        [model.id, model.tier, model.availability, model.providers_available.join(", ")]
    };
    let columns = ["MODEL", "TIER", "AVAILABILITY", "BACKENDS"];
    out.table(&TextTable::of(columns, listed.into_iter().map(row)))?;
    if found.providers.is_empty() {
        note!("sightline: no model backend: SERVICE_VLLM_BASE_URL of the server names one");
    } else {
        out.line("")?;
        let row = |provider: &Value| {
            [
                text(&provider["name"]),
                text(&provider["type"]),
                text(&provider["reachable"]),
                or_dash(&provider["asked_for"]),
                joined(&provider["lists"], "-"),
                or_dash(&provider["last_error"]),
            ]
        };
        let columns = ["BACKEND", "TYPE", "REACHABLE", "ASKED FOR", "LISTS", "LAST ERROR"];
        out.table(&TextTable::of(columns, found.providers.iter().map(row)))?;
    }
    out.finish()?;
    if left_out > 0 {
        note!("sightline: {left_out} models that no backend has are left out (--all)");
    }
    Ok(())
}

/// Returns `named`, or else the first ready model; if no model will be asked, any.
pub fn choose(client: &ApiClient, named: Option<&str>, asks: bool) -> Result<String, CliError> {
    if let Some(named) = named {
        return Ok(named.to_owned());
    }
    let found: Models = client.get("v1/models", &[])?;
    let ready = found.models.iter().find(|model| model.availability == READY);
    let any = || found.models.first().filter(|_| !asks);
    ready.or_else(any).map(|model| model.id.clone()).ok_or_else(|| {
        let problem = "no model of the server is ready to be asked; `sightline models` says why";
        CliError::Check(problem.to_owned())
    })
}
