//! Chunks that show nothing new: the answer to an earlier one stands for them.
//!
//! Judged in the order of the chunks and before answers are there, so that a source is judged alike
//! however long its models take. A chunk is compared with the last frame of the last chunk that is
//! asked about, and only where that chunk stands still in itself; all of its own views must show
//! nothing new. Whatever goes wrong is answered by asking.

use std::{
    collections::{BTreeMap, VecDeque},
    pin::Pin,
    sync::Arc,
};

use bytes::Bytes;
use embed::{FrameFeatures, NoveltyDetector, NoveltyReason, ReuseRule};
use media::{Seq, Timestamp};
use timeline::SemanticChunkInferred;
use worker::{FrameChunk, ModelImage};

use crate::{
    base::metrics::{Metrics, NoveltyDecision},
    record::{
        gate_replay::{ModelFinding, ModelOutcome},
        image_embedder::ImageEmbedder,
    },
};

/// Parts of the novelty check of chunks.
#[derive(Clone)]
pub struct ChunkNovelty {
    /// Image embedder.
    pub eyes: ImageEmbedder,
    /// Rule for reusing an answer.
    pub rule: ReuseRule,
    /// Counters and gauges of the service.
    pub metrics: Arc<Metrics>,
}

/// Judges the chunks of one source, one after the other.
pub struct ChunkComparer {
    novelty: ChunkNovelty,
    stream: u64,
    reuse: NoveltyDetector,
    /// The chunk whose answer may stand for others.
    anchor: Option<u64>,
}

/// A chunk that was judged.
pub(super) struct ComparedChunk {
    pub judge: ChunkComparer,
    pub chunk: FrameChunk,
    /// The chunk that shows all that this one does.
    pub same_as: Option<u64>,
}

/// A judgement to come; dropping it gives it up.
pub(super) type CompareFuture = Pin<Box<dyn Future<Output = ComparedChunk> + Send>>;

/// A model's answer, as it is recorded.
pub(super) struct ReusableAnswer {
    /// The event that records it.
    pub seq: Seq,
    /// Event as recorded.
    pub said: SemanticChunkInferred,
    /// Outcome for the chunk's frames.
    pub insight: Arc<ModelOutcome>,
}

/// Answers that may stand for other chunks, and the chunks that wait for one. Where a chunk gets no
/// answer, the next one that shows the same is asked about in its place.
pub(super) struct AnswerCache<T> {
    /// The answer to the latest chunk that was asked about.
    latest: Option<(u64, Arc<ReusableAnswer>)>,
    /// Chunks and what is known of them, by the one whose answer they wait for.
    waiting: BTreeMap<u64, VecDeque<(u64, T)>>,
    /// Chunks that are asked about, by the one in whose place they are.
    deputies: BTreeMap<u64, u64>,
}

/// Decision about a chunk that shows all that an earlier one does.
pub(super) enum DuplicateAction {
    /// The earlier one's answer stands for it.
    Answered(Arc<ReusableAnswer>),
    /// The chunk waits for that answer.
    Waits,
    /// No answer is to come: the chunk is asked about in the earlier one's place.
    Deputy,
}

impl ChunkComparer {
    /// Novelty check of `stream`, of which no chunk has been asked about.
    pub fn new(novelty: ChunkNovelty, stream: u64) -> ChunkComparer {
        let reuse = NoveltyDetector::new(novelty.rule, stream);
        ChunkComparer { novelty, stream, reuse, anchor: None }
    }

    /// Judges `chunk`, and comes back with it.
    pub(super) fn judging(mut self, mut chunk: FrameChunk) -> CompareFuture {
        Box::pin(async move {
            let same_as = self.judge(&mut chunk).await;
            ComparedChunk { judge: self, chunk, same_as }
        })
    }

    async fn judge(&mut self, chunk: &mut FrameChunk) -> Option<u64> {
        let Some(seen) = self.see(&mut chunk.views).await else {
            self.forget();
            return None;
        };
        let newness = seen.iter().find_map(|seen| newness(self.reuse.evaluate(seen)));
        // What shows nothing new is counted once it is known whether there is an answer.
        let Some(newness) = newness else { return self.anchor };
        let decision = NoveltyDecision::of_newness(newness);
        self.novelty.metrics.novelty_decisions.of(decision).inc();
        self.forget();
        if self.stands_still(&seen) {
            self.anchor = seen.into_iter().next_back().map(|last| {
                self.reuse.described(last);
                chunk.index
            });
        }
        None
    }

