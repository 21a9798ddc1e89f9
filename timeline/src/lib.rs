//! Append-only event store of Sightline: a journal of files, blobs and signal columns.
//!
//! An acknowledged event survives a crash and a power cut, whole, unaltered and under the same number; a
//! batch is there whole or not at all; a damaged byte is reported by file and offset, never skipped or
//! served. This requires disks that keep what they synced; any part of the rest may survive. Knows no run
//! states and no owners.
#![forbid(unsafe_code)]

mod batch;
mod blob;
mod compaction;
mod error;
mod event;
mod files;
mod footer;
mod fsck;
pub mod held;
mod index;
mod journal;
mod lock;
mod log_state;
mod marker;
mod open_column;
mod options;
mod payload_stream;
mod pins;
mod place;
mod queue;
mod record;
mod recovery;
mod remote;
mod retention;
mod scan;
mod signal_column;
mod storage;
mod sync;
mod writer;

use std::{path::Path, sync::Arc};

use media::{RunId, Seq, Signal, WallTime};

pub use blob::{BlobStore, BlobSweep, BlobWriteLease};
pub use compaction::{CompactionStats, CompactionThrottle};
pub use error::TimelineError;
pub use event::*;
pub use files::{Backing, Standing};
pub use fsck::{
    CutBytes, RepairPlan, RepairReport, VerifyReport, cat, plan_repair, repair, verify,
};
pub use index::{EVENTS_MAX, RUNS_MAX};
pub use log_state::PublishListener;
pub use marker::{AnalysisKey, FrameLabel, MarkerConfig, MarkerDeriver, derive_markers};
pub use open_column::{Cut, OpenColumn, OpenColumns, OpenRows, OpenSnapshot, check_open_column};
pub use options::{SyncObserver, TimelineOptions, system_clock};
pub use payload_stream::{PayloadChunks, StreamedEvent};
pub use pins::{PinGuard, SweepStats};
pub use place::{default_data_dir, overlap};
pub use queue::{QUEUE_BYTES_MAX, QUEUE_RECORDS_MAX};
pub use record::{PAYLOAD_BYTES_MAX, RegionRecord, SignalRecord};
pub use recovery::{RecoveryReport, TornTail};
pub use remote::{Remote, RemoteError, RemoteFault, SLOWEST};
pub use signal_column::{ColumnWriter, INLINE_JSON_BYTES_MAX};
pub use storage::{DirStorage, Storage, StorageFile};

use journal::{Journal, JournalHeader, JournalSizes};
use lock::LogLock;
use log_state::SharedLog;
use queue::{AppendQueue, AppendRequest};
use record::{ColumnRef, RecordBuilder};
use signal_column::ColumnDir;
use sync::{Mutex, mpsc, thread};
use writer::LogWriter;

type Result<T> = std::result::Result<T, TimelineError>;

/// Most records of one batch.
pub const BATCH_RECORDS_MAX: usize = QUEUE_RECORDS_MAX;
/// Most bytes of one batch.
pub const BATCH_BYTES_MAX: usize = QUEUE_BYTES_MAX;
/// Largest limit of a journal file: offsets have 32 bits, and a batch may begin just before the limit.
const FILE_BYTES_MAX: u64 = 1 << 30;

/// Metadata of a stored event: all but the payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub struct EventMeta {
    pub seq: Seq,
    /// Time at which the writer took the event.
    pub at: WallTime,
    pub run: RunId,
    pub kind: EventKind,
}

/// A stored event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredEvent {
    /// All but the payload.
    pub head: EventMeta,
    /// Payload as JSON text, with the signals wherever they are stored.
    pub payload: Box<str>,
}

/// State of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogState {
    /// Accepts appends.
    Writable,
    /// A write to disk failed; reads still work.
    Poisoned {
        /// Reason of the first failure.
        reason: String,
    },
    /// Closed, or opened for reading only.
    Closed,
}

/// Event store; clones share it, and dropping the last one closes it.
#[derive(Clone)]
pub struct Timeline(Arc<Inner>);

struct Inner {
    store: Arc<SharedLog>,
    queue: Arc<AppendQueue>,
    writer: Mutex<Option<thread::JoinHandle<()>>>,
    /// Size above which a journal file is sealed.
    file_bytes: u64,
    /// Held during a compaction, so that there is only one.
    compacting: Mutex<()>,
    /// Released after the writer has ended.
    _lock: Option<LogLock>,
}

