//! Mean luma of each cell of a frame: a small new object changes it and may leave the embedding as it was.

use media::ParseError;

/// Columns of the grid, which is the gate's.
pub const COLUMNS: usize = 64;
/// Rows of the grid.
pub const ROWS: usize = 40;

/// Mean luma, in 0..=255, of each cell of the grid, row by row.
#[derive(Clone, PartialEq, Eq)]
pub struct CellMeans(Box<[u8]>);

impl CellMeans {
    /// Wraps the means; an error unless there is one for each of the 64 x 40 cells.
    pub fn new(means: impl Into<Box<[u8]>>) -> Result<CellMeans, ParseError> {
        let means = means.into();
        if means.len() != COLUMNS * ROWS {
            return Err(ParseError { what: "cell means", problem: "there must be 64 x 40" });
        }
        Ok(CellMeans(means))
    }

    /// Returns the largest difference between cells at the same position.
    pub fn largest_change(&self, other: &CellMeans) -> u8 {
        self.0.iter().zip(&other.0).map(|(a, b)| a.abs_diff(*b)).max().unwrap_or(0)
    }
}

impl std::fmt::Debug for CellMeans {
    /// Prints the least and the largest mean only: the grid has 2,560.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (least, most) = (self.0.iter().min(), self.0.iter().max());
        f.debug_struct("CellMeans").field("least", &least).field("most", &most).finish()
    }
}
