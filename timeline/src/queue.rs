//! Bounded queue between producers and the one writer.

use std::collections::VecDeque;

use crate::{
    EventMeta, Result, TimelineError,
    record::RecordBuilder,
    sync::{Condvar, Mutex, MutexGuard},
};

/// Most records queued for the writer.
pub const QUEUE_RECORDS_MAX: usize = 1 << 17;
/// Most bytes queued for the writer.
pub const QUEUE_BYTES_MAX: usize = 64 << 20;
/// Most records of a group of batches; one larger batch is a group of its own.
const GROUP_RECORDS: usize = 1024;
/// Most bytes of a group of batches; one larger batch is a group of its own.
const GROUP_BYTES: usize = 1 << 20;

pub(crate) type Ack = Box<dyn FnOnce(Result<Vec<EventMeta>>) + Send>;

pub(crate) struct AppendRequest {
    pub(crate) drafts: Vec<RecordBuilder>,
    pub(crate) bytes: usize,
    /// True if the last file is to be sealed before the batch.
    pub(crate) seal: bool,
    pub(crate) ack: Ack,
}

#[derive(Default)]
pub(crate) struct AppendQueue {
    state: Mutex<State>,
    /// Notified when a request is queued, or the queue is closed.
    filled: Condvar,
    /// Notified when there is room, or the queue is closed.
    drained: Condvar,
}

#[derive(Default)]
struct State {
    requests: VecDeque<AppendRequest>,
    records: usize,
    bytes: usize,
    closed: bool,
}

impl State {
    /// Returns the error of the limit that `request` would exceed; an empty queue takes any request.
    fn limit_for(&self, request: &AppendRequest) -> Option<TimelineError> {
        if self.requests.is_empty() {
            return None;
        }
        if self.records + request.drafts.len() > QUEUE_RECORDS_MAX {
            return Some(TimelineError::QueueFull { limit: QUEUE_RECORDS_MAX, unit: "events" });
        }
        let full = self.bytes + request.bytes > QUEUE_BYTES_MAX;
        full.then_some(TimelineError::QueueFull { limit: QUEUE_BYTES_MAX, unit: "bytes" })
    }
}

impl AppendQueue {
    /// Queues `request`, or acknowledges it with an error if the queue is full or closed.
    pub(crate) fn push(&self, request: AppendRequest) {
        self.push_to(self.lock(), request);
    }

    /// Queues `request`, blocking until there is room.
    pub(crate) fn push_wait(&self, request: AppendRequest) {
        let full = |state: &mut State| !state.closed && state.limit_for(&request).is_some();
        let waited = self.drained.wait_while(self.lock(), full);
        self.push_to(waited.expect("no holder of the queue panics"), request);
    }

    fn push_to(&self, mut state: MutexGuard<'_, State>, request: AppendRequest) {
        let refused =
            if state.closed { Some(TimelineError::Closed) } else { state.limit_for(&request) };
        if let Some(error) = refused {
            drop(state);
            return (request.ack)(Err(error));
        }
        state.records += request.drafts.len();
        state.bytes += request.bytes;
        state.requests.push_back(request);
        self.filled.notify_one();
    }

    /// Returns the next group of whole batches, blocking until there is one; `None` once closed and empty.
    pub(crate) fn drain(&self) -> Option<Vec<AppendRequest>> {
        let waiting = |state: &mut State| state.requests.is_empty() && !state.closed;
        let waited = self.filled.wait_while(self.lock(), waiting);
        let mut state = waited.expect("no holder of the queue panics");
        let mut group = Vec::new();
        let (mut records, mut bytes) = (0, 0);
        while let Some(next) = state.requests.front() {
            let fits =
                records + next.drafts.len() <= GROUP_RECORDS && bytes + next.bytes <= GROUP_BYTES;
            if !fits && !group.is_empty() {
                break;
            }
            records += next.drafts.len();
            bytes += next.bytes;
            group.extend(state.requests.pop_front());
        }
        state.records -= records;
        state.bytes -= bytes;
        self.drained.notify_all();
        (!group.is_empty()).then_some(group)
    }

    /// Refuses further requests; queued ones are still drained.
    pub(crate) fn close(&self) {
        self.lock().closed = true;
        self.filled.notify_all();
        self.drained.notify_all();
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.lock().closed
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no holder of the queue panics")
    }
}
