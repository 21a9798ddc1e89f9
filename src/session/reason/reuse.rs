//! Chunks that show nothing new: the answer to an earlier one stands for them.
//!
//! Judged in the order of the chunks and before answers are there, so that a source is judged alike
//! however long its models take. A chunk is compared with the last frame of the last chunk that is
//! asked about, and only where that chunk stands still in itself; all of its own views must show
//! nothing new. Whatever goes wrong is answered by asking.

use std::{collections::BTreeMap, pin::Pin, sync::Arc};

use bytes::Bytes;
use embed::{Newness, Reuse, ReuseRule, Seen};
use media::Seq;
use timeline::SemanticChunkInferred;
use worker::{Chunk, View};

use crate::{
    analysis::{Insight, Said},
    eyes::Eyes,
    metrics::{Metrics, NoveltyDecision},
};

/// What tells whether chunks show anything new.
#[derive(Clone)]
pub struct Novelty {
    /// What embeds their pictures.
    pub eyes: Eyes,
    /// When an answer may be used again.
    pub rule: ReuseRule,
    /// What is counted.
    pub metrics: Arc<Metrics>,
}

/// Judges the chunks of one source, one after the other.
pub struct Judge {
    novelty: Novelty,
    stream: u64,
    reuse: Reuse,
    /// The chunk whose answer may stand for others.
    anchor: Option<u64>,
}

/// A chunk that was judged.
pub(super) struct Judged {
    pub judge: Judge,
    pub chunk: Chunk,
    /// The chunk that shows all that this one does.
    pub same_as: Option<u64>,
}

/// A judgement to come; dropping it gives it up.
pub(super) type Judging = Pin<Box<dyn Future<Output = Judged> + Send>>;

/// A model's answer, as it is recorded.
pub(super) struct Answer {
    /// The event that records it.
    pub seq: Seq,
    /// What the event says.
    pub said: SemanticChunkInferred,
    /// What the frames get.
    pub insight: Arc<Insight>,
}

/// Answers that may stand for other chunks, and the chunks that wait for one.
pub(super) struct Standing<T> {
    /// The answer to the latest chunk that was asked about.
    latest: Option<(u64, Arc<Answer>)>,
    waiting: BTreeMap<u64, Vec<T>>,
}

impl Judge {
    /// Nothing has been asked about `stream`.
    pub fn new(novelty: Novelty, stream: u64) -> Judge {
        let reuse = Reuse::new(novelty.rule, stream);
        Judge { novelty, stream, reuse, anchor: None }
    }

    /// Judges `chunk`, and comes back with it.
    pub(super) fn judging(mut self, mut chunk: Chunk) -> Judging {
        Box::pin(async move {
            let same_as = self.judge(&mut chunk).await;
            Judged { judge: self, chunk, same_as }
        })
    }

    async fn judge(&mut self, chunk: &mut Chunk) -> Option<u64> {
        let Some(seen) = self.see(&mut chunk.views).await else {
            self.forget();
            return None;
        };
        let newness = seen.iter().find_map(|seen| newness(self.reuse.judge(seen)));
        let decision = newness.map_or(NoveltyDecision::Reuse, NoveltyDecision::of_newness);
        self.novelty.metrics.novelty_decisions.of(decision).inc();
        if newness.is_none() {
            return self.anchor;
        }
        self.forget();
        if self.stands_still(&seen) {
            self.anchor = seen.into_iter().next_back().map(|last| {
                self.reuse.described(last);
                chunk.index
            });
        }
        None
    }

    /// All views as the rule compares them; `None` where one cannot be.
    async fn see(&self, views: &mut [View]) -> Option<Vec<Seen>> {
        let Novelty { eyes, metrics, .. } = &self.novelty;
        let mut seen = Vec::with_capacity(views.len());
        for view in views {
            let input = view.novelty.take()?;
            let jpeg = Bytes::from(std::mem::take(&mut view.jpeg));
            let one = eyes.see(self.stream, view.pts, &jpeg, input, metrics).await;
            // Not copied where the eyes kept none of it.
            view.jpeg = jpeg.into();
            seen.push(one?);
        }
        Some(seen)
    }

    /// None of the views shows anything that the first does not.
    fn stands_still(&mut self, seen: &[Seen]) -> bool {
        let Some((first, others)) = seen.split_first() else { return false };
        self.reuse.described(first.clone());
        let is_new = |newness| !matches!(newness, Newness::Shadow(_));
        let stands = !others.iter().filter_map(|seen| newness(self.reuse.judge(seen))).any(is_new);
        self.reuse.forget();
        stands
    }

    fn forget(&mut self) {
        self.reuse.forget();
        self.anchor = None;
    }
}

fn newness(judged: embed::Novelty) -> Option<Newness> {
    match judged {
        embed::Novelty::New(newness) => Some(newness),
        embed::Novelty::Reuse(_) => None,
    }
}

impl Answer {
    /// Has the event of another chunk say the same, and tells what its frames get. What the gate
    /// says of the other chunk stands where a model said nothing of the kind, or said a cut: that
    /// was the first chunk's.
    pub fn stand_for(&self, inferred: &mut SemanticChunkInferred) -> Arc<Insight> {
        let insight = match &*self.insight {
            Insight::Said(said) if said.is_scene_cut => Arc::new(Insight::Said(Said {
                is_scene_cut: false,
                event_type: None,
                ..said.clone()
            })),
            _ => Arc::clone(&self.insight),
        };
        if let Insight::Said(Said { event_type: Some(event_type), .. }) = &*insight {
            inferred.event_type = event_type.clone();
        }
        inferred.object_label = self.said.object_label.clone();
        inferred.summary = self.said.summary.clone();
        inferred.description = self.said.description.clone();
        inferred.confidence = self.said.confidence;
        inferred.reused_from_seq = Some(self.seq);
        insight
    }
}

impl<T> Default for Standing<T> {
    fn default() -> Standing<T> {
        Standing { latest: None, waiting: BTreeMap::new() }
    }
}

impl<T> Standing<T> {
    /// The answer to `chunk`, if it stands for others.
    pub fn answer(&self, chunk: u64) -> Option<Arc<Answer>> {
        let latest = self.latest.as_ref().filter(|(index, _)| *index == chunk);
        latest.map(|(_, answer)| Arc::clone(answer))
    }

    /// Has `one` wait for the answer to `chunk`.
    pub fn wait(&mut self, chunk: u64, one: T) {
        self.waiting.entry(chunk).or_default().push(one);
    }

    /// Closes `chunk`: whatever waited for it goes on, with its answer if there is one.
    pub fn close(
        &mut self,
        chunk: u64,
        answer: Option<Answer>,
    ) -> impl Iterator<Item = (T, Option<Arc<Answer>>)> + use<T> {
        let answer = answer.map(Arc::new);
        if let Some(answer) = &answer
            && self.latest.as_ref().is_none_or(|(index, _)| *index < chunk)
        {
            self.latest = Some((chunk, Arc::clone(answer)));
        }
        let waited = self.waiting.remove(&chunk).unwrap_or_default();
        waited.into_iter().map(move |one| (one, answer.clone()))
    }
}

#[cfg(test)]
pub(super) mod tests;
