//! What every rule derives from the cells: means, spreads, blocks, hash. Integers only.

use media::Score;

use crate::{
    Measurements,
    cells::{CHROMA_COLUMNS, CHROMA_ROWS, LUMA_COLUMNS, LUMA_ROWS, cell_span},
    phash::perceptual_hash,
};

/// Luma cells of a picture.
pub(crate) const CELLS: usize = LUMA_COLUMNS * LUMA_ROWS;
/// Cells along a side of a block; the blocks of the flicker and scene rules.
pub(crate) const BLOCK: usize = 8;
/// Columns of blocks.
pub(crate) const BLOCK_COLUMNS: usize = LUMA_COLUMNS / BLOCK;
/// Blocks of a picture.
pub(crate) const BLOCKS: usize = BLOCK_COLUMNS * (LUMA_ROWS / BLOCK);
/// Units of a cell mean in one eight-bit level: noise moves the mean of a 1080p cell by less
/// than a thirtieth of what it moves a sample, so whole levels would hide it.
pub(crate) const LEVEL: u32 = 64;
/// Units of a cell spread in one squared level.
pub(crate) const SPREAD: u32 = 16;

/// One picture reduced to its cells.
#[derive(Clone, Debug)]
pub(crate) struct Thumb {
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
    /// Samples of an average cell.
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

impl Thumb {
    /// A thumb to be written over by [`Thumb::derive`].
    pub(crate) fn blank() -> Thumb {
        Thumb {
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

    /// Overwrites everything from `measured`.
    pub(crate) fn derive(&mut self, measured: &Measurements) {
        let (width, height) = (measured.extent.width, measured.extent.height);
        let mut samples = 0u64;
        let mut total = 0u64;
        for row in 0..LUMA_ROWS {
            let rows = cell_span(row, LUMA_ROWS, height).count();
            let mut parts = [Reciprocal::default(); 2];
            for column in 0..LUMA_COLUMNS {
                let count = rows * cell_span(column, LUMA_COLUMNS, width).count();
                // Widths of cells differ by one at most, so two reciprocals serve a row.
                let slot = usize::from(parts[0].count != 0 && parts[0].count != count);
                if parts[slot].count != count {
                    parts[slot] = Reciprocal::new(count);
                }
                let cell = row * LUMA_COLUMNS + column;
                let (sum, squares) = (measured.luma_cells[cell], measured.luma_squares[cell]);
                let mean = parts[slot].mean(sum);
                self.luma[cell] = mean;
                self.levels[cell] = ((u32::from(mean) + LEVEL / 2) / LEVEL) as u8;
                self.spread[cell] = parts[slot].variance(sum, squares);
                samples += u64::from(count);
                total += u64::from(sum);
            }
        }
        self.cell_samples = (samples / CELLS as u64) as u32;
        self.luma_mean = Score::from_ratio(total, samples * 255);
        self.derive_blocks();
        self.derive_chroma(measured);
        self.derive_deviation();
        self.hash = perceptual_hash(&self.luma);
    }

    fn derive_blocks(&mut self) {
        let mut sums = [0u32; BLOCKS];
        for (row, cells) in self.luma.chunks_exact(LUMA_COLUMNS).enumerate() {
            for (column, cells) in cells.chunks_exact(BLOCK).enumerate() {
                let sum: u32 = cells.iter().map(|&mean| u32::from(mean)).sum();
                sums[row / BLOCK * BLOCK_COLUMNS + column] += sum;
            }
        }
        for (block, sum) in self.blocks.iter_mut().zip(sums) {
            *block = (sum / (BLOCK * BLOCK) as u32) as u16;
        }
    }

    fn derive_chroma(&mut self, measured: &Measurements) {
        self.chroma_blocks = [[0; BLOCKS]; 2];
        let Some(extent) = measured.chroma_extent else { return };
        let across = CHROMA_COLUMNS / BLOCK_COLUMNS;
        let down = CHROMA_ROWS / (BLOCKS / BLOCK_COLUMNS);
        for (sums, blocks) in measured.chroma_cells.iter().zip(&mut self.chroma_blocks) {
            for (block, mean) in blocks.iter_mut().enumerate() {
                let (left, top) = (block % BLOCK_COLUMNS * across, block / BLOCK_COLUMNS * down);
                let (mut sum, mut count) = (0u64, 0u64);
                for row in top..top + down {
                    let rows = cell_span(row, CHROMA_ROWS, extent.height).count();
                    for column in left..left + across {
                        sum += u64::from(sums[row * CHROMA_COLUMNS + column]);
                        let columns = cell_span(column, CHROMA_COLUMNS, extent.width).count();
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

/// Divides by the sample count of a cell: 2,560 divisions a frame would cost more than the rules.
#[derive(Clone, Copy, Default)]
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

    /// `sum / count` in 1/[`LEVEL`], rounded.
    fn mean(self, sum: u32) -> u16 {
        // Of any picture sum < 2^23, and of_count <= 2^40 + 1.
        let quarter_units = u64::from(sum).saturating_mul(self.of_count) >> 32;
        ((quarter_units + 2) / 4).min(255 * u64::from(LEVEL)) as u16
    }

    /// The variance behind `sum` and `squares` in 1/[`SPREAD`].
    fn variance(self, sum: u32, squares: u32) -> u32 {
        // Sums that no picture has must not panic.
        let scaled = (u64::from(squares) * u64::from(self.count))
            .saturating_sub(u64::from(sum) * u64::from(sum));
        ((u128::from(scaled) * u128::from(self.of_square)) >> 56) as u32
    }
}
