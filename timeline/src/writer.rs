//! The one writer: drains a group, writes it, syncs it, publishes it, then acknowledges it.
//!
//! Nothing is published or acknowledged before it is durable. A failure with an unknown effect on the disk,
//! or a panic, poisons the log: every later batch is refused and nothing is retried.

use std::{ops::Range, sync::Arc};

use media::{Seq, WallTime};

use crate::{
    EventKind, EventMeta, LogState, Result, SyncObserver, TimelineError, batch, footer,
    index::{EVENTS_MAX, RUNS_MAX},
    journal::{self, Journal},
    log_state::SharedLog,
    queue::{AppendQueue, AppendRequest},
};

/// Reason that the log is poisoned after a panic of the writer's thread.
pub(crate) const STOPPED: &str = "the writer stopped by a bug";

/// Capacity above which the buffer is freed after a huge batch.
const BUFFER_KEPT_BYTES: usize = 4 << 20;

pub(crate) struct LogWriter {
    pub(crate) store: Arc<SharedLog>,
    pub(crate) queue: Arc<AppendQueue>,
    pub(crate) journal: Journal,
    pub(crate) clock: Arc<dyn Fn() -> WallTime + Send + Sync>,
    pub(crate) on_sync: SyncObserver,
    /// Time of the last event; no later event gets an earlier one.
    pub(crate) last: WallTime,
    /// Buffer of the last batch, reused.
    pub(crate) buffer: Vec<u8>,
}

/// Event of a group in its batch.
struct Placed {
    head: EventMeta,
    /// Range of the record in the batch.
    record: Range<usize>,
}

impl LogWriter {
    /// Writes until the queue is closed and empty.
    pub(crate) fn run(mut self) {
        let guard = PanicGuard { store: self.store.clone(), queue: self.queue.clone() };
        while let Some(group) = self.queue.drain() {
            self.serve(group);
        }
        drop(guard);
    }

    fn serve(&mut self, mut group: Vec<AppendRequest>) {
        match self.commit(&group) {
            Ok(placed) => acknowledge(group, &placed),
            Err(TimelineError::Poisoned { reason }) => {
                self.store.poison(&reason);
                refuse(group, &reason);
            }
            // Requests refused together may fit one by one, and those that end a run may use the spare space.
            Err(_) if group.len() > 1 => {
                group.into_iter().for_each(|request| self.serve(vec![request]));
            }
            Err(error) => {
                let request = group.pop().expect("no group is empty");
                (request.ack)(Err(error));
            }
        }
    }

    /// Makes `group` durable and readable.
    fn commit(&mut self, group: &[AppendRequest]) -> Result<Vec<Placed>> {
        if let LogState::Poisoned { reason } = self.store.health() {
            return Err(TimelineError::Poisoned { reason });
        }
        self.last = (self.clock)().max(self.last);
        let at = self.last;
        let records: usize = group.iter().map(|request| request.drafts.len()).sum();
        let bytes: usize = group.iter().map(|request| request.bytes).sum();
        if group.iter().any(|request| request.seal) {
            self.rotate(at)?;
        }
        if records == 0 {
            // Only empty batches; in the journal they would be marks of its end.
            return Ok(Vec::new());
        }
        let head = self.check_room(group, records)?;
        let mut kinds = group.iter().flat_map(|request| &request.drafts).map(|draft| draft.kind);
        let urgent = kinds.all(EventKind::ends_run);
        self.rotate_for(batch::HEADER_BYTES + bytes, at, urgent)?;
        let mut seq = head;
        let mut builder =
            batch::BatchBuilder::new(std::mem::take(&mut self.buffer), Seq(head.0 + 1));
        let mut placed = Vec::with_capacity(records);
        for draft in group.iter().flat_map(|request| &request.drafts) {
            seq = Seq(seq.0 + 1);
            let start = builder.len();
            builder.push(|out| draft.put(out, seq, at));
            let head = EventMeta { seq, at, run: draft.run, kind: draft.kind };
            placed.push(Placed { head, record: start..builder.len() });
        }
        self.buffer = builder.finish();
        let start = self.journal.append(&self.buffer, records as u64, urgent, &self.on_sync)?;
        if self.buffer.capacity() > BUFFER_KEPT_BYTES {
            self.buffer = Vec::new();
        }
        self.publish(&placed, start as usize);
        Ok(placed)
    }

