//! Compaction: rewrites sealed files without the events of purged runs.
//!
//! The other events keep their numbers and times. A new file is written aside, synced and renamed over the
//! first of the files that it replaces; the others are removed once that is durable, and opening ignores them
//! until then. A crash at any point leaves every event in exactly one valid file. Readers and the writer
//! continue; a damaged file stays as it is, and so do the later events of its runs.

use std::{
    collections::HashSet,
    io,
    ops::{ControlFlow, Range},
    sync::Arc,
};

use media::{ErrorKind, RunId, Seq, WallTime};

use crate::{
    EventMeta, Result, TimelineError,
    batch::BatchBuilder,
    footer,
    index::LogIndex,
    journal::{self, JournalHeader, SeqRange},
    log_state::SharedLog,
    storage::StorageFile,
};

/// Events looked up per lock of the index.
const STEP: usize = 1024;
/// Bytes of records per batch of a compacted file.
const BATCH_BYTES: usize = 256 << 10;
/// Bytes written between two syncs.
const SYNC_BYTES: usize = 4 << 20;
/// Least number of adjacent files without purged events that are merged into one.
const MERGED_FILES: usize = 8;

/// Results of a compaction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CompactionStats {
    /// Number of journal files that were replaced.
    pub files_before: u64,
    /// Number of journal files that replace them.
    pub files_after: u64,
    /// Number of events of purged runs that were removed.
    pub events_removed: u64,
    /// Bytes of the copied events.
    pub bytes_copied: u64,
    /// True if it was stopped before its end.
    pub stopped: bool,
}

/// Called with the number of bytes after each write; `Break` stops the compaction.
pub type CompactionThrottle<'a> = &'a mut dyn FnMut(usize) -> ControlFlow<()>;

/// Numbers of adjacent sealed files to rewrite as one.
type Group = Range<Seq>;

/// Returns true if the file that is being written holds events of `purged`.
pub(crate) fn concerns_last(index: &LogIndex, purged: &HashSet<RunId>) -> bool {
    let last = index.file_count().checked_sub(1);
    last.is_some_and(|last| index.bytes_of(purged.iter().copied()).contains_key(&last))
}

/// Rewrites the sealed files of `store` without the events of `purged`, in order, so that a run's creation
/// never outlives its deletion. Returns the first damage once the files behind it are rewritten.
pub(crate) fn compact(
    store: &SharedLog,
    purged: &HashSet<RunId>,
    file_bytes: u64,
    pace: CompactionThrottle<'_>,
) -> Result<CompactionStats> {
    let (mut done, mut damage, mut purged) = (CompactionStats::default(), Ok(()), purged.clone());
    let mut groups = plan(&store.index(), &purged, file_bytes, Seq(0)).into_iter();
    while !done.stopped
        && let Some(group) = groups.next()
    {
        match rewrite(store, &group, &purged, pace, &mut done) {
            Err(error) if error.kind() == ErrorKind::DataLoss => {
                let index = store.index();
                let files = index.files_in(group.start, group.end);
                for (_, head) in files.flat_map(|file| index.file_events(file)) {
                    purged.remove(&head.run);
                }
                groups = plan(&index, &purged, file_bytes, group.end).into_iter();
                damage = damage.and(Err(error));
            }
            step => done.stopped = step?.is_break(),
        }
    }
    damage.map(|()| done)
}

/// Groups the sealed files from `after` on.
fn plan(index: &LogIndex, purged: &HashSet<RunId>, file_bytes: u64, after: Seq) -> Vec<Group> {
    let garbage = index.bytes_of(purged.iter().copied());
    let live = |file: usize| {
        u64::from(index.file(file).end) - garbage.get(&file).copied().unwrap_or_default()
    };
    let sealed = index.file_count().saturating_sub(1);
    let (mut groups, mut from) = (Vec::new(), index.files_in(after, after).start);
    while from < sealed {
        let (mut to, mut bytes) = (from + 1, live(from));
        while to < sealed && bytes + live(to) <= file_bytes {
            let at = index.file(to).last_at().unwrap_or(index.file(to).base);
            if index.file(from).is_too_old_for(at) {
                break;
            }
            bytes += live(to);
            to += 1;
        }
        if garbage.range(from..to).next().is_some() || to - from >= MERGED_FILES {
            groups.push(index.file(from).first..index.file(to).first);
        }
        from = to;
    }
    groups
}

