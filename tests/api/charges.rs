//! Work of one principal beside that of others: bytes on disk, charged until they are gone, and slow sources and floods, which hold
//! nobody up.

use std::{
    io,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::sleep,
    time::Duration,
};

use serde_json::{Value, json};

use super::{
    remote,
    retention::{ingest, used},
    uploads::{TYPE, file_form},
};
use crate::support::{
    ALICE, BOB, Server, Setup, can_mount, eventually, files,
    host::{Answer, Certificate, Host},
    wait_until,
};

const QUOTA: &str = "SERVICE_PRINCIPAL_QUOTA_BYTES";

/// Clips of which no two share a still.
const CLIPS: [&str; 4] = ["motion.mp4", "street.mp4", "talk.mp4", "water.webm"];

fn delete(server: &Server, run: &str) {
    server.call("DELETE", &format!("/v1/runs/{run}")).send().assert_ok();
}

/// Bytes of stills on disk.
fn on_disk(data: &Path) -> u64 {
    let size = |path: std::path::PathBuf| path.metadata().map_or(0, |file| file.len());
    files(&data.join("blobs")).into_iter().map(size).sum()
}

/// A run with the frames of `clip`, once that is not refused for the quota.
fn let_in(server: &Server, clip: &str) -> String {
    eventually("what was deleted is not charged for", || {
        let mut refused = server.post("/v1/runs", &json!({}));
        if refused.status == 200 {
            let run = refused.run();
            refused = ingest(server, &run, clip);
            if refused.status == 200 {
                return Some(run);
            }
            delete(server, &run);
        }
        refused = refused.assert_status(409);
        assert!(refused.text.contains("delete runs or uploads"), "{refused}");
        sleep(Duration::from_millis(500));
        None
    })
}

#[test]
fn deleted_runs_are_charged_until_they_are_gone_which_is_soon() {
    let server = Setup::temporary().clips().var(QUOTA, "0").start();
    let (mut most, mut all) = (0, 0);
    for clip in CLIPS {
        let (run, before) = (server.create_run(), used(&server));
        ingest(&server, &run, clip).assert_ok();
        let bytes = used(&server) - before;
        (most, all) = (most.max(bytes), all + bytes);
    }
    drop(server);
    let quota = most + most / 2;
    assert!(all > quota, "{all} bytes do not pass {quota}");
    let setup = Setup::temporary().clips().var(QUOTA, &quota.to_string());
    let (server, data) = (setup.start(), setup.dir().join("data"));
    for clip in CLIPS.iter().cycle().take(8) {
        let run = let_in(&server, clip);
        let stored = on_disk(&data);
        assert!(stored <= quota, "{stored} bytes are on disk past a quota of {quota}");
        delete(&server, &run);
        assert!(used(&server) > 0, "nothing is gone at once");
    }
    wait_until("no still is left", || on_disk(&data) == 0);
    wait_until("nor much else", || used(&server) <= quota / 8);
}

#[test]
fn a_keepalive_is_an_event_like_any_other() {
    let dir = tempfile::tempdir().expect("a directory");
    let server = Setup::new(dir.path()).start();
    let run = server.create_run();
    let before = used(&server);
    drop(server);
    let path = format!("/v1/runs/{run}/keepalive");
    let rows = [
        ("SERVICE_QUOTA_BYTES", before + 1000, 503, "unavailable"),
        ("SERVICE_DISK_RESERVE_MIB", 1 << 24, 503, "unavailable"),
        (QUOTA, before + 2000, 409, "conflict"),
    ];
    for (name, value, status, code) in rows {
        let server = Setup::new(dir.path()).var(name, &value.to_string()).start();
        let mut replies = (0..100).map(|_| server.post(&path, &json!({})));
        let refused = replies.find(|reply| reply.status != 200).expect("there is an end to it");
        assert_eq!((refused.status, &*refused.code()), (status, code), "{name}: {refused}");
        assert!(used(&server) < before + 3000, "{name}: {}", used(&server));
        if name == QUOTA {
            // What ends a run is never refused.
            server.post_run(&run, "stop", &json!({})).assert_ok();
        }
    }
}

#[test]
fn answers_that_are_kept_for_their_keys_are_charged() {
    let setup = Setup::temporary();
    let server = setup.start();
    server.create_run();
    let run = used(&server);
    server.create_run();
    let run = used(&server) - run;
    let before = used(&server);
    let first = server.create_keyed("a").assert_ok();
    let after = used(&server);
    let kept = after - before - run;
    assert!(kept >= first.text.len() as u64, "{kept} bytes for {}", first.text);
    drop(server);

    let setup = setup.var(QUOTA, &after.to_string());
    let server = setup.start();
    let restarted = used(&server);
    // The framing behind a run's last event is counted with its next one.
    assert!(restarted.abs_diff(after) <= 64, "counted again at start: {restarted}, {after}");
    assert_eq!(server.create_keyed("a").assert_ok().text, first.text, "told past a quota");
    let infer = json!({ "model": "qwen3-vl-4b", "prompt": "p" });
    let call = server.call("POST", "/v1/infer").header("idempotency-key", "b").json(&infer);
    call.send().assert_refused(409, "conflict");
    assert_eq!(used(&server), restarted, "and leaves its key free");
}

