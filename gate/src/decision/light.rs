//! Times at which something was last, as far as they are known.
//!
//! A gate that did not see the start knows ranges of them, and says where some past would decide otherwise.

use media::Score;

/// Time for which a change of light stays, or an artifact is gone, before it counts.
const STAYS_MS: i64 = 1000;

/// Earliest and latest possible time at which something was last; `i64::MIN` is never.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Last(i64, i64);

impl Last {
    /// Once, or never.
    pub(super) fn known(ms: Option<i64>) -> Last {
        let ms = ms.unwrap_or(i64::MIN);
        Last(ms, ms)
    }

    /// Never, or at any time up to this one.
    pub(super) fn until(ms: i64) -> Last {
        Last(i64::MIN, ms)
    }

    /// Returns true once a second has passed; `None` where that depends on the past.
    pub(super) fn is_over(self, now: i64) -> Option<bool> {
        let [first, last] = [self.0, self.1].map(|ms| now.saturating_sub(ms) >= STAYS_MS);
        (first == last).then_some(last)
    }

    /// The earliest time that is possible.
    pub(super) fn earliest(self) -> Option<i64> {
        (self.0 != i64::MIN).then_some(self.0)
    }
}

/// Steps of brightness that wait for a second without one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Steps {
    /// Brightness before the first; unknown where it was not seen, or may have been told of.
    pub(super) from: Option<Score>,
    pub(super) last: Last,
}

impl Steps {
    /// Those that wait, and one from brightness `level` at `ms`.
    pub(super) fn with(waiting: Option<Steps>, level: Score, ms: i64) -> Steps {
        let from = waiting.map_or(Some(level), |steps| steps.from);
        Steps { from, last: Last::known(Some(ms)) }
    }
}
