//! Cost of flushing open columns on this disk: so many recordings, each flushed ten times a second.
//!
//! `cargo run --release -p timeline --example flush_cost [DIR] [COLUMNS]`; DIR should be on the disk to
//! measure (default: the build's target directory) and is removed afterwards.

use std::{
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use media::{JobId, RunId, Score, Signal};
use timeline::{OpenColumn, OpenColumns, TimelineError};

const COLUMNS: u8 = 24;
const PERIOD: Duration = Duration::from_millis(100);
const SECONDS: u32 = 10;
const ROWS: u64 = 3;

fn main() -> Result<(), TimelineError> {
    let mut args = std::env::args_os().skip(1);
    let dir = args.next().map(PathBuf::from);
    let dir =
        dir.unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/flush_cost"));
    let count = args.next().and_then(|text| text.to_str()?.parse().ok()).unwrap_or(COLUMNS);
    for (count, period) in [(1, Duration::ZERO), (count, Duration::ZERO), (count, PERIOD)] {
        measure(&dir, count, period)?;
        std::fs::remove_dir_all(&dir).expect("the directory is ours");
    }
    Ok(())
}

/// Flushes `count` columns each `period`, or without a pause, and prints the time that flushes took.
fn measure(dir: &Path, count: u8, period: Duration) -> Result<(), TimelineError> {
    let columns = OpenColumns::open(dir)?;
    let open =
        |number| columns.begin(RunId::from_bytes([number; 16]), JobId::from_bytes([1; 16]), []);
    let all = (0..count).map(open).collect::<Result<Vec<_>, _>>()?;
    let begun = Instant::now();
    let taken = thread::scope(|scope| {
        let flush = |(number, column)| {
            let shift = period * number / u32::from(count);
            let flush = move || flushes(column, begun + shift, period);
            thread::Builder::new().spawn_scoped(scope, flush).expect("spawned")
        };
        let threads: Vec<_> = (0..).zip(all).map(flush).collect();
        let joined = threads.into_iter().map(|thread| thread.join().expect("no panic"));
        joined.collect::<Result<Vec<_>, _>>()
    })?;
    let mut taken: Vec<Duration> = taken.into_iter().flatten().collect();
    taken.sort_unstable();
    let at = |part: usize| taken[(taken.len() - 1) * part / 1000];
    println!(
        "{count} columns every {period:?}: {} flushes a second, p50 {:?}, p99 {:?}, most {:?}",
        taken.len() as u32 / SECONDS,
        at(500),
        at(990),
        at(1000)
    );
    Ok(())
}

/// Flushes a column from `begin` on; returns how long each flush took.
fn flushes(
    mut column: OpenColumn,
    begin: Instant,
    period: Duration,
) -> Result<Vec<Duration>, TimelineError> {
    let (mut taken, mut next, mut frame_index) = (Vec::new(), begin, 0);
    let end = begin + Duration::from_secs(u64::from(SECONDS));
    while next < end && Instant::now() < end {
        thread::sleep(next.saturating_duration_since(Instant::now()));
        for _ in 0..ROWS {
            column.push(&signal(frame_index))?;
            frame_index += 1;
        }
        let before = Instant::now();
        column.flush()?;
        taken.push(before.elapsed());
        next += period;
    }
    Ok(taken)
}

fn signal(frame_index: u64) -> Signal {
    Signal {
        perceptual_hash: frame_index,
        luma_mean: Score::ONE,
        ..Signal::plain(frame_index, frame_index as i64 * 33)
    }
}
