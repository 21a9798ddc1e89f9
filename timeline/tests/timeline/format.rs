//! The logs in `fixtures/journal_v1`, `journal_v2` (compacted) and `journal_v3` (with activity in its column)
//! stay readable forever.
//!
//! `UPDATE_GOLDEN=1` rewrites the last one, allowed only for a format that was never released.

use std::{
    fs,
    path::{Path, PathBuf},
};

use media::{Seq, WallTime};
use tempfile::TempDir;
use timeline::{BlobStore, Timeline, TimelineOptions, verify};

use crate::{
    compact::purge,
    support::{events, found, frames, small, stored},
};

/// Version of the fixture in the format that is written.
const WRITTEN: u32 = 3;

fn fixture(version: u32) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../fixtures/journal_v{version}"))
}

fn write_fixture(dir: &Path) {
    let clock = std::sync::Arc::new(|| WallTime { epoch_ms: 1_767_225_600_000 });
    let options = TimelineOptions { file_bytes: 2048, grow_bytes: 512, clock, ..small() };
    let (log, _) = Timeline::open(dir, options).unwrap();
    for number in 0..12u8 {
        let text = format!("event {number}: caf\u{e9} \"quoted\"");
        log.append_wait(vec![found(number % 3, &text), found(9, "beside")]).unwrap();
    }
    let (column, _lease) = stored(&log, 0..400);
    log.append_wait(vec![frames(1, column)]).unwrap();
    let blobs = BlobStore::open(&dir.join("blobs"), None).unwrap();
    blobs.lease().put(b"not really a JPEG").unwrap();
    assert_eq!(purge(&log, &[9]).unwrap().events_removed, 12);
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

fn listing(log: &Timeline) -> String {
    events(log)
        .iter()
        .map(|event| {
            let head = event.head;
            let (at, kind) = (head.at.epoch_ms, head.kind.as_str());
            format!("{} {at} {} {kind} {}\n", head.seq, head.run, event.payload)
        })
        .collect()
}

#[test]
fn every_format_opens_and_reads_the_same_forever() {
    #[expect(clippy::disallowed_methods, reason = "a switch of the test, not of the log")]
    let update = std::env::var_os("UPDATE_GOLDEN").is_some();
    for (version, events) in [(1, 25), (2, 13), (WRITTEN, 13)] {
        let fixture = fixture(version);
        let golden = fixture.join("events.txt");
        if update && version == WRITTEN {
            if fixture.exists() {
                fs::remove_dir_all(&fixture).unwrap();
            }
            write_fixture(&fixture);
            let (log, _) = Timeline::open_read_only(&fixture).unwrap();
            fs::write(&golden, listing(&log)).unwrap();
            fs::remove_file(fixture.join("lock")).unwrap();
        }
        let expected = fs::read_to_string(&golden).unwrap();
        let dir = TempDir::new().unwrap();
        copy(&fixture, dir.path());
        let report = verify(dir.path()).unwrap();
        assert!(report.problems.is_empty(), "version {version}: {:?}", report.problems);
        let counts = (report.events, report.columns, report.footers_missing);
        assert_eq!(counts, (events, 1, 0), "version {version}");
        let (log, recovery) = Timeline::open(dir.path(), TimelineOptions::default()).unwrap();
        assert_eq!((recovery.events, recovery.torn.as_ref()), (events, None), "version {version}");
        assert_eq!(listing(&log), expected, "version {version}");
        let appended = log.append_wait(vec![found(1, "goes on")]).unwrap();
        assert_eq!(appended[0].seq, Seq(26), "version {version}");
        let blobs = BlobStore::open(&dir.path().join("blobs"), None).unwrap();
        let still = "16156482030896da15ad58db297695c49d2a1123c9e37d837deea292bf4313b8";
        let stored = blobs.get(&still.parse().unwrap(), 17).unwrap();
        assert_eq!(stored.unwrap(), b"not really a JPEG", "version {version}");
    }
}

#[test]
fn what_is_written_and_compacted_today_is_what_the_fixture_holds() {
    let dir = TempDir::new().unwrap();
    write_fixture(dir.path());
    for part in ["journal", "columns"] {
        let written = dir.path().join(part);
        let kept = fs::read_dir(fixture(WRITTEN).join(part)).unwrap();
        let kept: Vec<_> = kept.map(|entry| entry.unwrap()).collect();
        assert_eq!(fs::read_dir(&written).unwrap().count(), kept.len());
        for expected in kept {
            let name = expected.file_name();
            let found = fs::read(written.join(&name)).unwrap();
            assert!(fs::read(expected.path()).unwrap() == found, "{name:?} differs");
        }
    }
}
