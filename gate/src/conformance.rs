//! Table of pictures that every [`MeasureBackend`] must measure exactly as the reference does.
//!
//! Backends run [`check`] in their tests; the pictures are the same on every machine. Noise fills the padding
//! between rows, so that a backend that reads padding fails.

use std::sync::Arc;

use media::{
    Dimensions, Frame, HostFrameBuffer, PixelLayout, Pixels, Plane, SampleFormat, SampleRange,
    Subsampling, Timestamp,
};

use crate::{FrameMeasurements, MeasureBackend, MeasureError, ReferenceBackend};

/// Pattern of a picture's samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fill {
    /// Every sample has this eight-bit value.
    Flat(u8),
    /// Uniformly random samples from this seed.
    Random(u64),
    /// Smallest and largest value alternating by column and row.
    Checker,
    /// Values that grow along rows and columns and wrap, so that a misplaced sample changes the sums.
    Ramp,
    /// Gradient from black at the first sample to white at the last, as in a sky.
    Gradient,
}

/// Description of a generated picture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub struct TestPicture {
    pub width: u32,
    pub height: u32,
    pub subsampling: Subsampling,
    pub sample: SampleFormat,
    /// True if U and V alternate in one plane.
    pub interleaved: bool,
    /// Bytes between the end of a row and the start of the next.
    pub padding: usize,
    pub fill: Fill,
}

impl TestPicture {
    /// Returns an eight-bit 4:2:0 picture of random samples without padding.
    pub fn new(width: u32, height: u32) -> TestPicture {
        TestPicture {
            width,
            height,
            subsampling: Subsampling::Yuv420,
            sample: SampleFormat::U8,
            interleaved: false,
            padding: 0,
            fill: Fill::Random(1),
        }
    }

    /// Returns the picture as a frame of a decoder. Panics if a side is 0.
    pub fn frame(self) -> Frame {
        let extent = Dimensions::new(self.width, self.height).expect("a picture has pixels");
        let layout = PixelLayout {
            subsampling: self.subsampling,
            sample: self.sample,
            interleaved_chroma: self.interleaved,
            range: SampleRange::Limited,
        };
        let mut bytes = self.plane(extent, 1, 0);
        if let Some(extent) = self.subsampling.chroma_extent(extent) {
            bytes.extend(self.plane(extent, if self.interleaved { 2 } else { 1 }, 1));
            if !self.interleaved {
                bytes.extend(self.plane(extent, 1, 2));
            }
        }
        Packed { bytes, extent, layout, padding: self.padding }.frame(0)
    }

    fn plane(self, extent: Dimensions, step: usize, salt: u64) -> Vec<u8> {
        let stride = stride(extent, step, self.sample, self.padding);
        let mut noise = Noise(salt ^ 0x5157_4c31);
        let mut bytes: Vec<u8> =
            (0..stride * extent.height as usize).map(|_| noise.next() as u8).collect();
        let mut source = match self.fill {
            Fill::Random(seed) => Noise(seed.wrapping_mul(3).wrapping_add(salt)),
            _ => Noise(0),
        };
        let last = (extent.width as usize + extent.height as usize - 2).max(1);
        for (y, row) in bytes.chunks_exact_mut(stride).enumerate() {
            for at in 0..extent.width as usize * step {
                let x = at / step;
                let value = match self.fill {
                    Fill::Flat(value) => value,
                    Fill::Random(_) => source.next() as u8,
                    Fill::Checker => u8::MAX * ((x + y) % 2) as u8,
                    Fill::Ramp => (3 * x + 7 * y) as u8,
                    Fill::Gradient => (usize::from(u8::MAX) * (x + y) / last) as u8,
                };
                self.put(row, at, value, &mut source);
            }
        }
        bytes
    }

    /// Writes sample `at` of a row.
    fn put(self, row: &mut [u8], at: usize, value: u8, source: &mut Noise) {
        match self.sample {
            SampleFormat::U8 => row[at] = value,
            SampleFormat::U16 { shift } => {
                let fraction = match self.fill {
                    Fill::Random(_) => source.next() as u16 & ((1 << shift) - 1),
                    _ => (1 << shift) - 1,
                };
                let wide = u16::from(value) << shift | fraction;
                row[2 * at..2 * at + 2].copy_from_slice(&wide.to_le_bytes());
            }
        }
    }
}

fn stride(extent: Dimensions, step: usize, sample: SampleFormat, padding: usize) -> usize {
    extent.width as usize * step * sample.bytes() + padding
}

