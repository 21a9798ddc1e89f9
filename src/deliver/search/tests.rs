//! Tests of searches on a real log: completeness, visibility, limits and cancellation.

use std::{
    future::poll_fn,
    pin::{Pin, pin},
    task::Poll,
};

use media::{RequestId, Score};
use timeline::{Event, FindingKind, FindingPayload};
use tokio::{
    sync::oneshot,
    task::{JoinHandle, spawn_blocking},
};

use super::*;
use crate::runs::registry::{Run, tests::samples};

struct Log {
    search: Arc<SearchService>,
    registry: Arc<RunRegistry>,
    dir: tempfile::TempDir,
}

fn start(limits: IndexLimits) -> Log {
    let dir = tempfile::tempdir().expect("a directory");
    let registry = samples::registry(dir.path(), 1000);
    let cache = dir.path().join("search-cache");
    let search = SearchService::start(Arc::clone(&registry), limits, cache).expect("starts");
    Log { search: Arc::new(search), registry, dir }
}

const LIMITS: IndexLimits = IndexLimits { memory_bytes: 64 << 20, chunk_bytes: CHUNK_BYTES };

fn request() -> RequestId {
    RequestId::from_bytes([1; 8])
}

fn wanted(owner: &str, query: &str) -> SearchQuery {
    let owner = Principal::named(owner);
    SearchQuery {
        owner,
        run: None,
        needle: FoldedPattern::new(query).expect("not empty"),
        limit: 50,
    }
}

impl Log {
    async fn run(&self, owner: &str) -> Arc<Run> {
        self.registry.create(samples::origin(owner), None, request()).await.expect("created")
    }

    async fn describe(&self, run: &Arc<Run>, texts: &[&str]) -> Seq {
        let events = texts.iter().map(|text| found(text)).collect();
        let appended = self.registry.commit(run, events).await.expect("durable");
        appended.last().expect("not empty").seq
    }

    async fn find(&self, owner: &str, query: &str) -> SearchOutcome {
        self.search.find(wanted(owner, query)).await.expect("an answer")
    }

    /// Starts `count` searches of Alice's.
    fn searches(&self, count: usize) -> Vec<JoinHandle<Result<SearchOutcome, SearchFailure>>> {
        let start = |search: Arc<SearchService>| {
            tokio::spawn(async move { search.find(wanted("alice", "a")).await })
        };
        (0..count).map(|_| start(Arc::clone(&self.search))).collect()
    }
}

fn found(text: &str) -> Event {
    let finding = FindingPayload {
        frame_index: 7,
        pts_ms: 280,
        confidence: Score::ONE,
        description: text.to_owned(),
        ..FindingPayload::default()
    };
    Event::Found(FindingKind::Vlm, finding)
}

