//! Credentials, tenants, ownership and rates; keys that are wrong, bare or for the metrics alone, and none: while they are off, pages
//! of other sites that a browser on this machine shows change and read nothing.

use std::time::Instant;

use media::RunId;
use serde_json::json;

use super::{
    routes::book::{self, Book},
    uploads, whip,
};
use crate::support::{ALICE, BOB, Call, Server, Setup, clip_bytes, seed, shared};

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
        let is_told = malformed.1.contains(r#""field":"run_id""#);
        assert_eq!((malformed.0, is_told), (422, true), "{method} {template}: {}", malformed.1);
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
    let rows: [(&[&str], u16); 8] = [
        (&[], 401),
        (&[""], 401),
        (&["acme"], 200),
        (&["z\u{fc}rich"], 200),
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

const BARE: &str = "a-secret-without-name";
/// Record of [`BARE`] by earlier versions: the start of its SHA-256.
const FORMER: &str = "538c49f68c6e";

#[test]
fn a_flood_of_wrong_keys_learns_nothing_leaves_nothing_and_locks_nobody_else_out() {
    let server = Setup::temporary().var("SERVICE_RATE_LIMIT_TENANT_RPS", "50").start();
    let refused = |path: &str, key: &str| {
        let reply = server.call("GET", path).key(Some(key)).send();
        let headers = ["retry-after", "www-authenticate"].map(|name| reply.header(name).to_owned());
        (reply.status, reply.text.replace(reply.header("x-request-id"), ""), headers)
    };
    let first = refused("/v1/runs", "wrong");
    assert_eq!((first.0, first.2[1].as_str()), (401, "Bearer"));
    assert!((1..20).all(|_| refused("/v1/runs", "wrong") == first), "twenty at once");
    // One a second is given back meanwhile.
    let of_metrics = |at: u32| refused("/v1/metrics", &format!("warm-{at}")).0;
    assert_eq!((0..500).map(of_metrics).find(|status| *status != 401), Some(429));
    let late = (0..500).map(|_| refused("/v1/runs", "wrong")).find(|reply| *reply != first);
    let late = late.expect("an end of them");
    assert_eq!((late.0, late.2[0].as_str()), (429, "1"));
    assert!(late.1.contains("\"rate_limited\""), "{}", late.1);
    let known = |reply| reply == first || reply == late;
    let before = server.memory_kb("VmRSS");
    for at in 0..3000 {
        let near = format!("{ALICE}{}", "x".repeat(at % 40 + 1));
        assert!(known(refused("/v1/runs", &near)), "one byte more or forty");
        if at % 3 == 0 {
            assert!(known(refused("/v1/runs", &format!("{at}-{}", "k".repeat(1000)))));
        }
    }
    let grown = server.memory_kb("VmRSS").saturating_sub(before);
    assert!(grown < 8000, "{grown} kB for 4000 wrong keys");
    let status = |key| server.call("GET", "/v1/runs").key(key).send().status;
    assert_eq!((status(Some(ALICE)), status(Some(BOB)), status(None)), (200, 200, 401));
    assert!(server.metric(r#"service_refusals_total{reason="failed_authentications"}"#) > 0.0);
}

#[test]
fn a_bare_key_owns_what_it_owned_and_is_named_by_a_digest_that_others_cannot_make() {
    let dir = tempfile::tempdir().expect("a directory");
    let old = RunId::from_bytes([7; 16]);
    {
        let log = seed::log(dir.path());
        let created = seed::created(FORMER);
        seed::append(&log, old, [created]);
        log.close();
    }
    let setup = Setup::new(dir.path()).var("SERVICE_API_KEYS", &format!("alice:{ALICE},{BARE}"));
    let mut owners = Vec::new();
    for _start in 0..2 {
        let server = setup.start();
        let status = |path: &str, key| server.call("GET", path).key(Some(key)).send().status;
        let path = format!("/v1/runs/{old}");
        assert_eq!((status(&path, BARE), status(&path, ALICE)), (200, 404));
        let run = server.call("POST", "/v1/runs").key(Some(BARE)).json(&json!({})).send().json();
        let query = json!({ "run_id": run["run_id"] });
        let found = server.call("POST", "/v1/query").key(Some(BARE)).json(&query).send().json();
        let owner = found["matches"][0]["payload"]["principal_key"].as_str().expect("a name");
        assert!(owner.len() == 36 && owner.starts_with("key-"), "{owner}");
        owners.push(owner.to_owned());
    }
    assert_eq!(owners[0], owners[1], "the secret is kept");
}

#[test]
fn keys_of_the_metrics_open_nothing_else() {
    const SCRAPER: &str = "the-key-of-the-scraper";
    let keys = format!("prometheus:{SCRAPER}");
    let server = Setup::temporary().var("SERVICE_METRICS_API_KEYS", &keys).start();
    let status = |path: &str, key| server.call("GET", path).key(Some(key)).send().status;
    for (key, metrics, rest) in [(SCRAPER, 200, 401), (ALICE, 200, 200)] {
        assert_eq!(status("/v1/metrics", key), metrics, "{key}");
        for path in ["/v1/runs", "/v1/ready", "/v1/limits"] {
            assert_eq!(status(path, key), rest, "{key} on {path}");
        }
    }
}

#[test]
fn without_keys_everybody_here_is_one_principal_and_pages_of_others_are_nobody() {
    let server = Setup::temporary().var("SERVICE_REQUIRE_API_KEY", "false").start();
    only_local_names_are_answered(&server);
    a_post_has_a_header_that_no_foreign_page_sends(&server);
    let run = server.call("POST", "/v1/runs").key(None).json(&json!({})).send().run();
    let path = format!("/v1/runs/{run}");
    assert_eq!(server.call("GET", &path).key(Some("anything")).send().status, 200);
    // What a browser asks about itself needs no more.
    assert_eq!(server.call("DELETE", &path).key(None).send().status, 200);
}

fn only_local_names_are_answered(server: &Server) {
    let port = server.addr().rsplit_once(':').expect("a port").1.to_owned();
    // `src/api/keyless.rs` has more names.
    for (host, status) in [
        ("localhost".to_owned(), 200),
        (format!("[::1]:{port}"), 200),
        (format!("evil.example:{port}"), 421),
        ("10.0.0.1".to_owned(), 421),
    ] {
        let named = |path| server.call("GET", path).key(None).header("host", &host).send();
        let reply = named("/v1/runs");
        assert_eq!(reply.status, status, "{host}: {}", reply.text);
        assert_eq!(reply.text.contains("SERVICE_API_KEYS"), status == 421, "{}", reply.text);
        assert_eq!(named("/v1/health").status, 200, "{host}: it tells nothing");
    }
    // A key is as good a proof as any: with keys, names matter to nobody.
    let guarded = shared();
    assert_eq!(guarded.call("GET", "/v1/runs").header("host", "evil.example").send().status, 200);
}

fn a_post_has_a_header_that_no_foreign_page_sends(server: &Server) {
    let post = |path: &str| server.call("POST", path).key(None);
    let typed = |kind: &str| post("/v1/runs").header("content-type", kind).body("{}");
    let stop = format!("/v1/runs/{}/stop", typed("application/json").send().run());
    let form = uploads::file_form("a.mp4", &clip_bytes("motion.mp4"));
    let upload = || post("/v1/upload").header("content-type", uploads::TYPE).body(form.clone());
    let asked = |call: Call<'_>| call.header("x-requested-with", "test").send();
    let offer = whip::publishing(server, &whip::offer("VP8")).key(None);
    let rows = [
        ("a form", typed("application/x-www-form-urlencoded").send(), 403),
        ("text", typed("text/plain;charset=UTF-8").send(), 403),
        ("text with a claim", typed("Text/Plain; a=application/json").send(), 403),
        ("no type", post("/v1/runs").body("{}").send(), 403),
        ("an upload", upload().send(), 403),
        ("an upload that was asked about", asked(upload()), 200),
        ("a key", upload().header("x-api-key", "any").send(), 200),
        ("an offer", offer.send(), 201),
        ("nothing", post(&stop).send(), 403),
        ("nothing, asked about", asked(post(&stop)), 200),
    ];
    for (name, reply, status) in rows {
        assert_eq!(reply.status, status, "{name}: {}", reply.text);
        assert_eq!(reply.text.contains("x-requested-with"), status == 403, "{}", reply.text);
    }
}
