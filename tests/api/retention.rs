//! Quotas, ages and sweeps of a real server: what goes, what stays, and what is refused.

use std::{fs::File, io::Write, path::Path, time::Duration};

use serde_json::{Value, json};

use crate::support::{BOB, Reply, Server, Setup, can_mount, files, wait_until};

/// An age in days that has passed by the next start: a few milliseconds.
const SOON: &str = "0.0000001";

/// An ingest of sixty frames of `clip`.
pub fn ingest(server: &Server, run: &str, clip: &str) -> Reply {
    let body = json!({ "source_uri": clip, "max_frames": 60 });
    server.post_run(run, "ingest", &body)
}

fn ingested(server: &Server, clip: &str) -> String {
    server.ingested(&json!({ "source_uri": clip, "max_frames": 60 }))
}

pub fn used(server: &Server) -> u64 {
    let limits = server.get("/v1/limits").json();
    limits["limits"]["principal_stored"]["used"].as_u64().expect("a number")
}

/// Waits for the sweep that every start begins with.
fn swept(server: &Server) {
    wait_until("a sweep", || server.metric("service_retention_sweep_seconds_count") > 0.0);
    assert_eq!(server.metric("service_retention_failures_total"), 0.0);
}

/// Has the log's last event come later than any before it, by more than [`SOON`].
fn let_time_pass(server: &Server) {
    let run = server.create_run();
    let at = |event: &Value| event["pts_ms"].as_i64().expect("a time");
    wait_until("the log's time goes on", || {
        server.post_run(&run, "keepalive", &json!({})).assert_ok();
        let events = server.events(&run);
        at(&events[events.len() - 1]) > at(&events[0]) + 20
    });
}

#[test]
fn an_ingest_past_the_quota_is_refused_until_something_is_deleted() {
    let dir = tempfile::tempdir().expect("a directory");
    let setup = Setup::new(dir.path()).clips();
    let server = setup.start();
    let first = ingested(&server, "motion.mp4");
    let before = used(&server);
    let stills = server.still_paths(&first);
    let sizes = stills.iter().map(|path| server.get(path).bytes.len() as u64);
    assert!(before > sizes.sum::<u64>(), "stills and log count: {before}");
    drop(server);

    // Room for the run, and for less than the smallest still.
    let quota = before + 8_000;
    let setup = setup.var("SERVICE_PRINCIPAL_QUOTA_BYTES", &quota.to_string());
    let server = setup.start();
    assert_eq!(used(&server), before, "counted again at start");
    let second = server.create_run();
    let blobs = files(&dir.path().join("data/blobs"));
    let refused = ingest(&server, &second, "street.mp4").assert_refused(409, "conflict");
    assert_eq!(refused.fields(), ["quota", "used", "asked"]);
    assert!(refused.text.contains("delete runs or uploads"), "{}", refused.text);
    // Stills that had room are told of, and no other is there; without any nothing is told.
    let kept = server.kinds(&second).iter().filter(|kind| *kind == "keyframe_stored").count();
    assert_eq!(files(&dir.path().join("data/blobs")).len(), blobs.len() + kept);
    let mut kinds = server.kinds(&second);
    kinds.retain(|kind| kind != "keyframe_stored" && !kind.starts_with("activity_"));
    let told: &[&str] = if kept == 0 { &[] } else { &["ingest_received", "frames_decoded"] };
    assert_eq!(kinds, [&["run_created", "ingest_started"], told].concat());

    let bob = server.call("POST", "/v1/runs").key(Some(BOB)).json(&json!({})).send();
    assert_eq!(bob.status, 200, "another principal has an account of its own: {}", bob.text);

    server.post_run(&second, "stop", &json!({})).assert_ok();
    for run in [&first, &second] {
        assert_eq!(server.call("DELETE", &format!("/v1/runs/{run}")).send().status, 200);
    }
    // What the log says of them is there until it is compacted.
    wait_until("what is gone counts no more", || used(&server) < before / 2);
    ingested(&server, "motion.mp4");
}

