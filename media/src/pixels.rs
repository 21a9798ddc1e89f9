//! Views of picture planes in host memory, checked against the stride.

use crate::Dimensions;

/// Layout of the chroma planes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub enum Subsampling {
    /// Luma only.
    Gray,
    /// Chroma halved both ways.
    Yuv420,
    /// Chroma halved horizontally.
    Yuv422,
    /// Chroma halved vertically.
    Yuv440,
    /// Chroma quartered horizontally.
    Yuv411,
    /// Chroma at full size.
    Yuv444,
}

impl Subsampling {
    /// Returns the size of a chroma plane of a picture of size `extent`; `None` for luma only.
    pub fn chroma_extent(self, extent: Dimensions) -> Option<Dimensions> {
        let (across, down) = match self {
            Subsampling::Gray => return None,
            Subsampling::Yuv420 => (2, 2),
            Subsampling::Yuv422 => (2, 1),
            Subsampling::Yuv440 => (1, 2),
            Subsampling::Yuv411 => (4, 1),
            Subsampling::Yuv444 => (1, 1),
        };
        Some(Dimensions {
            width: extent.width.div_ceil(across),
            height: extent.height.div_ceil(down),
        })
    }
}

/// Storage of one sample: its bytes, and the shift that yields its eight most significant bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(remote = "Self")]
pub enum SampleFormat {
    /// One byte per sample.
    U8,
    /// Two bytes, little endian; `value >> shift` is the eight-bit value.
    U16 {
        /// Bits to drop, 0 to 8: 2 for 10-bit planar, 8 for P010.
        shift: u8,
    },
}

crate::serde_checked!(SampleFormat, |sample| matches!(
    sample,
    SampleFormat::U8 | SampleFormat::U16 { shift: 0..=8 }
));

impl SampleFormat {
    /// Returns the bytes per sample.
    pub fn bytes(self) -> usize {
        match self {
            SampleFormat::U8 => 1,
            SampleFormat::U16 { .. } => 2,
        }
    }
}

/// Range of sample values from black to white.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub enum SampleRange {
    /// 16 to 235 (of 255).
    Limited,
    /// 0 to 255.
    Full,
}

/// Description of a picture's memory layout, without the memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub struct PixelLayout {
    /// Layout of the chroma planes.
    pub subsampling: Subsampling,
    /// Storage of a sample.
    pub sample: SampleFormat,
    /// True if U and V samples alternate in one plane (NV12, P010).
    pub interleaved_chroma: bool,
    /// Range of sample values.
    pub range: SampleRange,
}

/// One plane in host memory: `extent.height` rows, `stride` bytes apart.
///
/// `step` is the distance in samples between neighbours of a row: 1, or 2 for interleaved chroma.
#[derive(Clone, Copy, Debug)]
pub struct Plane<'a> {
    data: &'a [u8],
    stride: usize,
    extent: Dimensions,
    sample: SampleFormat,
    step: usize,
}

impl<'a> Plane<'a> {
    /// Creates a checked view; `None` if a row or the last byte would lie outside `data`.
    pub fn new(
        data: &'a [u8],
        stride: usize,
        extent: Dimensions,
        sample: SampleFormat,
        step: usize,
    ) -> Option<Plane<'a>> {
        let samples = (extent.width as usize - 1).checked_mul(step)?.checked_add(1)?;
        let row = samples.checked_mul(sample.bytes())?;
        let needed = stride.checked_mul(extent.height as usize - 1)?.checked_add(row)?;
        let fits = matches!(step, 1 | 2) && stride >= row && data.len() >= needed;
        fits.then_some(Plane { data, stride, extent, sample, step })
    }

    /// Returns the columns and rows of samples.
    pub fn extent(&self) -> Dimensions {
        self.extent
    }

    /// Returns the storage of a sample.
    pub fn sample(&self) -> SampleFormat {
        self.sample
    }

    /// Returns the distance in samples between neighbours of a row: 1 or 2.
    pub fn step(&self) -> usize {
        self.step
    }

    /// Returns the bytes between row starts.
    pub fn stride(&self) -> usize {
        self.stride
    }

    /// Returns the bytes of row `y`, from its first to its last sample.
    ///
    /// Panics when `y` is not below the height.
    pub fn row(&self, y: u32) -> &'a [u8] {
        assert!(y < self.extent.height, "row {y} of {}", self.extent.height);
        let start = self.stride * y as usize;
        let samples = (self.extent.width as usize - 1) * self.step + 1;
        &self.data[start..start + samples * self.sample.bytes()]
    }

    /// Returns the eight most significant bits of the sample at column `x` of a row from [`Plane::row`].
    pub fn value8(&self, row: &[u8], x: u32) -> u8 {
        let at = x as usize * self.step;
        match self.sample {
            SampleFormat::U8 => row[at],
            SampleFormat::U16 { shift } => {
                (u16::from_le_bytes([row[2 * at], row[2 * at + 1]]) >> shift) as u8
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_view_needs_every_row_inside_the_bytes() {
        let extent = Dimensions { width: 4, height: 3 };
        let cases = [
            ("tight", 12, 4, 1, true),
            ("last row needs no padding", 20, 8, 1, true),
            ("one byte short", 19, 8, 1, false),
            ("stride below width", 12, 3, 1, false),
            ("interleaved", 7 + 16, 8, 2, true),
            ("interleaved short", 22, 8, 2, false),
            ("no such step", 64, 16, 3, false),
        ];
        for (name, len, stride, step, fits) in cases {
            let data = vec![0; len];
            let plane = Plane::new(&data, stride, extent, SampleFormat::U8, step);
            assert_eq!(plane.is_some(), fits, "{name}");
        }
    }

    #[test]
    fn ten_bit_samples_keep_their_top_eight_bits() {
        let data = [0xff, 0x03, 0x04, 0x00];
        let extent = Dimensions { width: 2, height: 1 };
        let plane = Plane::new(&data, 4, extent, SampleFormat::U16 { shift: 2 }, 1).expect("fits");
        let row = plane.row(0);
        assert_eq!((plane.value8(row, 0), plane.value8(row, 1)), (255, 1));
    }
}