#[test]
fn every_kind_whose_payload_has_a_text_of_its_own_is_searched() {
    for row in include_str!("../../../fixtures/payloads.txt").lines() {
        let (kind, payload) = row.split_once(' ').expect("a kind and a payload");
        let kind = EventKind::from_name(kind).expect("a kind");
        let repeats = kind == EventKind::StateTransition;
        let has_text = !repeats && SearchableText::of(payload).is_some();
        assert_eq!(description(kind, payload).is_some(), has_text, "{row}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_acknowledged_before_is_found_until_its_run_is_deleted() {
    let log = start(LIMITS);
    let run = log.run("alice").await;
    for count in 1..=100 {
        let seq = log.describe(&run, &["A Red Car", "a blue one", ""]).await;
        let answer = log.find("alice", "red").await;
        assert_eq!((answer.scanned, answer.total_hits), (2 * count, count));
        let last = answer.hits.last().expect("hits");
        if count <= 50 {
            assert_eq!((last.seq.0, last.run, last.pts_ms), (seq.0 - 2, run.id(), Some(280)));
            assert_eq!((last.kind, last.snippet.as_str()), (EventKind::Vlm, "A Red Car"));
        }
        assert_eq!(answer.hits.len() as u64, count.min(50));
    }
    let left = log.search.memory_bytes();
    log.registry.delete(&run, request()).await.expect("deleted");
    assert_eq!(log.find("alice", "red").await.scanned, 0);
    assert!(left > 0 && log.search.memory_bytes() == 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_that_cannot_be_read_is_counted_and_costs_no_other() {
    let log = start(LIMITS);
    let run = log.run("alice").await;
    log.describe(&run, &["a red car", "a red bus"]).await;
    assert_eq!(log.find("alice", "red").await.damaged_events, 0);
    samples::damage(log.dir.path(), "red car");
    let cache = log.dir.path().join("another-cache");
    let built_later = SearchService::start(Arc::clone(&log.registry), LIMITS, cache);
    let built_later = built_later.expect("starts");
    for (search, scanned) in [(&*log.search, 2), (&built_later, 1)] {
        let answer = search.find(wanted("alice", "red")).await.expect("an answer");
        assert_eq!((answer.scanned, answer.damaged_events), (scanned, 1));
        assert_eq!(answer.hits.iter().map(|hit| &*hit.snippet).collect::<Vec<_>>(), ["a red bus"]);
    }
    let other = log.run("bob").await;
    log.describe(&other, &["a red car"]).await;
    let answer = built_later.find(wanted("bob", "red")).await.expect("an answer");
    assert_eq!((answer.hits.len(), answer.damaged_events), (1, 0));
}

/// Runtime with one blocking thread, so that blocking work runs in order.
fn one_at_a_time() -> tokio::runtime::Runtime {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_all().max_blocking_threads(1).build().expect("a runtime")
}

/// Occupies the blocking thread until the sender is dropped; the receiver signals that it does.
fn plug() -> (std::sync::mpsc::SyncSender<()>, oneshot::Receiver<()>) {
    let (unplug, unplugged) = std::sync::mpsc::sync_channel::<()>(0);
    let (busy, is_busy) = oneshot::channel();
    spawn_blocking(move || (busy.send(()), unplugged.recv()));
    (unplug, is_busy)
}

/// Polls the future once; returns true if it is pending.
async fn is_pending<F: Future>(mut future: Pin<&mut F>) -> bool {
    poll_fn(|context| Poll::Ready(future.as_mut().poll(context).is_pending())).await
}

#[test]
fn who_leaves_stops_the_search() {
    one_at_a_time().block_on(async {
        let log = start(IndexLimits { memory_bytes: 1 << 20, chunk_bytes: 4096 });
        let run = log.run("alice").await;
        log.describe(&run, &["e ".repeat(100).as_str(); 500]).await;
        assert_eq!(log.find("alice", "e").await.total_hits, 500);
        let all = log.search.examined();
        assert!(all > 10, "{all} chunks");
        let (unplug, busy) = plug();
        busy.await.expect("the only thread is taken");
        let unplug = {
            let mut search = pin!(log.search.find(wanted("alice", "e")));
            assert!(is_pending(search.as_mut()).await, "what it needs waits to be looked up");
            let (unplug_next, busy) = plug();
            drop(unplug);
            busy.await.expect("the only thread has looked it up and is taken");
            assert!(is_pending(search).await, "its threads wait for that one");
            unplug_next
        };
        drop(unplug);
        // The permit is released when the search's threads are done.
        let (admission, owner) = (&log.search.admission, Principal::named("alice"));
        let places = [admission.enter(&owner).await, admission.enter(&owner).await];
        assert!(places.iter().all(Result::is_ok));
        assert_eq!(log.search.examined(), all);
    });
}

#[tokio::test]
async fn an_index_that_is_behind_or_failed_or_has_no_thread_says_so() {
    let log = start(LIMITS);
    let run = log.run("alice").await;
    log.describe(&run, &["a"]).await;
    // The search succeeded: the indexer is idle and reports no further progress.
    assert_eq!(log.find("alice", "a").await.total_hits, 1);
    log.search.shared.progress.send_replace(Progress::Failed);
    let failed = log.search.find(wanted("alice", "a")).await;
    assert!(matches!(failed, Err(SearchFailure::Failed)), "{failed:?}");
    assert_eq!(SearchFailure::Failed.kind(), ErrorKind::Unavailable);
    let behind = SearchFailure::Behind { through: Seq(7), head: Seq(9) };
    assert!(behind.to_string().contains("7 of 9 events"), "{behind}");
    assert!(log.search.death().is_none());
    indexer::watched(&log.search.shared, || panic!("on purpose"));
    let failed = log.search.find(wanted("alice", "a")).await;
    assert!(matches!(failed, Err(SearchFailure::Died)), "{failed:?}");
    assert!(log.search.death().is_some_and(|death| death.kind() == ErrorKind::Unavailable));
}

#[tokio::test]
async fn searches_that_wait_for_the_index_are_bounded_in_number_and_time() {
    /// One deadline; less than half of the time of consecutive waits.
    const SHORT: Duration = Duration::from_secs(2);
    const PATIENCE: Duration = Duration::from_secs(30);
    let mut log = start(LIMITS);
    let run = log.run("alice").await;
    let head = log.describe(&run, &["a"]).await;
    assert_eq!(log.find("alice", "a").await.total_hits, 1);
    // Simulates an index that is being built; no event wakes the indexer meanwhile.
    log.search.shared.progress.send_replace(Progress::Through(Seq(0)));
    let waiting = log.searches(RUNNING_MAX + WAITING_MAX);
    let started = Instant::now();
    while log.search.admission.waiting() < WAITING_MAX {
        assert!(started.elapsed() < CATCH_UP, "they wait elsewhere");
        tokio::task::yield_now().await;
    }
    let refused = log.search.find(wanted("alice", "a")).await;
    assert!(matches!(refused, Err(SearchFailure::Full(WAITING_MAX))), "{refused:?}");
    log.search.shared.progress.send_replace(Progress::Through(head));
    for search in waiting {
        assert_eq!(search.await.expect("no panic").expect("an answer").total_hits, 1);
    }
    Arc::get_mut(&mut log.search).expect("the only one").catch_up = SHORT;
    log.search.shared.progress.send_replace(Progress::Through(Seq(0)));
    let waiting = log.searches(RUNNING_MAX + WAITING_MAX);
    let all = async {
        for search in waiting {
            let behind = search.await.expect("no panic");
            assert!(matches!(behind, Err(SearchFailure::Behind { .. })), "{behind:?}");
        }
    };
    tokio::time::timeout(PATIENCE, all).await.expect("they wait one after another");
}