#[test]
fn a_deleted_run_is_purged_and_everything_else_stays_as_it_was() {
    let dir = tempfile::tempdir().expect("a directory");
    let setup = Setup::new(dir.path()).clips();
    let server = setup.start();
    let kept = ingested(&server, "motion.mp4");
    let shared = ingested(&server, "motion.mp4");
    let gone = ingested(&server, "street.mp4");
    let before = (server.events(&kept), server.still_paths(&kept));
    let own = server.still_paths(&gone).len();
    for run in [&shared, &gone] {
        assert_eq!(server.call("DELETE", &format!("/v1/runs/{run}")).send().status, 200);
    }
    let removed = "service_retention_files_removed_total{kind=\"still\"}";
    wait_until("stills go soon, those of no other run", || server.metric(removed) == own as f64);
    let_time_pass(&server);
    let count = used(&server);
    drop(server);

    let setup = setup.var("SERVICE_RETENTION_DELETED_RUN_DAYS", SOON);
    let server = setup.start();
    swept(&server);
    assert!(server.metric("service_retention_events_purged_total") > 5.0);
    assert_eq!(server.metric(removed), 0.0, "the stills of no other run");
    assert_eq!((server.events(&kept), server.still_paths(&kept)), before);
    for path in &before.1 {
        assert_eq!(server.get(path).status, 200, "a still that two runs named");
    }
    assert!(used(&server) < count, "records count until they are purged: {count}");
    for run in [&shared, &gone] {
        let again = server.call("DELETE", &format!("/v1/runs/{run}")).send();
        assert_eq!(again.status, 404, "forgotten");
    }
    let fresh = server.create_run();
    let seq = server.events(&fresh)[0]["seq"].as_u64().expect("a number");
    drop(server);
    let log = dir.path().join("data/log");
    let report = timeline::verify(&log).expect("readable");
    assert!(report.problems.is_empty(), "{:?}", report.problems);
    let (log, _) = timeline::Timeline::open_read_only(&log).expect("opens");
    let gone = gone.parse().expect("an id");
    assert_eq!(log.heads_of(gone, media::Seq(0), 10), [], "nothing of it is on disk");
    assert_eq!(log.head().0, seq, "numbers go on behind those that are gone");
}

#[test]
fn ended_runs_past_their_age_and_files_that_nothing_names_are_removed_by_the_service() {
    let setup = Setup::temporary();
    let server = setup.start();
    let (ended, active) = (server.create_run(), server.create_run());
    assert_eq!(server.post_run(&ended, "stop", &json!({})).status, 200);
    let_time_pass(&server);
    drop(server);
    let data = setup.dir().join("data");
    let hash = "16156482030896da15ad58db297695c49d2a1123c9e37d837deea292bf4313b8";
    let names = ["blobs/16", "log/columns"].map(|folder| format!("{folder}/{hash}"));
    let names = names.into_iter().chain(["blobs/a.tmp".to_owned(), "log/columns/a.tmp".to_owned()]);
    let files: Vec<_> = names.map(|name| data.join(name)).collect();
    for path in &files {
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("made");
        std::fs::write(path, b"not really a JPEG").expect("written");
    }
    let server = setup.clone().var("SERVICE_RETENTION_RUN_DAYS", SOON).start();
    swept(&server);
    for path in &files {
        assert!(!path.exists(), "{}", path.display());
    }
    for (kind, files, bytes) in
        [("still", 1.0, 17.0), ("column", 1.0, 17.0), ("unfinished", 2.0, 0.0)]
    {
        let of = |what| server.metric(&format!("service_retention_{what}{{kind=\"{kind}\"}}"));
        let removed = (of("files_removed_total"), of("bytes_removed_total"));
        assert_eq!(removed, (files, bytes), "{kind}");
    }
    assert_eq!(server.metric("service_retention_runs_deleted_total"), 1.0);
    assert_eq!(server.get(&format!("/v1/runs/{ended}")).status, 404);
    assert_eq!(server.get(&format!("/v1/runs/{active}")).status, 200);
    drop(server);
    let (log, _) = timeline::Timeline::open_read_only(&data.join("log")).expect("opens");
    let ended = ended.parse().expect("an id");
    let deleted = log.latest(ended, timeline::EventKind::RunDeleted).expect("deleted");
    let payload = log.get(deleted.seq).expect("readable").expect("there").payload;
    let payload: Value = serde_json::from_str(&payload).expect("JSON");
    assert_eq!(payload, json!({ "reclaim": { "reason": "retention" } }));
}

