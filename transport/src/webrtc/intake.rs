//! Which source of a session is its video, and what receives it.
//!
//! One source at a time: its packets, retransmissions and sender reports go to one
//! `rtp::Receiver`. Promises that times never go back when a peer changes its source or codec.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use media::Timestamp;

use super::{
    codecs::{Carries, Payload, Payloads},
    counts::Refused,
    reception::Reception,
    rtcp::Block,
};
use crate::rtp::{Output, Packet, Receiver, Settings, Unit};

/// Another source is taken for the video when the current one has been silent this long: a
/// simulcast layer that nobody asked for must not alternate with it.
const SILENT: Duration = Duration::from_millis(500);
/// Longer than a receiver waits for anything.
const WAITS_MAX: Duration = Duration::from_secs(1);
/// Ticks a second of media time.
const CLOCK: i64 = 90_000;

/// What receives the video of a session.
pub(super) struct Intake {
    payloads: Payloads,
    video: Vec<Payload>,
    current: Option<Current>,
    /// Units of receivers that are gone; those bound them.
    finished: VecDeque<Unit>,
    /// Latest time given out, and when that unit came.
    last: Option<(i64, Instant)>,
}

struct Current {
    payload_type: u8,
    receiver: Receiver,
    reception: Reception,
    heard_at: Instant,
    /// It said that it ends, and nothing of it came since.
    has_left: bool,
    /// Added to the receiver's times.
    base: i64,
}

impl Current {
    fn is_heard(&self, now: Instant) -> bool {
        !self.has_left && now.saturating_duration_since(self.heard_at) < SILENT
    }
}

impl Intake {
    /// Nothing has come yet.
    pub(super) fn new(payloads: Payloads, video: Vec<Payload>) -> Intake {
        Intake { payloads, video, current: None, finished: VecDeque::new(), last: None }
    }

    /// What a payload type carries.
    pub(super) fn carries(&self, payload_type: u8) -> Carries {
        self.payloads.get(payload_type)
    }

    /// The source of the video, once it has come.
    pub(super) fn ssrc(&self) -> Option<u32> {
        self.current.as_ref().map(|current| current.reception.ssrc())
    }

    /// Takes an authentic packet.
    pub(super) fn packet(&mut self, packet: &Packet<'_>, now: Instant) -> Result<(), Refused> {
        match self.carries(packet.payload_type) {
            Carries::Video(_) => self.video(packet, now),
            Carries::Repair(of) => {
                let Some(current) = &mut self.current else { return Ok(()) };
                if current.payload_type == of
                    && let Some(inner) = packet.unwrap_rtx(of, current.reception.ssrc())
                {
                    current.receiver.packet(&inner, now);
                }
                Ok(())
            }
            Carries::Audio => Ok(()),
            Carries::Unknown => Err(Refused::MediaPayload),
        }
    }

    fn video(&mut self, packet: &Packet<'_>, now: Instant) -> Result<(), Refused> {
        let same = self.current.as_ref().is_some_and(|current| {
            current.reception.ssrc() == packet.ssrc && current.payload_type == packet.payload_type
        });
        if same {
            let Some(current) = &mut self.current else { return Ok(()) };
            current.reception.packet(packet.sequence, packet.timestamp, now);
            (current.heard_at, current.has_left) = (now, false);
            current.receiver.packet(packet, now);
            return Ok(());
        }
        self.change(packet, now)
    }

    /// A packet of another source or payload type than the current.
    fn change(&mut self, packet: &Packet<'_>, now: Instant) -> Result<(), Refused> {
        let at = self.video.iter().position(|payload| payload.number == packet.payload_type);
        let at = at.ok_or(Refused::MediaPayload)?;
        let same_source = match &self.current {
            None => false,
            Some(current) if current.reception.ssrc() == packet.ssrc => {
                // What was sent before the change may come after it.
                if !current.reception.is_newer(packet.sequence) {
                    return Ok(());
                }
                true
            }
            Some(current) if current.is_heard(now) => return Err(Refused::MediaSources),
            Some(_) => false,
        };
        let codec = Carries::Video(self.video[at].codec);
        let before = self.current.as_ref().map(|current| self.payloads.get(current.payload_type));
        if before.is_some_and(|before| before != codec) {
            self.collect(now);
            self.current = None;
        }
        let kept = self.current.take();
        let payload = &self.video[at];
        let (mut receiver, base) = match kept {
            Some(mut current) => {
                if !same_source {
                    current.receiver.source_changed();
                }
                (current.receiver, current.base)
            }
            None => {
                let parameter_sets = payload.parameter_sets.clone();
                let settings = Settings { parameter_sets, ..Settings::default() };
                let receiver =
                    Receiver::new(payload.codec, &settings).ok_or(Refused::MediaPayload)?;
                (receiver, self.elapsed(now))
            }
        };
        receiver.packet(packet, now);
        self.current = Some(Current {
            payload_type: packet.payload_type,
            receiver,
            reception: Reception::new(packet.ssrc, packet.sequence, packet.timestamp, now),
            heard_at: now,
            has_left: false,
            base,
        });
        Ok(())
    }

