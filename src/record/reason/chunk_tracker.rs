//! Chunks of a source: their prompts, their state, and the totals over all of them.
//!
//! Pure: callers pass the time since the start of the job. Chunks are asked about in order and may be
//! answered in any order.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use bytes::Bytes;
use infer::{Prompt, PromptImage, PromptKind, TokenUsage, prompt::PromptParts};
use worker::{FrameChunk, ModelImage};

use crate::runs::registry::ChunkProgress;

#[derive(Clone, Debug)]
pub struct PromptConfig {
    /// Task of the caller; empty selects the default.
    pub task: String,
    /// True if the pictures of a chunk form one clip.
    pub is_clip: bool,
    /// True if each prompt contains the previous description.
    pub is_chained: bool,
    /// True if the last picture of the previous chunk is shown too.
    pub compares: bool,
    /// Maximum concurrent requests; 1 if the prompts are chained.
    pub concurrency: usize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChunkPrompt {
    pub chunk_index: u64,
    pub prompt: Prompt,
    /// Pictures of the chunk, each with a caption.
    pub images: Vec<PromptImage>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameRange {
    pub chunk_index: u64,
    pub first_frame: u64,
    pub frames: u64,
    pub start_pts_ms: i64,
    pub end_pts_ms: i64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// Time from request to outcome, in ms.
    pub process_ms: u64,
    /// Lag in ms: time from the start of the job to the outcome, less the media time up to the
    /// chunk's end; at least 0.
    pub lag_ms: i64,
}

struct Asked {
    span: FrameRange,
    since: Duration,
}

/// Open chunks, and the totals of the closed ones.
pub struct ChunkTracker {
    inquiry: PromptConfig,
    asked: BTreeMap<u64, Asked>,
    first_pts_ms: Option<i64>,
    /// Time in ms and JPEG of the picture that the next chunk may be compared with.
    picture: Option<(i64, Bytes)>,
    description: Option<Arc<str>>,
    lags_ms: Vec<i64>,
    /// Totals without the percentiles.
    totals: Totals,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    pub lag_p95_ms: i64,
    pub lag_p99_ms: i64,
    pub tokens: TokenUsage,
    /// Sum of all request durations.
    pub latency: Duration,
    /// Chunks described by an answer, their own or a reused one.
    pub chunks_analyzed: u64,
}

impl ChunkTracker {
    pub fn new(inquiry: PromptConfig) -> ChunkTracker {
        ChunkTracker {
            inquiry,
            asked: BTreeMap::new(),
            first_pts_ms: None,
            picture: None,
            description: None,
            lags_ms: Vec::new(),
            totals: Totals::default(),
        }
    }

    /// Returns true if another chunk may be asked about; `waiting` open chunks are not counted.
    pub fn has_room(&self, waiting: usize) -> bool {
        let most = if self.inquiry.is_chained { 1 } else { self.inquiry.concurrency };
        self.asked.len().saturating_sub(waiting) < most
    }

    pub fn is_asked(&self, index: u64) -> bool {
        self.asked.contains_key(&index)
    }

    pub fn ask(&mut self, chunk: FrameChunk, now: Duration) -> ChunkPrompt {
        let FrameChunk { index, first_frame, frames, start_pts_ms, end_pts_ms, views } = chunk;
        let span = FrameRange { chunk_index: index, first_frame, frames, start_pts_ms, end_pts_ms };
        self.first_pts_ms.get_or_insert(start_pts_ms);
        self.asked.insert(index, Asked { span, since: now });
        let of = |view: ModelImage| (view.pts_ms, Bytes::from(view.picture.jpeg));
        let mut pictures: Vec<_> = views.into_iter().map(of).collect();
        let mut shape = if self.inquiry.is_clip { PromptKind::Clip } else { PromptKind::Chunk };
        if self.inquiry.compares {
            // The last picture is compared, as it is the nearest to the next chunk.
            pictures.drain(..pictures.len().saturating_sub(1));
            let next = pictures.last().cloned();
            if let Some(before) = std::mem::replace(&mut self.picture, next) {
                pictures.insert(0, before);
                shape = PromptKind::Diff;
            }
        }
        let times: Vec<i64> = pictures.iter().map(|(pts_ms, _)| *pts_ms).collect();
        let prompt = Prompt::new(&PromptParts {
            kind: shape,
            task: &self.inquiry.task,
            span_ms: (start_pts_ms, end_pts_ms),
            pictures_ms: &times,
            previous: self.description.as_deref(),
        });
        let captions = prompt.captions.iter().cloned();
        let images = pictures.into_iter().zip(captions);
        let images = images.map(|((_, jpeg), caption)| PromptImage { jpeg, caption });
        ChunkPrompt { chunk_index: index, images: images.collect(), prompt }
    }

    /// Closes chunk `index` with its description, or `None` if it has none.
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
            self.totals.chunks_analyzed += 1;
            self.description = self.inquiry.is_chained.then(|| said.into());
        }
        self.totals.tokens = self.totals.tokens + tokens;
        self.totals.latency += latency;
        let media_ms = span.end_pts_ms.saturating_sub(self.first_pts_ms.unwrap_or_default());
        let lag_ms = (now.as_millis() as i64).saturating_sub(media_ms).max(0);
        self.lags_ms.push(lag_ms);
        let process_ms = now.saturating_sub(since).as_millis() as u64;
        Some((span, Timing { process_ms, lag_ms }))
    }

    pub fn progress(&self) -> ChunkProgress {
        let closed = self.lags_ms.len() as u64;
        ChunkProgress {
            asked: self.asked.len() as u64 + closed,
            answered: self.totals.chunks_analyzed,
            unanswered: closed - self.totals.chunks_analyzed,
        }
    }

    pub fn totals(&mut self) -> Totals {
        self.lags_ms.sort_unstable();
        Totals {
            lag_p95_ms: percentile(&self.lags_ms, 95),
            lag_p99_ms: percentile(&self.lags_ms, 99),
            ..self.totals
        }
    }
}

/// Nearest-rank percentile of `sorted`; 0 if empty.
fn percentile(sorted: &[i64], percent: usize) -> i64 {
    let rank = (sorted.len() * percent).div_ceil(100);
    rank.checked_sub(1).map_or(0, |at| sorted[at])
}

#[cfg(test)]
pub(super) mod tests;
