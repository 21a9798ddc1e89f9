//! Index of all events: 12 bytes an event by seq, and 4 bytes an event by run.
//!
//! In memory; loaded from the footers of sealed files when the log opens. Gaps between the numbers of a
//! compacted file cost 4 bytes an event more. Does no I/O.

mod replace;

use std::{
    collections::{HashMap, HashSet},
    ops::{ControlFlow, Range},
};

use media::{RunId, Seq, WallTime};

use crate::{EventMeta, event::EventKind};

/// Most runs of one log: their index shares 32 bits with the kind.
pub const RUNS_MAX: usize = 1 << 24;
/// Most events of one log: a run stores the seqs of its events in 32 bits.
pub const EVENTS_MAX: u64 = u32::MAX as u64;

/// Most events examined per lock, so that a reader does not hold up the writer for long.
const EXAMINED_MAX: usize = 4096;

#[derive(Clone, Copy)]
struct Entry {
    /// Start of the record in the file.
    offset: u32,
    /// Milliseconds after the file's base time.
    after_base: u32,
    /// Index of the run, then 8 bits of kind.
    run_and_kind: u32,
}

/// Events of one journal file.
pub(crate) struct FileIndex {
    pub(crate) first: Seq,
    /// Number after the last.
    pub(crate) next: Seq,
    pub(crate) base: WallTime,
    /// End of the last record.
    pub(crate) end: u32,
    generation: u32,
    entries: Vec<Entry>,
    /// Numbers of the entries relative to the first; empty without gaps.
    seqs: Vec<u32>,
}

impl FileIndex {
    /// Returns true if some of its numbers have no event.
    pub(crate) fn is_sparse(&self) -> bool {
        self.entries.len() as u64 != self.next.0 - self.first.0
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(crate) fn last_at(&self) -> Option<WallTime> {
        self.entries.last().map(|entry| self.at(entry))
    }

    fn at(&self, entry: &Entry) -> WallTime {
        WallTime { epoch_ms: self.base.epoch_ms + i64::from(entry.after_base) }
    }

    fn seq(&self, position: usize) -> Seq {
        let number = self.seqs.get(position).map_or(position as u64, |number| u64::from(*number));
        Seq(self.first.0 + number)
    }

    fn position(&self, seq: Seq) -> Option<usize> {
        let number = u32::try_from(seq.0.checked_sub(self.first.0)?).ok()?;
        if self.seqs.is_empty() {
            return Some(number as usize).filter(|position| *position < self.entries.len());
        }
        self.seqs.binary_search(&number).ok()
    }

    /// Returns the position of the first event from `from` on.
    fn position_from(&self, from: Seq) -> usize {
        let number = from.0.saturating_sub(self.first.0);
        if self.seqs.is_empty() {
            return (number as usize).min(self.entries.len());
        }
        self.seqs.partition_point(|seq| u64::from(*seq) < number)
    }

    /// Returns the start of the record after the one at `position`, or the end of the last.
    fn end_of(&self, position: usize) -> u32 {
        self.entries.get(position + 1).map_or(self.end, |next| next.offset)
    }

    fn bytes(&self, position: usize) -> u64 {
        u64::from(self.end_of(position) - self.entries[position].offset)
    }

    /// Returns true if an event at `at` cannot go into this file, because its time does not fit 32 bits.
    pub(crate) fn is_too_old_for(&self, at: WallTime) -> bool {
        u32::try_from(at.epoch_ms - self.base.epoch_ms).is_err()
    }
}

struct RunEvents {
    id: RunId,
    /// Seqs in order.
    events: Vec<u32>,
    /// Bytes of the run's records in the files, with their share of the framing.
    bytes: u64,
}

impl Entry {
    fn run(&self) -> usize {
        (self.run_and_kind >> 8) as usize
    }
}

/// Version of a journal file, which a compaction replaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileId {
    /// First seq of the file, which names it.
    pub(crate) first: Seq,
    generation: u32,
}

/// Location and head of one event.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EventLocation {
    pub(crate) head: EventMeta,
    pub(crate) file: FileId,
    pub(crate) offset: u32,
    /// Upper limit of the record's end.
    pub(crate) end: u32,
}

#[derive(Default)]
pub(crate) struct LogIndex {
    files: Vec<FileIndex>,
    runs: Vec<RunEvents>,
    numbers: HashMap<RunId, u32>,
    /// Indices of runs that have no events left.
    free: Vec<u32>,
    generation: u32,
}

impl LogIndex {
    /// Returns the last number given to an event; 0 if there is none.
    pub(crate) fn head(&self) -> Seq {
        Seq(self.files.last().map_or(0, |file| file.next.0 - 1))
    }

