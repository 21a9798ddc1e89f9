//! A model backend that answers as its script says, for tests without a runtime of their own.

use scripted_model::{ScriptedServer, Seen, Step};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use super::Setup;

pub struct Model {
    pub server: ScriptedServer,
    _runtime: Runtime,
}

impl Model {
    /// Does what `script` says of each question.
    pub fn start(script: impl FnMut(&Seen) -> Step + Send + 'static) -> Model {
        let runtime = Runtime::new().expect("a runtime");
        let server = runtime.block_on(ScriptedServer::start(script)).expect("it listens");
        Model { server, _runtime: runtime }
    }

    /// `setup` with this as the backend `vllm`.
    pub fn behind(&self, setup: Setup) -> Setup {
        setup.var("SERVICE_VLLM_BASE_URL", &self.server.base_url())
    }
}

pub fn list(names: &[&str]) -> Step {
    let models: Vec<Value> = names.iter().map(|id| json!({"id": id, "object": "model"})).collect();
    Step::json(200, &json!({"object": "list", "data": models}))
}

/// A vLLM as it is started without further settings: it lists `served` and knows no other name.
pub fn stock(served: &'static [&'static str], answer: String) -> Model {
    let model = Model::start(move |seen| {
        let asked = seen.json()["model"].as_str().unwrap_or_default().to_owned();
        if served.contains(&asked.as_str()) {
            return Step::chat(&answer);
        }
        let message = format!("The model `{asked}` does not exist.");
        Step::json(404, &json!({"object": "error", "message": message, "code": 404}))
    });
    model.server.answer_probes(list(served));
    model
}

/// The prompt of a question: the text of its messages.
pub fn prompt(seen: &Seen) -> String {
    let said = seen.json()["messages"].as_array().cloned().unwrap_or_default();
    let text = |content: &Value| match content {
        Value::String(text) => text.clone(),
        Value::Array(parts) => {
            parts.iter().filter_map(|part| part["text"].as_str()).collect::<Vec<_>>().join("\n")
        }
        _ => String::new(),
    };
    said.iter().map(|message| text(&message["content"])).collect::<Vec<_>>().join("\n")
}
