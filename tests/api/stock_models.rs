//! A vLLM as it is started without further settings, behind one variable: names, and what fails.

use scripted_model::Step;
use serde_json::{Value, json};

use super::reason::{MODEL, finding, reason};
use crate::support::{
    Server, Setup,
    model::{Model, list, stock},
    wait_until,
};

/// Name that the server lists.
const STOCK: &str = "Qwen/Qwen3-VL-8B-Instruct";
const OWN: &str = "acme/house-vl-7b";
/// Name of the first of them in the service.
const CURATED: &str = "qwen3-vl-8b";

/// Entry of a model in `GET /v1/models`.
fn shown(server: &Server, id: &str) -> Value {
    let models = server.get("/v1/models").json()["models"].clone();
    let found = models.as_array().expect("an array").iter().find(|model| model["id"] == id);
    found.cloned().unwrap_or_default()
}

#[test]
fn a_stock_vllm_is_asked_by_any_name_of_its_models_and_answers_as_it_was_asked() {
    let model = stock(&[STOCK, OWN], finding("van waits", 0.9));
    let server = model.behind(Setup::temporary().clips()).start();
    for (name, upstream) in [(CURATED, STOCK), (STOCK, STOCK), (OWN, OWN)] {
        let created = server.post("/v1/runs", &json!({ "model": name }));
        assert_eq!(created.status, 200, "{name}: {}", created.text);
        assert_eq!(created.json()["model"], name);
        let run = created.run();
        let asked = server.post("/v1/infer", &json!({"model": name, "prompt": "What is it?"}));
        assert_eq!((asked.status, &asked.json()["model"]), (200, &json!(name)), "{}", asked.text);
        let question = json!({"model": name, "prompt": "What is it?"});
        let batch = server.post("/v1/infer/batch", &json!({ "requests": [question] })).json();
        assert_eq!(batch["results"][0]["result"]["model"], name, "{batch}");
        let described = reason(&server, &run, &json!({"max_frames": 30, "model": name}));
        assert_eq!(described.status, 200, "{name}: {}", described.text);
        let chunk = &server.payloads(&run, "semantic_chunk_inferred")[0];
        assert_eq!((&chunk["model"], &chunk["semantic_error"]), (&json!(name), &Value::Null));
        assert_eq!(described.json()["metadata"][0]["model"], name);
        let seen = model.server.seen();
        let asked_as: Vec<Value> =
            seen.iter().rev().take(3).map(|seen| seen.json()["model"].clone()).collect();
        assert_eq!(asked_as, [json!(upstream), json!(upstream), json!(upstream)], "{name}");
        let gated = server.create_run();
        let ingest = json!({"source_uri": "talk.mp4", "max_frames": 30});
        assert_eq!(server.post_run(&gated, "ingest", &ingest).status, 200);
        let path = format!("/v1/runs/{gated}/analyze");
        let analyzed = server.post(&path, &json!({ "model": name }));
        assert_eq!(analyzed.json()["metadata"][0]["model"], name, "{}", analyzed.text);
    }
    assert_eq!(shown(&server, CURATED)["availability"], "ready");
    let own = shown(&server, OWN);
    assert_eq!((&own["availability"], &own["tier"]), (&json!("ready"), &json!("small")));
    assert_eq!(shown(&server, STOCK), Value::Null, "a curated model has one entry");
    assert_eq!(shown(&server, MODEL)["availability"], "name_not_served");
    assert_eq!(shown(&server, "gemini-2.5-pro")["availability"], "not_configured");
    let lists = server.get("/v1/models").json()["providers"][0]["lists"].clone();
    assert_eq!(lists, json!([STOCK, OWN]));
    for path in ["/v1/runs", "/v1/infer"] {
        let other = json!({"model": "acme/other", "prompt": "x"});
        server.post(path, &other).assert_invalid("model", path);
    }
}

#[test]
fn a_configured_name_that_a_backend_does_not_list_is_said() {
    let dir = tempfile::tempdir().expect("a directory");
    let model = Model::start(|_| Step::chat("a van"));
    model.server.answer_probes(list(&[STOCK]));
    let own = format!("priority = 1\nmodel = \"{CURATED}\"\nupstream_model = \"qwen3\"");
    let log = dir.path().join("log");
    let setup = Setup::new(dir.path()).backend("own", &model.server.base_url(), &own);
    let server = setup.log_to(&log).start();
    assert_eq!(shown(&server, CURATED)["availability"], "name_not_served");
    let warns = |line: &str| line.contains("WARN") && line.contains("does not list the model");
    wait_until("the log says it", || {
        std::fs::read_to_string(&log).expect("a log").lines().any(warns)
    });
    let provider = server.get("/v1/models").json()["providers"][0].clone();
    assert_eq!((&provider["lists"], &provider["asked_for"]), (&json!([STOCK]), &json!("qwen3")));
    // What programs list is not always what they answer to.
    let asked = server.post("/v1/infer", &json!({"model": STOCK, "prompt": "What is it?"}));
    assert_eq!((asked.status, &asked.json()["model"]), (200, &json!(STOCK)), "{}", asked.text);
    assert_eq!(shown(&server, CURATED)["availability"], "ready");
}

#[test]
fn a_name_that_no_backend_had_is_looked_for() {
    let model = stock(&[STOCK], "a van".to_owned());
    let server = model.behind(Setup::temporary()).start();
    assert_eq!(shown(&server, CURATED)["availability"], "ready");
    model.server.answer_probes(list(&[OWN]));
    let is_known = || server.post("/v1/runs", &json!({ "model": OWN })).status == 200;
    wait_until("what the backend has now is known", is_known);
}