    pub(crate) fn len(&self) -> u64 {
        self.files.iter().map(|file| file.entries.len() as u64).sum()
    }

    /// Returns the number of runs with an event.
    pub(crate) fn run_count(&self) -> usize {
        self.numbers.len()
    }

    /// Returns true if at most `max` runs have an event once each of `runs` has one.
    pub(crate) fn can_number(&self, runs: impl Iterator<Item = RunId>, max: usize) -> bool {
        let new: HashSet<RunId> = runs.filter(|run| !self.numbers.contains_key(run)).collect();
        self.run_count() + new.len() <= max
    }

    /// Returns the bytes of the records of `run` in the files.
    pub(crate) fn run_bytes(&self, run: RunId) -> u64 {
        self.numbers.get(&run).map_or(0, |number| self.runs[*number as usize].bytes)
    }

    pub(crate) fn file_count(&self) -> usize {
        self.files.len()
    }

    pub(crate) fn file(&self, number: usize) -> &FileIndex {
        &self.files[number]
    }

    /// Begins the next file, whose first event is `first` and whose records start at `start`.
    pub(crate) fn begin_file(&mut self, first: Seq, base: WallTime, start: u32) {
        if let Some(sealed) = self.files.last_mut() {
            sealed.entries.shrink_to_fit();
        }
        let (entries, seqs, next) = (Vec::new(), Vec::new(), first);
        let generation = self.generation;
        self.files.push(FileIndex { first, next, base, end: start, generation, entries, seqs });
    }

    /// Sets the number before which the last file covers all.
    pub(crate) fn end_file(&mut self, next: Seq) {
        if let Some(file) = self.files.last_mut() {
            file.next = next;
        }
    }

    /// Sets the base time of the last file, which must be empty.
    pub(crate) fn rebase_last_file(&mut self, base: WallTime) {
        if let Some(file) = self.files.last_mut() {
            file.base = base;
        }
    }

    /// Returns the index of `run`, assigning one if it is new.
    pub(crate) fn number(&mut self, run: RunId) -> u32 {
        let (runs, free) = (&mut self.runs, &mut self.free);
        *self.numbers.entry(run).or_insert_with(|| {
            let fresh = RunEvents { id: run, events: Vec::new(), bytes: 0 };
            if let Some(number) = free.pop() {
                runs[number as usize] = fresh;
                return number;
            }
            runs.push(fresh);
            u32::try_from(runs.len() - 1).expect("RUNS_MAX fits")
        })
    }

    /// Reserves memory for `count` entries of the last file.
    pub(crate) fn reserve(&mut self, count: usize) {
        if let Some(file) = self.files.last_mut() {
            file.entries.reserve_exact(count);
        }
    }

    /// Adds an event after the head to the last file; its record spans `record`.
    pub(crate) fn push(&mut self, event: EventMeta, record: Range<u32>) {
        let run = self.number(event.run);
        self.push_of(run, event, record);
    }

    /// As [`LogIndex::push`], for an event of the run with index `run`.
    pub(crate) fn push_of(&mut self, run: u32, event: EventMeta, record: Range<u32>) {
        let file = self.files.last_mut().expect("a file is begun before its events");
        let after_base = u32::try_from(event.at.epoch_ms - file.base.epoch_ms)
            .expect("the writer begins a file before times outgrow it");
        let seq = u32::try_from(event.seq.0).expect("EVENTS_MAX fits");
        let (number, position) = ((event.seq.0 - file.first.0) as u32, file.entries.len() as u32);
        if number != position && file.seqs.is_empty() {
            file.seqs.extend(0..position);
        }
        if number != position || !file.seqs.is_empty() {
            file.seqs.push(number);
        }
        if let Some(before) = file.entries.last() {
            self.runs[before.run()].bytes += u64::from(record.start - file.end);
        }
        let run_and_kind = run << 8 | u32::from(event.kind.code());
        file.entries.push(Entry { offset: record.start, after_base, run_and_kind });
        file.next = Seq(event.seq.0 + 1);
        file.end = record.end;
        let run = &mut self.runs[run as usize];
        run.events.push(seq);
        run.bytes += u64::from(record.end - record.start);
    }

    pub(crate) fn shrink(&mut self) {
        self.runs.iter_mut().for_each(|run| run.events.shrink_to_fit());
        self.files.iter_mut().for_each(|file| {
            file.entries.shrink_to_fit();
            file.seqs.shrink_to_fit();
        });
    }

    pub(crate) fn last_at(&self) -> Option<WallTime> {
        self.files.iter().rev().find_map(FileIndex::last_at)
    }

