//! Movement in a picture: how much of it, where, and the zones that a caller watches.

use crate::{ParseError, Score};

/// Movement in a picture: the mean of a tenth of a second against that four tenths earlier, and, to suppress
/// noise, the mean of three tenths against the mean of the four that end there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Activity {
    /// Share of the cells that changed.
    pub score: Score,
    /// Box around the cells that changed.
    pub region: CellBox,
    /// Zones in which cells changed; bit `i` is set for the zone with index `i`.
    pub zones: u16,
}

impl Activity {
    /// Returns the indices of the bits that are set in `bits`, below [`Zone::MAX`].
    pub fn zone_indices(bits: u16) -> impl Iterator<Item = u16> {
        (0..Zone::MAX as u16).filter(move |zone| bits >> zone & 1 == 1)
    }

    /// Returns `indices` as a bit set; `None` if an index does not fit into 16 bits.
    pub fn zone_bits(indices: &[u16]) -> Option<u16> {
        indices.iter().try_fold(0, |bits, zone| Some(bits | 1u16.checked_shl((*zone).into())?))
    }
}

/// Cells of a picture's 64 columns and 40 rows: from `left` and `top` up to but without `right` and `bottom`.
/// An empty box has all sides 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(remote = "Self")]
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

crate::serde_checked!(CellBox, |cells| cells.right <= Self::COLUMNS && cells.bottom <= Self::ROWS);

/// Bit set over the cells of a picture: one word per row, the lowest bit is the first column.
pub type Cells = [u64; CellBox::ROWS as usize];

impl CellBox {
    /// Columns of cells of a picture.
    pub const COLUMNS: u8 = 64;
    /// Rows of cells of a picture.
    pub const ROWS: u8 = 40;

    /// Returns the smallest box that contains all set cells; the default box if none is set.
    pub fn around(cells: &Cells) -> CellBox {
        let all = cells.iter().fold(0, |all, row| all | row);
        let rows = || (0..Self::ROWS).zip(cells).filter(|(_, row)| **row != 0).map(|(y, _)| y);
        match (rows().next(), rows().next_back()) {
            (Some(top), Some(last)) => CellBox {
                left: all.trailing_zeros() as u8,
                top,
                right: Self::COLUMNS - all.leading_zeros() as u8,
                bottom: last + 1,
            },
            _ => CellBox::default(),
        }
    }

    /// Returns the cells of the box as a bit set.
    pub fn cells(self) -> Cells {
        let columns = (self.left..self.right.min(Self::COLUMNS)).fold(0, |row, x| row | 1 << x);
        let is_inside = |y: usize| (self.top.into()..self.bottom.into()).contains(&y);
        std::array::from_fn(|y| if is_inside(y) { columns } else { 0 })
    }

    /// Returns true if the box contains no cell.
    pub fn is_empty(self) -> bool {
        self.left >= self.right || self.top >= self.bottom
    }

    /// Returns the part of the box that lies in the picture.
    pub fn within_picture(self) -> CellBox {
        CellBox {
            right: self.right.min(Self::COLUMNS),
            bottom: self.bottom.min(Self::ROWS),
            ..self
        }
    }

    /// Returns left edge, top edge, width and height as fractions of the picture; all 0 for an empty box.
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

    /// Returns the cells that a box of these fractions touches; an error if the box leaves the picture.
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

    /// Returns the smallest box that contains both boxes; an empty box does not count.
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

/// Named part of the picture, a polygon.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(remote = "Self")]
pub struct Zone {
    /// Name in events.
    pub name: String,
    /// Corners in order, as fractions of the picture's width and height; the last corner joins the first.
    pub polygon: Vec<(Score, Score)>,
}

crate::serde_checked!(Zone, |zone| {
    let corners = Zone::CORNERS_MIN..=Zone::CORNERS_MAX;
    zone.name.len() <= Zone::NAME_BYTES_MAX && corners.contains(&zone.polygon.len())
});

impl Zone {
    /// Most zones of one recording.
    pub const MAX: usize = 16;
    /// Fewest corners of a zone.
    pub const CORNERS_MIN: usize = 3;
    /// Most corners of a zone.
    pub const CORNERS_MAX: usize = 32;
    /// Longest name of a zone, in bytes.
    pub const NAME_BYTES_MAX: usize = 64;

