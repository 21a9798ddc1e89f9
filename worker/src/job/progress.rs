//! Statistics of a running job: time of its threads, and number of frames so far.

use std::{
    sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed},
    time::{Duration, Instant},
};

use super::{JobEvent, StageTimings};

/// Time spent by the threads of a job; added per segment.
#[derive(Default)]
pub(super) struct Clocks {
    decode_us: AtomicU64,
    gate_us: AtomicU64,
}

impl Clocks {
    pub(super) fn add(&self, decode: Duration, gate: Duration) {
        self.decode_us.fetch_add(decode.as_micros() as u64, Relaxed);
        self.gate_us.fetch_add(gate.as_micros() as u64, Relaxed);
    }

    pub(super) fn spent(&self) -> StageTimings {
        StageTimings {
            decode_us: self.decode_us.load(Relaxed),
            gate_us: self.gate_us.load(Relaxed),
        }
    }
}

/// Counts frames and makes [`JobEvent::Progress`] at intervals.
pub(super) struct Progress {
    started: Instant,
    frames: AtomicU64,
    pts_ms: AtomicI64,
    due_ms: AtomicU64,
}

/// Time between two progress events: a fiftieth of the watchdog's stall limit.
const PROGRESS_EVERY: Duration = Duration::from_millis(100);

impl Progress {
    pub(super) fn new(frames: u64) -> Progress {
        Progress {
            started: Instant::now(),
            frames: AtomicU64::new(frames),
            pts_ms: AtomicI64::new(0),
            due_ms: AtomicU64::new(0),
        }
    }

    /// Counts a frame; returns a progress event if one is due.
    pub(super) fn frame(&self, pts_ms: i64) -> Option<JobEvent> {
        self.frames.fetch_add(1, Relaxed);
        self.pts_ms.fetch_max(pts_ms, Relaxed);
        self.alive()
    }

    /// Returns a progress event with unchanged counts if one is due.
    pub(super) fn alive(&self) -> Option<JobEvent> {
        let now_ms = self.started.elapsed().as_millis() as u64;
        let due_ms = self.due_ms.load(Relaxed);
        let next_ms = now_ms + PROGRESS_EVERY.as_millis() as u64;
        let first_to_notice = now_ms >= due_ms
            && self.due_ms.compare_exchange(due_ms, next_ms, Relaxed, Relaxed).is_ok();
        first_to_notice.then(|| JobEvent::Progress {
            frames: self.frames.load(Relaxed),
            pts_ms: self.pts_ms.load(Relaxed),
        })
    }
}
