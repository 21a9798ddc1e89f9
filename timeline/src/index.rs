//! Where every event is: 12 bytes an event by seq, and 4 bytes an event by run.
//!
//! Kept in memory, filled from the footers of sealed files when the log opens. Knows no I/O.

use std::collections::HashMap;

use media::{RunId, Seq, WallTime};

use crate::{EventHead, event::EventKind};

/// Runs that one log can hold: their number shares 32 bits with the kind.
pub const RUNS_MAX: usize = 1 << 24;
/// Events that one log can hold: a run keeps the seqs of its events in 32 bits.
pub const EVENTS_MAX: u64 = u32::MAX as u64;

/// Events looked at in one step: keeps a reader from holding up the writer for long.
const EXAMINED_MAX: usize = 4096;

/// One event in its journal file.
#[derive(Clone, Copy)]
pub(crate) struct Entry {
    /// Where its record starts.
    pub(crate) offset: u32,
    /// Milliseconds after the file's base time.
    after_base: u32,
    /// Number of the run, then 8 bits of kind.
    run_and_kind: u32,
}

/// The events of one journal file.
pub(crate) struct FileIndex {
    pub(crate) first: Seq,
    pub(crate) base: WallTime,
    /// Where its last record ends.
    pub(crate) end: u32,
    entries: Vec<Entry>,
}

impl FileIndex {
    /// An event taken at `at` cannot go into this file: its time does not fit 32 bits.
    pub(crate) fn is_too_old_for(&self, at: WallTime) -> bool {
        u32::try_from(at.epoch_ms - self.base.epoch_ms).is_err()
    }
}

struct RunEvents {
    id: RunId,
    /// Seqs in order.
    events: Vec<u32>,
}

/// Where to find one event and what it must be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hit {
    pub(crate) head: EventHead,
    /// First seq of its file, which names the file.
    pub(crate) file: Seq,
    pub(crate) offset: u32,
    /// Where its record ends at the latest.
    pub(crate) end: u32,
}

/// Outcome of a step of looking backwards.
pub(crate) enum LastOf {
    Found(Hit),
    /// Not found yet among the newest; look before this one next.
    GoOn(Seq),
    None,
}

/// The index of a whole log.
#[derive(Default)]
pub(crate) struct Index {
    files: Vec<FileIndex>,
    runs: Vec<RunEvents>,
    numbers: HashMap<RunId, u32>,
}

impl Index {
    /// The last event; 0 when there is none.
    pub(crate) fn head(&self) -> Seq {
        Seq(self.files.last().map_or(0, |file| file.first.0 + file.entries.len() as u64 - 1))
    }

    pub(crate) fn run_count(&self) -> usize {
        self.runs.len()
    }

    pub(crate) fn file_count(&self) -> usize {
        self.files.len()
    }

    pub(crate) fn file(&self, number: usize) -> &FileIndex {
        &self.files[number]
    }

    /// Begins the file of event `first`, the next one, whose records start at `start`.
    pub(crate) fn begin_file(&mut self, first: Seq, base: WallTime, start: u32) {
        if let Some(sealed) = self.files.last_mut() {
            sealed.entries.shrink_to_fit();
        }
        self.files.push(FileIndex { first, base, end: start, entries: Vec::new() });
    }

    /// Gives the last file, which is empty, another base time.
    pub(crate) fn rebase_last_file(&mut self, base: WallTime) {
        if let Some(file) = self.files.last_mut() {
            file.base = base;
        }
    }

    /// The number of `run` in the index, new when it is not there yet.
    pub(crate) fn number(&mut self, run: RunId) -> u32 {
        *self.numbers.entry(run).or_insert_with(|| {
            self.runs.push(RunEvents { id: run, events: Vec::new() });
            u32::try_from(self.runs.len() - 1).expect("RUNS_MAX fits")
        })
    }

