//! Copies of a log whose files are begun, sealed, merged and removed meanwhile.

use std::{
    ops::ControlFlow,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread::Builder,
};

use media::{RequestId, RunId, Seq};
use timeline::{Event, NewEvent, RequestMarkerPayload, TimelineOptions};

use super::*;

/// Makes a batch of two events: one of a run that is kept, and one of a run that is purged later.
fn batch(number: u64) -> Vec<NewEvent> {
    let event = || {
        Event::KeepaliveRefreshed(RequestMarkerPayload {
            request_id: RequestId::from_bytes([7; 8]),
        })
    };
    let purged = u8::try_from(number / 20 % 250).expect("small");
    let runs = [RunId::from_bytes([255; 16]), RunId::from_bytes([purged; 16])];
    runs.map(|run| NewEvent { run, event: event() }).into()
}

/// Returns the number of kept events up to `head` that the copy in `to` lacks; `None` if it does not open.
fn lacks(to: &Path, head: u64) -> Option<u64> {
    let (copy, _) = Timeline::open_read_only(&to.join("log")).ok()?;
    let kept = |seq: &u64| seq % 2 == 1;
    let is_there = |seq: &u64| copy.get(Seq(*seq)).is_ok_and(|event| event.is_some());
    Some((1..=head).filter(kept).filter(|seq| !is_there(seq)).count() as u64)
}

/// Copies the journal plainly, in the order in which the system lists it.
fn plain(from: &Path, to: &Path) {
    fs::create_dir_all(to.join("log/journal")).expect("made");
    for entry in fs::read_dir(from.join("log/journal")).expect("there") {
        let entry = entry.expect("there");
        // The file may have been removed meanwhile.
        fs::copy(entry.path(), to.join("log/journal").join(entry.file_name())).ok();
    }
}

