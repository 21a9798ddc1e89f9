//! Every container and codec: frames, times and pixels equal those of a sequential decode.

use std::{ops::ControlFlow, path::Path};

use clips::{pick_one, pick_with, rendered, rendered_from, sized};
use decode::{
    CodedPicture, DecodeError, DemuxLimits, FileOptions, FrameCollector, FrameSink, SinkStop,
};
use media::{Codec, Rotation, SampleFormat};

use crate::support::*;

const SOURCE: &str = "-f lavfi -i testsrc2=size=320x180:rate=30:duration=6 -pix_fmt yuv420p";
const X264: &str = "-c:v libx264 -preset veryfast -g 60 -keyint_min 60 -sc_threshold 0";
const X265: &str = "-c:v libx265 -preset ultrafast -x265-params log-level=none:keyint=40";
const VFR: &str = "-vf select='mod(n\\,7)+mod(n\\,3)',setpts=PTS+mod(N\\,5)*0.004/TB -vsync vfr";

/// Clips made for the tests: file name, ffmpeg arguments and codec.
fn recipes() -> Vec<(&'static str, String, Codec)> {
    let made = |name, rest: &str, codec| (name, format!("{SOURCE} {rest}"), codec);
    vec![
        made("h264.mp4", X264, Codec::H264),
        made("h264.ts", X264, Codec::H264),
        made("h264.mkv", X264, Codec::H264),
        made("h264.flv", X264, Codec::H264),
        made("h264.avi", &format!("{X264} -bf 0"), Codec::H264),
        made("h264.264", X264, Codec::H264),
        made("fragmented.mp4", &format!("{X264} -movflags frag_keyframe"), Codec::H264),
        made("open-gop.mp4", &format!("{X264} -x264-params open-gop=1:bframes=3"), Codec::H264),
        made("one-gop.mp4", "-c:v libx264 -preset ultrafast -bf 2 -g 9999", Codec::H264),
        made("all-intra.mp4", "-c:v libx264 -preset ultrafast -g 1 -t 2", Codec::H264),
        made("vfr.mp4", &format!("{VFR} {X264}"), Codec::H264),
        made("vfr.mkv", &format!("{VFR} {X264}"), Codec::H264),
        made("interlaced.ts", &format!("{X264} -flags +ilme+ildct -t 3"), Codec::H264),
        made("ten-bit.mkv", &format!("{X264} -pix_fmt yuv420p10le"), Codec::H264),
        made("yuv444.mp4", &format!("{X264} -pix_fmt yuv444p -qp 0 -t 2"), Codec::H264),
        made("hevc.mp4", &format!("{X265}:open-gop=0"), Codec::H265),
        made("hevc.ts", &format!("{X265}:open-gop=0"), Codec::H265),
        made("hevc.265", &format!("{X265}:open-gop=0"), Codec::H265),
        made("hevc-open-gop.mkv", &format!("{X265}:open-gop=1"), Codec::H265),
        made("hevc-ten-bit.mp4", &format!("{X265} -pix_fmt yuv420p10le -t 2"), Codec::H265),
        made("hevc-layers.mp4", &format!("{X265}:open-gop=0:temporal-layers=3"), Codec::H265),
        made("vp8.webm", "-c:v libvpx -deadline realtime -cpu-used 8 -g 40", Codec::Vp8),
        made(
            "vp8-hidden.mkv",
            "-c:v libvpx -cpu-used 8 -g 40 -auto-alt-ref 1 -lag-in-frames 12",
            Codec::Vp8,
        ),
        made("vp9.webm", "-c:v libvpx-vp9 -deadline realtime -cpu-used 8 -g 40", Codec::Vp9),
        made(
            "vp9-hidden.webm",
            "-c:v libvpx-vp9 -cpu-used 8 -g 40 -auto-alt-ref 1 -lag-in-frames 16 -t 3",
            Codec::Vp9,
        ),
        made("vp9.ivf", "-c:v libvpx-vp9 -deadline realtime -cpu-used 8 -g 40 -t 3", Codec::Vp9),
        made("av1.mp4", "-c:v libsvtav1 -preset 12 -g 40", Codec::Av1),
        made("av1.mkv", "-c:v libaom-av1 -cpu-used 8 -usage realtime -g 30 -t 3", Codec::Av1),
        made("mpeg4.avi", "-c:v mpeg4 -bf 2 -g 30", Codec::Mpeg4),
        made("mpeg4-in-order.avi", "-c:v mpeg4 -t 1", Codec::Mpeg4),
        made("mpeg4.mp4", "-c:v mpeg4 -g 30", Codec::Mpeg4),
        made("mjpeg.avi", "-c:v mjpeg -pix_fmt yuvj420p -t 2", Codec::Mjpeg),
        made("mjpeg.mov", "-c:v mjpeg -pix_fmt yuvj422p -t 2", Codec::Mjpeg),
    ]
}

