//! `sightline log` on logs as a server may leave them.

use std::path::Path;

use media::{BlobHash, EventType, JobId, RequestId, RunId, Seq, WallTime};
use serde_json::Value;
use tempfile::TempDir;
use timeline::{
    BlobStore, Event, KeyframeStored, NewEvent, OpenColumns, RequestMarkerPayload, RunCreated,
    RunDeleted, Timeline,
};

use crate::support::{doctor, finish, sightline};

const RUN: RunId = RunId::from_bytes([7; 16]);

/// Opens the log in a data directory.
fn open(dir: &Path) -> Timeline {
    let options = timeline::TimelineOptions::default();
    Timeline::open(&dir.join("log"), options).expect("opens").0
}

/// Makes a data directory with one run of `count` events.
fn log_of(count: u64) -> TempDir {
    let dir = TempDir::new().expect("a folder");
    let timeline = open(dir.path());
    let request_id = RequestId::from_bytes([1; 8]);
    let created = Event::RunCreated(RunCreated {
        request_id,
        mode: "balanced".to_owned(),
        model: None,
        principal_key: "me".to_owned(),
        tenant_id: None,
    });
    timeline.append_wait(vec![NewEvent { run: RUN, event: created }]).expect("appended");
    for _ in 1..count {
        let event = Event::KeepaliveRefreshed(RequestMarkerPayload { request_id });
        timeline.append_wait(vec![NewEvent { run: RUN, event }]).expect("appended");
    }
    assert_eq!(timeline.head(), Seq(count));
    timeline.close();
    dir
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a UTF-8 path")
}

#[test]
fn a_sound_log_is_verified_and_printed() {
    let dir = log_of(20);
    for place in [dir.path().to_owned(), dir.path().join("log")] {
        let outcome = sightline(&["log", "verify", text(&place), "--json"]);
        assert_eq!(outcome.code, 0, "{}", outcome.stderr);
        let report = outcome.json();
        assert_eq!((&report["sound"], &report["events"]), (&true.into(), &20.into()));
    }
    let outcome = sightline(&["log", "cat", text(dir.path())]);
    let lines: Vec<Value> = outcome
        .stdout
        .lines()
        .map(|line| serde_json::from_str(line).expect("a JSON object a line"))
        .collect();
    assert_eq!((outcome.code, lines.len()), (0, 20));
    assert_eq!(lines[0]["kind"], "run_created");
    assert_eq!(lines[0]["payload"]["principal_key"], "me");
    assert_eq!(lines[19]["seq"], 20);

    let kept = sightline(&["log", "cat", text(dir.path()), "--kind", "run_created"]).stdout;
    assert_eq!(kept.lines().count(), 1);
    let kept = sightline(&["log", "cat", text(dir.path()), "--from-seq", "19"]).stdout;
    assert_eq!(kept.lines().count(), 2);
}

#[test]
fn damage_is_seven_and_repair_keeps_what_it_cuts() {
    let dir = log_of(20);
    let journal = dir.path().join("log/journal");
    let mut files: Vec<_> = std::fs::read_dir(&journal)
        .expect("a journal")
        .map(|entry| entry.expect("readable").path())
        .collect();
    files.sort();
    let file = files.first().expect("a file");
    let mut bytes = std::fs::read(file).expect("readable");
    let used = bytes.iter().rposition(|byte| *byte != 0).expect("not empty");
    bytes[used / 2] ^= 0x10;
    std::fs::write(file, bytes).expect("written");

    let verify = sightline(&["log", "verify", text(dir.path())]);
    verify.says(7, "damaged");
    assert!(!verify.stdout.contains("sound"), "{}", verify.stdout);
    let cat = sightline(&["log", "cat", text(dir.path())]);
    assert_eq!(cat.code, 7, "{}", cat.stderr);
    let seq = |line| serde_json::from_str::<Value>(line).expect("JSON")["seq"].as_u64();
    let printed: Vec<_> = cat.stdout.lines().map(seq).collect();
    let intact = (1..).zip(&printed).take_while(|(number, seq)| **seq == Some(*number)).count();
    assert!((1..20).contains(&intact), "{intact} events before the damage");
    assert!((intact + 1..20).contains(&printed.len()), "{printed:?} go on behind it");
    let mut doctor = doctor(&["--json"]);
    doctor.env("SERVICE_DATA_DIR", dir.path());
    let found = finish(doctor).stdout;
    assert!(found.contains("a server started here cannot open its log: damaged log"), "{found}");

    let planned = format!("a cut takes event {} and all after it", intact + 1);
    let plan = sightline(&["log", "repair", text(dir.path()), "--dry-run"]);
    assert!(plan.code == 0 && plan.stdout.contains(&planned), "{}{}", plan.stdout, plan.stderr);
    assert_eq!(sightline(&["log", "verify", text(dir.path())]).code, 7, "nothing is cut yet");
    let repair = sightline(&["log", "repair", text(dir.path()), "--json"]);
    repair.says(0, &planned);
    let report = repair.json();
    assert_eq!(report["events"], intact);
    let kept = report["removed"][0]["kept_in"].as_str().expect("a path");
    assert!(Path::new(kept).is_file(), "{kept}");
    assert_eq!(sightline(&["log", "verify", text(dir.path())]).code, 0);
}

