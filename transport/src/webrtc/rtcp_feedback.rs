//! RTCP feedback of a session and its schedule: reports, NACKs, keyframe requests.

use std::time::{Duration, Instant};

use super::{
    rtcp::{self, ReportBlock},
    sdp_answer::NegotiatedMedia,
    stats::SessionStats,
    twcc::TwccRecorder,
};

/// Interval of receiver reports. RFC 3550 6.2 has five seconds and lets feedback profiles go faster (RFC 4585
/// 3.4); a sender's loss estimate is as fresh as this.
const REPORT_EVERY: Duration = Duration::from_secs(1);
/// Shortest time between two keyframe requests: a round trip and a picture.
const KEYFRAME_GAP: Duration = Duration::from_millis(200);
/// Bit rate allowed to a peer. Without a REMB, Chromium starts at 300 kb/s and adds a twelfth per second;
/// with one it starts at that rate, as losses allow.
const BITS_A_SECOND: u64 = 8_000_000;
/// Shortest time between two NACKs: under heavy loss each costs as much as a media packet, and a round trip
/// takes longer.
const MISSING_GAP: Duration = Duration::from_millis(10);
/// Most losses waiting to be sent in a NACK.
const MISSING_MAX: usize = 1024;

#[derive(Debug)]
pub(super) struct RtcpFeedback {
    us: u32,
    nack: bool,
    remb: bool,
    full_intra: bool,
    announced: Option<u32>,
    report_at: Option<Instant>,
    missing: Vec<u16>,
    /// Time of the next NACK; `None` before the first.
    missing_after: Option<Instant>,
    /// True if a keyframe is to be requested: after the keys and each loss, until one arrives.
    pub(super) keyframe_wanted: bool,
    /// Time of the next keyframe request; `None` before the first.
    keyframe_after: Option<Instant>,
    full_intras: u8,
    /// Arrival times of packets, if transport-wide feedback was negotiated.
    arrivals: Option<Box<TwccRecorder>>,
}

impl RtcpFeedback {
    /// Creates the feedback from the SSRC `us`, with the negotiated kinds.
    pub(super) fn new(us: u32, negotiated: &NegotiatedMedia, now: Instant) -> RtcpFeedback {
        RtcpFeedback {
            us,
            nack: negotiated.nack,
            remb: negotiated.remb,
            // All senders understand PLI, and it is cheaper to answer than FIR.
            full_intra: negotiated.fir && !negotiated.pli,
            announced: negotiated.ssrcs.first().copied(),
            report_at: None,
            missing: Vec::new(),
            missing_after: None,
            keyframe_wanted: false,
            keyframe_after: None,
            full_intras: 0,
            arrivals: negotiated.numbers.map(|_| Box::new(TwccRecorder::new(now))),
        }
    }

    /// Records the arrival of the packet with this transport-wide number.
    pub(super) fn on_twcc_packet(&mut self, number: u16, now: Instant) {
        if let Some(arrivals) = &mut self.arrivals {
            arrivals.packet(number, now);
        }
    }

    /// Starts the reports and requests a keyframe, once the keys are established.
    pub(super) fn start(&mut self, now: Instant) {
        self.report_at = Some(now + REPORT_EVERY);
        self.keyframe_wanted = true;
    }

    pub(super) fn queue_nacks(&mut self, missing: &[u16]) {
        if self.nack {
            let room = MISSING_MAX - self.missing.len();
            self.missing.extend(missing.iter().take(room));
        }
    }

