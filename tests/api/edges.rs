//! Edges of the whole: headers that every answer has, other origins, and the console's page: served without a key, under a strict
//! policy, or not at all.

use std::{
    io::{Read, Write},
    net::TcpStream,
    time::Duration,
};

use serde_json::json;

use super::routes::book::{self, Book};
use crate::support::{ALICE, Reply, Server, Setup, shared};

/// The answer to raw bytes, up to the close of the connection.
pub fn raw(server: &Server, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(server.addr()).expect("accepted");
    stream.set_read_timeout(Some(Duration::from_secs(60))).expect("set");
    // A refusal may come before everything is sent.
    stream.write_all(bytes).ok();
    let mut reply = Vec::new();
    stream.read_to_end(&mut reply).expect("readable");
    String::from_utf8_lossy(&reply).into_owned()
}

/// The head of a request that is the last of its connection.
pub fn head(line: &str, fields: &[&str]) -> String {
    let fields: String = fields.iter().map(|field| format!("{field}\r\n")).collect();
    format!("{line} HTTP/1.1\r\nhost: a\r\nconnection: close\r\n{fields}\r\n")
}

#[test]
fn every_answer_of_every_layer_names_its_request() {
    let server = shared();
    let key = format!("x-api-key: {}", server.key(ALICE));
    let pad = format!("x-pad: {}", "a".repeat(70_000));
    let body = [&*key, "content-type: application/json", "content-length: 2097153"];
    let upload = "content-type: multipart/form-data; boundary=b";
    let offer = [&*key, "content-type: application/sdp", "transfer-encoding: chunked"];
    let rows = [
        ("no route", head("GET /nothing", &[]), 404),
        ("no method", head("PUT /v1/health", &[]), 405),
        ("no key", head("GET /v1/runs", &[]), 401),
        ("a preflight", head("OPTIONS /v1/runs", &[]), 400),
        ("a body past the limit", head("POST /v1/runs", &body) + &"a".repeat(2_097_153), 413),
        (
            "an upload past the limit, before its body",
            head("POST /v1/upload", &[&key, upload, "content-length: 99999999999999"]),
            413,
        ),
        ("an offer in broken chunks", head("POST /v1/stream/whip", &offer) + "zz\r\n", 400),
        ("a huge head", head("GET /", &[&pad]), 431),
        ("no HTTP", "nonsense\r\n\r\n".to_owned(), 400),
        ("health", head("GET /v1/health", &[]), 200),
    ];
    for (name, bytes, status) in rows {
        let reply = raw(&server, bytes.as_bytes());
        assert!(reply.starts_with(&format!("HTTP/1.1 {status} ")), "{name}: {reply}");
        assert!(reply.contains("\r\nx-request-id: req-"), "{name}: {reply}");
        assert!(reply.contains("\r\nx-content-type-options: nosniff"), "{name}: {reply}");
    }
}

#[test]
fn every_answer_of_every_route_keeps_browsers_from_guessing_caching_and_running_it() {
    let server = shared();
    let run = server.create_run();
    let operations = Book::new(&server).operations();
    assert!(operations.len() >= 30, "{}", operations.len());
    for (method, template) in operations {
        let path = book::path(&template, &run);
        // A stream of events has no end to wait for.
        let keys = if path.ends_with("/stream") { &[None][..] } else { &[None, Some(ALICE)] };
        for key in keys {
            let reply = server.call(&method, &path).key(*key).json(&json!({})).send();
            let name = format!("{method} {template} {key:?}: {}", reply.status);
            assert_eq!(reply.header("x-content-type-options"), "nosniff", "{name}");
            assert_eq!(reply.header("referrer-policy"), "no-referrer", "{name}");
            assert_ne!(reply.header("cache-control"), "", "{name}");
            let policy = reply.header("content-security-policy");
            assert!(policy.starts_with("default-src 'none'"), "{name}: {policy}");
            assert!(reply.header("x-request-id").starts_with("req-"), "{name}");
            if matches!(reply.status, 429 | 503) {
                assert_ne!(reply.header("retry-after"), "", "{name}");
            }
        }
    }
}

