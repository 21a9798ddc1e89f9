//! Search over stored descriptions: an index that follows the log, and the searches of it.
//!
//! Promises that a search sees every event that was acknowledged before it began, that only so
//! many run at once, and that one whose caller has left stops before its next chunk.

mod indexer;
mod searchable_text;

use std::{
    collections::HashSet,
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

/// Bytes of folded text in a chunk.
const CHUNK_BYTES: usize = 1 << 20;
/// Bytes of a description that a hit tells.
pub const DESCRIPTION_BYTES_MAX: usize = 4096;
/// Searches that examine chunks at once; each uses every processor.
pub const RUNNING_MAX: usize = 2;
/// Searches that may wait for one of these.
pub const WAITING_MAX: usize = 64;
/// Longest wait of a search for an index that has not read the log up to the request.
const CATCH_UP: Duration = Duration::from_secs(10);

/// Reason that a search has no answer.
#[derive(Debug, thiserror::Error)]
pub enum SearchFailure {
    /// The queue is full.
    #[error("the search queue is full ({0} waiting): retry later")]
    Full(usize),
    /// The index has not read the whole log yet.
    #[error(
        "the search index is being built: {} of {} events are read; search again later",
        .through.0, .head.0
    )]
    Behind {
        /// The last event that is in the index.
        through: Seq,
        /// The last event that has to be.
        head: Seq,
    },
    /// The index failed and will be built again.
    #[error("the search index failed and will be built again; search again later")]
    Failed,
    /// The indexer's thread has ended: our own bug.
    #[error("the search indexer stopped: restart the server to search again")]
    Died,
    /// The cache file failed.
    #[error(transparent)]
    Cache(#[from] SearchError),
    /// A hit cannot be read.
    #[error(transparent)]
    Log(#[from] TimelineError),
    /// Our own bug.
    #[error(transparent)]
    Work(#[from] TaskPanicked),
}

impl SearchFailure {
    /// The closed kind that decides what the caller is told.
    pub fn kind(&self) -> ErrorKind {
        match self {
            SearchFailure::Full(_) => ErrorKind::Exhausted,
            SearchFailure::Behind { .. } | SearchFailure::Failed | SearchFailure::Died => {
                ErrorKind::Unavailable
            }
            SearchFailure::Cache(error) => error.kind(),
            SearchFailure::Log(error) => error.kind(),
            SearchFailure::Work(_) => ErrorKind::Internal,
        }
    }
}

/// Search request.
pub struct SearchQuery {
    /// Owner of the descriptions that are searched.
    pub owner: Principal,
    /// Run to search, which is the owner's and visible; all of them when `None`.
    pub run: Option<RunId>,
    /// Text that hits contain.
    pub needle: FoldedPattern,
    /// Most hits told.
    pub limit: usize,
}

/// A description with the needle in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hit {
    /// Its event.
    pub seq: Seq,
    /// Its run.
    pub run: RunId,
    /// The event's kind.
    pub kind: EventKind,
    /// Media time, ms; `None` where the event has none.
    pub pts_ms: Option<i64>,
    /// The caller's index, if it is in one.
    pub index_name: Option<String>,
    /// Text that was searched, from its start on.
    pub description: String,
    /// True if the description goes on after it.
    pub is_truncated: bool,
    /// The text around the first match, as it was written.
    pub snippet: String,
}

/// The result of a search.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SearchOutcome {
    /// Descriptions examined.
    pub scanned: u64,
    /// Number of descriptions among them with the needle.
    pub total_hits: u64,
    /// The first of them, in order.
    pub hits: Vec<Hit>,
}

/// Progress of the index through the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    /// Every event up to this one is in it.
    Through(Seq),
    /// It failed, and is not there until it is built again.
    Failed,
    /// The thread that builds it panicked.
    Died,
}

/// State shared by the follower and the searches.
struct Shared {
    registry: Arc<RunRegistry>,
    limits: IndexLimits,
    /// Directory in which the cache file is made.
    cache: PathBuf,
    index: Mutex<Option<SearchIndex>>,
    progress: watch::Sender<Progress>,
    examined: AtomicU64,
}

impl Shared {
    fn timeline(&self) -> &Timeline {
        self.registry.timeline()
    }
}

