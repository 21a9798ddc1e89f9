//! Webhooks to a real HTTPS receiver: order, signatures, limits, whose they are.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::support::{
    Reply, Server, Setup, eventually,
    receiver::{Behaviour, Delivery, Receiver},
    wait_until,
};

/// Takes it.
pub const OK: Behaviour = Behaviour::Answer(200, "x-any: thing");

/// A server that may deliver to the receiver, and tries again soon.
pub fn setup(receiver: &Receiver) -> Setup {
    delivering(Setup::temporary(), receiver)
}

/// The same with its data elsewhere.
pub fn delivering(setup: Setup, receiver: &Receiver) -> Setup {
    setup
        .behind_dead_proxies()
        .var("SERVICE_EGRESS_ALLOWED_NETWORKS", "127.0.0.0/8")
        .var("SERVICE_EGRESS_CA_PATH", &receiver.ca())
        .var("SERVICE_WEBHOOK_RETRY_MS", "50")
}

/// Reply to a request for a webhook.
pub fn create(server: &Server, run: &str, body: &Value) -> Reply {
    server.post_run(run, "webhooks", body)
}

pub fn hook(server: &Server, run: &str, url: &str) -> Value {
    let reply = create(server, run, &json!({ "url": url })).assert_ok();
    reply.json()
}

/// Makes events, one a call.
pub fn events(server: &Server, run: &str, count: usize) {
    for _ in 0..count {
        assert_eq!(server.call("POST", &format!("/v1/runs/{run}/keepalive")).send().status, 200);
    }
}

/// The numbers of a run's events.
pub fn seqs(server: &Server, run: &str) -> Vec<u64> {
    server.events(run).iter().map(|event| event["seq"].as_u64().expect("a number")).collect()
}

/// The webhook `id` as the list of its run shows it.
pub fn listed(server: &Server, run: &str, id: &Value) -> Value {
    let list = server.get(&format!("/v1/runs/{run}/webhooks")).json();
    let webhooks = list["webhooks"].as_array().expect("an array");
    webhooks.iter().find(|webhook| webhook["webhook_id"] == *id).expect("listed").clone()
}

