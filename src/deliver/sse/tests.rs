//! Tests of streams on a real log: no event is lost or repeated, ends are sent, slots are released.

use std::time::Duration;

use http_body_util::BodyExt;
use media::{RequestId, Signal};
use timeline::{Event, EventKind, NewEvent, RequestMarkerPayload, RunFailed};

use super::*;
use crate::runs::registry::{JobToken, Part, tests::samples};

struct Log {
    streams: Arc<EventStreams>,
    registry: Arc<RunRegistry>,
    dir: tempfile::TempDir,
}

const LIMITS: StreamLimits = StreamLimits { all: 4, principal: 3 };
const REQUEST: RequestId = RequestId::from_bytes([1; 8]);

fn start() -> Log {
    let dir = tempfile::tempdir().expect("a directory");
    let registry = samples::registry(dir.path(), 1000);
    let streams = EventStreams::new(Arc::clone(&registry), LIMITS);
    tokio::spawn(Arc::clone(&streams).run());
    Log { streams, registry, dir }
}

fn alice() -> Principal {
    Principal::named("alice")
}

fn failed() -> Event {
    Event::RunFailed(RunFailed { request_id: None, reason: "test".to_owned() })
}

impl Log {
    async fn run(&self, owner: &str) -> Arc<Run> {
        self.registry.create(samples::origin(owner), None, REQUEST).await.expect("created")
    }

    fn feed(&self, scope: &StreamScope, filter: &Filter, after: u64) -> EventStreamCursor {
        let subscription = self.streams.subscribe(alice(), scope.clone()).expect("a place");
        EventStreamCursor::new(subscription, filter.clone(), Seq(after))
    }

    /// Reads a stream to its end, as text.
    async fn rest(&self, scope: &StreamScope, filter: &Filter, after: u64) -> String {
        let body = self.feed(scope, filter, after).body();
        let read = tokio::time::timeout(Duration::from_secs(20), body.collect());
        let bytes = read.await.expect("it ends").expect("whole").to_bytes();
        String::from_utf8(bytes.to_vec()).expect("UTF-8")
    }
}

fn ids(text: &str) -> Vec<u64> {
    let ids = text.lines().filter_map(|line| line.strip_prefix("id: "));
    ids.map(|id| id.parse().expect("a number")).collect()
}

/// Returns the next piece of a stream, `None` at its end.
async fn piece(body: &mut axum::body::Body) -> Option<String> {
    let piece = tokio::time::timeout(Duration::from_secs(20), body.frame()).await;
    let text = piece.expect("it comes")?.expect("whole").into_data().expect("data");
    Some(String::from_utf8(text.to_vec()).expect("UTF-8"))
}

