//! Open columns: cut, damaged, with a failing disk, and read beside their writer.

use std::{mem, path::PathBuf, thread};

use media::{Activity, CellBox, Score};
use tempfile::TempDir;

use super::*;
use crate::{RunFailed, signal_column::PLAIN_ROW_BYTES};

const JOB: JobId = JobId::from_bytes([1; 16]);
const RUN: RunId = RunId::from_bytes([2; 16]);

fn signal(frame_index: u64) -> Signal {
    Signal {
        frame_index,
        source_frame_index: frame_index.is_multiple_of(3).then_some(frame_index * 2),
        pts_ms: frame_index as i64 * 40 - 80,
        perceptual_hash: frame_index.wrapping_mul(0x9e37_79b9_7f4a_7c15),
        luma_mean: Score::ONE,
        flicker_score: Score::from_millionths(frame_index as u32),
        ghosting_score: Score::ONE,
        noise_variance_score: Score::ONE,
        scene_score: frame_index.is_multiple_of(2).then_some(Score::ZERO),
        activity: frame_index.is_multiple_of(3).then_some(Activity {
            score: Score::ONE,
            region: CellBox { left: 1, top: 2, right: 64, bottom: 40 },
            zones: frame_index as u16,
        }),
    }
}

fn event() -> Event {
    Event::RunFailed(RunFailed { request_id: None, reason: "no".to_owned() })
}

/// Returns open columns, and the path of the one of `RUN` and `JOB`.
fn columns() -> (TempDir, OpenColumns, PathBuf) {
    let dir = tempfile::tempdir().expect("a directory");
    let columns = OpenColumns::open(dir.path()).expect("opened");
    let path = columns.path(RUN, JOB);
    (dir, columns, path)
}

fn begin(columns: &OpenColumns) -> OpenColumn {
    columns.begin(RUN, JOB, [event(), event()]).expect("begun")
}

fn push(column: &mut OpenColumn, frames: std::ops::Range<u64>) {
    frames.for_each(|at| column.push(&signal(at)).expect("taken"));
}

/// Returns the numbers of rows and of head events, and the rest; checks that the rows are the first ones.
fn read(columns: &OpenColumns) -> Result<(usize, usize, Cut)> {
    let mut rows = columns.read(RUN, JOB)?.expect("there");
    let head = rows.head();
    assert!(head.iter().all(|told| *told == event()));
    let told = rows.by_ref().zip(0..);
    let count = told.inspect(|(row, index)| assert_eq!(*row, signal(*index))).count();
    Ok((count, head.len(), rows.end()?))
}

/// As [`read`], for a column without bytes after its rows.
fn whole(columns: &OpenColumns) -> (usize, usize) {
    let (rows, head, cut) = read(columns).expect("readable");
    assert_eq!(cut, Cut::default());
    (rows, head)
}

#[test]
fn rows_are_read_beside_the_writer_as_they_are_written() {
    let (dir, columns, path) = columns();
    assert!(columns.read(RUN, JOB).expect("readable").is_none());
    let mut column = begin(&columns);
    assert_eq!(whole(&columns), (0, 2), "and its writer goes on");
    push(&mut column, 0..1100);
    assert_eq!(whole(&columns), (1024, 2), "a full block does not wait");
    column.write().expect("written");
    assert_eq!(whole(&columns), (1100, 2));
    push(&mut column, 1100..1500);
    let bytes = column.bytes();
    column.flush().expect("durable");
    assert_eq!((whole(&columns), column.bytes()), ((1500, 2), bytes));
    assert_eq!(fs::metadata(&path).expect("there").len(), bytes);
    let again = columns.begin(RUN, JOB, []).expect_err("there is one").to_string();
    assert!(again.contains("create an open column"), "{again}");
    fs::write(dir.path().join("half.tmp"), "x").expect("written");
    let columns = OpenColumns::open(dir.path()).expect("opened again");
    assert_eq!(columns.all().expect("listed"), [(RUN, JOB)]);
    columns.remove(RUN, JOB).expect("removed");
    assert_eq!(fs::read_dir(dir.path()).expect("listed").count(), 0);
}

