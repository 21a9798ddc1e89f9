//! Record of a session's pictures: for its health, and for its run in short.

use std::{
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::{Duration, Instant},
};

use super::SessionProgress;
use crate::{base::metrics::ShedReason, runs::summary::Shape};
use parking_lot::MutexGuard;

/// Counters of what a session left out, since its start.
#[derive(Debug, Default)]
pub(super) struct LeftOut {
    pictures: AtomicU64,
    pub(super) damaged: AtomicU64,
    pub(super) words: AtomicU64,
}

/// Record of a session's pictures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pictures {
    /// Frames that the gate decided about.
    pub decided: u64,
    /// Pictures that a worker had no room for, and those that refer to them.
    pub dropped: u64,
    /// Pictures that did not decode.
    pub damaged: u64,
    /// Stills, and pictures for models, that there was no room for.
    pub unkept: u64,
    /// Arrival of the last packet of a whole picture.
    pub came_at: Option<Instant>,
    /// Time from the last packet of a picture to its decision: of the last one, or of one that waits longer.
    pub behind: Duration,
}

impl SessionProgress {
    /// A whole picture came, its last packet at `came`.
    pub fn pictured(&self, came: Instant) {
        self.state.lock().came_at = Some(came);
    }

    /// A picture is left out.
    pub fn dropped(&self) {
        self.metrics.live_shed.of(ShedReason::Pictures).inc();
        self.left_out.pictures.fetch_add(1, Relaxed);
    }

    /// Counts and delays of its pictures at `now`.
    pub fn pictures(&self, now: Instant) -> Pictures {
        let state = self.state.lock();
        let waits = state.undecided.front().map(|(_, came)| now.saturating_duration_since(*came));
        Pictures {
            decided: self.frames(),
            dropped: self.left_out.pictures.load(Relaxed),
            damaged: self.left_out.damaged.load(Relaxed),
            unkept: self.left_out.words.load(Relaxed),
            came_at: state.came_at,
            behind: state.waited.max(waits.unwrap_or_default()),
        }
    }

    /// Distribution of its frames over its duration.
    pub fn shape(&self) -> MutexGuard<'_, Shape> {
        // A panic leaves a frame more or less.
        self.shape.lock()
    }
}
