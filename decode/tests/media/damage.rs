//! Inputs that are no video, cut short or damaged: each ends in a report or in the matching error.

use std::{io::Cursor, panic::catch_unwind};

use clips::{in_turn, pick_with, rendered, sized};
use decode::{DecodeError, DemuxLimits, Demuxer, FileOptions};
use fastrand::Rng;
use media::ErrorKind;

use crate::{
    damaged::{MUTANTS, Mutants},
    support::*,
};

fn open_error(bytes: impl Into<Vec<u8>>, limits: DemuxLimits) -> DecodeError {
    match Demuxer::open(Box::new(Cursor::new(bytes.into())), limits) {
        Err(error) => error,
        Ok(demuxer) => panic!("opened as {}", demuxer.stream().container),
    }
}

#[test]
fn what_is_no_video_is_refused_by_name() {
    let open = |bytes: &[u8]| open_error(bytes, DemuxLimits::default());
    assert_eq!(open(b""), DecodeError::Empty);
    let playlists: [&[u8]; 4] = [
        b"#EXTM3U\n#EXT-X-VERSION:3\n#EXT-X-TARGETDURATION:9\n#EXTINF:9,\n/etc/passwd\n",
        b"#EXTM3U\n/etc/passwd\n",
        b"ffconcat version 1.0\nfile /etc/passwd\n",
        b"<?xml version=\"1.0\"?><MPD profiles=\"urn:mpeg:dash:profile:isoff-live:2011\" \
          xmlns=\"urn:mpeg:dash:schema:mpd:2011\"></MPD>",
    ];
    for playlist in playlists {
        let error = open(playlist);
        assert!(matches!(error, DecodeError::NestedResource(_)), "{error:?}");
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
    }
    let text = open(b"just some words, nothing to see here\n");
    assert!(matches!(text, DecodeError::UnsupportedContainer(_)), "{text:?}");
    let mut no_moov = b"\0\0\0\x18ftypisom\0\0\0\0isommp42\0\0\x10\0mdat".to_vec();
    no_moov.resize(4096, 7);
    let error = open(&no_moov);
    assert!(matches!(error, DecodeError::DamagedHeader { .. }), "{error:?}");
}

#[test]
fn streams_that_cannot_be_served_are_told_apart() {
    let made = |name: &str, line: &str| std::fs::read(rendered(name, line)).expect("made");
    let picture = "-f lavfi -i testsrc2=size=64x48:rate=5:duration=1";
    let sound = "-f lavfi -i sine=duration=1";
    let limits = DemuxLimits::default();
    let audio = made("audio.mp4", &format!("{sound} -c:a aac"));
    assert_eq!(open_error(audio, limits), DecodeError::NoVideoStream(1));
    let mp3 = made("audio.mp3", &format!("{sound} -c:a libmp3lame"));
    let refused = DecodeError::UnsupportedContainer(Some("mp3".to_owned()));
    assert_eq!(open_error(mp3, limits), refused);
    let other = made("other.mkv", &format!("{picture} -c:v mpeg2video"));
    let refused = DecodeError::UnsupportedCodec("mpeg2video".to_owned());
    assert_eq!(open_error(other, limits), refused);
    let small = made("small.mp4", &format!("{picture} -c:v libx264"));
    let too_large = DecodeError::PictureTooLarge { width: 64, height: 48, max: 32 };
    assert_eq!(open_error(small, DemuxLimits { side_px: 32, ..limits }), too_large);
    let many = format!("{picture} -c:v libx264 {}", "-map 0 ".repeat(3));
    let too_many = DecodeError::TooManyStreams { count: 3, max: 2 };
    assert_eq!(open_error(made("many.mkv", &many), DemuxLimits { streams: 2, ..limits }), too_many);
    let rgb = made("rgb.mkv", &format!("{picture} -c:v libx264rgb -pix_fmt rgb24"));
    let error = decode_bytes(rgb, &every(2)).expect_err("RGB");
    assert_eq!(error, DecodeError::UnsupportedPixelFormat("gbrp".to_owned()));
}