    pub(crate) fn last_file(&self) -> Option<&FileIndex> {
        self.files.last()
    }

    /// Returns the events of file number `file`, each with the offset of its record.
    pub(crate) fn file_events(&self, file: usize) -> impl Iterator<Item = (u32, EventMeta)> + '_ {
        let file = &self.files[file];
        let numbered = file.entries.iter().enumerate();
        numbered.map(|(position, entry)| (entry.offset, self.head_of(file, position)))
    }

    /// Returns up to `count` events of file number `file` from position `from` on.
    pub(crate) fn hits(&self, file: usize, from: usize, count: usize) -> Vec<EventLocation> {
        let file = &self.files[file];
        let to = file.entries.len().min(from + count);
        (from..to).map(|position| self.hit_at(file, position)).collect()
    }

    pub(crate) fn locate(&self, seq: Seq) -> Option<EventLocation> {
        let file = self.files.partition_point(|file| file.first <= seq).checked_sub(1)?;
        let file = &self.files[file];
        file.position(seq).map(|position| self.hit_at(file, position))
    }

    /// Returns up to `count` events from `from` on; numbers without an event are skipped.
    pub(crate) fn heads_from(&self, from: Seq, count: usize) -> Vec<EventMeta> {
        let start = self.files.partition_point(|file| file.next <= from);
        let heads = self.files[start..].iter().flat_map(|file| {
            let positions = file.position_from(from)..file.entries.len();
            positions.map(|position| self.head_of(file, position))
        });
        heads.take(count).collect()
    }

    /// Adds to `hits` the events of `run` from `from` on, up to `limit`, and only of `kind` if given.
    ///
    /// Examines a limited number of events; returns the number from which to continue, if any.
    pub(crate) fn collect(
        &self,
        run: RunId,
        from: Seq,
        limit: usize,
        kind: Option<EventKind>,
        hits: &mut Vec<EventLocation>,
    ) -> Option<Seq> {
        let events = &self.runs[*self.numbers.get(&run)? as usize].events;
        let start = events.partition_point(|seq| u64::from(*seq) < from.0);
        for (examined, seq) in events[start..].iter().map(|seq| Seq(u64::from(*seq))).enumerate() {
            if hits.len() == limit {
                return None;
            }
            if examined == EXAMINED_MAX {
                return Some(seq);
            }
            let hit = self.locate(seq)?;
            if kind.is_none_or(|kind| hit.head.kind == kind) {
                hits.push(hit);
            }
        }
        None
    }

    /// Returns the last event of `run` and `kind` before `before`.
    ///
    /// Examines a limited number of events; `Continue` holds the number before which to go on.
    pub(crate) fn last_of(
        &self,
        run: RunId,
        before: Seq,
        kind: EventKind,
    ) -> ControlFlow<Option<EventLocation>, Seq> {
        let Some(number) = self.numbers.get(&run) else { return ControlFlow::Break(None) };
        let events = &self.runs[*number as usize].events;
        let older = events.partition_point(|seq| u64::from(*seq) < before.0);
        for (examined, seq) in events[..older].iter().rev().enumerate() {
            match self.locate(Seq(u64::from(*seq))) {
                Some(hit) if hit.head.kind == kind => return ControlFlow::Break(Some(hit)),
                Some(hit) if examined == EXAMINED_MAX => {
                    return ControlFlow::Continue(hit.head.seq);
                }
                _ => {}
            }
        }
        ControlFlow::Break(None)
    }

    /// Returns the bytes of the index, without the table from run id to index.
    pub(crate) fn memory_bytes(&self) -> usize {
        let files = self.files.iter().map(|file| {
            file.entries.capacity() * size_of::<Entry>() + file.seqs.capacity() * size_of::<u32>()
        });
        let runs = self.runs.iter().map(|run| run.events.capacity() * size_of::<u32>());
        files.sum::<usize>() + runs.sum::<usize>() + self.runs.capacity() * size_of::<RunEvents>()
    }

    fn hit_at(&self, file: &FileIndex, position: usize) -> EventLocation {
        let offset = file.entries[position].offset;
        let id = FileId { first: file.first, generation: file.generation };
        let head = self.head_of(file, position);
        EventLocation { head, file: id, offset, end: file.end_of(position) }
    }

    fn head_of(&self, file: &FileIndex, position: usize) -> EventMeta {
        let entry = &file.entries[position];
        let kind = EventKind::from_code(entry.run_and_kind as u8).expect("stored from a kind");
        let run = self.runs[entry.run()].id;
        EventMeta { seq: file.seq(position), at: file.at(entry), run, kind }
    }
}

#[cfg(test)]
mod tests;
