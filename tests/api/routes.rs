//! One row a route and outcome; every status that the document gives a route is shown by a row.
//!
//! Long because it is the table of every route.

pub mod book;

use serde_json::{Value, json};

use crate::{
    api::{
        analyses::frame,
        uploads::{TYPE, file_form, uploading},
    },
    support::{Server, Setup, assert_has, clip_bytes, shared},
};
use book::Book;

const HASH: &str = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
const MISSING: &str = "run-00000000000000000000000000000000";

fn question(run: Option<&str>) -> Value {
    json!({"model": "qwen3-vl-4b", "prompt": "p", "run_id": run})
}

/// Work of each kind, some of it for `run`: paths and bodies.
pub fn work(run: &str) -> [(String, Value); 5] {
    let of = |what: &str| format!("/v1/runs/{run}/{what}");
    [
        ("/v1/runs".to_owned(), json!({})),
        (of("ingest"), json!({"source_uri": "talk.mp4"})),
        (of("analyze"), json!({"model": "qwen3-vl-8b", "frames": [frame(0)]})),
        (of("reason"), json!({"source_uri": "talk.mp4", "model": "qwen3-vl-4b"})),
        ("/v1/infer".to_owned(), question(Some(run))),
    ]
}

/// Statuses that no test here shows, and why.
fn shown_elsewhere(operation: &str, status: u16) -> bool {
    if status == 500 {
        // A failure of our own cannot be asked for: `with_damage` shows it where a disk can lose what a route reads, feedback
        // without its database.
        let shown = ["analyzeRun", "getKeyframe", "query", "uploadFile"];
        let listed = ["getEvents", "getKeyframes", "getMarkers"];
        return !shown.contains(&operation)
            && !listed.contains(&operation)
            && !operation.ends_with("Feedback");
    }
    // `whip.rs` has offers, and statuses that are plain text.
    operation.starts_with("whip")
        || matches!(
            (operation, status),
            // The log takes these on a full disk too; only a log that fails refuses them.
            ("deleteRun" | "stopRun" | "finishRun" | "keepaliveRun", 503)
            // An answer that does not end is for the tests of streams to read.
            | ("followEvents" | "followRunEvents", 200 | 204 | 503)
            // `ledger.rs` fills the disk that records need.
            | ("deleteFile" | "deleteWebhook" | "getFile" | "listFiles", 503)
            | ("listDeadLetters" | "redeliverDeadLetters", 503)
            | ("deleteWebhookOfAll" | "listDeadLettersOfAll" | "redeliverDeadLettersOfAll", 503)
            // `webhooks_of_all.rs` makes as many as may be.
            | ("createWebhookOfAll", 409)
            // Thousands of readers or tickets, or dozens of excerpts or searches, would have to be under way at once.
            | ("getEvents" | "getInteractions" | "getKeyframe" | "getKeyframes" | "listRuns", 503)
            | ("getActivity" | "getFrame" | "getMarkers" | "getSignals" | "getSource" | "query", 503)
            | ("createMediaTicket" | "getClip" | "search", 503)
            // `jobs.rs` leaves work and finds it again.
            | ("ingestRun" | "analyzeRun" | "reason", 202)
            | ("listJobs" | "getJob" | "cancelJob", 200 | 503)
            // `infer.rs` has a backend, and `idempotency.rs` sends its key again while it is under way.
            | ("infer" | "inferBatch", 200)
            | ("inferBatch", 409)
            // `live/health.rs` has publishers.
            | ("getSessionHealth", 200)
            // `feedback.rs` and `mirror_all.rs` have a real database.
            | ("submitFeedback" | "listFeedback" | "listFleetRuns" | "searchFleet", 200)
        )
}

#[test]
fn every_documented_status_of_every_route_is_shown() {
    let dir = tempfile::tempdir().expect("a directory");
    let setup = Setup::new(dir.path())
        .clips()
        .var("SERVICE_MAX_UPLOAD_BYTES", "3145728")
        .var("SERVICE_EGRESS_ALLOWED_NETWORKS", "127.0.0.0/8");
    let server = setup.start();
    let mut book = Book::new(&server);
    ordinary(&server, &mut book);
    webhooks(&server, &mut book);
    refusals_of_any_route(&server, &mut book);
    media(&server, &mut book);
    with_damage(&dir.path().join("damaged"), &mut book);
    let run = server.create_run();
    drop(server);
    without_room(&setup, &mut book, &run);
    without_patience(dir.path(), &mut book);
    without_quota(dir.path(), &mut book);
    assert_eq!(book.missing(shown_elsewhere), Vec::<String>::new(), "documented, and not shown");
}

