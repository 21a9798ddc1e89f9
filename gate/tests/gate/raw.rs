//! Raw planar 4:2:0 video from a reader, frame by frame.

use std::{io::Read, sync::Arc};

use media::{
    Extent, Frame, HostPicture, PixelLayout, Pixels, Plane, Sample, SampleRange, Subsampling,
    Timestamp,
};

struct Raw {
    bytes: Vec<u8>,
    extent: Extent,
    chroma: Extent,
}

impl Raw {
    fn plane(&self, start: u64, extent: Extent) -> Plane<'_> {
        let stride = extent.width as usize;
        Plane::new(&self.bytes[start as usize..], stride, extent, Sample::U8, 1).expect("whole")
    }
}

impl HostPicture for Raw {
    fn luma(&self) -> Plane<'_> {
        self.plane(0, self.extent)
    }

    fn chroma(&self) -> Option<[Plane<'_>; 2]> {
        let start = self.extent.area();
        Some([start, start + self.chroma.area()].map(|start| self.plane(start, self.chroma)))
    }
}

/// The next eight-bit frame of `extent`; `None` at the end.
pub fn read_frame(source: &mut impl Read, extent: Extent, source_index: u64) -> Option<Frame> {
    let subsampling = Subsampling::Yuv420;
    let chroma = subsampling.chroma_extent(extent)?;
    let mut bytes = vec![0; (extent.area() + 2 * chroma.area()) as usize];
    source.read_exact(&mut bytes).ok()?;
    Some(Frame {
        pts: Timestamp::from_millis(0),
        source_index,
        extent,
        layout: PixelLayout {
            subsampling,
            sample: Sample::U8,
            interleaved_chroma: false,
            range: SampleRange::Limited,
        },
        pixels: Pixels::Host(Arc::new(Raw { bytes, extent, chroma })),
    })
}