/// Appends so many bytes to a file, or as many as there is room for.
pub fn fill(path: &Path, mut bytes: u64) {
    let mut file = File::options().create(true).append(true).open(path).expect("made");
    for step in [1 << 20, 4096, 1] {
        while bytes >= step && file.write_all(&vec![1; step as usize]).is_ok() {
            bytes -= step;
        }
    }
}

#[test]
fn on_a_full_disk_work_is_refused_and_runs_still_end() {
    const RESERVE_MIB: u64 = 16;
    if !can_mount() {
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    let setup = Setup::new(dir.path()).clips().on_disk(96);
    // The reserve alone is in the way, and no share of the disk.
    let setup = setup.var("SERVICE_PRINCIPAL_QUOTA_BYTES", &(1_u64 << 40).to_string());
    let server = setup.var("SERVICE_DISK_RESERVE_MIB", &RESERVE_MIB.to_string()).start();
    let disk = server.sees(&dir.path().join("data"));
    let free = || {
        let stat = rustix::fs::statvfs(&disk).expect("there");
        stat.f_bavail * stat.f_frsize
    };
    let clips = ["motion.mp4", "street.mp4", "talk.mp4"];
    let runs: Vec<String> = (0..6).map(|_| server.create_run()).collect();
    fill(&disk.join("ballast"), free() - (RESERVE_MIB << 20) - (200 << 10));
    let mut replies = runs.iter().zip(clips.iter().cycle()).map(|(run, clip)| {
        // The look at the disk is a second old at most.
        std::thread::sleep(Duration::from_millis(1100));
        ingest(&server, run, clip)
    });
    let refused = replies
        .find(|reply| reply.status != 200)
        .expect("the disk is low by now")
        .assert_refused(503, "unavailable");
    assert!(refused.text.contains("MiB reserved"), "{}", refused.text);
    assert!(!refused.header("retry-after").is_empty());
    assert!(free() > (RESERVE_MIB - 4) << 20, "{} bytes are left of the reserve", free());

    fill(&disk.join("rest"), u64::MAX);
    assert!(free() < 4096);
    assert_eq!(server.post("/v1/runs", &json!({})).status, 503);
    for run in &runs {
        server.post_run(run, "stop", &json!({})).assert_ok();
        assert_eq!(server.call("DELETE", &format!("/v1/runs/{run}")).send().status, 200);
    }
    std::fs::remove_file(disk.join("rest")).expect("removed");
    let is_taken = || server.post("/v1/runs", &json!({})).status == 200;
    wait_until("what was deleted makes room", is_taken);
    std::fs::remove_file(disk.join("ballast")).expect("removed");
    let is_ready = || server.get("/v1/ready").status == 200;
    wait_until("the server is ready", is_ready);
    ingested(&server, clips[0]);

    // Nor is work taken that goes where no restart would find it.
    let run = server.create_run();
    for part in ["ledger", "log", "log/journal", "open-columns"] {
        let (there, away) = (disk.join(part), disk.join("away"));
        std::fs::rename(&there, &away).expect("moved");
        if part == "open-columns" {
            // The last look at the disk did not find it.
            let early = ingest(&server, &run, clips[0]).assert_refused(503, "unavailable");
            assert!(!early.header("retry-after").is_empty());
        }
        wait_until("it is missed", || !is_ready());
        let refused = server.post("/v1/runs", &json!({})).assert_refused(503, "unavailable");
        assert!(refused.text.contains("moved or replaced"), "{part}: {}", refused.text);
        std::fs::rename(&away, &there).expect("back");
        wait_until("the server is ready", is_ready);
    }
    ingest(&server, &run, clips[0]).assert_ok();
}