pub fn made(names: &[&str], check: impl Fn(&Path, Codec)) {
    let wanted = |name: &str| names.is_empty() || names.contains(&name);
    let mut found = 0;
    for (name, line, codec) in recipes().into_iter().filter(|recipe| wanted(recipe.0)) {
        check(&rendered(name, &line), codec);
        found += 1;
    }
    assert!(found >= names.len(), "a name without a recipe among {names:?}");
}

/// Returns the times from ffprobe; a frame without one follows the previous one by one frame length.
fn expected_times(path: &Path, ours: &[i64], packets_max: Option<u32>) -> Vec<i64> {
    let step = ours.get(1).map_or(0, |second| second - ours[0]);
    let mut next = 0;
    let fill = |time: Option<i64>| {
        let time = time.unwrap_or(next);
        next = time + step;
        time
    };
    ffprobe_times(path, packets_max).into_iter().map(fill).collect()
}

#[test]
fn made_clips_decode_to_ffmpegs_frames_and_times() {
    made(&[], |path, codec| {
        assert_eq!(opened(path).stream().codec, codec, "{path:?}");
        let (report, seen) = decode(path, &every(3), true).expect("decodes");
        assert_eq!(ticks(&seen), expected_times(path, &ticks(&seen), None), "{path:?}");
        assert!(digests(&seen) == ffmpeg_digests(path), "pixels differ: {path:?}");
        let quality = (report.truncated, report.damaged_packets, report.source_frames);
        assert_eq!(quality, (false, 0, seen.len() as u64), "{path:?}");
        let (alone, sequential) = decode(path, &every(1), true).expect("decodes");
        assert!(alone == report && sequential == seen, "threads change the result: {path:?}");
    });
}

#[test]
fn a_hurry_brings_the_first_frames_early_and_changes_none() {
    let names =
        ["h264.mp4", "one-gop.mp4", "open-gop.mp4", "vfr.mkv", "hevc.mp4", "vp9-hidden.webm"];
    made(&names, |path, _| {
        for threads in [1, 3] {
            let whole = decode(path, &every(threads), true).expect("decodes");
            let (report, outputs) = decode_in_hurry(path, &every(threads));
            let longest = outputs.iter().map(Vec::len).max().unwrap_or(0);
            assert!(longest <= 64, "{path:?}: {longest} frames at once");
            assert!((report, outputs.concat()) == whole, "{path:?} on {threads} threads");
        }
    });
}

#[test]
fn the_plan_changes_no_sample() {
    let names = [
        "h264.mp4",
        "h264.264",
        "open-gop.mp4",
        "one-gop.mp4",
        "vfr.mp4",
        "vfr.mkv",
        "interlaced.ts",
        "hevc.mp4",
        "hevc-open-gop.mkv",
        "hevc-layers.mp4",
        "vp8-hidden.mkv",
        "vp9.webm",
        "vp9-hidden.webm",
        "av1.mp4",
        "mpeg4.avi",
    ];
    made(&names, |path, _| {
        for fps in [1.0, 2.0, 7.3] {
            let planned = decode(path, &fixed(fps, true), true).expect("decodes");
            let full = decode(path, &fixed(fps, false), true).expect("decodes");
            assert!(planned.1 == full.1, "{path:?} at {fps}");
            assert!(planned.1.len() >= 2, "{path:?} at {fps}: {}", planned.1.len());
        }
    });
}

#[test]
fn real_clips_decode_to_ffprobes_frames_and_times() {
    /// Clips too long to decode completely even in a long test.
    const LONG: [&str; 4] =
        ["long.mp4", "phone_adx-1080p-av1.mp4", "screen.mp4", "screen_elm-sourcemaps.mp4"];
    const AUDIO: [&str; 2] = ["audio.mp4", "x_bbb-audio.mp4"];
    let clips = clips::all();
    assert!(clips.len() >= 20, "only {} clips", clips.len());
    for path in clips {
        if AUDIO.iter().any(|name| path.ends_with(name)) {
            continue;
        }
        let frames = sized(first_pictures(&path), 300);
        let is_whole = sized(false, !LONG.iter().any(|name| path.ends_with(name)));
        let max = (!is_whole).then_some(frames);
        let options = FileOptions { max_frames: max.map_or(u64::MAX, u64::from), ..every(2) };
        let (report, seen) = decode(&path, &options, false).expect("decodes");
        // A few packets more than frames, because hidden and discarded ones give none.
        let mut expected = expected_times(&path, &ticks(&seen), max.map(|frames| frames + 32));
        expected.truncate(max.map_or(usize::MAX, |frames| frames as usize));
        assert!(ticks(&seen) == expected, "{path:?}: {} and {}", seen.len(), expected.len());
        assert_eq!((report.truncated, report.damaged_packets), (false, 0), "{path:?}");
    }
}

