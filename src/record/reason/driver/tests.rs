//! Tests of the driver on a real log: recorded events, chunks held at once, and each kind of end.

use std::{
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use gate::SelectionReason;
use infer::{Completion, FinishReason, InferError, TokenUsage};
use parking_lot::Mutex;
use serde_json::{Value, json};
use timeline::{Event, Pass};
use tokio::{sync::Semaphore, task::JoinHandle};

use super::{record::cut, *};
use crate::{
    record::reason::{
        chunk_tracker,
        describer::{DescribeFuture, FailedAttempts},
    },
    runs::registry::{Run, RunRegistry, tests::samples},
};

mod repeats;

/// Error of a request that admission refused.
const FULL: &str = "too many wait";
const REQUEST: RequestId = RequestId::from_bytes([7; 8]);

/// Script entry that makes the describer panic.
const BUG: &str = "panics";

/// Describer that answers by script, once it has a permit.
struct Scripted {
    script: Box<dyn Fn(u64) -> Result<Value, &'static str> + Send + Sync>,
    permits: Arc<Semaphore>,
    under_way: Arc<AtomicUsize>,
    /// Number of answered requests.
    answered: Arc<AtomicUsize>,
    most: AtomicUsize,
    seen: Mutex<Vec<ChunkPrompt>>,
}

/// Guard that decrements its counter when dropped, even by a cancellation.
struct UnderWay(Arc<AtomicUsize>);

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Scripted {
    fn new(
        permits: usize,
        script: impl Fn(u64) -> Result<Value, &'static str> + Send + Sync + 'static,
    ) -> Arc<Scripted> {
        Arc::new(Scripted {
            script: Box::new(script),
            permits: Arc::new(Semaphore::new(permits)),
            under_way: Arc::default(),
            answered: Arc::default(),
            most: AtomicUsize::new(0),
            seen: Mutex::default(),
        })
    }
}

impl Describer for Scripted {
    fn describe(&self, question: ChunkPrompt) -> DescribeFuture {
        let said = (self.script)(question.chunk_index);
        self.seen.lock().push(question);
        let now = self.under_way.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(now, Ordering::SeqCst);
        let (permits, under_way) = (Arc::clone(&self.permits), UnderWay(self.under_way.clone()));
        let answered = Arc::clone(&self.answered);
        Box::pin(async move {
            let _under_way = under_way;
            permits.acquire().await.expect("open").forget();
            assert_ne!(said, Err(BUG), "as the script says");
            answered.fetch_add(1, Ordering::SeqCst);
            let tokens = TokenUsage { prompt: 10, completion: 2, thinking: 0, total: 12 };
            match said {
                Ok(json) => Ok(TwoPassAnswer {
                    second_failed: json.get("second_failed").map(|_| InferError::NoBudget),
                    answer: Completion {
                        provider: "scripted".into(),
                        model: "m".to_owned(),
                        fallback_used: false,
                        text: json.to_string(),
                        json: Some(json),
                        finish: FinishReason::Stop,
                        cost: RequestCost {
                            tokens,
                            latency: Duration::from_millis(5),
                            attempts: 1,
                        },
                    },
                    tier: infer::Pass::First,
                }),
                Err(reason) => {
                    let sent = (reason != FULL).then(|| FailedAttempts {
                        provider: Some("scripted".to_owned()),
                        provider_fallback_used: false,
                        model: "m".to_owned(),
                        cost: RequestCost {
                            tokens,
                            latency: Duration::from_millis(7),
                            attempts: 2,
                        },
                    });
                    let error = format!("scripted: {reason}");
                    Err(DescribeError { reason: reason.to_owned(), error, sent })
                }
            }
        })
    }
}

fn chunk(index: u64) -> FrameChunk {
    let mut chunk = chunk_tracker::tests::chunk(index, &[0]);
    chunk.views[0].frame_index = chunk.first_frame;
    chunk.views[0].reason = (index == 0).then_some(SelectionReason::SceneCut);
    chunk
}

fn said(index: u64) -> Value {
    json!({
        "event_type": format!("Van {index}"), "object_label": "Van", "summary": "s",
        "description": format!("d {index}"), "confidence": 0.5,
    })
}

/// Driver at work on the chunks that are sent to it.
struct Stage {
    registry: Arc<RunRegistry>,
    run: Arc<Run>,
    metrics: Arc<Metrics>,
    to: mpsc::Sender<FrameChunk>,
    cancel: CancellationToken,
    told: JoinHandle<ReasonOutcome>,
    _dir: tempfile::TempDir,
}

async fn stage(
    describer: &Arc<Scripted>,
    inquiry: PromptConfig,
    judge: Option<ChunkComparer>,
) -> Stage {
    let dir = tempfile::tempdir().expect("a directory");
    let registry = samples::registry(dir.path(), 3);
    let run = registry.create(samples::origin("a"), None, REQUEST).await.expect("created");
    let subject = EventContext {
        request_id: REQUEST,
        stream_id: "main".parse().expect("an id"),
        index_name: "door".parse().ok(),
        words: TenantLabels::default(),
        keeps_output: false,
    };
    let metrics = Arc::new(Metrics::new());
    let driver = ReasonDriver {
        log: RunLog::new(&registry, &run),
        metrics: Arc::clone(&metrics),
        describer: describer.clone(),
        subject,
        token: JobToken::default(),
    };
    let (to, taken) = mpsc::channel(1);
    let cancel = CancellationToken::new();
    let told = tokio::spawn(driver.run(inquiry, judge, taken, cancel.clone()));
    Stage { registry, run, metrics, to, cancel, told, _dir: dir }
}

async fn send(to: &mpsc::Sender<FrameChunk>, chunks: impl IntoIterator<Item = FrameChunk>) {
    for chunk in chunks {
        to.send(chunk).await.expect("taken");
    }
}

async fn until(holds: impl Fn() -> bool) {
    while !holds() {
        tokio::task::yield_now().await;
    }
}

fn inquiry(concurrency: usize) -> PromptConfig {
    PromptConfig { concurrency, ..chunk_tracker::tests::inquiry() }
}

fn chunks_of(registry: &RunRegistry, run: &Run) -> Vec<Event> {
    let stored = registry.timeline().read(run.id(), media::Seq(0), 1000, None).expect("readable");
    let events = stored.into_iter().map(|stored| stored.decode().expect("ours"));
    events
        .filter(|event| !matches!(event, Event::RunCreated(_) | Event::StopRequested(_)))
        .collect()
}

#[tokio::test]
async fn a_chunk_without_an_answer_tells_who_was_asked_and_a_lost_second_pass_is_told() {
    let describer = Scripted::new(100, |index| match index {
        0 => Err("the backend a is rate limited"),
        1 => Err(FULL),
        _ => Ok(json!({ "summary": "s", "second_failed": true })),
    });
    let Stage { registry, run, metrics, to, told, _dir, .. } =
        stage(&describer, inquiry(1), None).await;
    send(&to, (0..3).map(chunk)).await;
    drop(to);
    let told = told.await.expect("no panic");
    assert!(!told.is_cut && told.failed.is_none());
    assert_eq!((told.totals.chunks_analyzed, told.totals.tokens.total), (1, 24), "in vain too");
    assert_eq!(metrics.keyframes.get(), 1, "pictures of selected frames");
    let insights: Vec<_> =
        told.insights.iter().map(|(span, what)| (span.first_frame, &**what)).collect();
    let unsaid = ModelOutcome::Unsaid("the backend a is rate limited".to_owned());
    assert_eq!((insights.len(), insights[0]), (3, (0, &unsaid)));

    let events = chunks_of(&registry, &run);
    assert_eq!(events.len(), 6, "{events:?}");
    let inferred = |at: usize| match &events[at] {
        Event::SemanticChunkInferred(chunk) => chunk,
        other => panic!("{other:?}"),
    };
    let failed = inferred(0);
    assert_eq!(failed.semantic_error.as_deref(), Some("the backend a is rate limited"));
    let asked = (failed.provider.as_deref(), failed.tier, failed.model.as_deref());
    assert_eq!(asked, (Some("scripted"), Some(Pass::First), Some("m")), "who failed");
    let cost = (failed.attempts, failed.tokens.total_tokens, failed.inference_latency_ms);
    assert_eq!(cost, (Some(2), 12, 7), "without the wait for a place");
    assert_eq!(failed.event_type, EventType::SceneCut, "the gate's");
    let Event::SemanticChunkGenerated(generated) = &events[1] else { panic!("{:?}", events[1]) };
    assert_eq!((generated.chunk_frames, generated.source_span_ms), (30, 967));
    let unsent = inferred(2);
    assert_eq!((&unsent.prompt_version, unsent.inference_latency_ms), (&None, 0));
    assert_eq!((&unsent.provider, unsent.tier, unsent.tokens.total_tokens), (&None, None, 0));
    assert_eq!(unsent.semantic_error.as_deref(), Some(FULL));
    let once = inferred(4);
    assert_eq!((once.semantic_fallback_used, once.summary.as_str()), (false, "s"));
    assert_eq!(once.confidence, None, "nothing was said of it");
    let lost = "the second pass has no answer: daily token budget too low for this request";
    assert_eq!(once.semantic_error.as_deref(), Some(lost));
}

#[tokio::test]
async fn no_more_is_in_hand_than_is_asked_about_and_two() {
    let describer = Scripted::new(0, |index| Ok(said(index)));
    let Stage { to, told, _dir, .. } = stage(&describer, inquiry(4), None).await;
    let sent = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&sent);
    let sending = tokio::spawn(async move {
        for index in 0..20 {
            to.send(chunk(index)).await.expect("taken");
            counted.fetch_add(1, Ordering::SeqCst);
        }
    });
    let under_way = || describer.under_way.load(Ordering::SeqCst);
    until(|| under_way() >= 4 && sent.load(Ordering::SeqCst) >= 5).await;
    // Lets every task proceed: four chunks are asked about, one waits, one is being sent.
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert_eq!(sent.load(Ordering::SeqCst), 5);
    describer.permits.add_permits(100);
    sending.await.expect("all taken");
    let told = told.await.expect("no panic");
    assert_eq!((told.insights.len(), told.totals.chunks_analyzed), (20, 20));
    assert_eq!(describer.most.load(Ordering::SeqCst), 4);
    assert_eq!(under_way(), 0);
}

