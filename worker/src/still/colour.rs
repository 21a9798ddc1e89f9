//! Converts video samples to the YCbCr of JPEG: eight bits, full range, BT.601.
//!
//! Sixteen-bit fixed point that the compiler vectorises; within one step of the exact result. Samples that
//! need no conversion are copied.

use media::{Dimensions, Frame, Plane, Rotation, SampleFormat, SampleRange};

/// Plane of eight-bit samples, rows `stride` apart; the encoder reads up to the stride.
#[derive(Default)]
pub(super) struct PlaneBuffer {
    pub samples: Vec<u8>,
    pub stride: usize,
    width: usize,
    height: usize,
}

/// Luma and two chroma planes; the chroma planes are empty for luma-only pictures.
#[derive(Default)]
pub(super) struct Planes8 {
    planes: [PlaneBuffer; 3],
    scratch: Scratch,
}

/// Buffers of one row, so that converting allocates nothing after the first picture.
#[derive(Default)]
struct Scratch {
    luma: Vec<u8>,
    u: Vec<u8>,
    v: Vec<u8>,
    terms: Vec<i16>,
}

/// Luma rows and columns are rounded up to a multiple of this many samples, so that every chroma
/// sample has its full share of luma samples, as the encoder expects.
const LUMA_MULTIPLE: usize = 4;

impl PlaneBuffer {
    pub fn reset(&mut self, extent: Dimensions, multiple: usize) {
        (self.width, self.height) = (extent.width as usize, extent.height as usize);
        self.stride = self.width.next_multiple_of(multiple);
        self.samples.resize(self.stride * self.height.next_multiple_of(multiple), 0);
    }

    pub fn row_mut(&mut self, y: usize) -> &mut [u8] {
        &mut self.samples[y * self.stride..][..self.width]
    }

    pub fn row(&self, y: usize) -> &[u8] {
        &self.samples[y * self.stride..][..self.width]
    }

    /// Returns a view of the samples; the plane must not be empty.
    pub fn plane(&self) -> Plane<'_> {
        let extent = Dimensions { width: self.width as u32, height: self.height as u32 };
        Plane::new(&self.samples, self.stride, extent, SampleFormat::U8, 1)
            .expect("a grid has room for its rows")
    }

    /// Repeats the last column and the last row into the padding.
    fn pad(&mut self) {
        if self.stride > self.width {
            for row in self.samples.chunks_exact_mut(self.stride).take(self.height) {
                let last = row[self.width - 1];
                row[self.width..].fill(last);
            }
        }
        let last = (self.height - 1) * self.stride;
        for start in (self.height * self.stride..self.samples.len()).step_by(self.stride) {
            self.samples.copy_within(last..last + self.stride, start);
        }
    }

    /// Rotates this plane clockwise into `out`, in tiles that fit the cache.
    fn turn_into(&self, out: &mut PlaneBuffer, rotation: Rotation) {
        const TILE: usize = 32;
        let (width, height) = (out.width, out.height);
        for top in (0..height).step_by(TILE) {
            for left in (0..width).step_by(TILE) {
                for y in top..(top + TILE).min(height) {
                    let row = &mut out.samples[y * out.stride..];
                    for (x, sample) in row[..width].iter_mut().enumerate().skip(left).take(TILE) {
                        let at = match rotation {
                            Rotation::None => y * self.stride + x,
                            Rotation::Quarter => (self.height - 1 - x) * self.stride + y,
                            Rotation::Half => {
                                (self.height - 1 - y) * self.stride + self.width - 1 - x
                            }
                            Rotation::ThreeQuarters => x * self.stride + self.width - 1 - y,
                        };
                        *sample = self.samples[at];
                    }
                }
            }
        }
    }
}

impl Planes8 {
    pub fn planes(&self) -> &[PlaneBuffer; 3] {
        &self.planes
    }

