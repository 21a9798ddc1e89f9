//! Pictures in the form that device backends take: three surfaces each; one row of sums comes back.
//!
//! [`HostPlanes::pack`] lays a host picture out in rows that start on [`ALIGNMENT`]; a [`Surface`] also
//! describes a picture that is already in device memory. The WGSL and CUDA sources read the words of both.
//! This module knows no device.

use std::panic::{AssertUnwindSafe, catch_unwind};

use media::{Dimensions, ErrorKind, Frame, Plane, SampleFormat};

use crate::{
    cells::{CHROMA_COLUMNS, CHROMA_ROWS, LUMA_COLUMNS, LUMA_ROWS},
    measure::{CheckedPlanes, FrameMeasurements, MeasureError},
};

/// Surfaces of a picture: luma, then U (or U and V interleaved), then V; absent ones are all 0.
pub const SURFACES: usize = 3;
/// 32-bit words of a surface.
pub const SURFACE_WORDS: usize = 6;
/// Alignment in bytes of the rows and surfaces of a packed picture.
pub const ALIGNMENT: usize = 16;
/// Cells of a picture: luma, then U, then V.
pub const CELLS: usize = LUMA_CELLS + 2 * CHROMA_CELLS;
/// Sums of a picture: luma, squares of luma, U, V.
pub const SUMS: usize = 2 * LUMA_CELLS + 2 * CHROMA_CELLS;

const LUMA_CELLS: usize = LUMA_COLUMNS * LUMA_ROWS;
const CHROMA_CELLS: usize = CHROMA_COLUMNS * CHROMA_ROWS;

/// Flag: samples of the surface take two bytes each.
const WIDE: u32 = 1;
/// Flag: samples of two planes are interleaved in the surface.
const PAIR: u32 = 2;
/// First bit of the shift that moves a sample's eight most significant bits to the bottom.
const SHIFT_AT: u32 = 8;

/// One plane, or two interleaved planes, in memory that a device reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Surface {
    /// Position of the first sample: a device address, or an offset into the packed bytes.
    pub address: u64,
    /// Bytes between row starts.
    pub stride: u32,
    /// Columns of samples; 0 for an absent surface.
    pub width: u32,
    /// Rows of samples.
    pub height: u32,
    format: u32,
}

impl Surface {
    /// Describes a surface of `extent` samples; with `pair`, each is a U and a V sample.
    pub fn new(
        address: u64,
        stride: u32,
        Dimensions { width, height }: Dimensions,
        sample: SampleFormat,
        pair: bool,
    ) -> Surface {
        let storage = match sample {
            SampleFormat::U8 => 0,
            SampleFormat::U16 { shift } => WIDE | u32::from(shift) << SHIFT_AT,
        };
        let format = storage | if pair { PAIR } else { 0 };
        Surface { address, stride, width, height, format }
    }

    /// Returns the surface with its offset made absolute: `address` is the start of the memory.
    pub fn at(self, address: u64) -> Surface {
        Surface { address: self.address + address, ..self }
    }

    /// Returns the words that device code reads.
    pub fn words(self) -> [u32; SURFACE_WORDS] {
        let (low, high) = (self.address as u32, (self.address >> 32) as u32);
        [low, high, self.stride, self.width, self.height, self.format]
    }
}

/// Planes of a host picture that passed the checks.
pub struct HostPlanes<'a> {
    parts: [Option<Part<'a>>; SURFACES],
}

/// One plane, or two interleaved planes, that become one surface.
struct Part<'a> {
    plane: Plane<'a>,
    /// Plane whose samples are interleaved with those of `plane`.
    between: Option<Plane<'a>>,
}

impl<'a> HostPlanes<'a> {
    /// Checks the frame as every gate backend does, and returns its planes.
    pub fn new(frame: &'a Frame) -> Result<HostPlanes<'a>, MeasureError> {
        let planes = CheckedPlanes::of(frame)?;
        let alone = |plane| Some(Part { plane, between: None });
        let [first, second] = match planes.chroma {
            None => [None, None],
            Some([u, v]) if alternate(&u, &v) => [Some(Part { plane: u, between: Some(v) }), None],
            Some([u, v]) => [alone(u), alone(v)],
        };
        Ok(HostPlanes { parts: [alone(planes.luma), first, second] })
    }

    /// Returns the bytes of the packed picture, a multiple of [`ALIGNMENT`].
    pub fn packed_bytes(&self) -> u64 {
        self.parts.iter().flatten().map(|part| part.rows() * part.stride() as u64).sum()
    }

    /// Passes every row to `put` with its offset, and returns the surfaces; offsets start at `base`.
    pub fn pack(&self, base: u64, mut put: impl FnMut(u64, &[u8])) -> [Surface; SURFACES] {
        let mut at = base;
        self.parts.each_ref().map(|part| {
            let Some(part) = part else { return Surface::default() };
            let start = at;
            for y in 0..part.plane.extent().height {
                part.row(y, |offset, bytes| put(at + offset, bytes));
                at += part.stride() as u64;
            }
            let (extent, pair) = (part.plane.extent(), part.between.is_some());
            Surface::new(start, part.stride() as u32, extent, part.plane.sample(), pair)
        })
    }
}

/// Returns true if the samples of `v` are interleaved with those of `u` in the same memory.
fn alternate(u: &Plane<'_>, v: &Plane<'_>) -> bool {
    let [first, second] = [u, v].map(|plane| plane.row(0).as_ptr().addr());
    (u.step(), v.step()) == (2, 2)
        && (u.sample(), u.stride()) == (v.sample(), v.stride())
        && second == first + u.sample().bytes()
}

impl Part<'_> {
    fn rows(&self) -> u64 {
        u64::from(self.plane.extent().height)
    }

