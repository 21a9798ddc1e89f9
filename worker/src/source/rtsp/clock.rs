//! Shifts RTP times for libav, which counts from the first that is not zero, even if it is a report's.

/// Packet type of a sender report (RFC 3550 6.4.1), and offset of its RTP time; offset in an RTP packet.
const REPORT: u8 = 200;
const REPORT_TIME: usize = 16;
const PACKET_TIME: usize = 4;
/// Packet types that libav takes for RTCP, without an RTP time.
const CONTROL: [std::ops::RangeInclusive<u8>; 2] = [192..=195, 201..=210];

/// Shifts the times of a stream so that they begin at 1.
#[derive(Debug, Default)]
pub(super) struct Clock {
    first: Option<u32>,
}

impl Clock {
    /// Shifts the time of `packet`; returns false for a report before the first picture: drop it.
    pub(super) fn set(&mut self, packet: &mut [u8]) -> bool {
        let kind = packet.get(1).copied().unwrap_or_default();
        if CONTROL.iter().any(|kinds| kinds.contains(&kind)) {
            return true;
        }
        let is_report = kind == REPORT;
        let at = if is_report { REPORT_TIME } else { PACKET_TIME };
        let time = packet.get_mut(at..).and_then(|rest| rest.first_chunk_mut());
        let Some(time) = time else { return true };
        let told = u32::from_be_bytes(*time);
        if is_report && self.first.is_none() {
            return false;
        }
        let first = *self.first.get_or_insert(told);
        *time = told.wrapping_sub(first).wrapping_add(1).to_be_bytes();
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
                (report(first.wrapping_add(90)), Some(report(91))),
            ];
            for (mut given, expected) in cases {
                let is_kept = clock.set(&mut given);
                assert_eq!(is_kept.then_some(given), expected, "{first}");
            }
        }
    }
}
