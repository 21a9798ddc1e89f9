//! RTP timestamps: 32-bit ticks to unwrapped ticks, and to the sender's wall clock.

use std::time::{Duration, Instant};

use media::WallTime;

/// Ticks per second of every video payload format.
const HZ: i64 = 90_000;
/// Largest step that the arrival time need not explain; a larger one is a restart of the source's clock.
/// Reordered pictures are shown at most this much earlier or later than coded.
const STEP_MAX: i64 = 10 * HZ;
const WRAP: i64 = 1 << 32;

/// Seconds between the epochs of NTP (1900) and Unix (1970).
const NTP_TO_UNIX_S: i64 = 2_208_988_800;

/// Unwrapped timestamps of one source.
#[derive(Debug, Default)]
pub(super) struct RtpClock {
    last: Option<Last>,
    /// Largest ticks of a unit; of reordered pictures the last one may have less.
    latest: i64,
    /// Timestamp of the report since the last unit, and its time on the sender's wall clock in microseconds.
    report: Option<(u32, i64)>,
    /// Tick of the last report before it, and its time.
    anchor: Option<(i64, i64)>,
}

#[derive(Debug)]
struct Last {
    raw: u32,
    ticks: i64,
    at: Instant,
}

impl RtpClock {
    /// Returns the ticks since the source's first unit, for the next unit in decode order with packets that
    /// arrived at `at`. If the timestamp jumps, the arrival time replaces the step.
    pub(super) fn ticks(&mut self, raw: u32, at: Instant) -> i64 {
        let ticks = match &self.last {
            None => 0,
            Some(last) => {
                let elapsed = ticks_in(at.saturating_duration_since(last.at));
                let near = i64::from(raw.wrapping_sub(last.raw) as i32);
                // Silence of hours may hide wraps.
                let wraps = (elapsed - near + WRAP / 2).div_euclid(WRAP);
                let step = near + wraps.max(0) * WRAP;
                let explained = step.abs() <= STEP_MAX || (step - elapsed).abs() <= STEP_MAX;
                if !explained {
                    (self.report, self.anchor) = (None, None);
                }
                last.ticks + if explained { step } else { elapsed.max(1) }
            }
        };
        self.last = Some(Last { raw, ticks, at });
        self.latest = self.latest.max(ticks);
        if let Some((rtp, epoch_us)) = self.report.take() {
            let since = i64::from(raw.wrapping_sub(rtp) as i32);
            self.anchor = Some((ticks - since, epoch_us));
        }
        ticks
    }

    /// Restarts the clock at the timestamp `raw` of a source that counts from a new origin.
    pub(super) fn restart(&mut self, raw: u32, at: Instant) {
        (self.report, self.anchor) = (None, None);
        if let Some(last) = &mut self.last {
            let elapsed = ticks_in(at.saturating_duration_since(last.at)).max(1);
            *last = Last { raw, ticks: self.latest + elapsed, at };
        }
    }

    /// Records a sender report: `rtp` corresponds to the wall clock time `ntp` (RFC 3550 6.4.1).
    pub(super) fn report(&mut self, ntp: u64, rtp: u32) {
        // A sender without a wall clock sends 0.
        if ntp == 0 {
            return;
        }
        let (seconds, fraction) = ((ntp >> 32) as i64, (ntp & 0xffff_ffff) as i64);
        // RFC 4330 3: with the first bit clear, the time is after 2036.
        let era = if seconds < 1 << 31 { 1 << 32 } else { 0 };
        let epoch_s = seconds + era - NTP_TO_UNIX_S;
        let epoch_us = epoch_s * 1_000_000 + ((fraction * 1_000_000) >> 32);
        self.report = Some((rtp, epoch_us));
    }

    /// Returns the wall clock time of a unit's ticks by the sender's clock; `None` before a report.
    pub(super) fn wall(&self, ticks: i64) -> Option<WallTime> {
        let (origin, epoch_us) = self.anchor?;
        let epoch_us = epoch_us + (ticks - origin) * 1_000_000 / HZ;
        Some(WallTime { epoch_ms: epoch_us.div_euclid(1000) })
    }
}

