//! Values that the rules derive from the cells: means, spreads, blocks, hash. Integers only.

use media::{Dimensions, Score};

use crate::{
    FrameMeasurements,
    cells::{CHROMA_COLUMNS, CHROMA_ROWS, LUMA_COLUMNS, LUMA_ROWS, cell_length},
    perceptual_hash::perceptual_hash,
};

/// Luma cells of a picture.
pub(crate) const CELLS: usize = LUMA_COLUMNS * LUMA_ROWS;
/// Cells along a side of a block; the blocks of the flicker and scene rules.
pub(crate) const BLOCK: usize = 8;
pub(crate) const BLOCK_COLUMNS: usize = LUMA_COLUMNS / BLOCK;
pub(crate) const BLOCKS: usize = BLOCK_COLUMNS * (LUMA_ROWS / BLOCK);
/// Units of a cell mean in one eight-bit level: noise moves the mean of a 1080p cell by less than a thirtieth
/// of its effect on a sample, which whole levels would hide.
pub(crate) const LEVEL: u32 = 64;
/// Units of a cell spread in one squared level.
pub(crate) const SPREAD: u32 = 16;

/// Picture reduced to its cells.
#[derive(Clone, Debug)]
pub(crate) struct CellThumbnail {
    /// Mean of each cell in 1/[`LEVEL`].
    pub(crate) luma: [u16; CELLS],
    /// Mean of each cell in whole levels.
    pub(crate) levels: [u8; CELLS],
    /// Variance of the samples within each cell in 1/[`SPREAD`].
    pub(crate) spread: [u32; CELLS],
    /// Mean of the cells of each block in 1/[`LEVEL`].
    pub(crate) blocks: [u16; BLOCKS],
    /// Mean of U and of V over each block in 1/[`LEVEL`]; 0 where there is no chroma.
    pub(crate) chroma_blocks: [[u16; BLOCKS]; 2],
    /// Number of samples of an average cell.
    pub(crate) cell_samples: u32,
    /// Mean of the cells in 1/[`LEVEL`].
    pub(crate) mean: u32,
    /// Standard deviation of the cells in 1/[`LEVEL`].
    pub(crate) deviation: u32,
    /// Mean luma of the picture.
    pub(crate) luma_mean: Score,
    /// Perceptual hash of the picture.
    pub(crate) hash: u64,
}

/// Writes the mean of each cell to `means`, as in [`CellThumbnail`].
pub(crate) fn luma_means(measured: &FrameMeasurements, means: &mut [u16; CELLS]) {
    each_cell(measured.extent, |cell, divisor| {
        means[cell] = divisor.mean(measured.luma_cells[cell]);
    });
}

/// Calls `of` with each cell of a picture and the reciprocal of its sample count.
#[inline(always)]
fn each_cell(extent: Dimensions, mut of: impl FnMut(usize, &Reciprocal)) {
    let columns: [u32; LUMA_COLUMNS] =
        std::array::from_fn(|column| cell_length(column, LUMA_COLUMNS, extent.width));
    // Sides of cells differ by at most one, so four divisors serve a picture.
    let (short, narrow) = (cell_length(0, LUMA_ROWS, extent.height), columns[0]);
    let divisors = [short, short + 1]
        .map(|rows| [narrow, narrow + 1].map(|columns| Reciprocal::new(rows * columns)));
    for row in 0..LUMA_ROWS {
        let tall = cell_length(row, LUMA_ROWS, extent.height) != short;
        let divisors = &divisors[usize::from(tall)];
        for (column, &width) in columns.iter().enumerate() {
            of(row * LUMA_COLUMNS + column, &divisors[usize::from(width != narrow)]);
        }
    }
}

impl CellThumbnail {
    /// Returns a thumbnail to be overwritten by [`CellThumbnail::derive`].
    pub(crate) fn blank() -> CellThumbnail {
        CellThumbnail {
            luma: [0; CELLS],
            levels: [0; CELLS],
            spread: [0; CELLS],
            blocks: [0; BLOCKS],
            chroma_blocks: [[0; BLOCKS]; 2],
            cell_samples: 1,
            mean: 0,
            deviation: 0,
            luma_mean: Score::ZERO,
            hash: 0,
        }
    }