const CLIPS: [(&str, &str); 9] = [
    ("h264.mp4", "-c:v libx264 -preset veryfast -g 30 -movflags +faststart"),
    ("h264.mkv", "-c:v libx264 -preset veryfast -g 30"),
    ("h264.ts", "-c:v libx264 -preset veryfast -g 30"),
    ("h264.flv", "-c:v libx264 -preset veryfast -g 30"),
    ("hevc.mp4", "-c:v libx265 -preset ultrafast -x265-params log-level=none:keyint=30"),
    ("vp8.webm", "-c:v libvpx -deadline realtime -cpu-used 8 -g 30"),
    ("vp9.webm", "-c:v libvpx-vp9 -deadline realtime -cpu-used 8 -g 30"),
    ("av1.mkv", "-c:v libsvtav1 -preset 12 -g 30"),
    ("mpeg4.avi", "-c:v mpeg4 -g 30"),
];

#[test]
fn a_file_cut_short_is_reported_or_refused() {
    for (name, line) in CLIPS {
        let source = "-f lavfi -i testsrc2=size=160x120:rate=30:duration=4 -pix_fmt yuv420p";
        let whole = std::fs::read(rendered(name, &format!("{source} {line}"))).expect("made");
        assert!(decode_bytes(whole.clone(), &every(1)).is_ok(), "{name}, undamaged");
        for percent in [1, 10, 40, 70, 95] {
            let bytes = whole[..whole.len() * percent / 100].to_vec();
            let result = decode_bytes(bytes, &every(2));
            let Ok((report, seen)) = result else { continue };
            assert!(seen.len() < 120, "{name} cut at {percent} %");
            // Transport streams declare no length: a cut at a packet boundary leaves a whole file.
            if !name.ends_with(".ts") && percent <= 70 {
                assert!(report.truncated, "{name} cut at {percent} %: {report:?}");
            }
        }
    }
}

#[test]
fn frames_before_a_cut_are_kept_on_any_number_of_threads() {
    // Kilobytes of the file from which on it contains a picture.
    let clips = pick_with(
        &[("index-first-talk.mp4", 0), ("index-first-film.mp4", 0)],
        &[("talk_friday.mp4", 0), ("surv_car-detection.mp4", 60)],
    );
    for (path, first_kb) in clips {
        let clip = path.display();
        let whole = std::fs::read(&path).expect("reads");
        for kb in [20, 40, 60, 100, 150, 300] {
            let cut = |threads| decode_bytes(whole[..kb * 1000].to_vec(), &every(threads));
            let alone = cut(1);
            if let Ok((report, seen)) = &alone {
                assert!(report.truncated && !seen.is_empty(), "{clip} {kb} kB: {report:?}");
            } else {
                assert!(kb < first_kb, "{clip} {kb} kB: no picture");
            }
            for threads in [2, 4, 16] {
                assert!(cut(threads) == alone, "{clip} cut at {kb} kB on {threads}");
            }
        }
    }
}

/// Flips `count` bits of `bytes` after the headers; the same bits for the same seed.
pub fn with_flipped_bits(bytes: &[u8], count: usize, seed: u64) -> Vec<u8> {
    let mut random = Rng::with_seed(seed);
    let mut damaged = bytes.to_vec();
    let header = bytes.len() / 10;
    for _ in 0..count {
        let at = random.usize(header..bytes.len());
        damaged[at] ^= 1 << random.u8(..8);
    }
    damaged
}

