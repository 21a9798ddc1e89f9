//! Search over stored descriptions: an index that follows the log, and the searches of it.
//!
//! Promises that a search sees every event acknowledged before it began, that the number of running searches
//! is limited, and that a search whose caller is gone stops before its next chunk.

mod indexer;
mod searchable_text;

use std::{
    collections::{HashMap, HashSet},
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use media::{ErrorKind, RunId, Seq};
use parking_lot::Mutex;
use search::{FoldedPattern, IndexLimits, Scan, ScanResult, SearchError, SearchIndex, excerpt};
use timeline::{EventKind, Timeline, TimelineError};
use tokio::{
    sync::watch,
    time::{Instant, timeout_at},
};

use crate::{
    base::{
        blocking::{TaskPanicked, blocking},
        keys::Principal,
    },
    runs::{
        job_queue::{JobPermit, JobQueue, QueueFull},
        registry::RunRegistry,
    },
};
use indexer::IndexerThread;
use searchable_text::SearchableText;
pub use searchable_text::description;

/// Bytes of case-folded text per chunk.
pub const CHUNK_BYTES: usize = 1 << 20;
/// Maximum bytes of a hit's description.
pub const DESCRIPTION_BYTES_MAX: usize = 4096;
/// Maximum running searches; each uses all processors.
pub const RUNNING_MAX: usize = 2;
pub const WAITING_MAX: usize = 64;
/// Longest wait of a search until the index has read the log up to the request.
const CATCH_UP: Duration = Duration::from_secs(10);

#[derive(Debug, thiserror::Error)]
pub enum SearchFailure {
    #[error("the search queue is full ({0} waiting): retry later")]
    Full(usize),
    #[error(
        "the search index is being built: {} of {} events are read; search again later",
        .through.0, .head.0
    )]
    Behind { through: Seq, head: Seq },
    #[error("the search index failed and will be built again; search again later")]
    Failed,
    #[error("the search indexer stopped: restart the server to search again")]
    Died,
    #[error(transparent)]
    Cache(#[from] SearchError),
    #[error(transparent)]
    Log(#[from] TimelineError),
    #[error(transparent)]
    Work(#[from] TaskPanicked),
}

impl SearchFailure {
    pub fn kind(&self) -> ErrorKind {
        match self {
            SearchFailure::Full(_) => ErrorKind::Exhausted,
            SearchFailure::Behind { .. }
            | SearchFailure::Failed
            | SearchFailure::Died
            | SearchFailure::Cache(_) => ErrorKind::Unavailable,
            SearchFailure::Log(error) => error.kind(),
            SearchFailure::Work(_) => ErrorKind::Internal,
        }
    }
}

pub struct SearchQuery {
    pub owner: Principal,
    /// Visible run of the owner to search; `None` searches all of them.
    pub run: Option<RunId>,
    pub needle: FoldedPattern,
    pub limit: usize,
}

/// Description that contains the search text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hit {
    pub seq: Seq,
    pub run: RunId,
    pub kind: EventKind,
    /// Media time in ms; `None` if the event has none.
    pub pts_ms: Option<i64>,
    pub index_name: Option<String>,
    /// Start of the searched text.
    pub description: String,
    pub is_truncated: bool,
    /// Text around the first match, in its original case.
    pub snippet: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SearchOutcome {
    pub scanned: u64,
    pub total_hits: u64,
    /// First hits, in order, without those whose event is damaged.
    pub hits: Vec<Hit>,
    /// Number of damaged events of the searched runs that are left out: each may be a hit.
    pub damaged_events: u64,
}

/// Progress of the index through the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    Through(Seq),
    /// The index failed and is missing until it is rebuilt.
    Failed,
    /// The indexer's thread panicked.
    Died,
}

/// State shared by the indexer and the searches.
struct Shared {
    registry: Arc<RunRegistry>,
    limits: IndexLimits,
    cache: PathBuf,
    index: Mutex<Option<SearchIndex>>,
    /// Number of events of each run that were unreadable when the index was built.
    unread: Mutex<HashMap<RunId, u64>>,
    progress: watch::Sender<Progress>,
    examined: AtomicU64,
}

impl Shared {
    fn timeline(&self) -> &Timeline {
        self.registry.timeline()
    }
}

pub struct SearchService {
    shared: Arc<Shared>,
    admission: JobQueue,
    threads: usize,
    catch_up: Duration,
    _follower: IndexerThread,
}

impl SearchService {
    /// Starts to build the index and follows the log.
    ///
    /// Chunks that exceed the memory go to an unlinked file created at `cache`.
    pub fn start(
        registry: Arc<RunRegistry>,
        limits: IndexLimits,
        cache: PathBuf,
    ) -> Result<SearchService, SearchError> {
        let index = Mutex::new(Some(SearchIndex::new(limits, &cache)?));
        let shared = Arc::new(Shared {
            registry,
            limits,
            cache,
            index,
            unread: Mutex::default(),
            progress: watch::Sender::new(Progress::Through(Seq(0))),
            examined: AtomicU64::new(0),
        });
        let follower = IndexerThread::start(Arc::clone(&shared));
        let follower =
            follower.map_err(|source| SearchError::Cache { what: "start to fill", source })?;
        let admission = JobQueue::new(RUNNING_MAX, WAITING_MAX);
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let catch_up = CATCH_UP;
        Ok(SearchService { shared, admission, threads, catch_up, _follower: follower })
    }

    /// Number of chunks examined since the start.
    pub fn examined(&self) -> u64 {
        self.shared.examined.load(Ordering::Relaxed)
    }

    pub fn memory_bytes(&self) -> usize {
        self.shared.index.lock().as_ref().map_or(0, SearchIndex::memory_bytes)
    }

    /// Returns the error of all searches, if the indexer has panicked.
    pub fn death(&self) -> Option<SearchFailure> {
        let has_died = *self.shared.progress.borrow() == Progress::Died;
        has_died.then_some(SearchFailure::Died)
    }

    /// Runs the search `wanted`; dropping the future stops it.
    pub async fn find(&self, wanted: SearchQuery) -> Result<SearchOutcome, SearchFailure> {
        // Read before the wait for a permit: the search covers what was readable at the request.
        let head = self.shared.timeline().head();
        // Set before as well: a search that waited for a permit has waited for the index too.
        let until = Instant::now() + self.catch_up;
        let place = self.admission.enter(&wanted.owner).await;
        let place = place.map_err(|QueueFull { queue_max }| SearchFailure::Full(queue_max))?;
        // After the permit, which bounds the number of searches that wait for the index.
        self.caught_up(head, until).await?;
        let shared = Arc::clone(&self.shared);
        let begin = move || shared.begin(wanted, place);
        let running = Arc::new(blocking(begin).await??);
        let _stop = StopOnDrop(Arc::clone(&running));
        let threads = self.threads.min(running.scan.chunks().max(1));
        let work = || {
            let running = Arc::clone(&running);
            blocking(move || running.work())
        };
        let workers: Vec<_> = (0..threads).map(|_| work()).collect();
        for worker in workers {
            worker.await??;
        }
        let reader = Arc::clone(&running);
        blocking(move || reader.answer()).await?
    }

    /// Waits until the index has every event up to `head`, at most until `until`.
    async fn caught_up(&self, head: Seq, until: Instant) -> Result<(), SearchFailure> {
        let mut progress = self.shared.progress.subscribe();
        let there = progress.wait_for(|progress| match progress {
            Progress::Through(through) => *through >= head,
            Progress::Failed | Progress::Died => true,
        });
        // After the limit too: the progress tells how far the index is behind.
        timeout_at(until, there).await.ok();
        match *self.shared.progress.borrow() {
            Progress::Through(through) if through >= head => Ok(()),
            Progress::Through(through) => Err(SearchFailure::Behind { through, head }),
            Progress::Failed => Err(SearchFailure::Failed),
            Progress::Died => Err(SearchFailure::Died),
        }
    }
}

/// A running search, shared by its threads; holds the permit until the last one is done.
struct Running {
    shared: Arc<Shared>,
    scan: Scan,
    needle: FoldedPattern,
    /// Number of events of the searched runs that the index lacks because they are damaged.
    unread: u64,
    _place: JobPermit,
}

/// Stops a search whose caller is gone.
struct StopOnDrop(Arc<Running>);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.scan.cancel();
    }
}

