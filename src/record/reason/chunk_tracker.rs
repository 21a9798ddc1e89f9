//! The chunks of a source: what each is asked, what came of it, and the figures over all.
//!
//! Pure: time is an argument, counted from the start of the job. Chunks are asked in their order
//! and may be answered in any.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use bytes::Bytes;
use infer::{Prompt, PromptImage, PromptKind, TokenUsage, prompt::PromptParts};
use worker::{FrameChunk, ModelImage};

use crate::runs::registry::ChunkProgress;

/// Question about every chunk of a source.
#[derive(Clone, Debug)]
pub struct PromptConfig {
    /// Task in the caller's words; empty for the default.
    pub task: String,
    /// The pictures of a chunk are one clip.
    pub is_clip: bool,
    /// The description before goes into the prompt.
    pub is_chained: bool,
    /// The picture before is shown too.
    pub compares: bool,
    /// Asks at once; of chained ones there is one.
    pub concurrency: usize,
}

impl PromptConfig {
    /// Chunks that may be asked about at once.
    pub fn places(&self) -> usize {
        if self.is_chained { 1 } else { self.concurrency }
    }
}

/// Question to a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChunkPrompt {
    /// The chunk.
    pub chunk_index: u64,
    /// The words.
    pub prompt: Prompt,
    /// The pictures, each with its time.
    pub images: Vec<PromptImage>,
}

/// The frames of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameRange {
    /// Position among the chunks.
    pub chunk_index: u64,
    /// Its first frame.
    pub first_frame: u64,
    /// Number of its frames.
    pub frames: u64,
    /// Presentation time of its first frame.
    pub start_pts_ms: i64,
    /// Presentation time of its last frame.
    pub end_pts_ms: i64,
}

/// Time that an answered chunk took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// Time from its question to its answer.
    pub process_ms: u64,
    /// Lag: how much longer it took from the start of the job to the answer than the media to
    /// there; 0 where it did not.
    pub lag_ms: i64,
}

/// A picture that the next chunk may be compared with.
struct Picture {
    pts_ms: i64,
    jpeg: Bytes,
}

struct Asked {
    span: FrameRange,
    since: Duration,
}

/// Chunks that are asked about, and the figures of the answered ones.
pub struct ChunkTracker {
    inquiry: PromptConfig,
    asked: BTreeMap<u64, Asked>,
    first_pts_ms: Option<i64>,
    picture: Option<Picture>,
    description: Option<Arc<str>>,
    lags_ms: Vec<i64>,
    tokens: TokenUsage,
    latency: Duration,
    analyzed: u64,
}

/// The figures over all chunks that were answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Lag that 95 of 100 chunks kept to.
    pub lag_p95_ms: i64,
    /// Lag that 99 of 100 chunks kept to.
    pub lag_p99_ms: i64,
    /// Tokens spent.
    pub tokens: TokenUsage,
    /// Time of all asks together.
    pub latency: Duration,
    /// Chunks that a model's answer describes, also one that is repeated.
    pub chunks_analyzed: u64,
}

impl ChunkTracker {
    /// A ledger without chunks.
    pub fn new(inquiry: PromptConfig) -> ChunkTracker {
        ChunkTracker {
            inquiry,
            asked: BTreeMap::new(),
            first_pts_ms: None,
            picture: None,
            description: None,
            lags_ms: Vec::new(),
            tokens: TokenUsage::default(),
            latency: Duration::ZERO,
            analyzed: 0,
        }
    }

    /// Returns true if another chunk may be asked about; `waiting` of the open ones are not.
    pub fn has_room(&self, waiting: usize) -> bool {
        self.asked.len().saturating_sub(waiting) < self.inquiry.places()
    }

    /// Chunk `index` is open.
    pub fn is_asked(&self, index: u64) -> bool {
        self.asked.contains_key(&index)
    }

