//! Live decoding: access units in; out come the file decoder's frames with their own times.

use clips::{rendered, rendered_from};
use decode::{DecodeError, DecoderChain, DemuxLimits, LiveDecoder};
use media::{AccessUnit, Codec, Timestamp};

use crate::support::*;

/// Codecs of live streams.
pub const CODECS: [Codec; 5] = [Codec::H264, Codec::H265, Codec::Vp8, Codec::Vp9, Codec::Av1];

/// Splits a stream into coded pictures, each with a time by its place in decode order.
fn units(codec: Codec, bytes: &[u8], times: &[i64]) -> Vec<AccessUnit> {
    let pictures = match codec {
        Codec::H264 => split_at(bytes, &[0, 0, 0, 1, 0x09]),
        Codec::H265 => split_at(bytes, &[0, 0, 0, 1, 0x46]),
        _ => split_ivf(bytes),
    };
    assert_eq!(pictures.len(), times.len(), "{codec:?}");
    let unit = |(data, &ms): (Vec<u8>, &i64)| AccessUnit {
        codec,
        pts: Timestamp::from_millis(ms),
        keyframe: false,
        data,
    };
    pictures.into_iter().zip(times).map(unit).collect()
}

/// Splits before every `mark`, as of a start code or an access unit delimiter.
pub fn split_at(bytes: &[u8], mark: &[u8]) -> Vec<Vec<u8>> {
    let starts: Vec<usize> = bytes
        .windows(mark.len())
        .enumerate()
        .filter_map(|(at, window)| (window == mark).then_some(at))
        .collect();
    let ends = starts.iter().skip(1).copied().chain([bytes.len()]);
    starts.iter().zip(ends).map(|(&start, end)| bytes[start..end].to_vec()).collect()
}

/// Returns the pictures of an IVF file.
pub fn split_ivf(bytes: &[u8]) -> Vec<Vec<u8>> {
    let mut pictures = Vec::new();
    let mut rest = &bytes[32..];
    while rest.len() > 12 {
        let size = u32::from_le_bytes(rest[..4].try_into().expect("four bytes")) as usize;
        pictures.push(rest[12..12 + size].to_vec());
        rest = &rest[12 + size..];
    }
    pictures
}

/// Returns a clip as access units, and its frames by the file decoder.
pub fn clip(codec: Codec) -> (Vec<AccessUnit>, Vec<Seen>) {
    clip_of(codec, "160x120")
}

/// As [`clip`], with pictures of this size.
pub fn clip_of(codec: Codec, size: &str) -> (Vec<AccessUnit>, Vec<Seen>) {
    let (encode, copy, ending) = match codec {
        Codec::H264 => (
            "libx264 -preset veryfast -bf 3 -g 30",
            "-bsf:v h264_mp4toannexb,h264_metadata=aud=insert",
            "264",
        ),
        Codec::H265 => (
            "libx265 -preset ultrafast -x265-params log-level=none:bframes=3:keyint=30:open-gop=0",
            "-bsf:v hevc_mp4toannexb,hevc_metadata=aud=insert",
            "265",
        ),
        Codec::Vp8 => ("libvpx -deadline realtime -cpu-used 8 -g 30", "", "ivf"),
        Codec::Vp9 => ("libvpx-vp9 -deadline realtime -cpu-used 8 -g 30", "", "ivf"),
        _ => ("libsvtav1 -preset 12 -g 30", "", "ivf"),
    };
    let source = format!("-f lavfi -i testsrc2=size={size}:rate=25:duration=3 -pix_fmt yuv420p");
    let file = rendered("clip.mkv", &format!("{source} -c:v {encode}"));
    let line = format!("-i {{0}} -c copy {copy}");
    let stream = rendered_from(&format!("clip.{ending}"), &line, &[&file]);
    let text = run("ffprobe", "-v error -show_entries packet=pts -of csv=p=0 {}", &file);
    let times: Vec<i64> =
        text.lines().filter_map(|line| line.trim_end_matches(',').parse().ok()).collect();
    let (_, seen) = decode(&file, &every(1), true).expect("decodes");
    (units(codec, &std::fs::read(stream).expect("made"), &times), seen)
}

pub fn poll_all(decoder: &mut LiveDecoder) -> Vec<(i64, String)> {
    std::iter::from_fn(|| decoder.poll())
        .map(|frame| (frame.pts.as_millis(), digest(&frame)))
        .collect()
}

pub fn open(codec: Codec) -> LiveDecoder {
    LiveDecoder::open(&DecoderChain::software(), codec, DemuxLimits::default()).expect("opens")
}

/// Returns time and digest of every output frame, and the number of damage errors.
pub fn frames(decoder: &mut LiveDecoder, units: &[AccessUnit]) -> (Vec<(i64, String)>, usize) {
    let (mut frames, mut damaged) = (Vec::new(), 0);
    let mut note = |outcome: Result<(), DecodeError>| match outcome {
        Ok(()) => {}
        Err(DecodeError::DamagedUnit(_)) => damaged += 1,
        Err(error) => panic!("{error}"),
    };
    for unit in units {
        note(decoder.push(unit));
        frames.extend(poll_all(decoder));
    }
    note(decoder.flush());
    frames.extend(poll_all(decoder));
    (frames, damaged)
}

#[test]
fn access_units_give_the_files_frames_with_their_own_times() {
    for codec in CODECS {
        let (units, seen) = clip(codec);
        let mut decoder = open(codec);
        // Matroska counts milliseconds, so its ticks equal ours.
        let expected: Vec<(i64, String)> = ticks(&seen).into_iter().zip(digests(&seen)).collect();
        assert_eq!(frames(&mut decoder, &units), (expected, 0), "{}", decoder.name());
    }
}

#[test]
fn nothing_comes_out_before_a_clean_start() {
    for codec in CODECS {
        let (units, seen) = clip(codec);
        let (frames, damaged) = frames(&mut open(codec), &units[5..]);
        assert!(!frames.is_empty() && frames.len() <= seen.len() - 25, "{codec:?}");
        let shown = &seen[seen.len() - frames.len()..];
        let expected: Vec<(i64, String)> = ticks(shown).into_iter().zip(digests(shown)).collect();
        assert_eq!((frames, damaged), (expected, 0), "{codec:?}");
    }
}

#[test]
fn after_a_refused_unit_decoding_resumes_at_the_next_clean_start() {
    let (mut units, seen) = clip(Codec::H264);
    units[10].data = vec![0, 0, 0, 1, 0x65, 0xff, 0xff, 0xff];
    let (frames, damaged) = frames(&mut open(Codec::H264), &units);
    assert_eq!(damaged, 1, "the others decode or are passed over");
    let second_gop = seen[30].ticks;
    let resumed: Vec<i64> =
        frames.iter().map(|frame| frame.0).filter(|&ms| ms >= second_gop).collect();
    assert_eq!(resumed, ticks(&seen[30..]), "everything from the next clean start");
    assert!(frames.len() <= resumed.len() + 10, "nothing between the loss and the next start");
}

#[test]
fn a_unit_of_another_codec_is_our_own_bug_and_said_so() {
    let unit = AccessUnit {
        codec: Codec::Vp8,
        pts: Timestamp::from_millis(0),
        keyframe: true,
        data: vec![0x10],
    };
    let error = open(Codec::H264).push(&unit).expect_err("wrong codec");
    assert_eq!(error, DecodeError::WrongCodec { expected: Codec::H264, got: Codec::Vp8 });
}