    /// A source says that it ends: another may take its place at once.
    pub(super) fn left(&mut self, ssrc: u32) {
        if let Some(current) = &mut self.current {
            current.has_left |= current.reception.ssrc() == ssrc;
        }
    }

    /// Keeps what the current receiver has whole, because another takes its place: what it waits for
    /// does not come any more.
    fn collect(&mut self, now: Instant) {
        while let Some(output) = self.receive(now + WAITS_MAX) {
            if let Output::Unit(unit) = output {
                self.finished.push_back(unit);
            }
        }
    }

    /// The time at which a new receiver's zero is.
    fn elapsed(&self, now: Instant) -> i64 {
        self.last.map_or(0, |(ticks, at)| {
            let since = now.saturating_duration_since(at).as_micros();
            let since = i64::try_from(since).unwrap_or(i64::MAX / CLOCK) * CLOCK / 1_000_000;
            ticks + since.max(1)
        })
    }

    /// What there is for the session.
    pub(super) fn poll(&mut self, now: Instant) -> Option<Output> {
        self.finished.pop_front().map(Output::Unit).or_else(|| self.receive(now))
    }

    fn receive(&mut self, now: Instant) -> Option<Output> {
        let current = self.current.as_mut()?;
        let mut output = current.receiver.poll(now)?;
        if let Output::Unit(unit) = &mut output {
            let pts = unit.access_unit.pts;
            let ticks = pts.ticks + current.base;
            unit.access_unit.pts = Timestamp::new(ticks, pts.timebase);
            let latest = self.last.map_or(ticks, |(last, _)| last.max(ticks));
            self.last = Some((latest, unit.last_packet_at));
        }
        Some(output)
    }

    /// When to poll next, even if nothing comes.
    pub(super) fn timeout(&self) -> Option<Instant> {
        self.current.as_ref().and_then(|current| current.receiver.timeout())
    }

    /// A sender report came. Whether it was of the video.
    pub(super) fn reported(&mut self, ssrc: u32, ntp: u64, rtp: u32, now: Instant) -> bool {
        let current = self.current.as_mut().filter(|current| current.reception.ssrc() == ssrc);
        let Some(current) = current else { return false };
        current.reception.reported(ntp, now);
        current.receiver.sender_report(ntp, rtp);
        true
    }

    /// What a receiver report says of the video.
    pub(super) fn block(&mut self, now: Instant) -> Option<Block> {
        self.current.as_mut().map(|current| current.reception.block(now))
    }

    /// Packets of the current source that never came.
    pub(super) fn lost(&self) -> u64 {
        self.current.as_ref().map_or(0, |current| current.reception.lost())
    }
}

#[cfg(test)]
mod tests {
    use media::Codec;

    use super::*;

    fn intake() -> Intake {
        let payload =
            |number, codec, repair| Payload { number, codec, repair, parameter_sets: Vec::new() };
        let video = vec![
            payload(96, Codec::Vp8, Some(97)),
            payload(98, Codec::Vp8, None),
            payload(100, Codec::Vp9, None),
        ];
        Intake::new(Payloads::new(&video, Some(111)), video)
    }