/// Picture in one allocation: luma, then U and V or pairs of both; a row ends in `padding` bytes.
struct Packed {
    bytes: Vec<u8>,
    extent: Dimensions,
    layout: PixelLayout,
    padding: usize,
}

impl Packed {
    fn frame(self, source_index: u64) -> Frame {
        let Packed { extent, layout, .. } = self;
        let (pts, pixels) = (Timestamp::from_millis(0), Pixels::Host(Arc::new(self)));
        Frame { pts, source_index, extent, layout, pixels }
    }

    fn stride(&self, extent: Dimensions, step: usize) -> usize {
        stride(extent, step, self.layout.sample, self.padding)
    }

    fn plane(&self, start: usize, extent: Dimensions, step: usize) -> Plane<'_> {
        let (stride, sample) = (self.stride(extent, step), self.layout.sample);
        Plane::new(&self.bytes[start..], stride, extent, sample, step).expect("built to fit")
    }
}

impl HostFrameBuffer for Packed {
    fn luma(&self) -> Plane<'_> {
        self.plane(0, self.extent, 1)
    }

    fn chroma(&self) -> Option<[Plane<'_>; 2]> {
        let extent = self.layout.subsampling.chroma_extent(self.extent)?;
        let first = self.stride(self.extent, 1) * self.extent.height as usize;
        let (step, next) = match self.layout.interleaved_chroma {
            true => (2, self.layout.sample.bytes()),
            false => (1, self.stride(extent, 1) * extent.height as usize),
        };
        Some([first, first + next].map(|start| self.plane(start, extent, step)))
    }
}

/// Returns the frame of these samples: the rows of luma, then those of U and V or of pairs of both.
pub fn frame_of(
    bytes: Vec<u8>,
    extent: Dimensions,
    layout: PixelLayout,
    source_index: u64,
) -> Frame {
    Packed { bytes, extent, layout, padding: 0 }.frame(source_index)
}

/// SplitMix64 generator: the same samples on every machine.
struct Noise(u64);

