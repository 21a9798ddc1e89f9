//! Raw 4:2:0 video by FFmpeg, picture by picture.

use std::{
    ffi::OsStr,
    io::Read,
    process::{Command, Stdio},
};

use media::{Dimensions, PixelLayout, SampleFormat, SampleRange, Subsampling};

/// Eight-bit planar 4:2:0, FFmpeg's `yuv420p`.
pub const PLANAR: PixelLayout = PixelLayout {
    subsampling: Subsampling::Yuv420,
    sample: SampleFormat::U8,
    interleaved_chroma: false,
    range: SampleRange::Limited,
};

/// Returns the pictures that FFmpeg makes for these arguments; `storage` is its name of the layout.
pub fn rendered(
    arguments: impl IntoIterator<Item = impl AsRef<OsStr>>,
    (storage, layout): (&str, PixelLayout),
    extent: Dimensions,
) -> impl Iterator<Item = Vec<u8>> {
    let chroma = layout.subsampling.chroma_extent(extent).expect("colours");
    let samples = extent.area() + 2 * chroma.area();
    let mut ffmpeg = Command::new("ffmpeg");
    ffmpeg.args(["-v", "error", "-nostdin"]).args(arguments);
    ffmpeg.args(["-fps_mode", "passthrough", "-f", "rawvideo", "-pix_fmt", storage, "-"]);
    let mut running = ffmpeg.stdout(Stdio::piped()).spawn().expect("ffmpeg starts");
    let mut source = running.stdout.take().expect("piped");
    std::iter::from_fn(move || {
        let mut bytes = vec![0; samples as usize * layout.sample.bytes()];
        let is_whole = source.read_exact(&mut bytes).is_ok();
        assert!(is_whole || running.wait().expect("it ends").success(), "{ffmpeg:?} failed");
        is_whole.then_some(bytes)
    })
}
