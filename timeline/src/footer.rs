//! Footer of a sealed journal file: its index, so that opening does not read the events.
//!
//! Lies between the last batch and the end of the file: runs, entries, a fixed trailer; in a compacted file
//! the entries have numbers. A footer is only a copy: a missing or damaged one is rebuilt from the events.

use media::{RunId, Seq, WallTime};

use crate::{
    EventMeta, batch,
    event::EventKind,
    index::{EVENTS_MAX, FileIndex, LogIndex},
    journal::JournalHeader,
    record::{self, checksum, put_checksum, u32_at, u64_at},
};

/// Magic, checksum, counts of runs and of events, end of the events, first seq, base time, and the seq after
/// the last, or 0 if every number has an event.
pub(crate) const TRAILER_BYTES: usize = 8 + 4 + 4 + 4 + 4 + 8 + 8 + 8;
const MAGIC: [u8; 8] = *b"SLFOOT\x01\xff";
const RUN_BYTES: usize = 16;
/// Offset, milliseconds after the base, index of the run in the footer, kind.
const ENTRY_BYTES: usize = 4 + 4 + 4 + 4;
/// As [`ENTRY_BYTES`], then the number relative to the first.
const SPARSE_ENTRY_BYTES: usize = ENTRY_BYTES + 4;

/// Builds the footer of file number `number` of `index`.
pub(crate) fn build(index: &LogIndex, number: usize) -> Vec<u8> {
    let file = index.file(number);
    let &FileIndex { first, base, end, .. } = file;
    let sparse = file.is_sparse();
    let mut runs = Vec::new();
    let mut numbers = std::collections::HashMap::new();
    let mut entries = Vec::new();
    for (offset, head) in index.file_events(number) {
        let number = *numbers.entry(head.run).or_insert_with(|| {
            runs.extend_from_slice(head.run.as_bytes());
            runs.len() / RUN_BYTES - 1
        }) as u32;
        let after_base = (head.at.epoch_ms - base.epoch_ms) as u32;
        for word in [offset, after_base, number, u32::from(head.kind.code())] {
            entries.extend_from_slice(&word.to_le_bytes());
        }
        if sparse {
            let after_first = (head.seq.0 - first.0) as u32;
            entries.extend_from_slice(&after_first.to_le_bytes());
        }
    }
    let run_count = (runs.len() / RUN_BYTES) as u32;
    let count = (entries.len() / entry_bytes(sparse)) as u32;
    let mut bytes = runs;
    bytes.append(&mut entries);
    let trailer = bytes.len();
    bytes.extend_from_slice(&MAGIC);
    bytes.extend_from_slice(&[0; 4]);
    for word in [run_count, count, end] {
        bytes.extend_from_slice(&word.to_le_bytes());
    }
    bytes.extend_from_slice(&first.0.to_le_bytes());
    bytes.extend_from_slice(&base.epoch_ms.to_le_bytes());
    let next = if sparse { file.next.0 } else { 0 };
    bytes.extend_from_slice(&next.to_le_bytes());
    put_checksum(&mut bytes, trailer + MAGIC.len());
    bytes
}

/// Returns the size of a footer, from the last bytes of its file; `None` if there is none.
pub(crate) fn size(trailer: &[u8; TRAILER_BYTES]) -> Option<usize> {
    let entry = entry_bytes(u64_at(trailer, 40) != 0);
    let sizes = [u32_at(trailer, 12) as usize * RUN_BYTES, u32_at(trailer, 16) as usize * entry];
    (trailer[..8] == MAGIC).then(|| sizes[0] + sizes[1] + TRAILER_BYTES)
}

fn entry_bytes(sparse: bool) -> usize {
    if sparse { SPARSE_ENTRY_BYTES } else { ENTRY_BYTES }
}

pub(crate) struct Footer<'a> {
    first: Seq,
    base: WallTime,
    pub(crate) end: u32,
    /// Number after the last.
    next: Seq,
    sparse: bool,
    runs: &'a [u8],
    entries: &'a [u8],
}

