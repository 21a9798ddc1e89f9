//! The append-only event store.
#![forbid(unsafe_code)]

mod error;
mod event;
mod marker;

use std::{path::Path, sync::Arc};

use media::{BlobHash, RunId, Seq, Signal, StreamId, WallTime};

pub use error::TimelineError;
pub use event::*;
pub use marker::{FrameFinding, MarkerConfig, derive_markers};

type Result<T> = std::result::Result<T, TimelineError>;

/// Settings of a log.
#[derive(Clone)]
pub struct Options {
    /// A journal file is sealed before it grows past this.
    pub file_bytes: u64,
    /// Journal files grow by this much zero-filled space at a time.
    pub grow_bytes: u64,
    /// Reads wall time; the log never lets it go backwards.
    pub clock: Arc<dyn Fn() -> WallTime + Send + Sync>,
}

impl Default for Options {
    fn default() -> Options {
        let clock = Arc::new(|| WallTime { epoch_ms: 0 });
        Options { file_bytes: 64 << 20, grow_bytes: 4 << 20, clock }
    }
}

/// What opening a log found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recovery {
    /// Events in the log.
    pub events: u64,
    /// Journal files.
    pub files: u64,
}

/// Where an appended event stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Appended {
    /// Its position in the one order.
    pub seq: Seq,
    /// When the writer took it.
    pub at: WallTime,
}

/// Everything about a stored event but its payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventHead {
    /// Its position in the one order.
    pub seq: Seq,
    /// When the writer took it.
    pub at: WallTime,
    /// Its run.
    pub run: RunId,
    /// Its kind.
    pub kind: EventKind,
}

/// A stored event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredEvent {
    /// Everything but the payload.
    pub head: EventHead,
    /// The payload as JSON text.
    pub payload: Box<str>,
}

impl StoredEvent {
    /// The event that was appended.
    pub fn decode(&self) -> Result<Event> {
        Err(TimelineError::Closed)
    }
}

/// Whether the log takes events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Health {
    /// It does.
    Writable,
    /// A write to disk failed; reading goes on.
    Poisoned {
        /// The first failure.
        reason: String,
    },
    /// Closed, or opened for reading only.
    Closed,
}

/// The event store; clones share it.
#[derive(Clone)]
pub struct Timeline(Arc<()>);

impl Timeline {
    /// Opens the log in `dir` for writing and creates it when there is none.
    pub fn open(dir: &Path, options: Options) -> Result<(Timeline, Recovery)> {
        let _unused = (dir, options);
        Err(TimelineError::Closed)
    }

    /// Opens the log in `dir` for reading; a torn tail is ignored, not cut.
    pub fn open_read_only(dir: &Path) -> Result<(Timeline, Recovery)> {
        let _unused = dir;
        Err(TimelineError::Closed)
    }

    /// Appends `batch` whole or not at all; `ack` is called when it is durable and readable.
    pub fn append(
        &self,
        batch: Vec<NewEvent>,
        ack: impl FnOnce(Result<Vec<Appended>>) + Send + 'static,
    ) {
        let _unused = batch;
        ack(Err(TimelineError::Closed));
    }

    /// Appends `batch` and waits until it is durable and readable, also for room in the queue.
    pub fn append_wait(&self, batch: Vec<NewEvent>) -> Result<Vec<Appended>> {
        let _unused = batch;
        Err(TimelineError::Closed)
    }

    /// Up to `limit` events of `run` from `from` on, in order, of one kind or all.
    pub fn read(
        &self,
        run: RunId,
        from: Seq,
        limit: usize,
        kind: Option<EventKind>,
    ) -> Result<Vec<StoredEvent>> {
        let _unused = (run, from, limit, kind);
        Err(TimelineError::Closed)
    }

    /// The event at `seq`; `None` past the head.
    pub fn get(&self, seq: Seq) -> Result<Option<StoredEvent>> {
        let _unused = seq;
        Err(TimelineError::Closed)
    }

    /// The last event of `run` of this kind.
    pub fn latest(&self, run: RunId, kind: EventKind) -> Option<EventHead> {
        let _unused = (run, kind);
        None
    }

    /// The newest `frames_decoded` of `run` (and `stream`, where given), its signals as stored.
    pub fn latest_frames(
        &self,
        run: RunId,
        stream: Option<&StreamId>,
    ) -> Result<Option<(EventHead, FramesDecoded)>> {
        let _unused = (run, stream);
        Err(TimelineError::Closed)
    }

    /// The signals themselves, read from their column file where they are in one.
    pub fn signals(&self, signals: &Signals) -> Result<Vec<Signal>> {
        let _unused = signals;
        Err(TimelineError::Closed)
    }

    /// Collects the signals of a decode pass for a `frames_decoded` event of this log.
    pub fn column_writer(&self) -> ColumnWriter {
        ColumnWriter { inline: Vec::new() }
    }

    /// The last readable event; 0 when there is none.
    pub fn head(&self) -> Seq {
        Seq(0)
    }

    /// Calls `visit` for every event in order, from memory.
    pub fn scan(&self, visit: impl FnMut(EventHead)) {
        let _unused = visit;
    }

    /// Has `listener` called on the writer's thread with what became readable, before the acks.
    pub fn on_publish(&self, listener: Box<dyn Fn(&[EventHead]) + Send + Sync>) {
        let _unused = listener;
    }

    /// Whether the log takes events.
    pub fn state(&self) -> Health {
        Health::Closed
    }

    /// Writes what is queued, then refuses further events.
    pub fn close(&self) {}
}

/// Collects signals: few stay inline, many go to a column file.
pub struct ColumnWriter {
    inline: Vec<Signal>,
}

impl ColumnWriter {
    /// Adds the next signal.
    pub fn push(&mut self, signal: &Signal) -> Result<()> {
        self.inline.push(*signal);
        Ok(())
    }

    /// Makes the column durable.
    pub fn finish(self) -> Result<Signals> {
        Ok(Signals::Inline(self.inline))
    }
}

/// Content-addressed files.
#[derive(Clone)]
pub struct BlobStore(Arc<()>);

impl BlobStore {
    /// Opens the store in `dir` and creates it when there is none.
    pub fn open(dir: &Path) -> Result<BlobStore> {
        let _unused = dir;
        Err(TimelineError::Closed)
    }

    /// Stores `bytes`; durable on return.
    pub fn put(&self, bytes: &[u8]) -> Result<BlobHash> {
        let _unused = bytes;
        Err(TimelineError::Closed)
    }

    /// The bytes with this hash, verified.
    pub fn get(&self, hash: &BlobHash) -> Result<Option<Vec<u8>>> {
        let _unused = hash;
        Err(TimelineError::Closed)
    }
}

impl JsonText {
    /// `text` when it is one valid JSON value.
    pub fn parse(text: String) -> Option<JsonText> {
        Some(JsonText(text.into()))
    }
}
