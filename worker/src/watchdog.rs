//! The clocks that end a worker which says nothing for too long, or takes too long in all.

use std::time::{Duration, Instant};

use crate::{Limits, WorkerError};

/// The clocks of one job.
pub(crate) struct Watchdog<'a> {
    limits: &'a Limits,
    started: Instant,
    heard: Instant,
    frames_seen: bool,
    /// Time before the first frame in which the worker waited for this side.
    excused: Duration,
}

impl Watchdog<'_> {
    pub fn new(limits: &Limits) -> Watchdog<'_> {
        let now = Instant::now();
        Watchdog { limits, started: now, heard: now, frames_seen: false, excused: Duration::ZERO }
    }

    /// The worker said something, about frames or about what comes before them.
    pub fn heard(&mut self, is_of_frames: bool) {
        self.frames_seen |= is_of_frames;
    }

    /// The worker has the word again, which was taken from it at `since`.
    pub fn resume(&mut self, since: Instant) {
        self.heard = Instant::now();
        self.excused += self.heard - since;
    }

    pub fn check(&self) -> Result<(), WorkerError> {
        let Limits { wall, first_frame, stall, .. } = *self.limits;
        let silence = self.heard.elapsed();
        if self.started.elapsed() > wall {
            Err(WorkerError::WallClock { after: wall })
        } else if !self.frames_seen && self.started.elapsed() > first_frame + self.excused {
            Err(WorkerError::FirstFrameTimeout { after: first_frame })
        } else if self.frames_seen && silence > stall {
            Err(WorkerError::Stalled { after: stall })
        } else {
            Ok(())
        }
    }
}
