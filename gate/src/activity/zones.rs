//! Zones as sets of cells.

use media::{Activity, CellBox, Cells, Score, Zone, Zones};

use super::population;
use crate::cells::LUMA_ROWS;

/// Cells of each zone, and the cells that count. A cell belongs to a zone if its middle lies inside.
#[derive(Clone, Debug)]
pub struct ZoneMask {
    counted: Cells,
    count: u32,
    zones: Vec<Cells>,
}

impl Default for ZoneMask {
    fn default() -> ZoneMask {
        ZoneMask::new(&Zones::default())
    }
}

impl ZoneMask {
    /// Makes the mask of `zones`, of which the first [`Zone::MAX`] are used.
    pub fn new(zones: &Zones) -> ZoneMask {
        let masks: Vec<Cells> = zones.zones.iter().take(Zone::MAX).map(Zone::cells).collect();
        let counted = match zones.only {
            true => masks.iter().fold([0; LUMA_ROWS], |all, zone| both(&all, zone, |a, b| a | b)),
            false => [u64::MAX; LUMA_ROWS],
        };
        ZoneMask { counted, count: population(&counted), zones: masks }
    }

    /// Returns the activity of a picture in which these cells changed.
    pub(super) fn activity(&self, changed: &Cells) -> Activity {
        let counted = both(changed, &self.counted, |a, b| a & b);
        Activity {
            score: Score::from_ratio(population(&counted).into(), self.count.into()),
            region: CellBox::around(&counted),
            zones: self.touched(&counted),
        }
    }

    /// Returns the cells that count.
    pub fn counted(&self) -> &Cells {
        &self.counted
    }

    /// Returns the cells of each zone, in the order of the bits.
    pub fn zones(&self) -> &[Cells] {
        &self.zones
    }

    /// Returns the zones that contain any of these cells: bit `i` stands for zone `i`.
    pub fn touched(&self, cells: &Cells) -> u16 {
        let has_any = |zone: &Cells| zone.iter().zip(cells).any(|(a, b)| a & b != 0);
        let zones = self.zones.iter().enumerate();
        zones.fold(0, |bits, (at, zone)| bits | u16::from(has_any(zone)) << at)
    }
}

fn both(a: &Cells, b: &Cells, join: impl Fn(u64, u64) -> u64) -> Cells {
    std::array::from_fn(|row| join(a[row], b[row]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn zone(corners: &[(u32, u32)]) -> Zone {
        let score = |percent: u32| Score::from_millionths(percent * 10_000);
        let polygon = corners.iter().map(|&(x, y)| (score(x), score(y))).collect();
        Zone { name: "door".to_owned(), polygon }
    }

    #[test]
    fn only_what_counts_is_told() {
        let zones = vec![
            zone(&[(0, 0), (50, 0), (50, 100), (0, 100)]),
            zone(&[(25, 0), (75, 0), (75, 100), (25, 100)]),
            // In the first zone, and below the cells that changed.
            zone(&[(0, 50), (50, 50), (50, 100), (0, 100)]),
        ];
        let mut changed = [0u64; LUMA_ROWS];
        changed[3] = 1 << 20 | 1 << 63;
        changed[9] = 1 << 4;
        let all = ZoneMask::new(&Zones { zones: zones.clone(), only: false }).activity(&changed);
        let only = ZoneMask::new(&Zones { zones, only: true }).activity(&changed);
        let region = CellBox { left: 4, top: 3, right: 64, bottom: 10 };
        assert_eq!(all, Activity { score: Score::from_ratio(3, 2560), region, zones: 0b11 });
        let region = CellBox { right: 21, ..region };
        assert_eq!(only, Activity { score: Score::from_ratio(2, 1920), region, zones: 0b11 });
        assert_eq!(ZoneMask::default().activity(&[0; LUMA_ROWS]), Activity::default());
    }
}
