//! Events of every kind against the schema of their kind: as the log writes them, and as the catalogue shows them.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use timeline::EventKind;

use crate::schema::{assert_valid, component, document};

/// Payloads as the log writes them; its own test writes each of them again.
const PAYLOADS: &str = include_str!("../../fixtures/payloads.txt");

fn event(kind: &str, payload: &Value) -> Value {
    json!({"seq": 1, "pts_ms": 1_795_762_915_813_i64, "kind": kind, "payload": payload})
}

fn kinds() -> BTreeSet<&'static str> {
    EventKind::ALL.iter().map(|kind| kind.as_str()).collect()
}

#[test]
fn an_event_of_every_kind_is_as_the_document_says() {
    let (schema, mut seen) = (component("Event"), BTreeSet::new());
    for row in PAYLOADS.lines() {
        let (kind, payload) = row.split_once(' ').expect("a kind and a payload");
        let payload: Value = serde_json::from_str(payload).expect("JSON");
        assert_valid(&schema, &event(kind, &payload));
        let mut more = payload.clone();
        more["a_later_field"] = json!([]);
        assert_valid(&schema, &event(kind, &more));
        for (field, value) in payload.as_object().expect("an object") {
            let mut other = payload.clone();
            other[field] = if value.is_object() { json!(1) } else { json!({}) };
            assert!(!schema.is_valid(&event(kind, &other)), "{kind}: {field} is an object");
        }
        seen.insert(kind);
    }
    assert_eq!(seen, kinds());
    for (name, schema) in document()["components"]["schemas"].as_object().expect("an object") {
        let fields = schema["properties"].as_object().filter(|_| name.ends_with("Payload"));
        for field in fields.into_iter().flat_map(|fields| fields.keys()) {
            assert!(PAYLOADS.contains(&format!("\"{field}\":")), "no row has {field} of {name}");
        }
    }
}

/// `text` with nothing behind the dash of an id, as the golden files have it.
fn without_digits(text: &str) -> String {
    let parts = text.split('-').enumerate().map(|(at, part)| {
        let digits = part.bytes().take_while(u8::is_ascii_hexdigit).count();
        if at > 0 && digits >= 16 { &part[digits..] } else { part }
    });
    parts.collect::<Vec<_>>().join("-")
}

/// The fields of `example` are those of `golden`, with its values but for what clocks and long arrays are.
fn is_golden(example: &Value, golden: &Value) -> bool {
    let [Value::Object(example), Value::Object(golden)] = [example, golden] else { return false };
    golden.len() <= example.len()
        && golden.iter().all(|(field, value)| {
            let is_hashed = value.as_str().is_some_and(|text| text.contains("sha256 "));
            let found = example.get(field).map(ToString::to_string).unwrap_or_default();
            let value = value.to_string();
            is_hashed || without_digits(&found) == value
        })
}

#[test]
fn the_catalogue_has_a_payload_of_every_kind_as_it_comes() {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/");
    let read = |name| std::fs::read_to_string(format!("{root}{name}")).expect("there");
    let golden = read("fixtures/golden/sources.txt") + &read("fixtures/golden/reason.txt");
    let (page, schema, mut seen) = (read("docs/EVENTS.md"), component("Event"), BTreeSet::new());
    for part in page.split("\n### ").skip(1) {
        let (kind, rest) = part.split_once('\n').expect("a heading");
        let json = rest.split("```").nth(1).and_then(|fence| fence.strip_prefix("json\n"));
        let payload: Value = serde_json::from_str(json.unwrap_or_default()).expect(kind);
        assert_valid(&schema, &event(kind, &payload));
        let lines = golden.lines().filter_map(|line| line.strip_prefix(kind)?.strip_prefix(' '));
        let lines: Vec<Value> = lines.filter_map(|line| serde_json::from_str(line).ok()).collect();
        let is_held = lines.is_empty() || lines.iter().any(|line| is_golden(&payload, line));
        assert!(is_held, "{kind} is none of the golden ones: {payload}");
        assert!(seen.insert(kind), "{kind} stands there twice");
    }
    let readme = read("README.md");
    let json = readme.split("```").find_map(|fence| fence.strip_prefix("json\n"));
    let event: Value = serde_json::from_str(json.unwrap_or_default()).expect("an event");
    assert_valid(&schema, &event);
    assert_eq!(seen, kinds());
}
