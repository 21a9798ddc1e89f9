//! Tests of the registry on a real log: expiry, order, slots, and the rebuild after a restart.

use proptest::prelude::*;
use timeline::{RunExpired, TimelineOptions};

use super::{lookup::LIST_SLICE, *};
use samples::{damage, origin};

pub(crate) mod samples;

const HOUR: Duration = Duration::from_secs(3600);
const REQUEST: RequestId = RequestId::from_bytes([7; 8]);

fn open(dir: &std::path::Path, ttl: Duration) -> Arc<RunRegistry> {
    let (timeline, _) = Timeline::open(dir, TimelineOptions::default()).expect("opened");
    rebuilt(timeline, ttl)
}

pub(crate) fn rebuilt(timeline: Timeline, ttl: Duration) -> Arc<RunRegistry> {
    let limits = RunLimits { active: 3, ttl, tag: None };
    let now = WallTime { epoch_ms: i64::MAX / 2 };
    RunRegistry::open(timeline, limits, Arc::default(), now, &Default::default()).expect("rebuilt")
}

fn fresh() -> (tempfile::TempDir, Arc<RunRegistry>) {
    let dir = tempfile::tempdir().expect("a directory");
    let registry = open(dir.path(), HOUR);
    (dir, registry)
}

fn ids(registry: &RunRegistry, name: &str) -> Vec<RunId> {
    let owner = Principal::named(name);
    let (runs, _) = registry.list(&owner, None, Seq(u64::MAX), 100);
    runs.iter().map(|run| run.id()).collect()
}

#[tokio::test]
async fn a_run_whose_owner_cannot_be_read_is_counted_and_others_are_served() {
    let dir = tempfile::tempdir().expect("a directory");
    let registry = open(dir.path(), HOUR);
    let run = registry.create(origin("alice"), None, REQUEST).await.expect("created");
    registry.create(origin("bertha"), None, REQUEST).await.expect("created");
    damage(dir.path(), "alice");
    let again = rebuilt(registry.timeline().clone(), HOUR);
    assert_eq!((registry.unowned().len(), again.unowned().len()), (0, 1));
    assert_eq!((ids(&again, "alice"), ids(&again, "bertha")), (vec![], ids(&registry, "bertha")));
    registry.delete(&run, REQUEST).await.expect("deleted");
    let again = rebuilt(registry.timeline().clone(), HOUR);
    assert_eq!(again.unowned().len(), 0, "a deleted run is nobody's");
}

#[tokio::test]
async fn a_run_counts_the_damaged_events_that_its_record_lacks() {
    let (dir, registry) = fresh();
    let label = Some("yard".parse().expect("a label"));
    let run = registry.create(origin("a"), label, REQUEST).await.expect("created");
    let decoded = samples::decoded(REQUEST, timeline::Signals::Inline(Vec::new()));
    registry.commit(&run, vec![Event::FramesDecoded(decoded)]).await.expect("active");
    let told = |registry: &RunRegistry| {
        let run = registry.run(run.id()).expect("there");
        let starts = run.wall_starts(registry.timeline()).len();
        (run.label().is_some(), starts, run.damaged_events())
    };
    assert_eq!(told(&registry), (true, 1, 0));
    for (text, expected) in [("yard", (false, 1, 1)), ("a.mp4", (false, 0, 2))] {
        damage(dir.path(), text);
        assert_eq!(told(&rebuilt(registry.timeline().clone(), HOUR)), expected, "{text}");
    }
}

