//! Tests of the interface: reads, pages, kinds, times, limits, columns, blobs.

use std::{
    fs,
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
};

use media::{ErrorKind, Seq, Signal, WallTime};
use tempfile::TempDir;
use timeline::{
    BATCH_RECORDS_MAX, BlobStore, Event, EventKind, INLINE_JSON_BYTES_MAX, LogState, NewEvent,
    PAYLOAD_BYTES_MAX, RequestMarkerPayload, RunFailed, Signals, SweepStats, Timeline,
    TimelineOptions,
};

use crate::{
    compact::purge,
    support::{
        all, description, found, frames, head_of, new_log, run, signal, small, stored, texts,
    },
};

fn keepalive(number: u8) -> NewEvent {
    let request_id = "req-00000000000000aa".parse().unwrap();
    NewEvent {
        run: run(number),
        event: Event::KeepaliveRefreshed(RequestMarkerPayload { request_id }),
    }
}

#[test]
fn a_run_is_read_by_pages_and_by_kind() {
    let (_dir, log) = new_log();
    for number in 0..30 {
        log.append_wait(vec![found(number % 3, &number.to_string()), keepalive(1)]).unwrap();
    }
    let read = |from, limit, kind| {
        let events = log.read(run(1), Seq(from), limit, kind).unwrap();
        events.iter().map(|event| event.head.seq.0).collect::<Vec<_>>()
    };
    assert_eq!(read(0, 4, None), [2, 3, 4, 6]);
    assert_eq!(read(4, 3, None), [4, 6, 8]);
    assert_eq!(read(1, 3, Some(EventKind::Vlm)), [3, 9, 15]);
    assert_eq!(read(1, 2, Some(EventKind::RunDeleted)), [0; 0]);
    assert_eq!(read(61, 2, None), [0; 0]);
    assert_eq!(log.read(run(77), Seq(1), 5, None).unwrap(), []);
    assert_eq!(head_of(&log, 1, EventKind::Vlm), Some(Seq(57)));
    assert_eq!(head_of(&log, 1, EventKind::RunDeleted), None);
    assert_eq!(log.head(), Seq(60));
    assert_eq!(log.get(Seq(61)).unwrap(), None);
    assert_eq!(log.get(Seq(0)).unwrap(), None);
    // Without the payloads: those of all runs, and those of one.
    let heads = |from, count| -> Vec<u64> {
        log.heads(Seq(from), count).iter().map(|head| head.seq.0).collect()
    };
    assert_eq!(heads(0, 2), [1, 2]);
    assert_eq!(heads(59, 5), [59, 60]);
    assert_eq!((heads(61, 5), heads(4, 0)), (vec![], vec![]));
    let of_run = |number, from, limit| -> Vec<u64> {
        log.heads_of(run(number), Seq(from), limit).iter().map(|head| head.seq.0).collect()
    };
    assert_eq!((of_run(1, 3, 2), of_run(9, 1, 2)), (vec![3, 4], vec![]));
    assert_eq!(log.get_parts(Seq(4)).unwrap().map(|event| event.head.seq), Some(Seq(4)));
    assert!(log.get_parts(Seq(61)).unwrap().is_none());
}

/// Returns an empty folder, the time, which is 0, and options with its clock.
fn with_clock() -> (TempDir, Arc<AtomicI64>, TimelineOptions) {
    let set = Arc::<AtomicI64>::default();
    let now = set.clone();
    let clock = Arc::new(move || WallTime { epoch_ms: now.load(Ordering::Relaxed) });
    (TempDir::new().unwrap(), set, TimelineOptions { clock, ..small() })
}

