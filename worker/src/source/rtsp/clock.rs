//! Shifts RTP times for libav, which counts from the first that is not zero, even if it is a report's, and
//! takes a step back for a wrap around 2^32.

use std::time::Instant;

/// Packet type of a sender report (RFC 3550 6.4.1), and offset of its RTP time; offset in an RTP packet.
const REPORT: u8 = 200;
const REPORT_TIME: usize = 16;
const PACKET_TIME: usize = 4;
/// Packet types that libav takes for RTCP, without an RTP time.
const CONTROL: [std::ops::RangeInclusive<u8>; 2] = [192..=195, 201..=210];

/// Largest step in ticks of 90 kHz that the arrival need not explain; a larger one is a restart of the
/// camera's clock, as over WebRTC.
const STEP_MAX: i64 = 10 * 90_000;

/// Shifts the times of a stream so that they begin at 1 and go on where the camera's clock jumps.
#[derive(Debug, Default)]
pub(super) struct Clock {
    first: Option<u32>,
    last: Option<Last>,
}

/// Time of the last picture, and the arrival of its last packet.
#[derive(Debug)]
struct Last {
    told: u32,
    at: Instant,
}

impl Clock {
    /// Shifts the time of `packet`, which arrived at `at` if it is live: jumps of a recording are gaps in it.
    /// Returns false for a report before the first picture: drop it.
    pub(super) fn set(&mut self, packet: &mut [u8], at: Option<Instant>) -> bool {
        let kind = packet.get(1).copied().unwrap_or_default();
        if CONTROL.iter().any(|kinds| kinds.contains(&kind)) {
            return true;
        }
        let is_report = kind == REPORT;
        let offset = if is_report { REPORT_TIME } else { PACKET_TIME };
        let time = packet.get_mut(offset..).and_then(|rest| rest.first_chunk_mut());
        let Some(time) = time else { return true };
        let told = u32::from_be_bytes(*time);
        if is_report && self.first.is_none() {
            return false;
        }
        let mut first = *self.first.get_or_insert(told);
        if let Some(at) = at.filter(|_| !is_report) {
            first = self.go_on(first, told, at);
        }
        *time = told.wrapping_sub(first).wrapping_add(1).to_be_bytes();
        true
    }

    /// Returns the first time that the picture at `told` counts from: another one if its step is a jump, which
    /// the time since the last arrival replaces.
    fn go_on(&mut self, first: u32, told: u32, at: Instant) -> u32 {
        let mut from = first;
        if let Some(last) = &self.last {
            let waited = (at.saturating_duration_since(last.at).as_micros() * 9 / 100) as i64;
            let step = i64::from(told.wrapping_sub(last.told) as i32);
            if step.abs() > STEP_MAX && (step - waited).abs() > STEP_MAX {
                let went_on = last.told.wrapping_add(waited.max(1) as u32);
                from = first.wrapping_add(told.wrapping_sub(went_on));
            }
        }
        self.first = Some(from);
        self.last = Some(Last { told, at });
        from
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_jump_of_the_camera_s_clock_is_replaced_by_the_time_that_passed() {
        const HOUR: u32 = 3600 * 90_000;
        let from = u32::MAX - 3000;
        // Seconds of arrival, ticks told since the first, and the ticks given for them.
        let rows: [(f64, u32, u32); 9] = [
            (0.0, 0, 1),
            (0.04, 3600, 3601),
            // A B-frame, shown earlier.
            (0.08, 1800, 1801),
            (0.12, 7200, 7201),
            // An hour back, then on from there.
            (0.16, 10_800_u32.wrapping_sub(HOUR), 10_801),
            (0.20, 14_400_u32.wrapping_sub(HOUR), 14_401),
            // An hour ahead; silence that the camera's clock has counted; silence that it has not.
            (0.24, 18_000, 18_001),
            (60.24, 18_000 + 60 * 90_000, 18_001 + 60 * 90_000),
            (90.24, 21_600 + 60 * 90_000, 21_601 + 60 * 90_000),
        ];
        let (mut clock, zero) = (Clock::default(), Instant::now());
        for (seconds, told, expected) in rows {
            let mut packet = vec![0x80, 96, 0, 0];
            packet.extend(from.wrapping_add(told).to_be_bytes());
            assert!(clock.set(&mut packet, Some(zero + Duration::from_secs_f64(seconds))));
            let given = u32::from_be_bytes(packet[4..].try_into().expect("four bytes"));
            assert!(given.abs_diff(expected) <= 9, "at {seconds} s: {given}, not {expected}");
        }
    }

    #[test]
    fn times_begin_at_one_whatever_comes_first() {
        let packet = |kind: u8, at: usize, time: u32| {
            let mut packet = vec![0x80, kind];
            packet.resize(at, 0);
            packet.extend(time.to_be_bytes());
            packet
        };
        let (rtp, report) = (|time| packet(96, 4, time), |time| packet(REPORT, 16, time));
        for first in [0, 5, u32::MAX - 3000] {
            let mut clock = Clock::default();
            let cases = [
                (report(first), None),
                (packet(203, 4, 7), Some(packet(203, 4, 7))),
                (vec![0x80], Some(vec![0x80])),
                (rtp(first), Some(rtp(1))),
                (rtp(first.wrapping_add(3600)), Some(rtp(3601))),
                (rtp(first.wrapping_sub(1)), Some(rtp(0))),
                // A gap of an hour in a recording.
                (rtp(first.wrapping_add(324_000_000)), Some(rtp(324_000_001))),
                (report(first.wrapping_add(90)), Some(report(91))),
            ];
            for (mut given, expected) in cases {
                let is_kept = clock.set(&mut given, None);
                assert_eq!(is_kept.then_some(given), expected, "{first}");
            }
        }
    }
}