#[test]
fn readers_see_what_is_durable_and_no_more() {
    let (_dir, columns, _) = columns();
    let mut column = begin(&columns);
    let synced = column.synced();
    let shown = || {
        let snapshot = columns.snapshot(RUN, JOB, &synced).expect("readable").expect("there");
        let rows = snapshot.rows().expect("readable");
        rows.zip(0..).inspect(|(row, at)| assert_eq!(*row, signal(*at))).count()
    };
    assert_eq!(shown(), 0);
    push(&mut column, 0..1100);
    column.write().expect("written");
    assert_eq!((shown(), whole(&columns).0), (0, 1100), "a kill leaves them, a power cut may not");
    column.flush().expect("durable");
    push(&mut column, 1100..1200);
    column.write().expect("written");
    assert_eq!((shown(), whole(&columns).0), (1100, 1200));
    let file = mem::replace(
        &mut column.file,
        File::options().write(true).open("/dev/null").expect("there"),
    );
    column.flush().expect_err("not synced");
    column.file = file;
    push(&mut column, 1200..1201);
    for _ in 0..2 {
        let told = column.flush().expect_err("what was lost stays lost").to_string();
        assert!(told.contains("the disk failed before"), "{told}");
    }
    assert_eq!(shown(), 1100, "nor what a sync failed for");
}

#[test]
fn any_cut_and_any_damaged_byte_leave_the_blocks_before() {
    let (_dir, columns, path) = columns();
    let mut column = begin(&columns);
    // Offsets at which a whole part ends, with the number of rows and events up to there.
    let head = (column.bytes() as usize - MAGIC_BYTES) / 2;
    let mut ends =
        vec![(MAGIC_BYTES, 0, 0), (MAGIC_BYTES + head, 0, 1), (MAGIC_BYTES + 2 * head, 0, 2)];
    for frames in [0..3, 3..4, 4..9, 9..11] {
        let rows = frames.end as usize;
        push(&mut column, frames);
        column.flush().expect("durable");
        ends.push((column.bytes() as usize, rows, 2));
    }
    let bytes = fs::read(&path).expect("there");
    let last_block = ends[ends.len() - 2].0;
    let before = |at: usize| *ends.iter().rfind(|(end, ..)| *end <= at).expect("the magic");
    for cut in 0..=bytes.len() {
        fs::write(&path, &bytes[..cut]).expect("written");
        if cut < MAGIC_BYTES {
            assert!(matches!(read(&columns), Err(TimelineError::Damaged { .. })), "{cut}");
            continue;
        }
        let (end, rows, head) = before(cut);
        let bytes = (cut - end) as u64;
        let rows_max = bytes / ROW_BYTES as u64;
        let cut_off = Cut { bytes, rows_max, is_damaged: false };
        assert_eq!(read(&columns).expect("readable"), (rows, head, cut_off), "{cut}");
        assert!(head < 2 || check_open_column(&path).expect("no damage"), "{cut}");
    }
    for at in 0..bytes.len() {
        for flip in [1, 0x80, 0xff] {
            let mut damaged = bytes.clone();
            damaged[at] ^= flip;
            fs::write(&path, &damaged).expect("written");
            let found = read(&columns);
            if at < MAGIC_BYTES {
                let newer = matches!(found, Err(TimelineError::UnknownFormat { .. }));
                let damaged = matches!(found, Err(TimelineError::Damaged { .. }));
                assert_eq!((newer, damaged), (at == 7, at != 7), "{at} {flip}: {found:?}");
                continue;
            }
            let (end, rows, head) = before(at);
            let (found_rows, found_head, cut) = found.expect("readable");
            assert_eq!((found_rows, found_head), (rows, head), "{at} {flip}");
            assert_eq!(cut.bytes, (bytes.len() - end) as u64, "{at} {flip}");
            let is_told = check_open_column(&path).is_err();
            assert!(is_told || !cut.is_damaged && head == 2, "{at} {flip}: a head is whole");
            // A block after a damaged event begins where no block could end.
            if head == 2 {
                assert_eq!(cut.is_damaged, at < last_block, "{at} {flip}");
                assert!(cut.rows_max >= 11 - rows as u64, "{at} {flip}");
            }
        }
    }
    fs::write(&path, [&bytes[..], &[0; 70_000]].concat()).expect("written");
    let cut = Cut { bytes: 70_000, rows_max: 70_000 / 64, is_damaged: true };
    assert_eq!(read(&columns).expect("readable"), (11, 2, cut), "no block is so long");
    for _ in 0..2 {
        columns.keep_damaged(RUN, JOB).expect("kept, once");
    }
    let kept = path.with_added_extension("damaged");
    assert_eq!(fs::read(&kept).expect("there").len(), bytes.len() + 70_000);
    assert_eq!(columns.all().expect("listed"), [(RUN, JOB)], "it is none to be closed");
    assert!(!check_open_column(&kept).expect("passed over"));
}

