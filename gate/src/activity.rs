//! Movement in the picture: cells that changed within the last half second.
//!
//! The mean of the frames of each tenth of a second is compared with that of four tenths before, and, against noise,
//! that of three tenths with that of the four which end there. What all cells gained or lost together is light, and
//! so is what a cell shares with those around it; what changes as it did before is weather. None of it counts.
//! Frames between two comparisons have the result of the last one.

mod change;
mod luma;
mod tracker;
mod zones;

use std::collections::VecDeque;

use change::{Changes, compare};
use luma::{Luma, Sums};
use media::{Activity, Cells};

use crate::thumb::CELLS;

pub use tracker::{ActivityState, Change};
pub(crate) use tracker::{Outcome, Tracker};
pub use zones::ZoneMask;

/// Tenths of a second that two pictures which are compared lie apart, at least.
const APART: usize = 4;
/// Tenths of a second of each side of a comparison that has little noise.
const NEW: usize = 3;
const OLD: usize = 4;
/// Pictures that are kept.
const PICTURES: usize = APART + OLD - 1;
/// Comparisons that are kept to tell what is usual.
const KEPT: usize = 12;
/// Tenths in which pictures of both sides of a cut may be compared.
const ACROSS: i64 = APART as i64 + 2;
/// Tenths that have a frame and on which a comparison depends: those of the pictures of the first one that is kept and
/// of the one before it, and two that a sequence which starts in the middle of them has in part.
pub(crate) const TENTHS_BACK: u32 = (KEPT + 2 * APART + OLD + 1) as u32;

/// Number of the tenth of a second in which a time lies.
pub(crate) fn tenth(pts_ms: i64) -> i64 {
    pts_ms.div_euclid(100)
}

/// Movement over a sequence of frames. All memory is taken when it is made.
#[derive(Debug)]
pub(crate) struct Movement {
    /// Tenth of the last frame.
    tenth: Option<i64>,
    /// Frames behind the first of the last tenth.
    sums: Sums,
    /// Pictures of the last tenths that have a frame, with the tenth in which each ends; the oldest first.
    pictures: VecDeque<(i64, Luma)>,
    /// Changes of the last comparisons, with their tenth.
    changes: VecDeque<(i64, [Changes; 2])>,
    activity: Activity,
    /// Tenths that have a frame.
    tenths: u32,
}

impl Movement {
    /// One whose next frame is the first.
    pub(crate) fn new() -> Movement {
        Movement {
            tenth: None,
            sums: Sums::new(),
            pictures: VecDeque::with_capacity(PICTURES),
            changes: VecDeque::with_capacity(KEPT),
            activity: Activity::default(),
            tenths: 0,
        }
    }

    /// Forgets every frame.
    pub(crate) fn restart(&mut self) {
        self.forget_pictures();
        self.tenths = 0;
    }

    fn forget_pictures(&mut self) {
        self.sums.clear();
        self.pictures.clear();
        self.changes.clear();
        (self.tenth, self.activity) = (None, Activity::default());
    }

    /// Tenths that have a frame, so far.
    pub(crate) fn tenths(&self) -> u32 {
        self.tenths
    }

    /// Takes the next frame. The first of a tenth belongs to the picture that ends with it.
    pub(crate) fn push(&mut self, pts_ms: i64, frame: &[u16; CELLS], zones: &ZoneMask) -> Activity {
        let now = tenth(pts_ms);
        if self.tenth.is_some_and(|last| now < last) {
            self.forget_pictures();
        }
        self.sums.add(frame);
        if self.tenth != Some(now) {
            self.tenth = Some(now);
            self.tenths = self.tenths.saturating_add(1);
            let picture = self.sums.take_mean();
            self.activity = self.compare(now, &picture, zones).unwrap_or_default();
            push_bounded(&mut self.pictures, (now, picture), PICTURES);
        }
        self.activity
    }

    fn compare(&mut self, now: i64, new: &Luma, zones: &ZoneMask) -> Option<Activity> {
        let pictures = || self.pictures.iter().rev();
        let &(then, ref old) =
            pictures().find(|(at, _)| now.saturating_sub(*at) >= APART as i64)?;
        let within = |end: i64, tenths: usize| {
            let is_within = move |at: i64| at <= end && end.saturating_sub(at) < tenths as i64;
            pictures().filter(move |(at, _)| is_within(*at)).map(|(_, picture)| picture)
        };
        let (before_then, newest) = (within(then, OLD), within(now, NEW).chain([new]));
        let before = || self.changes.iter().rev().filter(|(at, _)| *at <= then);
        let quick = compare(old, new, before().map(|(_, [quick, _])| quick));
        let means = (Luma::mean(before_then), Luma::mean(newest));
        let steady = compare(&means.0, &means.1, before().map(|(_, [_, steady])| steady));
        let moved = std::array::from_fn(|row| quick.moved[row] | steady.moved[row]);
        push_bounded(&mut self.changes, (now, [quick.changes, steady.changes]), KEPT);
        Some(zones.activity(&moved))
    }
}

fn push_bounded<T>(queue: &mut VecDeque<T>, item: T, most: usize) {
    if queue.len() == most {
        queue.pop_front();
    }
    queue.push_back(item);
}

fn population(cells: &Cells) -> u32 {
    cells.iter().map(|row| row.count_ones()).sum()
}

#[cfg(test)]
mod tests;