    /// Returns the time of the next scheduled feedback.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let keyframe = self.keyframe_after.filter(|_| self.keyframe_wanted);
        let missing = self.missing_after.filter(|_| !self.missing.is_empty());
        let arrivals = self.arrivals.as_ref().and_then(|arrivals| arrivals.deadline());
        [self.report_at, keyframe, missing, arrivals].into_iter().flatten().min()
    }

    /// Appends one compound packet with the feedback due at `now`, if any, and counts its requests; calls
    /// `block` only if a report is due. Returns true if a packet was written.
    pub(super) fn write(
        &mut self,
        out: &mut Vec<u8>,
        ssrc: Option<u32>,
        block: impl FnOnce() -> Option<ReportBlock>,
        counts: &mut SessionStats,
        now: Instant,
    ) -> bool {
        let Some(reports) = self.report_at else { return false };
        let is_report = reports <= now;
        let ssrc = ssrc.or(self.announced);
        let asks = self.keyframe_wanted
            && ssrc.is_some()
            && self.keyframe_after.is_none_or(|at| at <= now);
        let names = !self.missing.is_empty() && self.missing_after.is_none_or(|at| at <= now);
        let arrivals = self.arrivals.as_mut().and_then(|arrivals| arrivals.report(now));
        if !is_report && !asks && !names && arrivals.is_none() {
            return false;
        }
        rtcp::report(out, self.us, if is_report { block() } else { None });
        if is_report {
            self.report_at = Some(now + REPORT_EVERY);
        }
        // To the video source: REMB if a report is due, a NACK, and a keyframe request.
        if let Some(ssrc) = ssrc {
            if is_report && self.remb {
                rtcp::bit_rate(out, self.us, ssrc, BITS_A_SECOND);
            }
            if names {
                let named = rtcp::nack(out, self.us, ssrc, &self.missing);
                self.missing.drain(..named);
                counts.nacks += named as u64;
                self.missing_after = Some(now + MISSING_GAP);
            }
            if asks {
                if self.full_intra {
                    self.full_intras = self.full_intras.wrapping_add(1);
                    rtcp::full_intra(out, self.us, ssrc, self.full_intras);
                } else {
                    rtcp::picture_loss(out, self.us, ssrc);
                }
                self.keyframe_wanted = false;
                self.keyframe_after = Some(now + KEYFRAME_GAP);
                counts.keyframes_asked += 1;
            }
        }
        if let Some(arrivals) = arrivals {
            rtcp::transport_wide(out, self.us, ssrc.unwrap_or(0), &arrivals);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::webrtc::{
        sdp::{SdpOffer, tests::CHROMIUM},
        sdp_answer,
    };

    fn feedback(change: impl Fn(&mut NegotiatedMedia)) -> RtcpFeedback {
        let offer = SdpOffer::parse(CHROMIUM).expect("an offer");
        let mut negotiated = sdp_answer::negotiate(&offer).expect("agreed");
        change(&mut negotiated);
        RtcpFeedback::new(9, &negotiated, Instant::now())
    }

    /// Returns type and format of each packet written, without the report and the description.
    fn written(feedback: &mut RtcpFeedback, ssrc: Option<u32>, now: Instant) -> Vec<(u8, u8)> {
        let mut out = Vec::new();
        feedback.write(&mut out, ssrc, || None, &mut SessionStats::default(), now);
        let mut kinds = Vec::new();
        let mut rest = &out[..];
        while !rest.is_empty() {
            kinds.push((rest[1], rest[0] & 31));
            rest = &rest[4 * (usize::from(rest[3]) + 1)..];
        }
        kinds
    }

    const REPORT: [(u8, u8); 2] = [(201, 0), (202, 1)];

    #[test]
    fn nothing_is_sent_before_the_keys_and_a_keyframe_is_asked_for_with_them() {
        let start = Instant::now();
        let mut feedback = feedback(|_| {});
        feedback.keyframe_wanted = true;
        assert_eq!(written(&mut feedback, None, start), []);
        assert_eq!(feedback.deadline(), None);
        feedback.start(start);
        assert_eq!(written(&mut feedback, None, start), [REPORT[0], REPORT[1], (206, 1)]);
        assert_eq!(feedback.deadline(), Some(start + REPORT_EVERY));
        let later = start + REPORT_EVERY;
        assert_eq!(written(&mut feedback, Some(1), later), [REPORT[0], REPORT[1], (206, 15)]);
    }

    #[test]
    fn requests_for_keyframes_keep_their_distance() {
        let start = Instant::now();
        let mut feedback = feedback(|negotiated| negotiated.pli = false);
        feedback.start(start);
        assert_eq!(written(&mut feedback, Some(1), start)[2..], [(206, 4)], "FIR where PLI is not");
        feedback.keyframe_wanted = true;
        assert_eq!(written(&mut feedback, Some(1), start + KEYFRAME_GAP / 2), []);
        assert_eq!(feedback.deadline(), Some(start + KEYFRAME_GAP));
        assert_eq!(written(&mut feedback, Some(1), start + KEYFRAME_GAP)[2..], [(206, 4)]);
        assert_eq!(written(&mut feedback, Some(1), start + 2 * KEYFRAME_GAP), []);
    }

    #[test]
    fn a_keyframe_waits_for_a_source_to_ask() {
        let start = Instant::now();
        let mut feedback = feedback(|negotiated| negotiated.ssrcs.clear());
        feedback.start(start);
        assert_eq!(written(&mut feedback, None, start), []);
        assert_eq!(written(&mut feedback, Some(4), start)[2..], [(206, 1)]);
    }

    #[test]
    fn losses_are_named_where_that_was_agreed() {
        let start = Instant::now();
        let mut with = feedback(|negotiated| negotiated.ssrcs.clear());
        let mut without = feedback(|negotiated| negotiated.nack = false);
        for feedback in [&mut with, &mut without] {
            feedback.start(start);
            written(feedback, Some(1), start);
            feedback.queue_nacks(&[5, 6, 9]);
        }
        assert_eq!(written(&mut with, Some(1), start), [REPORT[0], REPORT[1], (205, 1)]);
        assert_eq!(written(&mut with, Some(1), start), []);
        assert_eq!(written(&mut without, Some(1), start), []);
        with.queue_nacks(&[11]);
        assert_eq!(written(&mut with, Some(1), start), [], "they keep their distance");
        assert_eq!(with.deadline(), Some(start + MISSING_GAP));
        assert_eq!(written(&mut with, Some(1), start + MISSING_GAP)[2..], [(205, 1)]);
        with.queue_nacks(&vec![1; 5000]);
        assert_eq!(with.missing.len(), MISSING_MAX);
    }

    #[test]
    fn losses_that_find_no_room_are_named_in_the_next_packet() {
        let start = Instant::now();
        let mut feedback = feedback(|_| {});
        feedback.start(start);
        written(&mut feedback, Some(1), start);
        // Too far apart for two to share an entry.
        let far: Vec<u16> = (0..100).map(|at| at * 100).collect();
        feedback.queue_nacks(&far);
        let mut counts = SessionStats::default();
        for (step, named) in [64, 100, 100, 100, 100].into_iter().enumerate() {
            let now = start + step as u32 * MISSING_GAP;
            feedback.write(&mut Vec::new(), Some(1), || None, &mut counts, now);
            assert_eq!(counts.nacks, named, "{step}");
        }
    }

    #[test]
    fn arrivals_are_told_where_that_was_agreed() {
        let start = Instant::now() + REPORT_EVERY;
        for (numbers, told) in [(Some(3), true), (None, false)] {
            let mut feedback = feedback(|negotiated| negotiated.numbers = numbers);
            feedback.on_twcc_packet(7, start);
            assert_eq!(written(&mut feedback, Some(1), start), [], "there are no keys");
            feedback.start(start);
            let first = written(&mut feedback, Some(1), start);
            assert_eq!(first.last(), Some(&if told { (205, 15) } else { (206, 1) }));
            feedback.on_twcc_packet(8, start);
            let at = feedback.deadline().expect("a report at least");
            let expected = if told { Duration::from_millis(100) } else { REPORT_EVERY };
            assert_eq!(at, start + expected);
            let kinds = written(&mut feedback, None, at);
            assert_eq!(kinds.contains(&(205, 15)), told, "no source is needed: {kinds:?}");
        }
    }
}
