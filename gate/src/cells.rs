//! Cell geometry: which samples of a plane a cell of the grid covers.
//!
//! One rule for every size, plane and backend. A side of at least as many samples as cells is cut
//! into parts without gap or overlap; on a shorter side each cell is the one sample below it.

use std::ops::Range;

use media::CellBox;

/// Columns of luma cells; eight of them nest in each column of the perceptual hash.
pub const LUMA_COLUMNS: usize = CellBox::COLUMNS as usize;
/// Rows of luma cells; five of them nest in each row of the perceptual hash.
pub const LUMA_ROWS: usize = CellBox::ROWS as usize;
/// Columns of cells of each chroma plane.
pub const CHROMA_COLUMNS: usize = 32;
/// Rows of cells of each chroma plane.
pub const CHROMA_ROWS: usize = 20;

/// Returns the samples that cell `index` of `cells` covers on a side of `length` (1..=8192) samples: from
/// `index * length / cells` up to `(index + 1) * length / cells`, but at least one.
pub fn cell_span(index: usize, cells: usize, length: u32) -> Range<u32> {
    let (index, cells) = (index as u32, cells as u32);
    let start = index * length / cells;
    start..((index + 1) * length / cells).max(start + 1)
}

/// Returns the number of samples of [`cell_span`].
pub(crate) fn cell_length(index: usize, cells: usize, length: u32) -> u32 {
    let span = cell_span(index, cells, length);
    span.end - span.start
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_partition_long_sides_and_repeat_samples_of_short_ones() {
        for length in (1..=200).chain([1079, 1080, 1920, 4095, 8191, 8192]) {
            let spans: Vec<Range<u32>> = (0..64).map(|cell| cell_span(cell, 64, length)).collect();
            assert_eq!(spans[0].start, 0, "{length}");
            assert_eq!(spans[63].end, length, "{length}");
            for pair in spans.windows(2) {
                assert!(pair[0].start < pair[0].end, "{length}");
                let gap_free = pair[1].start == pair[0].end;
                let repeats = pair[1].start == pair[0].start || pair[1].start + 1 == pair[1].end;
                assert!(if length >= 64 { gap_free } else { repeats }, "{length}");
            }
        }
    }

    #[test]
    fn the_hash_grid_nests_in_the_cell_grid() {
        for length in [64, 100, 1080, 8191] {
            for block in 0..8 {
                let cells =
                    (cell_span(8 * block, 64, length), cell_span(8 * block + 7, 64, length));
                let whole = cell_span(block, 8, length);
                assert_eq!((cells.0.start, cells.1.end), (whole.start, whole.end), "{length}");
            }
        }
    }
}