#[test]
fn browsers_are_told_exactly_what_they_may_read() {
    let ours = "https://console.example";
    let server = Setup::temporary().var("SERVICE_CORS_ALLOWED_ORIGINS", ours).start();
    for path in ["/v1/runs", "/v1/nothing", "/v1/health"] {
        let asked = server.call("OPTIONS", path).key(None);
        asked.send().assert_refused(400, "validation_error");
        for other in ["https://console.example.evil", "http://console.example", "null"] {
            let reply = server.call("OPTIONS", path).key(None).header("origin", other).send();
            assert_eq!((reply.status, reply.code().as_str()), (403, "cors_forbidden"), "{other}");
            assert_eq!(reply.header("access-control-allow-origin"), "", "{other}");
        }
        let asked = server.call("OPTIONS", path).key(None).header("origin", ours);
        asked.header("access-control-request-method", "POST").send().assert_status(204);
    }
    let other = server.call("GET", "/v1/runs").header("origin", "https://evil.example").send();
    let told = ["access-control-allow-origin", "vary"].map(|name| other.header(name));
    assert_eq!((other.status, told), (200, ["", "origin"]));
    for (path, key, status) in [("/v1/runs", Some(ALICE), 200), ("/v1/runs", None, 401)] {
        let reply = server.call("GET", path).key(key).header("origin", ours).send();
        assert_eq!(reply.status, status);
        assert_eq!(reply.header("access-control-allow-origin"), ours, "errors can be read too");
        let exposed = reply.header("access-control-expose-headers");
        for header in ["x-request-id", "retry-after", "link", "etag", "location"] {
            assert!(exposed.split(", ").any(|name| name == header), "{header} in {exposed}");
        }
        assert_eq!(reply.header("vary"), "origin");
        assert_eq!(reply.header("access-control-allow-credentials"), "", "keys are no cookies");
    }
    let open = Setup::temporary()
        .var("SERVICE_REQUIRE_API_KEY", "false")
        .var("SERVICE_CORS_ALLOWED_ORIGINS", "*")
        .start();
    let reply =
        open.call("GET", "/v1/runs").key(None).header("origin", "https://any.example").send();
    assert_eq!((reply.status, reply.header("access-control-allow-origin")), (200, "*"));
}

const VIEWS: [&str; 6] = ["/", "/runs", "/runs/run-0", "/live", "/search", "/machine"];

fn get(server: &Server, path: &str, header: (&str, &str)) -> Reply {
    server.call("GET", path).key(None).header(header.0, header.1).send()
}

#[test]
fn every_view_is_the_page_under_a_strict_policy() {
    let server = shared();
    for path in VIEWS {
        let reply = get(&server, path, ("accept", "text/html"));
        assert_eq!(reply.status, 200, "{path}: {}", reply.text);
        assert_eq!(reply.header("content-type"), "text/html; charset=utf-8");
        assert_eq!(reply.header("cache-control"), "no-cache");
        let policy = reply.header("content-security-policy");
        assert!(policy.contains("script-src 'self';") && !policy.contains("unsafe"), "{policy}");
        assert!(policy.contains("require-trusted-types-for 'script'"), "{policy}");
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/console/dist/index.html");
        let is_built = std::path::Path::new(page).exists();
        assert_eq!(reply.text.contains("without its console"), !is_built, "{}", reply.text);
    }
    for path in ["/nothing", "/runs/a/b", "/assets/none.js", "/assets/..%2findex.html"] {
        assert_eq!(get(&server, path, ("accept", "*/*")).status, 404, "{path}");
    }
}

#[test]
fn assets_are_beside_the_page_and_kept_for_good() {
    let server = shared();
    for (page, up) in [("/", "\"./assets/"), ("/runs/run-0", "\"../assets/")] {
        let text = get(&server, page, ("accept", "text/html")).text;
        for name in text.split(up).skip(1).filter_map(|rest| rest.split('"').next()) {
            let path = format!("/assets/{name}");
            let [whole, packed] = ["identity, gzip;q=0", "br, gzip"]
                .map(|coding| get(&server, &path, ("accept-encoding", coding)));
            assert_eq!((whole.status, packed.status), (200, 200), "{path}");
            assert_eq!(whole.header("cache-control"), "public, max-age=31536000, immutable");
            assert_eq!(whole.header("content-encoding"), "", "{path}");
            assert_eq!(packed.header("content-encoding"), "gzip", "{path}");
        }
    }
}

#[test]
fn a_setting_turns_it_off() {
    let server = Setup::temporary().var("SERVICE_CONSOLE", "off").start();
    for path in VIEWS {
        assert_eq!(get(&server, path, ("accept", "text/html")).status, 404, "{path}");
    }
    assert_eq!(server.get("/v1/runs").status, 200);
}
