//! Times of the last occurrence of something, as far as they are known.
//!
//! A gate that did not see the start knows ranges, and reports where a possible past would decide otherwise.

use media::Score;

/// Milliseconds that a change of light must stay, or an artifact must be gone, before it counts.
const STAYS_MS: i64 = 1000;

/// Earliest and latest possible time of the last occurrence; `i64::MIN` means never.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Last(i64, i64);

impl Last {
    /// Last occurrence at a known time; `None` means never.
    pub(super) fn known(ms: Option<i64>) -> Last {
        let ms = ms.unwrap_or(i64::MIN);
        Last(ms, ms)
    }

    /// Last occurrence at any time up to `ms`, or never.
    pub(super) fn until(ms: i64) -> Last {
        Last(i64::MIN, ms)
    }

    /// Returns true once [`STAYS_MS`] have passed; `None` if that depends on the past.
    pub(super) fn is_over(self, now: i64) -> Option<bool> {
        let [first, last] = [self.0, self.1].map(|ms| now.saturating_sub(ms) >= STAYS_MS);
        (first == last).then_some(last)
    }

    /// Returns the earliest possible time; `None` if it is never.
    pub(super) fn earliest(self) -> Option<i64> {
        (self.0 != i64::MIN).then_some(self.0)
    }
}

/// Steps of brightness that are pending until a second passes without another.
#[derive(Clone, Copy, Debug)]
pub(super) struct Steps {
    /// Brightness before the first step; `None` if it was not seen or may have been reported.
    pub(super) from: Option<Score>,
    pub(super) last: Last,
}

impl Steps {
    /// Adds a step from brightness `level` at `ms` to the pending ones.
    pub(super) fn with(waiting: Option<Steps>, level: Score, ms: i64) -> Steps {
        let from = waiting.map_or(Some(level), |steps| steps.from);
        Steps { from, last: Last::known(Some(ms)) }
    }
}
