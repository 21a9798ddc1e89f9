//! The published schemas: the document is what the code says, fixtures are accepted and refused
//! for the reason in their names, and what a real server answers is valid.

mod events;

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use jsonschema::{ValidationError, Validator};
use serde_json::{Value, json};

use crate::support::{setting, shared};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn document() -> Value {
    serde_json::from_str(&sightline::api::document()).expect("the document is JSON")
}

fn read(path: &Path) -> Value {
    let text = fs::read_to_string(path).unwrap_or_else(|error| panic!("{path:?}: {error}"));
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{path:?}: {error}"))
}

fn validator(schema: &Value) -> Validator {
    jsonschema::draft202012::meta::validate(schema).expect("a schema of 2020-12");
    jsonschema::draft202012::new(schema).expect("a schema that compiles")
}

/// A validator of one schema of the document.
fn component(name: &str) -> Validator {
    let schema = json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$ref": format!("#/components/schemas/{name}"),
        "components": document()["components"],
    });
    jsonschema::draft202012::new(&schema).expect("a schema that compiles")
}

fn assert_valid(validator: &Validator, value: &Value) {
    let faults: Vec<String> = validator
        .iter_errors(value)
        .map(|error| format!("{}: {error}", error.instance_path()))
        .collect();
    assert_eq!(faults, Vec::<String>::new(), "{value:#}");
}

/// Calls `visit` with every value of `json`, the outer before the inner.
fn walk<'a>(json: &'a Value, visit: &mut dyn FnMut(&'a Value)) {
    visit(json);
    match json {
        Value::Array(items) => items.iter().for_each(|item| walk(item, visit)),
        Value::Object(fields) => fields.values().for_each(|field| walk(field, visit)),
        _ => {}
    }
}

#[test]
fn the_committed_document_is_what_the_code_says() {
    let path = root().join("schemas/openapi.json");
    let current = sightline::api::document() + "\n";
    if setting("UPDATE_GOLDEN").is_some() {
        fs::write(&path, &current).expect("written");
    }
    let committed = fs::read_to_string(&path).unwrap_or_default();
    assert!(committed == current, "{} is stale: run `make schemas`", path.display());
}

#[test]
fn every_reference_operation_and_schema_of_the_document_is_whole() {
    let document = document();
    walk(&document, &mut |value| {
        let Some(target) = value["$ref"].as_str() else { return };
        let found = target.strip_prefix('#').and_then(|path| document.pointer(path));
        assert!(found.is_some(), "{target} is nowhere");
    });
    let mut seen = BTreeSet::new();
    for (path, item) in document["paths"].as_object().expect("an object") {
        for (method, operation) in item.as_object().expect("an object") {
            let name = operation["operationId"].as_str().expect("a name");
            assert!(seen.insert(name), "{method} {path}: {name} is taken");
            assert!(operation["summary"].is_string(), "{method} {path} has no summary");
            assert!(operation["tags"][0].is_string(), "{method} {path} has no tag");
        }
    }
    for (name, schema) in document["components"]["schemas"].as_object().expect("an object") {
        jsonschema::draft202012::meta::validate(schema)
            .unwrap_or_else(|error| panic!("{name}: {error}"));
        // An inlined field and its description must not become "a string and an object".
        walk(schema, &mut |value| {
            let said = &value["allOf"][1];
            let is_any_object = said["type"] == "object" && said["properties"].is_null();
            assert!(!is_any_object, "{name} allows nothing: {value}");
        });
    }
}

fn fixtures(schema: &str, kind: &str) -> Vec<(String, Value)> {
    let dir = root().join("fixtures/schemas").join(schema).join(kind);
    let entries = fs::read_dir(&dir).unwrap_or_else(|error| panic!("{dir:?}: {error}"));
    let paths = entries.map(|entry| entry.expect("readable").path());
    let found: Vec<(String, Value)> = paths
        .map(|path: PathBuf| {
            let name = path.file_stem().and_then(|name| name.to_str()).expect("a name");
            (name.to_owned(), read(&path))
        })
        .collect();
    assert!(found.len() >= 3, "{dir:?} has {} fixtures", found.len());
    found
}

/// The field and the keyword that a fault is about, as the names of fixtures write them.
fn reason(error: &ValidationError<'_>) -> String {
    let keyword = error.kind().keyword();
    let mut path = error.instance_path().as_str().trim_start_matches('/').replace('/', ".");
    // Such a fault is the object's, and its text names the field.
    if matches!(keyword, "required" | "additionalProperties") {
        let text = error.to_string();
        let field = text.split(['"', '\'']).nth(1).expect("a field in quotes");
        let dot = if path.is_empty() { "" } else { "." };
        path = format!("{path}{dot}{field}");
    }
    format!("{path}.{keyword}")
}

#[test]
fn fixtures_are_accepted_and_refused_for_the_reason_in_their_names() {
    for schema in ["frame-metadata", "processing-config"] {
        let validator = validator(&read(&root().join(format!("schemas/{schema}.schema.json"))));
        for (name, fixture) in fixtures(schema, "valid") {
            println!("{schema} {name}");
            assert_valid(&validator, &fixture);
        }
        for (name, fixture) in fixtures(schema, "invalid") {
            let reasons: Vec<String> =
                validator.iter_errors(&fixture).map(|error| reason(&error)).collect();
            assert_eq!(reasons, [name.as_str()], "{schema}");
        }
    }
}

#[test]
fn what_a_real_analysis_answers_is_valid() {
    let server = shared().with_clips();
    let run = server.create_run();
    let ingest = json!({"source_uri": "talk.mp4", "sample_fps": 5, "max_frames": 60});
    assert_valid(&component("IngestResult"), &server.post_run(&run, "ingest", &ingest).json());

    let published = validator(&read(&root().join("schemas/frame-metadata.schema.json")));
    let frame = json!({
        "frame_index": 7, "pts_ms": -40, "perceptual_hash": "00000000000000ff", "luma_mean": 0.5,
        "flicker_score": 0.1, "ghosting_score": 0.9, "noise_variance_score": 0.1,
    });
    for body in [
        json!({"model": "qwen3-vl-8b"}),
        json!({"model": "qwen3-vl-8b", "mode": "detailed", "trace_id": "trace-1", "window_size": 2}),
        json!({"model": "qwen3-vl-8b", "frames": [frame]}),
    ] {
        let answer = server.post_run(&run, "analyze", &body).json();
        assert_valid(&component("AnalyzeResult"), &answer);
        let metadata = answer["metadata"].as_array().expect("an array");
        assert_eq!(answer["generated"], metadata.len());
        assert!(!metadata.is_empty(), "{body}");
        metadata.iter().for_each(|frame| assert_valid(&published, frame));
    }
    let reasoned = server.create_run();
    let body = json!({
        "source_uri": "talk.mp4", "max_frames": 40, "model": "qwen3-vl-4b",
        "semantic_prompt": "What moves?",
    });
    let answer = server.post_run(&reasoned, "reason", &body).json();
    assert_valid(&component("ReasonResult"), &answer);
    let metadata = answer["metadata"].as_array().expect("an array");
    assert_eq!(metadata.len(), 40);
    metadata.iter().for_each(|frame| assert_valid(&published, frame));
    let listed = server.get(&format!("/v1/runs/{run}/events?limit=1000")).json();
    assert_valid(&component("RunEvents"), &listed);
    let found = component("QueryMatch");
    for run in [&run, &reasoned] {
        server.events(run).iter().for_each(|event| assert_valid(&found, event));
    }
}
