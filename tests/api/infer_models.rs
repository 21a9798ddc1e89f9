//! Readiness of models: those that a backend lists, or is configured with a name of its own for.

use scripted_model::Step;
use serde_json::{Value, json};

use crate::support::{Setup, model::Model};

const LISTED: &str = "qwen3-vl-8b";

#[test]
fn a_model_is_ready_where_a_backend_lists_it() {
    let list = |ids: &[&str]| {
        let models: Vec<Value> = ids.iter().map(|id| json!({"id": id})).collect();
        Step::json(200, &json!({"object": "list", "data": models}))
    };
    let rows = [
        ("by the service's name", list(&["x", LISTED]), "ready", "name_not_served"),
        ("by its makers' name", list(&["Qwen/Qwen3-VL-8B-Instruct"]), "ready", "name_not_served"),
        ("another", list(&["Qwen/Qwen3-VL-4B-Instruct"]), "name_not_served", "name_not_served"),
        ("nothing", list(&[]), "name_not_served", "name_not_served"),
        ("no list", Step::json(200, &json!({})), "ready", "ready"),
        ("an error", Step::html(500), "unreachable", "unreachable"),
    ];
    for (name, listing, listed, other) in rows {
        let model = Model::start(|_| Step::chat("hello"));
        model.server.answer_probes(listing);
        let server = model.behind(Setup::temporary()).start();
        let models = server.get("/v1/models").json()["models"].clone();
        let shown = |id: &str| {
            let models = models.as_array().expect("an array");
            let found = models.iter().find(|model| model["id"] == id).expect("a curated model");
            (found["availability"].clone(), found["providers_available"].clone())
        };
        for (id, expected) in [(LISTED, listed), ("smolvlm2-256m", other)] {
            let providers = if expected == "ready" { json!(["vllm"]) } else { json!([]) };
            assert_eq!(shown(id), (json!(expected), providers), "{name}: {id}");
        }
    }
}
