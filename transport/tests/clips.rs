//! Tests of clips over RTP: the decoded frames equal those of the file.
#![allow(missing_docs)]

#[path = "../../cli/src/whip/packetize.rs"]
mod packetize;

use std::{
    fs::File,
    ops::ControlFlow,
    path::Path,
    time::{Duration, Instant},
};

use clips::{pick, rendered};
use crc32c::crc32c_append;
use decode::{
    CodedPicture, DecoderChain, DemuxLimits, Demuxer, FileOptions, FrameCollector, LiveDecoder,
    Sampling, decode_file,
};
use media::{Codec, Frame, Plane, Timestamp};
use packetize::Packetizer;
use transport::rtp::{ReceivedUnit, ReceiverOutput, RtpPacket, RtpReceiver};

/// Frames compared per clip; they include the second keyframe, if the clip has one.
const FRAMES: usize = 90;

fn demuxer(path: &Path) -> Demuxer {
    let file = File::open(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    Demuxer::open(Box::new(file), DemuxLimits::default()).expect("a clip")
}

fn digest(frame: &Frame) -> u32 {
    let picture = frame.pixels.host().expect("in host memory");
    let mut digest = 0;
    let mut add = |plane: Plane<'_>| {
        (0..plane.extent().height).for_each(|y| digest = crc32c_append(digest, plane.row(y)));
    };
    add(picture.luma());
    picture.chroma().into_iter().flatten().for_each(&mut add);
    digest
}

/// Timestamp and digest of a frame.
type Seen = (Timestamp, u32);

/// Returns the first frames as the file decoder outputs them.
fn of_file(path: &Path) -> Vec<Seen> {
    let options = FileOptions {
        sampling: Sampling::Every,
        max_frames: FRAMES as u64,
        threads: 2,
        plan: true,
    };
    let mut seen = Vec::new();
    let make_sink = || FrameCollector::new(|_, frame| Ok((frame.pts, digest(&frame))));
    decode_file(&DecoderChain::software(), demuxer(path), &options, make_sink, |frames| {
        seen.extend(frames);
        ControlFlow::Continue(())
    })
    .expect("decodes");
    seen
}

fn rtp_ticks(at: Timestamp) -> i64 {
    let (num, den) = (i128::from(at.timebase.num()), i128::from(at.timebase.den()));
    (i128::from(at.ticks) * num * 90_000 / den) as i64
}

/// Reverses every group of three packets but the first.
fn shuffled(payloads: Vec<Vec<u8>>) -> Vec<(usize, Vec<u8>)> {
    let mut sent: Vec<(usize, Vec<u8>)> = payloads.into_iter().enumerate().collect();
    sent.chunks_mut(3).skip(1).for_each(<[_]>::reverse);
    sent
}

/// Sends the first pictures through packets of 1200 bytes and returns the units.
fn units(pictures: impl Iterator<Item = CodedPicture>, codec: Codec) -> Vec<ReceivedUnit> {
    let mut packetizer = Packetizer::new(codec, 1200).expect("is served");
    let mut receiver = RtpReceiver::new(codec, &[]).expect("is served");
    let (mut now, mut sequence, mut units) = (Instant::now(), 65_000_u16, Vec::new());
    for picture in pictures {
        let timestamp = (rtp_ticks(picture.access_unit.pts) as u32).wrapping_add(u32::MAX - 9000);
        let payloads = packetizer.payloads(&picture.access_unit);
        let count = payloads.len();
        for (index, payload) in shuffled(payloads) {
            let packet = RtpPacket {
                payload_type: 96,
                ssrc: 1,
                sequence: sequence.wrapping_add(index as u16),
                timestamp,
                marker: index + 1 == count,
                payload: &payload,
            };
            receiver.packet(&packet, now);
            receiver.packet(&packet, now);
        }
        sequence = sequence.wrapping_add(count as u16);
        now += Duration::from_millis(5);
        while let Some(output) = receiver.poll(now) {
            match output {
                ReceiverOutput::Unit(unit) => units.push(unit),
                // A delimiter in a packet of its own does not tell what follows.
                ReceiverOutput::NeedKeyframe if units.is_empty() => {}
                other => panic!("nothing is missing: {other:?}"),
            }
        }
    }
    assert_eq!(receiver.counts().lost, 0);
    units
}

/// Returns the decoded frames of units, in presentation order.
fn decoded(units: &[ReceivedUnit], codec: Codec) -> Vec<Seen> {
    let mut decoder =
        LiveDecoder::open(&DecoderChain::software(), codec, DemuxLimits::default()).expect("opens");
    let mut seen = Vec::new();
    for unit in units {
        decoder.push(&unit.access_unit).expect("decodes");
        while let Some(frame) = decoder.poll() {
            seen.push((frame.pts, digest(&frame)));
        }
    }
    decoder.flush().expect("flushes");
    while let Some(frame) = decoder.poll() {
        seen.push((frame.pts, digest(&frame)));
    }
    seen
}

fn check(path: &Path) {
    let name = path.display();
    let codec = demuxer(path).stream().codec;
    let file = of_file(path);
    let pictures = demuxer(path).into_coded_pictures().take(FRAMES + 30);
    let live = decoded(&units(pictures, codec), codec);
    let count = file.len().min(FRAMES);
    assert!(live.len() >= count, "{name}: {} frames of {count}", live.len());
    let (first_file, first_live) = (rtp_ticks(file[0].0), live[0].0.ticks);
    for (index, (expected, found)) in file.iter().zip(&live).enumerate() {
        assert_eq!(expected.1, found.1, "{name}: pixels of frame {index}");
        let difference = rtp_ticks(expected.0) - first_file - (found.0.ticks - first_live);
        assert!(difference.abs() <= 1, "{name}: time of frame {index}: {difference}");
    }
}

#[test]
fn real_clips_come_out_as_they_are() {
    let built_in = [
        "bikes.mp4",
        "talk.mp4",
        "bigbuckbunny.mp4",
        "signing.mkv",
        "hevc.mp4",
        "ten-bit.mp4",
        "water.webm",
        "av1.mp4",
    ];
    let media = [
        "film_nasa.mp4",
        "talk_friday.mp4",
        "anim_bbb-720p-5s.mp4",
        "anim_mb-annexb.mkv",
        "phone_adx-topshots.mp4",
        "phone_mb-h265.mp4",
        "nature_water.webm",
        "phone_adx-1080p-av1.mp4",
    ];
    pick(&built_in, &media).iter().for_each(|clip| check(clip));
}

#[test]
fn made_clips_come_out_as_they_are() {
    for (name, how) in [
        ("vp9.webm", "-c:v libvpx-vp9 -deadline realtime -cpu-used 8 -g 40"),
        ("vp9-hidden.webm", "-c:v libvpx-vp9 -cpu-used 8 -g 40 -auto-alt-ref 1 -lag-in-frames 16"),
        ("vp8-hidden.webm", "-c:v libvpx -cpu-used 8 -g 40 -auto-alt-ref 1 -lag-in-frames 12"),
        ("av1.mkv", "-c:v libaom-av1 -cpu-used 8 -usage realtime -g 30"),
        ("slices.mp4", "-c:v libx264 -preset ultrafast -bf 2 -g 40 -slices 4"),
        ("open-gop.mkv", "-c:v libx265 -preset ultrafast -x265-params log-level=none:keyint=40"),
    ] {
        let source = "-f lavfi -i testsrc2=size=320x180:rate=30:duration=2 -pix_fmt yuv420p";
        check(&rendered(name, &format!("{source} {how}")));
    }
}
