//! kill -9 under load, again and again on one log: no acknowledged event lost, altered or renumbered.

mod aged;
mod clock;
mod faults;
mod full;
mod power;

use std::{
    collections::{BTreeMap, HashMap},
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use crate::support::{Server, Setup};

const WRITERS: usize = 4;
/// Load before the kill grows by a few milliseconds a cycle, so that kills fall everywhere.
const LOAD: [Duration; 4] = [
    Duration::from_millis(25),
    Duration::from_millis(40),
    Duration::from_millis(55),
    Duration::from_millis(70),
];

/// Answers that the server has acknowledged: per run their request ids, in order.
pub type Acknowledged = HashMap<String, Vec<String>>;

/// One client: creates a run and keeps it alive until the server is gone.
fn write(server: &Server, dying: &AtomicBool) -> Acknowledged {
    let mut acknowledged = Acknowledged::new();
    let Ok(created) = server.call("POST", "/v1/runs").json(&json!({})).try_send() else {
        return acknowledged;
    };
    let created = created.assert_ok();
    let run = created.run();
    let ids = acknowledged.entry(run.clone()).or_default();
    ids.push(created.header("x-request-id").to_owned());
    let path = format!("/v1/runs/{run}/keepalive");
    while !dying.load(Ordering::Relaxed) {
        let Ok(reply) = server.call("POST", &path).try_send() else { break };
        assert_eq!(reply.status, 200, "{}", reply.text);
        ids.push(reply.header("x-request-id").to_owned());
    }
    acknowledged
}

/// Checks a run against what was acknowledged, and that what was seen before is unchanged.
pub fn verify(server: &Server, run: &str, ids: &[String], seen: &mut BTreeMap<u64, Value>) {
    let events = server.events(run);
    let found: Vec<&str> =
        events.iter().filter_map(|event| event["payload"]["request_id"].as_str()).collect();
    let mut rest = found.iter();
    for id in ids {
        assert!(rest.any(|found| found == id), "{run}: acknowledged {id} is lost or out of order");
    }
    for event in events {
        let seq = event["seq"].as_u64().expect("a number");
        let before = seen.entry(seq).or_insert_with(|| event.clone());
        assert_eq!(*before, event, "event {seq} changed");
    }
}

#[test]
fn kills_lose_nothing() {
    let cycles = clips::sized(25, 200);
    let setup = Setup::temporary();
    let (mut acknowledged, mut seen) = (Acknowledged::new(), BTreeMap::new());
    let mut events = 0;
    let started = Instant::now();
    let mut cycle = 0;
    // As many more as a slow machine needs for events.
    while cycle < cycles || events <= cycles * WRITERS {
        let mut server = setup.start();
        for (run, ids) in &acknowledged {
            verify(&server, run, ids, &mut seen);
            // Terminal runs free their places under the active limit.
            assert_eq!(server.post(&format!("/v1/runs/{run}/stop"), &json!({})).status, 200);
        }
        let dying = AtomicBool::new(false);
        let fresh: Vec<Acknowledged> = std::thread::scope(|scope| {
            let writers: Vec<_> =
                (0..WRITERS).map(|_| scope.spawn(|| write(&server, &dying))).collect();
            std::thread::sleep(LOAD[cycle % LOAD.len()] + Duration::from_millis(cycle as u64 / 8));
            server.signal_kill();
            dying.store(true, Ordering::Relaxed);
            writers.into_iter().map(|writer| writer.join().expect("no panic")).collect()
        });
        server.kill();
        acknowledged = fresh.into_iter().flatten().collect();
        events += acknowledged.values().map(Vec::len).sum::<usize>();
        cycle += 1;
    }
    let server = setup.start();
    for (run, ids) in &acknowledged {
        verify(&server, run, ids, &mut seen);
    }
    println!("{cycle} kills, {events} acknowledged events, {:?}", started.elapsed());
}