impl<'a> Footer<'a> {
    /// Reads the footer that fills `bytes`; `None` unless it is intact and all kinds are known.
    pub(crate) fn parse(bytes: &'a [u8]) -> Option<Footer<'a>> {
        let (body, trailer) = bytes.split_last_chunk::<TRAILER_BYTES>()?;
        let whole = size(trailer)? == bytes.len();
        if !whole || checksum(bytes, body.len() + MAGIC.len()) != u32_at(trailer, MAGIC.len()) {
            return None;
        }
        let (runs, entries) = body.split_at(u32_at(trailer, 12) as usize * RUN_BYTES);
        let (first, next) = (u64_at(trailer, 24), u64_at(trailer, 40));
        let sparse = next != 0;
        let count = (entries.len() / entry_bytes(sparse)) as u64;
        let next = if sparse { next } else { first.checked_add(count)? };
        let footer = Footer {
            first: Seq(first),
            next: Seq(next),
            sparse,
            base: WallTime { epoch_ms: u64_at(trailer, 32) as i64 },
            end: u32_at(trailer, 20),
            runs,
            entries,
        };
        footer.knows_all().then_some(footer)
    }

    /// Returns true if all kinds are known and the runs are numbered by first appearance.
    fn knows_all(&self) -> bool {
        let mut runs = 0;
        let known = self.entries().all(|entry| {
            let number = u32_at(entry, 8);
            runs += u32::from(number == runs);
            number < runs && EventKind::from_code(entry[12]).is_some()
        });
        known && runs as usize == self.runs.len() / RUN_BYTES
    }

    /// Returns true if the footer belongs to the file with this header, with the footer at `start` and the
    /// next file `successor`, and its records lie between header and footer in order.
    pub(crate) fn describes(&self, header: &JournalHeader, start: u64, successor: Seq) -> bool {
        let spanned = header
            .span
            .is_none_or(|span| (span.next, span.count) == (self.next, self.entries().len() as u64));
        (self.first, self.base, self.next) == (header.first, header.base, successor)
            && spanned
            && self.next.0 <= EVENTS_MAX + 1
            && u64::from(self.end) == start
            && self.is_in_order(header.len())
    }

    /// Returns true if records do not overlap and their numbers increase and precede those of the next file.
    fn is_in_order(&self, header_bytes: usize) -> bool {
        let (mut least_at, mut least) = (header_bytes + batch::HEADER_BYTES, self.first.0);
        let in_order = self.entries().zip(0..).all(|(entry, position)| {
            let (at, seq) = (u32_at(entry, 0) as usize, self.seq(entry, position).0);
            let ordered = at >= least_at && seq >= least;
            (least_at, least) = (at + record::HEADER_BYTES, seq + 1);
            ordered
        });
        in_order
            && (self.entries.is_empty() || least_at <= self.end as usize)
            && least <= self.next.0
    }

    fn entries(&self) -> std::slice::ChunksExact<'a, u8> {
        self.entries.chunks_exact(entry_bytes(self.sparse))
    }

    fn seq(&self, entry: &[u8], position: u64) -> Seq {
        let after_first =
            if self.sparse { u64::from(u32_at(entry, ENTRY_BYTES)) } else { position };
        Seq(self.first.0 + after_first)
    }

    /// Adds the events of the described file to `index`.
    pub(crate) fn load(&self, index: &mut LogIndex) {
        let ids = self.runs.as_chunks::<RUN_BYTES>().0.iter().map(|id| RunId::from_bytes(*id));
        let runs: Vec<(RunId, u32)> = ids.map(|id| (id, index.number(id))).collect();
        index.reserve(self.entries().len());
        let mut entries = self.entries().zip(0..).peekable();
        while let Some((entry, position)) = entries.next() {
            let kind = EventKind::from_code(entry[12]).expect("checked by parse");
            let epoch_ms = self.base.epoch_ms + i64::from(u32_at(entry, 4));
            let end = entries.peek().map_or(self.end, |(next, _)| u32_at(next, 0));
            let (run, number) = runs[u32_at(entry, 8) as usize];
            let seq = self.seq(entry, position);
            let head = EventMeta { seq, at: WallTime { epoch_ms }, run, kind };
            index.push_of(number, head, u32_at(entry, 0)..end);
        }
        index.end_file(self.next);
    }
}
