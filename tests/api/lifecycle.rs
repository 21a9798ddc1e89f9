//! Runs over time: order of changes, limits, the long poll.

use std::time::{Duration, Instant};

use serde_json::json;

use super::routes::frame;
use crate::support::{BOB, Server, Setup, shared};

/// Sends `count` requests at once and returns their statuses, sorted.
fn at_once(server: &Server, count: usize, method: &str, path: &str) -> Vec<u16> {
    let mut statuses: Vec<u16> = std::thread::scope(|scope| {
        let send = || server.call(method, path).json(&json!({})).send().status;
        let started: Vec<_> = (0..count).map(|_| scope.spawn(send)).collect();
        started.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    });
    statuses.sort_unstable();
    statuses
}

/// `orders.rs` has every order of ends, and reads the log behind them.
#[test]
fn of_many_stops_and_deletions_at_once_one_wins_and_no_keepalive_follows() {
    let server = shared();
    for _ in 0..20 {
        let run = server.create_run();
        let path = format!("/v1/runs/{run}");
        let stops = std::thread::scope(|scope| {
            scope.spawn(|| at_once(&server, 6, "POST", &format!("{path}/keepalive")));
            at_once(&server, 8, "POST", &format!("{path}/stop"))
        });
        assert_eq!(stops, [200, 409, 409, 409, 409, 409, 409, 409]);
        let mut kinds = server.kinds(&run);
        kinds.retain(|kind| kind != "keepalive_refreshed");
        assert_eq!(kinds, ["run_created", "stop_requested"]);
        assert_eq!(server.kinds(&run).last().map(String::as_str), Some("stop_requested"));
        assert_eq!(server.get(&format!("{path}/state")).json()["state"], "cancelled");
        let deletions = at_once(&server, 6, "DELETE", &path);
        assert_eq!(deletions, [200, 404, 404, 404, 404, 404]);
        assert_eq!(server.get(&path).status, 404);
    }
}

#[test]
fn the_active_limit_counts_each_owner_alone_and_no_run_that_rests_after_its_analysis() {
    let setup = Setup::temporary().var("SERVICE_ACTIVE_STREAM_LIMIT", "2");
    let mut server = setup.start();
    let statuses = at_once(&server, 12, "POST", "/v1/runs");
    assert_eq!(statuses.iter().filter(|status| **status == 200).count(), 2, "{statuses:?}");
    let assert_full = |server: &Server| {
        let reply = server.post("/v1/runs", &json!({}));
        let told = reply.json()["error"]["details"].clone();
        let expected = json!([
            {"field": "limit", "message": "2"}, {"field": "active", "message": "2"},
        ]);
        assert_eq!((reply.status, told), (409, expected), "{}", reply.text);
    };
    assert_full(&server);
    let bobs = server.call("POST", "/v1/runs").key(Some(BOB)).json(&json!({})).send();
    assert_eq!(bobs.status, 200);
    let listed = server.get("/v1/runs").json();
    let [rests, waits] = [0, 1].map(|at| listed[at]["run_id"].as_str().expect("an id"));
    server.post_run(waits, "keepalive", &json!({})).assert_ok();
    assert_full(&server);
    let analysis = json!({"model": "qwen3-vl-8b", "frames": [frame()]});
    server.post_run(rests, "analyze", &analysis).assert_ok();
    let third = server.create_run();
    assert_full(&server);
    server.kill();
    server = setup.start();
    assert_full(&server);
    assert_eq!(server.call("POST", &format!("/v1/runs/{third}/finish")).send().status, 200);
    server.create_run();
    assert_full(&server);
    assert_eq!(server.call("DELETE", &format!("/v1/runs/{waits}")).send().status, 200);
    server.create_run();
    assert_full(&server);
}

#[test]
fn a_long_poll_wakes_for_its_event_and_ends_in_time() {
    let server = shared();
    let run = server.create_run();
    let query = |wait_ms: u64, from_seq: u64| {
        let kind = "keepalive_refreshed";
        let body = json!({"run_id": run, "kind": kind, "from_seq": from_seq, "wait_ms": wait_ms});
        server.post("/v1/query", &body).json()
    };
    let started = Instant::now();
    let empty = query(300, 0);
    assert!(started.elapsed() >= Duration::from_millis(300) && empty["matches"] == json!([]));
    assert_eq!(
        empty["query"],
        json!({"run_id": run, "kind": "keepalive_refreshed", "from_seq": 0})
    );
    let started = Instant::now();
    let woken = std::thread::scope(|scope| {
        let poll = scope.spawn(|| query(20_000, 0));
        std::thread::sleep(Duration::from_millis(200));
        assert_eq!(server.post_run(&run, "keepalive", &json!({})).status, 200);
        poll.join().expect("no panic")
    });
    assert!(started.elapsed() < Duration::from_secs(10), "woken by the event, not by the clock");
    let event = &woken["matches"][0];
    assert_eq!((&event["kind"], &event["run_id"]), (&json!("keepalive_refreshed"), &json!(run)));
    let seq = event["seq"].as_u64().expect("a number");
    assert_eq!(woken["next_from_seq"], seq + 1);
    assert_eq!(query(0, seq)["matches"][0], *event, "from_seq is inclusive");
    assert_eq!(query(0, seq + 1)["matches"], json!([]));
}

#[test]
fn a_run_that_is_deleted_or_has_ended_ends_its_long_polls() {
    let server = shared();
    let run = server.create_run();
    let body = json!({"run_id": run, "kind": "vlm", "wait_ms": 20_000});
    let status = std::thread::scope(|scope| {
        let poll = scope.spawn(|| server.post("/v1/query", &body).status);
        std::thread::sleep(Duration::from_millis(200));
        assert_eq!(server.call("DELETE", &format!("/v1/runs/{run}")).send().status, 200);
        poll.join().expect("no panic")
    });
    assert_eq!(status, 404);
    let run = server.create_run();
    assert_eq!(server.post_run(&run, "stop", &json!({})).status, 200);
    let next = server.post("/v1/query", &json!({"run_id": run})).json()["next_from_seq"].clone();
    let query = json!({"run_id": run, "from_seq": next, "wait_ms": 30_000});
    let started = Instant::now();
    assert_eq!(server.post("/v1/query", &query).json()["matches"], json!([]));
    assert!(started.elapsed() < Duration::from_secs(20), "it waits for nothing");
}
