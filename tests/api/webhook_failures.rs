//! Webhooks whose target fails in every way, and servers that end in the middle of a delivery.

use std::time::Duration;

use serde_json::{Value, json};

use crate::{
    api::webhooks::{OK, create, events, hook, listed, seqs, setup, wait_for_status},
    support::{
        Server,
        receiver::{Behaviour, Delivery, Receiver},
        wait_for, wait_until,
    },
};

#[test]
fn every_failure_is_tried_again_in_its_time_with_the_same_id_and_the_order_is_kept() {
    let receiver = Receiver::start();
    let server = setup(&receiver).var("SERVICE_WEBHOOK_TIMEOUT_MS", "400").start();
    let table = [
        ("/500", Behaviour::Answer(500, "x-any: thing"), "answered 500"),
        ("/404", Behaviour::Answer(404, "x-any: thing"), "answered 404"),
        ("/302", Behaviour::Answer(302, "location: /elsewhere"), "answered 302: redirects are not"),
        ("/429", Behaviour::Answer(429, "retry-after: 2"), "answered 429"),
        ("/503", Behaviour::Answer(503, "retry-after: 2"), "answered 503"),
        ("/hang", Behaviour::Hang, "timeout: no answer within 0.4 s"),
        ("/close", Behaviour::Close, "closed the connection"),
    ];
    for (path, behaviour, reason) in table {
        let run = server.create_run();
        receiver.on(path, behaviour);
        let made = hook(&server, &run, &receiver.url(path));
        events(&server, &run, 3);
        let failed = receiver.wait(path, 2);
        let asks_for_time = matches!(behaviour, Behaviour::Answer(_, "retry-after: 2"));
        let waited = failed[1].at - failed[0].at;
        assert!(!asks_for_time || waited >= Duration::from_secs(2), "{path}: {waited:?}");
        let webhook = wait_for_status(&server, &run, &made["webhook_id"], "failing");
        let told = webhook["last_error"]["message"].as_str().expect("a text");
        assert!(told.contains(reason), "{path}: {told}");
        receiver.on(path, OK);
        wait_for(&seqs(&server, &run)[1..].to_vec(), || arrived(&receiver, path));
        let id = failed[0].header("webhook-id");
        assert!(failed.iter().all(|delivery| delivery.header("webhook-id") == id), "{path}");
        wait_for_status(&server, &run, &made["webhook_id"], "active");
    }
    assert_eq!(receiver.deliveries("/elsewhere").len(), 0, "redirects are not followed");
}

#[test]
fn a_server_killed_before_its_cursor_moves_sends_again_under_the_same_id_and_counts_attempts_on() {
    let receiver = Receiver::start();
    let setup = setup(&receiver).var("SERVICE_WEBHOOK_TIMEOUT_MS", "60000");
    let setup = setup.var("SERVICE_WEBHOOK_ATTEMPTS", "3");
    let mut server = setup.start();
    let run = server.create_run();
    // Targets have the event, and the server never learns of it.
    let hang = |path: &str| {
        receiver.on(path, Behaviour::Hang);
        hook(&server, &run, &receiver.url(path));
    };
    hang("/x");
    (0..6).for_each(|_| hang("/hang"));
    events(&server, &run, 3);
    receiver.wait("/x", 1);
    receiver.wait("/hang", 6);
    hook(&server, &run, &receiver.url("/good"));
    events(&server, &run, 30);
    receiver.wait("/good", 30);
    let asked = ["/x", "/hang"].map(|path| receiver.deliveries(path).len());
    assert_eq!(asked, [1, 6], "none of them has answered, and they delay no other");
    let other = server.create_run();
    receiver.on("/500", Behaviour::Answer(500, "x-any: thing"));
    let failing = hook(&server, &other, &receiver.url("/500"));
    events(&server, &other, 1);
    // By the second attempt the first one is noted.
    receiver.wait("/500", 2);
    server.kill();
    receiver.on("/x", OK);
    let server = setup.start();
    let own = seqs(&server, &run);
    let found = receiver.wait("/x", own.len());
    let told: Vec<u64> = found.iter().map(Delivery::seq).collect();
    assert_eq!(told, [&own[1..2], &own[1..]].concat());
    assert_eq!(found[0].header("webhook-id"), found[1].header("webhook-id"));
    assert_eq!(found[0].body, found[1].body);
    let id = failing["webhook_id"].as_str().expect("an id");
    let path = format!("/v1/runs/{other}/webhooks/{id}");
    wait_for_letters(&server, &path, &[(seqs(&server, &other)[1], 3)]);
    let count = receiver.deliveries("/500").len();
    assert!((3..=4).contains(&count), "{count} attempts, of which one was cut off at most");
}

#[test]
fn nothing_of_a_deleted_run_is_sent() {
    let receiver = Receiver::start();
    // Long enough that no retry is due before the deletion.
    let server = setup(&receiver).var("SERVICE_WEBHOOK_RETRY_MS", "600000").start();
    let runs: Vec<String> = (0..5).map(|_| server.create_run()).collect();
    receiver.on("/x", Behaviour::Answer(500, "x-any: thing"));
    let (run, last) = (&runs[0], &runs[4]);
    for _ in 0..8 {
        hook(&server, run, &receiver.url("/x"));
        runs[1..4].iter().for_each(|other| drop(hook(&server, other, &receiver.url("/y"))));
    }
    events(&server, run, 2);
    receiver.wait("/x", 8);
    receiver.on("/x", OK);
    assert_eq!(server.call("DELETE", &format!("/v1/runs/{run}")).send().status, 200);
    assert_eq!(server.get(&format!("/v1/runs/{run}/webhooks")).status, 404);
    // There is room for eight others once all of its webhooks have had their last turn.
    let url = json!({ "url": receiver.url("/y") });
    let mut made = 0;
    wait_until("eight others are made", || {
        made += usize::from(create(&server, last, &url).status == 200);
        made == 8
    });
    assert_eq!(receiver.deliveries("/x").len(), 8);
}