/// Waits until a webhook has this status.
pub fn wait_for_status(server: &Server, run: &str, id: &Value, status: &str) -> Value {
    eventually(status, || Some(listed(server, run, id)).filter(|it| it["status"] == status))
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
    let receiver = Receiver::start();
    let server = setup(&receiver).start();
    let (run, other) = (server.create_run(), server.create_run());
    events(&server, &run, 1);
    let before = seqs(&server, &run).len();
    let all = hook(&server, &run, &receiver.url("/all?x=1"));
    let own = format!("whsec_{}", STANDARD.encode([9; 24]));
    let some = json!({
        "url": receiver.url("/some"), "kinds": ["stop_requested", "run_failed", "activity_started", "activity_ended"],
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
        // With the time, as a log that was put back gives the number to another event.
        let event_id = format!("{}_{}", event["seq"], event["pts_ms"]);
        let id = format!("{}_{event_id}", all["webhook_id"].as_str().expect("an id"));
        assert_eq!(delivery.header("webhook-id"), id);
        let kind = "application/cloudevents+json; charset=utf-8";
        assert_eq!(delivery.header("content-type"), kind);
        let body = delivery.json();
        assert_eq!(body["specversion"], "1.0");
        assert_eq!(body["id"], event_id);
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
    let counted = "service_webhook_deliveries_total{outcome=\"delivered\"}";
    wait_until("all are counted", || server.metric(counted) == 42.0);
}

#[test]
fn what_a_webhook_may_be_is_checked_when_it_is_made_and_at_every_delivery() {
    let receiver = Receiver::start();
    let trusting = setup(&receiver);
    let server = trusting.start();
    check_removal(&server, &receiver);
    let [other, run] = [server.create_run(), server.create_run()];
    // Browsers and the check read these; a stricter parser of what was written would not.
    let backslashes = receiver.url("/b").replace('/', "\\");
    let table = [
        (receiver.url("/a b?c d"), "/a%20b?c%20d"),
        (backslashes, "/b"),
        (format!(" {}#fragment", receiver.url("/c|d")), "/c|d"),
    ];
    for (url, path) in table {
        let made = hook(&server, &other, &url);
        assert_eq!(made["url"], receiver.url(path), "{url}");
        assert_eq!(listed(&server, &other, &made["webhook_id"])["url"], made["url"]);
        events(&server, &other, 1);
        receiver.wait(path, 1);
    }
    let made = hook(&server, &run, &receiver.url("/moved"));
    drop(server);
    // Its target when the webhook was made does not count.
    let closed = trusting.clone().var("SERVICE_EGRESS_ALLOWED_NETWORKS", "");
    // The toggle is for sources alone.
    let strange =
        trusting.var("SERVICE_EGRESS_CA_PATH", "").var("SERVICE_ALLOW_INSECURE_TLS", "true");
    for (suspicious, why) in [(closed, "blocked address"), (strange, "tls: ")] {
        let server = suspicious.start();
        events(&server, &run, 1);
        let webhook = || listed(&server, &run, &made["webhook_id"]);
        wait_until(why, || webhook()["last_error"].to_string().contains(why));
        assert_eq!(webhook()["status"], "failing", "{why}");
        assert_eq!(receiver.deliveries("/moved").len(), 0, "{why}");
        if why == "blocked address" {
            check_refused(&server, &run, &receiver);
        }
    }
}

/// Checks the bounds of a webhook when it is made; the receiver's address is none that this server may reach.
fn check_refused(server: &Server, run: &str, receiver: &Receiver) {
    let table = [
        (json!({}), "url", "is required"),
        (json!({ "url": "no url" }), "url", "does not parse"),
        (json!({ "url": "http://example.com/x" }), "url", "must be an https URL"),
        (json!({ "url": "ftp://example.com/x" }), "url", "scheme not served"),
        (json!({ "url": "https://u:p@example.com/x" }), "url", "must hold no user"),
        (json!({ "url": receiver.url("/x") }), "url", "blocked address"),
        (json!({ "url": "https://no-such-host.invalid/x" }), "url", "dns"),
        (json!({ "url": "https://x.invalid", "kinds": ["no"] }), "kinds", "vlm"),
        (json!({ "url": "https://x.invalid", "kinds": ["run_deleted"] }), "kinds", "1 to 32"),
        (json!({ "url": "https://x.invalid", "secret": "whsec_x" }), "secret", "base64"),
    ];
    for (body, field, message) in table {
        let reply = create(server, run, &body).assert_invalid(field, &body);
        assert!(reply.text.contains(message), "{body}: {}", reply.text);
    }
}

/// A webhook is of its run alone, and gone once it is removed.
fn check_removal(server: &Server, receiver: &Receiver) {
    let run = server.create_run();
    let made = hook(server, &run, &receiver.url("/a"));
    let id = made["webhook_id"].as_str().expect("an id");
    assert!(id.starts_with("wh-") && id.len() == 35, "{id}");
    let path = format!("/v1/runs/{run}/webhooks/{id}");
    let letters = format!("{path}/dead-letters");
    let elsewhere = format!("/v1/runs/{}/webhooks/{id}", server.create_run());
    assert_eq!(server.call("DELETE", &elsewhere).send().status, 404, "of another run");
    assert_eq!(server.get(&letters).json()["dead_letters"], json!([]));
    let removed = server.call("DELETE", &path).send();
    assert_eq!((removed.status, &removed.json()["webhook_id"]), (200, &json!(id)));
    assert_eq!(server.call("DELETE", &path).send().status, 404);
    assert_eq!(server.get(&letters).status, 404);
    assert_eq!(server.call("POST", &format!("/v1/runs/{run}/stop")).send().status, 200);
    assert_eq!(create(server, &run, &json!({ "url": receiver.url("/a") })).status, 409);
}

#[test]
fn webhooks_of_a_run_and_of_a_principal_are_bounded_but_for_those_that_are_done() {
    let receiver = Receiver::start();
    let server = setup(&receiver).start();
    let refusal = |run: &str| {
        let full = create(&server, run, &json!({ "url": receiver.url("/a") }));
        full.assert_refused(409, "conflict").text
    };
    let hooks = |run: &str| -> Vec<Value> {
        (0..8).map(|_| hook(&server, run, &receiver.url("/a"))["webhook_id"].clone()).collect()
    };
    let ended: Vec<(String, Vec<Value>)> = (0..4)
        .map(|_| {
            let run = server.create_run();
            let ids = hooks(&run);
            (run, ids)
        })
        .collect();
    let full = refusal(&ended[0].0);
    assert!(full.contains("8 of at most 8 webhooks of this run"), "{full}");
    let last = server.create_run();
    let full = refusal(&last);
    assert!(full.contains("32 of at most 32 webhooks of this principal"), "{full}");
    for (run, ids) in &ended {
        assert_eq!(server.call("POST", &format!("/v1/runs/{run}/stop")).send().status, 200);
        ids.iter().for_each(|id| drop(wait_for_status(&server, run, id, "finished")));
    }
    assert_eq!(receiver.deliveries("/a").len(), 32, "the end of its run to each");
    let runs = [last, server.create_run(), server.create_run(), server.create_run()];
    let made: Vec<Vec<Value>> = runs.iter().map(|run| hooks(run)).collect();
    let path = format!("/v1/runs/{}/webhooks/{}", runs[1], made[1][0].as_str().expect("an id"));
    assert_eq!(server.call("DELETE", &path).send().status, 200);
    hook(&server, &runs[1], &receiver.url("/a"));
    refusal(&server.create_run());
    assert_eq!(server.call("DELETE", &format!("/v1/runs/{}", runs[0])).send().status, 200);
    let other = server.create_run();
    wait_until("a deleted run's webhooks count no more", || {
        create(&server, &other, &json!({ "url": receiver.url("/a") })).status == 200
    });
}
