//! The system's clock of the real server jumps, back and ahead, while it runs and between its starts: what was acknowledged stays,
//! no event is dated before another, and nothing is old for it.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::{
    crash::{Acknowledged, faults::check, verify},
    support::{Server, Setup, clock::Clock},
};

const HOUR: i64 = 3600;
const DAY: i64 = 24 * HOUR;
const YEAR: i64 = 365 * DAY;
/// Seconds that the clock is ahead of the right one, in turn.
const OFFSETS: [i64; 8] = [-2, HOUR, -HOUR, -DAY, -10 * YEAR, 2 * HOUR, 0, 10 * YEAR];

fn keyed(server: &Server) -> (String, String) {
    let reply = server.create_keyed("clock").assert_ok();
    (reply.run(), reply.header("x-request-id").to_owned())
}

/// The times of events are in their order.
fn check_times(events: &[Value]) {
    let times: Vec<_> = events.iter().map(|event| event["pts_ms"].as_i64()).collect();
    assert!(times.is_sorted() && times.iter().all(Option::is_some), "{times:?}");
}

#[test]
fn a_clock_that_jumps_loses_reorders_and_ages_nothing() {
    let dir = tempfile::tempdir().expect("a directory");
    let Some(clock) = Clock::new(dir.path()) else { return };
    let setup = ["SERVICE_RETENTION_RUN_DAYS", "SERVICE_RETENTION_STILLS_DAYS"].iter().fold(
        clock.of(Setup::new(dir.path()).clips()).var("SERVICE_STREAM_TTL_SECS", "86400"),
        |setup, name| setup.var(name, "30"),
    );
    let mut server = setup.start();
    let (run, request) = keyed(&server);
    let recorded = server.ingested(&json!({"source_uri": "motion.mp4", "max_frames": 60}));
    let (mut acknowledged, mut seen) =
        (Acknowledged::from([(run.clone(), vec![request])]), BTreeMap::new());
    for (at, offset) in OFFSETS.into_iter().enumerate() {
        clock.shift(offset);
        if at % 2 == 1 && offset < YEAR {
            server.restart(&setup);
        }
        for _ in 0..20 {
            let reply = server.post(&format!("/v1/runs/{run}/keepalive"), &json!({}));
            assert_eq!(reply.status, 200, "{offset} s: {}", reply.text);
            let ids = acknowledged.entry(run.clone()).or_default();
            ids.push(reply.header("x-request-id").to_owned());
        }
        verify(&server, &run, &acknowledged[&run], &mut seen);
        assert_eq!(keyed(&server).0, run, "{offset} s: the key acts once");
        check(&server, &recorded);
        check_times(&server.events(&run));
        check_times(&server.events(&server.create_run()));
    }
    let all = server.events(&run);
    let spans =
        [all.first(), all.last()].map(|event| event.and_then(|event| event["pts_ms"].as_i64()));
    assert!(spans[1] > spans[0].map(|first| first + (9 * YEAR) * 1000), "it jumped: {spans:?}");
}
