//! Raw 4:2:0 video by FFmpeg, picture by picture.

use std::{
    ffi::OsStr,
    io::Read,
    process::{Command, Stdio},
    sync::Arc,
};

use media::{
    Dimensions, Frame, HostFrameBuffer, PixelLayout, Pixels, Plane, SampleFormat, SampleRange,
    Subsampling, Timestamp,
};

struct Raw {
    bytes: Vec<u8>,
    extent: Dimensions,
    chroma: Dimensions,
    layout: PixelLayout,
}

impl Raw {
    fn plane(&self, start: u64, extent: Dimensions, step: usize) -> Plane<'_> {
        let bytes = self.layout.sample.bytes();
        let stride = extent.width as usize * step * bytes;
        let data = &self.bytes[start as usize * bytes..];
        Plane::new(data, stride, extent, self.layout.sample, step).expect("whole")
    }
}

impl HostFrameBuffer for Raw {
    fn luma(&self) -> Plane<'_> {
        self.plane(0, self.extent, 1)
    }

    fn chroma(&self) -> Option<[Plane<'_>; 2]> {
        let start = self.extent.area();
        let (step, next) =
            if self.layout.interleaved_chroma { (2, 1) } else { (1, self.chroma.area()) };
        Some([start, start + next].map(|start| self.plane(start, self.chroma, step)))
    }
}

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

/// Returns the frame of these samples.
pub fn frame_of(
    bytes: Vec<u8>,
    extent: Dimensions,
    layout: PixelLayout,
    source_index: u64,
) -> Frame {
    let chroma = layout.subsampling.chroma_extent(extent).expect("colours");
    let pixels = Pixels::Host(Arc::new(Raw { bytes, extent, chroma, layout }));
    Frame { pts: Timestamp::from_millis(0), source_index, extent, layout, pixels }
}
