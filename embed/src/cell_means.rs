//! The mean brightness of each part of a frame: what a small new thing changes and an embedding hides.

use media::ParseError;

/// Columns of cells; the gate's grid.
pub const COLUMNS: usize = 64;
/// Rows of cells.
pub const ROWS: usize = 40;

/// The mean luma, in 0..=255, of each cell of the grid, row by row.
#[derive(Clone, PartialEq, Eq)]
pub struct CellMeans(Box<[u8]>);

impl CellMeans {
    /// An error unless there is one mean for each of the 64 x 40 cells.
    pub fn new(means: impl Into<Box<[u8]>>) -> Result<CellMeans, ParseError> {
        let means = means.into();
        if means.len() != COLUMNS * ROWS {
            return Err(ParseError { what: "cell means", problem: "there must be 64 x 40" });
        }
        Ok(CellMeans(means))
    }

    /// The largest difference between two cells of the same place.
    pub fn largest_change(&self, other: &CellMeans) -> u8 {
        self.0.iter().zip(&other.0).map(|(a, b)| a.abs_diff(*b)).max().unwrap_or(0)
    }
}

impl std::fmt::Debug for CellMeans {
    /// The span alone: nobody reads 2,560 numbers.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (least, most) = (self.0.iter().min(), self.0.iter().max());
        f.debug_struct("CellMeans").field("least", &least).field("most", &most).finish()
    }
}