    /// Question about the next chunk.
    pub fn ask(&mut self, chunk: FrameChunk, now: Duration) -> ChunkPrompt {
        let FrameChunk { index, first_frame, frames, start_pts_ms, end_pts_ms, views } = chunk;
        let span = FrameRange { chunk_index: index, first_frame, frames, start_pts_ms, end_pts_ms };
        self.first_pts_ms.get_or_insert(start_pts_ms);
        self.asked.insert(index, Asked { span, since: now });
        let mut pictures: Vec<Picture> = views.into_iter().map(Picture::of).collect();
        let mut shape = if self.inquiry.is_clip { PromptKind::Clip } else { PromptKind::Chunk };
        if self.inquiry.compares {
            // The moment to compare is the one nearest to what follows.
            pictures.drain(..pictures.len().saturating_sub(1));
            let next = pictures.last().map(Picture::share);
            if let Some(before) = std::mem::replace(&mut self.picture, next) {
                pictures.insert(0, before);
                shape = PromptKind::Diff;
            }
        }
        let times: Vec<i64> = pictures.iter().map(|picture| picture.pts_ms).collect();
        let prompt = Prompt::new(&PromptParts {
            kind: shape,
            task: &self.inquiry.task,
            span_ms: (start_pts_ms, end_pts_ms),
            pictures_ms: &times,
            previous: self.description.as_deref(),
        });
        let captions = prompt.captions.iter().cloned();
        let images = pictures.into_iter().zip(captions);
        let images = images.map(|(picture, caption)| PromptImage { jpeg: picture.jpeg, caption });
        ChunkPrompt { chunk_index: index, images: images.collect(), prompt }
    }

    /// Closes chunk `index`: with what a model said of it, or with `None` where none did.
    pub fn complete(
        &mut self,
        index: u64,
        said: Option<&str>,
        tokens: TokenUsage,
        latency: Duration,
        now: Duration,
    ) -> Option<(FrameRange, Timing)> {
        let Asked { span, since } = self.asked.remove(&index)?;
        if let Some(said) = said {
            self.analyzed += 1;
            self.description = self.inquiry.is_chained.then(|| said.into());
        }
        self.tokens = self.tokens + tokens;
        self.latency += latency;
        let media_ms = span.end_pts_ms.saturating_sub(self.first_pts_ms.unwrap_or_default());
        let lag_ms = (now.as_millis() as i64).saturating_sub(media_ms).max(0);
        self.lags_ms.push(lag_ms);
        let process_ms = now.saturating_sub(since).as_millis() as u64;
        Some((span, Timing { process_ms, lag_ms }))
    }

    /// Progress through the chunks.
    pub fn progress(&self) -> ChunkProgress {
        let closed = self.lags_ms.len() as u64;
        ChunkProgress {
            asked: self.asked.len() as u64 + closed,
            answered: self.analyzed,
            unanswered: closed - self.analyzed,
        }
    }

    /// The figures so far.
    pub fn totals(&mut self) -> Totals {
        self.lags_ms.sort_unstable();
        Totals {
            lag_p95_ms: percentile(&self.lags_ms, 95),
            lag_p99_ms: percentile(&self.lags_ms, 99),
            tokens: self.tokens,
            latency: self.latency,
            chunks_analyzed: self.analyzed,
        }
    }
}

impl Picture {
    fn of(view: ModelImage) -> Picture {
        Picture { pts_ms: view.pts_ms, jpeg: view.picture.jpeg.into() }
    }

    fn share(&self) -> Picture {
        Picture { pts_ms: self.pts_ms, jpeg: self.jpeg.clone() }
    }
}

/// The smallest of `sorted` that `percent` of them do not pass; 0 of none.
fn percentile(sorted: &[i64], percent: usize) -> i64 {
    let rank = (sorted.len() * percent).div_ceil(100);
    rank.checked_sub(1).map_or(0, |at| sorted[at])
}

#[cfg(test)]
mod tests;
