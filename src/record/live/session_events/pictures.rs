//! Counts and delays of a session's pictures, for its health and the summary of its run.

use std::{
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::{Duration, Instant},
};

use media::WallTime;
use parking_lot::MutexGuard;

use super::SessionProgress;
use crate::{base::metrics::ShedReason, runs::summary::Shape};

/// Most milliseconds that a sender's clock may be off the server's for its reports to count.
const CLOCK_OFF_MAX_MS: u64 = 3_600_000;

/// Counters of pictures and output that a session dropped, since its start.
#[derive(Debug, Default)]
pub(super) struct LeftOut {
    pictures: AtomicU64,
    pub(super) damaged: AtomicU64,
    pub(super) words: AtomicU64,
}

/// Counts and delays of a session's pictures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pictures {
    pub decided: u64,
    /// Pictures that a worker had no room for, and pictures that depend on them.
    pub dropped: u64,
    pub damaged: u64,
    /// Stills, frames and clips for models, dropped for lack of room.
    pub unkept: u64,
    /// Arrival of the last packet of the latest complete picture.
    pub came_at: Option<Instant>,
    /// Time from last packet to decision, of the last picture or the oldest undecided one, if longer.
    pub behind: Duration,
}

impl SessionProgress {
    /// Notes a complete picture, whose last packet arrived at `came`, and by the sender's reports the wall-clock
    /// time of media time 0.
    pub fn pictured(&self, came: Instant, reported_start: Option<WallTime>) {
        let mut state = self.state.lock();
        state.came_at = Some(came);
        state.reported_start = state.reported_start.or(reported_start);
    }

    /// Returns the wall-clock time of media time 0: by the sender's first report unless its clock is more than
    /// [`CLOCK_OFF_MAX_MS`] off, else `arrived`.
    pub fn wall_start(&self, arrived: WallTime) -> WallTime {
        let near = |at: &WallTime| at.epoch_ms.abs_diff(arrived.epoch_ms) <= CLOCK_OFF_MAX_MS;
        self.state.lock().reported_start.filter(near).unwrap_or(arrived)
    }

    pub fn dropped(&self) {
        self.metrics.live_shed.of(ShedReason::Pictures).inc();
        self.left_out.pictures.fetch_add(1, Relaxed);
    }

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

    /// Distribution of the session's frames over its duration.
    pub fn shape(&self) -> MutexGuard<'_, Shape> {
        // After a panic the counts may be off by one frame.
        self.shape.lock()
    }
}
