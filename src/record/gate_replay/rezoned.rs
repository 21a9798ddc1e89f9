//! Re-evaluates recorded activity with other zones than those of the recording.
//!
//! A recorded frame has the share of changed cells, their bounding box and the zones touched, not the cells
//! themselves. The cells that may have changed are those of the box outside of untouched zones. A zone counts
//! as touched if it holds any of them; if only zones count, the change is taken to be spread evenly over
//! them. With its own zones a recording yields the same activity.

use gate::ZoneMask;
use media::{Activity, CellBox, Cells, Score, Signal, Zones};

/// Mapping of recorded activity to other zones.
#[derive(Clone, Debug)]
pub struct Rezoned {
    recorded: ZoneMask,
    wanted: ZoneMask,
}

impl Rezoned {
    /// Creates the mapping from the zones `recorded` to the zones `wanted`, given by their corners.
    pub fn new(recorded: &Zones, wanted: &Zones) -> Rezoned {
        Rezoned { recorded: ZoneMask::new(recorded), wanted: ZoneMask::new(wanted) }
    }

    /// Returns the signal as the wanted zones would have it.
    pub fn signal(&self, signal: Signal) -> Signal {
        Signal { activity: signal.activity.map(|activity| self.activity(activity)), ..signal }
    }

    fn activity(&self, recorded: Activity) -> Activity {
        let may_have = self.may_have_changed(recorded);
        let possible = count(&may_have);
        if possible == 0 {
            return recorded;
        }
        let counts = join(&may_have, self.wanted.counted(), |a, b| a & b);
        let scale = u64::from(Score::SCALE);
        let share = u64::from(recorded.score.millionths()) * count(self.recorded.counted());
        let changed = (share + scale / 2) / scale;
        Activity {
            score: Score::from_ratio(
                changed * count(&counts),
                possible * count(self.wanted.counted()),
            ),
            region: match counts == may_have {
                true => recorded.region,
                false => CellBox::around(&counts),
            },
            zones: self.wanted.touched(&counts),
        }
    }

    /// Returns a superset of the cells that changed.
    fn may_have_changed(&self, recorded: Activity) -> Cells {
        let boxed = join(&recorded.region.cells(), self.recorded.counted(), |a, b| a & b);
        let untouched = self.recorded.zones().iter().enumerate();
        let untouched = untouched.filter(|(at, _)| recorded.zones >> at & 1 == 0);
        untouched.fold(boxed, |cells, (_, zone)| join(&cells, zone, |a, b| a & !b))
    }
}

fn join(a: &Cells, b: &Cells, join: impl Fn(u64, u64) -> u64) -> Cells {
    std::array::from_fn(|row| join(a[row], b[row]))
}

fn count(cells: &Cells) -> u64 {
    cells.iter().map(|row| u64::from(row.count_ones())).sum()
}

#[cfg(test)]
mod tests {
    use media::Zone;

    use super::*;

    /// Zone over the full height, from one edge to the other in hundredths of the picture's width.
    fn stripe(from: u32, to: u32) -> Zone {
        let score = |percent: u32| Score::from_millionths(percent * 10_000);
        let corners = [(from, 0), (to, 0), (to, 100), (from, 100)];
        let polygon = corners.into_iter().map(|(x, y)| (score(x), score(y))).collect();
        Zone { name: format!("{from}-{to}"), polygon }
    }

    fn zones(stripes: &[(u32, u32)], only: bool) -> Zones {
        Zones { zones: stripes.iter().map(|&(from, to)| stripe(from, to)).collect(), only }
    }

    /// Activity in which `changed` of `counted` cells changed.
    fn activity(changed: u64, counted: u64, columns: (u8, u8), zones: u16) -> Activity {
        let region = CellBox { left: columns.0, top: 10, right: columns.1, bottom: 20 };
        Activity { score: Score::from_ratio(changed, counted), region, zones }
    }

    #[test]
    fn a_zone_is_touched_where_something_may_have_changed_in_it() {
        const HALVES: [(u32, u32); 2] = [(0, 50), (50, 100)];
        let wide = activity(40, 2560, (16, 48), 0);
        let rows = [
            ("its own", zones(&HALVES, false), zones(&HALVES, false), (wide, 0b10), (wide, 0b10)),
            (
                "more zones",
                zones(&[], false),
                zones(&[(0, 50), (75, 100), (50, 75)], false),
                (wide, 0),
                (wide, 0b101),
            ),
            ("none any more", zones(&HALVES, false), zones(&[], false), (wide, 0b11), (wide, 0)),
            // The left half was not touched, so neither was a part of it.
            (
                "a part of a zone",
                zones(&HALVES, false),
                zones(&[(25, 50), (50, 75)], false),
                (wide, 0b10),
                (wide, 0b10),
            ),
            // The zone has half of the cells that may have changed, and half of the picture.
            (
                "zones alone",
                zones(&[], false),
                zones(&[(0, 50)], true),
                (wide, 0),
                (activity(20, 1280, (16, 32), 0), 1),
            ),
            (
                "zones alone, of which one was untouched",
                zones(&HALVES, false),
                zones(&[(0, 50)], true),
                (wide, 0b10),
                (Activity::default(), 0),
            ),
            (
                "the same alone",
                zones(&[(0, 50)], true),
                zones(&[(0, 50)], true),
                (activity(1, 1280, (3, 9), 0), 1),
                (activity(1, 1280, (3, 9), 0), 1),
            ),
            (
                "no longer alone",
                zones(&[(0, 50)], true),
                zones(&[], false),
                (activity(20, 1280, (3, 9), 0), 1),
                (activity(20, 2560, (3, 9), 0), 0),
            ),
            (
                "at rest",
                zones(&[], false),
                zones(&[(0, 50)], true),
                (Activity::default(), 0),
                (Activity::default(), 0),
            ),
        ];
        for (name, recorded, wanted, (was, touched), (is, expected)) in rows {
            let rezoned = Rezoned::new(&recorded, &wanted);
            let found = rezoned.activity(Activity { zones: touched, ..was });
            assert_eq!(found, Activity { zones: expected, ..is }, "{name}");
        }
    }
}
