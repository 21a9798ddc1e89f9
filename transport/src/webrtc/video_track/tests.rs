//! Tests of sources that start, change and end, and of the packets lost in between.

use media::Codec;

use super::*;

fn video() -> VideoTrack {
    let payload =
        |number, codec, rtx| PayloadFormat { number, codec, rtx, parameter_sets: Vec::new() };
    let video = vec![
        payload(96, Codec::Vp8, Some(97)),
        payload(98, Codec::Vp8, None),
        payload(100, Codec::Vp9, None),
    ];
    VideoTrack::new(PayloadTypeMap::new(&video, Some(111)), video)
}

/// Returns a whole VP8 keyframe in one packet (RFC 7741 4.2, RFC 6386 9.1).
fn packet(payload_type: u8, ssrc: u32, sequence: u16, timestamp: u32) -> RtpPacket<'static> {
    const KEY: &[u8] = &[0x10, 0x50, 0, 0, 0x9d, 0x01, 0x2a, 0x40, 1, 0xf0, 0, 0, 0];
    RtpPacket { payload_type, ssrc, sequence, timestamp, marker: true, payload: KEY }
}

/// Returns the timestamps of the units available soon; until markers are proven, a unit waits.
fn units(video: &mut VideoTrack, now: Instant) -> Vec<i64> {
    let soon = now + Duration::from_millis(100);
    std::iter::from_fn(|| video.poll(soon))
        .filter_map(|output| match output {
            ReceiverOutput::Unit(unit) => Some(unit.access_unit.pts.ticks),
            _ => None,
        })
        .collect()
}

#[test]
fn one_source_is_received_and_another_only_after_silence() {
    let start = Instant::now();
    let mut video = video();
    assert_eq!(video.ssrc(), None);
    assert_eq!(video.packet(&packet(96, 1, 10, 9000), start), Ok(()));
    assert_eq!(units(&mut video, start), [0]);
    let other = packet(96, 2, 500, 70_000);
    assert_eq!(video.packet(&other, start), Err(DropReason::MediaSources));
    assert_eq!(video.ssrc(), Some(1));
    let later = start + Duration::from_secs(1);
    assert_eq!(video.packet(&other, later), Ok(()));
    assert_eq!(video.ssrc(), Some(2));
    let times = units(&mut video, later);
    assert!(times.iter().all(|ticks| (80_000..=100_000).contains(ticks)), "{times:?}");
    assert_eq!(times.len(), 1);
}

#[test]
fn a_change_of_codec_goes_on_in_time_and_late_packets_do_not_undo_it() {
    let start = Instant::now();
    let later = start + Duration::from_millis(100);
    // A VP9 keyframe in one packet: beginning and end of a frame (RFC 9628 4.2).
    let vp9 =
        RtpPacket { payload: &[0x0c, 0x82, 0x49, 0x83, 0x42, 0], ..packet(100, 1, 12, 18_000) };
    for is_polled in [true, false] {
        let mut video = video();
        assert_eq!(video.packet(&packet(96, 1, 10, 9000), start), Ok(()));
        let mut times = if is_polled { units(&mut video, start) } else { Vec::new() };
        assert_eq!(video.packet(&vp9, later), Ok(()));
        times.extend(units(&mut video, later));
        assert_eq!(times, [0, 9000], "polled before the change: {is_polled}");
        assert_eq!(video.packet(&packet(96, 1, 9, 6000), later), Ok(()));
        assert_eq!(video.current.as_ref().map(|current| current.payload_type), Some(100));
        let block = video.block(later).expect("a source");
        assert_eq!((block.highest, block.lost), (12, 1), "the counts of a source go on");
    }
}

