//! The published schemas: the document is what the code says, and its references lead somewhere.
#![allow(missing_docs)]

use std::{collections::BTreeSet, fs, path::Path};

use serde_json::Value;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
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
    let committed = fs::read_to_string(&path).unwrap_or_default();
    let current = sightline::api::document_text() + "\n";
    assert!(committed == current, "{} is stale: run `make schemas`", path.display());
}

#[test]
fn every_reference_of_the_document_leads_somewhere() {
    let document: Value =
        serde_json::from_str(&sightline::api::document_text()).expect("the document is JSON");
    let mut lost = BTreeSet::new();
    walk(&document, &mut |value| {
        let Some(target) = value["$ref"].as_str() else { return };
        let found = target.strip_prefix('#').and_then(|path| document.pointer(path));
        if found.is_none() {
            lost.insert(target);
        }
    });
    assert_eq!(lost, BTreeSet::new());
}

#[test]
fn every_operation_has_a_name_of_its_own_and_a_summary() {
    let document: Value =
        serde_json::from_str(&sightline::api::document_text()).expect("the document is JSON");
    let mut seen = BTreeSet::new();
    for (path, item) in document["paths"].as_object().expect("an object") {
        for (method, operation) in item.as_object().expect("an object") {
            let name = operation["operationId"].as_str().expect("a name");
            assert!(seen.insert(name), "{method} {path}: {name} is taken");
            assert!(operation["summary"].is_string(), "{method} {path} has no summary");
            assert!(operation["tags"][0].is_string(), "{method} {path} has no tag");
        }
    }
}
