//! Pictures in dma-bufs: which are imported, and where their samples go in a buffer of the device.
//!
//! Rows start where WebGPU wants those of a copy from a texture, so a picture takes more room than a packed one.

use gate::{
    MAX_SIDE,
    device::{SURFACES, Surface},
};
use media::{DeviceMemory, DmaBufPlane, Extent, Frame, Pixels, Sample, Subsampling};

/// One plane of a picture in a dma-buf.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PlaneThere<'a> {
    pub plane: DmaBufPlane<'a>,
    pub extent: Extent,
    pub sample: Sample,
    /// Each texel is U and V side by side.
    pub pair: bool,
}

impl PlaneThere<'_> {
    /// Bytes of a row of samples.
    fn row_bytes(&self) -> u64 {
        u64::from(self.extent.width) * self.sample.bytes() as u64 * if self.pair { 2 } else { 1 }
    }

    /// Bytes between the rows of the copy.
    pub fn stride(&self) -> u32 {
        self.row_bytes().next_multiple_of(wgpu::COPY_BYTES_PER_ROW_ALIGNMENT.into()) as u32
    }

    /// Bytes of the copy.
    fn bytes(&self) -> u64 {
        u64::from(self.stride()) * u64::from(self.extent.height)
    }

    /// A texel is a sample, or two.
    pub fn format(&self) -> wgpu::TextureFormat {
        use wgpu::TextureFormat as Format;
        match (self.sample, self.pair) {
            (Sample::U8, false) => Format::R8Uint,
            (Sample::U8, true) => Format::Rg8Uint,
            (Sample::U16 { .. }, false) => Format::R16Uint,
            (Sample::U16 { .. }, true) => Format::Rg16Uint,
        }
    }

    /// The copy, that starts at `address`.
    fn surface(&self, address: u64) -> Surface {
        let size = (self.extent.width, self.extent.height);
        Surface::new(address, self.stride(), size, self.sample, self.pair)
    }
}

/// Luma and chroma of a frame in dma-bufs; `None` for one that is not there or that the shader does not read:
/// that is uploaded. Textures have sides of at most `side_max`.
pub(crate) fn planes(frame: &Frame, side_max: u32) -> Option<[PlaneThere<'_>; 2]> {
    let Pixels::Device(picture) = &frame.pixels else { return None };
    let DeviceMemory::DmaBuf([luma, chroma]) = picture.memory() else { return None };
    let (extent, layout) = (frame.extent, frame.layout);
    let halved = Subsampling::Yuv420.chroma_extent(extent)?;
    let sample = layout.sample;
    let planes = [
        PlaneThere { plane: luma, extent, sample, pair: false },
        PlaneThere { plane: chroma, extent: halved, sample, pair: true },
    ];
    let is_readable = layout.subsampling == Subsampling::Yuv420
        && layout.interleaved_chroma
        && !matches!(sample, Sample::U16 { shift: 9.. })
        && extent.width.max(extent.height) <= MAX_SIDE.min(side_max)
        && planes.iter().all(|there| there.plane.pitch() >= there.row_bytes());
    is_readable.then_some(planes)
}

/// Bytes of the copies of a picture's planes, one behind the other.
pub(crate) fn copied_bytes(planes: &[PlaneThere<'_>; 2]) -> u64 {
    planes.iter().map(PlaneThere::bytes).sum()
}

/// The copies of a picture's planes that start at `base`.
pub(crate) fn surfaces([luma, chroma]: &[PlaneThere<'_>; 2], base: u64) -> [Surface; SURFACES] {
    [luma.surface(base), chroma.surface(base + luma.bytes()), Surface::default()]
}

#[cfg(test)]
mod tests {
    use std::{fs::File, os::fd::AsFd, sync::Arc};

    use gate::conformance::Picture;
    use media::{DevicePicture, HostPicture, PixelLayout, PixelsLost};

    use super::*;

    struct Nowhere {
        file: File,
        pitches: [u64; 2],
    }

    impl DevicePicture for Nowhere {
        #[expect(unsafe_code, reason = "names planes that nothing reads")]
        fn memory(&self) -> DeviceMemory<'_> {
            DeviceMemory::DmaBuf(self.pitches.map(|pitch| {
                // SAFETY: no device is given it.
                unsafe { DmaBufPlane::new(self.file.as_fd(), 0, 0, pitch) }
            }))
        }

        fn host(&self) -> Result<&dyn HostPicture, PixelsLost> {
            unreachable!("nothing is read")
        }

        fn fetched(&self) -> Result<Arc<dyn HostPicture>, PixelsLost> {
            unreachable!("nothing is kept")
        }
    }

    /// An eight-bit picture whose planes have these pitches.
    fn there((width, height): (u32, u32), pitches: [u64; 2]) -> Frame {
        let frame = Picture { interleaved: true, ..Picture::new(8, 8) }.frame().expect("small");
        let file = File::open("/dev/null").expect("is there");
        let pixels = Pixels::Device(Arc::new(Nowhere { file, pitches }));
        Frame { extent: Extent { width, height }, pixels, ..frame }
    }

    #[test]
    fn only_what_the_shader_reads_is_imported() {
        let p010 = Sample::U16 { shift: 8 };
        let cases = [
            ("NV12", (1920, 1080), Sample::U8, [2048; 2], true),
            ("P010", (1920, 1080), p010, [4096; 2], true),
            ("odd width, chroma to its end", (1919, 1079), Sample::U8, [1919, 1920], true),
            ("odd width, chroma past its pitch", (1919, 1079), Sample::U8, [1920, 1919], false),
            ("pitch below the width", (1920, 1080), p010, [3838, 4096], false),
            ("as wide as textures", (4096, 64), Sample::U8, [4096; 2], true),
            ("wider than textures", (4097, 64), Sample::U8, [8192; 2], false),
            ("no such samples", (64, 64), Sample::U16 { shift: 9 }, [256; 2], false),
        ];
        for (name, size, sample, pitches, taken) in cases {
            let mut frame = there(size, pitches);
            frame.layout.sample = sample;
            assert_eq!(planes(&frame, 4096).is_some(), taken, "{name}");
        }
        let vast = there((MAX_SIDE + 1, 64), [1 << 20; 2]);
        assert!(planes(&vast, u32::MAX).is_none(), "wider than the gate measures");
    }

    #[test]
    fn a_picture_that_is_not_semi_planar_is_uploaded() {
        let mut frame = there((64, 48), [64; 2]);
        let whole = frame.layout;
        for (name, layout, taken) in [
            ("as it is", whole, true),
            ("planes apart", PixelLayout { interleaved_chroma: false, ..whole }, false),
            ("all colours", PixelLayout { subsampling: Subsampling::Yuv444, ..whole }, false),
            ("no colours", PixelLayout { subsampling: Subsampling::Gray, ..whole }, false),
        ] {
            frame.layout = layout;
            assert_eq!(planes(&frame, 4096).is_some(), taken, "{name}");
        }
    }

    #[test]
    fn copies_lie_behind_each_other_in_rows_that_are_aligned() {
        let frame = there((257, 3), [512; 2]);
        let planes = planes(&frame, 4096).expect("readable");
        let [luma, chroma, none] = surfaces(&planes, 1024);
        assert_eq!((luma.address, luma.stride, luma.height), (1024, 512, 3));
        assert_eq!((chroma.address, chroma.stride, chroma.height), (1024 + 3 * 512, 512, 2));
        assert_eq!(none, Surface::default());
        assert_eq!(copied_bytes(&planes), 5 * 512);
    }
}