    fn stride(&self) -> usize {
        let samples =
            self.plane.extent().width as usize * (1 + usize::from(self.between.is_some()));
        (samples * self.plane.sample().bytes()).next_multiple_of(ALIGNMENT)
    }

    /// Passes the samples of row `y` to `put`, with offsets into the row.
    fn row(&self, y: u32, mut put: impl FnMut(u64, &[u8])) {
        let bytes = self.plane.sample().bytes();
        let row = self.plane.row(y);
        match &self.between {
            Some(between) => {
                let other = between.row(y);
                put(0, row);
                put(row.len() as u64, &other[other.len() - bytes..]);
            }
            None if self.plane.step() == 1 => put(0, row),
            None => {
                let samples = row.chunks(bytes).step_by(self.plane.step());
                for (x, sample) in samples.enumerate() {
                    put((x * bytes) as u64, sample);
                }
            }
        }
    }
}

/// Frames that a device measures together.
pub struct DeviceBatch<'a> {
    /// At least one frame.
    pub frames: &'a [Frame],
    /// Bytes of the frames packed one after the other.
    pub bytes: u64,
}

/// Splits `frames` into batches of at most `pictures_max` frames and `fill_bytes` bytes; a larger picture
/// gets its own batch. A frame that fails the checks yields its error and ends the iteration.
pub fn batches(
    frames: &[Frame],
    pictures_max: usize,
    fill_bytes: u64,
) -> impl Iterator<Item = Result<DeviceBatch<'_>, MeasureError>> {
    let mut rest = frames;
    std::iter::from_fn(move || {
        let (mut count, mut bytes) = (0, 0);
        for frame in &rest[..rest.len().min(pictures_max)] {
            let own = match HostPlanes::new(frame) {
                Ok(planes) => planes.packed_bytes(),
                Err(error) => {
                    rest = &[];
                    return Some(Err(error));
                }
            };
            if count > 0 && bytes + own > fill_bytes {
                break;
            }
            count += 1;
            bytes += own;
        }
        let (frames, after) = rest.split_at(count);
        rest = after;
        (count > 0).then_some(Ok(DeviceBatch { frames, bytes }))
    })
}

/// Reads the measurements of `frame` from its [`SUMS`] little-endian words.
///
/// Panics if there are fewer.
pub fn unpack(frame: &Frame, sums: &[u8]) -> FrameMeasurements {
    let chroma_extent = frame.layout.subsampling.chroma_extent(frame.extent);
    let mut measured = FrameMeasurements::zeroed(frame.extent, chroma_extent);
    let FrameMeasurements { luma_cells, luma_squares, chroma_cells: [u, v], .. } = &mut measured;
    let mut rest = sums;
    for target in [&mut luma_cells[..], &mut luma_squares[..], &mut u[..], &mut v[..]] {
        let (own, after) = rest.split_at(4 * target.len());
        for (sum, word) in target.iter_mut().zip(own.as_chunks().0) {
            *sum = u32::from_le_bytes(*word);
        }
        rest = after;
    }
    measured
}

/// Reason that a device backend does not open; the text names the part at fault.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// There is no driver, or no device to try.
    #[error("{0}")]
    Missing(String),
    /// The driver or the device failed, or there are fewer devices.
    #[error("{0}")]
    Failed(String),
    /// The driver or the device is too old or too small, or measures other integers than the reference.
    #[error("{0}")]
    Unfit(String),
}

impl OpenError {
    /// Returns unavailable for a part that is missing or failed, and unsupported for one that is unfit.
    pub fn kind(&self) -> ErrorKind {
        match self {
            OpenError::Missing(_) | OpenError::Failed(_) => ErrorKind::Unavailable,
            OpenError::Unfit(_) => ErrorKind::Unsupported,
        }
    }
}

/// Runs calls of a driver, whose binding may panic; the error is the panic's message in one line.
pub fn contained<T>(calls: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(calls)).map_err(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
        text.unwrap_or("the driver failed").split_whitespace().collect::<Vec<_>>().join(" ")
    })
}

#[cfg(test)]
mod tests {
    use media::Subsampling;

    use super::*;
    use crate::conformance::TestPicture;

    /// Returns the picture packed after `base` bytes, and its surfaces.
    fn packed(picture: TestPicture, base: u64) -> (Vec<u8>, [Surface; SURFACES]) {
        let frame = picture.frame();
        let planes = HostPlanes::new(&frame).expect("measurable");
        let mut bytes = vec![0xa5; (base + planes.packed_bytes()) as usize];
        let surfaces = planes.pack(base, |at, row| {
            bytes[at as usize..at as usize + row.len()].copy_from_slice(row);
        });
        (bytes, surfaces)
    }

