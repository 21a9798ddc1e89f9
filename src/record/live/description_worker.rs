//! Asks a model about the pictures of one session and records what it says: one worker for
//! selected frames, one for clips.
//!
//! One picture is asked about at a time; of those that come meanwhile the newest wait. A picture
//! that shows nothing new is given the description of the one before it. A new prompt holds from
//! the next picture on. A failure is recorded when it begins, not each time. Long because it is
//! everything that can come of one look.

use std::{
    pin::pin,
    sync::{Arc, atomic::Ordering::Relaxed},
    time::{Duration, Instant},
};

use ::infer::{
    Finding, InferError, OutputSchema, Pass, Prompt, PromptImage, PromptKind, TokenUsage,
    TwoPassAnswer, TwoPassRequest, prompt::PromptParts,
};
use bytes::Bytes;
use embed::FrameFeatures;
use media::{Score, Seq};
use parking_lot::Mutex;
use prometheus::IntCounter;
use timeline::{Event, FindingKind};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use worker::NoveltyInput;

use super::{
    description_history::DescriptionHistory,
    drop_oldest_queue::DropOldestQueue,
    novelty::{NoveltyOutcome, SessionNovelty},
    prompt_updates::{PendingPrompt, orders},
    session_log::{SessionLog, SessionLogError},
    token_rate::TokenRateLimit,
    word_overlap::{TRANSITION, overlap},
};
use crate::{
    base::metrics::{Metrics, ShedReason},
    record::{
        inference::{Inference, InferenceError, Requester},
        reason::ReasonQuery,
    },
};

/// Description where no backend is configured.
pub const NO_PROVIDER: &str = "(no inference provider configured)";
/// Pictures, or clips, that wait for the model.
const WAITING: usize = 2;
/// Time for an answer, once it has a place.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Input that a worker describes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DescriptionTarget {
    /// Selected frames.
    Keyframes,
    /// Clips.
    Clips,
}

/// Prompt and schema for a model.
#[derive(Clone, Debug, Default)]
pub struct Instruction {
    /// The caller's words; the default task when empty.
    pub prompt: String,
    /// Schema that an answer must match; the default one when `None`.
    pub schema: Option<Arc<OutputSchema>>,
}

/// Something to describe.
#[derive(Clone, Debug)]
pub struct DescribeJob {
    /// Its frame, or its first.
    pub frame_index: u64,
    /// Presentation time and JPEG of each picture, at least one, in the order of time.
    pub pictures: Vec<(i64, Bytes)>,
    /// Its last frame.
    pub last_frame: u64,
    /// The pictures repeat.
    pub is_looping: bool,
    /// Features that novelty is computed from.
    pub novelty: Option<NoveltyInput>,
}

/// Models that describe.
#[derive(Clone, Debug)]
pub struct ModelChoice {
    /// The one that is asked of everything; `None` until one is found that a backend offers.
    pub first: Option<String>,
    /// The one that is asked where the first is not sure.
    pub second: Option<String>,
    /// Least confidence of the first model's answer; below it the second is asked.
    pub threshold: Score,
    /// Schema that an answer must match where the session has none of its own.
    pub schema: Arc<OutputSchema>,
}

/// The session's end of a worker.
pub struct DescriptionHandle {
    looks: Arc<DropOldestQueue<DescribeJob>>,
    orders: mpsc::Sender<PendingPrompt>,
    subject: DescriptionTarget,
    metrics: Arc<Metrics>,
}

/// A worker.
pub struct DescriptionWorker {
    /// The way to the models.
    pub inference: Arc<Inference>,
    /// Credentials of the caller.
    pub asker: Requester,
    /// Models to ask.
    pub models: ModelChoice,
    /// Log that findings are written to.
    pub journal: SessionLog,
    /// Counters and gauges of the service.
    pub metrics: Arc<Metrics>,
    /// Input that is described.
    pub subject: DescriptionTarget,
    /// First prompt and schema.
    pub instruction: Instruction,
    /// Output tokens that may be taken; shared by the workers of the session.
    pub allowance: Arc<Mutex<TokenRateLimit>>,
    /// Novelty check; `None` has every picture described.
    pub novelty: Option<SessionNovelty>,
}