    /// Overwrites all fields from `measured`.
    pub(crate) fn derive(&mut self, measured: &FrameMeasurements) {
        let (mut total, mut samples) = (0u64, 0u64);
        each_cell(measured.extent, |cell, divisor| {
            let (sum, squares) = (measured.luma_cells[cell], measured.luma_squares[cell]);
            let mean = divisor.mean(sum);
            self.luma[cell] = mean;
            self.levels[cell] = ((u32::from(mean) + LEVEL / 2) / LEVEL) as u8;
            self.spread[cell] = divisor.variance(sum, squares);
            total += u64::from(sum);
            samples += u64::from(divisor.count);
        });
        self.cell_samples = (samples / CELLS as u64) as u32;
        self.luma_mean = Score::from_ratio(total, samples * 255);
        self.blocks = block_means(&self.luma);
        self.derive_chroma(measured);
        self.derive_deviation();
        self.hash = perceptual_hash(&self.luma);
    }

    fn derive_chroma(&mut self, measured: &FrameMeasurements) {
        self.chroma_blocks = [[0; BLOCKS]; 2];
        let Some(extent) = measured.chroma_extent else { return };
        let across = CHROMA_COLUMNS / BLOCK_COLUMNS;
        let down = CHROMA_ROWS / (BLOCKS / BLOCK_COLUMNS);
        for (sums, blocks) in measured.chroma_cells.iter().zip(&mut self.chroma_blocks) {
            for (block, mean) in blocks.iter_mut().enumerate() {
                let (left, top) = (block % BLOCK_COLUMNS * across, block / BLOCK_COLUMNS * down);
                let (mut sum, mut count) = (0u64, 0u64);
                for row in top..top + down {
                    let rows = cell_length(row, CHROMA_ROWS, extent.height);
                    for column in left..left + across {
                        sum += u64::from(sums[row * CHROMA_COLUMNS + column]);
                        let columns = cell_length(column, CHROMA_COLUMNS, extent.width);
                        count += u64::from(rows * columns);
                    }
                }
                *mean = (sum * u64::from(LEVEL) / count) as u16;
            }
        }
    }

    fn derive_deviation(&mut self) {
        let sum: u32 = self.luma.iter().map(|&mean| u32::from(mean)).sum();
        self.mean = sum / CELLS as u32;
        let mean = self.mean as i32;
        let squares: u64 = self
            .luma
            .iter()
            .map(|&cell| u64::from((i32::from(cell) - mean).unsigned_abs().pow(2)))
            .sum();
        self.deviation = (squares / CELLS as u64).isqrt() as u32;
    }
}

pub(crate) fn block_means(luma: &[u16; CELLS]) -> [u16; BLOCKS] {
    let mut sums = [0u32; BLOCKS];
    for (row, cells) in luma.chunks_exact(LUMA_COLUMNS).enumerate() {
        for (column, cells) in cells.chunks_exact(BLOCK).enumerate() {
            let sum: u32 = cells.iter().map(|&mean| u32::from(mean)).sum();
            sums[row / BLOCK * BLOCK_COLUMNS + column] += sum;
        }
    }
    sums.map(|sum| (sum / (BLOCK * BLOCK) as u32) as u16)
}

/// Reciprocal of the sample count of a cell: 2,560 divisions a frame would cost more than the rules.
#[derive(Clone, Copy)]
struct Reciprocal {
    count: u32,
    of_count: u64,
    of_square: u64,
}

impl Reciprocal {
    fn new(count: u32) -> Reciprocal {
        let wide = u64::from(count);
        Reciprocal { count, of_count: (1 << 40) / wide + 1, of_square: (1 << 60) / (wide * wide) }
    }

    /// Returns `sum / count` in 1/[`LEVEL`], rounded.
    fn mean(self, sum: u32) -> u16 {
        // For every picture, sum < 2^23 and of_count <= 2^40 + 1.
        let quarter_units = u64::from(sum).saturating_mul(self.of_count) >> 32;
        ((quarter_units + 2) / 4).min(255 * u64::from(LEVEL)) as u16
    }