#[test]
fn time_never_goes_backwards_within_a_log_or_across_its_openings() {
    let (dir, set, options) = with_clock();
    let mut times = Vec::new();
    for clock in [1000, 900, 1200, 100, 1_000 + (1 << 33), 0] {
        set.store(clock, Ordering::Relaxed);
        let (log, _) = Timeline::open(dir.path(), options.clone()).unwrap();
        for _ in 0..2 {
            times.push(log.append_wait(vec![found(1, "x")]).unwrap()[0].at.epoch_ms);
        }
    }
    let late = 1000 + (1 << 33);
    assert_eq!(times, [1000, 1000, 1000, 1000, 1200, 1200, 1200, 1200, late, late, late, late]);
    let (log, _) = Timeline::open(dir.path(), options).unwrap();
    let stored: Vec<i64> = all(&log).iter().map(|event| event.head.at.epoch_ms).collect();
    assert_eq!(stored, times);
}

#[test]
fn every_sync_of_a_batch_is_told() {
    let dir = TempDir::new().unwrap();
    let syncs = Arc::new(AtomicI64::new(0));
    let told = syncs.clone();
    let on_sync = Arc::new(move |_| {
        told.fetch_add(1, Ordering::Relaxed);
    });
    let (log, _) = Timeline::open(dir.path(), TimelineOptions { on_sync, ..small() }).unwrap();
    for number in 1..=5 {
        log.append_wait(vec![found(1, "x"), found(2, "y")]).unwrap();
        assert_eq!(syncs.load(Ordering::Relaxed), number);
    }
}

#[test]
fn a_file_without_events_takes_one_of_any_later_time() {
    let (dir, set, options) = with_clock();
    drop(Timeline::open(dir.path(), options.clone()).unwrap());
    let (log, _) = Timeline::open(dir.path(), options.clone()).unwrap();
    set.store(1 << 33, Ordering::Relaxed);
    for text in ["one", "two"] {
        assert_eq!(log.append_wait(vec![found(1, text)]).unwrap()[0].at.epoch_ms, 1 << 33);
    }
    drop(log);
    let (log, recovery) = Timeline::open(dir.path(), options).unwrap();
    assert_eq!((recovery.files, texts(&log)), (1, vec!["one".to_owned(), "two".to_owned()]));
    assert_eq!(all(&log)[1].head.at.epoch_ms, 1 << 33);
}

#[test]
fn a_batch_may_be_empty_or_larger_than_a_file() {
    let (dir, log) = new_log();
    assert_eq!(log.append_wait(Vec::new()).unwrap(), []);
    log.append_wait(vec![found(1, "before")]).unwrap();
    assert_eq!(log.append_wait(Vec::new()).unwrap(), []);
    let batch: Vec<_> = (0..500).map(|number| found(1, &format!("{number}"))).collect();
    log.append_wait(batch).unwrap();
    log.append_wait(vec![found(1, "after")]).unwrap();
    drop(log);
    let (log, recovery) = Timeline::open(dir.path(), small()).unwrap();
    assert_eq!((recovery.events, recovery.files), (502, 3));
    assert_eq!(texts(&log)[501], "after");
}

#[test]
fn limits_are_named() {
    let (_dir, log) = new_log();
    let failed = |reason| {
        let event = Event::RunFailed(RunFailed { request_id: None, reason });
        vec![NewEvent { run: run(1), event }]
    };
    let error = log.append_wait(failed("x".repeat(PAYLOAD_BYTES_MAX))).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    assert!(error.to_string().contains("1048576"), "{error}");
    log.append_wait(failed("x".repeat(PAYLOAD_BYTES_MAX - 20))).unwrap();
    let many = (0..=BATCH_RECORDS_MAX).map(|_| keepalive(1)).collect();
    let error = log.append_wait(many).unwrap_err();
    assert!(error.to_string().contains("131072"), "{error}");
    let heavy = (0..80).map(|_| found(1, &"x".repeat(1_000_000))).collect();
    let error = log.append_wait(heavy).unwrap_err();
    assert!(error.to_string().contains("67108864"), "{error}");
    assert_eq!(log.head(), Seq(1));
}

