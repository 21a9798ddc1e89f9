//! A model backend that answers as its script says, for tests without a runtime of their own.

use infer::scripted::{ScriptedServer, Seen, Step};
use serde_json::Value;
use tokio::runtime::Runtime;

use super::Setup;

/// The backend; ends with its value.
pub struct Model {
    /// What it was asked.
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
