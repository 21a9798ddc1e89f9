//! Movement in a picture: how much of it, where, and the zones that a caller watches.

use crate::{ParseError, Score};

/// Movement in a picture against those of the last fifth of a second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Activity {
    /// Share of the cells that changed.
    pub score: Score,
    /// Box around the cells that changed.
    pub region: CellBox,
    /// Zones in which cells changed: bit `i` stands for the `i`th.
    pub zones: u16,
}

impl Activity {
    /// Indices of the zones that these bits stand for.
    pub fn zone_indices(bits: u16) -> impl Iterator<Item = u16> {
        (0..Zone::MAX as u16).filter(move |zone| bits >> zone & 1 == 1)
    }

    /// Bits of the zones of these indices; `None` where one is no index.
    pub fn zone_bits(indices: &[u16]) -> Option<u16> {
        indices.iter().try_fold(0, |bits, zone| Some(bits | 1u16.checked_shl((*zone).into())?))
    }
}

/// Cells of a picture's 64 columns and 40 rows: from `left` and `top` up to but without `right` and `bottom`.
/// All 0 where there is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CellBox {
    /// First column.
    pub left: u8,
    /// First row.
    pub top: u8,
    /// One past the last column.
    pub right: u8,
    /// One past the last row.
    pub bottom: u8,
}

impl CellBox {
    /// Columns of cells of a picture.
    pub const COLUMNS: u8 = 64;
    /// Rows of cells of a picture.
    pub const ROWS: u8 = 40;

    /// Returns true if no cell lies in it.
    pub fn is_empty(self) -> bool {
        self.left >= self.right || self.top >= self.bottom
    }

    /// Returns the part that lies in the picture.
    pub fn within_picture(self) -> CellBox {
        CellBox {
            right: self.right.min(Self::COLUMNS),
            bottom: self.bottom.min(Self::ROWS),
            ..self
        }
    }

    /// Left edge, top edge, width and height, as fractions of the picture.
    pub fn fractions(self) -> [Score; 4] {
        let (across, down) =
            (Score::SCALE / u32::from(Self::COLUMNS), Score::SCALE / u32::from(Self::ROWS));
        let part = |cells: u8, unit: u32| Score::from_millionths(u32::from(cells) * unit);
        if self.is_empty() {
            return [Score::ZERO; 4];
        }
        let (width, height) = (self.right - self.left, self.bottom - self.top);
        [part(self.left, across), part(self.top, down), part(width, across), part(height, down)]
    }

    /// The cells that a box of these fractions touches; an error where it leaves the picture.
    pub fn from_fractions([x, y, width, height]: [Score; 4]) -> Result<CellBox, ParseError> {
        let span = |start: Score, length: Score, cells: u8| {
            let unit = Score::SCALE / u32::from(cells);
            let end = start.millionths() + length.millionths();
            let first = start.millionths() / unit;
            (end <= Score::SCALE).then(|| (first as u8, end.div_ceil(unit) as u8))
        };
        match (span(x, width, Self::COLUMNS), span(y, height, Self::ROWS)) {
            (Some((left, right)), Some((top, bottom))) => {
                let cells = CellBox { left, top, right, bottom };
                let is_empty = width == Score::ZERO || height == Score::ZERO;
                Ok(if is_empty { CellBox::default() } else { cells })
            }
            _ => Err(ParseError { what: "region", problem: "must lie in the picture" }),
        }
    }

    /// Returns the smallest box around both.
    pub fn union(self, other: CellBox) -> CellBox {
        match (self.is_empty(), other.is_empty()) {
            (true, _) => other,
            (_, true) => self,
            _ => CellBox {
                left: self.left.min(other.left),
                top: self.top.min(other.top),
                right: self.right.max(other.right),
                bottom: self.bottom.max(other.bottom),
            },
        }
    }
}

/// Named part of the picture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Zone {
    /// Name in events.
    pub name: String,
    /// Corners in order, each a fraction of the picture's width and of its height; the last joins the first.
    pub polygon: Vec<(Score, Score)>,
}

impl Zone {
    /// Most zones of a recording.
    pub const MAX: usize = 16;
    /// Fewest corners of one.
    pub const CORNERS_MIN: usize = 3;
    /// Most corners of one.
    pub const CORNERS_MAX: usize = 32;
    /// Longest name.
    pub const NAME_BYTES_MAX: usize = 64;
}

/// Zones of a recording.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Zones {
    /// At most [`Zone::MAX`], in the order of the bits of [`Activity::zones`].
    pub zones: Vec<Zone>,
    /// Cells outside of all zones do not count.
    pub only: bool,
}

impl Zones {
    /// Their names, in order.
    pub fn names(&self) -> Vec<String> {
        self.zones.iter().map(|zone| zone.name.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_box_of_cells_is_told_exactly() {
        let boxes = (0..64).flat_map(|left| (left + 1..=64).map(move |right| (left, right)));
        for (left, right) in boxes {
            for (top, bottom) in [(0, 1), (39, 40), (0, 40), (7, 23)] {
                let cells = CellBox { left, top, right, bottom };
                assert_eq!(CellBox::from_fractions(cells.fractions()), Ok(cells));
            }
        }
        let score = Score::from_millionths;
        let rows = [
            ([0, 0, 0, 0], Some((0, 0, 0, 0))),
            ([10, 10, 10, 10], Some((0, 0, 1, 1))),
            ([15_625, 25_000, 15_626, 25_001], Some((1, 1, 3, 3))),
            ([500_000, 0, 500_001, 1], None),
        ];
        for (fractions, expected) in rows {
            let found = CellBox::from_fractions(fractions.map(score)).ok();
            let sides = |cells: CellBox| (cells.left, cells.top, cells.right, cells.bottom);
            assert_eq!(found.map(sides), expected, "{fractions:?}");
        }
        assert_eq!(CellBox::default().fractions(), [Score::ZERO; 4]);
    }
}