    /// Embeds all views for the rule; `None` where one cannot be.
    async fn see(&self, views: &mut [ModelImage]) -> Option<Vec<FrameFeatures>> {
        let ChunkNovelty { eyes, metrics, .. } = &self.novelty;
        let mut seen = Vec::with_capacity(views.len());
        for view in views {
            let input = view.novelty.take()?;
            let jpeg = Bytes::from(std::mem::take(&mut view.picture.jpeg));
            let at = Timestamp::from_millis(view.pts_ms);
            let one = eyes.embed_frame(self.stream, at, &jpeg, input, metrics).await;
            // Not copied where the eyes kept none of it.
            view.picture.jpeg = jpeg.into();
            seen.push(one?);
        }
        Some(seen)
    }

    /// Returns true if none of the views shows anything that the first does not.
    fn stands_still(&mut self, seen: &[FrameFeatures]) -> bool {
        let Some((first, others)) = seen.split_first() else { return false };
        self.reuse.described(first.clone());
        let is_new = |newness| !matches!(newness, NoveltyReason::Shadow(_));
        let stands =
            !others.iter().filter_map(|seen| newness(self.reuse.evaluate(seen))).any(is_new);
        self.reuse.forget();
        stands
    }

    fn forget(&mut self) {
        self.reuse.forget();
        self.anchor = None;
    }
}

fn newness(judged: embed::NoveltyVerdict) -> Option<NoveltyReason> {
    match judged {
        embed::NoveltyVerdict::New(newness) => Some(newness),
        embed::NoveltyVerdict::Reuse(_) => None,
    }
}

impl ReusableAnswer {
    /// Makes the event of another chunk say the same, and tells what its frames get. What the gate
    /// says of the other chunk stands where a model said nothing of the kind, or said a cut: that
    /// was the first chunk's.
    pub fn stand_for(&self, inferred: &mut SemanticChunkInferred) -> Arc<ModelOutcome> {
        let insight = match &*self.insight {
            ModelOutcome::Said(said) if said.is_scene_cut => {
                Arc::new(ModelOutcome::Said(ModelFinding {
                    is_scene_cut: false,
                    event_type: None,
                    ..said.clone()
                }))
            }
            _ => Arc::clone(&self.insight),
        };
        if let ModelOutcome::Said(ModelFinding { event_type: Some(event_type), .. }) = &*insight {
            inferred.event_type = event_type.clone();
        }
        inferred.object_label = self.said.object_label.clone();
        inferred.summary = self.said.summary.clone();
        inferred.description = self.said.description.clone();
        inferred.confidence = self.said.confidence;
        inferred.output.clone_from(&self.said.output);
        inferred.truncated = self.said.truncated;
        inferred.reused_from_seq = Some(self.seq);
        insight
    }
}

impl<T> Default for AnswerCache<T> {
    fn default() -> AnswerCache<T> {
        AnswerCache { latest: None, waiting: BTreeMap::new(), deputies: BTreeMap::new() }
    }
}

impl<T> AnswerCache<T> {
    /// Number of chunks that wait.
    pub fn waiting(&self) -> usize {
        self.waiting.values().map(VecDeque::len).sum()
    }

    /// Decides about `chunk`, which shows all that `other` does; `other` is asked about and not
    /// closed where it `is_asked`.
    pub fn turn(&mut self, chunk: u64, other: u64, is_asked: bool) -> DuplicateAction {
        let latest = self.latest.as_ref().filter(|(index, _)| *index == other);
        if let Some((_, answer)) = latest {
            return DuplicateAction::Answered(Arc::clone(answer));
        }
        if is_asked || self.deputies.contains_key(&other) {
            return DuplicateAction::Waits;
        }
        self.deputies.insert(other, chunk);
        DuplicateAction::Deputy
    }

    /// Makes `chunk` wait for the answer to `other`.
    pub fn wait(&mut self, chunk: u64, other: u64, one: T) {
        self.waiting.entry(other).or_default().push_back((chunk, one));
    }

    /// Closes `chunk`: whatever waited for it goes on with its answer, or the first of it without.
    pub fn close(
        &mut self,
        chunk: u64,
        answer: Option<ReusableAnswer>,
    ) -> Vec<(T, Option<Arc<ReusableAnswer>>)> {
        let stood_for = self.deputies.iter().find(|(_, deputy)| **deputy == chunk);
        let other = stood_for.map_or(chunk, |(other, _)| *other);
        self.deputies.remove(&other);
        let Some(answer) = answer.map(Arc::new) else {
            let Some(waiting) = self.waiting.get_mut(&other) else { return Vec::new() };
            let Some((deputy, one)) = waiting.pop_front() else { return Vec::new() };
            self.deputies.insert(other, deputy);
            return vec![(one, None)];
        };
        if self.latest.as_ref().is_none_or(|(index, _)| *index < other) {
            self.latest = Some((other, Arc::clone(&answer)));
        }
        let waited = self.waiting.remove(&other).unwrap_or_default();
        waited.into_iter().map(|(_, one)| (one, Some(Arc::clone(&answer)))).collect()
    }
}

#[cfg(test)]
pub(super) mod tests;