#[test]
fn a_model_that_says_much_is_cut_between_characters() {
    let long = "語".repeat(RAW_BYTES_MAX);
    let kept = cut(long.clone());
    assert!(kept.len() <= RAW_BYTES_MAX && kept.len() > RAW_BYTES_MAX - 4);
    assert!(long.starts_with(&kept));
    assert_eq!(cut("short".to_owned()), "short");
}

#[tokio::test]
async fn a_stop_gives_up_what_is_asked_and_keeps_what_was_said() {
    for by_stop in [true, false] {
        let describer = Scripted::new(1, |index| Ok(said(index)));
        let Stage { registry, run, to, cancel, told, _dir, .. } =
            stage(&describer, inquiry(2), None).await;
        send(&to, (0..3).map(chunk)).await;
        until(|| chunks_of(&registry, &run).len() >= 2).await;
        if by_stop {
            registry.stop(&run, REQUEST).await.expect("active");
            // Lets one answer arrive just before the end.
            describer.permits.add_permits(1);
        }
        cancel.cancel();
        let told = told.await.expect("no panic");
        assert!(told.is_cut, "{by_stop}");
        let answered = describer.answered.load(Ordering::SeqCst);
        assert_eq!(answered, 1 + usize::from(by_stop));
        let kept = (told.insights.len(), chunks_of(&registry, &run).len());
        assert_eq!(kept, (answered, 2 * answered), "{by_stop}: what was answered");
        assert_eq!(describer.under_way.load(Ordering::SeqCst), 0, "{by_stop}");
        assert!(to.send(chunk(3)).await.is_err(), "nobody takes more");
    }
}

#[tokio::test]
async fn an_ask_that_panics_ends_the_others_and_loses_nothing_that_was_said() {
    let describer = Scripted::new(100, |index| if index == 1 { Err(BUG) } else { Ok(said(index)) });
    let Stage { registry, run, to, told, _dir, .. } = stage(&describer, inquiry(2), None).await;
    send(&to, (0..2).map(chunk)).await;
    let told = told.await.expect("no panic of the driver");
    assert!(matches!(told.failed, Some(RunError::Unfinished)) && !told.insights.is_empty());
    assert_eq!(chunks_of(&registry, &run).len(), 2, "what was said of the other");
}
