//! AVX2 version of the reference: equal integers, about twenty times faster.
//!
//! Each band of pixel rows that makes a row of cells is summed column by column, up to six rows at a time,
//! and the columns are added up once per cell; a high band is summed in parts. Only the loads, the stores and
//! the one call into AVX2 code are unsafe.

use std::arch::x86_64::{
    __m128i, __m256i, _MM_HINT_T0, _mm_add_epi32, _mm_cvtsi32_si128, _mm_cvtsi128_si32,
    _mm_loadu_si128, _mm_prefetch, _mm_shuffle_epi32, _mm_unpackhi_epi64, _mm256_add_epi16,
    _mm256_add_epi32, _mm256_and_si256, _mm256_castsi256_si128, _mm256_cmpgt_epi32,
    _mm256_cvtepu8_epi16, _mm256_cvtepu16_epi32, _mm256_extracti128_si256, _mm256_loadu_si256,
    _mm256_madd_epi16, _mm256_packus_epi32, _mm256_permute2x128_si256, _mm256_permute4x64_epi64,
    _mm256_set1_epi16, _mm256_set1_epi32, _mm256_setr_epi32, _mm256_setzero_si256,
    _mm256_srl_epi16, _mm256_storeu_si256, _mm256_unpackhi_epi16, _mm256_unpacklo_epi16,
};
use std::ops::Range;

use media::{Activity, Plane, SampleFormat};

use crate::{
    ZoneMask,
    activity::Movement,
    cells::{CHROMA_COLUMNS, CHROMA_ROWS, LUMA_COLUMNS, LUMA_ROWS, cell_span},
    measure::{CheckedPlanes, FrameMeasurements, MAX_SIDE},
};

const LANES: usize = 16;
/// Distance in rows of the prefetch: as many rows as are summed at once.
const ROWS_AHEAD: u32 = 6;
/// Most rows of which the sum of a column fits into 16 bits. No band of luma has more, one of chroma may.
const PART_ROWS: u32 = u16::MAX as u32 / u8::MAX as u32;
/// Bytes of a cache line.
const LINE_BYTES: usize = 64;
/// Extra columns, because a cell is read eight columns at a time, possibly past the last column.
const SLACK: usize = 8;

/// Calls [`Movement::next_picture`], compiled for AVX2 where the CPU supports it.
pub(crate) fn next_picture(movement: &mut Movement, now: i64, zones: &ZoneMask) -> Activity {
    #[target_feature(enable = "avx2")]
    fn in_avx2(movement: &mut Movement, now: i64, zones: &ZoneMask) -> Activity {
        movement.next_picture(now, zones)
    }
    if is_x86_feature_detected!("avx2") {
        // SAFETY: the CPU has the feature.
        unsafe { in_avx2(movement, now, zones) }
    } else {
        movement.next_picture(now, zones)
    }
}

/// Proof that the CPU has AVX2, and column sums of one band.
#[derive(Debug)]
pub(crate) struct Avx2 {
    sums: Box<[u16]>,
    squares: Box<[u32]>,
}

impl Avx2 {
    /// Returns `None` on a CPU without AVX2.
    pub(crate) fn detect() -> Option<Avx2> {
        let columns = MAX_SIDE as usize + SLACK;
        is_x86_feature_detected!("avx2").then(|| Avx2 {
            sums: vec![0; columns].into_boxed_slice(),
            squares: vec![0; columns].into_boxed_slice(),
        })
    }

    /// Writes the sums of one picture to `measured`, which must be all zero.
    pub(crate) fn measure(&mut self, planes: &CheckedPlanes<'_>, measured: &mut FrameMeasurements) {
        // SAFETY: an `Avx2` exists only where `detect` found the feature.
        unsafe { self.measure_planes(planes, measured) }
    }

    #[target_feature(enable = "avx2")]
    fn measure_planes(&mut self, planes: &CheckedPlanes<'_>, measured: &mut FrameMeasurements) {
        let FrameMeasurements { luma_cells, luma_squares, chroma_cells, .. } = measured;
        for row in 0..LUMA_ROWS {
            let cells = row * LUMA_COLUMNS..(row + 1) * LUMA_COLUMNS;
            self.sum_band::<true>(
                &planes.luma,
                cell_span(row, LUMA_ROWS, planes.luma.extent().height),
            );
            let width = planes.luma.extent().width;
            reduce(width, &mut luma_cells[cells.clone()], |span| sum_u16(&self.sums, span));
            reduce(width, &mut luma_squares[cells], |span| sum_u32(&self.squares, span));
        }
        for (plane, sums) in planes.chroma.iter().flatten().zip(chroma_cells) {
            for row in 0..CHROMA_ROWS {
                let cells = &mut sums[row * CHROMA_COLUMNS..(row + 1) * CHROMA_COLUMNS];
                for part in parts(cell_span(row, CHROMA_ROWS, plane.extent().height)) {
                    self.sum_band::<false>(plane, part);
                    reduce(plane.extent().width, cells, |span| sum_u16(&self.sums, span));
                }
            }
        }
    }

