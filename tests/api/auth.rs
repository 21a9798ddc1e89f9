//! Credentials, tenants, ownership and rates.

use std::time::Instant;

use serde_json::json;

use super::routes::book::{self, Book};
use crate::support::{ALICE, BOB, Setup, shared};

const MISSING: &str = "run-00000000000000000000000000000000";

#[test]
fn both_headers_carry_the_same_credential() {
    let server = shared();
    let [alice, bob] = [ALICE, BOB].map(|key| server.key(key));
    let bearer = |key: &str| ("authorization", format!("Bearer {key}"));
    let key = |key: &str| ("x-api-key", key.to_owned());
    let rows = [
        ("x-api-key", vec![key(&alice)], 200),
        ("bearer", vec![bearer(&alice)], 200),
        ("scheme in lower case", vec![("authorization", format!("bearer {alice}"))], 200),
        ("both, equal", vec![key(&alice), bearer(&alice)], 200),
        ("both, different", vec![key(&alice), bearer(&bob)], 401),
        ("two keys", vec![key(&alice), key(&bob)], 401),
        ("a good and a bad one", vec![key(&alice), bearer("x")], 401),
        ("none", vec![], 401),
        ("empty", vec![key("")], 401),
        ("unknown", vec![key("alice-ke")], 401),
        ("the name is no key", vec![key("alice")], 401),
        ("another scheme", vec![("authorization", format!("Basic {alice}"))], 401),
    ];
    for (name, headers, status) in rows {
        let call = server.call("GET", "/v1/runs").key(None);
        let call = headers.iter().fold(call, |call, (header, value)| call.header(header, value));
        let reply = call.send();
        let code = if status == 401 { "unauthorized" } else { "" };
        assert_eq!((reply.status, &*reply.code()), (status, code), "{name}: {}", reply.text);
    }
    assert_eq!(server.call("GET", "/v1/health").key(None).send().status, 200);
    assert_eq!(server.call("GET", "/v1/ready").key(None).send().status, 401);
}

/// Another's run, in every route that the document gives runs, and one that there never was.
#[test]
fn a_foreign_run_is_indistinguishable_from_a_missing_one() {
    let server = shared();
    let run = server.create_run();
    let bodies = [
        ("/ingest", json!({"source_uri": "x.mp4"})),
        ("/analyze", json!({"model": "qwen3-vl-8b"})),
        ("/reason", json!({"source_uri": "x.mp4", "model": "qwen3-vl-4b"})),
        ("/webhooks", json!({"url": "https://example.com/hook"})),
        ("/feedback", json!({"rating": 5, "category": "c"})),
    ];
    let mut compared = 0;
    for (method, template) in Book::new(&server).operations() {
        if !template.contains("{id}") {
            continue;
        }
        let body = bodies.iter().find(|(end, _)| method == "POST" && template.ends_with(end));
        let asked = [&*run, MISSING, "x"].map(|id| {
            let path = book::path(&template, id);
            let call = server.call(&method, &path).key(Some(BOB));
            let body = body.map_or(json!({}), |(_, body)| body.clone());
            let reply = if method == "POST" { call.json(&body).send() } else { call.send() };
            let mut headers = reply.headers.clone();
            headers.remove("x-request-id");
            headers.remove("date");
            (reply.status, reply.text.replace(reply.header("x-request-id"), ""), headers)
        });
        let [foreign, absent, malformed] = asked;
        assert_eq!(foreign.0, 404, "{method} {template}: {}", foreign.1);
        assert_eq!(foreign, absent, "{method} {template}");
        assert_eq!(malformed.0, 422, "{method} {template}: {}", malformed.1);
        compared += 1;
    }
    assert!(compared >= 15, "{compared} routes");
    for (path, body) in [
        ("/v1/query", json!({"run_id": run})),
        ("/v1/search", json!({"run_id": run, "query": "x"})),
        ("/v1/infer", json!({"run_id": run, "model": "qwen3-vl-4b", "prompt": "p"})),
    ] {
        let [foreign, absent] = [&*run, MISSING].map(|id| {
            let mut body = body.clone();
            body["run_id"] = json!(id);
            let reply = server.call("POST", path).key(Some(BOB)).json(&body).send();
            (reply.status, reply.text.replace(reply.header("x-request-id"), ""))
        });
        assert_eq!((foreign.0, &foreign), (404, &absent), "{path}");
    }
    assert_eq!(server.call("GET", "/v1/runs").key(Some(BOB)).send().json(), json!([]));
    assert_eq!(server.kinds(&run), ["run_created"], "nothing of Bob's left a trace");
}

/// By medians of pairs in turn, with a margin that a busy machine does not use up.
#[test]
fn a_foreign_run_takes_as_long_as_a_missing_one() {
    let server = shared();
    let run = server.create_run();
    for rest in ["", "/events", "/keyframes"] {
        let mut times = [Vec::new(), Vec::new()];
        for at in 0..400 {
            let which = at % 2;
            let id = [&*run, MISSING][which];
            let started = Instant::now();
            let call = server.call("GET", &format!("/v1/runs/{id}{rest}")).key(Some(BOB));
            assert_eq!(call.send().status, 404);
            times[which].push(started.elapsed());
        }
        let [foreign, missing] = times.map(|mut times| {
            times.sort();
            times[times.len() / 2].as_secs_f64()
        });
        let ratio = foreign / missing;
        assert!((0.5..2.0).contains(&ratio), "{rest}: {foreign} s and {missing} s");
    }
}

#[test]
fn a_tenant_is_asked_for_only_where_it_is_required() {
    let server = Setup::temporary().var("SERVICE_REQUIRE_TENANT_ID", "true").start();
    let long = "t".repeat(129);
    let rows: [(&[&str], u16); 7] = [
        (&[], 401),
        (&[""], 401),
        (&["acme"], 200),
        (&[&long], 422),
        (&["acme", "acme"], 200),
        (&["acme", "other"], 422),
        (&["", "acme"], 422),
    ];
    for (tenants, status) in rows {
        let call = server.call("GET", "/v1/runs");
        let call = tenants.iter().fold(call, |call, tenant| call.header("x-tenant-id", tenant));
        let reply = call.send();
        assert_eq!(reply.status, status, "{tenants:?}: {}", reply.text);
        assert!(status != 422 || reply.fields() == ["x-tenant-id"], "{}", reply.text);
    }
}

#[test]
fn the_flood_of_one_caller_takes_nothing_of_the_rate_that_all_share() {
    let setup = Setup::temporary().var("SERVICE_RATE_LIMIT_GLOBAL_RPS", "40");
    let server = setup.var("SERVICE_RATE_LIMIT_TENANT_RPS", "3").start();
    let call = |key| server.call("GET", "/v1/limits").key(Some(key)).send().status;
    assert_eq!([(); 4].map(|()| call(ALICE)), [200, 200, 200, 429]);
    let refused = server.get("/v1/limits");
    assert_eq!((refused.code().as_str(), refused.header("retry-after")), ("rate_limited", "1"));
    for flooding in [ALICE, "a key that nobody has"] {
        let refused = (0..150).filter(|_| call(flooding) == 429).count();
        assert!(refused > 50, "{flooding}: {refused}");
        assert_eq!([(); 3].map(|()| call(BOB)), [200; 3], "beside {flooding}");
        assert_eq!(server.get("/v1/health").status, 200, "beside {flooding}");
        // The bucket of Bob is full again.
        std::thread::sleep(std::time::Duration::from_secs(1));
    }
}
