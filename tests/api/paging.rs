//! Lists over HTTP, page by page to their end, while more is added.

use serde_json::{Value, json};

use crate::support::{Server, shared};

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
