//! Describes the pictures of one session with a model and records the answers: one worker for selected
//! frames, one for clips.
//!
//! Handles one job at a time; of the jobs that arrive meanwhile the newest ones wait. A picture that shows
//! nothing new gets the description of the one before it. A new prompt applies from the next picture on. A
//! failure is recorded when it begins, not each time. Long because it covers every outcome of a job.

use std::{
    sync::{Arc, Weak, atomic::Ordering::Relaxed},
    time::{Duration, Instant},
};

use ::infer::{
    Finding, InferError, OutputSchema, Pass, Prompt, PromptImage, PromptKind, RequestCost,
    TokenUsage, TwoPassAnswer, TwoPassRequest, finding::default_answer, prompt::PromptParts,
};
use bytes::Bytes;
use embed::FrameFeatures;
use media::{ErrorKind, Label, Score, Seq};
use parking_lot::Mutex;
use timeline::{Event, EventMeta, FindingKind, FindingPayload};
use tokio_util::sync::CancellationToken;
use worker::NoveltyInput;

use super::{
    description_history::DescriptionHistory,
    drop_oldest_queue::DropOldestQueue,
    novelty::{NoveltyOutcome, SessionNovelty},
    prompt_updates::PromptSlot,
    token_rate::TokenRateLimit,
};
use crate::{
    base::{
        metrics::{Metrics, ShedReason},
        retry_while_full::retry_while_full,
    },
    record::{
        inference::{Inference, InferenceError, Requester},
        reason::ReasonQuery,
        recording::RunLog,
    },
    runs::registry::RunError,
};

/// Description written when no backend is configured.
pub const NO_PROVIDER: &str = "(no inference provider configured)";
/// Frames or clips that may wait for the model; a new one drops the oldest.
const WAITING: usize = 2;
/// Timeout of one model request, counted from its permit.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Kind of input that a worker describes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DescriptionTarget {
    Keyframes,
    Clips,
}

/// Prompt and output schema for a model.
#[derive(Clone, Debug, Default)]
pub struct Instruction {
    /// Prompt of the caller; empty selects the default task.
    pub prompt: String,
    /// Schema that an answer must match; `None` selects the default one.
    pub schema: Option<Arc<OutputSchema>>,
}

/// Frame or clip to describe.
#[derive(Clone, Debug)]
pub struct DescribeJob {
    /// Index of the frame, or of the first frame of the clip.
    pub frame_index: u64,
    /// Presentation time in ms and JPEG of each picture, at least one, in presentation order.
    pub pictures: Vec<(i64, Bytes)>,
    /// Index of the frame, or of the last frame of the clip.
    pub last_frame: u64,
    /// True while the session's pictures repeat.
    pub is_looping: bool,
    pub novelty: Option<NoveltyInput>,
}

#[derive(Clone, Debug)]
pub struct ModelChoice {
    /// Model that is asked about everything; `None` until a backend that offers one is found.
    pub first: Option<String>,
    /// Model for the second pass, asked when the first one is not confident enough.
    pub second: Option<String>,
    /// Lowest confidence of the first model that needs no second pass.
    pub threshold: Score,
}

pub struct DescriptionHandle {
    looks: Arc<DropOldestQueue<DescribeJob>>,
    /// Slot for a new prompt; gone once the worker has ended.
    pub prompt: Weak<PromptSlot>,
    subject: DescriptionTarget,
    metrics: Arc<Metrics>,
}

pub struct DescriptionWorker {
    pub inference: Arc<Inference>,
    pub asker: Requester,
    pub models: ModelChoice,
    /// Log of the run that the session fills.
    pub log: RunLog,
    pub index_name: Option<Label>,
    pub metrics: Arc<Metrics>,
    pub subject: DescriptionTarget,
    /// Initial prompt and schema.
    pub instruction: Instruction,
    /// Output tokens that the session may spend; shared by its description workers.
    pub allowance: Arc<Mutex<TokenRateLimit>>,
    /// Novelty check; with `None` every picture is described.
    pub novelty: Option<SessionNovelty>,
}

enum Came {
    /// Answer of a model, version of its prompt, and the frame's features for later novelty checks.
    Described(Box<TwoPassAnswer>, String, Option<FrameFeatures>),
    /// Copy of the description recorded at this sequence number.
    Reused(Seq, Box<FindingPayload>),
    /// The token rate limit of the session is exceeded.
    NotAllowed,
    Failed(InferenceError),
}