#[tokio::test]
async fn an_idle_run_expires_once_and_a_busy_one_does_not() {
    let (_dir, registry) = fresh();
    let idle = registry.create(origin("a"), None, REQUEST).await.expect("created");
    let busy = registry.create(origin("a"), None, REQUEST).await.expect("created");
    let job = busy.begin_job(JobToken::default()).expect("free");
    let now = Instant::now();
    assert_eq!(registry.end_idle(now).await, 0, "not idle for long enough");
    let later = now + HOUR + Duration::from_secs(1);
    assert_eq!(registry.end_idle(later).await, 1);
    assert_eq!(registry.end_idle(later).await, 0);
    assert_eq!((idle.lifecycle(), busy.lifecycle()), (RunState::Expired, RunState::Pending));
    assert_eq!(idle.snapshot().expires_at(HOUR), None);
    drop(job);
    registry.keep_alive(&busy, REQUEST).await.expect("active");
    assert_eq!(registry.end_idle(now + HOUR).await, 0, "kept alive");
    let ended = registry.keep_alive(&idle, REQUEST).await;
    assert!(matches!(ended, Err(RunError::Terminal(RunState::Expired))), "{ended:?}");
}

#[tokio::test]
async fn a_caller_that_goes_away_leaves_the_order_intact() {
    let (_dir, registry) = fresh();
    let run = registry.create(origin("a"), None, REQUEST).await.expect("created");
    for _ in 0..100 {
        let stop = registry.stop(&run, REQUEST);
        // Polled once, so that the change is in progress, then dropped.
        tokio::time::timeout(Duration::ZERO, stop).await.ok();
    }
    let second = registry.stop(&run, REQUEST).await;
    assert!(matches!(second, Err(RunError::Terminal(RunState::Cancelled))), "{second:?}");
    let events = registry.timeline().read(run.id(), Seq(0), 100, None).expect("readable");
    assert_eq!(events.len(), 2, "run_created and one stop_requested");
}

#[tokio::test]
async fn an_end_on_request_holds_at_once_and_is_told_behind_what_was_recorded() {
    let (_dir, registry) = fresh();
    for end in [RunState::Cancelled, RunState::Completed] {
        let run = registry.create(origin("a"), None, REQUEST).await.expect("created");
        let kinds = || -> Vec<_> {
            let heads = registry.timeline().heads_of(run.id(), Seq(0), 10);
            heads.iter().map(|head| head.kind).collect()
        };
        let job = run.begin_job(JobToken::default()).expect("free");
        let ended = tokio::spawn({
            let (registry, run) = (Arc::clone(&registry), Arc::clone(&run));
            async move { registry.end(&run, end, REQUEST).await }
        });
        job.token.waiting.cancelled().await;
        assert_eq!((run.lifecycle(), run.snapshot().lifecycle), (end, end));
        assert_eq!((kinds(), run.has_ended()), (vec![EventKind::RunCreated], false));
        let refused = registry.keep_alive(&run, REQUEST).await;
        assert!(matches!(refused, Err(RunError::Terminal(state)) if state == end), "{refused:?}");
        let left = vec![Event::KeepaliveRefreshed(RequestMarkerPayload { request_id: REQUEST })];
        registry
            .wind_up(&run, Part::Middle, left, Some(Event::RunExpired(RunExpired {})))
            .await
            .expect("still recorded");
        drop(job);
        ended.await.expect("no panic").expect("told");
        let told = if end == RunState::Cancelled {
            EventKind::StopRequested
        } else {
            EventKind::RunCompleted
        };
        assert_eq!(kinds(), [EventKind::RunCreated, EventKind::KeepaliveRefreshed, told]);
        assert!(run.has_ended());
    }
}

#[tokio::test]
async fn what_the_log_does_not_take_ends_no_run_and_keeps_no_slot() {
    let (_dir, registry) = fresh();
    let run = registry.create(origin("b"), None, REQUEST).await.expect("created");
    registry.timeline().close();
    for _ in 0..2 {
        let refused = registry.stop(&run, REQUEST).await;
        assert!(matches!(refused, Err(RunError::Log(_))), "{refused:?}");
        assert_eq!(run.lifecycle(), RunState::Pending);
    }
    for _ in 0..3 {
        let create = registry.create(origin("a"), None, REQUEST);
        // Polled once, so that the slot is taken, then dropped.
        tokio::time::timeout(Duration::ZERO, create).await.ok();
    }
    tokio::time::sleep(Duration::from_millis(100)).await;
    for _ in 0..5 {
        let refused = registry.create(origin("a"), None, REQUEST).await;
        assert!(matches!(refused, Err(RunError::Log(_))), "{:?}", refused.err());
    }
    assert!(ids(&registry, "a").is_empty());
}