#[test]
fn where_there_is_no_log_it_says_so() {
    let dir = TempDir::new().expect("a folder");
    for command in ["verify", "cat", "repair"] {
        sightline(&["log", command, text(dir.path())]).says(3, "no log of a server");
    }
    assert_eq!(std::fs::read_dir(dir.path()).expect("readable").count(), 0, "nothing was made");
}

/// Makes a log with one event that names a still of these bytes.
fn log_with_still(dir: &Path, bytes: &[u8]) -> BlobHash {
    let hash = BlobStore::open(&dir.join("blobs"), None).and_then(|blobs| blobs.lease().put(bytes));
    let hash = hash.expect("stored");
    let timeline = open(dir);
    let event = Event::KeyframeStored(KeyframeStored {
        frame_index: 0,
        pts_ms: 0,
        event_type: EventType::KeyframeKeep,
        reason: None,
        description: String::new(),
        image_ref: String::new(),
        image_bytes: bytes.len() as u64,
        image_sha256: hash,
        truncated: false,
    });
    timeline.append_wait(vec![NewEvent { run: RUN, event }]).expect("appended");
    timeline.close();
    hash
}

#[test]
fn a_damaged_recording_or_still_is_damage_and_a_missing_one() {
    let dir = TempDir::new().expect("a folder");
    let hash = log_with_still(dir.path(), b"a still");
    let path = BlobStore::at(&dir.path().join("blobs")).path(&hash);
    let verify = || sightline(&["log", "verify", text(dir.path())]);
    let sound = verify();
    assert_eq!(sound.code, 0, "{}", sound.stderr);
    assert!(sound.stdout.contains(", 1 still\n"), "{}", sound.stdout);

    let columns = OpenColumns::open(&dir.path().join("open-columns")).expect("opened");
    let told = Event::RunDeleted(RunDeleted { request_id: None, reclaim: None });
    drop(columns.begin(RUN, JobId::from_bytes([3; 16]), [told]).expect("begun"));
    let recording = std::fs::read_dir(dir.path().join("open-columns")).expect("there").next();
    let recording = recording.expect("one").expect("readable").path();
    let bytes = std::fs::read(&recording).expect("readable");
    let with_one = verify();
    assert_eq!(with_one.code, 0, "{}", with_one.stderr);
    assert!(with_one.stdout.contains("1 recording in progress"), "{}", with_one.stdout);
    std::fs::write(&recording, [&bytes[..], &[7; 70_000]].concat()).expect("written");
    assert_eq!(verify().code, 7, "a recording's end is damaged");
    std::fs::write(&recording, bytes).expect("written");

    std::fs::write(&path, b"a stilk").expect("written");
    assert_eq!(verify().code, 7, "one changed byte");
    std::fs::remove_file(&path).expect("removed");
    let missing = verify();
    assert_eq!(missing.code, 7);
    let at = format!("missing at offset 0 of {}", text(&path));
    assert!(missing.stdout.contains(&at), "{}", missing.stdout);
}

#[test]
fn a_still_that_retention_removed_is_no_damage() {
    let dir = TempDir::new().expect("a folder");
    let hash = log_with_still(dir.path(), b"a still");
    let blobs = BlobStore::at(&dir.path().join("blobs"));
    std::fs::remove_file(blobs.path(&hash)).expect("removed");
    let verify = || sightline(&["log", "verify", text(dir.path())]).code;
    assert_eq!(verify(), 7);
    blobs.remember_removed_before(WallTime { epoch_ms: 1 }).expect("written");
    assert_eq!(verify(), 7, "its event is younger");
    blobs.remember_removed_before(WallTime { epoch_ms: i64::MAX }).expect("written");
    assert_eq!(verify(), 0, "it is past the age");

    let dir = TempDir::new().expect("a folder");
    let hash = log_with_still(dir.path(), b"a still");
    let blobs = BlobStore::at(&dir.path().join("blobs"));
    std::fs::remove_file(blobs.path(&hash)).expect("removed");
    let timeline = open(dir.path());
    let event = Event::RunDeleted(RunDeleted { request_id: None, reclaim: None });
    timeline.append_wait(vec![NewEvent { run: RUN, event }]).expect("appended");
    timeline.close();
    assert_eq!(sightline(&["log", "verify", text(dir.path())]).code, 0, "its run is deleted");
}