    /// Makes room for the entries that a file will bring.
    pub(crate) fn reserve(&mut self, count: usize) {
        if let Some(file) = self.files.last_mut() {
            file.entries.reserve_exact(count);
        }
    }

    /// Adds the event after the head to the last file; its record ends at `end`.
    pub(crate) fn push(&mut self, run: u32, kind: EventKind, at: WallTime, offset: u32, end: u32) {
        let file = self.files.last_mut().expect("a file is begun before its events");
        let after_base = u32::try_from(at.epoch_ms - file.base.epoch_ms)
            .expect("the writer begins a file before times outgrow it");
        let run_and_kind = run << 8 | u32::from(kind.code());
        let seq = file.first.0 + file.entries.len() as u64;
        file.entries.push(Entry { offset, after_base, run_and_kind });
        file.end = end;
        let seq = u32::try_from(seq).expect("EVENTS_MAX fits");
        self.runs[run as usize].events.push(seq);
    }

    /// Gives back what growing reserved beyond need.
    pub(crate) fn shrink(&mut self) {
        self.runs.iter_mut().for_each(|run| run.events.shrink_to_fit());
        self.files.iter_mut().for_each(|file| file.entries.shrink_to_fit());
    }

    /// The last file.
    pub(crate) fn last_file(&self) -> Option<&FileIndex> {
        self.files.last()
    }

