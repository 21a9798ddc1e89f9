//! 64-bit perceptual hash: one bit for each block of an 8x8 grid over the luma cells.

use crate::{
    cells::{LUMA_COLUMNS, LUMA_ROWS},
    thumbnail::CELLS,
};

const SIDE: usize = 8;

/// Returns the hash. Bit `8 * row + column`, counted from the most significant, is set if the block is
/// brighter than the median block.
pub(crate) fn perceptual_hash(luma: &[u16; CELLS]) -> u64 {
    let mut blocks = [0u32; SIDE * SIDE];
    for (row, cells) in luma.chunks_exact(LUMA_COLUMNS).enumerate() {
        let row = row / (LUMA_ROWS / SIDE);
        for (column, cells) in cells.chunks_exact(LUMA_COLUMNS / SIDE).enumerate() {
            let sum: u32 = cells.iter().map(|&mean| u32::from(mean)).sum();
            blocks[row * SIDE + column] += sum;
        }
    }
    let mut sorted = blocks;
    sorted.sort_unstable();
    let median = u32::midpoint(sorted[SIDE * SIDE / 2 - 1], sorted[SIDE * SIDE / 2]);
    blocks.iter().fold(0, |hash, &block| hash << 1 | u64::from(block > median))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_are_rows_of_blocks_brighter_than_the_median() {
        let halves = |bright: fn(usize, usize) -> bool| {
            let luma: [u16; CELLS] = std::array::from_fn(|cell| {
                if bright(cell % LUMA_COLUMNS, cell / LUMA_COLUMNS) { 9000 } else { 2000 }
            });
            perceptual_hash(&luma)
        };
        let cases = [
            ("upper half", halves(|_, y| y < 20), 0xffff_ffff_0000_0000),
            ("right half", halves(|x, _| x >= 32), 0x0f0f_0f0f_0f0f_0f0f),
            ("one block", halves(|x, y| x < 8 && y < 5), 1 << 63),
            ("most are the median", halves(|_, y| y < 25), 0),
        ];
        for (name, hash, expected) in cases {
            assert_eq!(hash, expected, "{name}");
        }
    }
}
