//! Webhooks to a real HTTPS receiver: order, signatures, failures of every kind, restarts.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::support::{
    BOB, Reply, Server, Setup,
    receiver::{Behaviour, Delivery, Receiver},
};

/// Tells progress from a hang.
const PATIENCE: Duration = Duration::from_secs(60);
const OK: Behaviour = Behaviour::Answer(200, "x-any: thing");

fn setup(dir: &Path, receiver: &Receiver) -> Setup {
    Setup::new(dir)
        .var("SERVICE_EGRESS_ALLOWED_NETWORKS", "127.0.0.0/8")
        .var("SERVICE_EGRESS_CA_PATH", &receiver.ca())
        .var("SERVICE_WEBHOOK_RETRY_MS", "50")
}

fn create(server: &Server, run: &str, body: &Value) -> Reply {
    server.post(&format!("/v1/runs/{run}/webhooks"), body)
}

fn hook(server: &Server, run: &str, url: &str) -> Value {
    let reply = create(server, run, &json!({ "url": url }));
    assert_eq!(reply.status, 200, "{}", reply.text);
    reply.json()
}

/// Makes events, one a call.
fn events(server: &Server, run: &str, count: usize) {
    for _ in 0..count {
        assert_eq!(server.call("POST", &format!("/v1/runs/{run}/keepalive")).send().status, 200);
    }
}

fn seqs(server: &Server, run: &str) -> Vec<u64> {
    server.events(run).iter().map(|event| event["seq"].as_u64().expect("a number")).collect()
}

/// The webhook `id` as the list of its run shows it.
fn listed(server: &Server, run: &str, id: &Value) -> Value {
    let list = server.get(&format!("/v1/runs/{run}/webhooks")).json();
    let webhooks = list["webhooks"].as_array().expect("an array");
    webhooks.iter().find(|webhook| webhook["webhook_id"] == *id).expect("listed").clone()
}

