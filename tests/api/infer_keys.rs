//! The keys of model backends: sent to them, and found nowhere else.

use std::fs;

use scripted_model::Step;
use serde_json::json;

use crate::support::{
    Setup,
    model::{Model, prompt},
};

const OPENAI_KEY: &str = "sk-one-that-is-never-shown";
const GEMINI_KEY: &str = "AIza-one-that-is-never-shown";

#[test]
fn keys_are_in_no_log_no_event_and_no_answer() {
    let dir = tempfile::tempdir().expect("a directory");
    let model = Model::start(|seen| match &*prompt(seen) {
        // A backend may well repeat what it was sent.
        "refused" => Step::json(401, &json!({"error": {"message": format!("no {OPENAI_KEY}")}})),
        "broken" => Step::close(),
        "malformed" => Step::reply(200, "application/json", format!("{{\"{OPENAI_KEY}\": 1}}")),
        _ => Step::chat("hello"),
    });
    let gemini = Model::start(|_| Step::html(500));
    let file = dir.path().join("backends.toml");
    let text = format!(
        "[[backends]]\nname = \"one\"\ntype = \"openai_compat\"\nbase_url = \"{}\"\n\
         api_key = \"${{ONE_KEY}}\"\nmodel = \"qwen3-vl-4b\"\npriority = 1\n\
         [[backends]]\nname = \"two\"\ntype = \"gemini\"\nbase_url = \"{}\"\n\
         api_key = \"{GEMINI_KEY}\"\nmodel = \"gemini-2.5-flash\"\npriority = 2\n",
        model.server.base_url(),
        gemini.server.base_url(),
    );
    fs::write(&file, text).expect("written");
    let log = dir.path().join("log");
    let server = Setup::new(dir.path())
        .var("SERVICE_CONFIG", &file.display().to_string())
        .var("ONE_KEY", OPENAI_KEY)
        .var("RUST_LOG", "trace")
        .log_to(&log)
        .start();
    let run = server.create_run();
    let mut answers = String::new();
    for (model, prompt) in [
        ("qwen3-vl-4b", "p"),
        ("qwen3-vl-4b", "refused"),
        ("qwen3-vl-4b", "broken"),
        ("qwen3-vl-4b", "malformed"),
        ("gemini-2.5-flash", "p"),
    ] {
        let asked = json!({"model": model, "prompt": prompt, "run_id": run});
        answers += &server.post("/v1/infer", &asked).text;
    }
    let events = server.post("/v1/query", &json!({"run_id": run})).text;
    drop(server);
    let sent = model.server.seen()[0].header("authorization").map(str::to_owned);
    assert_eq!(sent.as_deref(), Some(&*format!("Bearer {OPENAI_KEY}")));
    assert_eq!(gemini.server.seen()[0].header("x-goog-api-key"), Some(GEMINI_KEY));
    assert!(events.contains("inference_completed"), "{events}");
    let text = String::from_utf8_lossy(&fs::read(&log).expect("readable")).into_owned();
    assert!(text.contains("TRACE"), "nothing of the least is logged");
    for (place, text) in [("log", &text), ("events", &events), ("answers", &answers)] {
        for key in [OPENAI_KEY, GEMINI_KEY] {
            assert!(!text.contains(key), "in the {place}");
        }
    }
}
