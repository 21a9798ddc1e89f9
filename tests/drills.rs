//! The runbooks as drills: a real server's folder is copied back, copied while it runs, damaged, robbed of a still, brought from
//! an older format and from a newer one, and what the runbook says is done by the command line and seen to help.

mod folders;

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    sync::{
        Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use serde_json::json;
use tempfile::TempDir;

use crate::{
    crash::{Acknowledged, verify},
    support::{Server, Setup, copy, wait_until, whip::sightline},
};

/// A folder with the data of a server that has recorded a clip, the server ended.
struct Site {
    dir: TempDir,
    run: String,
}

impl Site {
    fn new() -> Site {
        let dir = tempfile::tempdir().expect("a directory");
        let server = Setup::new(dir.path()).clips().start();
        let run = server.ingested(&json!({ "source_uri": "motion.mp4", "max_frames": 60 }));
        Site { dir, run }
    }

    fn data(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    fn start(&self) -> Server {
        Setup::new(self.dir.path()).clips().start()
    }
}

/// The message with which a server refuses to start over `dir`.
fn refusal(dir: &Path) -> String {
    let mut command = Setup::new(dir).command();
    let output = command.stdin(Stdio::null()).output().expect("it starts");
    assert!(!output.status.success(), "it started");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn log(sightline: &Path, action: &str, data: &Path) -> Output {
    Command::new(sightline).args(["log", action]).arg(data).output().expect("it runs")
}

fn said(output: &Output) -> String {
    [&output.stdout, &output.stderr]
        .map(|bytes| String::from_utf8_lossy(bytes).into_owned())
        .concat()
}

fn stills(server: &Server, run: &str) -> Vec<(u16, String)> {
    let paths = server.still_paths(run).into_iter();
    paths.map(|path| (server.get(&path).status, path)).collect()
}

/// Files beneath `dir` with a name that `is` one of them.
fn files(dir: &Path, is: impl Fn(&str) -> bool) -> Vec<PathBuf> {
    let mut found = crate::support::files(dir);
    found.retain(|path| path.file_name().and_then(|name| name.to_str()).is_some_and(&is));
    found
}

#[test]
fn a_folder_put_back_has_every_event_and_still() {
    let site = Site::new();
    let backup = site.dir.path().join("backup");
    copy(&site.data(), &backup);
    let (events, pictures) = {
        let server = site.start();
        (server.events(&site.run), stills(&server, &site.run))
    };
    fs::remove_dir_all(site.data()).expect("lost");
    copy(&backup, &site.data());
    // One bit of the file that says who has the runs of keys without a name.
    let (secret, right) =
        (site.data().join("secret"), fs::read(backup.join("secret")).expect("there"));
    let mut flipped = right.clone();
    flipped[31] ^= 4;
    fs::write(&secret, flipped).expect("written");
    let message = refusal(site.dir.path());
    assert!(message.contains("`secret` is damaged or of another installation"), "{message}");
    fs::write(&secret, right).expect("put back");
    // A volume with log and stills that is not mounted.
    for lost in ["log", "blobs"] {
        fs::remove_dir_all(site.data().join(lost)).expect("lost");
        fs::create_dir(site.data().join(lost)).expect("made");
    }
    let message = refusal(site.dir.path());
    assert!(message.contains("/log has no log, and"), "{message}");
    for lost in ["log", "blobs"] {
        fs::remove_dir(site.data().join(lost)).expect("empty");
        copy(&backup.join(lost), &site.data().join(lost));
    }
    let server = site.start();
    assert_eq!(server.events(&site.run), events);
    assert_eq!(stills(&server, &site.run), pictures);
    assert!(!pictures.is_empty() && pictures.iter().all(|(status, _)| *status == 200));
}

/// Answers that a server has acknowledged, and stills that it named.
#[derive(Clone, Default)]
struct Told {
    requests: Acknowledged,
    stills: Vec<String>,
}

/// Keeps runs alive and records clips until it is over.
fn load(server: &Server, told: &Mutex<Told>, is_over: &AtomicBool, records: bool) {
    while !is_over.load(Ordering::Relaxed) {
        if records {
            let run = server.ingested(&json!({ "source_uri": "motion.mp4", "max_frames": 20 }));
            let stills = server.still_paths(&run);
            told.lock().expect("no panic").stills.extend(stills);
            continue;
        }
        let run = server.create_run();
        for at in 0..50 {
            // With a key, which the ledger keeps beside the log.
            let call = server.call("POST", &format!("/v1/runs/{run}/keepalive"));
            let reply = call.header("idempotency-key", &format!("{run}-{at}")).send().assert_ok();
            let request = reply.header("x-request-id").to_owned();
            let mut told = told.lock().expect("no panic");
            told.requests.entry(run.clone()).or_default().push(request);
        }
    }
}

#[test]
fn a_copy_made_while_the_server_runs_has_all_that_was_acknowledged() {
    let Some(sightline) = sightline() else { return };
    let site = Site::new();
    let server = site.start();
    let (told, is_over) = (Mutex::new(Told::default()), AtomicBool::new(false));
    let copies: Vec<(PathBuf, Told)> = std::thread::scope(|scope| {
        for records in [false, false, true] {
            let (server, told, is_over) = (&server, &told, &is_over);
            scope.spawn(move || load(server, told, is_over, records));
        }
        wait_until("the load is one", || {
            let told = told.lock().expect("no panic");
            told.requests.values().map(Vec::len).sum::<usize>() > 50 && !told.stills.is_empty()
        });
        let copy = |at: usize| {
            std::thread::sleep(Duration::from_millis(40));
            let (to, before) = (
                site.dir.path().join(format!("copy-{at}/data")),
                told.lock().expect("no panic").clone(),
            );
            fs::create_dir(to.parent().expect("a folder")).expect("made");
            let made = Command::new(&sightline).arg("backup").arg(site.data()).arg(&to).output();
            let made = made.expect("it runs");
            assert!(made.status.success(), "{}", said(&made));
            (to, before)
        };
        let copies = (0..clips::sized(4, 50)).map(copy).collect();
        is_over.store(true, Ordering::Relaxed);
        copies
    });
    for (copy, before) in &copies {
        let verified = log(&sightline, "verify", copy);
        assert!(verified.status.success(), "{}", said(&verified));
        let restored = Setup::new(copy.parent().expect("a folder")).clips().start();
        for (run, ids) in &before.requests {
            verify(&restored, run, ids, &mut Default::default());
        }
        for still in &before.stills {
            assert_eq!(restored.get(still).status, 200, "{still}");
        }
        assert_eq!(restored.get(&format!("/v1/runs/{}", restored.create_run())).status, 200);
    }
    let last = &copies.last().expect("copies").0;
    let again = Command::new(&sightline).arg("backup").arg(site.data()).arg(last).output();
    assert!(!again.expect("it runs").status.success(), "nothing is copied over");
}

#[test]
fn a_lost_still_costs_no_other_and_a_damaged_segment_is_cut_and_kept_beside_the_log() {
    let Some(sightline) = sightline() else { return };
    let site = Site::new();
    let is_told = |what: &str| {
        let verified = log(&sightline, "verify", &site.data());
        let is_told = !verified.status.success() && said(&verified).contains(what);
        assert!(is_told, "{what}: {}", said(&verified));
    };
    let blobs = files(&site.data().join("blobs"), |name| name.len() == 64);
    assert!(blobs.len() > 1, "{blobs:?}");
    let still = fs::read(&blobs[0]).expect("readable");
    fs::remove_file(&blobs[0]).expect("removed");
    let hash = blobs[0].file_name().and_then(|name| name.to_str()).expect("a hash");
    is_told(hash);
    let server = site.start();
    for (status, path) in stills(&server, &site.run) {
        let expected = if path.ends_with(hash) { 404..=500 } else { 200..=200 };
        assert!(expected.contains(&status), "{path}: {status}");
    }
    fs::write(&blobs[0], still).expect("put back");
    assert!(stills(&server, &site.run).iter().all(|(status, _)| *status == 200));
    let before = server.events(&site.run).len();
    drop(server);

    let [segment] = &files(&site.data().join("log/journal"), |name| name.ends_with(".journal"))[..]
    else {
        panic!("one segment: {:?}", files(&site.data(), |_| true));
    };
    let mut bytes = fs::read(segment).expect("readable");
    // What follows the events are zeros.
    let at = bytes.iter().rposition(|byte| *byte != 0).expect("events") / 2;
    bytes[at] ^= 1;
    fs::write(segment, bytes).expect("written");
    is_told(segment.file_name().and_then(|name| name.to_str()).expect("a name"));
    for action in ["repair", "verify"] {
        let done = log(&sightline, action, &site.data());
        assert!(done.status.success(), "{action}: {}", said(&done));
    }
    let server = site.start();
    let after = server.events(&site.run).len();
    assert!(after < before, "{after} of {before}");
    assert_eq!(server.get(&format!("/v1/runs/{}", server.create_run())).status, 200);
    let kept = files(&site.data(), |name| name.contains(".journal.removed-"));
    assert!(!kept.is_empty(), "{:?}", files(&site.data(), |_| true));
}
