//! Reuse of a frame's description for a later frame: compares with the anchor, the last described frame,
//! never with the previous frame, so that slow changes add up until they are described.
//!
//! Pure: frames go in with their media time, decisions come out. The same frames and embeddings give the same
//! decisions on every machine.

use media::{Score, Timestamp};

use crate::{cell_means::CellMeans, embedding::Embedding};

#[cfg(test)]
mod tests;

/// Limits within which a description is reused. `Default` holds the service's defaults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReuseRule {
    /// Largest cosine distance to the anchor.
    pub distance_max: Score,
    /// Longest media time since the anchor, in milliseconds.
    pub elapsed_ms_max: u64,
    /// Largest sum of the distances of the frames that reused the anchor's description.
    pub drift_max: Score,
    /// Largest change of a cell's mean luma since the anchor, in 0..=255.
    pub cell_change_max: u8,
    /// One in this many reuses is described all the same, to measure what reuse misses; 0 for none.
    pub shadow_one_in: u32,
}

impl Default for ReuseRule {
    fn default() -> ReuseRule {
        ReuseRule {
            distance_max: Score::from_millionths(10_000),
            elapsed_ms_max: 2000,
            drift_max: Score::from_millionths(500_000),
            cell_change_max: CELL_CHANGE_MAX,
            shadow_one_in: 100,
        }
    }
}

/// Separates, on 78 frames of 26 clips, changes to ignore from changes to describe: noise of 10 changes a
/// cell by at most 6, 5 % more light by 12; a patch of 2 % of the frame with a contrast of 20 changes one by
/// 20, and 466 of 468 new objects of that size changed one by more than 12 (docs/NOVELTY.md).
const CELL_CHANGE_MAX: u8 = 12;

/// Features of a frame that the reuse rule compares.
#[derive(Clone, Debug, PartialEq)]
pub struct FrameFeatures {
    /// Media time of the frame.
    pub at: Timestamp,
    /// Embedding of the frame's picture.
    pub embedding: Embedding,
    /// Mean luma of the frame's cells.
    pub cells: CellMeans,
}

/// Decision about a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoveltyVerdict {
    /// The frame needs a description.
    New(NoveltyReason),
    /// The anchor's description is reused, at this distance.
    Reuse(Score),
}

/// Reason to describe a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoveltyReason {
    /// No frame has been described.
    First,
    /// The anchor is too old, or later than the frame because media time went backwards.
    Elapsed,
    /// The anchor's embedding has other dimensions: another model made it.
    Model,
    /// The distance to the anchor is too large.
    Distance(Score),
    /// A cell's mean luma changed by this much: a small object that an embedding may miss.
    Cell(u8),
    /// The distances at which the anchor's description was reused add up to too much.
    Drift,
    /// Shadow sample: reusable at this distance, and described all the same.
    Shadow(Score),
}

/// Applies the reuse rule to the frames of one stream, in order.
#[derive(Debug)]
pub struct NoveltyDetector {
    rule: ReuseRule,
    seed: u64,
    anchor: Option<FrameFeatures>,
    drift: u64,
    reusable: u64,
}

impl NoveltyDetector {
    /// Creates the detector of a stream without descriptions. `seed` selects the shadow samples; a different
    /// one for each stream keeps streams from being shadowed at once.
    pub fn new(rule: ReuseRule, seed: u64) -> NoveltyDetector {
        NoveltyDetector { rule, seed, anchor: None, drift: 0, reusable: 0 }
    }

    /// Decides if `frame` needs a description. Leaves the anchor as it is: call
    /// [`NoveltyDetector::described`] once the description has succeeded.
    pub fn evaluate(&mut self, frame: &FrameFeatures) -> NoveltyVerdict {
        let distance = match self.distance(frame) {
            Ok(distance) => distance,
            Err(reason) => return NoveltyVerdict::New(reason),
        };
        let count = self.reusable;
        self.reusable += 1;
        if is_shadowed(self.seed, count, self.rule.shadow_one_in) {
            return NoveltyVerdict::New(NoveltyReason::Shadow(distance));
        }
        self.drift += u64::from(distance.millionths());
        NoveltyVerdict::Reuse(distance)
    }

    /// Makes `frame`, which has been described, the anchor.
    pub fn described(&mut self, frame: FrameFeatures) {
        self.anchor = Some(frame);
        self.drift = 0;
    }

    /// Drops the anchor because the prompt changed.
    pub fn forget(&mut self) {
        self.anchor = None;
        self.drift = 0;
    }

    fn distance(&self, frame: &FrameFeatures) -> Result<Score, NoveltyReason> {
        let anchor = self.anchor.as_ref().ok_or(NoveltyReason::First)?;
        let elapsed = frame.at.as_millis().saturating_sub(anchor.at.as_millis());
        if u64::try_from(elapsed).map_or(true, |elapsed| elapsed > self.rule.elapsed_ms_max) {
            return Err(NoveltyReason::Elapsed);
        }
        let distance = frame.embedding.distance(&anchor.embedding).ok_or(NoveltyReason::Model)?;
        if distance > self.rule.distance_max {
            return Err(NoveltyReason::Distance(distance));
        }
        let change = frame.cells.largest_change(&anchor.cells);
        if change > self.rule.cell_change_max {
            return Err(NoveltyReason::Cell(change));
        }
        let drift = self.drift + u64::from(distance.millionths());
        if drift > u64::from(self.rule.drift_max.millionths()) {
            return Err(NoveltyReason::Drift);
        }
        Ok(distance)
    }
}

/// Selects one in `one_in` by a hash: a plain counter could fall in step with a periodic scene.
fn is_shadowed(seed: u64, count: u64, one_in: u32) -> bool {
    // Finaliser of SplitMix64 over a Weyl sequence.
    let mut mixed = seed.wrapping_add(count.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^= mixed >> 31;
    one_in != 0 && mixed.is_multiple_of(u64::from(one_in))
}