impl Noise {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

/// Sizes from one pixel to UHD: below, at and above the cell counts and vector widths, and odd sides.
const SIZES: [(u32, u32); 22] = [
    (1, 1),
    (2, 1),
    (1, 2),
    (3, 5),
    (15, 9),
    (16, 16),
    (31, 39),
    (32, 20),
    (33, 41),
    (63, 40),
    (64, 40),
    (65, 41),
    (127, 80),
    (176, 144),
    (320, 180),
    (333, 217),
    (641, 361),
    (854, 480),
    (1280, 720),
    (1919, 1079),
    (1920, 1080),
    (4096, 2304),
];

/// Chroma arrangements of the table.
pub const SUBSAMPLINGS: [Subsampling; 6] = [
    Subsampling::Gray,
    Subsampling::Yuv420,
    Subsampling::Yuv422,
    Subsampling::Yuv440,
    Subsampling::Yuv411,
    Subsampling::Yuv444,
];

/// Returns every sample format with every chroma arrangement, on sizes that leave remainders.
fn storages() -> impl Iterator<Item = TestPicture> {
    let samples = [
        SampleFormat::U8,
        SampleFormat::U16 { shift: 0 },
        SampleFormat::U16 { shift: 2 },
        SampleFormat::U16 { shift: 4 },
        SampleFormat::U16 { shift: 8 },
    ];
    let sizes = [(97u32, 61u32), (130, 83), (37, 19)];
    sizes.into_iter().flat_map(move |(width, height)| {
        SUBSAMPLINGS.into_iter().flat_map(move |subsampling| {
            samples.into_iter().flat_map(move |sample| {
                [(false, 0), (false, 6), (true, 0), (true, 26)].into_iter().map(
                    move |(interleaved, padding)| TestPicture {
                        subsampling,
                        sample,
                        interleaved,
                        padding,
                        fill: Fill::Random(u64::from(width)),
                        ..TestPicture::new(width, height)
                    },
                )
            })
        })
    })
}

/// 1080p with ten bits a sample, as hardware decoders output it.
const P010: TestPicture = TestPicture {
    width: 1920,
    height: 1080,
    subsampling: Subsampling::Yuv420,
    sample: SampleFormat::U16 { shift: 8 },
    interleaved: true,
    padding: 64,
    fill: Fill::Random(1),
};

/// Odd size, as hardware decoders output it.
const NV12: TestPicture =
    TestPicture { width: 1279, height: 719, sample: SampleFormat::U8, padding: 128, ..P010 };

/// Highest bands of chroma, of the largest samples.
const TALL: TestPicture = TestPicture {
    width: 67,
    height: 8192,
    subsampling: Subsampling::Yuv444,
    sample: SampleFormat::U8,
    interleaved: false,
    padding: 0,
    fill: Fill::Flat(255),
};

/// Returns a batch of several sizes, formats and fills, the largest between small ones.
fn mixed() -> Vec<TestPicture> {
    vec![TestPicture::new(640, 360), P010, TestPicture::new(1, 1), NV12, TestPicture::new(65, 3)]
}

/// Returns more pictures than a device takes at once, in no order of size.
fn many() -> Vec<TestPicture> {
    let sizes = (0..150u32).map(|n| (1 + 37 * n % 203, 1 + 53 * n % 131));
    let picture = |(n, (width, height))| TestPicture {
        fill: Fill::Random(n as u64),
        interleaved: n % 3 == 0,
        padding: n % 5,
        ..TestPicture::new(width, height)
    };
    sizes.enumerate().map(picture).collect()
}

/// Returns the batches of the table, made one at a time to save memory.
pub fn batches() -> impl Iterator<Item = Vec<TestPicture>> {
    let sizes = SIZES.into_iter().map(|(width, height)| vec![TestPicture::new(width, height)]);
    let fills =
        [Fill::Flat(0), Fill::Flat(1), Fill::Flat(255), Fill::Checker, Fill::Ramp, Fill::Gradient];
    let extremes = fills.into_iter().flat_map(|fill| {
        [SampleFormat::U8, SampleFormat::U16 { shift: 2 }].map(|sample| {
            [(1280, 720), (701, 8192), (8192, 41)]
                .map(|(width, height)| TestPicture {
                    fill,
                    sample,
                    ..TestPicture::new(width, height)
                })
                .to_vec()
        })
    });
    let batches = [Vec::new(), mixed(), many(), vec![P010], vec![NV12], vec![TALL]];
    sizes.chain(extremes).chain(storages().map(|picture| vec![picture])).chain(batches)
}

/// Measures the whole table with `measurer` and returns the number of pictures, or what differs.
pub fn check(measurer: &mut dyn MeasureBackend) -> Result<usize, String> {
    batches()
        .try_fold(0, |count, batch| check_batch(measurer, &batch).map(|()| count + batch.len()))
}

/// Measures a few pictures that reveal most faults; takes some milliseconds, for the start of a backend.
pub fn quick_check(measurer: &mut dyn MeasureBackend) -> Result<(), String> {
    let odd = TestPicture { sample: SampleFormat::U16 { shift: 2 }, ..TestPicture::new(333, 217) };
    let overfull =
        TestPicture { sample: SampleFormat::U16 { shift: 0 }, ..TestPicture::new(65, 41) };
    let small = TestPicture { width: 130, height: 83, ..P010 };
    let smaller = TestPicture { width: 37, height: 19, ..NV12 };
    let bright = TestPicture { fill: Fill::Flat(255), ..TestPicture::new(701, 512) };
    let batch = [NV12, odd, overfull, small, smaller, TestPicture::new(1, 1), bright];
    check_batch(measurer, &batch)
}

/// Returns the pictures as frames of a decoder.
pub fn frames(pictures: &[TestPicture]) -> Vec<Frame> {
    pictures.iter().map(|picture| picture.frame()).collect()
}

/// Compares `measurer` with the reference on one batch of any pictures.
pub fn check_batch(measurer: &mut dyn MeasureBackend, batch: &[TestPicture]) -> Result<(), String> {
    match first_difference(measurer, &frames(batch)) {
        Ok(None) => Ok(()),
        Ok(Some(at)) => Err(format!("measured {:?} differently", batch.get(at))),
        Err(error) => Err(format!("refused {:?}: {error}", batch.first())),
    }
}

/// Measures `frames` with `measurer` and with the reference. Returns the index of the first difference, or
/// the smaller count if the counts differ.
pub fn first_difference(
    measurer: &mut dyn MeasureBackend,
    frames: &[Frame],
) -> Result<Option<usize>, MeasureError> {
    let (mut expected, mut measured): (Vec<FrameMeasurements>, Vec<FrameMeasurements>) =
        Default::default();
    ReferenceBackend.measure(frames, &mut expected)?;
    measurer.measure(frames, &mut measured)?;
    let different = expected.iter().zip(&measured).position(|(a, b)| a != b);
    let counts = (expected.len() != measured.len()).then(|| expected.len().min(measured.len()));
    Ok(different.or(counts))
}