impl Shared {
    /// Takes a snapshot of runs and index for the search: later changes do not affect it.
    fn begin(
        self: Arc<Shared>,
        wanted: SearchQuery,
        place: JobPermit,
    ) -> Result<Running, SearchFailure> {
        let SearchQuery { owner, run, needle, limit } = wanted;
        let runs = match run {
            Some(run) => HashSet::from([run]),
            None => self.registry.visible(&owner),
        };
        let counts = self.unread.lock();
        let unread =
            counts.iter().filter(|(run, _)| runs.contains(run)).map(|(_, count)| count).sum();
        drop(counts);
        let scan = match &*self.index.lock() {
            Some(index) => index.scan(owner.as_str(), runs, needle.clone(), limit),
            None => return Err(SearchFailure::Failed),
        };
        Ok(Running { shared: self, scan, needle, unread, _place: place })
    }
}

impl Running {
    fn work(&self) -> Result<(), SearchError> {
        let examined = self.scan.work()?;
        self.shared.examined.fetch_add(examined as u64, Ordering::Relaxed);
        Ok(())
    }

    /// Returns the hits with the fields of their events.
    fn answer(&self) -> Result<SearchOutcome, SearchFailure> {
        let ScanResult { scanned, total_hits, hits: found } = self.scan.result();
        let (mut hits, mut damaged_events) = (Vec::with_capacity(found.len()), self.unread);
        for seq in found.into_iter().take_while(|_| !self.scan.is_cancelled()) {
            let stored = match self.shared.timeline().get(seq) {
                Ok(Some(stored)) => stored,
                // An event can only be missing if its run was deleted meanwhile.
                Ok(None) => continue,
                Err(error) if error.kind() == ErrorKind::DataLoss => {
                    tracing::error!(%error, "an event cannot be read");
                    damaged_events += 1;
                    continue;
                }
                Err(error) => return Err(error.into()),
            };
            let Some(described) = SearchableText::of(&stored.payload) else { continue };
            let text = described.text();
            let snippet = excerpt(&text, &self.needle).to_owned();
            let description = text[..text.floor_char_boundary(DESCRIPTION_BYTES_MAX)].to_owned();
            let is_truncated = description.len() < text.len();
            let (head, pts_ms) = (stored.head, described.at_ms());
            let index_name = described.index_name.map(|name| name.into_owned());
            hits.push(Hit {
                seq: head.seq,
                run: head.run,
                kind: head.kind,
                pts_ms,
                index_name,
                description,
                is_truncated,
                snippet,
            });
        }
        Ok(SearchOutcome { scanned, total_hits, hits, damaged_events })
    }
}

#[cfg(test)]
mod tests;