/// The searches of one server.
pub struct SearchService {
    shared: Arc<Shared>,
    admission: JobQueue,
    threads: usize,
    catch_up: Duration,
    _follower: IndexerThread,
}

impl SearchService {
    /// Begins to build the index, which takes about `memory_bytes`, and follows the log.
    ///
    /// What memory has no room for goes to a nameless file, made at `cache`.
    pub fn start(
        registry: Arc<RunRegistry>,
        memory_bytes: usize,
        cache: PathBuf,
    ) -> Result<SearchService, SearchError> {
        let limits = IndexLimits { memory_bytes, chunk_bytes: CHUNK_BYTES };
        SearchService::start_with(registry, limits, cache)
    }

    fn start_with(
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

    /// Chunks that searches have examined since the start.
    pub fn examined(&self) -> u64 {
        self.shared.examined.load(Ordering::Relaxed)
    }

    /// Memory that the index takes, in bytes.
    pub fn memory_bytes(&self) -> usize {
        self.shared.index.lock().as_ref().map_or(0, SearchIndex::memory_bytes)
    }

    /// Failure of all searches until the server is started again, if the index has died.
    pub fn death(&self) -> Option<SearchFailure> {
        let has_died = *self.shared.progress.borrow() == Progress::Died;
        has_died.then_some(SearchFailure::Died)
    }

    /// Finds the descriptions of `wanted`; dropping the future stops the search.
    pub async fn find(&self, wanted: SearchQuery) -> Result<SearchOutcome, SearchFailure> {
        // Before the wait for a place: what counts is what was readable when the search was asked.
        let head = self.shared.timeline().head();
        // Likewise: those that waited for a place behind others have waited for the index too.
        let until = Instant::now() + self.catch_up;
        let place = self.admission.enter(&wanted.owner).await;
        let place = place.map_err(|QueueFull { queue_max }| SearchFailure::Full(queue_max))?;
        // Behind the place: however many wait for the index, their number has a bound.
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

    /// Waits until the index has every event up to `head`, but not past `until`.
    async fn caught_up(&self, head: Seq, until: Instant) -> Result<(), SearchFailure> {
        let mut progress = self.shared.progress.subscribe();
        let there = progress.wait_for(|progress| match progress {
            Progress::Through(through) => *through >= head,
            Progress::Failed | Progress::Died => true,
        });
        let waited = timeout_at(until, there).await.map(|there| there.map(|progress| *progress));
        let found = match waited {
            Ok(Ok(found)) => found,
            Ok(Err(_)) => Progress::Died,
            Err(_) => *self.shared.progress.borrow(),
        };
        match found {
            Progress::Through(through) if through >= head => Ok(()),
            Progress::Through(through) => Err(SearchFailure::Behind { through, head }),
            Progress::Failed => Err(SearchFailure::Failed),
            Progress::Died => Err(SearchFailure::Died),
        }
    }
}

/// One search, shared by the threads that do it; has its place until the last of them is done.
struct Running {
    shared: Arc<Shared>,
    scan: Scan,
    needle: FoldedPattern,
    _place: JobPermit,
}

/// Stops a search whose caller has left.
struct StopOnDrop(Arc<Running>);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.scan.cancel();
    }
}

impl Shared {
    /// The search as of now: later changes of runs and index do not reach it.
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
        let scan = match &*self.index.lock() {
            Some(index) => index.scan(owner.as_str(), runs, needle.clone(), limit),
            None => return Err(SearchFailure::Failed),
        };
        Ok(Running { shared: self, scan, needle, _place: place })
    }
}

impl Running {
    fn work(&self) -> Result<(), SearchError> {
        let examined = self.scan.work()?;
        self.shared.examined.fetch_add(examined as u64, Ordering::Relaxed);
        Ok(())
    }

    /// Hits, with the log's fields of each.
    fn answer(&self) -> Result<SearchOutcome, SearchFailure> {
        let ScanResult { scanned, total_hits, hits: found } = self.scan.result();
        let mut hits = Vec::with_capacity(found.len());
        for hit in found.into_iter().take_while(|_| !self.scan.is_cancelled()) {
            // Only a run that is deleted meanwhile takes its events with it.
            let Some(stored) = self.shared.timeline().get(hit.seq)? else { continue };
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
        Ok(SearchOutcome { scanned, total_hits, hits })
    }
}

#[cfg(test)]
mod tests;