    /// Returns the variance given by `sum` and `squares`, in 1/[`SPREAD`].
    fn variance(self, sum: u32, squares: u32) -> u32 {
        // Saturates, so that sums that no picture has do not panic.
        let scaled = (u64::from(squares) * u64::from(self.count))
            .saturating_sub(u64::from(sum) * u64::from(sum));
        ((u128::from(scaled) * u128::from(self.of_square)) >> 56) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        MeasureBackend, ReferenceBackend,
        conformance::{Fill, TestPicture},
    };

    fn thumb(picture: TestPicture) -> (CellThumbnail, FrameMeasurements) {
        let mut measured = Vec::new();
        let frame = picture.frame();
        ReferenceBackend.measure(&[frame], &mut measured).expect("measurable");
        let mut thumb = CellThumbnail::blank();
        thumb.derive(&measured[0]);
        (thumb, measured.remove(0))
    }

    #[test]
    fn means_and_spreads_are_those_of_the_division() {
        for (width, height) in [(1, 1), (7, 300), (64, 40), (333, 217), (1920, 1080)] {
            let (thumb, measured) = thumb(TestPicture::new(width, height));
            for cell in 0..CELLS {
                let columns = cell_length(cell % LUMA_COLUMNS, LUMA_COLUMNS, width);
                let rows = cell_length(cell / LUMA_COLUMNS, LUMA_ROWS, height);
                let count = f64::from(columns * rows);
                let mean = f64::from(measured.luma_cells[cell]) / count;
                let spread = f64::from(measured.luma_squares[cell]) / count - mean * mean;
                let error = (mean - f64::from(thumb.luma[cell]) / f64::from(LEVEL)).abs();
                assert!(error <= 0.51 / f64::from(LEVEL), "{width}x{height} mean of {cell}");
                let error = (spread - f64::from(thumb.spread[cell]) / f64::from(SPREAD)).abs();
                assert!(error <= 0.1, "{width}x{height} spread of {cell}: off by {error}");
            }
            let extent = measured.chroma_extent.expect("has chroma");
            for (block, plane) in (0..BLOCKS).flat_map(|block| [(block, 0), (block, 1)]) {
                let cells = (0..CHROMA_ROWS * CHROMA_COLUMNS).filter(|cell| {
                    let (row, column) = (cell / CHROMA_COLUMNS, cell % CHROMA_COLUMNS);
                    let rows = CHROMA_ROWS / (BLOCKS / BLOCK_COLUMNS);
                    let columns = CHROMA_COLUMNS / BLOCK_COLUMNS;
                    row / rows * BLOCK_COLUMNS + column / columns == block
                });
                let (sum, count) = cells.fold((0.0, 0.0), |(sum, count), cell| {
                    let columns = cell_length(cell % CHROMA_COLUMNS, CHROMA_COLUMNS, extent.width);
                    let rows = cell_length(cell / CHROMA_COLUMNS, CHROMA_ROWS, extent.height);
                    let samples = f64::from(columns * rows);
                    (sum + f64::from(measured.chroma_cells[plane][cell]), count + samples)
                });
                let mean = f64::from(thumb.chroma_blocks[plane][block]) / f64::from(LEVEL);
                let error = (sum / count - mean).abs();
                assert!(error <= 1.0 / f64::from(LEVEL), "{width}x{height} {plane} of {block}");
            }
        }
    }

    #[test]
    fn a_flat_picture_has_its_level_everywhere() {
        for level in [0, 1, 16, 235, 255] {
            let (thumb, _) =
                thumb(TestPicture { fill: Fill::Flat(level), ..TestPicture::new(641, 361) });
            assert!(thumb.levels.iter().all(|&cell| cell == level), "level {level}");
            assert_eq!((thumb.deviation, thumb.hash), (0, 0), "level {level}");
            assert_eq!(thumb.luma_mean, Score::from_ratio(u64::from(level), 255));
            assert!(thumb.spread.iter().all(|&spread| spread == 0), "level {level}");
        }
    }
}
