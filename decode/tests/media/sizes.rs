//! Pictures with too many bytes but allowed sides and pixels: refused at the first one.

use std::path::{Path, PathBuf};

use clips::rendered;
use decode::{DecodeError, DecoderChain, DemuxLimits, LiveDecoder};
use media::AccessUnit;

use crate::{
    live::{frames, poll_all},
    support::*,
};

const WIDTH: u32 = 320;
const HEIGHT: u32 = 192;
const AREA_PX: u64 = WIDTH as u64 * HEIGHT as u64;

/// Limits that ten-bit 4:2:0 meets and ten-bit 4:4:4 exceeds.
fn limits() -> DemuxLimits {
    DemuxLimits { picture_bytes: 3 * AREA_PX, ..DemuxLimits::default() }
}

/// Encoders, with reordered pictures if the codec has them.
const ENCODERS: [&str; 4] = [
    "libx264 -preset ultrafast -bf 3",
    "libx265 -preset ultrafast -x265-params log-level=none:bframes=3",
    "libvpx-vp9 -deadline realtime -cpu-used 8",
    "libaom-av1 -usage realtime -cpu-used 8",
];

fn clip(encoder: &str, format: &str) -> PathBuf {
    let source = format!("-f lavfi -i testsrc2=size={WIDTH}x{HEIGHT}:rate=25:duration=0.4");
    rendered("clip.mkv", &format!("{source} -pix_fmt {format} -c:v {encoder}"))
}

fn units(path: &Path) -> Vec<AccessUnit> {
    opened(path).into_coded_pictures().map(|picture| picture.access_unit).collect()
}

fn too_many_bytes() -> DecodeError {
    let (bytes, max) = (6 * AREA_PX, 3 * AREA_PX);
    DecodeError::TooManyBytes { width: WIDTH, height: HEIGHT, bytes, max }
}

#[test]
fn a_picture_of_too_many_bytes_is_refused_with_the_first_unit_and_one_of_fewer_is_taken() {
    for encoder in ENCODERS {
        let path = clip(encoder, "yuv444p10le");
        let large = units(&path);
        let chain = DecoderChain::software();
        let mut decoder = LiveDecoder::open(&chain, large[0].codec, limits()).expect("opens");
        assert_eq!(decoder.push(&large[0]), Err(too_many_bytes()), "{encoder}");
        assert_eq!(poll_all(&mut decoder), [], "{encoder}");
        let (report, seen) = decode(&path, &every(2), false).expect("files may have them");
        assert_eq!((report.frames, seen.len()), (10, 10), "{encoder}");
        for threads in [1, 3] {
            let error = decode_within(&path, limits(), &every(threads)).expect_err("too large");
            assert_eq!(error, too_many_bytes(), "{encoder} on {threads}");
        }
        let small = units(&clip(encoder, "yuv420p10le"));
        let mut decoder = LiveDecoder::open(&chain, small[0].codec, limits()).expect("opens");
        let (frames, damaged) = frames(&mut decoder, &small);
        assert_eq!((frames.len(), damaged), (10, 0), "{encoder} of fewer colours");
    }
}