#[test]
fn a_disk_that_refuses_for_a_while_leaves_no_gap() {
    let (_dir, columns, path) = columns();
    let mut column = begin(&columns);
    push(&mut column, 0..3);
    column.flush().expect("durable");
    let refusing = || File::open(&path).expect("for reading only");
    let writing = mem::replace(&mut column.file, refusing());
    push(&mut column, 3..5);
    column.flush().expect_err("refused");
    writing.write_all_at(&[SIGNALS; 70], column.bytes).expect("a part that was written");
    assert_eq!(read(&columns).expect("readable").0, 3, "the part is not there yet");
    column.file = writing;
    push(&mut column, 5..1027);
    column.flush().expect("durable");
    assert_eq!(whole(&columns), (1027, 2));
    push(&mut column, 1027..2051);
    let writing = mem::replace(&mut column.file, refusing());
    column.push(&signal(2051)).expect_err("no room for it");
    column.file = writing;
    column.push(&signal(2052)).expect_err("it would stand in the place of the other");
    column.flush().expect("durable");
    assert_eq!(whole(&columns), (2051, 2));
}

#[test]
fn a_reader_beside_a_writer_sees_whole_blocks_and_never_fewer() {
    let (_dir, columns, _) = columns();
    let mut column = begin(&columns);
    thread::scope(|scope| {
        let reader = || {
            let mut seen = 0;
            while seen < 5000 {
                let rows = columns.read(RUN, JOB).expect("readable").expect("there").zip(0..);
                let now = rows.inspect(|(row, at)| assert_eq!(*row, signal(*at))).count();
                assert!(now >= seen, "{now} of {seen}");
                seen = now;
            }
        };
        let reader = thread::Builder::new().spawn_scoped(scope, reader).expect("spawned");
        for at in 0..5000 {
            column.push(&signal(at)).expect("taken");
            if at % 37 == 0 {
                column.write().expect("written");
            }
        }
        column.flush().expect("durable");
        reader.join().expect("no row was another");
    });
}

fn corpus(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus/open_column").join(name)
}

/// Bytes of formats 2 (without activity) and 4, with one event and two blocks.
#[test]
fn the_format_opens_and_is_written_the_same_forever() {
    let fixture = corpus("two_blocks_of_activity");
    let (dir, columns, path) = columns();
    let mut column = columns.begin(RUN, JOB, [event()]).expect("begun");
    for frames in [0..2, 2..5] {
        push(&mut column, frames);
        column.flush().expect("durable");
    }
    #[expect(clippy::disallowed_methods, reason = "the tests' own switch")]
    let update = std::env::var_os("UPDATE_GOLDEN").is_some();
    if update {
        fs::copy(&path, &fixture).expect("copied");
    }
    let kept = fs::read(&fixture).expect("a fixture");
    assert_eq!(fs::read(&path).expect("there"), kept);
    columns.remove(RUN, JOB).expect("removed");
    fs::write(&path, kept).expect("written");
    assert_eq!(whole(&OpenColumns::open(dir.path()).expect("opened")), (5, 1));
    let kept = fs::read(corpus("two_blocks")).expect("a fixture");
    fs::write(&path, &kept).expect("written");
    let columns = OpenColumns::open(dir.path()).expect("opened");
    let plain: Vec<Signal> = columns.read(RUN, JOB).expect("readable").expect("there").collect();
    let expected = (0..5).map(|index| Signal { activity: None, ..signal(index) });
    assert_eq!(plain, expected.collect::<Vec<_>>());
    fs::write(&path, &kept[..kept.len() - 1]).expect("written");
    let rows = columns.read(RUN, JOB).expect("readable").expect("there");
    let bytes = block_bytes(3, PLAIN_ROW_BYTES) as u64 - 1;
    assert_eq!(rows.end().expect("readable"), Cut { bytes, rows_max: 3, is_damaged: false });
}
