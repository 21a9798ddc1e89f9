//! Movement in the picture: cells that changed within the last fifth of a second.
//!
//! The newest frames are compared with the oldest of those that are no older than [`REACH_MS`], the median of three
//! with the median of three where there are enough. What all cells gained or lost together is light, and so is what a
//! cell shares with those around it; what comes and goes within a few frames is weather; what moves everywhere is the
//! camera. None of it counts.

mod change;
mod tracker;
mod zones;

use change::{Luma, Pictures};
use media::{Activity, Cells};

use crate::window::Neighbours;

pub use tracker::{ActivityState, Change};
pub(crate) use tracker::{Outcome, Tracker};
pub use zones::ZoneMask;

/// Age of the oldest picture that is compared, in milliseconds of media time: a fifth of a second and what rounding
/// of times adds.
pub(crate) const REACH_MS: i64 = 205;
/// Most frames back; a fifth of a second at 60 frames a second.
pub(crate) const REACH_FRAMES: isize = 12;
/// Frames back from which on there are enough for medians.
const DENSE: isize = 4;
/// A change counts that the youngest frame of this age shows too, in milliseconds, where there are not.
const SETTLED_MS: i64 = 66;

/// Movement of the frame.
pub(crate) fn activity(frames: &Neighbours<'_>, zones: &ZoneMask) -> Activity {
    let back = |back: isize| frames.at(-back);
    let (Some(now), Some(_)) = (back(0), back(1)) else { return Activity::default() };
    let age = |slot: &crate::window::Slot| now.stamp.pts_ms.saturating_sub(slot.stamp.pts_ms);
    let is_near = |at: &isize| back(*at).is_some_and(|slot| age(slot) <= REACH_MS);
    let oldest = (2..=REACH_FRAMES).take_while(is_near).last().unwrap_or(1);
    let is_settled = |at: &isize| back(*at).is_some_and(|slot| age(slot) >= SETTLED_MS);
    // The frame so many fifths of the way back.
    let fifths = |at: isize| back((at * oldest + 2) / 5).map_or(&now.thumb, |slot| &slot.thumb);
    let pictures = if oldest < DENSE {
        let settled = (1..oldest).find(is_settled).and_then(back);
        Pictures {
            old: Luma::of(fifths(5)),
            settled: settled.map(|slot| Luma::of(&slot.thumb)),
            new: Luma::of(&now.thumb),
        }
    } else {
        let (old, new) = ([3, 4, 5].map(fifths), [0, 1, 2].map(fifths));
        Pictures { old: Luma::median(old), settled: None, new: Luma::median(new) }
    };
    change::changed_cells(&pictures).map_or_else(Activity::default, |cells| zones.activity(&cells))
}

fn population(cells: &Cells) -> u32 {
    cells.iter().map(|row| row.count_ones()).sum()
}
