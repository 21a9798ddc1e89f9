//! Raw 4:2:0 video from a reader, frame by frame.

use std::{io::Read, sync::Arc};

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

/// Reads the samples of the next picture of `extent`; `None` at the end.
pub fn read_picture(
    source: &mut impl Read,
    extent: Dimensions,
    layout: PixelLayout,
) -> Option<Vec<u8>> {
    let chroma = layout.subsampling.chroma_extent(extent)?;
    let samples = extent.area() + 2 * chroma.area();
    let mut bytes = vec![0; samples as usize * layout.sample.bytes()];
    source.read_exact(&mut bytes).ok()?;
    Some(bytes)
}

/// Returns the frame of these samples.
pub fn frame_of(
    bytes: Vec<u8>,
    extent: Dimensions,
    layout: PixelLayout,
    source_index: u64,
) -> Option<Frame> {
    let chroma = layout.subsampling.chroma_extent(extent)?;
    let pixels = Pixels::Host(Arc::new(Raw { bytes, extent, chroma, layout }));
    Some(Frame { pts: Timestamp::from_millis(0), source_index, extent, layout, pixels })
}

/// Reads the next frame of `extent`; `None` at the end.
pub fn read_frame(
    source: &mut impl Read,
    extent: Dimensions,
    layout: PixelLayout,
    source_index: u64,
) -> Option<Frame> {
    frame_of(read_picture(source, extent, layout)?, extent, layout, source_index)
}