    /// Converts a picture into these planes; a chroma sample spans `across` columns and `down` rows.
    pub fn convert(
        &mut self,
        matrix: &ColorMatrix,
        luma: Plane<'_>,
        chroma: Option<[Plane<'_>; 2]>,
        (across, down): (usize, usize),
    ) {
        let Planes8 { planes: [y_out, u_out, v_out], scratch } = self;
        y_out.reset(luma.extent(), LUMA_MULTIPLE);
        let Some([u, v]) = chroma else {
            scratch.terms.clear();
            scratch.terms.resize(y_out.width, matrix.offset);
            for y in 0..y_out.height {
                let row = eight_bits(&luma, y, &mut scratch.luma);
                matrix.luma(row, &scratch.terms, y_out.row_mut(y));
            }
            y_out.pad();
            return;
        };
        u_out.reset(u.extent(), 1);
        v_out.reset(v.extent(), 1);
        for chroma_y in 0..u_out.height {
            let u_row = eight_bits(&u, chroma_y, &mut scratch.u);
            let v_row = eight_bits(&v, chroma_y, &mut scratch.v);
            matrix.chroma(u_row, v_row, u_out.row_mut(chroma_y), v_out.row_mut(chroma_y));
            matrix.terms(u_row, v_row, across, &mut scratch.terms);
            for y in (chroma_y * down)..((chroma_y + 1) * down).min(y_out.height) {
                let row = eight_bits(&luma, y, &mut scratch.luma);
                matrix.luma(row, &scratch.terms, y_out.row_mut(y));
            }
        }
        y_out.pad();
    }

    /// Rotates `other` clockwise into these planes.
    pub fn turn(&mut self, other: &Planes8, rotation: Rotation) -> &Planes8 {
        for (at, (out, plane)) in self.planes.iter_mut().zip(&other.planes).enumerate() {
            let extent = Dimensions { width: plane.width as u32, height: plane.height as u32 };
            out.reset(extent.rotated(rotation), if at == 0 { LUMA_MULTIPLE } else { 1 });
            if plane.height > 0 {
                plane.turn_into(out, rotation);
                out.pad();
            }
        }
        self
    }
}

/// Returns row `y` of a plane as packed eight-bit samples, copied only if it is not packed.
pub(super) fn eight_bits<'a>(plane: &Plane<'a>, y: usize, scratch: &'a mut Vec<u8>) -> &'a [u8] {
    let row = plane.row(y as u32);
    match (plane.sample(), plane.step()) {
        (SampleFormat::U8, 1) => return row,
        (SampleFormat::U8, step) => {
            scratch.clear();
            scratch.extend(row.iter().step_by(step));
        }
        (SampleFormat::U16 { shift }, step) => {
            let values = row.as_chunks().0.iter().step_by(step);
            scratch.clear();
            scratch.extend(values.map(|bytes| (u16::from_le_bytes(*bytes) >> shift) as u8));
        }
    }
    scratch
}

/// Weights of red and blue in luma.
struct Weights {
    red: f64,
    blue: f64,
}

const BT601: Weights = Weights { red: 0.299, blue: 0.114 };
const BT709: Weights = Weights { red: 0.2126, blue: 0.0722 };

/// Luma is `luma + (gain * luma + terms) / 128`, with `terms = offset + (y_cb * Cb + y_cr * Cr) / 4`; chroma
/// is a 2x2 matrix in 128ths. No intermediate result overflows 16 bits.
#[derive(Clone, Copy, Debug)]
pub(super) struct ColorMatrix {
    gain: i16,
    offset: i16,
    y_cb: i16,
    y_cr: i16,
    cb: [i16; 2],
    cr: [i16; 2],
}

impl ColorMatrix {
    /// Uses the frame's range, and the matrix that players assume for its size: frames carry no colour
    /// description, and untagged video is BT.709 from 720 rows up.
    pub fn of(frame: &Frame) -> ColorMatrix {
        let high_definition = frame.extent.width >= 1280 || frame.extent.height >= 720;
        let source = if high_definition { &BT709 } else { &BT601 };
        ColorMatrix::new(source, frame.layout.range)
    }