/// Outcome of a describe job.
enum Came {
    /// A model described it; what novelty remembers it by.
    Described(Box<TwoPassAnswer>, String, Option<FrameFeatures>),
    /// The description of an earlier event stands for it.
    Reused(Seq, Box<timeline::FindingPayload>),
    /// The session may take no more tokens now.
    NotAllowed,
    /// The models gave no answer.
    Failed(InferenceError),
}

impl DescriptionHandle {
    /// Gives the worker something to describe.
    pub fn show(&self, look: DescribeJob) {
        if self.looks.put(look).is_some() {
            let shed = match self.subject {
                DescriptionTarget::Keyframes => ShedReason::Keyframes,
                DescriptionTarget::Clips => ShedReason::Clips,
            };
            self.metrics.live_shed.of(shed).inc();
        }
    }

    /// Channel for prompt updates.
    pub fn orders(&self) -> &mpsc::Sender<PendingPrompt> {
        &self.orders
    }
}

impl DescriptionWorker {
    /// Starts the worker. It ends with what waits for it once `end` is cancelled, and at once with
    /// `cut`.
    pub fn start(
        self,
        end: CancellationToken,
        cut: CancellationToken,
    ) -> (DescriptionHandle, impl Future<Output = ()> + Send) {
        let (orders, taken) = orders();
        let looks = Arc::new(DropOldestQueue::new(WAITING));
        let (subject, metrics) = (self.subject, Arc::clone(&self.metrics));
        let handle = DescriptionHandle { looks: Arc::clone(&looks), orders, subject, metrics };
        let work = async move {
            let ended = Ended(Arc::clone(&self.metrics));
            let run = self.run(&looks, taken, &end);
            // What is cut off is dropped whole: its place with the model comes back by itself.
            cut.run_until_cancelled_owned(run).await;
            std::iter::from_fn(|| looks.try_take()).for_each(|_| ended.count());
        };
        (handle, work)
    }

    async fn run(
        mut self,
        looks: &DropOldestQueue<DescribeJob>,
        mut orders: mpsc::Receiver<PendingPrompt>,
        end: &CancellationToken,
    ) {
        let mut memory = DescriptionHistory::default();
        loop {
            let mut look = tokio::select! {
                biased;
                Some(order) = orders.recv() => {
                    self.apply_prompt_update(order, &mut memory);
                    continue;
                }
                look = looks.take() => look,
                () = end.cancelled() => return,
            };
            let unanswered = Unanswered(Some(Ended(Arc::clone(&self.metrics))));
            memory.next_frame = look.last_frame + 1;
            if self.models.first.is_none() {
                self.models.first = self.inference.offered_model().await;
            }
            let mut asking = pin!(self.ask(&mut look));
            // Orders are obeyed while the model thinks: they are for the frames after this one.
            let mut ordered = None;
            let (came, novelty) = loop {
                tokio::select! {
                    outcome = &mut asking => break outcome,
                    Some(order) = orders.recv() => {
                        ordered = order.accepted(memory.next_frame).or(ordered);
                    }
                }
            };
            unanswered.answered();
            self.novelty = novelty;
            let goes_on = self.record(&look, came, &mut memory).await;
            if let Some(instruction) = ordered {
                self.apply_pending_updates(instruction, &mut memory);
            }
            if !goes_on {
                return;
            }
        }
    }

    fn apply_prompt_update(&mut self, order: PendingPrompt, memory: &mut DescriptionHistory) {
        if let Some(instruction) = order.accepted(memory.next_frame) {
            self.apply_pending_updates(instruction, memory);
        }
    }

    fn apply_pending_updates(&mut self, instruction: Instruction, memory: &mut DescriptionHistory) {
        self.instruction = instruction;
        memory.forget();
        if let Some(novelty) = &mut self.novelty {
            novelty.forget();
        }
    }