/// Reads successive streams, each dropped after a few pieces, until event `last` was sent.
async fn read_with_breaks(log: &Log, scope: StreamScope, last: u64) -> Vec<u64> {
    let (mut told, mut after, mut random) = (Vec::new(), 0, fastrand::Rng::with_seed(1));
    while after < last {
        let mut body = log.feed(&scope, &Filter::default(), after).body();
        for _ in 0..random.u8(..4) {
            told.extend(ids(&piece(&mut body).await.expect("no end")));
            after = told.last().copied().unwrap_or(after);
            if after >= last {
                break;
            }
        }
    }
    told
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn readers_that_come_and_go_miss_nothing_and_get_nothing_twice() {
    const EACH: u64 = 400;
    let log = Arc::new(start());
    let runs = [log.run("alice").await, log.run("alice").await, log.run("bob").await];
    let writers: Vec<_> = runs
        .iter()
        .map(|run| {
            let (log, run) = (Arc::clone(&log), Arc::clone(run));
            tokio::spawn(async move {
                for _ in 0..EACH {
                    log.registry.keep_alive(&run, REQUEST).await.expect("durable");
                }
            })
        })
        .collect();
    let last = 3 + 3 * EACH;
    let until = |scope: StreamScope, last: u64| {
        let log = Arc::clone(&log);
        tokio::spawn(async move { read_with_breaks(&log, scope, last).await })
    };
    let seqs = |run: &Run| -> Vec<u64> {
        let heads = log.registry.timeline().heads_of(run.id(), Seq(0), 4096);
        heads.iter().map(|head| head.seq.0).collect()
    };
    // Reads while events are written, up to an event that is certain to exist for the first run.
    let early = until(StreamScope::Run(Arc::clone(&runs[0])), EACH / 2);
    let early_all = until(StreamScope::Owner(alice()), EACH);
    for writer in writers {
        writer.await.expect("no panic");
    }
    assert_eq!(log.registry.timeline().head(), Seq(last));
    let (own, other) = (seqs(&runs[0]), seqs(&runs[1]));
    let early = early.await.expect("no panic");
    assert_eq!(early, own[..early.len()]);
    let mut mine: Vec<u64> = own.iter().chain(&other).copied().collect();
    mine.sort_unstable();
    let early_all = early_all.await.expect("no panic");
    assert_eq!(early_all, mine[..early_all.len()]);
    let whole = until(StreamScope::Owner(alice()), *mine.last().expect("events")).await;
    assert_eq!(whole.expect("no panic"), mine);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_ends_in_time_and_the_next_goes_on() {
    const EVENTS: u64 = 10_000;
    let log = start();
    let run = log.run("alice").await;
    let (id, timeline) = (run.id(), log.registry.timeline().clone());
    let append = move || {
        for _ in 0..EVENTS / 500 {
            let event = Event::KeepaliveRefreshed(RequestMarkerPayload { request_id: REQUEST });
            let batch = vec![NewEvent { run: id, event }; 500];
            timeline.append_wait(batch).expect("durable");
        }
    };
    tokio::task::spawn_blocking(append).await.expect("no panic");
    log.registry.commit(&run, vec![failed()]).await.expect("durable");
    let last = Seq(EVENTS + 2);
    let filter = Filter { kind: Some(EventKind::RunFailed), index: None };
    for scope in [StreamScope::Run(Arc::clone(&run)), StreamScope::Owner(alice())] {
        let (mut from, mut pages) = (Seq(1), 0);
        loop {
            let key = PageKey::new(&scope, log.registry.timeline(), from, &filter);
            let left = CancellationToken::new();
            left.cancel();
            let given_up = page::read(&log.registry, &scope, &key, &left).expect("readable");
            assert!(given_up.is_cut && given_up.next == from, "{given_up:?}");
            let page = page::read(&log.registry, &scope, &key, &CancellationToken::new());
            let page = page.expect("readable");
            (from, pages) = (page.next, pages + 1);
            if !page.is_cut {
                assert_eq!(ids(std::str::from_utf8(&page.text).expect("UTF-8")), [last.0]);
                break;
            }
            assert!(page.text.is_empty());
        }
        let is_whole = matches!(scope, StreamScope::Owner(_));
        assert_eq!(pages > 1, !is_whole, "{pages} pages");
    }
    let scope = StreamScope::Run(run);
    assert_eq!(ids(&log.rest(&scope, &filter, 0).await), [last.0]);
    assert!(log.feed(&scope, &filter, last.0).is_over().await);
    assert!(!log.feed(&scope, &filter, 0).is_over().await, "one is left behind many others");
    let none = Filter { kind: Some(EventKind::Vlm), index: None };
    assert!(log.feed(&scope, &none, 0).is_over().await, "none is left behind as many");
    let north = Filter { kind: None, index: Some("north".to_owned()) };
    assert_eq!(ids(&log.rest(&scope, &north, 0).await), [0; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_stopped_job_came_to_is_told_before_the_end() {
    let log = start();
    let run = log.run("alice").await;
    let (scope, all) = (StreamScope::Run(Arc::clone(&run)), Filter::default());
    let job = run.begin_job(JobToken::default()).expect("free");
    log.registry.stop(&run, REQUEST).await.expect("active");
    assert!(!log.feed(&scope, &all, 2).is_over().await, "its job may have something to tell");
    let mut body = log.feed(&scope, &all, 1).body();
    let mut next = async || piece(&mut body).await;
    assert_eq!(ids(&next().await.expect("no end")), [2]);
    // The stream is at the end of the log: a new event must wake it.
    tokio::time::timeout(Duration::from_millis(50), next()).await.expect_err("nothing yet");
    let found = Event::KeepaliveRefreshed(RequestMarkerPayload { request_id: REQUEST });
    log.registry.wind_up(&run, Part::Middle, vec![found], None).await.expect("kept");
    assert_eq!(ids(&next().await.expect("no end")), [3]);
    tokio::time::timeout(Duration::from_millis(50), next()).await.expect_err("nothing yet");
    drop(job);
    assert_eq!(next().await.as_deref(), Some(": the run has ended\n\n"));
    assert_eq!(next().await, None);
    assert!(log.feed(&scope, &all, 3).is_over().await);
    assert!(!log.feed(&scope, &all, 2).is_over().await, "an event is left");
}

#[tokio::test(flavor = "multi_thread")]
async fn of_a_deleted_run_only_the_deletion_is_told() {
    let log = start();
    let (gone, kept) = (log.run("alice").await, log.run("alice").await);
    log.registry.delete(&gone, REQUEST).await.expect("deleted");
    log.run("bob").await;
    log.registry.keep_alive(&kept, REQUEST).await.expect("durable");
    let text = log.rest(&StreamScope::Run(Arc::clone(&gone)), &Filter::default(), 0).await;
    assert_eq!(ids(&text), [3]);
    assert!(text.contains("event: run_deleted\n") && text.ends_with(": the run was deleted\n\n"));
    log.streams.close();
    let text = log.rest(&StreamScope::Owner(alice()), &Filter::default(), 0).await;
    assert_eq!(ids(&text), [2, 3, 5]);
    assert!(text.contains(&format!("\"kind\":\"run_deleted\",\"run_id\":\"{}\"", gone.id())));
    assert!(text.ends_with("}\n\n: the server is shutting down\n\n"), "{text}");
}

#[tokio::test]
async fn places_are_bounded_and_come_back() {
    let log = start();
    let run = log.run("alice").await;
    let open =
        |name: &str, scope: StreamScope| log.streams.subscribe(Principal::named(name), scope);
    let scope = || StreamScope::Run(Arc::clone(&run));
    let mine: Vec<_> = (0..3).map(|_| open("alice", scope()).expect("a place")).collect();
    assert_eq!(open("alice", scope()).err(), Some(StreamRefusal::Principal(3)));
    let other = open("bob", StreamScope::Owner(Principal::named("bob"))).expect("a place");
    assert_eq!(open("carol", scope()).err(), Some(StreamRefusal::All(4)));
    assert_eq!(log.streams.open(), 4);
    drop((mine, other));
    assert_eq!(log.streams.open(), 0);
    let topics = log.streams.topics.lock();
    assert!(topics.by_scope.is_empty() && topics.open.all() == 0);
}

#[tokio::test]
async fn a_long_event_is_sent_in_pieces_and_its_damage_ends_no_stream() {
    const FRAMES: u64 = 5000;
    let log = start();
    let run = log.run("alice").await;
    let mut column = log.registry.timeline().column_writer();
    for index in 0..FRAMES {
        let signal = Signal { perceptual_hash: index, ..Signal::plain(index, index as i64 * 40) };
        column.push(&signal).expect("room");
    }
    let (signals, _lease) = column.finish().expect("durable");
    let decoded = samples::decoded(REQUEST, signals);
    let (id, timeline) = (run.id(), log.registry.timeline().clone());
    let events = [Event::FramesDecoded(decoded), failed()];
    let batch: Vec<_> = events.into_iter().map(|event| NewEvent { run: id, event }).collect();
    let append = move || timeline.append_wait(batch).map(drop);
    tokio::task::spawn_blocking(append).await.expect("no panic").expect("durable");
    let (scope, all) = (StreamScope::Run(run), Filter::default());
    let mut body = log.feed(&scope, &all, 0).body();
    let mut text = String::new();
    while let Some(piece) = piece(&mut body).await {
        assert!(piece.len() < 200 << 10, "a piece of {} bytes", piece.len());
        text.push_str(&piece);
    }
    assert_eq!(ids(&text), [1, 2, 3]);
    let line = text.lines().find(|line| line.contains("frames_decoded\",")).expect("a line");
    let event: serde_json::Value =
        serde_json::from_str(line.strip_prefix("data: ").expect("data")).expect("JSON");
    let signals = event["payload"]["signals"].as_array().expect("an array");
    assert_eq!((signals.len() as u64, &event["seq"]), (FRAMES, &serde_json::json!(2)));

    let column = std::fs::read_dir(log.dir.path().join("columns")).expect("there").next();
    std::fs::remove_file(column.expect("one").expect("readable").path()).expect("removed");
    let text = log.rest(&scope, &all, 0).await;
    assert_eq!(ids(&text), [1, 2, 3]);
    assert!(text.contains(r#""signals":null,"damaged":true}}"#), "{text}");
}

#[tokio::test]
async fn somebody_who_hears_nothing_hears_that_after_fifteen_seconds() {
    let log = start();
    let run = log.run("alice").await;
    let mut body = log.feed(&StreamScope::Run(run), &Filter::default(), 1).body();
    let before = std::time::Instant::now();
    assert_eq!(piece(&mut body).await.as_deref(), Some(":\n\n"));
    assert!(before.elapsed() >= Duration::from_secs(15), "{:?}", before.elapsed());
}
