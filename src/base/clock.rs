//! Wall-clock time for dates; durations and limits use the monotonic clock.
//!
//! Retention counts ages by a clock that runs no faster than real time: a system clock that jumps
//! ahead must not make every stored item old at once.

use std::time::{Duration, Instant};

use media::WallTime;
/// Current wall-clock time by the system's clock.
pub use timeline::system_clock as wall_now;

/// Longest downtime that the system's clock is trusted with. After a longer one, items are removed
/// later by the excess; a clock that is wrong by years therefore removes nothing early.
const DOWN_MAX: Duration = Duration::from_secs(7 * 86_400);

/// Clock that runs no faster than real time and starts at most `DOWN_MAX` after the log's last event.
#[derive(Clone, Copy, Debug)]
pub struct RetentionClock {
    /// Reading of the system's clock at the start.
    started: WallTime,
    /// Time at the start: the system's clock, but at most `DOWN_MAX` after the log's last event.
    at_start: WallTime,
    since: Instant,
}

/// A moment in two readings: one to date items with, one to count ages to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DatedInstant {
    /// Date for new items. Ahead of `counted` after a downtime of more than `DOWN_MAX`, so that
    /// items dated now are not old at the next start, which trusts the new date.
    pub dated: WallTime,
    /// Time to which ages are counted.
    pub counted: WallTime,
}

impl RetentionClock {
    /// Creates the clock of a server that starts at `now` with a log whose last event is dated `last`.
    pub fn starting(now: WallTime, last: Option<WallTime>) -> RetentionClock {
        let at_start = last.map_or(now, |last| now.min(after(last, DOWN_MAX)));
        RetentionClock { started: now, at_start, since: Instant::now() }
    }

    pub fn now(&self) -> WallTime {
        self.moment().counted
    }

    /// Returns the date for new items together with the time to which ages are counted.
    pub fn moment(&self) -> DatedInstant {
        self.at(wall_now(), self.since.elapsed())
    }

    /// Returns the moment for a reading `now` of the system's clock, `uptime` after the start.
    fn at(&self, now: WallTime, uptime: Duration) -> DatedInstant {
        let as_started = |start| now.min(after(start, uptime));
        DatedInstant { dated: as_started(self.started), counted: as_started(self.at_start) }
    }
}

pub fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

fn after(at: WallTime, time: Duration) -> WallTime {
    let ms = i64::try_from(time.as_millis()).unwrap_or(i64::MAX);
    WallTime { epoch_ms: at.epoch_ms.saturating_add(ms) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_move_no_faster_than_time_however_the_system_s_clock_jumps() {
        const DAY: i64 = 86_400_000;
        const YEAR: i64 = 365 * DAY;
        let wall = |epoch_ms| WallTime { epoch_ms };
        let now = 50 * YEAR;
        // Name, last event, clock at the start and later, expected `counted` and expected `dated` a day on.
        let rows = [
            ("right", Some(now - DAY), now, now + DAY, now + DAY, now + DAY),
            ("no log", None, now, now + DAY, now + DAY, now + DAY),
            ("jumps ahead", Some(now), now, now + YEAR, now + DAY, now + DAY),
            ("jumps back", Some(now), now, now - YEAR, now - YEAR, now - YEAR),
            ("behind", Some(now), now - YEAR, now + DAY, now - YEAR + DAY, now - YEAR + DAY),
            ("ahead", Some(now), now + YEAR, now + YEAR + DAY, now + 8 * DAY, now + YEAR + DAY),
            ("long down", Some(now - 30 * DAY), now, now + DAY, now - 22 * DAY, now + DAY),
        ];
        for (name, last, start, later, counted, dated) in rows {
            let clock = RetentionClock::starting(wall(start), last.map(wall));
            let found = clock.at(wall(later), Duration::from_secs(86_400));
            assert_eq!(
                found,
                DatedInstant { dated: wall(dated), counted: wall(counted) },
                "{name}"
            );
        }
    }
}