    /// Overwrites the column sums with those of the rows of `band`, at most [`PART_ROWS`].
    #[target_feature(enable = "avx2")]
    fn sum_band<const SQUARES: bool>(&mut self, plane: &Plane<'_>, band: Range<u32>) {
        match (plane.sample(), plane.step()) {
            (SampleFormat::U8, 1) => self.sum_rows::<SQUARES, 16>(plane, band, 0),
            (SampleFormat::U8, _) => self.sum_rows::<SQUARES, 32>(plane, band, 0),
            (SampleFormat::U16 { shift }, 1) => self.sum_rows::<SQUARES, 32>(plane, band, shift),
            (SampleFormat::U16 { shift }, _) => self.sum_rows::<SQUARES, 64>(plane, band, shift),
        }
    }

    /// Sums the rows of `band`. `BYTES` is the length of a vector's samples and of the samples in between.
    #[target_feature(enable = "avx2")]
    fn sum_rows<const SQUARES: bool, const BYTES: usize>(
        &mut self,
        plane: &Plane<'_>,
        band: Range<u32>,
        shift: u8,
    ) {
        let width = plane.extent().width as usize;
        let shift = _mm_cvtsi32_si128(i32::from(shift));
        self.sums[..width].fill(0);
        self.squares[..width].fill(0);
        let mut y = band.start;
        while y < band.end {
            y += match band.end - y {
                6.. => self.add_rows::<6, SQUARES, BYTES>(plane, y, shift),
                3.. => self.add_rows::<3, SQUARES, BYTES>(plane, y, shift),
                _ => self.add_rows::<1, SQUARES, BYTES>(plane, y, shift),
            };
        }
        let first = plane.row(band.start).len() / BYTES * LANES;
        self.add_last_columns(plane, band, first);
    }

    /// Adds the whole vectors of `ROWS` rows from `y` on and prefetches later rows; returns `ROWS`.
    #[target_feature(enable = "avx2")]
    fn add_rows<const ROWS: usize, const SQUARES: bool, const BYTES: usize>(
        &mut self,
        plane: &Plane<'_>,
        y: u32,
        shift: __m128i,
    ) -> u32 {
        let last = plane.extent().height - 1;
        let row = |ahead: u32, row: usize| plane.row(last.min(y + ahead + row as u32));
        let ahead: [_; ROWS] = std::array::from_fn(|at| row(ROWS_AHEAD, at));
        let vectors = row(0, 0).len() / BYTES;
        let rows: [_; ROWS] =
            std::array::from_fn(|at| &row(0, at).as_chunks::<BYTES>().0[..vectors]);
        let sums = &mut self.sums.as_chunks_mut::<LANES>().0[..vectors];
        let squares = &mut self.squares.as_chunks_mut::<LANES>().0[..vectors];
        for at in 0..vectors {
            if (at * BYTES).is_multiple_of(LINE_BYTES) {
                ahead.into_iter().for_each(|row| prefetch(row, at * BYTES));
            }
            let values = rows.map(|row| load(&row[at], shift));
            let total = values.into_iter().reduce(|a, b| _mm256_add_epi16(a, b)).expect("a row");
            let total = _mm256_add_epi16(load_256(&sums[at]), total);
            store_256(&mut sums[at], total);
            if SQUARES {
                let mut low = _mm256_setzero_si256();
                let mut high = _mm256_setzero_si256();
                for pair in values.chunks(2) {
                    let (a, b) = (pair[0], pair.get(1).copied().unwrap_or(_mm256_setzero_si256()));
                    // Interleaves two rows, so that the multiply-add sums the squares of both.
                    let (first, second) =
                        (_mm256_unpacklo_epi16(a, b), _mm256_unpackhi_epi16(a, b));
                    low = _mm256_add_epi32(low, _mm256_madd_epi16(first, first));
                    high = _mm256_add_epi32(high, _mm256_madd_epi16(second, second));
                }
                // Unpacking works within 128-bit halves; this restores the order of the columns.
                let first = _mm256_permute2x128_si256::<0x20>(low, high);
                let second = _mm256_permute2x128_si256::<0x31>(low, high);
                let (left, right) = squares[at].split_at_mut(LANES / 2);
                store_256(left, _mm256_add_epi32(load_256(left), first));
                store_256(right, _mm256_add_epi32(load_256(right), second));
            }
        }
        ROWS as u32
    }

