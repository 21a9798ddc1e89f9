//! Lists over HTTP: page by page to their end, while more is added, and whole where no limit is given; and what refusals and
//! markers name.

use media::RunId;
use serde_json::{Value, json};
use timeline::Event;

use crate::support::{Server, Setup, seed, shared};

/// The items of all pages from `path` on; `between` runs after each page.
fn pages(
    server: &Server,
    path: &str,
    items: impl Fn(&Value) -> Vec<Value>,
    between: impl FnMut(),
) -> Vec<Value> {
    server.pages(path, between).iter().flat_map(|page| items(&page.json())).collect()
}

fn field(name: &'static str) -> impl Fn(&Value) -> Vec<Value> {
    move |page| page[name].as_array().expect("an array").clone()
}

fn ids(items: &[Value], id: &str) -> Vec<Value> {
    items.iter().map(|item| item[id].clone()).collect()
}

#[test]
fn runs_are_each_listed_once_while_more_are_created() {
    let server = shared();
    let mut expected: Vec<Value> = (0..7).map(|_| json!(server.create_run())).collect();
    expected.reverse();
    let array = |page: &Value| page.as_array().expect("an array").clone();
    for (limit, filter) in [(1, ""), (3, "&status=pending"), (7, ""), (8, "")] {
        let path = format!("/v1/runs?limit={limit}{filter}");
        let mut newer = 0;
        let found = pages(&server, &path, array, || {
            server.create_run();
            newer += 1;
        });
        assert_eq!(ids(&found, "run_id"), expected, "{path}");
        assert_eq!(newer, expected.len().div_ceil(limit), "{path}: pages");
        let added = array(&server.get(&format!("/v1/runs?limit={newer}")).json());
        expected.splice(..0, ids(&added, "run_id"));
    }
}

#[test]
fn events_are_each_listed_once_while_more_are_appended() {
    let server = shared();
    let (run, other) = (server.create_run(), server.create_run());
    let add = |run: &str| {
        server.post_run(run, "keepalive", &json!({})).assert_ok();
    };
    (0..9).for_each(|_| add(&run));
    for limit in [2, 5, 1000] {
        let path = format!("/v1/runs/{run}/events?limit={limit}");
        let found = pages(&server, &path, field("events"), || {
            add(&run);
            add(&other);
        });
        let all = ids(&server.events(&run), "seq");
        // The last page may be read before the last event comes.
        assert!(found.len() + 1 >= all.len(), "{limit}: {} of {}", found.len(), all.len());
        assert_eq!(ids(&found, "seq"), all[..found.len()], "{limit}: in order, without gaps");
    }
}

#[test]
fn markers_and_stills_are_each_listed_once() {
    let server = shared().with_clips();
    let run = server.ingested(&json!({"source_uri": "talk.mp4"}));
    server.post_run(&run, "analyze", &json!({"model": "qwen3-vl-8b"})).assert_ok();
    for (list, id) in [("markers", "marker_id"), ("keyframes", "seq")] {
        let path = |limit| format!("/v1/runs/{run}/{list}?limit={limit}");
        let whole = || server.get(&path(1000)).json()[list].as_array().expect("an array").clone();
        let len = whole().len();
        assert!(len > 2, "{list}: {len}");
        for limit in [1, 2, len - 1, len] {
            let whole = whole();
            // Pages go on with the analysis that they began with.
            let again = || drop(server.post_run(&run, "analyze", &json!({"model": "qwen3-vl-8b"})));
            let found = pages(&server, &path(limit), field(list), again);
            assert_eq!(ids(&found, id), ids(&whole, id), "{list} by {limit}");
        }
    }
}

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
        (format!("/v1/runs/{live}/analyze"), json!({"model": " \t"}), "model"),
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