impl DescriptionHandle {
    /// Queues `look` for the worker; counts a job that is dropped to make room.
    pub fn show(&self, look: DescribeJob) {
        if self.looks.put(look).is_some() {
            let shed = match self.subject {
                DescriptionTarget::Keyframes => ShedReason::Keyframes,
                DescriptionTarget::Clips => ShedReason::Clips,
            };
            self.metrics.live_shed.of(shed).inc();
        }
    }
}

impl DescriptionWorker {
    /// Starts the worker. After `end` is cancelled it handles the waiting jobs and returns; `cut`
    /// stops it at once.
    pub fn start(
        self,
        end: CancellationToken,
        cut: CancellationToken,
    ) -> (DescriptionHandle, impl Future<Output = ()> + Send) {
        let prompts = Arc::<PromptSlot>::default();
        let looks = Arc::new(DropOldestQueue::new(WAITING));
        let (subject, metrics) = (self.subject, Arc::clone(&self.metrics));
        let prompt = Arc::downgrade(&prompts);
        let handle = DescriptionHandle { looks: Arc::clone(&looks), prompt, subject, metrics };
        let work = async move {
            let metrics = Arc::clone(&self.metrics);
            let run = self.run(&looks, prompts, &end);
            // Dropping the future gives the permit of the model request back.
            cut.run_until_cancelled_owned(run).await;
            std::iter::from_fn(|| looks.try_take()).for_each(|_| count_ended(&metrics));
        };
        (handle, work)
    }

    async fn run(
        mut self,
        looks: &DropOldestQueue<DescribeJob>,
        prompts: Arc<PromptSlot>,
        end: &CancellationToken,
    ) {
        let mut memory = DescriptionHistory::default();
        loop {
            let mut look = tokio::select! {
                biased;
                look = looks.take() => look,
                () = end.cancelled() => return,
            };
            let unanswered = Unanswered(Some(Arc::clone(&self.metrics)));
            if let Some(instruction) = prompts.begin(look.last_frame) {
                // Answers to the previous prompt must not be reused.
                self.instruction = instruction;
                memory = DescriptionHistory::default();
                self.novelty.iter_mut().for_each(SessionNovelty::forget);
            }
            if self.models.first.is_none() {
                self.models.first = self.inference.offered_model().await;
            }
            let came = self.ask(&mut look).await;
            unanswered.answered();
            if !self.record(&look, came, &mut memory).await {
                return;
            }
        }
    }

    async fn ask(&mut self, look: &mut DescribeJob) -> Came {
        let (tiered, version) = self.question(look);
        let is_allowed = self.allowance.lock().allows(Instant::now());
        let verdict = match (&mut self.novelty, look.pictures.first(), look.novelty.take()) {
            (Some(novelty), Some((pts_ms, jpeg)), Some(input)) => {
                novelty.judge(*pts_ms, jpeg, input).await
            }
            _ => NoveltyOutcome::New(None),
        };
        let remembered = match verdict {
            NoveltyOutcome::Reuse(seq, finding) => return Came::Reused(seq, finding),
            NoveltyOutcome::New(seen) => seen,
        };
        if !is_allowed {
            return Came::NotAllowed;
        }
        let Some(tiered) = tiered else { return Came::Failed(InferError::NoBackend.into()) };
        if self.subject == DescriptionTarget::Keyframes {
            self.metrics.keyframes.inc();
        }
        match self.inference.describe(&self.asker, &tiered).await {
            Ok(described) => Came::Described(Box::new(described), version, remembered),
            Err(error) => Came::Failed(error),
        }
    }

    /// Returns the model to ask. Falls back to one that a backend may serve while no backend lists
    /// its models.
    fn model(&self) -> Option<String> {
        self.models.first.clone().or_else(|| self.inference.served_model())
    }

    fn question(&self, look: &DescribeJob) -> (Option<TwoPassRequest>, String) {
        let times: Vec<i64> = look.pictures.iter().map(|(pts_ms, _)| *pts_ms).collect();
        let mut prompt = Prompt::new(&PromptParts {
            kind: match self.subject {
                DescriptionTarget::Keyframes => PromptKind::Chunk,
                DescriptionTarget::Clips => PromptKind::Clip,
            },
            task: &self.instruction.prompt,
            span_ms: look.span_ms(),
            pictures_ms: &times,
            previous: None,
        });
        let version = prompt.version.to_string();
        let Some(first) = self.model() else { return (None, version) };
        let images = look.pictures.iter().zip(std::mem::take(&mut prompt.captions));
        let images = images.map(|((_, jpeg), caption)| PromptImage { jpeg: jpeg.clone(), caption });
        let ask = ReasonQuery {
            first,
            second: self.models.second.clone(),
            threshold: self.models.threshold.as_f64(),
            timeout: TIMEOUT,
            schema: self.instruction.schema.clone().unwrap_or_else(default_answer),
        };
        (Some(ask.tiered(prompt, images.collect())), version)
    }

