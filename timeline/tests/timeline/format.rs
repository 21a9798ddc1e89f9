//! The log in `fixtures/journal_v1` opens forever.
//!
//! `UPDATE_GOLDEN=1` writes it anew, which only a new format version may ever need.

use std::{
    fs,
    path::{Path, PathBuf},
};

use media::{Seq, WallTime};
use tempfile::TempDir;
use timeline::{BlobStore, Options, Timeline, verify};

use crate::support::{all, found, frames, signal};

fn fixture() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/journal_v1")
}

fn write_fixture(dir: &Path) {
    let clock = std::sync::Arc::new(|| WallTime { epoch_ms: 1_767_225_600_000 });
    let options = Options { file_bytes: 2048, grow_bytes: 512, clock, ..Options::default() };
    let (log, _) = Timeline::open(dir, options).unwrap();
    for number in 0..12u8 {
        let text = format!("event {number}: caf\u{e9} \"quoted\"");
        log.append_wait(vec![found(number % 3, &text), found(9, "beside")]).unwrap();
    }
    let mut column = log.column_writer();
    (0..400).for_each(|index| column.push(&signal(index)).unwrap());
    let column = column.finish().unwrap();
    log.append_wait(vec![frames(1, column)]).unwrap();
    let blobs = BlobStore::open(&dir.join("blobs")).unwrap();
    blobs.put(b"not really a JPEG").unwrap();
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
    all(log)
        .iter()
        .map(|event| {
            let head = event.head;
            let (at, kind) = (head.at.epoch_ms, head.kind.as_str());
            format!("{} {at} {} {kind} {}\n", head.seq, head.run, event.payload)
        })
        .collect()
}

#[test]
fn the_first_format_opens_and_reads_the_same_forever() {
    let fixture = fixture();
    let golden = fixture.join("events.txt");
    #[expect(clippy::disallowed_methods, reason = "a switch of the test, not of the log")]
    let update = std::env::var_os("UPDATE_GOLDEN").is_some();
    if update {
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
    assert!(report.problems.is_empty(), "{:?}", report.problems);
    assert_eq!((report.events, report.columns, report.footers_missing), (25, 1, 0));
    let (log, recovery) = Timeline::open(dir.path(), Options::default()).unwrap();
    assert_eq!((recovery.events, recovery.torn.as_ref()), (25, None));
    assert_eq!(listing(&log), expected);
    let appended = log.append_wait(vec![found(1, "goes on")]).unwrap();
    assert_eq!(appended[0].seq, Seq(26));
    let blobs = BlobStore::open(&dir.path().join("blobs")).unwrap();
    let stored = blobs.orphans(|_| false).unwrap();
    assert_eq!(blobs.get(&stored[0]).unwrap().unwrap(), b"not really a JPEG");
}

#[test]
fn what_is_written_today_is_the_first_format() {
    let dir = TempDir::new().unwrap();
    write_fixture(dir.path());
    for entry in fs::read_dir(fixture().join("journal")).unwrap() {
        let expected = entry.unwrap();
        let name = expected.file_name();
        let written = fs::read(dir.path().join("journal").join(&name)).unwrap();
        assert!(fs::read(expected.path()).unwrap() == written, "{name:?} differs");
    }
}
