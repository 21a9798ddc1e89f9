//! The last hour by minutes: of the caller's own work, of the machine, and nobody else's.

use serde_json::{Value, json};

use crate::support::{ALICE, BOB, Server, Setup};

fn points(server: &Server, key: &str) -> Vec<Value> {
    let reply = server.call("GET", "/v1/stats?minutes=60").key(Some(key)).send().assert_ok();
    reply.json()["points"].as_array().expect("an array").clone()
}

/// Adds the minutes up.
fn sum(points: &[Value], field: &str) -> u64 {
    points.iter().map(|point| point["own"][field].as_u64().expect("a number")).sum()
}

#[test]
fn work_counts_for_its_owner_alone_and_for_the_machine() {
    let server = Setup::temporary().clips().var("SERVICE_ACTIVE_STREAM_LIMIT", "1").start();
    let run = server.ingested(&json!({"source_uri": "talk.mp4", "max_frames": 40}));
    let stills = server.get(&format!("/v1/runs/{run}/keyframes")).json();
    let analyze = json!({"model": "qwen3-vl-8b"});
    assert_eq!(server.post_run(&run, "analyze", &analyze).status, 200);
    let idle = server.create_run();
    assert_eq!(server.post("/v1/runs", &json!({})).status, 409, "{idle} is active");
    let last = server.get("/v1/stats?minutes=1").json();
    assert_eq!(last["points"].as_array().map(Vec::len), Some(1));
    for minutes in ["0", "61", "1.0", ""] {
        server.get(&format!("/v1/stats?minutes={minutes}")).assert_invalid("minutes", minutes);
    }
    let own = points(&server, ALICE);
    assert_eq!(sum(&own, "frames"), 80, "of the ingest and of the analysis");
    assert_eq!(sum(&own, "kept"), 2 * stills["keyframes"].as_array().expect("stills").len() as u64);
    assert_eq!((sum(&own, "refused"), sum(&own, "descriptions"), sum(&own, "tokens")), (1, 0, 0));
    let last = &own[own.len() - 1];
    let machine = &last["machine"];
    assert!(machine["server_memory_bytes"].as_u64() > Some(1 << 20), "{machine}");
    for field in ["frames_per_second", "kept_per_second", "descriptions_per_minute"] {
        assert!(machine[field].is_number(), "{field}: {machine}");
    }
    assert!(own.iter().any(|point| point["machine"]["log_commit_ms"].is_number()), "{own:?}");
    assert!(machine["memory_percent"].is_number(), "{machine}");
    assert_eq!((&machine["live_sessions"], &machine["jobs"]), (&json!(0), &json!(0)));
    assert!(last["seconds"].as_f64().is_some_and(|seconds| (0.0..=61.0).contains(&seconds)));

    let bobs = points(&server, BOB);
    for field in ["frames", "kept", "descriptions", "tokens", "refused"] {
        assert_eq!(sum(&bobs, field), 0, "{field} is Alice's");
    }
    let frames: f64 = bobs
        .iter()
        .map(|point| {
            let rate = point["machine"]["frames_per_second"].as_f64().expect("a number");
            rate * point["seconds"].as_f64().expect("a number")
        })
        .sum();
    assert!((frames - 80.0).abs() < 8.0, "the machine's are everybody's: {frames}");
}