fn rewrite(
    store: &SharedLog,
    group: &Group,
    purged: &HashSet<RunId>,
    pace: CompactionThrottle<'_>,
    done: &mut CompactionStats,
) -> Result<ControlFlow<()>> {
    let temporary = journal::temporary_name(group.start);
    let lost = |source| TimelineError::io("find the journal", store.disk.path(""))(source);
    // A file made in another directory would replace none of these.
    if !store.is_in_place().map_err(lost)? {
        return Err(lost(io::Error::other("it was moved or replaced")));
    }
    let written = write(store, group, purged, &temporary, pace);
    let Ok(ControlFlow::Continue((made, bytes))) = written else {
        // Best effort: the next opening of the log removes a leftover.
        drop(store.disk.remove(&temporary));
        return written.map(|_| ControlFlow::Break(()));
    };
    let events = made.len();
    let name = journal::file_name(group.start);
    let io = |what| TimelineError::io(what, store.disk.path(&name));
    let rename = || store.disk.rename(&temporary, &name);
    let replaced = store.replace(made, rename).map_err(io("name a compacted file"))?;
    store.disk.sync_names().map_err(io("sync the journal's directory"))?;
    for file in &replaced[1..] {
        let name = journal::file_name(file.first);
        let io = TimelineError::io("remove a compacted file", store.disk.path(&name));
        store.disk.remove(&name).map_err(io)?;
    }
    done.files_before += replaced.len() as u64;
    done.files_after += 1;
    done.events_removed += replaced.iter().map(|file| file.len() as u64).sum::<u64>() - events;
    done.bytes_copied += bytes;
    Ok(ControlFlow::Continue(()))
}

/// Writes the file of `group` durably under a temporary name; returns its index and the bytes of its events.
fn write(
    store: &SharedLog,
    group: &Group,
    purged: &HashSet<RunId>,
    temporary: &str,
    pace: CompactionThrottle<'_>,
) -> Result<ControlFlow<(), (LogIndex, u64)>> {
    let io = |what| TimelineError::io(what, store.disk.path(temporary));
    let file = store.disk.create(temporary).map_err(io("create a compacted file"))?;
    let files = store.index().files_in(group.start, group.end);
    let mut output = Output::new(file, group.start, store.index().file(files.start).base);
    let mut buffer = Vec::new();
    for number in files {
        for from in (0..).step_by(STEP) {
            let hits = store.index().hits(number, from, STEP);
            for hit in hits.iter().filter(|hit| !purged.contains(&hit.head.run)) {
                let record_bytes = store.record(hit, &mut buffer)?.record_bytes();
                let pushed = output.push(hit.head, &buffer[..record_bytes]);
                let written = pushed.map_err(io("write a compacted file"))?;
                if written > 0 && pace(written).is_break() {
                    return Ok(ControlFlow::Break(()));
                }
            }
            if hits.len() < STEP {
                break;
            }
        }
    }
    let finished = output.finish(group.end).map_err(io("write a compacted file"))?;
    Ok(ControlFlow::Continue(finished))
}

/// Compacted file that is being written.
struct Output {
    file: Arc<dyn StorageFile>,
    header: JournalHeader,
    index: LogIndex,
    batch: BatchBuilder,
    /// Offset of the next batch.
    position: usize,
    unsynced: usize,
}

impl Output {
    fn new(file: Arc<dyn StorageFile>, first: Seq, base: WallTime) -> Output {
        let header = JournalHeader { first, base, span: Some(SeqRange { next: first, count: 0 }) };
        let mut index = LogIndex::default();
        index.begin_file(first, base, header.len() as u32);
        let batch = BatchBuilder::new(Vec::new(), first);
        Output { file, index, batch, position: header.len(), header, unsynced: 0 }
    }

    /// Adds a record, after writing the batch if it is full; returns the bytes written.
    fn push(&mut self, head: EventMeta, record: &[u8]) -> io::Result<usize> {
        let full = self.batch.len() >= BATCH_BYTES;
        let written = if full { self.flush(head.seq)? } else { 0 };
        let start = self.position + self.batch.len();
        self.batch.push(|out| out.extend_from_slice(record));
        self.index.push(head, start as u32..(start + record.len()) as u32);
        Ok(written)
    }

    /// Writes the batch, which covers all numbers before `next`.
    fn flush(&mut self, next: Seq) -> io::Result<usize> {
        let batch = std::mem::replace(&mut self.batch, BatchBuilder::new(Vec::new(), next));
        let bytes = batch.finish_before(next);
        self.file.write_all_at(&bytes, self.position as u64)?;
        self.position += bytes.len();
        self.unsynced += bytes.len();
        // Syncs in steps: one sync of a whole file would delay those of the writer.
        if self.unsynced >= SYNC_BYTES {
            self.file.sync()?;
            self.unsynced = 0;
        }
        Ok(bytes.len())
    }

    fn finish(mut self, next: Seq) -> io::Result<(LogIndex, u64)> {
        if self.index.len() > 0 {
            self.flush(next)?;
        }
        self.index.end_file(next);
        self.file.write_all_at(&footer::build(&self.index, 0), self.position as u64)?;
        self.header.span = Some(SeqRange { next, count: self.index.len() });
        self.file.write_all_at(&self.header.bytes(), 0)?;
        self.file.sync()?;
        let bytes = self.position - self.header.len();
        Ok((self.index, bytes as u64))
    }
}
