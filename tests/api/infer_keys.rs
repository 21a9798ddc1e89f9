//! The keys of model backends: sent to them, and found nowhere else.

use std::{
    fs::{self, File},
    process::Stdio,
};

use scripted_model::Step;
use serde_json::{Value, json};

use crate::support::{
    ALICE, Setup, eventually,
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
    let both = File::create(&log).expect("a file");
    let mut child = Setup::new(dir.path())
        .var("SERVICE_CONFIG", &file.display().to_string())
        .var("ONE_KEY", OPENAI_KEY)
        .var("RUST_LOG", "trace")
        .command()
        .stdout(both.try_clone().expect("two ends"))
        .stderr(Stdio::from(both))
        .spawn()
        .expect("it starts");
    let logged = || String::from_utf8_lossy(&fs::read(&log).expect("readable")).into_owned();
    let addr = eventually("it listens", || {
        let text = logged();
        let line = text.lines().find_map(|line| line.split_once("listening addr="));
        line.map(|(_, addr)| addr.trim().to_owned())
    });
    let client = reqwest::blocking::Client::new();
    let post = |path: &str, body: &Value| {
        let request = client.post(format!("http://{addr}{path}")).header("x-api-key", ALICE);
        let request = request.header("content-type", "application/json").body(body.to_string());
        request.send().expect("an answer").text().expect("text")
    };
    let created: Value = serde_json::from_str(&post("/v1/runs", &json!({}))).expect("JSON");
    let run = &created["run_id"];
    let mut answers = String::new();
    for (model, prompt) in [
        ("qwen3-vl-4b", "p"),
        ("qwen3-vl-4b", "refused"),
        ("qwen3-vl-4b", "broken"),
        ("qwen3-vl-4b", "malformed"),
        ("gemini-2.5-flash", "p"),
    ] {
        answers += &post("/v1/infer", &json!({"model": model, "prompt": prompt, "run_id": run}));
    }
    let events = post("/v1/query", &json!({"run_id": run}));
    child.kill().expect("killed");
    child.wait().expect("waited for");
    let sent = model.server.seen()[0].header("authorization").map(str::to_owned);
    assert_eq!(sent.as_deref(), Some(&*format!("Bearer {OPENAI_KEY}")));
    assert_eq!(gemini.server.seen()[0].header("x-goog-api-key"), Some(GEMINI_KEY));
    assert!(events.contains("inference_completed"), "{events}");
    let text = logged();
    assert!(text.contains("TRACE"), "nothing of the least is logged");
    for (place, text) in [("log", &text), ("events", &events), ("answers", &answers)] {
        for key in [OPENAI_KEY, GEMINI_KEY] {
            assert!(!text.contains(key), "in the {place}");
        }
    }
}