    /// Finds out about `look` as the instruction stands now. Novelty comes back with the outcome.
    fn ask(
        &mut self,
        look: &mut DescribeJob,
    ) -> impl Future<Output = (Came, Option<SessionNovelty>)> + Send + use<> {
        let (inference, asker) = (Arc::clone(&self.inference), self.asker.clone());
        let (tiered, version) = self.question(look);
        let is_allowed = self.allowance.lock().allows(Instant::now());
        let mut novelty = self.novelty.take();
        let (pts_ms, first) = (look.span_ms().0, look.pictures.first().cloned());
        let input = look.novelty.take();
        let shown =
            (self.subject == DescriptionTarget::Keyframes).then(|| self.metrics.keyframes.clone());
        async move {
            let verdict = match (&mut novelty, first, input) {
                (Some(novelty), Some((_, jpeg)), Some(input)) => {
                    novelty.judge(pts_ms, &jpeg, input).await
                }
                _ => NoveltyOutcome::New(None),
            };
            let remembered = match verdict {
                NoveltyOutcome::Reuse(seq, finding) => {
                    return (Came::Reused(seq, finding), novelty);
                }
                NoveltyOutcome::New(seen) => seen,
            };
            let came = match tiered {
                _ if !is_allowed => Came::NotAllowed,
                None => Came::Failed(InferError::NoBackend.into()),
                Some(tiered) => {
                    shown.iter().for_each(IntCounter::inc);
                    match inference.describe(&asker, &tiered).await {
                        Ok(described) => Came::Described(Box::new(described), version, remembered),
                        Err(error) => Came::Failed(error),
                    }
                }
            };
            (came, novelty)
        }
    }

