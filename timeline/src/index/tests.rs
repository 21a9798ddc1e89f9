//! Lookups by number, by run and backwards, and the index after a replacement.

use super::*;

const RUNS: [RunId; 2] = [RunId::from_bytes([1; 16]), RunId::from_bytes([2; 16])];
const KINDS: [EventKind; 3] =
    [EventKind::RunCreated, EventKind::MarkerEmitted, EventKind::RunCompleted];

/// Returns events 1..=count over two runs, three kinds and files of `per_file` events.
fn index(count: u64, per_file: u64) -> LogIndex {
    let mut index = LogIndex::default();
    for seq in 1..=count {
        let at = WallTime { epoch_ms: 1000 + seq as i64 };
        if (seq - 1) % per_file == 0 {
            index.begin_file(Seq(seq), at, 32);
        }
        let run = RUNS[seq as usize % 2];
        let offset = 32 + 10 * ((seq - 1) % per_file) as u32;
        let kind = KINDS[seq as usize % 3];
        index.push(EventMeta { seq: Seq(seq), at, run, kind }, offset..offset + 10);
    }
    index
}

#[test]
fn a_run_is_read_in_order_by_kind_and_across_the_bound_on_a_step() {
    let index = index(40_000, 7000);
    let read = |from, limit, kind| {
        let (mut hits, mut from) = (Vec::new(), Some(Seq(from)));
        while let Some(next) = from {
            from = index.collect(RUNS[1], next, limit, kind, &mut hits);
        }
        hits.iter().map(|hit| hit.head.seq.0).collect::<Vec<_>>()
    };
    assert_eq!(read(0, 3, None), [1, 3, 5]);
    assert_eq!(read(6, 2, None), [7, 9]);
    assert_eq!(read(1, 3, Some(EventKind::RunCreated)), [3, 9, 15]);
    assert_eq!(read(1, usize::MAX, None).len(), 20_000);
    assert_eq!(read(39_999, 9, None), [39_999]);
    assert_eq!(read(40_000, 9, None), [0; 0]);
    assert_eq!(read(1, 0, None), [0; 0]);
}

#[test]
fn the_last_of_a_kind_is_found_backwards_in_bounded_steps() {
    let mut index = index(100, 7);
    let last = |index: &LogIndex, before| {
        let mut before = Seq(before);
        let mut steps = 1;
        loop {
            match index.last_of(RUNS[0], before, EventKind::RunCreated) {
                ControlFlow::Break(found) => return (found.map(|hit| hit.head.seq.0), steps),
                ControlFlow::Continue(next) => before = next,
            }
            steps += 1;
        }
    };
    assert_eq!(last(&index, u64::MAX), (Some(96), 1));
    assert_eq!(last(&index, 96), (Some(90), 1));
    assert_eq!(last(&index, 6), (None, 1));
    for seq in 101..=10_101 {
        let (at, run, kind) = (WallTime { epoch_ms: 2000 }, RUNS[0], EventKind::Vlm);
        index.push(EventMeta { seq: Seq(seq.into()), at, run, kind }, seq..seq + 1);
    }
    assert_eq!(last(&index, u64::MAX), (Some(96), 3));
}

#[test]
fn a_compacted_file_takes_the_place_of_others_and_their_memory() {
    let mut index = index(100, 20);
    let before = index.memory_bytes();
    // Files 21..41 and 41..61 without the events of the first run.
    let mut made = LogIndex::default();
    made.begin_file(Seq(21), WallTime { epoch_ms: 0 }, 48);
    for seq in (21..61).step_by(2) {
        let (at, run, kind) = (WallTime { epoch_ms: 5 }, RUNS[1], KINDS[0]);
        made.push(EventMeta { seq: Seq(seq), at, run, kind }, seq as u32 * 2..seq as u32 * 2 + 2);
    }
    made.end_file(Seq(61));
    index.replace(made);
    assert_eq!((index.file_count(), index.head(), index.len()), (4, Seq(100), 80));
    assert!(index.memory_bytes() < before);
    for (seq, there) in [(20, true), (21, true), (22, false), (59, true), (60, false), (61, true)] {
        let hit = index.locate(Seq(seq));
        assert_eq!(hit.is_some(), there, "{seq}");
        assert!(hit.is_none_or(|hit| hit.head.seq == Seq(seq)), "{seq}");
    }
    let mut hits = Vec::new();
    assert_eq!(index.collect(RUNS[0], Seq(17), 4, None, &mut hits), None);
    let seqs: Vec<u64> = hits.iter().map(|hit| hit.head.seq.0).collect();
    assert_eq!(seqs, [18, 20, 62, 64]);
    assert_eq!(index.run_bytes(RUNS[0]), 30 * 10);
    assert_eq!(index.run_bytes(RUNS[1]), 30 * 10 + 20 * 2 + 19 * 2);
}

#[test]
fn the_number_of_a_run_without_events_is_used_again() {
    let mut index = index(10, 5);
    let mut made = LogIndex::default();
    made.begin_file(Seq(1), WallTime { epoch_ms: 0 }, 48);
    made.end_file(Seq(11));
    index.replace(made);
    assert_eq!((index.len(), index.head(), index.run_count()), (0, Seq(10), 0));
    assert!(index.locate(Seq(3)).is_none());
    let other = RunId::from_bytes([3; 16]);
    assert!(index.number(other) < 2, "a free number");
    assert_eq!((index.run_count(), index.runs.len()), (1, 2));
}

#[test]
fn where_runs_run_out_those_that_have_a_number_go_on() {
    let index = index(10, 5);
    let new = [3, 4].map(|id| RunId::from_bytes([id; 16]));
    let rows: [(&[RunId], usize, bool); 6] = [
        (&[RUNS[0], RUNS[1], RUNS[0]], 2, true),
        (&[new[0]], 2, false),
        (&[RUNS[0], new[0]], 2, false),
        (&[RUNS[0], new[0], new[0]], 3, true),
        (&new, 3, false),
        (&new, 4, true),
    ];
    for (runs, max, expected) in rows {
        assert_eq!(index.can_number(runs.iter().copied(), max), expected, "{runs:?} of {max}");
    }
}
