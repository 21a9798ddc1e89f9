//! Wall time, for what is dated; durations and limits use the monotonic clock.
//!
//! What is removed by its age is removed by a clock that moves no faster than time does: a
//! system's clock that jumps ahead must not make everything old at once.

use std::time::{Duration, Instant};

use media::WallTime;
/// Wall time by the system's clock, as the log reads it.
pub use timeline::system_clock as wall_now;

/// Longest time between the log's last event and a start that is believed. A machine that was off
/// for longer removes that much later; one whose clock is wrong by years removes nothing for it.
const DOWN_MAX: Duration = Duration::from_secs(7 * 86_400);

/// Wall time as far as the log's last event at the start, and the time since then, bear it out.
#[derive(Clone, Copy, Debug)]
pub struct RetentionClock {
    /// Reading of the system's clock at the start.
    started: WallTime,
    /// The same, at most [`DOWN_MAX`] after the log's last event.
    at_start: WallTime,
    since: Instant,
}

/// A moment, as what comes of it is dated and as ages are counted to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DatedInstant {
    /// The date. Ahead of `counted` while a long silence before the start is not believed, so that
    /// what is dated now is not old at the next start, which believes it.
    pub dated: WallTime,
    /// Time to which ages are counted.
    pub counted: WallTime,
}

impl RetentionClock {
    /// The clock of a server that starts `now`, whose log ends with an event at `last`.
    pub fn starting(now: WallTime, last: Option<WallTime>) -> RetentionClock {
        let at_start = last.map_or(now, |last| now.min(after(last, DOWN_MAX)));
        RetentionClock { started: now, at_start, since: Instant::now() }
    }

    /// The time that ages are counted to.
    pub fn now(&self) -> WallTime {
        self.moment().counted
    }

    /// The same, with the date of what comes of it.
    pub fn moment(&self) -> DatedInstant {
        self.at(wall_now(), self.since.elapsed())
    }

    /// The moment at which the system's clock says `now`, this long after the start.
    fn at(&self, now: WallTime, uptime: Duration) -> DatedInstant {
        let as_started = |start| now.min(after(start, uptime));
        DatedInstant { dated: as_started(self.started), counted: as_started(self.at_start) }
    }
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
        // Name, last event, clock at the start and later, what is believed and the date a day on.
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