    /// Model to ask, if any: while no backend lists its models, one that a backend may serve.
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
        let schema = self.instruction.schema.as_ref().unwrap_or(&self.models.schema);
        let ask = ReasonQuery {
            first,
            second: self.models.second.clone(),
            threshold: self.models.threshold.as_f64(),
            timeout: TIMEOUT,
            schema: Arc::clone(schema),
        };
        (Some(ask.tiered(prompt, images.collect())), version)
    }

    /// Writes what came of a look; false when the run takes no more events.
    async fn record(
        &mut self,
        look: &DescribeJob,
        came: Came,
        memory: &mut DescriptionHistory,
    ) -> bool {
        let (events, remembered) = match came {
            Came::Described(described, version, remembered) => {
                memory.failing = None;
                self.spend(described.answer.tokens);
                let (kind, found) = self.found(look, &described, version);
                if let Some(told) = memory.repeated(&found).filter(|_| look.is_looping) {
                    self.repeat(told, remembered, memory);
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
                self.spend(error.tokens());
                let failed = self.failed(look, &error, memory);
                let Some(event) = failed else { return true };
                return !matches!(
                    self.journal.write(vec![event]).await,
                    Err(SessionLogError::Over)
                );
            }
        };
        let Some(Event::Found(_, finding)) = events.first().cloned() else { return true };
        let appended = match self.journal.write(events).await {
            Ok(appended) => appended,
            Err(error) => return !matches!(error, SessionLogError::Over),
        };
        let Some(seq) = appended.first().map(|appended| appended.seq) else { return true };
        let work = self.metrics.owners.of(&self.journal.run.origin().principal);
        work.descriptions.fetch_add(1, Relaxed);
        memory.remember(seq, finding.clone());
        if let (Some(novelty), Some(seen)) = (&mut self.novelty, remembered) {
            novelty.described(seen, seq, finding);
        }
        true
    }

    fn spend(&self, tokens: TokenUsage) {
        self.allowance.lock().spend(tokens.completion.saturating_add(tokens.thinking));
    }

    /// Passes over an answer that says again what the event `told` says.
    fn repeat(
        &mut self,
        told: (Seq, timeline::FindingPayload),
        seen: Option<FrameFeatures>,
        memory: &mut DescriptionHistory,
    ) {
        self.metrics.live_shed.of(ShedReason::Repeats).inc();
        let (seq, finding) = told;
        memory.remember(seq, finding.clone());
        if let (Some(novelty), Some(seen)) = (&mut self.novelty, seen) {
            novelty.described(seen, seq, finding);
        }
    }

    /// Finding for a job whose picture shows nothing new: copied from the event at `seq`.
    fn reused(
        &self,
        look: &DescribeJob,
        seq: Seq,
        finding: timeline::FindingPayload,
    ) -> timeline::FindingPayload {
        timeline::FindingPayload {
            summary: finding.summary,
            event_type: finding.event_type,
            object_label: finding.object_label,
            confidence: finding.confidence,
            truncated: finding.truncated,
            reused_from_seq: Some(seq),
            ..self.finding(look, finding.description)
        }
    }

    /// Finding of an answer, and the kind of its event.
    fn found(
        &self,
        look: &DescribeJob,
        described: &TwoPassAnswer,
        version: String,
    ) -> (FindingKind, timeline::FindingPayload) {
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
        let finding = timeline::FindingPayload {
            summary: Some(found.summary),
            event_type: found.event_type,
            object_label: found.object_label,
            semantic_error: second_failed,
            provider: Some(answer.provider.to_string()),
            model: Some(answer.model.clone()),
            total_tokens: Some(answer.tokens.total),
            completion_tokens: Some(answer.tokens.completion),
            inference_latency_ms: Some(answer.latency.as_millis() as u64),
            attempts: Some(answer.attempts),
            truncated: found.truncated,
            prompt_version: Some(version),
            confidence: found.confidence.unwrap_or_default(),
            ..self.finding(look, found.description)
        };
        (self.kind(*tier), finding)
    }

    /// The event of a description, and one more where it tells of another state than the last.
    fn with_transition(
        &self,
        look: &DescribeJob,
        kind: FindingKind,
        found: timeline::FindingPayload,
        memory: &DescriptionHistory,
    ) -> Vec<Event> {
        let last = memory.last();
        let shared = last.map(|last| overlap(&last.description, &found.description));
        let changed = shared.filter(|shared| *shared <= TRANSITION).map(|shared| {
            let finding = timeline::FindingPayload {
                confidence: Score::from_millionths(Score::SCALE - shared.millionths()),
                ..self.finding(look, found.description.clone())
            };
            Event::Found(FindingKind::StateTransition, finding)
        });
        std::iter::once(Event::Found(kind, found)).chain(changed).collect()
    }

    /// The event of an ask without an answer, unless it says what the last one said.
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
        let finding = timeline::FindingPayload {
            semantic_error: reason,
            ..self.asked_in_vain(error, self.finding(look, description))
        };
        Some(Event::Found(self.kind(Pass::First), finding))
    }

    /// `finding` with who was asked and what that cost, where anybody was.
    fn asked_in_vain(
        &self,
        error: &InferenceError,
        finding: timeline::FindingPayload,
    ) -> timeline::FindingPayload {
        let InferenceError::Infer(error) = error else { return finding };
        let Some(last) = error.failed().last() else { return finding };
        timeline::FindingPayload {
            provider: Some(last.provider.to_string()),
            // What fails is the first pass: a second that does leaves its answer.
            model: self.model(),
            total_tokens: Some(error.tokens().total),
            completion_tokens: Some(error.tokens().completion),
            inference_latency_ms: Some(error.latency().as_millis() as u64),
            attempts: Some(error.attempts()),
            ..finding
        }
    }

    fn finding(&self, look: &DescribeJob, description: String) -> timeline::FindingPayload {
        let (start, end) = look.span_ms();
        timeline::FindingPayload {
            session_id: Some(self.journal.session),
            frame_index: look.frame_index,
            pts_ms: start,
            end_pts_ms: (self.subject == DescriptionTarget::Clips).then_some(end),
            description,
            index_name: self.journal.index_name.clone(),
            ..timeline::FindingPayload::default()
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

/// Counts what the end of a session left without a description.
struct Ended(Arc<Metrics>);

impl Ended {
    fn count(&self) {
        self.0.live_shed.of(ShedReason::Ended).inc();
    }
}

/// A look that is being asked about, which is counted where that is cut off.
struct Unanswered(Option<Ended>);

impl Unanswered {
    fn answered(mut self) {
        self.0 = None;
    }
}

impl Drop for Unanswered {
    fn drop(&mut self) {
        self.0.iter().for_each(Ended::count);
    }
}

impl DescribeJob {
    /// Presentation times of the first and the last picture.
    fn span_ms(&self) -> (i64, i64) {
        let time = |one: Option<&(i64, Bytes)>| one.map_or(0, |(pts_ms, _)| *pts_ms);
        (time(self.pictures.first()), time(self.pictures.last()))
    }
}
