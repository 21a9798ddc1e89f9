//! Webhooks of all runs of a principal: later runs too, other owners' never, a restart, a deletion, dead letters.

use serde_json::{Value, json};

use crate::{
    api::webhooks::{OK, events, setup},
    support::{
        BOB, Reply, Server, eventually,
        receiver::{Behaviour, Delivery, Receiver},
        wait_for, wait_until,
    },
};

const PATH: &str = "/v1/webhooks";

fn create(server: &Server, body: &Value) -> Value {
    let reply = server.post(PATH, body).assert_ok();
    reply.json()
}

/// The run and the kind of each event that arrived, of one that came again once.
fn told(deliveries: &[Delivery]) -> Vec<(String, String)> {
    let mut deliveries = deliveries.to_vec();
    deliveries.sort_by_key(Delivery::seq);
    deliveries.dedup_by_key(|delivery| delivery.seq());
    let text = |value: &Value| value.as_str().expect("text").to_owned();
    let data = |delivery: &Delivery| {
        let data = &delivery.json()["data"];
        (text(&data["run_id"]), text(&data["kind"]))
    };
    deliveries.iter().map(data).collect()
}

fn delete(server: &Server, path: &str) -> Reply {
    server.call("DELETE", path).send()
}

#[test]
fn the_events_of_every_run_of_the_caller_arrive_in_order_and_nobody_elses() {
    let receiver = Receiver::start();
    let setup = setup(&receiver);
    let mut server = setup.start();
    let before = server.create_run();
    let made = create(&server, &json!({ "url": receiver.url("/all") }));
    assert_eq!(made["run_id"], Value::Null);
    let ended = json!({ "url": receiver.url("/ends"), "kinds": ["stop_requested", "run_deleted"] });
    create(&server, &ended);
    events(&server, &before, 1);
    let bobs = server.call("POST", "/v1/runs").key(Some(BOB)).json(&json!({})).send();
    assert_eq!(bobs.status, 200);
    let later = server.create_run();
    events(&server, &later, 300);
    let stopped = server.call("POST", &format!("/v1/runs/{before}/stop")).send();
    assert_eq!(stopped.status, 200);
    let found = receiver.wait("/all", 303);
    let seqs: Vec<u64> = found.iter().map(Delivery::seq).collect();
    assert!(seqs.is_sorted_by(|one, next| one < next), "in order, each once: {seqs:?}");
    let found = told(&found);
    assert_eq!(found[0], (before.clone(), "keepalive_refreshed".to_owned()));
    assert_eq!(found[1], (later.clone(), "run_created".to_owned()));
    assert_eq!(found[302], (before.clone(), "stop_requested".to_owned()));
    assert!(found.iter().all(|(run, _)| [&before, &later].contains(&run)), "Bob's are his own");

    server.restart(&setup);
    let newest = server.create_run();
    assert_eq!(delete(&server, &format!("/v1/runs/{later}")).status, 200);
    let arrived = |path: &str, count: usize| {
        eventually("events", || {
            Some(told(&receiver.deliveries(path))).filter(|it| it.len() >= count)
        })
    };
    let ends = [(newest, "run_created"), (later.clone(), "run_deleted")];
    let found = arrived("/all", 305);
    assert_eq!(found[303..], ends.map(|(run, kind)| (run, kind.to_owned())), "from its cursor on");
    let ends = [(before, "stop_requested"), (later, "run_deleted")];
    assert_eq!(arrived("/ends", 2), ends.map(|(run, kind)| (run, kind.to_owned())));
}

#[test]
fn dead_letters_are_listed_and_sent_again_but_for_those_of_deleted_runs_by_their_owner_alone() {
    let receiver = Receiver::start();
    let server = setup(&receiver).var("SERVICE_WEBHOOK_ATTEMPTS", "1").start();
    let made = create(&server, &json!({ "url": receiver.url("/a") }));
    receiver.on("/a", Behaviour::Answer(500, "x-any: thing"));
    let (kept, gone) = (server.create_run(), server.create_run());
    let path = format!("{PATH}/{}", made["webhook_id"].as_str().expect("an id"));
    let letters = || -> Vec<Value> {
        let answer = server.get(&format!("{path}/dead-letters")).json();
        let letters = answer["dead_letters"].as_array().expect("an array").iter();
        letters.map(|letter| letter["run_id"].clone()).collect()
    };
    wait_for(&vec![json!(kept), json!(gone)], letters);
    assert_eq!(delete(&server, &format!("/v1/runs/{gone}")).status, 200);
    wait_for(&vec![json!(kept), json!(gone), json!(gone)], letters);
    let before = receiver.deliveries("/a").len();
    receiver.on("/a", OK);
    let queued = server.post(&format!("{path}/redeliver"), &json!({}));
    assert_eq!((queued.status, &queued.json()["queued"]), (200, &json!(3)), "{}", queued.text);
    let found = told(&receiver.wait("/a", before + 2)[before..]);
    let again = [(kept, "run_created"), (gone, "run_deleted")];
    assert_eq!(found, again.map(|(run, kind)| (run, kind.to_owned())));
    let listed = || server.get(PATH).json()["webhooks"].take();
    wait_until("it goes on", || listed()[0]["status"] == "active");
    let removed = delete(&server, &path);
    assert_eq!((removed.status, &removed.json()["run_id"]), (200, &Value::Null));
    assert_eq!(delete(&server, &path).status, 404);
    assert_eq!(listed(), json!([]));
    check_owner(&server, &receiver);
}

/// A webhook of all runs is its owner's and counts for its principal.
fn check_owner(server: &Server, receiver: &Receiver) {
    let body = json!({ "url": receiver.url("/a") });
    let made = create(server, &body);
    let id = made["webhook_id"].as_str().expect("an id");
    let (path, run) = (format!("{PATH}/{id}"), server.create_run());
    let bobs = |method: &str, path: &str| server.call(method, path).key(Some(BOB)).send();
    assert_eq!(bobs("GET", PATH).json()["webhooks"], json!([]));
    for (method, path) in [
        ("DELETE", path.clone()),
        ("GET", format!("{path}/dead-letters")),
        ("POST", format!("{path}/redeliver")),
    ] {
        assert_eq!(bobs(method, &path).status, 404, "{method} {path}");
        let of_run = path.replace(PATH, &format!("/v1/runs/{run}/webhooks"));
        assert_eq!(server.call(method, &of_run).send().status, 404, "it is of no single run");
    }
    assert_eq!(server.get(&format!("/v1/runs/{run}/webhooks")).json()["webhooks"], json!([]));
    let of_run = server.post_run(&run, "webhooks", &body).json();
    let of_run = format!("{PATH}/{}", of_run["webhook_id"].as_str().expect("an id"));
    assert_eq!(delete(server, &of_run).status, 404, "nor the other way round");
    for (body, field) in
        [(json!({}), "url"), (json!({ "url": receiver.url("/a"), "kinds": ["no"] }), "kinds")]
    {
        server.post(PATH, &body).assert_invalid(field, &body);
    }
    (0..30).for_each(|_| drop(create(server, &body)));
    let full = server.post(PATH, &body).assert_refused(409, "conflict");
    assert!(full.text.contains("32 of at most 32 webhooks of this principal"), "{}", full.text);
}