#[test]
fn a_description_too_long_is_cut_and_says_so() {
    let (_dir, log) = new_log();
    log.append_wait(vec![found(1, &"\u{e9}\n".repeat(400_000))]).unwrap();
    let event = log.get(Seq(1)).unwrap().unwrap();
    assert!(event.payload.len() <= PAYLOAD_BYTES_MAX, "{}", event.payload.len());
    assert!(event.payload.ends_with(",\"truncated\":true}"));
    assert!(description(&event).starts_with("\u{e9}\n\u{e9}\n"));
}

#[test]
fn few_signals_stay_inline_and_many_go_to_a_column_with_the_same_json() {
    for count in [0, 1, 300, 1023, 1024, 1025, 5000] {
        let (dir, log) = new_log();
        let signals: Vec<Signal> = (0..count).map(signal).collect();
        let (stored, _lease) = stored(&log, 0..count);
        assert_eq!(stored.count(), count);
        assert_eq!(log.signals(&stored).unwrap(), signals);
        log.append_wait(vec![frames(1, stored.clone())]).unwrap();
        let event = log.get(Seq(1)).unwrap().unwrap();
        let Event::FramesDecoded(decoded) = event.decode().unwrap() else { panic!() };
        assert_eq!(decoded.signals, Signals::Inline(signals), "{count} signals through JSON");
        let json: &str = &event.payload;
        let parts = log.read_parts(run(1), Seq(1), 1, None).unwrap().remove(0);
        let Event::FramesDecoded(decoded) = parts.decode().unwrap() else { panic!() };
        assert_eq!(decoded.signals, stored, "a column stays one");
        assert!(parts.payload_bytes() >= json.len() as u64, "{count} signals");
        let pieces: Vec<String> = parts.into_payload().map(Result::unwrap).collect();
        assert_eq!(pieces.concat(), json);
        assert!(pieces.iter().all(|piece| piece.len() < 2 * INLINE_JSON_BYTES_MAX));
        let start = json.find("\"signals\":").unwrap() + "\"signals\":".len();
        let inline = json.len() - start - 1 <= INLINE_JSON_BYTES_MAX;
        assert_eq!(matches!(stored, Signals::Inline(_)), inline, "{count} signals");
        let columns = fs::read_dir(dir.path().join("columns")).unwrap().count();
        assert_eq!(columns, usize::from(!inline));
    }
}

#[test]
fn the_newest_frames_of_a_stream_come_back_as_stored() {
    let (_dir, log) = new_log();
    let (column, _lease) = stored(&log, 0..2000);
    let other = {
        let mut event = frames(1, Signals::Inline(vec![signal(1)]));
        let Event::FramesDecoded(decoded) = &mut event.event else { panic!() };
        decoded.stream_id = "gate".parse().unwrap();
        event
    };
    log.append_wait(vec![frames(1, column.clone()), other, found(1, "later")]).unwrap();
    let latest = |stream: Option<&str>| {
        let stream = stream.map(|name| name.parse().unwrap());
        let found = log.latest_frames(run(1), stream.as_ref()).unwrap();
        found.map(|(head, frames)| (head.seq.0, frames.signals))
    };
    assert_eq!(latest(None), Some((2, Signals::Inline(vec![signal(1)]))));
    assert_eq!(latest(Some("gate")).unwrap().0, 2);
    assert_eq!(latest(Some("yard")), Some((1, column)));
    assert_eq!(latest(Some("nowhere")), None);
}