    /// Returns the head if the log can number the `records` events of `group`, and their runs.
    fn check_room(&self, group: &[AppendRequest], records: usize) -> Result<Seq> {
        let index = self.store.index();
        let head = index.head();
        if head.0 + records as u64 > EVENTS_MAX {
            return Err(TimelineError::LogFull { limit: EVENTS_MAX, unit: "events" });
        }
        let runs = group.iter().flat_map(|request| &request.drafts).map(|draft| draft.run);
        // Near the limit only: most events are of runs that have a number.
        if index.run_count() + records > RUNS_MAX && !index.can_number(runs, RUNS_MAX) {
            return Err(TimelineError::LogFull { limit: RUNS_MAX as u64, unit: "runs" });
        }
        Ok(head)
    }

    /// Begins another file if the last one has no room for `bytes` or cannot store the time `at`.
    fn rotate_for(&mut self, bytes: usize, at: WallTime, urgent: bool) -> Result<()> {
        let old = self.store.index().last_file().is_some_and(|file| file.is_too_old_for(at));
        if !old && !self.journal.is_full_for(bytes) {
            return Ok(());
        }
        if self.journal.is_empty() {
            self.store
                .change_written(&mut self.journal, |journal| journal.truncate_to_empty(at))?;
            self.store.index_mut().rebase_last_file(at);
            return Ok(());
        }
        match self.rotate(at) {
            // No room for another file: events that end a run use the spare space of this one.
            Err(error)
                if !matches!(error, TimelineError::Poisoned { .. })
                    && (urgent && !old && self.journal.has_room_for(bytes)) =>
            {
                Ok(())
            }
            rotated => rotated,
        }
    }

    /// Seals the last file, unless it is empty, and begins another.
    fn rotate(&mut self, at: WallTime) -> Result<()> {
        if self.journal.is_empty() {
            return Ok(());
        }
        let footer = {
            let index = self.store.index();
            footer::build(&index, index.file_count() - 1)
        };
        self.store.change_written(&mut self.journal, |journal| journal.rotate(at, &footer))?;
        let first = self.journal.next();
        self.store.index_mut().begin_file(first, at, journal::HEADER_BYTES as u32);
        Ok(())
    }

    fn publish(&self, placed: &[Placed], start: usize) {
        let mut index = self.store.index_mut();
        for event in placed {
            let (from, to) = (start + event.record.start, start + event.record.end);
            index.push(event.head, from as u32..to as u32);
        }
        drop(index);
        let heads: Vec<EventMeta> = placed.iter().map(|event| event.head).collect();
        self.store.notify_listeners(&heads);
    }
}

/// Answers each request of `group` that the log was poisoned for `reason`.
fn refuse(group: Vec<AppendRequest>, reason: &str) {
    for request in group {
        (request.ack)(Err(TimelineError::Poisoned { reason: reason.to_owned() }));
    }
}

fn acknowledge(group: Vec<AppendRequest>, placed: &[Placed]) {
    let mut rest = placed;
    for AppendRequest { drafts, ack, .. } in group {
        let (own, others) = rest.split_at(drafts.len());
        rest = others;
        ack(Ok(own.iter().map(|event| event.head).collect()));
    }
}

/// Reports a panic of the writer's thread to all waiting and later callers.
struct PanicGuard {
    store: Arc<SharedLog>,
    queue: Arc<AppendQueue>,
}

impl Drop for PanicGuard {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            return;
        }
        self.store.poison(STOPPED);
        self.queue.close();
        while let Some(group) = self.queue.drain() {
            refuse(group, STOPPED);
        }
    }
}