#[test]
fn a_log_is_copied_whole_while_its_files_come_and_go() {
    let dir = tempfile::tempdir().expect("a directory");
    let data = dir.path().join("data");
    fs::create_dir_all(data.join("log")).expect("made");
    fs::write(data.join("ledger"), [7; 4096]).expect("written");
    let small =
        TimelineOptions { file_bytes: 2 << 10, grow_bytes: 1 << 10, ..TimelineOptions::default() };
    let (log, _) = Timeline::open(&data.join("log"), small).expect("opens");
    let (head, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
    let rounds = clips::sized(50, 1000);
    // Bounded: where the copies are starved, each would find more than the one before.
    let append = || {
        for number in 0..rounds * 1000 {
            if is_over.load(Ordering::Relaxed) {
                break;
            }
            let appended = log.append_wait(batch(number)).expect("durable");
            head.store(appended.last().expect("two").seq.0, Ordering::Release);
        }
    };
    let compact = || {
        for purged in (0..250_u8).cycle() {
            if is_over.load(Ordering::Relaxed) {
                break;
            }
            let purged = [RunId::from_bytes([purged; 16])].into();
            log.compact(&purged, &mut |_| ControlFlow::Continue(())).expect("compacted");
        }
    };
    let mut plain_lacks = [0; 2];
    std::thread::scope(|scope| {
        Builder::new().name("append".to_owned()).spawn_scoped(scope, append).expect("a thread");
        Builder::new().name("compact".to_owned()).spawn_scoped(scope, compact).expect("a thread");
        for round in 0..rounds {
            let (to, other) = (dir.path().join("copy"), dir.path().join("plain"));
            let before = head.load(Ordering::Acquire);
            // With a slash at its end, as a shell completes it.
            let made = run(&BackupArgs { dir: data.clone(), to: to.join("") });
            if let Err(error) = made {
                is_over.store(true, Ordering::Relaxed);
                panic!("round {round}: {error}");
            }
            let lacked = lacks(&to, before);
            let before = head.load(Ordering::Acquire);
            plain(&data, &other);
            match lacks(&other, before) {
                None => plain_lacks[0] += 1,
                Some(0) => {}
                Some(_) => plain_lacks[1] += 1,
            }
            if lacked != Some(0) {
                is_over.store(true, Ordering::Relaxed);
                panic!("round {round}: {lacked:?} of {before} events are lacking");
            }
            [to, other].iter().for_each(|made| fs::remove_dir_all(made).expect("removed"));
        }
        is_over.store(true, Ordering::Relaxed);
        let [unopened, lacking] = plain_lacks;
        eprintln!(
            "{rounds} copies; of as many plain ones {unopened} do not open, {lacking} lack events"
        );
    });
    assert!(head.load(Ordering::Relaxed) > 100, "the log was written to");
}

#[test]
fn a_directory_is_not_copied_into_itself() {
    let dir = tempfile::tempdir().expect("a directory");
    let data = dir.path().join("data");
    [data.join("log"), dir.path().join("x")]
        .iter()
        .for_each(|path| fs::create_dir_all(path).expect("made"));
    for (to, within) in
        [("data", true), ("data/a/b", true), ("data2", false), ("x/../data/y", true)]
    {
        assert_eq!(check_apart(&dir.path().join(to), &data).is_err(), within, "{to}");
    }
}

#[test]
fn a_folder_on_another_disk_is_copied_too_and_missed_where_it_is_gone() {
    let dir = tempfile::tempdir().expect("a directory");
    let (data, disk) = (dir.path().join("data"), dir.path().join("disk"));
    [data.join("log"), disk.join("ab")]
        .iter()
        .for_each(|path| fs::create_dir_all(path).expect("made"));
    fs::write(data.join("ledger"), [7; 4096]).expect("written");
    fs::write(disk.join("ab/still"), "a still").expect("written");
    let (log, _) = Timeline::open(&data.join("log"), TimelineOptions::default()).expect("opens");
    log.append_wait(batch(0)).expect("durable");
    drop(log);
    std::os::unix::fs::symlink(&disk, data.join("blobs")).expect("linked");
    let copied = |name: &str| {
        let to = dir.path().join(name);
        run(&BackupArgs { dir: data.clone(), to: to.clone() }).map(|()| to)
    };
    let to = copied("copy").expect("copied");
    assert_eq!(fs::read(to.join("blobs/ab/still")).expect("there"), b"a still");
    let endless = copied("disk/copy").expect_err("it would hold itself").to_string();
    assert!(endless.contains("data/blobs, which is copied"), "{endless}");
    fs::remove_dir_all(&disk).expect("removed");
    let failed = copied("other").expect_err("its stills are gone").to_string();
    assert!(failed.contains("data/blobs"), "{failed}");
}

#[test]
fn damage_is_named_in_the_original() {
    let dir = tempfile::tempdir().expect("a directory");
    let data = dir.path().join("data");
    fs::create_dir_all(data.join("log")).expect("made");
    fs::write(data.join("ledger"), [7; 4096]).expect("written");
    let (log, _) = Timeline::open(&data.join("log"), TimelineOptions::default()).expect("opens");
    (0..10).for_each(|number| drop(log.append_wait(batch(number)).expect("durable")));
    drop(log);
    let journal = data.join("log/journal");
    let file = journal.join(&names(&journal).expect("listed")[0]);
    let mut bytes = fs::read(&file).expect("there");
    let used = bytes.iter().rposition(|byte| *byte != 0).expect("not empty");
    bytes[used / 2] ^= 0x10;
    fs::write(&file, bytes).expect("written");
    let failed = run(&BackupArgs { dir: data, to: dir.path().join("copy") });
    let failed = failed.expect_err("damaged").to_string();
    assert!(failed.ends_with(&format!(" of {}", file.display())), "{failed}");
}

#[test]
fn a_recording_that_ends_meanwhile_has_its_rows() {
    let dir = tempfile::tempdir().expect("a directory");
    let [from, to] = ["data", "backup"].map(|name| dir.path().join(name));
    [from.join(OPEN_COLUMNS), to.join(OPEN_COLUMNS)]
        .iter()
        .for_each(|path| fs::create_dir_all(path).expect("made"));
    let [begun, ended] =
        ["run-1.job-1", "run-2.job-2"].map(|name| Path::new(OPEN_COLUMNS).join(name));
    fs::write(from.join(&ended), "rows").expect("written");
    let mut backup = Backup { from: &from, to: &to, files: 0, bytes: 0 };
    let mut open = backup.open_columns().expect("opened");
    fs::write(from.join(&ended), "rows and more").expect("written");
    fs::remove_file(from.join(&ended)).expect("removed");
    fs::write(from.join(&begun), "other rows").expect("written");
    open.extend(backup.open_columns().expect("opened"));
    open.into_iter().try_for_each(|(name, file)| backup.copy(file, &name)).expect("copied");
    assert_eq!(fs::read(to.join(ended)).expect("there"), b"rows and more");
    assert_eq!(fs::read(to.join(begun)).expect("there"), b"other rows");
}