    /// Records the outcome of a job; returns false when the run takes no more events.
    async fn record(
        &mut self,
        look: &DescribeJob,
        came: Came,
        memory: &mut DescriptionHistory,
    ) -> bool {
        let (events, remembered) = match came {
            Came::Described(described, version, remembered) => {
                memory.failing = None;
                self.spend(described.answer.cost.tokens);
                let (kind, found) = self.found(look, &described, version);
                if let Some(told) = memory.repeated(&found).filter(|_| look.is_looping) {
                    self.metrics.live_shed.of(ShedReason::Repeats).inc();
                    self.remember(told, remembered, memory);
                    return true;
                }
                (self.with_transition(look, kind, found, memory), remembered)
            }
            Came::Reused(seq, finding) => {
                let repeated = self.reused(look, seq, *finding);
                if look.is_looping && memory.repeated(&repeated).is_some() {
                    self.metrics.live_shed.of(ShedReason::Repeats).inc();
                    return true;
                }
                (vec![Event::Found(FindingKind::Vlm, repeated)], None)
            }
            Came::NotAllowed => {
                self.metrics.live_shed.of(ShedReason::TokenRate).inc();
                return true;
            }
            Came::Failed(error) => {
                self.spend(error.cost().tokens);
                let failed = self.failed(look, &error, memory);
                let Some(event) = failed else { return true };
                return write(&self.log, vec![event]).await.is_some();
            }
        };
        let Some(Event::Found(_, finding)) = events.first().cloned() else { return true };
        let Some(appended) = write(&self.log, events).await else { return false };
        let Some(seq) = appended.first().map(|appended| appended.seq) else { return true };
        let work = self.metrics.owners.of(&self.log.run.origin().principal);
        work.descriptions.fetch_add(1, Relaxed);
        self.remember((seq, finding), remembered, memory);
        true
    }

    fn spend(&self, tokens: TokenUsage) {
        self.allowance.lock().spend(tokens.completion.saturating_add(tokens.thinking));
    }

    /// Keeps the description of event `seq`, which later frames may repeat.
    fn remember(
        &mut self,
        (seq, finding): (Seq, FindingPayload),
        seen: Option<FrameFeatures>,
        memory: &mut DescriptionHistory,
    ) {
        memory.remember(seq, finding.clone());
        if let (Some(novelty), Some(seen)) = (&mut self.novelty, seen) {
            novelty.described(seen, seq, finding);
        }
    }

    /// Returns the finding of a job whose picture shows nothing new, copied from the event at `seq`.
    fn reused(&self, look: &DescribeJob, seq: Seq, finding: FindingPayload) -> FindingPayload {
        FindingPayload {
            summary: finding.summary,
            event_type: finding.event_type,
            object_label: finding.object_label,
            confidence: finding.confidence,
            truncated: finding.truncated,
            reused_from_seq: Some(seq),
            ..self.finding(look, finding.description)
        }
    }

    fn found(
        &self,
        look: &DescribeJob,
        described: &TwoPassAnswer,
        version: String,
    ) -> (FindingKind, FindingPayload) {
        let TwoPassAnswer { answer, tier, second_failed } = described;
        if let Some(error) = second_failed {
            tracing::warn!(%error, "a second pass has no answer");
        }
        let second_failed =
            second_failed.as_ref().map(|error| format!("the second pass has no answer: {error}"));
        let words = || Finding::of_text(&answer.text);
        let found = answer.json.as_ref().map_or_else(words, Finding::read);
        if answer.json.is_none() {
            self.metrics.live_plain_text.inc();
        }
        let finding = FindingPayload {
            summary: Some(found.summary),
            event_type: found.event_type,
            object_label: found.object_label,
            semantic_error: second_failed,
            provider: Some(answer.provider.to_string()),
            model: Some(answer.model.clone()),
            truncated: found.truncated,
            prompt_version: Some(version),
            confidence: found.confidence.unwrap_or_default(),
            ..charged(answer.cost, self.finding(look, found.description))
        };
        (self.kind(*tier), finding)
    }

    /// Returns the event of a description, and a state transition if it differs enough from the last one.
    fn with_transition(
        &self,
        look: &DescribeJob,
        kind: FindingKind,
        found: FindingPayload,
        memory: &DescriptionHistory,
    ) -> Vec<Event> {
        let changed = memory.changed(&found).map(|shared| {
            let finding = FindingPayload {
                confidence: Score::from_millionths(Score::SCALE - shared.millionths()),
                ..self.finding(look, found.description.clone())
            };
            Event::Found(FindingKind::StateTransition, finding)
        });
        std::iter::once(Event::Found(kind, found)).chain(changed).collect()
    }