fn ticks_in(time: Duration) -> i64 {
    // The limit is more than a year, and no wait is longer.
    let micros = i64::try_from(time.as_micros()).unwrap_or(i64::MAX).min(1 << 46);
    micros * (HZ / 1000) / 1000
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_go_on_through_wraps_reordering_and_jumps() {
        const DAY_S: f64 = 86_400.0;
        const DAY_TICKS: u32 = (86_400_u64 * 90_000) as u32;
        /// Pairs of timestamp and arrival time in seconds.
        type Steps = &'static [(u32, f64)];
        let cases: [(&str, Steps, i64); 11] = [
            ("the first is zero", &[(77, 0.0)], 0),
            ("a frame", &[(77, 0.0), (3077, 0.03)], 3000),
            ("a frame shown earlier", &[(9000, 0.0), (6000, 0.03)], -3000),
            ("a wrap", &[(u32::MAX, 0.0), (2999, 0.03)], 3000),
            ("a wrap back", &[(1, 0.0), (u32::MAX, 0.03)], -2),
            ("a burst", &[(0, 0.0), (9 * 90_000, 0.0)], 810_000),
            ("silence", &[(0, 0.0), (60 * 90_000, 60.5)], 5_400_000),
            ("silence over a wrap", &[(0, 0.0), (0, 47_721.86)], 1 << 32),
            ("a day's silence", &[(0, 0.0), (DAY_TICKS, DAY_S)], 7_776_000_000),
            ("a new beginning", &[(5_000_000, 0.0), (100, 2.0)], 180_000),
            ("one at once", &[(5_000_000, 0.0), (100, 0.0), (3100, 0.1)], 3001),
        ];
        for (name, steps, expected) in cases {
            let (mut clock, zero) = (RtpClock::default(), Instant::now());
            let found = steps
                .iter()
                .map(|&(raw, s)| clock.ticks(raw, zero + Duration::from_secs_f64(s)))
                .last();
            assert_eq!(found, Some(expected), "{name}");
        }
    }

    #[test]
    fn a_new_origin_comes_after_every_picture_however_they_were_reordered() {
        let (mut clock, zero) = (RtpClock::default(), Instant::now());
        assert_eq!([0, 9000, 3000].map(|raw| clock.ticks(raw, zero)), [0, 9000, 3000]);
        clock.restart(77, zero);
        assert_eq!(clock.ticks(77, zero), 9001);
    }

    #[test]
    fn reports_give_wall_time() {
        let at = |seconds: u64| seconds << 32;
        let half = 1_u64 << 31;
        let cases = [
            ("the epoch of Unix", at(2_208_988_800), 1000, 1000, Some(0)),
            ("half a second later", at(2_208_988_800) + half, 1000, 1000, Some(500)),
            ("a unit after it", at(2_208_988_800), 1000, 91_000, Some(1000)),
            ("a unit before it", at(2_208_988_800), 1000, 910, Some(-1)),
            ("over a wrap", at(2_208_988_800), u32::MAX, 89_999, Some(1000)),
            ("after 2036", at(0) + half, 0, 0, Some(2_085_978_496_500)),
            ("no clock", 0, 0, 0, None),
        ];
        for (name, ntp, rtp, raw, expected) in cases {
            let mut clock = RtpClock::default();
            clock.report(ntp, rtp);
            let ticks = clock.ticks(raw, Instant::now());
            assert_eq!(clock.wall(ticks).map(|wall| wall.epoch_ms), expected, "{name}");
        }
    }

    #[test]
    fn wall_time_goes_on_for_hours_after_a_report_until_a_new_beginning() {
        let (mut clock, zero) = (RtpClock::default(), Instant::now());
        clock.report(2_208_988_800 << 32, 0);
        for hour in 0..15_u32 {
            let seconds = u64::from(hour) * 3600;
            let raw = (seconds * 90_000) as u32;
            let ticks = clock.ticks(raw, zero + Duration::from_secs(seconds));
            let found = clock.wall(ticks).map(|wall| wall.epoch_ms);
            assert_eq!(found, Some(i64::from(hour) * 3_600_000), "hour {hour}");
        }
        clock.ticks(1 << 31, zero + Duration::from_secs(14 * 3600));
        assert_eq!(clock.wall(0), None);
    }
}