#[test]
fn a_source_that_says_that_it_ends_is_followed_at_once() {
    let start = Instant::now();
    let mut video = video();
    let other = packet(96, 2, 500, 70_000);
    assert_eq!(video.packet(&packet(96, 1, 10, 9000), start), Ok(()));
    video.left(7);
    assert_eq!(video.packet(&other, start), Err(DropReason::MediaSources), "7 is another");
    video.left(1);
    assert_eq!(video.packet(&packet(96, 1, 11, 12_000), start), Ok(()));
    assert_eq!(video.packet(&other, start), Err(DropReason::MediaSources), "it goes on");
    video.left(1);
    assert_eq!(video.packet(&other, start), Ok(()));
    assert_eq!(video.ssrc(), Some(2));
    let times = units(&mut video, start);
    assert_eq!(times.len(), 3, "both of the first are whole: {times:?}");
    assert!(times[..2] == [0, 3000] && times[2] > 3000, "{times:?}");
}

#[derive(Clone, Copy, Debug)]
enum Step {
    /// Packet with this SSRC, payload type and sequence number.
    Media(u32, u8, u16),
    /// Retransmission of the packet with this sequence number, of the source with this SSRC.
    Again(u32, u16),
    Leaves(u32),
    /// Time longer than any wait.
    Waits,
}

#[test]
fn what_is_repaired_is_not_lost_and_losses_of_every_source_add_up() {
    use Step::{Again, Leaves, Media, Waits};
    let rows: [(&str, &[Step], u64); 7] = [
        ("nothing is missing", &[Media(1, 96, 10), Media(1, 96, 11), Waits], 0),
        ("one never comes", &[Media(1, 96, 10), Media(1, 96, 12), Waits], 1),
        ("it may still come", &[Media(1, 96, 10), Media(1, 96, 12)], 0),
        ("it is repaired", &[Media(1, 96, 10), Media(1, 96, 12), Again(1, 11), Waits], 0),
        ("it is repaired too late", &[Media(1, 96, 10), Media(1, 96, 12), Waits, Again(1, 11)], 1),
        (
            "another source goes on",
            &[
                Media(1, 96, 10),
                Media(1, 96, 12),
                Leaves(1),
                Media(2, 96, 500),
                Media(2, 96, 503),
                Waits,
            ],
            3,
        ),
        (
            "another codec, and back",
            &[
                Media(1, 96, 10),
                Media(1, 96, 12),
                Media(1, 100, 13),
                Media(1, 96, 14),
                Media(1, 96, 16),
                Waits,
            ],
            2,
        ),
    ];
    for (name, steps, lost) in rows {
        let mut now = Instant::now();
        let (mut video, mut before) = (video(), 0);
        for step in steps {
            match *step {
                Media(ssrc, payload_type, sequence) => {
                    let media = packet(payload_type, ssrc, sequence, 3000 * u32::from(sequence));
                    assert_eq!(video.packet(&media, now), Ok(()), "{name}: {step:?}");
                }
                Again(ssrc, sequence) => {
                    let inner = packet(96, ssrc, sequence, 3000 * u32::from(sequence));
                    let again = [&sequence.to_be_bytes()[..], inner.payload].concat();
                    let rtx = RtpPacket { payload_type: 97, ssrc: 9, payload: &again, ..inner };
                    assert_eq!(video.packet(&rtx, now), Ok(()), "{name}: {step:?}");
                }
                Leaves(ssrc) => video.left(ssrc),
                Waits => now += Duration::from_secs(2),
            }
            while video.poll(now).is_some() {}
            assert!(video.counts().lost >= before, "{name}: {step:?} takes back");
            before = video.counts().lost;
        }
        assert_eq!(video.counts().lost, lost, "{name}");
    }
}

#[test]
fn what_was_not_negotiated_is_refused_and_sound_dropped() {
    let start = Instant::now();
    let mut video = video();
    assert_eq!(video.packet(&packet(99, 1, 1, 0), start), Err(DropReason::MediaPayload));
    assert_eq!(video.packet(&packet(111, 1, 1, 0), start), Ok(()));
    assert_eq!(video.packet(&packet(97, 1, 1, 0), start), Ok(()), "nothing to rtx yet");
    assert_eq!(video.ssrc(), None);
    video.reported(1, 0, 0, start);
    assert_eq!(video.block(start), None);
}