    /// Returns the event of a failed request; `None` if the last failure had the same class.
    fn failed(
        &self,
        look: &DescribeJob,
        error: &InferenceError,
        memory: &mut DescriptionHistory,
    ) -> Option<Event> {
        let is_configured = !matches!(error, InferenceError::Infer(InferError::NoBackend));
        let (description, reason) = if is_configured {
            (String::new(), Some(error.to_string()))
        } else {
            (NO_PROVIDER.to_owned(), None)
        };
        self.metrics.live_undescribed.inc();
        if memory.failing.replace(error.class()) == Some(error.class()) {
            return None;
        }
        let finding = FindingPayload {
            semantic_error: reason,
            ..self.asked_in_vain(error, self.finding(look, description))
        };
        Some(Event::Found(self.kind(Pass::First), finding))
    }

    /// Adds to `finding` the provider, model and cost of the failed request, if one was sent.
    fn asked_in_vain(&self, error: &InferenceError, finding: FindingPayload) -> FindingPayload {
        let InferenceError::Infer(error) = error else { return finding };
        let Some(last) = error.failed().last() else { return finding };
        FindingPayload {
            provider: Some(last.provider.to_string()),
            // An error is always of the first pass: when the second fails, the first pass's answer is kept.
            model: self.model(),
            ..charged(error.cost(), finding)
        }
    }

    fn finding(&self, look: &DescribeJob, description: String) -> FindingPayload {
        let (start, end) = look.span_ms();
        FindingPayload {
            session_id: self.log.run.origin().session,
            frame_index: look.frame_index,
            pts_ms: start,
            end_pts_ms: (self.subject == DescriptionTarget::Clips).then_some(end),
            description,
            index_name: self.index_name.clone(),
            ..FindingPayload::default()
        }
    }

    fn kind(&self, tier: Pass) -> FindingKind {
        match (self.subject, tier) {
            (DescriptionTarget::Keyframes, Pass::First) => FindingKind::Vlm,
            (DescriptionTarget::Keyframes, Pass::Second) => FindingKind::VlmTiered,
            (DescriptionTarget::Clips, Pass::First) => FindingKind::ClipVlm,
            (DescriptionTarget::Clips, Pass::Second) => FindingKind::ClipVlmTiered,
        }
    }
}

/// Appends `events` atomically; waits while the log is full. Returns `None` if the run takes no more
/// events, and an empty list if the log failed or was full for too long, which is logged.
async fn write(log: &RunLog, events: Vec<Event>) -> Option<Vec<EventMeta>> {
    let attempt = |_| log.registry.commit(&log.run, events.clone());
    let is_full = |error: &RunError| error.kind() == ErrorKind::Exhausted;
    let never = CancellationToken::new();
    match retry_while_full(log.patience, &never, is_full, attempt).await {
        Ok(appended) => Some(appended),
        Err(RunError::Terminal(_) | RunError::NotFound) => None,
        Err(error) => {
            tracing::error!(run = %log.run.id(), %error, "events of a live session are lost");
            Some(Vec::new())
        }
    }
}

fn charged(cost: RequestCost, finding: FindingPayload) -> FindingPayload {
    let RequestCost { tokens, latency, attempts } = cost;
    FindingPayload {
        total_tokens: Some(tokens.total),
        completion_tokens: Some(tokens.completion),
        inference_latency_ms: Some(latency.as_millis() as u64),
        attempts: Some(attempts),
        ..finding
    }
}

/// Counts a job that the end of a session left without a description.
fn count_ended(metrics: &Metrics) {
    metrics.live_shed.of(ShedReason::Ended).inc();
}

/// Guard of a job in progress; counts it as ended if dropped before the answer.
struct Unanswered(Option<Arc<Metrics>>);

impl Unanswered {
    fn answered(mut self) {
        self.0 = None;
    }
}

impl Drop for Unanswered {
    fn drop(&mut self) {
        self.0.iter().for_each(|metrics| count_ended(metrics));
    }
}

impl DescribeJob {
    /// Returns the presentation times of the first and the last picture, in ms.
    fn span_ms(&self) -> (i64, i64) {
        let time = |one: Option<&(i64, Bytes)>| one.map_or(0, |(pts_ms, _)| *pts_ms);
        (time(self.pictures.first()), time(self.pictures.last()))
    }
}
