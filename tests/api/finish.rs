//! Runs that complete, by request or by themselves.

use media::RunId;
use serde_json::{Value, json};
use timeline::{AnalysisGenerated, Event};

use super::routes::frame;
use crate::support::{BOB, Server, Setup, seed, shared, wait_until};

fn completed(server: &Server, run: &str) -> Value {
    let last = server.payloads(run, "run_completed").into_iter().next();
    last.unwrap_or_else(|| panic!("not completed: {:?}", server.events(run)))
}

#[test]
fn a_finished_run_is_completed_and_takes_no_more() {
    let server = shared();
    let (fresh, analyzed) = (server.create_run(), server.create_run());
    let body = json!({"model": "qwen3-vl-8b", "frames": [frame()], "stream_id": "yard"});
    server.post_run(&analyzed, "analyze", &body).assert_ok();
    for (run, stream, frames) in [(&fresh, Value::Null, 0), (&analyzed, json!("yard"), 1)] {
        let path = format!("/v1/runs/{run}/finish");
        let foreign = server.call("POST", &path).key(Some(BOB)).json(&json!({})).send();
        assert_eq!(foreign.status, 404);
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

#[test]
fn an_idle_run_completes_where_it_was_analyzed_and_else_expires() {
    let dir = tempfile::tempdir().expect("a directory");
    let [analyzed, other] = [1, 2].map(|number| RunId::from_bytes([number; 16]));
    seed(dir.path(), [(analyzed, true), (other, false)]);
    let server = Setup::new(dir.path()).start();
    let (analyzed, other) = (analyzed.to_string(), other.to_string());
    for (run, status) in [(&analyzed, "completed"), (&other, "expired")] {
        wait_until(status, || server.record(run)["status"] == status);
    }
    let told = completed(&server, &analyzed);
    let expected = json!({
        "request_id": null, "stream_id": "yard", "frames": 7, "markers": 3, "index_name": null,
        "semantic": null, "reason": "idle",
    });
    assert_eq!(told, expected);
    assert_eq!(server.kinds(&other), ["run_created", "run_expired"]);
}
