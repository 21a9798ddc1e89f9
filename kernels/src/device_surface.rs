//! Pictures that a hardware decoder left in device memory, in the form that the kernel reads.

use gate::{
    MAX_SIDE,
    device_batch::{SURFACES, Surface},
};
use media::{DeviceSurface, Frame, Pixels, SampleFormat, Subsampling};

/// Returns the frame's surfaces in the memory of device `number`; `None` if the frame is elsewhere or has a
/// layout that the kernel does not read, so that it must be uploaded.
pub(crate) fn surfaces(frame: &Frame, number: u32) -> Option<[Surface; SURFACES]> {
    match &frame.pixels {
        Pixels::Host(_) => None,
        Pixels::Device(picture) => readable(frame, picture.surface(), number),
    }
}

/// Checks the layout. The kernel reads four bytes at a time, from addresses that are multiples of four.
fn readable(frame: &Frame, there: DeviceSurface, number: u32) -> Option<[Surface; SURFACES]> {
    let (extent, layout) = (frame.extent, frame.layout);
    let (luma, chroma, pitch) = (there.luma(), there.chroma(), there.pitch());
    let halved = Subsampling::Yuv420.chroma_extent(extent)?;
    let row_bytes = 2 * u64::from(halved.width) * layout.sample.bytes() as u64;
    let is_readable = there.device() == number
        && layout.subsampling == Subsampling::Yuv420
        && layout.interleaved_chroma
        && !matches!(layout.sample, SampleFormat::U16 { shift: 9.. })
        && extent.width.max(extent.height) <= MAX_SIDE
        && u64::from(pitch) >= row_bytes
        && (luma | chroma | u64::from(pitch)).is_multiple_of(4);
    is_readable.then(|| {
        let luma = Surface::new(luma, pitch, extent, layout.sample, false);
        let chroma = Surface::new(chroma, pitch, halved, layout.sample, true);
        [luma, chroma, Surface::default()]
    })
}

#[cfg(test)]
mod tests {
    use gate::conformance::TestPicture;
    use media::PixelLayout;

    use super::*;

    #[test]
    #[expect(unsafe_code, reason = "makes surfaces of addresses")]
    fn only_what_the_kernel_reads_is_read_where_it_is() {
        let p010 = SampleFormat::U16 { shift: 8 };
        let cases = [
            ("NV12", (1920, 1080), SampleFormat::U8, 0x7000_0000, 0x7020_0000, 2048, true),
            ("P010", (1920, 1080), p010, 0x7000_0000, 0x7040_0000, 4096, true),
            ("odd width, chroma to its end", (1919, 1079), SampleFormat::U8, 256, 512, 1920, true),
            (
                "odd width, chroma past the pitch",
                (1919, 1079),
                SampleFormat::U8,
                256,
                512,
                1919,
                false,
            ),
            ("pitch below the width", (1920, 1080), p010, 256, 512, 3836, false),
            ("luma not aligned", (64, 64), SampleFormat::U8, 258, 512, 64, false),
            ("chroma not aligned", (64, 64), SampleFormat::U8, 256, 513, 64, false),
            ("pitch not aligned", (64, 64), SampleFormat::U8, 256, 512, 66, false),
            ("too wide", (8193, 64), SampleFormat::U8, 256, 512, 8448, false),
            ("as wide as can be said", (u32::MAX, 64), SampleFormat::U8, 256, 512, u32::MAX, false),
            ("no such samples", (64, 64), SampleFormat::U16 { shift: 9 }, 256, 512, 128, false),
        ];
        let mut frame = TestPicture { interleaved: true, ..TestPicture::new(8, 8) }.frame();
        for (name, (width, height), sample, luma, chroma, pitch, taken) in cases {
            frame.extent = media::Dimensions { width, height };
            frame.layout.sample = sample;
            // SAFETY: the surface is not passed to a device.
            let there = unsafe { DeviceSurface::new(3, luma, chroma, pitch) };
            assert_eq!(readable(&frame, there, 3).is_some(), taken, "{name}");
            assert_eq!(readable(&frame, there, 2), None, "{name}, of another device");
        }
    }

    #[test]
    #[expect(unsafe_code, reason = "makes surfaces of addresses")]
    fn a_picture_that_is_not_semi_planar_is_uploaded() {
        let mut frame = TestPicture { interleaved: true, ..TestPicture::new(64, 48) }.frame();
        // SAFETY: the surface is not passed to a device.
        let there = unsafe { DeviceSurface::new(0, 256, 8192, 64) };
        assert!(readable(&frame, there, 0).is_some());
        let whole = frame.layout;
        for (name, layout) in [
            ("planes apart", PixelLayout { interleaved_chroma: false, ..whole }),
            ("all colours", PixelLayout { subsampling: Subsampling::Yuv444, ..whole }),
            ("no colours", PixelLayout { subsampling: Subsampling::Gray, ..whole }),
        ] {
            frame.layout = layout;
            assert_eq!(readable(&frame, there, 0), None, "{name}");
        }
    }
}