/// Statuses of each route in ordinary use, by the contract's tables; `limits.rs` has values out of bounds.
fn ordinary(server: &Server, book: &mut Book) {
    let (live, ended, deleted) = (server.create_run(), server.create_run(), server.create_run());
    assert_eq!(server.post_run(&ended, "stop", &json!({})).status, 200);
    assert_eq!(server.call("DELETE", &format!("/v1/runs/{deleted}")).send().status, 200);
    let (spare, done) = (server.create_run(), server.create_run());
    let frames = json!({ "model": "qwen3-vl-8b", "frames": [frame(0)] });
    let detailed = json!({"mode": "detailed", "model": "gemma-3-4b", "other": 1});
    let missing = json!({"source_uri": "no.mp4", "model": "qwen3-vl-4b"});
    let exact = "status=exact&from_frame=0&to_frame=9";
    let rows: Vec<(&str, String, Value, u16)> = vec![
        ("GET", "/v1/health".into(), Value::Null, 200),
        ("GET", "/v1/ready".into(), Value::Null, 200),
        ("GET", "/v1/limits".into(), Value::Null, 200),
        ("GET", "/v1/doctor".into(), Value::Null, 200),
        ("GET", "/v1/stats?minutes=5".into(), Value::Null, 200),
        ("GET", "/v1/models".into(), Value::Null, 200),
        ("GET", "/v1/openapi.json".into(), Value::Null, 200),
        ("GET", "/v1/metrics".into(), Value::Null, 200),
        ("GET", "/v1/files".into(), Value::Null, 200),
        ("GET", "/v1/feedback".into(), Value::Null, 500),
        ("POST", "/v1/fleet/search".into(), json!({"query": " "}), 422),
        ("POST", format!("/v1/runs/{live}/feedback"), json!({"rating": 1, "category": "c"}), 500),
        ("POST", "/v1/runs".into(), json!({}), 200),
        ("POST", "/v1/runs".into(), detailed, 200),
        ("POST", "/v1/runs".into(), json!({"model": "gpt-0"}), 422),
        ("POST", "/v1/runs".into(), json!([]), 422),
        ("PATCH", format!("/v1/runs/{live}"), json!({"label": "gate 3"}), 200),
        ("PATCH", format!("/v1/runs/{ended}"), json!({"label": null}), 200),
        ("PATCH", format!("/v1/runs/{live}"), json!({}), 422),
        ("GET", "/v1/runs?status=pending&limit=1".into(), Value::Null, 200),
        ("GET", "/v1/runs?include=summary".into(), Value::Null, 200),
        ("GET", "/v1/runs?cursor=zzz".into(), Value::Null, 422),
        ("GET", format!("/v1/runs/{live}"), Value::Null, 200),
        ("GET", format!("/v1/runs/{ended}"), Value::Null, 200),
        ("GET", format!("/v1/runs/{deleted}"), Value::Null, 404),
        ("GET", "/v1/runs/nonsense".into(), Value::Null, 422),
        ("DELETE", format!("/v1/runs/{spare}"), Value::Null, 200),
        ("DELETE", format!("/v1/runs/{deleted}"), Value::Null, 404),
        ("GET", format!("/v1/runs/{ended}/state"), Value::Null, 200),
        ("GET", format!("/v1/runs/{deleted}/state"), Value::Null, 404),
        ("POST", format!("/v1/runs/{live}/keepalive"), Value::Null, 200),
        ("POST", format!("/v1/runs/{ended}/keepalive"), Value::Null, 409),
        ("POST", format!("/v1/runs/{ended}/stop"), Value::Null, 409),
        ("POST", format!("/v1/runs/{done}/finish"), Value::Null, 200),
        ("POST", format!("/v1/runs/{ended}/finish"), Value::Null, 409),
        ("POST", format!("/v1/runs/{live}/ingest"), json!({"source_uri": "no.mp4"}), 422),
        ("POST", format!("/v1/runs/{live}/ingest"), json!({}), 422),
        ("POST", format!("/v1/runs/{live}/analyze"), json!({"model": "qwen3-vl-8b"}), 422),
        ("POST", format!("/v1/runs/{live}/reason"), missing, 422),
        ("POST", format!("/v1/runs/{ended}/reason"), json!({}), 409),
        ("POST", format!("/v1/runs/{live}/analyze"), frames.clone(), 200),
        ("POST", format!("/v1/runs/{ended}/analyze"), frames, 409),
        ("GET", format!("/v1/runs/{live}/events?limit=1&from_seq=0&index=x"), Value::Null, 200),
        ("GET", format!("/v1/runs/{deleted}/events"), Value::Null, 404),
        ("GET", format!("/v1/runs/{live}/markers?{exact}"), Value::Null, 200),
        ("GET", format!("/v1/runs/{live}/interactions?index=x&limit=1"), Value::Null, 200),
        ("GET", format!("/v1/runs/{live}/activity"), Value::Null, 200),
        ("GET", format!("/v1/runs/{live}/signals?max_points=2"), Value::Null, 200),
        ("GET", format!("/v1/runs/{live}/clip?from_ms=1&to_ms=1"), Value::Null, 422),
        ("GET", format!("/v1/runs/{live}/clip?from_ms=0&to_ms=1"), Value::Null, 404),
        ("GET", format!("/v1/runs/{live}/frames/0"), Value::Null, 404),
        ("GET", format!("/v1/runs/{live}/frames/x"), Value::Null, 422),
        ("GET", format!("/v1/runs/{live}/health"), Value::Null, 409),
        ("POST", format!("/v1/runs/{live}/media-ticket"), Value::Null, 200),
        ("GET", format!("/v1/runs/{live}/keyframes"), Value::Null, 200),
        ("GET", format!("/v1/runs/{live}/keyframes/{HASH}"), Value::Null, 404),
        ("GET", format!("/v1/runs/{live}/keyframes/xyz"), Value::Null, 422),
        ("POST", "/v1/query".into(), json!({"run_id": live, "kind": "run_created"}), 200),
        ("POST", "/v1/query".into(), json!({"run_id": deleted}), 404),
        ("POST", "/v1/query".into(), json!({"run_id": "nonsense"}), 422),
        ("POST", "/v1/query".into(), json!({}), 422),
        ("POST", "/v1/search".into(), json!({"query": " x "}), 200),
        ("POST", "/v1/search".into(), json!({"query": "x", "run_id": live}), 200),
        ("POST", "/v1/search".into(), json!({"query": "x", "run_id": deleted}), 404),
        ("POST", "/v1/search".into(), json!({"query": "  "}), 422),
        ("POST", "/v1/infer".into(), question(None), 500),
        ("POST", "/v1/infer".into(), json!({"prompt": "p"}), 422),
        ("POST", "/v1/infer".into(), question(Some(MISSING)), 404),
        ("POST", "/v1/infer".into(), question(Some(&ended)), 409),
        ("POST", "/v1/infer/batch".into(), json!({"requests": [question(None)]}), 500),
    ];
    for (method, path, body, status) in rows {
        let reply = book.ask(server, (method, &path), &body, status);
        // `edges.rs` has the other headers.
        assert_eq!(reply.header("cache-control"), "no-store", "{method} {path} {body}");
    }
}