#[tokio::test]
async fn what_a_reasoning_said_of_its_run_is_known_after_a_restart() {
    let (dir, registry) = fresh();
    let run = registry.create(origin("a"), None, REQUEST).await.expect("created");
    let body = r#"{"source_uri":"a.mp4","model":"qwen3-vl-4b"}"#;
    let received = Event::IngestReceived(timeline::IngestReceived {
        request_id: REQUEST,
        ingest: timeline::JsonText::parse(body).expect("JSON"),
        decoded_frames: None,
        source_uri: Some("a.mp4".to_owned()),
        sampling_policy: None,
        sample_fps: None,
    });
    registry.commit(&run, vec![received]).await.expect("active");
    registry.timeline().close();
    drop(registry);
    let registry = open(dir.path(), HOUR);
    let found = registry.run(run.id()).expect("rebuilt").snapshot();
    let shown = (found.lifecycle, found.source_uri.as_deref(), found.model.as_deref());
    assert_eq!(shown, (RunState::Processing, Some("a.mp4"), Some("qwen3-vl-4b")));
}

#[tokio::test]
async fn a_list_goes_on_behind_a_slice() {
    let dir = tempfile::tempdir().expect("a directory");
    let registry = samples::registry(dir.path(), 1);
    let oldest = registry.create(origin("a"), None, REQUEST).await.expect("created");
    registry.stop(&oldest, REQUEST).await.expect("active");
    for _ in 0..LIST_SLICE {
        let run = registry.create(origin("a"), None, REQUEST).await.expect("created");
        registry.stop(&run, REQUEST).await.expect("active");
    }
    let owner = Principal::named("a");
    let (all, next) = registry.list(&owner, Some(RunState::Cancelled), Seq(u64::MAX), 2000);
    assert_eq!((all.len(), next), (LIST_SLICE + 1, None));
    assert_eq!(all.last().map(|run| run.id()), Some(oldest.id()));
    let (page, next) = registry.list(&owner, None, Seq(u64::MAX), LIST_SLICE);
    assert_eq!(next, page.last().map(|run| run.created_seq()));
}

#[derive(Clone, Copy, Debug)]
enum Ask {
    Create,
    Stop,
    KeepAlive,
    Delete,
}

/// Generates a request and the run, or the owner of a new one, that it is for.
fn ask() -> impl Strategy<Value = (Ask, usize)> {
    let asks = vec![Ask::Create, Ask::Stop, Ask::KeepAlive, Ask::Delete];
    (prop::sample::select(asks), 0..8usize)
}