    #[test]
    fn every_sample_is_where_its_surface_says() {
        let samples = [SampleFormat::U8, SampleFormat::U16 { shift: 2 }];
        let subsamplings = [Subsampling::Gray, Subsampling::Yuv420, Subsampling::Yuv444];
        for (sample, subsampling) in
            samples.into_iter().flat_map(|sample| subsamplings.map(|chroma| (sample, chroma)))
        {
            for interleaved in [false, true] {
                let picture = TestPicture {
                    sample,
                    subsampling,
                    interleaved,
                    padding: 6,
                    ..TestPicture::new(37, 19)
                };
                let frame = picture.frame();
                let host = frame.pixels.host().expect("in host memory");
                let (bytes, [luma, first, second]) = packed(picture, 48);
                let at = |surface: Surface, x: u32, y: u32, part: u64| {
                    let pair = 1 + u64::from(surface.format & PAIR != 0);
                    let column = (u64::from(x) * pair + part) * sample.bytes() as u64;
                    let row = surface.address + u64::from(y) * u64::from(surface.stride);
                    (row + column) as usize
                };
                let check = |plane: &Plane<'_>, surface: Surface, part: u64| {
                    for y in 0..surface.height {
                        for x in 0..surface.width {
                            let from = x as usize * plane.step() * sample.bytes();
                            let expected = &plane.row(y)[from..from + sample.bytes()];
                            let to = at(surface, x, y, part);
                            assert_eq!(&bytes[to..to + sample.bytes()], expected, "{picture:?}");
                        }
                    }
                };
                check(&host.luma(), luma, 0);
                match host.chroma() {
                    None => assert_eq!((first.width, second.width), (0, 0)),
                    Some([u, v]) if interleaved => {
                        assert_eq!(second, Surface::default());
                        check(&u, first, 0);
                        check(&v, first, 1);
                    }
                    Some([u, v]) => {
                        check(&u, first, 0);
                        check(&v, second, 0);
                    }
                }
            }
        }
    }

    #[test]
    fn rows_and_surfaces_are_aligned_and_counted() {
        let cases = [
            (TestPicture { subsampling: Subsampling::Gray, ..TestPicture::new(17, 3) }, 3 * 32),
            (TestPicture::new(17, 3), 3 * 32 + 2 * 2 * 16),
            (TestPicture { interleaved: true, ..TestPicture::new(17, 3) }, 3 * 32 + 2 * 32),
            (
                TestPicture { sample: SampleFormat::U16 { shift: 2 }, ..TestPicture::new(16, 2) },
                2 * 32 + 2 * 16,
            ),
        ];
        for (picture, expected) in cases {
            let (bytes, surfaces) = packed(picture, 0);
            assert_eq!(bytes.len(), expected, "{picture:?}");
            for surface in surfaces {
                assert_eq!((surface.address % 16, surface.stride % 16), (0, 0), "{picture:?}");
            }
        }
    }

    #[test]
    fn sums_are_read_in_their_order() {
        let frame = TestPicture::new(4, 4).frame();
        let bytes: Vec<u8> = (0..SUMS as u32).flat_map(u32::to_le_bytes).collect();
        let measured = unpack(&frame, &bytes);
        assert_eq!(measured.luma_cells[1], 1);
        assert_eq!(measured.luma_squares[1], 2561);
        assert_eq!((measured.chroma_cells[0][1], measured.chroma_cells[1][1]), (5121, 5761));
    }

    #[test]
    fn batches_hold_every_frame_once_within_the_limits() {
        let gray =
            |width| TestPicture { subsampling: Subsampling::Gray, ..TestPicture::new(width, 1) };
        let frames = |widths: &[u32]| -> Vec<Frame> {
            widths.iter().map(|width| gray(*width).frame()).collect()
        };
        // Frames of 16, 32, 64 and 128 bytes in batches of three pictures and 64 bytes.
        let cases = [
            (vec![], vec![]),
            (vec![1], vec![(1, 16)]),
            (vec![1, 1, 1, 1], vec![(3, 48), (1, 16)]),
            (vec![32, 32, 1], vec![(2, 64), (1, 16)]),
            (vec![128, 1, 128], vec![(1, 128), (1, 16), (1, 128)]),
            (vec![1, 64, 1], vec![(1, 16), (1, 64), (1, 16)]),
        ];
        for (widths, expected) in cases {
            let frames = frames(&widths);
            let cut: Vec<(usize, u64)> = batches(&frames, 3, 64)
                .map(|batch| batch.map(|batch| (batch.frames.len(), batch.bytes)))
                .collect::<Result<_, _>>()
                .expect("measurable");
            assert_eq!(cut, expected, "{widths:?}");
        }
        let refused = batches(&frames(&[1, 9000]), 3, 64).next().and_then(Result::err);
        assert_eq!(refused, Some(MeasureError::TooLarge { width: 9000, height: 1 }));
    }
}
