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
pub struct AgeClock {
    at_start: WallTime,
    since: Instant,
}

impl AgeClock {
    /// The clock of a server that starts `now`, whose log ends with an event at `last`.
    pub fn starting(now: WallTime, last: Option<WallTime>) -> AgeClock {
        let at_start = last.map_or(now, |last| now.min(after(last, DOWN_MAX)));
        AgeClock { at_start, since: Instant::now() }
    }

    /// The time that ages are counted to, and that what has one is dated with.
    pub fn now(&self) -> WallTime {
        self.at(wall_now(), self.since.elapsed())
    }

    /// The same, where the system's clock says `now` this long after the start.
    fn at(&self, now: WallTime, uptime: Duration) -> WallTime {
        now.min(after(self.at_start, uptime))
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
        // Name, last event, clock at the start and later, days of uptime, and what is believed.
        let rows = [
            ("right", Some(now - DAY), now, now + DAY, 1, now + DAY),
            ("no log", None, now, now + DAY, 1, now + DAY),
            ("jumps ahead", Some(now), now, now + YEAR, 1, now + DAY),
            ("jumps back", Some(now), now, now - YEAR, 1, now - YEAR),
            ("behind at the start", Some(now), now - YEAR, now + DAY, 1, now - YEAR + DAY),
            ("ahead at the start", Some(now), now + YEAR, now + YEAR + DAY, 1, now + 8 * DAY),
            ("long down", Some(now - 30 * DAY), now, now + DAY, 1, now - 22 * DAY),
        ];
        for (name, last, start, later, days, expected) in rows {
            let clock = AgeClock::starting(wall(start), last.map(wall));
            let uptime = Duration::from_secs(days * 86_400);
            assert_eq!(clock.at(wall(later), uptime).epoch_ms, expected, "{name}");
        }
    }
}
