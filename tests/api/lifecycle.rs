//! Runs over time: order of changes, limits, the long poll, completion, and the names that their owners give them.

use std::time::{Duration, Instant};

use media::RunId;
use serde_json::{Value, json};
use timeline::{AnalysisGenerated, Event};

use super::analyses::frame;
use crate::support::{BOB, Server, Setup, seed, shared, wait_until};

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
    let analysis = json!({"model": "qwen3-vl-8b", "frames": [frame(0)]});
    server.post_run(rests, "analyze", &analysis).assert_ok();
    let third = server.create_run();
    assert_full(&server);
    server.restart(&setup);
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

fn completed(server: &Server, run: &str) -> Value {
    let last = server.payloads(run, "run_completed").into_iter().next();
    last.unwrap_or_else(|| panic!("not completed: {:?}", server.events(run)))
}

#[test]
fn a_finished_run_is_completed_and_takes_no_more() {
    let server = shared();
    let (fresh, analyzed) = (server.create_run(), server.create_run());
    let body = json!({"model": "qwen3-vl-8b", "frames": [frame(0)], "stream_id": "yard"});
    server.post_run(&analyzed, "analyze", &body).assert_ok();
    for (run, stream, frames) in [(&fresh, Value::Null, 0), (&analyzed, json!("yard"), 1)] {
        let path = format!("/v1/runs/{run}/finish");
        let reply = server.call("POST", &path).send().assert_ok();
        let answer = reply.json();
        assert_eq!((&answer["run_id"], &answer["status"]), (&json!(run), &json!("completed")));
        let told = completed(&server, run);
        let figures = (&told["stream_id"], &told["frames"], &told["markers"], told.get("reason"));
        assert_eq!(figures, (&stream, &json!(frames), &json!(frames), None), "{told}");
        assert_eq!(told["request_id"], answer["request_id"]);
        for action in ["finish", "stop", "keepalive"] {
            let again = server.call("POST", &format!("/v1/runs/{run}/{action}")).send();
            assert_eq!((again.status, again.code().as_str()), (409, "conflict"), "{action}");
        }
        assert_eq!(server.record(run)["expires_at"], Value::Null);
    }
}

/// A run of Alice's as a server of two hours ago left it, with an analysis or without.
fn seed(dir: &std::path::Path, runs: [(RunId, bool); 2]) {
    let log = seed::log_at(dir, timeline::system_clock().epoch_ms - 7_200_000);
    for (run, is_analyzed) in runs {
        let created = seed::created("alice");
        let analysis = AnalysisGenerated { frames: 7, markers: 3, ..seed::analysis("yard") };
        let analyzed = Event::AnalysisGenerated(analysis);
        let events = std::iter::once(created).chain(is_analyzed.then_some(analyzed));
        seed::append(&log, run, events);
    }
}

fn an_idle_run_completes_where_it_was_analyzed_and_else_expires(server: &Server, runs: [RunId; 2]) {
    let [analyzed, other] = runs.map(|run| run.to_string());
    for (run, status) in [(&analyzed, "completed"), (&other, "expired")] {
        wait_until(status, || server.record(run)["status"] == status);
    }
    let told = completed(server, &analyzed);
    let expected = json!({
        "request_id": null, "stream_id": "yard", "frames": 7, "markers": 3, "index_name": null,
        "semantic": null, "reason": "idle",
    });
    assert_eq!(told, expected);
    assert_eq!(server.kinds(&other), ["run_created", "run_expired"]);
}

fn label(server: &Server, run: &str) -> Value {
    server.record(run)["label"].clone()
}

#[test]
fn idle_runs_end_and_labels_are_known_after_a_restart_and_change_no_state() {
    let setup = Setup::temporary();
    let idle = [1, 2].map(|number| RunId::from_bytes([number; 16]));
    seed(setup.dir(), [(idle[0], true), (idle[1], false)]);
    let mut server = setup.start();
    an_idle_run_completes_where_it_was_analyzed_and_else_expires(&server, idle);
    let made = |label: &str| server.post("/v1/runs", &json!({"label": label})).assert_ok().run();
    let (kept, changed, removed, ended) = (made("kept"), made("old"), made("old"), made("old"));
    let patch = |run: &str, label: Value| {
        let call = server.call("PATCH", &format!("/v1/runs/{run}"));
        let reply = call.json(&json!({"label": label})).send().assert_ok();
        reply.json()
    };
    assert_eq!(patch(&changed, json!("newer"))["status"], "pending");
    patch(&changed, json!("new"));
    patch(&changed, json!("new"));
    patch(&removed, Value::Null);
    assert_eq!(server.call("POST", &format!("/v1/runs/{ended}/finish")).send().status, 200);
    assert_eq!(patch(&ended, json!("done"))["status"], "completed");
    let kinds = ["run_created", "run_labelled", "run_labelled", "run_labelled"];
    assert_eq!(server.kinds(&changed), kinds, "the same label again is nothing new");
    let told = server.events(&removed)[2]["payload"].clone();
    assert_eq!((&told["label"], told["request_id"].is_string()), (&Value::Null, true));
    server.restart(&setup);
    for (run, expected) in [
        (&kept, json!("kept")),
        (&changed, json!("new")),
        (&removed, Value::Null),
        (&ended, json!("done")),
    ] {
        assert_eq!(label(&server, run), expected);
    }
    let listed = server.get("/v1/runs").json();
    assert_eq!((&listed[0]["label"], &listed[3]["label"]), (&json!("done"), &json!("kept")));
}