#[test]
fn rotation_edit_lists_and_ten_bits_are_understood() {
    let rotated = opened(&pick_one("rotated.mp4", "anim_mb-rotate-bbb.mp4"));
    assert_eq!(rotated.stream().rotation, Rotation::Quarter);
    // Numbers of frames without and with the edit list.
    let clips = pick_with(&[("edit-list.mp4", (60, 50))], &[("phone_adx-edit-list.mp4", (86, 77))]);
    for (path, (declared, shown)) in clips {
        let ten_bit = opened(&path).stream().clone();
        assert_eq!(
            ten_bit.layout.map(|layout| layout.sample),
            Some(SampleFormat::U16 { shift: 2 })
        );
        assert_eq!(ten_bit.declared_frames, Some(declared), "before the edit list");
        let (_, seen) = decode(&path, &every(2), false).expect("decodes");
        assert_eq!(seen.len(), shown, "after the edit list");
    }
}

#[test]
fn the_rotation_makes_pictures_as_upright_as_ffmpeg_does() {
    let plain = rendered("plain.mp4", &format!("{SOURCE} {X264} -frames:v 1"));
    let mut found = Vec::new();
    for degrees in [0, 90, 180, 270] {
        let turn = format!("-i {{0}} -c copy -metadata:s:v rotate={degrees}");
        let clip = rendered_from("turned.mp4", &turn, &[&plain]);
        let rotation = opened(&clip).stream().rotation;
        let filter = match rotation {
            Rotation::None => "null",
            Rotation::Quarter => "transpose=clock",
            Rotation::Half => "hflip,vflip",
            Rotation::ThreeQuarters => "transpose=cclock",
        };
        let by_us = format!("-noautorotate -i {{0}} -vf {filter} -f rawvideo");
        let [ours, theirs] = [by_us.as_str(), "-i {0} -f rawvideo"]
            .map(|line| std::fs::read(rendered_from("upright.raw", line, &[&clip])).expect("made"));
        assert!(ours == theirs, "{degrees}: {rotation:?}");
        found.push(rotation);
    }
    found.sort_by_key(|rotation| rotation.degrees());
    let all = [Rotation::None, Rotation::Quarter, Rotation::Half, Rotation::ThreeQuarters];
    assert_eq!(found, all);
}

#[test]
fn the_picture_size_may_change_in_the_middle() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    for (codec, line) in [("264", X264), ("265", X265)] {
        let sizes = ["320x180", "640x360", "160x90"];
        let mut joined = Vec::new();
        for size in sizes {
            let line = format!("-f lavfi -i testsrc2=size={size}:rate=30:duration=2 {line}");
            let part = rendered(&format!("{size}.{codec}"), &line);
            joined.extend(std::fs::read(&part).expect("made"));
        }
        let whole = dir.path().join(format!("whole.{codec}"));
        std::fs::write(&whole, joined).expect("written");
        for threads in [1, 3] {
            let (report, seen) = decode(&whole, &every(threads), false).expect("decodes");
            let widths: Vec<u32> = seen.iter().map(|frame| frame.extent.width).collect();
            let runs: Vec<(u32, usize)> =
                widths.chunk_by(|a, b| a == b).map(|run| (run[0], run.len())).collect();
            assert_eq!(runs, [(320, 60), (640, 60), (160, 60)], "{codec} on {threads}");
            assert_eq!(report.first_extent.map(|extent| extent.width), Some(320));
            let limits = DemuxLimits { side_px: 400, ..DemuxLimits::default() };
            let error = decode_within(&whole, limits, &every(threads)).expect_err("too large");
            let too_large = DecodeError::PictureTooLarge { width: 640, height: 368, max: 400 };
            assert_eq!(error, too_large, "{codec} on {threads}");
        }
    }
}