impl Timeline {
    /// Opens the log in `dir` for writing, creating it if needed; cuts a torn tail.
    pub fn open(dir: &Path, options: TimelineOptions) -> Result<(Timeline, RecoveryReport)> {
        let (journal, columns) = (dir.join("journal"), dir.join("columns"));
        let io = TimelineError::io("create the log's directory", &journal);
        let disk = DirStorage::create(&journal).map_err(io)?;
        let lock = LogLock::take(dir, recovery::list(&disk)?.files.len())?;
        let columns = ColumnDir::open(&columns, options.columns.clone())?;
        let (log, mut recovery) = Timeline::start(Arc::new(disk), columns, options, Some(lock))?;
        recovery.leftovers += log.0.store.columns.files().unfinished;
        Ok((log, recovery))
    }

    /// Opens the log with its journal on `disk` and its columns in `columns`, without a lock: for a disk that
    /// only this process can reach.
    pub fn open_on(
        disk: Arc<dyn Storage>,
        columns: &Path,
        options: TimelineOptions,
    ) -> Result<(Timeline, RecoveryReport)> {
        Timeline::start(disk, ColumnDir::at(columns), options, None)
    }

    /// Opens the log in `dir` for reading, up to its present end; changes nothing.
    ///
    /// Reads may fail after the writer's compaction has moved events: open the log again.
    pub fn open_read_only(dir: &Path) -> Result<(Timeline, RecoveryReport)> {
        let disk = Arc::new(DirStorage::read_only(&dir.join("journal")));
        let found = recovery::tolerate_live_writer(|| recovery::recover(&*disk))?;
        let columns = ColumnDir::at(&dir.join("columns"));
        let store = Arc::new(SharedLog::new(disk, columns, found.index, LogState::Closed));
        let log = Timeline::of(store, Arc::default(), None, 0, None);
        log.0.queue.close();
        Ok((log, found.recovery))
    }

    fn start(
        disk: Arc<dyn Storage>,
        columns: ColumnDir,
        options: TimelineOptions,
        lock: Option<LogLock>,
    ) -> Result<(Timeline, RecoveryReport)> {
        let file = options.file_bytes.min(FILE_BYTES_MAX);
        let grow = options.grow_bytes.clamp(1, FILE_BYTES_MAX);
        let sizes = JournalSizes { file, grow, spare: options.spare_bytes.min(FILE_BYTES_MAX) };
        let mut found = recovery::recover(&*disk)?;
        recovery::finish_recovery(&*disk, &mut found)?;
        let last = recovery::last_time(&found.index);
        let next = Seq(found.index.head().0 + 1);
        let mut journal = match found.tail {
            Some((name, position)) => {
                let torn = found.recovery.torn.is_some();
                Journal::resume(disk.clone(), sizes, &name, position, torn, next)?
            }
            None => {
                let base = (options.clock)();
                found.index.begin_file(next, base, journal::HEADER_BYTES as u32);
                let header = JournalHeader::new(next, base);
                Journal::create(disk.clone(), sizes, header)?
            }
        };
        lock.as_ref().map_or(Ok(()), LogLock::remember_journal)?;
        let store =
            Arc::new(SharedLog::new(disk.clone(), columns, found.index, LogState::Writable));
        store.change_written(&mut journal, |_| ());
        let queue: Arc<AppendQueue> = Arc::default();
        let (shared, input, clock) = (store.clone(), queue.clone(), options.clock);
        let (on_sync, buffer) = (options.on_sync, Vec::new());
        let writer =
            LogWriter { store: shared, queue: input, journal, clock, on_sync, last, buffer };
        let thread = thread::Builder::new()
            .name("timeline-writer".to_owned())
            .spawn(move || writer.run())
            .map_err(TimelineError::io("start the writer", disk.path("")))?;
        Ok((Timeline::of(store, queue, Some(thread), file, lock), found.recovery))
    }

    fn of(
        store: Arc<SharedLog>,
        queue: Arc<AppendQueue>,
        writer: Option<thread::JoinHandle<()>>,
        file_bytes: u64,
        lock: Option<LogLock>,
    ) -> Timeline {
        let (writer, compacting) = (Mutex::new(writer), Mutex::default());
        Timeline(Arc::new(Inner { store, queue, writer, file_bytes, compacting, _lock: lock }))
    }

    /// Appends `batch` whole or not at all; never blocks.
    ///
    /// `ack` is called once: with an error at once if the batch is refused, otherwise on the writer's thread
    /// when the batch is durable and readable. It should be brief. Only a panic of that thread, which poisons
    /// the log, drops `ack` without a call.
    pub fn append(
        &self,
        batch: Vec<NewEvent>,
        ack: impl FnOnce(Result<Vec<EventMeta>>) + Send + 'static,
    ) {
        match self.request(batch) {
            Ok((drafts, bytes)) => {
                self.0.queue.push(AppendRequest { drafts, bytes, seal: false, ack: Box::new(ack) });
            }
            Err(error) => ack(Err(error)),
        }
    }