/// Numbers of the events that arrived at a path, each once.
fn arrived(receiver: &Receiver, path: &str) -> Vec<u64> {
    let mut told: Vec<u64> = receiver.deliveries(path).iter().map(Delivery::seq).collect();
    assert!(told.is_sorted(), "{path}: {told:?}");
    told.dedup();
    told
}

/// Waits until the dead letters of a webhook, in the list that `path` names, are these: seq, attempts.
fn wait_for_letters(server: &Server, path: &str, expected: &[(u64, u64)]) {
    let run = path.split('/').nth(3).expect("an id");
    let letter = |(seq, attempts): &(u64, u64)| {
        json!({
            "seq": seq, "run_id": run, "kind": "keepalive_refreshed", "attempts": attempts,
            "error": "answered 500",
        })
    };
    let expected: Value = expected.iter().map(letter).collect();
    wait_for(&expected, || {
        server.get(&format!("{path}/dead-letters")).assert_ok().json()["dead_letters"].clone()
    });
}

#[test]
fn what_is_never_taken_is_a_dead_letter_until_its_owner_has_it_sent_again_and_410_ends_it() {
    let receiver = Receiver::start();
    let fast =
        setup(&receiver).var("SERVICE_WEBHOOK_ATTEMPTS", "2").var("SERVICE_WEBHOOK_RETRY_MS", "10");
    let mut server = fast.start();
    let run = server.create_run();
    receiver.on("/x", Behaviour::Answer(500, "x-any: thing"));
    let made = hook(&server, &run, &receiver.url("/x"));
    let path = format!("/v1/runs/{run}/webhooks/{}", made["webhook_id"].as_str().expect("an id"));
    let redeliver = |server: &Server| {
        let reply = server.call("POST", &format!("{path}/redeliver")).send().assert_ok();
        reply.json()["queued"].clone()
    };
    assert_eq!(redeliver(&server), 0);
    events(&server, &run, 3);
    let own = seqs(&server, &run);
    wait_for_letters(&server, &path, &[(own[1], 2), (own[2], 2), (own[3], 2)]);
    assert_eq!(listed(&server, &run, &made["webhook_id"])["dead_letters"], 3);
    let told: Vec<u64> = receiver.deliveries("/x").iter().map(Delivery::seq).collect();
    assert_eq!(told, [own[1], own[1], own[2], own[2], own[3], own[3]]);
    assert_eq!(redeliver(&server), 3);
    // The first is tried once more; those behind it are not.
    wait_for_letters(&server, &path, &[(own[1], 3), (own[2], 2), (own[3], 2)]);
    let failed = receiver.wait("/x", 7);

    // 410 ends a webhook, also over a restart, until its owner has it go on.
    receiver.on("/x", Behaviour::Answer(410, "x-any: thing"));
    events(&server, &run, 3);
    wait_for_status(&server, &run, &made["webhook_id"], "disabled");
    server.restart(&fast);
    receiver.on("/x", OK);
    let good = hook(&server, &run, &receiver.url("/good"));
    events(&server, &run, 1);
    receiver.wait("/good", 1);
    assert_eq!(listed(&server, &run, &made["webhook_id"])["status"], "disabled");
    assert_eq!(listed(&server, &run, &good["webhook_id"])["status"], "active");
    wait_for_letters(&server, &path, &[(own[1], 3), (own[2], 2), (own[3], 2)]);
    assert_eq!(receiver.deliveries("/x").len(), 8, "nothing after 410");
    let new = &seqs(&server, &run)[4..];
    assert_eq!(redeliver(&server), 3);
    wait_for_letters(&server, &path, &[]);
    let found = receiver.wait("/x", 11 + new.len());
    let told: Vec<u64> = found[8..].iter().map(Delivery::seq).collect();
    assert_eq!(told, [&own[1..4], new].concat(), "before what is new");
    assert_eq!(found[8].header("webhook-id"), failed[0].header("webhook-id"));
    assert_eq!(listed(&server, &run, &made["webhook_id"])["status"], "active");
    assert_eq!(listed(&server, &run, &made["webhook_id"])["dead_letters"], 0);

    // What was asked for before a kill is done after it.
    receiver.on("/x", Behaviour::Answer(500, "x-any: thing"));
    events(&server, &run, 1);
    let last = *seqs(&server, &run).last().expect("events");
    wait_for_letters(&server, &path, &[(last, 2)]);
    let asked = receiver.deliveries("/x").len();
    receiver.on("/x", Behaviour::Hang);
    redeliver(&server);
    receiver.wait("/x", asked + 1);
    server.kill();
    receiver.on("/x", OK);
    let server = fast.start();
    wait_for_letters(&server, &path, &[]);
    assert_eq!(server.call("POST", &format!("/v1/runs/{run}/stop")).send().status, 200);
    wait_for_status(&server, &run, &made["webhook_id"], "finished");
}
