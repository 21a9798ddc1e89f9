//! Receiver of one source: packets in any order to decodable units, and requests to the sender.

use std::time::{Duration, Instant};

use media::Codec;

use super::{
    ReceiverOutput, RtpPacket, depacketize,
    frame_assembler::{FrameAssembler, Part},
    jitter_buffer::{Arrival, InsertOutcome, JitterBuffer},
    jitter_estimate::PlayoutDelay,
    sequence::{SequenceUnwrapper, UnwrappedSeq},
};

/// Time until a keyframe is requested again, doubled each time; covers a round trip and the coding of a
/// picture.
const REQUEST_FIRST: Duration = Duration::from_millis(250);
/// Longest time between two keyframe requests.
const REQUEST_LAST: Duration = Duration::from_secs(4);
/// Shortest time to a request after another loss; the sender may just have answered the last one.
const REQUEST_GAP: Duration = Duration::from_millis(100);

/// Counts of missing packets, since the receiver was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReceiverStats {
    /// Packets given up as lost.
    pub lost: u64,
    /// Packets received after they were requested.
    pub repaired: u64,
}

/// Schedule of keyframe requests.
#[derive(Debug)]
struct Request {
    at: Instant,
    then: Duration,
}

/// Receiver of one source. Poll it until it returns `None`, after each packet and at each
/// [`RtpReceiver::timeout`].
pub struct RtpReceiver {
    sequences: SequenceUnwrapper,
    jitter: JitterBuffer,
    assembler: FrameAssembler,
    hold: PlayoutDelay,
    request: Option<Request>,
    requested_at: Option<Instant>,
    /// True if the next packet is the first of another source.
    is_anew: bool,
    /// True if retransmissions arrive by [`RtpReceiver::rtx_packet`].
    repeats_apart: bool,
    counts: ReceiverStats,
}

impl RtpReceiver {
    /// Creates a receiver for one source of `codec`; `None` if the codec is not supported over RTP.
    ///
    /// `parameter_sets` are NAL units of H.264 or H.265 from the session description.
    pub fn new(codec: Codec, parameter_sets: &[Vec<u8>]) -> Option<RtpReceiver> {
        let depacketizer = depacketize::of(codec, parameter_sets)?;
        Some(RtpReceiver {
            sequences: SequenceUnwrapper::default(),
            jitter: JitterBuffer::default(),
            assembler: FrameAssembler::new(codec, depacketizer),
            hold: PlayoutDelay::default(),
            request: None,
            requested_at: None,
            is_anew: false,
            repeats_apart: false,
            counts: ReceiverStats::default(),
        })
    }

    /// Takes a packet that arrived at `now`.
    pub fn packet(&mut self, packet: &RtpPacket<'_>, now: Instant) {
        let Some(number) = self.place(packet, now) else { return };
        self.hold.packet(packet.timestamp, now);
        // A sender with an RTX stream never repeats packets in the media stream.
        let is_answer = !self.repeats_apart;
        if self.jitter.was_overtaken(number, is_answer) {
            self.hold.overtaken(now);
        }
        self.take(number, packet, is_answer, now);
    }

    /// Takes an unwrapped retransmission, which is excluded from jitter measurement.
    pub fn rtx_packet(&mut self, packet: &RtpPacket<'_>, now: Instant) {
        self.repeats_apart = true;
        if let Some(number) = self.place(packet, now) {
            self.take(number, packet, true, now);
        }
    }

    /// Records a sender report: the sender's wall clock was `ntp` at the timestamp `rtp`.
    pub fn sender_report(&mut self, ntp: u64, rtp: u32) {
        self.assembler.clock.report(ntp, rtp);
    }

    /// Prepares for another SSRC: sequence numbers and ticks restart, presentation times continue.
    pub fn source_changed(&mut self) {
        self.finish();
        self.is_anew = true;
    }

    /// Prepares for another codec, as for another SSRC; false if it is not supported over RTP.
    pub fn codec_changed(&mut self, codec: Codec, parameter_sets: &[Vec<u8>]) -> bool {
        let Some(depacketizer) = depacketize::of(codec, parameter_sets) else { return false };
        self.source_changed();
        self.assembler.codec_changed(codec, depacketizer);
        (self.request, self.requested_at, self.repeats_apart) = (None, None, false);
        true
    }

    /// Ends the source: gives up missing packets, so that the remaining complete units can be polled.
    fn finish(&mut self) {
        self.assembler.end();
        while self.jitter.give_up_at().is_some() {
            self.give_up();
            self.assembler.end();
        }
    }

    /// Returns the next output at `now`; `None` if there is none.
    pub fn poll(&mut self, now: Instant) -> Option<ReceiverOutput> {
        self.handle_timeout(now);
        if let Some(unit) = self.assembler.pop() {
            return Some(ReceiverOutput::Unit(unit));
        }
        let missing = self.jitter.collect_nacks(now);
        if !missing.is_empty() {
            return Some(ReceiverOutput::Nack(missing));
        }
        let request = self.request.as_mut().filter(|request| request.at <= now)?;
        request.at = now + request.then;
        request.then = (request.then * 2).min(REQUEST_LAST);
        self.requested_at = Some(now);
        Some(ReceiverOutput::NeedKeyframe)
    }

