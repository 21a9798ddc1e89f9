//! The real server on a disk that fails: every so many writes, syncs, renames, cuts, creations or removals, by
//! `tests/support/disk_shim.c`. What was acknowledged meanwhile is there after a kill and a start on a sound disk.

use std::{
    process::Command,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use serde_json::{Value, json};

use crate::{
    crash::{Acknowledged, WRITERS, verify},
    support::{Call, Reply, Server, Setup, shim_of_disk, whip::sightline},
};

const EINTR: i32 = 4;
const EIO: i32 = 5;
const ENOSPC: i32 = 28;
/// The call does a part of its work.
const SHORT: i32 = 0;

/// A kind of change as the shim calls it, the number of its error, and how often it comes.
const FAULTS: [(&str, i32, u32); 16] = [
    ("w", SHORT, 1),
    ("w", SHORT, 3),
    ("w", EINTR, 2),
    ("w", EIO, 2),
    ("w", EIO, 23),
    ("w", ENOSPC, 5),
    ("s", EIO, 1),
    ("s", EIO, 13),
    ("s", ENOSPC, 7),
    ("r", EIO, 1),
    ("r", EIO, 2),
    ("t", EIO, 1),
    ("c", ENOSPC, 2),
    ("c", EIO, 5),
    ("u", EIO, 1),
    ("u", EIO, 3),
];

/// A success; a failure has to say so: the disk's faults are nobody's fault but the server's. One whose log takes no
/// more ends, and answers nobody then.
fn told(call: Call<'_>) -> Option<Reply> {
    let reply = call.try_send().ok()?;
    let is_failure = [500, 503, 507].contains(&reply.status) && !reply.code().is_empty();
    assert!(reply.status == 200 || is_failure, "{} {}", reply.status, reply.text);
    (reply.status == 200).then_some(reply)
}

fn created(server: &Server) -> Option<(String, String)> {
    let reply = told(server.call("POST", "/v1/runs").json(&json!({})))?;
    let run = reply.json()["run_id"].as_str()?.to_owned();
    Some((run, reply.header("x-request-id").to_owned()))
}

/// One client: creates runs and keeps them alive until `over`.
fn write(server: &Server, over: &AtomicBool) -> Acknowledged {
    let mut acknowledged = Acknowledged::new();
    while !over.load(Ordering::Relaxed) {
        let Some((run, id)) = created(server) else { continue };
        let ids = acknowledged.entry(run.clone()).or_insert_with(|| vec![id]);
        for _ in 0..20 {
            if let Some(reply) = told(server.call("POST", &format!("/v1/runs/{run}/keepalive"))) {
                ids.push(reply.header("x-request-id").to_owned());
            }
        }
    }
    acknowledged
}

/// Records a clip until `over`; returns the runs whose recording was acknowledged.
fn record(server: &Server, over: &AtomicBool) -> Vec<String> {
    let mut recorded = Vec::new();
    while !over.load(Ordering::Relaxed) {
        let Some((run, _)) = created(server) else { continue };
        let body = json!({ "source_uri": "motion.mp4", "max_frames": 60 });
        if told(server.call("POST", &format!("/v1/runs/{run}/ingest")).json(&body)).is_some() {
            recorded.push(run);
        }
    }
    recorded
}

/// Checks that a recording is whole: as many rows as frames, and every still that it names.
pub fn check(server: &Server, run: &str) {
    let decoded = server.payloads(run, "frames_decoded");
    let rows = decoded.first().and_then(|payload| payload["signals"].as_array().map(Vec::len));
    assert_eq!(rows, Some(60), "{run}: {:?}", server.events(run));
    let listed = server.get(&format!("/v1/runs/{run}/keyframes")).json();
    let stills: Vec<&Value> = listed["keyframes"].as_array().into_iter().flatten().collect();
    assert!(!stills.is_empty(), "{run}: {listed}");
    for still in stills {
        let reply = server.get(still["image_ref"].as_str().expect("a path"));
        assert_eq!(reply.status, 200, "{run}: {still}: {}", reply.text);
        assert_eq!(json!(reply.bytes.len()), still["image_bytes"], "{run}: {still}");
    }
}

#[test]
fn a_disk_that_fails_costs_nothing_that_was_acknowledged() {
    let dir = tempfile::tempdir().expect("a directory");
    let Some(sightline) = sightline() else { return };
    let Some(shim) = shim_of_disk(dir.path()) else { return };
    let mut kept = 0;
    for (kind, error, every) in FAULTS {
        let what = format!("{kind} fails with {error} every {every}");
        let home = tempfile::tempdir().expect("a directory");
        let (data, switch) = (home.path().join("data"), home.path().join("on"));
        let sound = Setup::new(home.path()).clips();
        let failing = sound
            .clone()
            .var("LD_PRELOAD", &shim)
            .var("DISK_ROOT", &data.display().to_string())
            .var("DISK_FAIL", &format!("{kind} {every} {error}"))
            .var("DISK_ARMED", &switch.display().to_string());
        let mut server = failing.start();
        let before = created(&server).unwrap_or_else(|| panic!("{what}: before it fails"));
        std::fs::write(&switch, "").expect("written");
        let over = AtomicBool::new(false);
        let (acknowledged, recorded) = std::thread::scope(|scope| {
            let writers: Vec<_> =
                (0..WRITERS).map(|_| scope.spawn(|| write(&server, &over))).collect();
            let recorder = scope.spawn(|| record(&server, &over));
            std::thread::sleep(clips::sized(Duration::from_millis(700), Duration::from_secs(5)));
            over.store(true, Ordering::Relaxed);
            let join = |writer: std::thread::ScopedJoinHandle<'_, Acknowledged>| {
                writer.join().expect("no panic")
            };
            let acknowledged: Acknowledged = writers.into_iter().flat_map(join).collect();
            (acknowledged, recorder.join().expect("no panic"))
        });
        let health = server.call("GET", "/v1/health").try_send().map(|reply| reply.status).ok();
        // A sync that fails, or a mark behind a batch, leaves the disk unknown: the log takes no more, and its server ends.
        let may_end = ["s", "w"].contains(&kind) && [EIO, ENOSPC].contains(&error);
        assert!(may_end || health == Some(200), "{what}: it lives");
        server.restart(&sound);
        for (run, ids) in acknowledged.iter().chain([(&before.0, &vec![before.1])]) {
            verify(&server, run, ids, &mut Default::default());
            kept += ids.len();
        }
        recorded.iter().for_each(|run| check(&server, run));
        let verified = Command::new(&sightline).args(["log", "verify"]).arg(&data).output();
        let verified = verified.expect("it runs");
        assert!(verified.status.success(), "{what}: {}", String::from_utf8_lossy(&verified.stdout));
        let (acks, records) = (acknowledged.values().map(Vec::len).sum::<usize>(), recorded.len());
        assert!(kind != "s" || every > 1 || acks + records == 0, "{what}: {acks} acknowledged");
        println!("{what}: {acks} acknowledged, {records} recorded");
    }
    assert!(kept > 10 * FAULTS.len(), "the load was no load: {kept}");
}