    /// Returns the cells whose centre lies inside the polygon, by the even-odd rule.
    pub fn cells(&self) -> Cells {
        std::array::from_fn(|row| {
            let y = middle(row, CellBox::ROWS);
            (0..usize::from(CellBox::COLUMNS)).fold(0, |bits, column| {
                let is_inside = self.holds(middle(column, CellBox::COLUMNS), y);
                bits | u64::from(is_inside) << column
            })
        })
    }

    /// Returns true if the point lies inside by the even-odd rule; `x`, `y` in half millionths of a side.
    fn holds(&self, x: i64, y: i64) -> bool {
        let corner =
            |(x, y): (Score, Score)| (2 * i64::from(x.millionths()), 2 * i64::from(y.millionths()));
        let ends = self.polygon.iter().cycle().skip(1);
        let crossed = self.polygon.iter().zip(ends).filter(|(a, b)| {
            let mut side = [corner(**a), corner(**b)];
            side.sort_by_key(|(_, y)| *y);
            let [(top_x, top_y), (low_x, low_y)] = side;
            // The side crosses the height of the point to the right of it.
            let (across, down) = (low_x - top_x, low_y - top_y);
            (top_y..low_y).contains(&y) && (x - top_x) * down < across * (y - top_y)
        });
        crossed.count() % 2 == 1
    }
}

/// Returns the centre of cell `at` out of `cells`, in half millionths of the side.
fn middle(at: usize, cells: u8) -> i64 {
    i64::from(Score::SCALE) * (2 * at as i64 + 1) / i64::from(cells)
}

/// Zones of a recording.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(remote = "Self")]
pub struct Zones {
    /// Zones, at most [`Zone::MAX`], in the order of the bits of [`Activity::zones`].
    pub zones: Vec<Zone>,
    /// True if cells outside all zones are ignored.
    pub only: bool,
}

crate::serde_checked!(Zones, |zones| zones.zones.len() <= Zone::MAX);

impl Zones {
    /// Returns the names of the zones in order.
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
                assert_eq!(CellBox::around(&cells.cells()), cells);
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
        assert_eq!(CellBox::around(&CellBox::default().cells()), CellBox::default());
    }

    #[test]
    fn a_zone_has_the_cells_whose_middle_lies_inside() {
        type Row<'a> = (&'a str, &'a [(u32, u32)], u32);
        let rows: [Row<'_>; 9] = [
            ("all", &[(0, 0), (100, 0), (100, 100), (0, 100)], 2560),
            ("left half", &[(0, 0), (50, 0), (50, 100), (0, 100)], 1280),
            ("the other way round", &[(0, 0), (0, 100), (50, 100), (50, 0)], 1280),
            ("a corner", &[(50, 50), (100, 50), (100, 75), (50, 75)], 320),
            ("crossed", &[(0, 0), (100, 0), (0, 100), (100, 100)], 1280),
            ("triangle", &[(0, 0), (100, 0), (0, 100)], 1280),
            ("a line", &[(10, 10), (90, 90), (10, 10)], 0),
            ("between the middles", &[(1, 1), (1, 1), (1, 2)], 0),
            ("no corner", &[], 0),
        ];
        for (name, corners, expected) in rows {
            let score = |percent: u32| Score::from_millionths(percent * 10_000);
            let polygon = corners.iter().map(|&(x, y)| (score(x), score(y))).collect();
            let cells = Zone { name: name.to_owned(), polygon }.cells();
            let count: u32 = cells.iter().map(|row| row.count_ones()).sum();
            assert!(count.abs_diff(expected) <= 16, "{name}: {count}");
        }
    }
}