    /// Returns the identity, for a picture decoded from a JPEG.
    pub fn none() -> ColorMatrix {
        ColorMatrix::new(&BT601, SampleRange::Full)
    }

    /// Converts from `source` to BT.601 through RGB; values are in steps of full range.
    fn new(source: &Weights, range: SampleRange) -> ColorMatrix {
        let (black, luma_gain, chroma_gain) = match range {
            SampleRange::Limited => (16.0, 255.0 / 219.0, 255.0 / 224.0),
            SampleRange::Full => (0.0, 1.0, 1.0),
        };
        let green = 1.0 - source.red - source.blue;
        let target_green = 1.0 - BT601.red - BT601.blue;
        let (cb_to_blue, cr_to_red) = (2.0 * (1.0 - source.blue), 2.0 * (1.0 - source.red));
        let y_cb = cb_to_blue * (BT601.blue - target_green * source.blue / green);
        let y_cr = cr_to_red * (BT601.red - target_green * source.red / green);
        let (blue_to_cb, red_to_cr) = (0.5 / (1.0 - BT601.blue), 0.5 / (1.0 - BT601.red));
        let fixed = |value: f64, one: f64| (value * one).round() as i16;
        let chroma = |value: f64| fixed(value * chroma_gain, 128.0);
        ColorMatrix {
            gain: fixed(luma_gain - 1.0, 128.0),
            // Half a step, so that the shift rounds.
            offset: fixed(-black * luma_gain + 0.5, 128.0),
            y_cb: fixed(y_cb * chroma_gain, 512.0),
            y_cr: fixed(y_cr * chroma_gain, 512.0),
            cb: [chroma((cb_to_blue - y_cb) * blue_to_cb), chroma(-y_cr * blue_to_cb)],
            cr: [chroma(-y_cb * red_to_cr), chroma((cr_to_red - y_cr) * red_to_cr)],
        }
    }

    /// Computes the term that each chroma sample adds to its luma, repeated for `across` luma samples.
    fn terms(&self, u: &[u8], v: &[u8], across: usize, out: &mut Vec<i16>) {
        out.resize(u.len() * across, 0);
        let term = |(u, v): (&u8, &u8)| {
            let (cb, cr) = (i16::from(*u) - 128, i16::from(*v) - 128);
            self.offset + ((self.y_cb * cb + self.y_cr * cr) >> 2)
        };
        let terms = u.iter().zip(v).map(term);
        match across {
            1 => out.iter_mut().zip(terms).for_each(|(out, term)| *out = term),
            2 => {
                let pairs = out.as_chunks_mut::<2>().0;
                pairs.iter_mut().zip(terms).for_each(|(pair, term)| *pair = [term; 2]);
            }
            _ => {
                let groups = out.chunks_exact_mut(across);
                groups.zip(terms).for_each(|(group, term)| group.fill(term));
            }
        }
    }

    fn luma(&self, row: &[u8], terms: &[i16], out: &mut [u8]) {
        for ((out, &luma), &term) in out.iter_mut().zip(row).zip(terms) {
            let luma = i16::from(luma);
            *out = (luma + ((self.gain * luma + term) >> 7)).clamp(0, 255) as u8;
        }
    }

    fn chroma(&self, u: &[u8], v: &[u8], u_out: &mut [u8], v_out: &mut [u8]) {
        let (u_out, v_out) = (u_out.iter_mut(), v_out.iter_mut());
        for ((u_out, v_out), (&u, &v)) in u_out.zip(v_out).zip(u.iter().zip(v)) {
            let (cb, cr) = (i16::from(u) - 128, i16::from(v) - 128);
            let mix = |[from_cb, from_cr]: [i16; 2]| {
                (128 + ((from_cb * cb + from_cr * cr + 64) >> 7)).clamp(0, 255) as u8
            };
            (*u_out, *v_out) = (mix(self.cb), mix(self.cr));
        }
    }
}