async fn carry_out(registry: &Arc<RunRegistry>, asks: &[(Ask, usize)]) -> Vec<Arc<Run>> {
    let mut runs: Vec<Arc<Run>> = Vec::new();
    for (ask, which) in asks {
        let outcome = match (ask, runs.get(which % runs.len().max(1))) {
            (Ask::Create, _) => {
                let created = registry.create(origin(["a", "b"][which % 2]), None, REQUEST).await;
                created.map(|run| runs.push(run))
            }
            (_, None) => Ok(()),
            (Ask::Stop, Some(run)) => registry.stop(run, REQUEST).await,
            (Ask::KeepAlive, Some(run)) => registry.keep_alive(run, REQUEST).await,
            (Ask::Delete, Some(run)) => registry.delete(run, REQUEST).await,
        };
        // Refusals are expected; failures of the log are not.
        assert!(!matches!(outcome, Err(RunError::Log(_) | RunError::Unfinished)), "{outcome:?}");
    }
    runs
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn a_restart_rebuilds_the_same_runs(asks in prop::collection::vec(ask(), 0..40)) {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_time().build();
        runtime.expect("a runtime").block_on(async {
            let (dir, registry) = fresh();
            let runs = carry_out(&registry, &asks).await;
            let lists = ["a", "b"].map(|name| ids(&registry, name));
            let before: Vec<_> = runs.iter().map(|run| (run.id(), run.snapshot())).collect();
            registry.timeline().close();
            drop(registry);
            let registry = open(dir.path(), HOUR);
            assert_eq!(["a", "b"].map(|name| ids(&registry, name)), lists);
            for ((id, snapshot), run) in before.iter().zip(&runs) {
                let rebuilt = registry.find_any(*id, &run.origin().principal).expect("there");
                assert_eq!((rebuilt.snapshot(), rebuilt.origin()), (snapshot.clone(), run.origin()));
            }
            for name in ["a", "b"] {
                let active = runs.iter().filter(|run| {
                    run.origin().principal == Principal::named(name) && run.lifecycle().is_active()
                });
                let active = active.count();
                let refused = registry.create(origin(name), None, REQUEST).await.is_err();
                assert_eq!(refused, active == 3, "{name} has {active} active runs");
            }
        });
    }
}

#[tokio::test]
async fn what_the_job_of_an_ended_run_came_to_is_kept_and_ends_nothing() {
    let (_dir, registry) = fresh();
    let found = || Event::KeepaliveRefreshed(RequestMarkerPayload { request_id: REQUEST });
    let failed = || Event::RunFailed(timeline::RunFailed { request_id: None, reason: "x".into() });
    // End of the run, its state after a job's last batch, the number of events appended by that
    // batch, and by one further batch of each part.
    let rows = [
        ("", RunState::Failed, 2, [None, Some(1)]),
        ("stop", RunState::Cancelled, 1, [Some(1), Some(1)]),
        ("finish", RunState::Completed, 1, [Some(1), Some(1)]),
    ];
    for (done, state, kept, more) in rows {
        let run = registry.create(origin(done), None, REQUEST).await.expect("created");
        match done {
            "stop" => registry.stop(&run, REQUEST).await.expect("active"),
            "finish" => registry.finish(&run, REQUEST).await.expect("active"),
            _ => {}
        }
        let end = async |part, last| {
            let appended = registry.wind_up(&run, part, vec![found()], last).await;
            appended.map(|events| events.len()).ok()
        };
        assert_eq!(end(Part::End, Some(failed())).await, Some(kept), "{done}");
        assert_eq!(run.lifecycle(), state, "{done}");
        assert_eq!([end(Part::Middle, None).await, end(Part::End, None).await], more, "{done}");
    }
    let run = registry.create(origin("d"), None, REQUEST).await.expect("created");
    registry.delete(&run, REQUEST).await.expect("deleted");
    let refused = registry.wind_up(&run, Part::End, vec![found()], None).await;
    assert!(matches!(refused, Err(RunError::NotFound)), "{refused:?}");
}

#[tokio::test]
async fn a_run_is_busy_and_has_not_ended_while_a_recording_of_it_is_left() {
    let dir = tempfile::tempdir().expect("a directory");
    let registry = open(dir.path(), Duration::ZERO);
    let run = registry.create(origin("a"), None, REQUEST).await.expect("created");
    let job = media::JobId::from_bytes([1; 16]);
    run.leave_recording(job);
    let refused = run.begin_job(JobToken::default()).err();
    assert!(matches!(refused, Some(RunError::Busy { job: Some(left) }) if left == job));
    assert!(!run.is_idle(std::time::Instant::now()), "it does not expire");
    registry.stop(&run, REQUEST).await.expect("it ends on request all the same");
    assert_eq!((run.lifecycle(), run.has_ended()), (RunState::Cancelled, false));
    run.end_recording(job);
    assert_eq!((run.left(), run.has_ended()), (None, true));
    assert!(run.begin_job(JobToken::default()).is_ok());
}
