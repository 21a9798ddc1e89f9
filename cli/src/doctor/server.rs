//! Checks of a running server: that it answers, and the models that its backends have.

use serde::Deserialize;

use super::{Check, State};
use crate::{
    client::{Client, ServerArgs},
    error::CliError,
    output::printable,
};

#[derive(Deserialize)]
struct Models {
    models: Vec<Model>,
    providers: Vec<Provider>,
}

#[derive(Deserialize)]
struct Model {
    id: String,
    providers_available: Vec<String>,
}

#[derive(Deserialize)]
struct Provider {
    name: String,
    reachable: bool,
    last_error: Option<String>,
    #[serde(default)]
    asked_for: Option<String>,
    #[serde(default)]
    lists: Option<Vec<String>>,
}

/// Checks that the server answers, and its model backends.
pub fn checks(args: &ServerArgs) -> Vec<Check> {
    let check = |state, detail: String| Check::new("server", "answers", state, detail);
    let client = match Client::new(args) {
        Ok(client) => client,
        Err(error) => return vec![check(State::Fail, error.to_string())],
    };
    let server = printable(&client.server());
    let models: Models = match client.get("v1/models", &[]) {
        Ok(models) => models,
        Err(CliError::Api(error)) if error.status == 401 => {
            let said =
                format!("{server} refuses the key: SIGHTLINE_API_KEY has that of the client");
            return vec![check(State::Warn, said)];
        }
        Err(error @ CliError::Unreachable { .. }) => {
            return vec![check(State::Absent, error.to_string())];
        }
        Err(error) => return vec![check(State::Fail, error.to_string())],
    };
    let mut checks = vec![check(State::Ok, server)];
    checks.extend(models.providers.iter().map(|provider| models.backend(provider)));
    if models.providers.is_empty() {
        let detail = "no model backend is configured: SERVICE_VLLM_BASE_URL names one";
        checks.push(Check::new("models", "backends", State::Absent, detail));
    }
    checks
}

impl Models {
    fn backend(&self, provider: &Provider) -> Check {
        let check = |state, detail: String| {
            Check::new("models", &printable(&provider.name), state, printable(&detail))
        };
        let Provider { name, reachable, last_error, asked_for, lists } = provider;
        let ready = self.models.iter().filter(|model| model.providers_available.contains(name));
        let ready: Vec<&str> = ready.map(|model| model.id.as_str()).collect();
        let lists = lists.as_ref().map_or("nothing".to_owned(), |lists| lists.join(", "));
        let failed = last_error.as_ref().map(|error| format!("; its last answer: it {error}"));
        let failed = failed.unwrap_or_default();
        match asked_for {
            _ if !reachable => check(State::Fail, format!("cannot be reached{failed}")),
            Some(asked) if ready.is_empty() => check(
                State::Fail,
                format!("asked for {asked}, which it does not list; it lists {lists}"),
            ),
            None if ready.is_empty() => {
                check(State::Fail, format!("has no model that the server knows; it lists {lists}"))
            }
            _ => check(State::Ok, format!("serves {}; it lists {lists}{failed}", ready.join(", "))),
        }
    }
}