    /// Adds the columns from `first` on, fewer than two vectors, one sample at a time.
    fn add_last_columns(&mut self, plane: &Plane<'_>, band: Range<u32>, first: usize) {
        let width = plane.extent().width as usize;
        for y in band {
            let row = plane.row(y);
            for x in first..width {
                let value = plane.value8(row, x as u32);
                self.sums[x] += u16::from(value);
                self.squares[x] += u32::from(value) * u32::from(value);
            }
        }
    }
}

/// Cuts a band into parts of at most [`PART_ROWS`] rows.
fn parts(band: Range<u32>) -> impl Iterator<Item = Range<u32>> {
    let starts = band.clone().step_by(PART_ROWS as usize);
    starts.map(move |start| start..band.end.min(start + PART_ROWS))
}

/// Prefetches the cache line with byte `at` of `row`.
fn prefetch(row: &[u8], at: usize) {
    // SAFETY: a prefetch affects caches only and accepts any address.
    unsafe { _mm_prefetch::<_MM_HINT_T0>(row.as_ptr().wrapping_add(at).cast()) }
}

/// Loads sixteen samples as eight-bit values into 16-bit lanes. Their bytes are contiguous, every other (or
/// words), or every other word.
#[target_feature(enable = "avx2")]
fn load<const BYTES: usize>(samples: &[u8; BYTES], shift: __m128i) -> __m256i {
    let words = match BYTES {
        16 => return _mm256_cvtepu8_epi16(load_128(samples)),
        32 => load_256(samples),
        _ => {
            let even = _mm256_set1_epi32(0xffff);
            let (first, second) = samples.split_at(32);
            let first = _mm256_and_si256(load_256(first), even);
            let second = _mm256_and_si256(load_256(second), even);
            // Packing works within 128-bit halves; the permutation restores the order of the columns.
            _mm256_permute4x64_epi64::<0b11_01_10_00>(_mm256_packus_epi32(first, second))
        }
    };
    _mm256_and_si256(_mm256_srl_epi16(words, shift), _mm256_set1_epi16(0xff))
}

/// Adds to each cell the `sum` of its columns.
#[target_feature(enable = "avx2")]
fn reduce(width: u32, cells: &mut [u32], sum: impl Fn(Range<u32>) -> u32) {
    let columns = cells.len();
    for (column, cell) in cells.iter_mut().enumerate() {
        *cell += sum(cell_span(column, columns, width));
    }
}

#[target_feature(enable = "avx2")]
fn sum_u16(columns: &[u16], span: Range<u32>) -> u32 {
    sum_eights(span, |at| _mm256_cvtepu16_epi32(load_128(&columns[at..at + 8])))
}

#[target_feature(enable = "avx2")]
fn sum_u32(columns: &[u32], span: Range<u32>) -> u32 {
    sum_eights(span, |at| load_256(&columns[at..at + 8]))
}

/// Returns the sum of the columns of `span`, eight at a time; lanes past its end are masked off.
#[target_feature(enable = "avx2")]
fn sum_eights(span: Range<u32>, eight: impl Fn(usize) -> __m256i) -> u32 {
    let lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    let mut total = _mm256_setzero_si256();
    let mut at = span.start;
    while at < span.end {
        let inside = _mm256_cmpgt_epi32(_mm256_set1_epi32((span.end - at) as i32), lanes);
        total = _mm256_add_epi32(total, _mm256_and_si256(eight(at as usize), inside));
        at += 8;
    }
    let half = _mm_add_epi32(_mm256_castsi256_si128(total), _mm256_extracti128_si256::<1>(total));
    let pair = _mm_add_epi32(half, _mm_unpackhi_epi64(half, half));
    _mm_cvtsi128_si32(_mm_add_epi32(pair, _mm_shuffle_epi32::<0b01>(pair))) as u32
}

/// Number type that vectors are loaded from and stored to.
trait Bits: Copy {}
impl Bits for u8 {}
impl Bits for u16 {}
impl Bits for u32 {}

#[target_feature(enable = "avx2")]
fn load_128<T: Bits>(from: &[T]) -> __m128i {
    assert!(size_of_val(from) == 16);
    // SAFETY: the slice is 16 bytes of plain numbers, and the load needs no alignment.
    unsafe { _mm_loadu_si128(from.as_ptr().cast()) }
}

#[target_feature(enable = "avx2")]
fn load_256<T: Bits>(from: &[T]) -> __m256i {
    assert!(size_of_val(from) == 32);
    // SAFETY: the slice is 32 bytes of plain numbers, and the load needs no alignment.
    unsafe { _mm256_loadu_si256(from.as_ptr().cast()) }
}

#[target_feature(enable = "avx2")]
fn store_256<T: Bits>(to: &mut [T], vector: __m256i) {
    assert!(size_of_val(to) == 32);
    // SAFETY: the slice is 32 writable bytes of plain numbers, and the store needs no alignment.
    unsafe { _mm256_storeu_si256(to.as_mut_ptr().cast(), vector) }
}