    /// A whole VP8 keyframe in one packet (RFC 7741 4.2, RFC 6386 9.1), or an inter frame.
    fn packet(payload_type: u8, ssrc: u32, sequence: u16, timestamp: u32) -> Packet<'static> {
        const KEY: &[u8] = &[0x10, 0x50, 0, 0, 0x9d, 0x01, 0x2a, 0x40, 1, 0xf0, 0, 0, 0];
        Packet { payload_type, ssrc, sequence, timestamp, marker: true, payload: KEY }
    }

    /// Times of the units that are there soon: until markers are proven, a unit waits a moment.
    fn units(intake: &mut Intake, now: Instant) -> Vec<i64> {
        let soon = now + Duration::from_millis(100);
        std::iter::from_fn(|| intake.poll(soon))
            .filter_map(|output| match output {
                Output::Unit(unit) => Some(unit.access_unit.pts.ticks),
                _ => None,
            })
            .collect()
    }

    #[test]
    fn one_source_is_received_and_another_only_after_silence() {
        let start = Instant::now();
        let mut intake = intake();
        assert_eq!(intake.ssrc(), None);
        assert_eq!(intake.packet(&packet(96, 1, 10, 9000), start), Ok(()));
        assert_eq!(units(&mut intake, start), [0]);
        let other = packet(96, 2, 500, 70_000);
        assert_eq!(intake.packet(&other, start), Err(Refused::MediaSources));
        assert_eq!(intake.ssrc(), Some(1));
        let later = start + Duration::from_secs(1);
        assert_eq!(intake.packet(&other, later), Ok(()));
        assert_eq!(intake.ssrc(), Some(2));
        let times = units(&mut intake, later);
        assert!(times.iter().all(|ticks| (80_000..=100_000).contains(ticks)), "{times:?}");
        assert_eq!(times.len(), 1);
    }

    #[test]
    fn a_change_of_codec_goes_on_in_time_and_late_packets_do_not_undo_it() {
        let start = Instant::now();
        let mut intake = intake();
        assert_eq!(intake.packet(&packet(96, 1, 10, 9000), start), Ok(()));
        assert_eq!(units(&mut intake, start), [0]);
        let later = start + Duration::from_millis(100);
        // A VP9 keyframe of one packet: beginning and end of a frame (RFC 9628 4.2).
        let vp9 =
            Packet { payload: &[0x0c, 0x82, 0x49, 0x83, 0x42, 0], ..packet(100, 1, 11, 18_000) };
        assert_eq!(intake.packet(&vp9, later), Ok(()));
        let times = units(&mut intake, later);
        assert_eq!(intake.packet(&packet(96, 1, 9, 6000), later), Ok(()));
        assert!(times.iter().all(|ticks| *ticks == 9000), "{times:?}");
        assert_eq!(intake.current.as_ref().map(|current| current.payload_type), Some(100));
    }

    #[test]
    fn what_is_whole_before_a_change_of_codec_comes_out() {
        let start = Instant::now();
        let mut intake = intake();
        assert_eq!(intake.packet(&packet(96, 1, 10, 9000), start), Ok(()));
        let later = start + Duration::from_millis(33);
        let vp9 =
            Packet { payload: &[0x0c, 0x82, 0x49, 0x83, 0x42, 0], ..packet(100, 1, 11, 12_000) };
        assert_eq!(intake.packet(&vp9, later), Ok(()));
        let times = units(&mut intake, later);
        assert_eq!(times.len(), 2, "nobody polled between them: {times:?}");
        assert!(times[0] == 0 && times[1] > 0, "{times:?}");
    }

    #[test]
    fn a_source_that_says_that_it_ends_is_followed_at_once() {
        let start = Instant::now();
        let mut intake = intake();
        let other = packet(96, 2, 500, 70_000);
        assert_eq!(intake.packet(&packet(96, 1, 10, 9000), start), Ok(()));
        intake.left(7);
        assert_eq!(intake.packet(&other, start), Err(Refused::MediaSources), "7 is another");
        intake.left(1);
        assert_eq!(intake.packet(&packet(96, 1, 11, 12_000), start), Ok(()));
        assert_eq!(intake.packet(&other, start), Err(Refused::MediaSources), "it goes on");
        intake.left(1);
        assert_eq!(intake.packet(&other, start), Ok(()));
        assert_eq!(intake.ssrc(), Some(2));
    }

    #[test]
    fn what_was_not_negotiated_is_refused_and_sound_dropped() {
        let start = Instant::now();
        let mut intake = intake();
        assert_eq!(intake.packet(&packet(99, 1, 1, 0), start), Err(Refused::MediaPayload));
        assert_eq!(intake.packet(&packet(111, 1, 1, 0), start), Ok(()));
        assert_eq!(intake.packet(&packet(97, 1, 1, 0), start), Ok(()), "nothing to repair yet");
        assert_eq!(intake.ssrc(), None);
        assert!(!intake.reported(1, 0, 0, start));
        assert_eq!(intake.block(start), None);
    }
}
