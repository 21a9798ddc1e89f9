//! Invariants of a receiver for arbitrary packets.
//!
//! Called by fuzzers with generated input, and by tests with a stable compiler.

use std::time::{Duration, Instant};

use media::Codec;

use super::{ReceiverOutput, RtpPacket, RtpReceiver, UNIT_BYTES_MAX};

const CODECS: [Codec; 5] = [Codec::H264, Codec::H265, Codec::Vp8, Codec::Vp9, Codec::Av1];

/// The first byte selects the codec. Then packets follow: an increment of the sequence number, flags, a
/// length, the payload. The flags are the marker, a new timestamp, a distant timestamp, a pause, and a sender
/// report before the packet.
///
/// Asserts that units stay within bounds, that the first one is a start, and that the receiver falls silent.
/// Returns the number of units.
pub fn packets(bytes: &[u8]) -> usize {
    let Some((&choice, mut rest)) = bytes.split_first() else { return 0 };
    let codec = CODECS[usize::from(choice) % CODECS.len()];
    let Some(mut receiver) = RtpReceiver::new(codec, &[]) else { return 0 };
    let (mut now, mut sequence, mut timestamp) = (Instant::now(), 0_u16, 0_u32);
    let mut given = 0;
    while let [step, flags, length, after @ ..] = rest {
        let (payload, after) = after.split_at(usize::from(*length).min(after.len()));
        rest = after;
        sequence = sequence.wrapping_add_signed(i16::from(*step as i8));
        timestamp = timestamp.wrapping_add(if flags & 2 != 0 { 3000 } else { 0 });
        timestamp = timestamp.wrapping_add(if flags & 4 != 0 { 1 << 29 } else { 0 });
        now += Duration::from_millis(if flags & 8 != 0 { 60 } else { 1 });
        if flags & 16 != 0 {
            receiver.sender_report(u64::from(timestamp) << 33, timestamp);
        }
        let (payload_type, ssrc, marker) = (96, 1, flags & 1 != 0);
        let packet = RtpPacket { payload_type, ssrc, sequence, timestamp, marker, payload };
        receiver.packet(&packet, now);
        given += polled(&mut receiver, now, given == 0);
    }
    now += Duration::from_secs(60);
    given += polled(&mut receiver, now, given == 0);
    assert!(receiver.timeout().is_none_or(|at| at > now), "something is due for ever");
    if let Some(packet) = RtpPacket::parse(bytes) {
        assert!(packet.payload.len() <= bytes.len());
    }
    given
}

fn polled(receiver: &mut RtpReceiver, now: Instant, is_first: bool) -> usize {
    let mut given = 0;
    while let Some(output) = receiver.poll(now) {
        receiver.check();
        match output {
            ReceiverOutput::Unit(unit) => {
                let unit = unit.access_unit;
                assert!(unit.keyframe || !is_first || given > 0, "not a start");
                assert!(!unit.data.is_empty() && unit.data.len() <= UNIT_BYTES_MAX);
                given += 1;
            }
            ReceiverOutput::Nack(missing) => assert!((1..=128).contains(&missing.len())),
            ReceiverOutput::NeedKeyframe => {}
        }
    }
    given
}
