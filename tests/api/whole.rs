//! Lists answered whole, in one consistent snapshot, and pages only where a limit is given.

use media::RunId;
use serde_json::{Value, json};
use timeline::Event;

use super::routes::frame;
use crate::support::{Server, Setup, seed, shared};

const RUN: RunId = RunId::from_bytes([9; 16]);
const EVENTS: u64 = 2500;

/// A log with one run of the principal that tests are.
fn seed(dir: &std::path::Path) {
    let log = seed::log(dir);
    let created = seed::created("alice");
    let described = |number| seed::described(&format!("frame {number} of the yard"));
    let all: Vec<Event> = std::iter::once(created).chain((1..EVENTS).map(described)).collect();
    for batch in all.chunks(1000) {
        seed::append(&log, RUN, batch.iter().cloned());
    }
}

fn array(server: &Server, path: &str, field: &str) -> (Vec<Value>, String, String) {
    let reply = server.get(path);
    assert_eq!(reply.status, 200, "{path}: {}", reply.text);
    let body = reply.json();
    let items = if field.is_empty() { &body } else { &body[field] };
    let items = items.as_array().expect("an array").clone();
    (items, reply.header("link").to_owned(), reply.header("x-has-more").to_owned())
}

#[test]
fn a_list_without_a_limit_is_whole_and_a_query_says_that_there_is_more() {
    let dir = tempfile::tempdir().expect("a directory");
    seed(dir.path());
    let server = Setup::new(dir.path()).start();
    (0..150).for_each(|_| {
        let run = server.create_run();
        assert_eq!(server.call("POST", &format!("/v1/runs/{run}/stop")).send().status, 200);
    });
    let events = format!("/v1/runs/{RUN}/events");
    let lists = [(events.as_str(), "events", EVENTS as usize), ("/v1/runs", "", 151)];
    for (path, field, expected) in lists {
        let (whole, link, more) = array(&server, path, field);
        assert_eq!((whole.len(), link.as_str(), more.as_str()), (expected, "", ""), "{path}");
        let (page, link, more) = array(&server, &format!("{path}?limit=60"), field);
        assert_eq!(page[..], whole[..60], "{path}");
        assert!(link.ends_with("rel=\"next\"") && more == "true", "{path}: {link} {more}");
        let (rest, ..) = array(&server, link[1..].split_once('>').expect("a link").0, field);
        assert_eq!(rest[..], whole[60..120], "{path}");
    }
    let (indexed, ..) = array(&server, &format!("{events}?index=door"), "events");
    assert!(indexed.is_empty(), "{indexed:?}");
    let (mut from, mut found, mut told) = (0, 0, Vec::new());
    while told.last() != Some(&false) {
        let query = json!({"run_id": RUN.to_string(), "from_seq": from, "kind": "vlm"});
        let reply = server.post("/v1/query", &query).json();
        found += reply["matches"].as_array().expect("an array").len() as u64;
        from = reply["next_from_seq"].as_u64().expect("a seq");
        told.push(reply["has_more"].as_bool().expect("a flag"));
    }
    assert_eq!((found, told), (EVENTS - 1, vec![true, true, false]));
}

#[test]
fn a_deleted_run_is_gone_and_a_refusal_says_why() {
    let server = shared();
    let run = server.create_run();
    let delete = || server.call("DELETE", &format!("/v1/runs/{run}")).send();
    assert_eq!(delete().status, 200);
    delete().assert_refused(404, "not_found");
    let live = server.create_run();
    let rows = [
        (format!("/v1/runs/{live}/analyze"), json!({"model": " \t", "frames": [frame()]}), "model"),
        ("/v1/infer".to_owned(), json!({"model": "qwen3-vl-8b", "prompt": " \n "}), "prompt"),
        (format!("/v1/runs/{}/analyze", &live[..35]), json!({"model": "qwen3-vl-8b"}), "run_id"),
        (format!("/v1/runs/{}/stop", live.to_uppercase()), json!({}), "run_id"),
        ("/v1/search".to_owned(), json!({"query": "x", "run_id": "run-1"}), "run_id"),
        ("/v1/query".to_owned(), json!({"run_id": "run-1"}), "run_id"),
    ];
    for (path, body, field) in rows {
        let reply = server.post(&path, &body);
        let error = &reply.json()["error"];
        let first = &error["details"][0];
        assert_eq!((reply.status, &first["field"]), (422, &json!(field)), "{path}: {error}");
        let begins = format!("{field}: {}", first["message"].as_str().expect("a message"));
        assert_eq!(error["message"], begins, "{path}");
    }
}

#[test]
fn a_marker_names_what_it_replaces_or_null() {
    let server = shared();
    let run = server.create_run();
    let body = json!({"model": "qwen3-vl-8b", "frames": [frame()]});
    let analyzed = server.post_run(&run, "analyze", &body).json();
    let listed = server.get(&format!("/v1/runs/{run}/markers")).json();
    let told = server.payloads(&run, "marker_emitted");
    for marker in [&analyzed["markers"][0], &listed["markers"][0], &told[0]] {
        let marker = marker.as_object().expect("a marker");
        assert_eq!(marker.get("supersedes_marker_id"), Some(&Value::Null), "{marker:?}");
    }
}