/// Refusals that any route may give: credentials, ids, types, sizes and rates.
fn refusals_of_any_route(server: &Server, book: &mut Book) {
    let live = server.create_run();
    let long = "t".repeat(129);
    // WHIP has types, sizes and failures of its own, which `whip.rs` looks at.
    let operations = book.operations().into_iter();
    let operations = operations.filter(|(_, path)| !path.starts_with("/v1/stream/whip"));
    for (at, (method, template)) in operations.enumerate() {
        let path = book::path(&template, &live);
        let call = || server.call(&method, &path);
        let (large_type, large) = match &*template {
            "/v1/upload" => (TYPE, file_form("a.mp4", &vec![b' '; (3 << 20) + 1])),
            _ => ("application/json", vec![b' '; (2 << 20) + 1]),
        };
        let rows = [
            (400, server.call(&method, &format!("{path}?x=%zz"))),
            (401, call().key(None)),
            // Of wrong keys, an address may bring twenty.
            (401, if at % 8 == 0 { call().key(Some("no-such-key")) } else { call().key(None) }),
            (422, call().header("x-tenant-id", &long)),
            (404, server.call(&method, &book::path(&template, MISSING)).json(&json!({}))),
            (413, call().header("content-type", large_type).body(large)),
            (415, call().header("content-type", "text/plain").body("{}")),
        ];
        for (status, call) in rows {
            let documented = book.documents(&method, &template, status);
            let is_for_ids = status == 404 && !template.contains("{id}");
            if documented && !is_for_ids {
                let reply = call.send();
                assert_eq!(reply.status, status, "{method} {template}: {}", reply.text);
                book.note(&method, &path, &reply);
            }
        }
    }
}

