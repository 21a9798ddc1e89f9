//! Deduplicates chunks: a chunk that shows nothing new gets the answer to an earlier one.
//!
//! Chunks are compared in order and before answers arrive, so that the result does not depend on the speed of
//! the models. A chunk is compared with the last frame of the last chunk asked about, if that chunk stood
//! still; none of its views may be new. After any failure the model is asked.

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

#[derive(Clone)]
pub struct ChunkNovelty {
    pub eyes: ImageEmbedder,
    pub rule: ReuseRule,
    pub metrics: Arc<Metrics>,
}

/// Compares the chunks of one source, in order.
pub struct ChunkComparer {
    novelty: ChunkNovelty,
    stream: u64,
    reuse: NoveltyDetector,
    /// Chunk whose answer may be reused.
    anchor: Option<u64>,
}

pub(super) struct ComparedChunk {
    pub judge: ChunkComparer,
    pub chunk: FrameChunk,
    /// Earlier chunk that shows all that this one does.
    pub same_as: Option<u64>,
}

/// Comparison in progress; dropping it cancels it.
pub(super) type CompareFuture = Pin<Box<dyn Future<Output = ComparedChunk> + Send>>;

/// Recorded answer of a model, for reuse.
pub(super) struct ReusableAnswer {
    pub seq: Seq,
    pub said: SemanticChunkInferred,
    pub insight: Arc<ModelOutcome>,
}

/// Answers for reuse, and the chunks that wait for one. If a chunk gets no answer, the next one
/// that shows the same becomes its deputy: it is asked about in its place.
pub(super) struct AnswerCache<T> {
    /// Answer to the latest chunk that was asked about.
    latest: Option<(u64, Arc<ReusableAnswer>)>,
    /// Waiting chunks with their context, by the chunk whose answer they wait for.
    waiting: BTreeMap<u64, VecDeque<(u64, T)>>,
    /// Deputies, by the chunk in whose place they are asked about.
    deputies: BTreeMap<u64, u64>,
}

/// Decision about a chunk that shows all that an earlier one does.
pub(super) enum DuplicateAction {
    Answered(Arc<ReusableAnswer>),
    Waits,
    /// No answer will come: ask about the chunk as the earlier one's deputy.
    Deputy,
}

impl ChunkComparer {
    pub fn new(novelty: ChunkNovelty, stream: u64) -> ChunkComparer {
        let reuse = NoveltyDetector::new(novelty.rule, stream);
        ChunkComparer { novelty, stream, reuse, anchor: None }
    }

    /// Compares `chunk`; the future returns it with the result.
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
        // A chunk without news is counted later, when its answer is known.
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

    /// Computes the features of all views; `None` if a view cannot be embedded.
    async fn see(&self, views: &mut [ModelImage]) -> Option<Vec<FrameFeatures>> {
        let ChunkNovelty { eyes, metrics, .. } = &self.novelty;
        let mut seen = Vec::with_capacity(views.len());
        for view in views {
            let input = view.novelty.take()?;
            let jpeg = Bytes::from(std::mem::take(&mut view.picture.jpeg));
            let at = Timestamp::from_millis(view.pts_ms);
            let one = eyes.embed_frame(self.stream, at, &jpeg, input, metrics).await;
            // Copied only if the embedder kept a reference to the bytes.
            view.picture.jpeg = jpeg.into();
            seen.push(one?);
        }
        Some(seen)
    }

    /// Returns true if no view shows anything that the first does not; a shadow does not count.
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
    /// Copies the answer into the event of another chunk, and returns the insight for its frames.
    /// The gate's event type of that chunk stays if the model named none, or named a scene cut,
    /// which belongs to the first chunk.
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
    pub fn waiting(&self) -> usize {
        self.waiting.values().map(VecDeque::len).sum()
    }

    /// Decides about `chunk`, which shows all that `other` does; `is_asked` means that `other` is
    /// asked about and not closed.
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

    /// Closes `chunk`. Returns all chunks that waited for its answer, or without an answer only
    /// the first one.
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