#[test]
fn damage_decodes_to_the_same_frames_on_any_thread_count() {
    let x264 = "-c:v libx264 -preset veryfast -bf 2 -movflags +faststart";
    let x265 = "-c:v libx265 -preset ultrafast";
    let lines = [
        ("gops.mp4", format!("{x264} -g 50")),
        ("one-gop.mp4", format!("{x264} -g 9999")),
        ("open-gop.mp4", format!("{x264} -g 50 -x264-params open-gop=1")),
        ("gops.ts", format!("{x264} -g 50")),
        ("gops.265", format!("{x265} -x265-params log-level=none:keyint=50:open-gop=0")),
        ("one-gop.265", format!("{x265} -x265-params log-level=none:keyint=9999")),
        ("vp8.webm", "-c:v libvpx -deadline realtime -cpu-used 8 -g 50".to_owned()),
        ("vp9.webm", "-c:v libvpx-vp9 -deadline realtime -cpu-used 8 -g 9999".to_owned()),
        ("av1.mkv", "-c:v libsvtav1 -preset 12 -g 50".to_owned()),
        ("mpeg4.avi", "-c:v mpeg4 -g 50".to_owned()),
        ("mjpeg.avi", "-c:v mjpeg -pix_fmt yuvj420p".to_owned()),
    ];
    for (row, (name, line)) in lines.into_iter().enumerate() {
        let source = "-f lavfi -i testsrc2=size=192x108:rate=25:duration=10 -pix_fmt yuv420p";
        let path = rendered(name, &format!("{source} {line}"));
        let whole = std::fs::read(&path).expect("made");
        for (seed, count) in (1..).zip([1, 4, 20, 60]) {
            let bytes = with_flipped_bits(&whole, count, seed);
            let alone = decode_bytes(bytes.clone(), &every(1));
            for &threads in in_turn(row + seed as usize, 1, &[1, 2, 5].repeat(3)) {
                let result = decode_bytes(bytes.clone(), &every(threads));
                assert!(result == alone, "{name} seed {seed} on {threads}");
            }
        }
    }
}

/// A slice that ends early leaves part of its picture undecoded, unreported by libav: some of these flips
/// cause that, and the undecoded part differs between thread counts.
#[test]
fn parts_that_are_missing_without_a_word_are_the_same_on_any_thread_count() {
    let mut silent = 0;
    for format in ["yuv420p", "yuv420p10le"] {
        let source = "-f lavfi -i testsrc2=size=192x108:rate=25:duration=6";
        let coding = "-c:v libx265 -preset ultrafast -x265-params log-level=none:keyint=9999";
        let line = format!("{source} -pix_fmt {format} {coding}");
        let whole = std::fs::read(rendered(&format!("{format}.mkv"), &line)).expect("made");
        let complete = decode_bytes(whole.clone(), &every(3)).expect("decodes");
        assert!(complete.0.damaged_packets == 0 && complete.1.len() == 150, "{format}");
        for seed in 1..=sized(24, 60) {
            let bytes = with_flipped_bits(&whole, 1, seed);
            let alone = decode_bytes(bytes.clone(), &every(1));
            assert!(decode_bytes(bytes, &every(3)) == alone, "{format}, seed {seed}");
            let is_silent = alone.is_ok_and(|(report, _)| report.damaged_packets == 0);
            silent += usize::from(is_silent);
        }
    }
    println!("libav is silent about {silent} flips");
}

/// The mutants of the worker's tests, here within reach of a libav that is checked: `deploy/run-tests.sh`.
#[test]
fn mutants_end_in_a_report_or_an_error() {
    let mutants = Mutants::new(1);
    let mut ends = [0, 0];
    for number in 0..sized(MUTANTS / 4, MUTANTS) {
        let (name, bytes) = mutants.get(number);
        let name = format!("mutant {number} of {name}");
        let options =
            if number % 4 == 0 { fixed(3.0, true) } else { every(1 + number as usize % 3) };
        let options = FileOptions { max_frames: 40, ..options };
        let result = catch_unwind(|| decode_bytes(bytes, &options)).expect(&name);
        if let Ok((report, seen)) = &result {
            assert!(seen.iter().all(|frame| frame.source_index < report.source_frames), "{name}");
        }
        ends[usize::from(result.is_err())] += 1;
    }
    println!("{} mutants have a report, {} an error", ends[0], ends[1]);
    assert!(ends.iter().all(|count| *count > 10), "{ends:?}");
}