/// Webhooks whose target is there to be named and takes nothing.
fn webhooks(server: &Server, book: &mut Book) {
    let run = server.create_run();
    let path = format!("/v1/runs/{run}/webhooks");
    let target = json!({"url": "https://127.0.0.1:9/hook"});
    for path in [&*path, "/v1/webhooks"] {
        let made = book.ask(server, ("POST", path), &target, 200);
        let of = format!("{path}/{}", made.json()["webhook_id"].as_str().expect("an id"));
        let letters = format!("{of}/dead-letters");
        let again = format!("{of}/redeliver");
        let rows = [
            ("GET", path, 200),
            ("GET", &letters, 200),
            ("POST", &again, 200),
            ("DELETE", &of, 200),
            ("DELETE", &of, 404),
            ("GET", &letters, 404),
            ("POST", &again, 404),
        ];
        for (method, path, status) in rows {
            book.ask(server, (method, path), &Value::Null, status);
        }
    }
    assert_eq!(server.post_run(&run, "stop", &json!({})).status, 200);
    book.ask(server, ("POST", &path), &target, 409);
}

/// Routes that need a real clip: frames, stills and files.
fn media(server: &Server, book: &mut Book) {
    let run = server.create_run();
    let of = |rest: &str| format!("/v1/runs/{run}/{rest}");
    let ingest = json!({"source_uri": "talk.mp4", "max_frames": 10});
    book.ask(server, ("POST", &of("ingest")), &ingest, 200);
    let kept = book.ask(server, ("GET", &of("keyframes")), &Value::Null, 200).json();
    let still = kept["keyframes"][0]["image_ref"].as_str().expect("a path");
    let upload = uploading(server, "a.mp4", &clip_bytes("talk.mp4")).send().assert_ok();
    book.note("POST", "/v1/upload", &upload);
    let (source, file) = (of("source"), upload.header("location"));
    for path in [still, &of("frames/0"), &of("clip?from_ms=0&to_ms=500"), &source, file] {
        book.ask(server, ("GET", path), &Value::Null, 200);
    }
    let conditions = [
        ("if-none-match", "*", 304),
        ("if-match", "\"x\"", 412),
        ("range", "bytes=0-9", 206),
        ("range", "bytes=99999999999-", 416),
    ];
    for (path, count) in [(still, 2), (&*source, 4), (file, 4)] {
        for (name, value, status) in &conditions[..count] {
            let reply = server.call("GET", path).header(name, value).send();
            assert_eq!(reply.status, *status, "{path} {name}: {value}: {}", reply.text);
            book.note("GET", path, &reply);
        }
    }
    for (method, status) in [("DELETE", 200), ("GET", 404), ("DELETE", 404)] {
        book.ask(server, (method, file), &Value::Null, status);
    }
    let reason = json!({"source_uri": "talk.mp4", "max_frames": 10, "model": "qwen3-vl-4b"});
    let reasoned = format!("/v1/runs/{}/reason", server.create_run());
    book.ask(server, ("POST", &reasoned), &reason, 200);
    book.ask(server, ("POST", &of("stop")), &Value::Null, 200);
    book.ask(server, ("POST", &of("ingest")), &ingest, 409);
}

