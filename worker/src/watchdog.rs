//! Timeouts that end a worker which is silent for too long, or takes too long in all.

use std::{
    mem,
    time::{Duration, Instant},
};

use crate::{WorkerError, WorkerLimits};

/// Time between two checks from which on the supervisor itself was stopped, as by Ctrl-Z: it looks many times a
/// second.
const PAUSE: Duration = Duration::from_secs(1);

pub(crate) struct Watchdog<'a> {
    limits: &'a WorkerLimits,
    started: Instant,
    heard: Instant,
    /// Time of the last check, or of the end of a wait for the supervisor.
    looked: Instant,
    frames_seen: bool,
    /// Time in which the worker waited for the supervisor; extends the limit for the first frame.
    excused: Duration,
    /// Time at which the source ended, moved on by the time in which the worker waited for the supervisor.
    source_ended: Option<Instant>,
}

impl Watchdog<'_> {
    pub fn new(limits: &WorkerLimits) -> Watchdog<'_> {
        let (started, excused) = (Instant::now(), Duration::ZERO);
        let (heard, looked, frames_seen, source_ended) = (started, started, false, None);
        Watchdog { limits, started, heard, looked, frames_seen, excused, source_ended }
    }

    /// Notes an event of the worker, about frames or before them.
    pub fn heard(&mut self, is_of_frames: bool) {
        self.frames_seen |= is_of_frames;
    }

    /// Excuses the time since `since`, in which the worker waited for the supervisor, and ends its silence.
    pub fn resume(&mut self, since: Instant) {
        self.excuse(since);
        self.heard = self.looked;
    }

    /// Excuses the time since `since` alone: a live playlist may grow for ever by media that nothing decodes.
    pub fn excuse(&mut self, since: Instant) {
        self.looked = Instant::now();
        let waited = self.looked - since;
        self.heard += waited;
        self.excused += waited;
        if let Some(ended) = &mut self.source_ended {
            *ended += waited;
        }
    }

    /// Notes that the source has ended: the worker has the stall limit for the rest.
    pub fn source_ended(&mut self) {
        self.source_ended.get_or_insert_with(Instant::now);
    }

    pub fn check(&mut self) -> Result<(), WorkerError> {
        let before = mem::replace(&mut self.looked, Instant::now());
        if self.looked - before > PAUSE {
            self.resume(before);
        }
        let WorkerLimits { wall, first_frame, stall, .. } = *self.limits;
        let silence = self.heard.elapsed();
        if self.started.elapsed() > wall {
            Err(WorkerError::WallClock(wall))
        } else if !self.frames_seen && self.started.elapsed() > first_frame + self.excused {
            Err(WorkerError::FirstFrameTimeout(first_frame))
        } else if self.frames_seen && silence > stall
            || self.source_ended.is_some_and(|ended| ended.elapsed() > stall)
        {
            Err(WorkerError::Stalled(stall))
        } else {
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_that_talks_on_is_not_heard_for_ever_behind_the_end_of_its_source() {
        let limits = WorkerLimits { stall: Duration::ZERO, ..WorkerLimits::camera() };
        let mut watchdog = Watchdog::new(&limits);
        assert!(watchdog.check().is_ok());
        watchdog.source_ended();
        while watchdog.check().is_ok() {
            // The worker keeps sending events.
            watchdog.resume(Instant::now());
        }
        assert!(matches!(watchdog.check(), Err(WorkerError::Stalled(_))));
    }

    #[test]
    fn requests_of_a_live_source_that_shows_nothing_do_not_end_its_silence() {
        let limits = WorkerLimits::camera();
        let mut watchdog = Watchdog::new(&limits);
        watchdog.heard(true);
        watchdog.heard =
            Instant::now().checked_sub(limits.stall * 2).expect("a machine that is up");
        watchdog.excuse(Instant::now());
        assert!(matches!(watchdog.check(), Err(WorkerError::Stalled(_))));
        watchdog.resume(Instant::now());
        assert!(watchdog.check().is_ok(), "pictures do");
    }

    #[test]
    fn a_pause_of_the_supervisor_is_no_silence_of_the_worker() {
        let limits = WorkerLimits::default();
        let mut watchdog = Watchdog::new(&limits);
        watchdog.heard(true);
        let before = Instant::now().checked_sub(limits.stall * 2).expect("a machine that is up");
        (watchdog.heard, watchdog.looked) = (before, before);
        assert!(watchdog.check().is_ok(), "the supervisor was stopped");
        watchdog.heard = before;
        assert!(matches!(watchdog.check(), Err(WorkerError::Stalled(_))), "the worker was");
    }
}