/// Returns the pictures of an H.264 file in Matroska blocks of two, of which the second has no time.
fn without_half_of_its_times(path: &Path) -> Vec<u8> {
    let element = |id: u32, content: Vec<u8>| -> Vec<u8> {
        let (id, len) = (id.to_be_bytes(), content.len() as u64 | (1 << 56));
        let zeros = id.iter().take_while(|&&byte| byte == 0).count();
        [&id[zeros..], &len.to_be_bytes(), &content].concat()
    };
    let pictures: Vec<CodedPicture> = opened(path).into_coded_pictures().collect();
    let block = |pair: &[CodedPicture]| {
        let [first, second] = [0, 1].map(|at| &pair[at].access_unit);
        let ms = i16::try_from(first.pts.as_millis()).expect("a short clip").to_be_bytes();
        // The length of the first is a sum of bytes, the last of which is below 255.
        let mut len = vec![255; first.data.len() / 255];
        len.push((first.data.len() % 255) as u8);
        let head = [0x81, ms[0], ms[1], 0x82, 1];
        element(0xa3, [&head[..], &len, &first.data, &second.data].concat())
    };
    let blocks: Vec<u8> = pictures.chunks_exact(2).flat_map(block).collect();
    let size = [element(0xb0, vec![160]), element(0xba, vec![120])].concat();
    let codec = element(0x86, b"V_MPEG4/ISO/AVC".to_vec());
    let numbers = [0xd7, 0x73c5, 0x83].map(|id| element(id, vec![1])).concat();
    let tracks = element(0xae, [numbers, codec, element(0xe0, size)].concat());
    let segment = [
        element(0x1549_a966, element(0x002a_d7b1, vec![0x0f, 0x42, 0x40])),
        element(0x1654_ae6b, tracks),
        element(0x1f43_b675, [element(0xe7, vec![0]), blocks].concat()),
    ];
    let header = element(0x1a45_dfa3, element(0x4282, b"matroska".to_vec()));
    [header, element(0x1853_8067, segment.concat())].concat()
}

#[test]
fn times_that_a_container_lacks_are_made_up_and_never_go_back() {
    let line = "-f lavfi -i testsrc2=s=160x120:r=25:d=8 -c:v libx264 -bf 2 -b_strategy 0 -g 24";
    let bytes = without_half_of_its_times(&rendered("half-timed.mp4", line));
    let alone = decode_bytes(bytes.clone(), &every(1)).expect("decodes");
    let times = ticks(&alone.1);
    assert!(times.len() > 190 && times.is_sorted(), "{times:?}");
    for threads in [2, 4] {
        let found = decode_bytes(bytes.clone(), &every(threads)).expect("decodes");
        assert!(found == alone, "{threads} threads change the result");
    }
}

#[test]
fn max_frames_stops_early_and_is_no_truncation() {
    made(&["h264.mp4", "one-gop.mp4", "mpeg4.avi"], |path, _| {
        for max_frames in [1, 61, 100] {
            let options = FileOptions { max_frames, ..every(2) };
            let (report, seen) = decode(path, &options, false).expect("decodes");
            assert_eq!((seen.len() as u64, report.truncated), (max_frames, false), "{path:?}");
            assert_eq!(report.source_frames, max_frames, "{path:?}");
        }
    });
}

/// Makes a sink that ends at the frame with this index.
fn until(last: u64) -> impl FrameSink<Output = Vec<()>> {
    FrameCollector::new(move |index, _| if index == last { Err(SinkStop::Ended) } else { Ok(()) })
}

#[test]
fn sinks_and_receivers_can_end_the_work() {
    made(&["h264.mp4", "one-gop.mp4"], |path, _| {
        let go_on = |_| ControlFlow::Continue(());
        let report = decode_file(opened(path), &every(2), || until(70), go_on).expect("ends");
        assert!(report.frames <= 70 && !report.truncated, "{path:?}: {report:?}");
        let mut delivered = 0;
        let stop = |_| {
            delivered += 1;
            ControlFlow::Break(())
        };
        decode_file(opened(path), &every(2), || until(u64::MAX), stop).expect("ends");
        assert_eq!(delivered, 1, "{path:?}");
    });
}

#[test]
fn a_receiver_that_panics_does_not_hang() {
    made(&["h264.mp4", "one-gop.mp4"], |path, _| {
        let work =
            || decode_file(opened(path), &every(2), || until(u64::MAX), |_| panic!("as meant"));
        let caught = std::panic::catch_unwind(work);
        assert!(caught.is_err(), "{path:?}: the panic reaches the caller");
    });
}