#[test]
fn a_principal_among_others_has_a_share_of_the_disk() {
    if !can_mount() {
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    let setup = Setup::new(dir.path()).var("SERVICE_DISK_RESERVE_MIB", "16").on_disk(96);
    let server = setup.start();
    let bytes = minute();
    let upload = |key: &str| {
        let call = server.call("POST", "/v1/upload").header("content-type", TYPE);
        call.key(Some(key)).body(file_form("a.mkv", &bytes)).send()
    };
    let refused = (0..96).map(|_| upload(ALICE)).find(|reply| reply.status != 200);
    refused.expect("there is an end to it").assert_refused(409, "conflict");
    let stored = server.get("/v1/limits").json()["limits"]["principal_stored"].clone();
    let number = |name: &str| stored[name].as_u64().expect("a number");
    assert!(number("used") <= number("max") && number("max") < 48 << 20, "{stored}");
    // What is left is for others.
    upload(BOB).assert_ok();
    drop(server);

    let server = Setup::temporary().var("SERVICE_API_KEYS", &format!("alice:{ALICE}")).start();
    let alone = server.get("/v1/limits").json()["limits"]["principal_stored"]["max"].take();
    assert_eq!(alone, Value::Null, "whoever is alone has all");
}

/// A minute of H.264 in Matroska.
fn minute() -> Vec<u8> {
    let recipe = "-f lavfi -i testsrc2=size=320x180:rate=30:duration=60 -pix_fmt yuv420p \
        -c:v libx264 -preset ultrafast -g 30";
    std::fs::read(clips::rendered("minute.mkv", recipe)).expect("readable")
}

#[test]
fn slow_sources_of_one_principal_hold_up_no_other() {
    let certificate = Certificate::new();
    // Of minutes at the pace at which it is sent, whatever the machine has to do.
    let bytes = minute();
    let is_over = Arc::new(AtomicBool::new(false));
    let over = Arc::clone(&is_over);
    let host = Host::start(&certificate, move |_, out| {
        out.head("200 OK", &[&format!("content-length: {}", bytes.len())])?;
        let (first, rest) = bytes.split_at(200 << 10);
        out.write_all(first)?;
        for part in rest.chunks(1000) {
            out.flush()?;
            sleep(Duration::from_millis(100));
            if over.load(Ordering::Relaxed) {
                break;
            }
            out.write_all(part)?;
        }
        Err(io::ErrorKind::ConnectionReset.into())
    });
    let server = remote::setup(&certificate).clips().start();
    let limits = server.get("/v1/limits").json()["limits"].clone();
    let most = |name: &str| limits[name]["max"].as_u64().expect("a number");
    let slow = most("principal_remote_jobs");
    assert!(slow >= most("file_jobs") && slow < most("remote_jobs"), "{limits}");
    let runs: Vec<String> = (0..slow).map(|_| server.create_run()).collect();
    for run in &runs {
        let source = json!({ "source_uri": host.url("/slow.mkv"), "max_frames": 1800 });
        server.start_job(run, "ingest", &source);
    }
    let active_job = |run: &String| server.record(run)["active_job"].clone();
    let is_decoding = |run: &String| active_job(run)["frames_done"].as_u64() > Some(0);
    wait_until("slow sources are decoded beside each other", || runs.iter().all(is_decoding));

    let bobs = |path: &str, body: &Value| {
        server.call("POST", path).key(Some(BOB)).json(body).send().assert_ok()
    };
    let path = format!("/v1/runs/{}/ingest", bobs("/v1/runs", &json!({})).run());
    let local = json!({ "source_uri": "motion.mp4", "max_frames": 30 });
    assert_eq!(bobs(&path, &local).json()["decoded_frames"], 30);
    for run in &runs {
        assert_eq!(active_job(run)["status"], "running", "bob waited for none of them");
    }
    is_over.store(true, Ordering::Relaxed);
}

#[test]
fn what_was_taken_of_one_principal_is_not_given_up_for_another() {
    let server = Setup::temporary().clips().start();
    let limits = server.get("/v1/limits").json()["limits"].clone();
    let most = |name: &str| limits[name]["max"].as_u64().expect("a number") as usize;
    let places = most("file_jobs") + most("file_jobs_waiting");
    let ask = |key: &str| {
        let post = |path: &str, body: &Value| {
            let call = server.call("POST", path).key(Some(key));
            call.header("prefer", "respond-async").json(body).send()
        };
        let run = post("/v1/runs", &json!({})).run();
        let source = json!({ "source_uri": "long.mp4", "max_frames": 500_000 });
        post(&format!("/v1/runs/{run}/ingest"), &source)
    };
    let alices: Vec<_> = (0..places + 3).map(|_| ask(ALICE)).collect();
    let (taken, refused) = alices.split_at(places);
    assert!(taken.iter().all(|reply| reply.status == 202), "{places} jobs");
    for reply in refused {
        assert_eq!((reply.status, reply.header("retry-after")), (503, "1"), "{}", reply.text);
    }
    for number in 0..3 {
        assert_eq!(ask(BOB).status, 202, "bob's job {number} beside a full queue");
    }
    for reply in taken {
        let job = server.get(reply.header("location")).json();
        let status = job["status"].as_str().expect("a status");
        assert!(["queued", "running"].contains(&status), "{job}");
    }
}