    /// The events of file number `file`, each with the offset of its record.
    pub(crate) fn file_events(&self, file: usize) -> impl Iterator<Item = (u32, EventHead)> + '_ {
        let file = &self.files[file];
        let seqs = (file.first.0..).map(Seq);
        file.entries
            .iter()
            .zip(seqs)
            .map(|(entry, seq)| (entry.offset, self.head_of(file, entry, seq)))
    }

    /// Where event `seq` is.
    pub(crate) fn locate(&self, seq: Seq) -> Option<Hit> {
        let file = self.files.partition_point(|file| file.first <= seq).checked_sub(1)?;
        self.hit(&self.files[file], seq)
    }

    /// Adds to `hits` the events of `run` from `from` on, up to `limit` and of `kind` where given.
    ///
    /// Looks at a bounded number of events; returns from where to go on, if anywhere.
    pub(crate) fn collect(
        &self,
        run: RunId,
        from: Seq,
        limit: usize,
        kind: Option<EventKind>,
        hits: &mut Vec<Hit>,
    ) -> Option<Seq> {
        let events = &self.runs[*self.numbers.get(&run)? as usize].events;
        let start = events.partition_point(|seq| u64::from(*seq) < from.0);
        let mut file = None;
        for (examined, seq) in events[start..].iter().map(|seq| Seq(u64::from(*seq))).enumerate() {
            if hits.len() == limit {
                return None;
            }
            if examined == EXAMINED_MAX {
                return Some(seq);
            }
            let hit = match file.and_then(|file| self.hit(file, seq)) {
                Some(hit) => hit,
                None => {
                    let number = self.files.partition_point(|file| file.first <= seq) - 1;
                    file = Some(&self.files[number]);
                    self.hit(&self.files[number], seq)?
                }
            };
            if kind.is_none_or(|kind| hit.head.kind == kind) {
                hits.push(hit);
            }
        }
        None
    }

    /// The last event of `run` of this kind that comes before `before`.
    ///
    /// Looks at a bounded number of events; `GoOn` tells before which to look next.
    pub(crate) fn last_of(&self, run: RunId, before: Seq, kind: EventKind) -> LastOf {
        let Some(number) = self.numbers.get(&run) else { return LastOf::None };
        let events = &self.runs[*number as usize].events;
        let older = events.partition_point(|seq| u64::from(*seq) < before.0);
        for (examined, seq) in events[..older].iter().rev().enumerate() {
            match self.locate(Seq(u64::from(*seq))) {
                Some(hit) if hit.head.kind == kind => return LastOf::Found(hit),
                Some(hit) if examined == EXAMINED_MAX => return LastOf::GoOn(hit.head.seq),
                _ => {}
            }
        }
        LastOf::None
    }

    /// Memory behind the index, without the table from run id to number.
    pub(crate) fn memory_bytes(&self) -> usize {
        let files = self.files.iter().map(|file| file.entries.capacity() * size_of::<Entry>());
        let runs = self.runs.iter().map(|run| run.events.capacity() * size_of::<u32>());
        files.sum::<usize>() + runs.sum::<usize>() + self.runs.capacity() * size_of::<RunEvents>()
    }

    fn hit(&self, file: &FileIndex, seq: Seq) -> Option<Hit> {
        let position = usize::try_from(seq.0.checked_sub(file.first.0)?).ok()?;
        let entry = file.entries.get(position)?;
        let end = file.entries.get(position + 1).map_or(file.end, |next| next.offset);
        let head = self.head_of(file, entry, seq);
        Some(Hit { head, file: file.first, offset: entry.offset, end })
    }

    fn head_of(&self, file: &FileIndex, entry: &Entry, seq: Seq) -> EventHead {
        let kind = EventKind::from_code(entry.run_and_kind as u8).expect("stored from a kind");
        let at = WallTime { epoch_ms: file.base.epoch_ms + i64::from(entry.after_base) };
        EventHead { seq, at, run: self.runs[(entry.run_and_kind >> 8) as usize].id, kind }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RUNS: [RunId; 2] = [RunId::from_bytes([1; 16]), RunId::from_bytes([2; 16])];
    const KINDS: [EventKind; 3] =
        [EventKind::RunCreated, EventKind::MarkerEmitted, EventKind::RunCompleted];

    /// Events 1..=count over two runs, three kinds and files of `per_file` events.
    fn index(count: u64, per_file: u64) -> Index {
        let mut index = Index::default();
        for seq in 1..=count {
            let at = WallTime { epoch_ms: 1000 + seq as i64 };
            if (seq - 1) % per_file == 0 {
                index.begin_file(Seq(seq), at, 32);
            }
            let run = index.number(RUNS[seq as usize % 2]);
            let offset = 32 + 10 * ((seq - 1) % per_file) as u32;
            index.push(run, KINDS[seq as usize % 3], at, offset, offset + 10);
        }
        index
    }

    #[test]
    fn an_event_is_found_with_everything_about_it() {
        let index = index(10_000, 70);
        for seq in (1..=10_000).map(Seq) {
            let hit = index.locate(seq).expect("in the index");
            let head = EventHead {
                seq,
                at: WallTime { epoch_ms: 1000 + seq.0 as i64 },
                run: RUNS[seq.0 as usize % 2],
                kind: KINDS[seq.0 as usize % 3],
            };
            let in_file = (seq.0 - 1) % 70;
            assert_eq!(hit.head, head);
            assert_eq!((hit.file, hit.end - hit.offset), (Seq(seq.0 - in_file), 10));
        }
        assert!(index.locate(Seq(0)).is_none());
        assert!(index.locate(Seq(10_001)).is_none());
        assert_eq!(index.head(), Seq(10_000));
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
        let last = |index: &Index, before| {
            let mut before = Seq(before);
            let mut steps = 1;
            loop {
                match index.last_of(RUNS[0], before, EventKind::RunCreated) {
                    LastOf::Found(hit) => return (Some(hit.head.seq.0), steps),
                    LastOf::None => return (None, steps),
                    LastOf::GoOn(next) => before = next,
                }
                steps += 1;
            }
        };
        assert_eq!(last(&index, u64::MAX), (Some(96), 1));
        assert_eq!(last(&index, 96), (Some(90), 1));
        assert_eq!(last(&index, 6), (None, 1));
        for seq in 101..=10_101 {
            let number = index.number(RUNS[0]);
            let at = WallTime { epoch_ms: 2000 };
            index.push(number, EventKind::Vlm, at, seq, seq + 1);
        }
        assert_eq!(last(&index, u64::MAX), (Some(96), 3));
    }
}