/// Answers of a server whose disk loses what it wrote there.
fn with_damage(dir: &std::path::Path, book: &mut Book) {
    let server = Setup::new(dir).clips().start();
    let run = server.ingested(&json!({"source_uri": "talk.mp4", "max_frames": 10}));
    let analyze = json!({"model": "qwen3-vl-8b"});
    assert_eq!(server.post_run(&run, "analyze", &analyze).status, 200);
    let kept = server.get(&format!("/v1/runs/{run}/keyframes")).json();
    let hash = kept["keyframes"][0]["image_sha256"].as_str().expect("a still").to_owned();
    for file in std::fs::read_dir(dir.join("data/log/journal")).expect("readable") {
        let file = std::fs::File::options().write(true).open(file.expect("readable").path());
        file.and_then(|file| file.set_len(0)).expect("cut");
    }
    // A file in place of the folder of unfinished uploads.
    let incoming = dir.join("data/uploads/incoming");
    std::fs::remove_dir_all(&incoming).expect("removed");
    std::fs::write(incoming, "").expect("written");
    let rows = [
        ("GET", format!("/v1/runs/{run}/events"), Value::Null),
        ("GET", format!("/v1/runs/{run}/keyframes"), Value::Null),
        ("GET", format!("/v1/runs/{run}/keyframes/{hash}"), Value::Null),
        ("GET", format!("/v1/runs/{run}/markers"), Value::Null),
        ("POST", "/v1/query".to_owned(), json!({"run_id": run})),
        ("POST", format!("/v1/runs/{run}/analyze"), analyze),
    ];
    for (method, path, body) in rows {
        let reply = book.ask(&server, (method, &path), &body, 500);
        let told = reply.assert_refused(500, "internal_error").json()["error"]["message"].take();
        assert_eq!(told, "internal error", "{path}: nothing is told but that it is our fault");
    }
    let reply = uploading(&server, "a.mp4", b"x").send().assert_status(500);
    book.note("POST", "/v1/upload", &reply);
    assert_eq!(server.get(&format!("/v1/runs/{run}/state")).status, 200, "and goes on");
}

/// Answers of a server without room on disk, which had some when `run` was made.
fn without_room(setup: &Setup, book: &mut Book, run: &str) {
    let server = setup.clone().var("SERVICE_DISK_RESERVE_MIB", "16777216").start();
    let hook = json!({"url": "https://127.0.0.1:9/hook"});
    let rows = [
        ("PATCH", format!("/v1/runs/{run}"), json!({"label": "gate 3"})),
        ("POST", format!("/v1/runs/{run}/webhooks"), hook.clone()),
        ("POST", "/v1/webhooks".to_owned(), hook),
        ("POST", "/v1/infer/batch".to_owned(), json!({"requests": [question(None)]})),
        ("GET", "/v1/ready".to_owned(), Value::Null),
    ];
    let work = work(run).map(|(path, body)| ("POST", path, body));
    for (method, path, body) in work.into_iter().chain(rows) {
        let reply = book.ask(&server, (method, &path), &body, 503);
        let why = reply.text.contains("16777216 MiB reserved");
        assert!(why, "{method} {path}: {}", reply.text);
    }
    let reply = uploading(&server, "a.mp4", b"x").send().assert_status(503);
    book.note("POST", "/v1/upload", &reply);
    for (method, action) in [("POST", "/stop"), ("DELETE", "")] {
        let reply = server.call(method, &format!("/v1/runs/{run}{action}")).send();
        assert_eq!(reply.status, 200, "{action} needs no room: {}", reply.text);
    }
}

/// Answers of a server that takes one request a second, and of one that takes no scraper.
fn without_patience(dir: &std::path::Path, book: &mut Book) {
    let setup = Setup::new(&dir.join("impatient")).var("SERVICE_RATE_LIMIT_GLOBAL_RPS", "1");
    let server = setup.start();
    for (method, template) in book.operations() {
        let path = book::path(&template, MISSING);
        let refused = (0..20).map(|_| {
            // Takes what there is: an event stream that is let through does not end.
            server.get("/v1/health");
            server.call(&method, &path).send()
        });
        let reply = refused.into_iter().find(|reply| reply.status == 429).expect("too many");
        assert!(!reply.header("retry-after").is_empty(), "{method} {path}");
        book.note(&method, &path, &reply);
    }
    drop(server);
    let keyless = Setup::new(&dir.join("keyless"))
        .var("SERVICE_API_KEYS", "")
        .var("SERVICE_REQUIRE_API_KEY", "false")
        .start();
    let reply = keyless.get("/v1/metrics").assert_refused(503, "metrics_unavailable");
    assert_eq!(reply.header("retry-after"), "1");
    book.note("GET", "/v1/metrics", &reply);
}