fn wait_for_status(server: &Server, run: &str, id: &Value, status: &str) -> Value {
    let started = Instant::now();
    loop {
        let webhook = listed(server, run, id);
        if webhook["status"] == status {
            return webhook;
        }
        assert!(started.elapsed() < PATIENCE, "{webhook}, expected {status}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// HMAC-SHA256 as RFC 2104 defines it, by hand: the server's own is not to be trusted here.
fn hmac(key: &[u8], message: &[u8]) -> Vec<u8> {
    let mut block = [0; 64];
    block[..key.len()].copy_from_slice(key);
    let pad = |with: u8| block.map(|byte| byte ^ with).to_vec();
    let inner = Sha256::digest([pad(0x36), message.to_vec()].concat());
    Sha256::digest([pad(0x5c), inner.to_vec()].concat()).to_vec()
}

fn assert_signed(delivery: &Delivery, secret: &str) {
    let key = STANDARD.decode(secret.strip_prefix("whsec_").expect("a secret")).expect("base64");
    let (id, timestamp) = (delivery.header("webhook-id"), delivery.header("webhook-timestamp"));
    let signed = [format!("{id}.{timestamp}.").as_bytes(), &delivery.body].concat();
    let expected = format!("v1,{}", STANDARD.encode(hmac(&key, &signed)));
    assert_eq!(delivery.header("webhook-signature"), expected);
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after");
    let sent: u64 = timestamp.parse().expect("seconds");
    assert!(now.as_secs().abs_diff(sent) < 100, "{timestamp}");
}

#[test]
fn events_arrive_in_order_signed_as_cloud_events_and_only_the_wanted_kinds() {
    let dir = tempfile::tempdir().expect("a directory");
    let receiver = Receiver::start(dir.path());
    let server = setup(dir.path(), &receiver).start();
    let (run, other) = (server.create_run(), server.create_run());
    events(&server, &run, 1);
    let before = seqs(&server, &run).len();
    let all = hook(&server, &run, &receiver.url("/all?x=1"));
    let own = format!("whsec_{}", STANDARD.encode([9; 24]));
    let some = json!({
        "url": receiver.url("/some"), "kinds": ["stop_requested", "run_failed"],
        "secret": own, "description": "ends",
    });
    let some = create(&server, &run, &some).json();
    assert_eq!((&some["secret"], &some["description"]), (&json!(own), &json!("ends")));
    events(&server, &other, 3);
    events(&server, &run, 40);
    assert_eq!(server.call("POST", &format!("/v1/runs/{run}/stop")).send().status, 200);

    let found = receiver.wait("/all?x=1", 41);
    let told: Vec<u64> = found.iter().map(Delivery::seq).collect();
    assert_eq!(told, seqs(&server, &run)[before..]);
    let stored = server.events(&run);
    for (delivery, event) in found.iter().zip(&stored[before..]) {
        assert_signed(delivery, all["secret"].as_str().expect("a secret"));
        let id = format!("{}_{}", all["webhook_id"].as_str().expect("an id"), event["seq"]);
        assert_eq!(delivery.header("webhook-id"), id);
        let kind = "application/cloudevents+json; charset=utf-8";
        assert_eq!(delivery.header("content-type"), kind);
        let body = delivery.json();
        assert_eq!(body["specversion"], "1.0");
        assert_eq!(body["id"], event["seq"].to_string());
        assert_eq!(body["subject"], run);
        let kind = event["kind"].as_str().expect("a kind");
        assert_eq!(body["type"], format!("sightline.{kind}"));
        assert!(body["source"].as_str().is_some_and(|s| s.starts_with("urn:sightline:node-")));
        assert!(body["time"].as_str().is_some_and(|time| time.ends_with('Z')));
        assert_eq!(body["data"], *event);
    }
    let found = receiver.wait("/some", 1);
    assert_signed(&found[0], &own);
    assert_eq!((found.len(), &found[0].json()["data"]["kind"]), (1, &json!("stop_requested")));

    let list = server.get(&format!("/v1/runs/{run}/webhooks"));
    assert!(!list.text.contains("whsec_"), "{}", list.text);
    let ids: Vec<Value> = list.json()["webhooks"]
        .as_array()
        .expect("an array")
        .iter()
        .map(|webhook| webhook["webhook_id"].clone())
        .collect();
    assert_eq!(ids, [all["webhook_id"].clone(), some["webhook_id"].clone()]);
    let (counted, started) =
        ("service_webhook_deliveries_total{outcome=\"delivered\"} 42", Instant::now());
    while !server.get("/v1/metrics").text.contains(counted) {
        assert!(started.elapsed() < PATIENCE, "not counted: {counted}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn what_a_webhook_may_be_is_checked_and_whose_it_is() {
    let dir = tempfile::tempdir().expect("a directory");
    let receiver = Receiver::start(dir.path());
    let server = setup(dir.path(), &receiver).var("SERVICE_EGRESS_ALLOWED_NETWORKS", "").start();
    let run = server.create_run();
    let table = [
        (json!({}), "url", "is required"),
        (json!({ "url": 1 }), "url", "must be a string"),
        (json!({ "url": "" }), "url", "1 to 2048 bytes"),
        (json!({ "url": format!("https://h/{}", "x".repeat(2048)) }), "url", "1 to 2048 bytes"),
        (json!({ "url": "no url" }), "url", "does not parse"),
        (json!({ "url": "http://example.com/x" }), "url", "must be an https URL"),
        (json!({ "url": "ftp://example.com/x" }), "url", "scheme not served"),
        (json!({ "url": "https://u:p@example.com/x" }), "url", "must hold no user"),
        (json!({ "url": receiver.url("/x") }), "url", "blocked address"),
        (json!({ "url": "https://[::1]/x" }), "url", "blocked address"),
        (json!({ "url": "https://localhost/x" }), "url", "blocked address"),
        (json!({ "url": "https://169.254.169.254/x" }), "url", "blocked address"),
        (json!({ "url": "https://2130706433/x" }), "url", "blocked address"),
        (json!({ "url": "https://no-such-host.invalid/x" }), "url", "dns"),
        (json!({ "url": "https://x.invalid", "kinds": [] }), "kinds", "1 to 32"),
        (json!({ "url": "https://x.invalid", "kinds": ["no"] }), "kinds", "vlm"),
        (json!({ "url": "https://x.invalid", "secret": "whsec_x" }), "secret", "base64"),
        (
            json!({ "url": "https://x.invalid", "description": "d".repeat(257) }),
            "description",
            "256",
        ),
    ];
    for (body, field, message) in table {
        let reply = create(&server, &run, &body);
        assert_eq!(
            (reply.status, reply.fields()),
            (422, vec![field.to_owned()]),
            "{body}: {}",
            reply.text
        );
        assert!(reply.text.contains(message), "{body}: {}", reply.text);
    }
    let server = {
        drop(server);
        setup(dir.path(), &receiver).start()
    };
    let made = hook(&server, &run, &receiver.url("/a"));
    let id = made["webhook_id"].as_str().expect("an id");
    assert!(id.starts_with("wh-") && id.len() == 35, "{id}");
    for _ in 1..8 {
        hook(&server, &run, &receiver.url("/a"));
    }
    let full = create(&server, &run, &json!({ "url": receiver.url("/a") }));
    assert_eq!((full.status, full.code().as_str()), (409, "conflict"));
    assert!(full.text.contains("8 of at most 8 webhooks of this run"), "{}", full.text);

    let path = format!("/v1/runs/{run}/webhooks/{id}");
    let letters = format!("{path}/dead-letters");
    let foreign = |method: &str, path: &str| server.call(method, path).key(Some(BOB)).send().status;
    assert_eq!(foreign("GET", &format!("/v1/runs/{run}/webhooks")), 404);
    assert_eq!((foreign("DELETE", &path), foreign("GET", &letters)), (404, 404));
    let elsewhere = format!("/v1/runs/{}/webhooks/{id}", server.create_run());
    assert_eq!(server.call("DELETE", &elsewhere).send().status, 404, "of another run");
    assert_eq!(server.get(&letters).json()["dead_letters"], json!([]));
    let removed = server.call("DELETE", &path).send();
    assert_eq!((removed.status, &removed.json()["webhook_id"]), (200, &json!(id)));
    assert_eq!(server.call("DELETE", &path).send().status, 404);
    assert_eq!(server.get(&letters).status, 404);
    hook(&server, &run, &receiver.url("/a"));

    let runs: Vec<String> = (0..3).map(|_| server.create_run()).collect();
    runs.iter().for_each(|run| (0..8).for_each(|_| drop(hook(&server, run, &receiver.url("/a")))));
    let last = server.create_run();
    let full = create(&server, &last, &json!({ "url": receiver.url("/a") }));
    assert_eq!(full.status, 409);
    assert!(full.text.contains("32 of at most 32 webhooks of this principal"), "{}", full.text);
    assert_eq!(server.call("DELETE", &format!("/v1/runs/{}", runs[0])).send().status, 200);
    let started = Instant::now();
    while create(&server, &last, &json!({ "url": receiver.url("/a") })).status != 200 {
        assert!(started.elapsed() < PATIENCE, "a deleted run's webhooks still count");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(server.call("POST", &format!("/v1/runs/{last}/stop")).send().status, 200);
    assert_eq!(create(&server, &last, &json!({ "url": receiver.url("/a") })).status, 409);
}

#[test]
fn every_failure_is_tried_again_with_the_same_id_and_the_order_is_kept() {
    let dir = tempfile::tempdir().expect("a directory");
    let receiver = Receiver::start(dir.path());
    let server = setup(dir.path(), &receiver).var("SERVICE_WEBHOOK_TIMEOUT_MS", "400").start();
    let table = [
        ("/500", Behaviour::Answer(500, "x-any: thing"), "answered 500"),
        ("/404", Behaviour::Answer(404, "x-any: thing"), "answered 404"),
        ("/302", Behaviour::Answer(302, "location: /elsewhere"), "answered 302: redirects are not"),
        ("/hang", Behaviour::Hang, "timeout: no answer within 0.4 s"),
        ("/close", Behaviour::Close, "closed the connection"),
    ];
    for (path, behaviour, reason) in table {
        let run = server.create_run();
        receiver.on(path, behaviour);
        let made = hook(&server, &run, &receiver.url(path));
        events(&server, &run, 3);
        let failed = receiver.wait(path, 2);
        let webhook = wait_for_status(&server, &run, &made["webhook_id"], "failing");
        let told = webhook["last_error"]["message"].as_str().expect("a text");
        assert!(told.contains(reason), "{path}: {told}");
        receiver.on(path, OK);
        let started = Instant::now();
        let expected = seqs(&server, &run)[1..].to_vec();
        loop {
            let found = receiver.deliveries(path);
            let mut told: Vec<u64> = found.iter().map(Delivery::seq).collect();
            assert!(told.is_sorted(), "{path}: {told:?}");
            told.dedup();
            if told == expected {
                break;
            }
            assert!(started.elapsed() < PATIENCE, "{path}: {told:?}, expected {expected:?}");
            std::thread::sleep(Duration::from_millis(20));
        }
        let id = failed[0].header("webhook-id");
        assert!(failed.iter().all(|delivery| delivery.header("webhook-id") == id), "{path}");
        wait_for_status(&server, &run, &made["webhook_id"], "active");
    }
    assert_eq!(receiver.deliveries("/elsewhere").len(), 0, "redirects are not followed");
}

#[test]
fn a_target_that_asks_for_time_gets_it() {
    let dir = tempfile::tempdir().expect("a directory");
    let receiver = Receiver::start(dir.path());
    let server = setup(dir.path(), &receiver).start();
    for (path, status) in [("/429", 429), ("/503", 503)] {
        let run = server.create_run();
        receiver.on(path, Behaviour::Answer(status, "retry-after: 2"));
        hook(&server, &run, &receiver.url(path));
        events(&server, &run, 1);
        receiver.wait(path, 1);
        receiver.on(path, OK);
        let found = receiver.wait(path, 2);
        let waited = found[1].at - found[0].at;
        assert!(waited >= Duration::from_secs(2), "{path}: {waited:?}");
    }
}

#[test]
fn what_is_never_taken_becomes_a_dead_letter_and_410_ends_it() {
    let dir = tempfile::tempdir().expect("a directory");
    let receiver = Receiver::start(dir.path());
    let fast = setup(dir.path(), &receiver)
        .var("SERVICE_WEBHOOK_ATTEMPTS", "3")
        .var("SERVICE_WEBHOOK_RETRY_MS", "10");
    let mut server = fast.start();
    let run = server.create_run();
    receiver.on("/x", Behaviour::Answer(500, "x-any: thing"));
    let made = hook(&server, &run, &receiver.url("/x"));
    let id = made["webhook_id"].as_str().expect("an id");
    events(&server, &run, 2);
    let found = receiver.wait("/x", 6);
    let told: Vec<u64> = found[..6].iter().map(Delivery::seq).collect();
    let own = seqs(&server, &run);
    assert_eq!(told, [own[1], own[1], own[1], own[2], own[2], own[2]]);
    let letters = |server: &Server| {
        let reply = server.get(&format!("/v1/runs/{run}/webhooks/{id}/dead-letters"));
        assert_eq!(reply.status, 200, "{}", reply.text);
        reply.json()["dead_letters"].clone()
    };
    let expected = |seqs: &[u64]| -> Value {
        seqs.iter()
            .map(|seq| json!({ "seq": seq, "kind": "keepalive_refreshed", "attempts": 3, "error": "answered 500" }))
            .collect()
    };
    let started = Instant::now();
    while letters(&server) != expected(&own[1..3]) {
        assert!(started.elapsed() < PATIENCE, "{}", letters(&server));
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(listed(&server, &run, &made["webhook_id"])["dead_letters"], 2);
    receiver.on("/x", OK);
    events(&server, &run, 1);
    assert_eq!(receiver.wait("/x", 7).last().expect("seven").seq(), own[2] + 1);

    receiver.on("/x", Behaviour::Answer(410, "x-any: thing"));
    events(&server, &run, 3);
    wait_for_status(&server, &run, &made["webhook_id"], "disabled");
    server.kill();
    let server = fast.start();
    receiver.on("/x", OK);
    let good = hook(&server, &run, &receiver.url("/good"));
    events(&server, &run, 1);
    receiver.wait("/good", 1);
    assert_eq!(listed(&server, &run, &made["webhook_id"])["status"], "disabled");
    assert_eq!(letters(&server), expected(&own[1..3]), "letters last");
    assert_eq!(receiver.deliveries("/x").len(), 8, "nothing after 410");
    assert_eq!(listed(&server, &run, &good["webhook_id"])["status"], "active");
}

#[test]
fn targets_that_hang_delay_no_other() {
    let dir = tempfile::tempdir().expect("a directory");
    let receiver = Receiver::start(dir.path());
    let server = setup(dir.path(), &receiver).var("SERVICE_WEBHOOK_TIMEOUT_MS", "60000").start();
    let run = server.create_run();
    receiver.on("/hang", Behaviour::Hang);
    for _ in 0..7 {
        hook(&server, &run, &receiver.url("/hang"));
    }
    events(&server, &run, 1);
    receiver.wait("/hang", 7);
    hook(&server, &run, &receiver.url("/good"));
    events(&server, &run, 30);
    receiver.wait("/good", 30);
    assert_eq!(receiver.deliveries("/hang").len(), 7, "none of them has answered");
}

#[test]
fn a_server_killed_before_its_cursor_moves_sends_again_under_the_same_id() {
    let dir = tempfile::tempdir().expect("a directory");
    let receiver = Receiver::start(dir.path());
    let setup = setup(dir.path(), &receiver).var("SERVICE_WEBHOOK_TIMEOUT_MS", "60000");
    let mut server = setup.start();
    let run = server.create_run();
    // The target has the event, and the server never learns of it.
    receiver.on("/x", Behaviour::Hang);
    hook(&server, &run, &receiver.url("/x"));
    events(&server, &run, 3);
    receiver.wait("/x", 1);
    server.kill();
    receiver.on("/x", OK);
    let server = setup.start();
    events(&server, &run, 1);
    let found = receiver.wait("/x", 5);
    let told: Vec<u64> = found.iter().map(Delivery::seq).collect();
    let own = seqs(&server, &run);
    assert_eq!(told, [own[1], own[1], own[2], own[3], own[4]]);
    assert_eq!(found[0].header("webhook-id"), found[1].header("webhook-id"));
    assert_eq!(found[0].body, found[1].body);
}

#[test]
fn a_restart_goes_on_where_the_last_server_stopped() {
    let dir = tempfile::tempdir().expect("a directory");
    let receiver = Receiver::start(dir.path());
    let setup = setup(dir.path(), &receiver);
    let mut server = setup.start();
    let run = server.create_run();
    let made = hook(&server, &run, &receiver.url("/x"));
    events(&server, &run, 5);
    receiver.wait("/x", 5);
    receiver.on("/x", Behaviour::Close);
    events(&server, &run, 5);
    wait_for_status(&server, &run, &made["webhook_id"], "failing");
    server.terminate();
    assert!(server.wait(Duration::from_secs(30)).success());
    receiver.on("/x", OK);
    let server = setup.start();
    let started = Instant::now();
    let expected = seqs(&server, &run)[1..].to_vec();
    loop {
        let mut told: Vec<u64> = receiver.deliveries("/x").iter().map(Delivery::seq).collect();
        assert!(told.is_sorted(), "{told:?}");
        told.dedup();
        if told == expected {
            break;
        }
        assert!(started.elapsed() < PATIENCE, "{told:?}, expected {expected:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn nothing_of_a_deleted_run_is_sent() {
    let dir = tempfile::tempdir().expect("a directory");
    let receiver = Receiver::start(dir.path());
    let server = setup(dir.path(), &receiver).var("SERVICE_WEBHOOK_RETRY_MS", "3000").start();
    let (run, other) = (server.create_run(), server.create_run());
    receiver.on("/x", Behaviour::Answer(500, "x-any: thing"));
    hook(&server, &run, &receiver.url("/x"));
    hook(&server, &other, &receiver.url("/y"));
    events(&server, &run, 2);
    receiver.wait("/x", 1);
    receiver.on("/x", OK);
    assert_eq!(server.call("DELETE", &format!("/v1/runs/{run}")).send().status, 200);
    assert_eq!(server.get(&format!("/v1/runs/{run}/webhooks")).status, 404);
    // As long as the first retry would have taken at most.
    std::thread::sleep(Duration::from_millis(4000));
    events(&server, &other, 1);
    receiver.wait("/y", 1);
    assert_eq!(receiver.deliveries("/x").len(), 1);
}
