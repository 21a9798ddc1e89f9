//! Novelty of a selected frame: its embedding, and the rule that compares it with the last frame
//! that was described.
//!
//! If a frame cannot be embedded, the model is asked.

use std::sync::Arc;

use bytes::Bytes;
use embed::{FrameFeatures, NoveltyDetector, ReuseRule};
use media::{Seq, Timestamp};
use worker::NoveltyInput;

use crate::{
    base::metrics::{Metrics, NoveltyDecision},
    record::image_embedder::ImageEmbedder,
};

pub struct SessionNovelty {
    eyes: ImageEmbedder,
    stream: u64,
    reuse: NoveltyDetector,
    metrics: Arc<Metrics>,
    last: Option<(Seq, timeline::FindingPayload)>,
}

pub enum NoveltyOutcome {
    /// The frame is new, or cannot be judged; its features, if computed.
    New(Option<FrameFeatures>),
    /// The frame shows nothing new: reuse the description of this event.
    Reuse(Seq, Box<timeline::FindingPayload>),
}

impl SessionNovelty {
    pub fn new(
        eyes: ImageEmbedder,
        rule: ReuseRule,
        stream: u64,
        metrics: Arc<Metrics>,
    ) -> SessionNovelty {
        SessionNovelty {
            eyes,
            stream,
            reuse: NoveltyDetector::new(rule, stream),
            metrics,
            last: None,
        }
    }

    pub async fn judge(
        &mut self,
        pts_ms: i64,
        jpeg: &Bytes,
        input: NoveltyInput,
    ) -> NoveltyOutcome {
        let at = Timestamp::from_millis(pts_ms);
        let seen = self.eyes.embed_frame(self.stream, at, jpeg, input, &self.metrics).await;
        let Some(seen) = seen else { return NoveltyOutcome::New(None) };
        let novelty = self.reuse.evaluate(&seen);
        self.metrics.novelty_decisions.of(NoveltyDecision::of(&novelty)).inc();
        match (novelty, &self.last) {
            (embed::NoveltyVerdict::Reuse(_), Some((seq, finding))) => {
                NoveltyOutcome::Reuse(*seq, Box::new(finding.clone()))
            }
            _ => NoveltyOutcome::New(Some(seen)),
        }
    }

    /// Notes that the event `seq` describes the frame with the features `seen`.
    pub fn described(&mut self, seen: FrameFeatures, seq: Seq, finding: timeline::FindingPayload) {
        self.reuse.described(seen);
        self.last = Some((seq, finding));
    }

    /// Clears the check after a prompt change, so that no earlier description is reused.
    pub fn forget(&mut self) {
        self.reuse.forget();
        self.last = None;
    }
}