    /// Returns the time of the next poll if no packet arrives; `None` for never.
    pub fn timeout(&self) -> Option<Instant> {
        let request = self.request.as_ref().map(|request| request.at);
        let held_until = self.assembler.held_until(self.hold.get());
        [held_until, self.jitter.give_up_at(), self.jitter.next_nack_at(), request]
            .into_iter()
            .flatten()
            .min()
    }

    /// Returns the counts of missing packets.
    pub fn counts(&self) -> ReceiverStats {
        self.counts
    }

    /// Returns the unwrapped number of a packet; `None` if it is out of range.
    fn place(&mut self, packet: &RtpPacket<'_>, now: Instant) -> Option<i64> {
        if std::mem::take(&mut self.is_anew) {
            self.sequences = SequenceUnwrapper::default();
            self.begin_anew(packet.timestamp, now);
        }
        match self.sequences.place(packet.sequence) {
            UnwrappedSeq::At(number) => Some(number),
            UnwrappedSeq::Restarted(number) => {
                self.finish();
                self.begin_anew(packet.timestamp, now);
                Some(number)
            }
            UnwrappedSeq::OutOfRange => None,
        }
    }

    fn take(&mut self, number: i64, packet: &RtpPacket<'_>, is_answer: bool, now: Instant) {
        let patience = self.hold.reorder_wait(now);
        self.arrive(number, packet, Arrival { at: now, patience, is_answer });
        self.note_request(Some(packet.payload), now);
    }

    fn begin_anew(&mut self, timestamp: u32, now: Instant) {
        self.hold.restart();
        self.jitter = JitterBuffer::default();
        self.assembler.gap();
        self.assembler.clock.restart(timestamp, now);
    }

    fn arrive(&mut self, number: i64, packet: &RtpPacket<'_>, arrival: Arrival) {
        // A packet at which decoding may start needs no earlier packet.
        if self.jitter.is_new() && !self.assembler.begins_start(packet.payload) {
            self.jitter.expect_earlier(number, arrival.at);
        }
        loop {
            match self.jitter.arrive(number, packet.payload.len()) {
                InsertOutcome::Next => {
                    self.counts.repaired += u64::from(self.jitter.advance(arrival));
                    let (timestamp, marker) = (packet.timestamp, packet.marker);
                    let part = Part { timestamp, marker, payload: packet.payload, at: arrival.at };
                    self.assembler.push(&part);
                    return self.drain();
                }
                InsertOutcome::Held { is_repaired } => {
                    self.counts.repaired += u64::from(is_repaired);
                    let begins_start = self.assembler.begins_start(packet.payload);
                    self.jitter.hold(number, packet, begins_start, arrival);
                    if begins_start && self.assembler.has_nothing() {
                        self.skip_to_start();
                        self.drain();
                    }
                    return;
                }
                InsertOutcome::Useless => return,
                InsertOutcome::Full if self.jitter.is_empty() => {
                    self.counts.lost += self.jitter.skip_to(number);
                    self.assembler.gap();
                }
                InsertOutcome::Full => self.give_up(),
            }
        }
    }

    fn drain(&mut self) {
        while let Some(held) = self.jitter.pop() {
            let (timestamp, marker, at) = (held.timestamp, held.marker, held.at);
            self.assembler.push(&Part { timestamp, marker, payload: &held.payload, at });
        }
    }

    /// Gives up the packets missing first and moves on.
    fn give_up(&mut self) {
        self.counts.lost += self.jitter.skip_hole();
        self.assembler.gap();
        self.skip_to_start();
        self.drain();
    }

    fn skip_to_start(&mut self) {
        if let Some(start) = self.jitter.first_start() {
            self.counts.lost += self.jitter.skip_to(start);
            self.assembler.gap();
        }
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.assembler.release(self.hold.get(), now);
        while self.jitter.give_up_at().is_some_and(|at| at <= now) {
            self.give_up();
        }
        self.note_request(None, now);
    }

    /// Schedules keyframe requests from the first packet or a loss until a start is received.
    fn note_request(&mut self, payload: Option<&[u8]>, now: Instant) {
        if self.assembler.is_started {
            self.request = None;
            return;
        }
        if self.request.is_some() || self.jitter.is_new() {
            return;
        }
        let is_coming = payload.is_some_and(|payload| self.assembler.begins_start(payload));
        let at = match self.requested_at {
            _ if is_coming => now + REQUEST_FIRST,
            Some(before) => now.max(before + REQUEST_GAP),
            None => now,
        };
        self.request = Some(Request { at, then: REQUEST_FIRST });
    }

    /// Checks the invariants after every step.
    #[cfg(any(test, fuzzing))]
    pub(super) fn check(&self) {
        self.jitter.check();
        self.assembler.check();
    }
}