/// Answers of a server that stores nothing more for a principal.
fn without_quota(dir: &std::path::Path, book: &mut Book) {
    let server = Setup::new(&dir.join("full")).var("SERVICE_PRINCIPAL_QUOTA_BYTES", "1").start();
    let reply = uploading(&server, "a.mp4", &[b'x'; 4096]).send().assert_status(409);
    book.note("POST", "/v1/upload", &reply);
    let run = server.create_run();
    let label = ("PATCH", format!("/v1/runs/{run}"), json!({"label": "gate 3"}));
    let work = work(&run).map(|(path, body)| ("POST", path, body));
    for (method, path, body) in work.into_iter().chain([label]) {
        let reply = book.ask(&server, (method, &path), &body, 409);
        let is_for_quota = reply.text.contains("delete runs or uploads");
        assert!(is_for_quota, "{method} {path}: {}", reply.text);
    }
}

#[test]
fn what_never_reaches_a_handler_is_plain() {
    let server = shared();
    let rows = [
        ("GET", "/v1/nothing", 404),
        ("PUT", "/v1/runs", 405),
        ("DELETE", "/v1/health", 405),
        ("GET", "/v1/runs/%zz", 400),
        ("GET", "/v1/runs/%ff", 400),
        ("GET", "/v1/runs?status=%f", 400),
    ];
    for (method, path, status) in rows {
        let reply = server.call(method, path).send();
        assert_eq!((reply.status, reply.code().as_str()), (status, ""), "{method} {path}");
        assert!(reply.header("x-request-id").starts_with("req-"), "{method} {path}");
    }
}

#[test]
fn head_answers_like_get_without_a_body() {
    let server = shared();
    let run = server.create_run();
    let routes = Book::new(&server).operations().into_iter();
    let routes = routes.filter(|(method, path)| method == "GET" && !path.ends_with("/stream"));
    let paths = routes.map(|(_, template)| book::path(&template, &run));
    let paths: Vec<_> = paths.chain(["/v1/runs/none".to_owned()]).collect();
    assert!(paths.len() > 15, "{paths:?}");
    for path in paths {
        let (get, head) = (server.get(&path), server.call("HEAD", &path).send());
        assert_eq!((head.status, head.text.as_str()), (get.status, ""), "{path}");
        assert_eq!(head.header("content-type"), get.header("content-type"), "{path}");
        // Figures of the moment have another length each time.
        if !["/v1/metrics", "/v1/stats"].contains(&&*path) {
            assert_eq!(head.header("content-length"), get.header("content-length"), "{path}");
        }
    }
}

#[test]
fn a_run_record_has_the_fields_of_the_contract() {
    let server = shared();
    let body = json!({"mode": "efficiency", "model": "qwen3-vl-4b"});
    let created = server.call("POST", "/v1/runs").header("x-tenant-id", "acme").json(&body).send();
    let run = created.run();
    assert_eq!(created.json()["status"], "pending");
    let record = server.get(&format!("/v1/runs/{run}")).json();
    let expected = json!({
        "run_id": run, "label": null, "status": "pending", "mode": "efficiency", "model": "qwen3-vl-4b",
        "source_uri": null, "source": null, "session_id": null, "tenant_id": "acme",
    });
    assert_has(&record, &expected);
    for field in ["created_at", "updated_at", "expires_at"] {
        let text = record[field].as_str().expect("a time");
        assert!(text.len() == 24 && text.ends_with('Z'), "{field}: {text}");
    }
    let listed = server.get("/v1/runs").json();
    assert!(listed[0]["request_id"].is_null() && listed[0]["run_id"] == run.as_str(), "{listed}");
}
