//! Indexer thread: reads the log into the index, all of it at startup, then published events.

use std::{
    collections::{HashMap, HashSet},
    io,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use media::{RunId, Seq};
use search::{SearchError, SearchIndex};
use timeline::{EventKind, EventMeta};

use super::{
    Progress, Shared,
    searchable_text::{SearchableText, may_describe},
};
use crate::runs::{lifecycle::RunState, registry::Run};

/// Events processed per batch.
const BATCH: u64 = 1024;
/// Delay from a failure to the rebuild of the index.
const REBUILD: Duration = Duration::from_secs(30);

/// Handle of the indexer thread; stops and joins it when dropped.
pub(super) struct IndexerThread {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl IndexerThread {
    pub(super) fn start(shared: Arc<Shared>) -> io::Result<IndexerThread> {
        let stop = Arc::new(AtomicBool::new(false));
        let timeline = shared.timeline().clone();
        let stopped = Arc::clone(&stop);
        let thread = thread::Builder::new().name("search-index".to_owned()).spawn(move || {
            watched(&shared, || run(&shared, &stopped));
        })?;
        let follower = thread.thread().clone();
        timeline.on_publish(Box::new(move |_| follower.unpark()));
        // Events published since the thread's first look at the head have not woken it.
        thread.thread().unpark();
        Ok(IndexerThread { stop, thread: Some(thread) })
    }
}

impl Drop for IndexerThread {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let Some(thread) = self.thread.take() else { return };
        thread.thread().unpark();
        // A panic was reported by `watched`.
        thread.join().ok();
    }
}

/// Runs `work` and reports its panic: otherwise searches would wait for an index that stays incomplete.
pub(super) fn watched(shared: &Shared, work: impl FnOnce()) {
    if catch_unwind(AssertUnwindSafe(work)).is_err() {
        shared.progress.send_replace(Progress::Died);
        tracing::error!("the search indexer panicked: restart the server");
    }
}

/// Builds the index and keeps it up to date; rebuilds it after a failure of its cache file.
fn run(shared: &Shared, stop: &AtomicBool) {
    while !stop.load(Ordering::Relaxed) {
        let Err(error) = follow(shared, stop) else { return };
        tracing::error!(%error, "the search index failed; it is built again in {REBUILD:?}");
        *shared.index.lock() = None;
        shared.progress.send_replace(Progress::Failed);
        let again = std::time::Instant::now() + REBUILD;
        while !stop.load(Ordering::Relaxed) {
            let left = again.saturating_duration_since(std::time::Instant::now());
            if left.is_zero() {
                break;
            }
            thread::park_timeout(left);
        }
    }
}

fn follow(shared: &Shared, stop: &AtomicBool) -> Result<(), SearchError> {
    let started = std::time::Instant::now();
    let is_missing = shared.index.lock().is_none();
    if is_missing {
        *shared.index.lock() = Some(SearchIndex::new(shared.limits, &shared.cache)?);
    }
    shared.unread.lock().clear();
    shared.progress.send_replace(Progress::Through(Seq(0)));
    let mut next = 1;
    let mut is_built = false;
    while !stop.load(Ordering::Relaxed) {
        let head = shared.timeline().head().0;
        if next <= head {
            let count = BATCH.min(head - next + 1);
            take(shared, &shared.timeline().heads(Seq(next), count as usize))?;
            next += count;
            shared.progress.send_replace(Progress::Through(Seq(next - 1)));
            continue;
        }
        if !is_built {
            is_built = true;
            let ms = started.elapsed().as_millis() as u64;
            let bytes = shared.index.lock().as_ref().map_or(0, SearchIndex::memory_bytes);
            tracing::info!(events = head, ms, bytes, "search index built");
        }
        thread::park();
    }
    Ok(())
}

/// Adds the descriptions among `heads`, and removes deleted runs.
fn take(shared: &Shared, heads: &[EventMeta]) -> Result<(), SearchError> {
    let mut deleted: HashMap<Arc<str>, HashSet<RunId>> = HashMap::new();
    let mut last: Option<Arc<Run>> = None;
    for head in heads {
        let is_deletion = head.kind == EventKind::RunDeleted;
        if !is_deletion && !may_describe(head.kind) {
            continue;
        }
        if last.as_ref().is_none_or(|run| run.id() != head.run) {
            last = shared.registry.run(head.run);
        }
        let Some(run) = &last else { continue };
        let owner = run.origin().principal.as_str();
        if is_deletion {
            shared.unread.lock().remove(&head.run);
            deleted.entry(owner.into()).or_default().insert(head.run);
        } else if run.lifecycle() != RunState::Deleted {
            insert(shared, owner, head)?;
        }
    }
    if let Some(index) = &mut *shared.index.lock() {
        deleted.iter().try_for_each(|(owner, runs)| index.remove(owner, runs))?;
    }
    Ok(())
}

fn insert(shared: &Shared, owner: &str, head: &EventMeta) -> Result<(), SearchError> {
    let stored = match shared.timeline().get(head.seq) {
        Ok(Some(stored)) => stored,
        Ok(None) => return Ok(()),
        Err(error) => {
            // An unreadable event is left out; the others stay searchable.
            tracing::error!(%error, seq = %head.seq, "an event is missing in the search index");
            *shared.unread.lock().entry(head.run).or_default() += 1;
            return Ok(());
        }
    };
    match (SearchableText::of(&stored.payload), &mut *shared.index.lock()) {
        (Some(described), Some(index)) => {
            index.insert(owner, head.run, head.seq, &described.text())
        }
        _ => Ok(()),
    }
}
