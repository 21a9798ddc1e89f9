//! Charges of a quota: bytes on disk, until they are gone, of any origin and by any route.

use std::{path::Path, time::Duration};

use serde_json::{Value, json};

use super::{
    fair::minute,
    retention::{ingest, used},
    uploads::{TYPE, file_form},
};
use crate::support::{ALICE, BOB, Server, Setup, can_mount, eventually, files, wait_until};

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
        assert!(refused.assert_status(409).text.contains("delete runs or uploads"));
        std::thread::sleep(Duration::from_millis(500));
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
        refused.assert_refused(status, code);
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