#[test]
fn a_reader_of_its_own_sees_the_log_and_cannot_write() {
    let (dir, log) = new_log();
    log.append_wait(vec![found(1, "one")]).unwrap();
    let (reader, recovery) = Timeline::open_read_only(dir.path()).unwrap();
    assert_eq!(recovery.events, 1);
    assert_eq!(texts(&reader), ["one"]);
    assert_eq!(reader.state(), LogState::Closed);
    let error = reader.append_wait(vec![found(1, "two")]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    log.append_wait(vec![found(1, "three")]).unwrap();
}

#[test]
fn blobs_are_stored_once_and_verified_on_read() {
    let dir = TempDir::new().unwrap();
    let blobs = BlobStore::open(dir.path(), None).unwrap();
    let mut lease = blobs.lease();
    let (one, two) = (lease.put(b"one").unwrap(), lease.put(b"two").unwrap());
    assert_eq!(lease.put(b"one").unwrap(), one);
    assert_eq!(one.to_string(), "7692c3ad3540bb803c020b3aee66cd8887123234ea0c6e7143c0add73ff431ed");
    assert_eq!(blobs.get(&two, 3).unwrap().unwrap(), b"two");
    fs::write(blobs.path(&one), b"One").unwrap();
    let error = blobs.get(&one, 3).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::DataLoss);
    assert!(error.to_string().contains(&one.to_string()), "{error}");
    assert_eq!(lease.put(b"one").unwrap(), one, "putting again heals");
    assert_eq!(blobs.get(&one, 3).unwrap().unwrap(), b"one");
    fs::write(dir.path().join("left.tmp"), b"half").unwrap();
    let blobs = BlobStore::open(dir.path(), None).unwrap();
    assert!(!dir.path().join("left.tmp").exists());
    assert_eq!(blobs.unfinished(), 1);
    fs::remove_file(blobs.path(&two)).unwrap();
    assert_eq!(blobs.get(&two, 3).unwrap(), None);
}

#[test]
fn a_sweep_removes_blobs_that_nothing_names_or_holds() {
    let dir = TempDir::new().unwrap();
    let blobs = BlobStore::open(dir.path(), None).unwrap();
    let (mut job, mut done) = (blobs.lease(), blobs.lease());
    let held = job.put(b"held").unwrap();
    let [named, orphan] = [b"named.", b"orphan"].map(|bytes| done.put(bytes).unwrap());
    drop(done);
    let at = WallTime { epoch_ms: 77 };
    assert_eq!(blobs.removed_before().unwrap(), None);
    blobs.remember_removed_before(at).unwrap();
    let sweep = blobs.sweep().unwrap();
    assert!(blobs.sweep().is_none(), "one at a time");
    let again = blobs.lease().put(b"orphan").unwrap();
    let swept = sweep.finish(|hash| *hash == named, || {}).unwrap();
    assert_eq!((swept, again), (SweepStats::default(), orphan), "stored again meanwhile");
    let swept = blobs.sweep().unwrap().finish(|hash| *hash == named, || {}).unwrap();
    assert_eq!(swept, SweepStats { files: 1, bytes: 6, left: None });
    let there = [held, named, orphan].map(|hash| blobs.has(&hash));
    assert_eq!(there, [true, true, false]);
    job.discard().unwrap();
    assert_eq!(blobs.get(&held, 4).unwrap(), None, "taken back");
    assert_eq!(blobs.removed_before().unwrap(), Some(at));
}

#[test]
fn a_sweep_removes_columns_that_no_event_names() {
    let (dir, log) = new_log();
    let column = |first: u64| {
        let mut writer = log.column_writer();
        (first..first + 2000).for_each(|index| writer.push(&signal(index)).unwrap());
        assert!(writer.column_bytes() > 2000 * 64);
        writer.finish().unwrap()
    };
    let count = || fs::read_dir(dir.path().join("columns")).unwrap().count();
    let mut abandoned = log.column_writer();
    (0..2000).for_each(|index| abandoned.push(&signal(index)).unwrap());
    assert_eq!(count(), 1);
    drop(abandoned);
    assert_eq!(count(), 0, "an abandoned one leaves nothing behind");
    let (named, lease) = column(1);
    assert_eq!(named.column_bytes(), 8 + 2000 * 64 + 2 * 4);
    log.append_wait(vec![frames(1, named.clone())]).unwrap();
    drop(lease);
    let (_, held) = column(2);
    drop(column(3));
    assert_eq!(count(), 3);
    let swept = log.sweep_columns().unwrap();
    assert_eq!((swept.files, swept.bytes, count()), (1, named.column_bytes(), 2));
    drop(held);
    purge(&log, &[1]).unwrap();
    assert_eq!((log.sweep_columns().unwrap().files, count()), (2, 0));
}