    /// Appends `batch` like [`Timeline::append`], and blocks until there is room and it is acknowledged.
    pub fn append_wait(&self, batch: Vec<NewEvent>) -> Result<Vec<EventMeta>> {
        let (drafts, bytes) = self.request(batch)?;
        self.wait_for(drafts, bytes, false)
    }

    fn wait_for(
        &self,
        drafts: Vec<RecordBuilder>,
        bytes: usize,
        seal: bool,
    ) -> Result<Vec<EventMeta>> {
        let (sender, receiver) = mpsc::sync_channel(1);
        let ack = move |result| {
            sender.send(result).expect("the caller below waits until this is sent");
        };
        self.0.queue.push_wait(AppendRequest { drafts, bytes, seal, ack: Box::new(ack) });
        receiver.recv().unwrap_or_else(|_| {
            // Only a panicking writer drops an acknowledgement.
            self.0.store.poison(writer::STOPPED);
            Err(self.refusal().unwrap_or(TimelineError::Closed))
        })
    }

    /// Converts `batch` to records, with their bytes, if the log takes it.
    fn request(&self, batch: Vec<NewEvent>) -> Result<(Vec<RecordBuilder>, usize)> {
        if let Some(error) = self.refusal() {
            return Err(error);
        }
        let too_large = |what, size, limit| Err(TimelineError::TooLarge { what, size, limit });
        if batch.len() > BATCH_RECORDS_MAX {
            return too_large("batch in events", batch.len(), BATCH_RECORDS_MAX);
        }
        let drafts = batch.into_iter().map(RecordBuilder::of).collect::<Result<Vec<_>>>()?;
        let bytes = drafts.iter().map(RecordBuilder::record_bytes).sum();
        if bytes > BATCH_BYTES_MAX {
            return too_large("batch in bytes", bytes, BATCH_BYTES_MAX);
        }
        Ok((drafts, bytes))
    }

    fn refusal(&self) -> Option<TimelineError> {
        match self.state() {
            LogState::Writable => None,
            LogState::Poisoned { reason } => Some(TimelineError::Poisoned { reason }),
            LogState::Closed => Some(TimelineError::Closed),
        }
    }

    /// Returns the signals, read from their column file if they are in one.
    pub fn signals(&self, signals: &Signals) -> Result<Vec<Signal>> {
        self.signal_rows(signals)?.collect()
    }

    /// Iterates over the signals; a column is read on demand. Ends after the first error.
    pub fn signal_rows(
        &self,
        signals: &Signals,
    ) -> Result<Box<dyn Iterator<Item = Result<Signal>> + Send>> {
        Ok(match signals {
            Signals::Inline(signals) => Box::new(signals.clone().into_iter().map(Ok)),
            Signals::Column { hash, count } => {
                let column = ColumnRef { hash: *hash, count: *count };
                Box::new(self.0.store.columns.read(&column)?)
            }
        })
    }

    /// Returns the numbers of columns by location; `None` without an object store.
    pub fn columns_standing(&self) -> Option<Standing> {
        self.0.store.columns.files().standing()
    }

    /// Does one round of work for the object store of the columns, as [`BlobStore::turn`].
    pub fn columns_turn(&self) -> Result<bool> {
        self.0.store.columns.files().turn()
    }

    /// Returns a collector of the signals of a decode pass for a `frames_decoded` event of this log.
    pub fn column_writer(&self) -> ColumnWriter {
        self.0.store.columns.writer()
    }

    /// Returns the last number given to an event, which may be purged; 0 if there is none.
    pub fn head(&self) -> Seq {
        self.0.store.index().head()
    }

    /// Calls `listener` on the writer's thread with the events that became readable, before their
    /// acknowledgements. It must be brief and must not wait for this log.
    pub fn on_publish(&self, listener: PublishListener) {
        self.0.store.listen(listener);
    }

    /// Returns the state of the log.
    pub fn state(&self) -> LogState {
        match self.0.store.health() {
            LogState::Writable if self.0.queue.is_closed() => LogState::Closed,
            health => health,
        }
    }

    /// Returns true if the journal's file that is being written is still the one at its path.
    pub fn is_in_place(&self) -> std::io::Result<bool> {
        self.0.store.is_in_place()
    }

    /// Returns the memory of the index in bytes.
    pub fn index_bytes(&self) -> usize {
        self.0.store.index().memory_bytes()
    }

    /// Writes the queued events, then refuses further ones; reads still work.
    pub fn close(&self) {
        self.0.close();
    }
}

impl Inner {
    fn close(&self) {
        self.queue.close();
        let writer = self.writer.lock().expect("no holder of the handle panics").take();
        if let Some(writer) = writer
            // An acknowledgement may hold the last handle: the writer cannot join itself.
            && writer.thread().id() != thread::current().id()
            && writer.join().is_err()
        {
            self.store.poison(writer::STOPPED);
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.close();
    }
}
