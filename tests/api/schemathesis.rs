//! schemathesis against a live server: what the document says is what the server does.
//!
//! The tool comes from PyPI into a virtual environment of the target directory, its version
//! pinned. Settings and exceptions are in `tests/schemathesis`.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use scripted_model::Step;
use serde_json::{Value, json};

use crate::support::{ALICE, Server, Setup, model::Model, postgres::Postgres, python, this_test};

fn settings() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/schemathesis")
}

/// Runs that the tool may do anything to, some of them with frames, markers and stills.
fn populate(server: &Server) -> (Vec<String>, Vec<String>) {
    let runs: Vec<String> = (0..12).map(|_| server.create_run()).collect();
    let ingest = json!({"source_uri": "talk.mp4", "max_frames": 40});
    let mut stills = vec!["ab".repeat(32)];
    for run in &runs[..8] {
        server.post_run(run, "ingest", &ingest).assert_ok();
        server.post_run(run, "analyze", &json!({"model": "qwen3-vl-8b"})).assert_ok();
        let kept = server.get(&format!("/v1/runs/{run}/keyframes")).json();
        let hash = |still: &Value| still["image_sha256"].as_str().expect("a hash").to_owned();
        stills.extend(kept["keyframes"].as_array().expect("an array").iter().map(hash));
    }
    (runs, stills)
}

/// A dictionary of the tool: a quoted word a line.
fn dictionary(words: &[String]) -> String {
    words.iter().map(|word| format!("\"{word}\"\n")).collect()
}

#[test]
fn the_server_does_what_its_document_says() {
    let Some(bin) = python::installed(&this_test(), &settings().join("requirements.txt")) else {
        return;
    };
    let dir = tempfile::tempdir().expect("a directory");
    let model = Model::start(|_| Step::chat("{}"));
    let postgres = Postgres::start();
    let setup = model.behind(Setup::new(dir.path()).clips());
    let server = setup.var("SERVICE_DB_URL", &postgres.url()).start();
    let (runs, stills) = populate(&server);
    let work = dir.path().join("schemathesis");
    fs::create_dir(&work).expect("made");
    fs::copy(settings().join("hooks.py"), work.join("hooks.py")).expect("copied");
    let examples = format!("max-examples = {}", clips::sized(3, 25));
    let tool_settings = fs::read_to_string(settings().join("schemathesis.toml")).expect("readable");
    let tool_settings = tool_settings.replace("max-examples = 25", &examples);
    assert!(tool_settings.contains(&examples));
    fs::write(work.join("schemathesis.toml"), tool_settings).expect("written");
    fs::write(work.join("runs.txt"), dictionary(&runs)).expect("written");
    fs::write(work.join("stills.txt"), dictionary(&stills)).expect("written");
    fs::write(work.join("openapi.json"), server.get("/v1/openapi.json").text).expect("written");
    let mut command = Command::new(bin.join("schemathesis"));
    command.current_dir(&work).env("SIGHTLINE_KEY", ALICE);
    command.args(["--config-file", "schemathesis.toml", "run", "openapi.json", "--url"]);
    let output = python::run(command.arg(format!("http://{}", server.addr())));
    let report = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    let report = report.unwrap_or_else(|failures| panic!("{failures}"));
    println!("{report}");
    assert_eq!(server.get("/v1/health").status, 200);
    assert!(
        model.server.seen().len() > clips::sized(0, 10),
        "the model was asked {} times",
        model.server.seen().len()
    );
}
