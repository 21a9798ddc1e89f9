//! Reception statistics of one source for receiver reports (RFC 3550 6.4, A.3, A.8).

use std::time::{Duration, Instant};

use super::rtcp::ReportBlock;
use crate::rtp::JitterEstimator;

/// Largest deviation counted as jitter; a larger one means that the sender restarted its clock.
const DEVIATION_MAX: Duration = Duration::from_secs(10);

/// Counts of one source since its first packet.
#[derive(Debug)]
pub(super) struct ReceptionStats {
    pub(super) ssrc: u32,
    first: u64,
    /// Extended highest sequence number, with the wraps in the upper bits.
    highest: u64,
    received: u64,
    reported_expected: u64,
    reported_received: u64,
    arrivals: JitterEstimator,
    report: Option<(u64, Instant)>,
}

impl ReceptionStats {
    /// Creates the counts at the first packet of a source.
    pub(super) fn new(ssrc: u32, sequence: u16, timestamp: u32, now: Instant) -> ReceptionStats {
        ReceptionStats {
            ssrc,
            first: u64::from(sequence),
            highest: u64::from(sequence),
            received: 1,
            reported_expected: 0,
            reported_received: 0,
            arrivals: JitterEstimator::new(timestamp, DEVIATION_MAX, now),
            report: None,
        }
    }

    /// Returns true if `sequence` is newer than all before.
    pub(super) fn is_newer(&self, sequence: u16) -> bool {
        (sequence.wrapping_sub(self.highest as u16) as i16) > 0
    }

    pub(super) fn packet(&mut self, sequence: u16, timestamp: u32, now: Instant) {
        self.received += 1;
        if self.is_newer(sequence) {
            let distance = sequence.wrapping_sub(self.highest as u16);
            self.highest += u64::from(distance);
        }
        self.arrivals.packet(timestamp, now);
    }

    /// Records the time `ntp` of a sender report.
    pub(super) fn reported(&mut self, ntp: u64, now: Instant) {
        self.report = Some((ntp, now));
    }

    pub(super) fn jitter_us(&self) -> u64 {
        u64::from(self.arrivals.ticks()) * 1000 / 90
    }

    fn expected(&self) -> u64 {
        self.highest - self.first + 1
    }

    pub(super) fn block(&mut self, now: Instant) -> ReportBlock {
        let (expected, received) = (self.expected(), self.received);
        let expected_since = expected - self.reported_expected;
        let received_since = received - self.reported_received;
        (self.reported_expected, self.reported_received) = (expected, received);
        let lost_since = expected_since.saturating_sub(received_since);
        let fraction_lost = (lost_since * 256).checked_div(expected_since).unwrap_or(0).min(255);
        let lost = i64::try_from(expected).unwrap_or(i64::MAX)
            - i64::try_from(received).unwrap_or(i64::MAX);
        let (last_report, since_report) = match self.report {
            Some((ntp, at)) => ((ntp >> 16) as u32, in_65536ths(now.saturating_duration_since(at))),
            None => (0, 0),
        };
        ReportBlock {
            ssrc: self.ssrc,
            fraction_lost: fraction_lost as u8,
            lost: lost.clamp(i64::from(i32::MIN), i64::from(i32::MAX)) as i32,
            highest: self.highest as u32,
            jitter: self.arrivals.ticks(),
            last_report,
            since_report,
        }
    }
}

fn in_65536ths(duration: Duration) -> u32 {
    u32::try_from(duration.as_micros() * 65_536 / 1_000_000).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_are_counted_over_the_wrap() {
        let start = Instant::now();
        let mut reception = ReceptionStats::new(7, 65_530, 0, start);
        for (step, sequence) in [65_531u16, 65_534, 65_535, 2, 1, 3].into_iter().enumerate() {
            reception.packet(sequence, step as u32 * 3000, start);
        }
        // 65,530 to 3 are ten numbers, of which 65,532, 65,533 and 0 are missing.
        let block = reception.block(start);
        assert_eq!((block.lost, block.fraction_lost), (3, (3 * 256 / 10) as u8));
        assert_eq!(block.highest, 65_536 + 3);
        reception.packet(4, 0, start);
        let block = reception.block(start);
        assert_eq!(
            (block.lost, block.fraction_lost),
            (3, 0),
            "a fraction is since the last report"
        );
        reception.packet(4, 0, start);
        reception.packet(4, 0, start);
        assert_eq!(reception.block(start).lost, 1, "duplicates count as received");
    }

    #[test]
    fn an_even_source_has_no_jitter_and_an_uneven_one_has() {
        let start = Instant::now();
        let mut even = ReceptionStats::new(7, 0, 0, start);
        let mut uneven = ReceptionStats::new(7, 0, 0, start);
        for step in 1..200u32 {
            let at = start + Duration::from_millis(40) * step;
            even.packet(step as u16, step * 3600, at);
            uneven.packet(step as u16, step * 3600, at + Duration::from_millis(20) * (step % 2));
        }
        assert!(even.block(start).jitter <= 1);
        let jitter = uneven.block(start).jitter;
        assert!((1600..=1800).contains(&jitter), "20 ms are 1,800 ticks: {jitter}");
        assert_eq!(uneven.jitter_us(), u64::from(jitter) * 1000 / 90);
    }

    #[test]
    fn the_last_sender_report_is_named() {
        let start = Instant::now();
        let mut reception = ReceptionStats::new(7, 0, 0, start);
        assert_eq!(reception.block(start).last_report, 0);
        reception.reported(0x1234_5678_9ABC_DEF0, start);
        let block = reception.block(start + Duration::from_millis(500));
        assert_eq!((block.last_report, block.since_report), (0x5678_9ABC, 32_768));
    }
}
