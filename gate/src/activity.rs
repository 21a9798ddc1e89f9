//! Movement in the picture: cells that changed within the last four tenths of a second.
//!
//! Each tenth of a second gives one picture, the mean of its frames. The quick comparison takes it and the
//! one four tenths before; the steady one, against noise, means of three and of four tenths. A change shared
//! by all cells or by those around is light, a repeated one weather: neither counts. Frames between
//! comparisons keep the last result.

mod change;
mod light;
mod luma;
mod shapes;
mod tracker;
mod zones;

use std::collections::VecDeque;

use change::{Changes, Room, compare};
use luma::{Luma, Sums};
use media::{Activity, Cells};

#[cfg(target_arch = "x86_64")]
use crate::simd;
use crate::thumbnail::CELLS;

pub use tracker::{ActivityState, Change};
pub(crate) use tracker::{Outcome, Tracker, is_on_grid};
pub use zones::ZoneMask;

/// Least distance of two compared pictures, in tenths of a second.
const APART: usize = 4;
/// Tenths of a second averaged on the new and on the old side of the steady comparison.
const NEW: usize = 3;
const OLD: usize = 4;
/// Number of pictures kept.
const PICTURES: usize = APART + OLD - 1;
/// Number of comparisons kept, from which the usual changes are derived.
const KEPT: usize = 12;
/// Tenths after a cut in which a comparison may still reach pictures before the cut.
const ACROSS: i64 = APART as i64 + 2;
/// Tenths with a frame on which a comparison depends: those of the pictures of the oldest kept comparison and
/// of the one before, and two that a sequence which starts midway has only in part.
pub(crate) const TENTHS_BACK: u32 = (KEPT + 2 * APART + OLD + 1) as u32;

/// Number of the tenth of a second in which a time lies.
pub(crate) fn tenth(pts_ms: i64) -> i64 {
    pts_ms.div_euclid(100)
}

/// Values of the last tenths, oldest first, each with its tenth; [`NEVER`] marks an empty entry.
type Past<T> = VecDeque<(i64, Box<T>)>;
/// Tenth of an empty entry: later than every real one.
const NEVER: i64 = i64::MAX;

fn past<T: Clone>(blank: T, kept: usize) -> Past<T> {
    // One entry more than `kept`: the oldest is overwritten by the newest while all others are read.
    vec![(NEVER, Box::new(blank)); kept + 1].into()
}

/// Measures movement over a sequence of frames. Allocates all its memory when it is made.
#[derive(Debug)]
pub(crate) struct Movement {
    /// Tenth of a second of the last frame.
    tenth: Option<i64>,
    /// Sums of the frames after the first frame of the last tenth.
    sums: Sums,
    /// Pictures of the last tenths that have a frame, each with the tenth in which it ends.
    pictures: Past<Luma>,
    /// Changes of the last comparisons, each quick and steady.
    changes: Past<[Changes; 2]>,
    /// Older and newer mean of the steady comparison.
    means: Box<[Luma; 2]>,
    room: Box<Room>,
    activity: Activity,
    /// Number of tenths that have a frame.
    pub(crate) tenths: u32,
}

impl Movement {
    /// Returns a state whose next frame is the first.
    pub(crate) fn new() -> Movement {
        Movement {
            tenth: None,
            sums: Sums::new(),
            pictures: past(Luma::BLACK, PICTURES),
            changes: past([Changes::NONE; 2], KEPT),
            means: Box::new([Luma::BLACK; 2]),
            room: Box::new(Room::EMPTY),
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
        self.pictures.iter_mut().for_each(|(at, _)| *at = NEVER);
        self.changes.iter_mut().for_each(|(at, _)| *at = NEVER);
        (self.tenth, self.activity) = (None, Activity::default());
    }

    /// Takes the next frame. The first frame of a tenth still belongs to the picture that ends with it.
    pub(crate) fn push(&mut self, pts_ms: i64, frame: &[u16; CELLS], zones: &ZoneMask) -> Activity {
        let now = tenth(pts_ms);
        if self.tenth.is_some_and(|last| now < last) {
            self.forget_pictures();
        }
        self.sums.add(frame);
        if self.count_tenth(now) {
            #[cfg(target_arch = "x86_64")]
            let activity = simd::next_picture(self, now, zones);
            #[cfg(not(target_arch = "x86_64"))]
            let activity = self.next_picture(now, zones);
            self.activity = activity;
        }
        self.activity
    }

    /// Skips the next frame: only [`Movement::tenths`] counts it.
    pub(crate) fn skip(&mut self, pts_ms: i64) -> Activity {
        self.count_tenth(tenth(pts_ms));
        Activity::default()
    }

    /// Counts the tenth `now` and returns true if the frame is its first.
    fn count_tenth(&mut self, now: i64) -> bool {
        let is_first = self.tenth.replace(now) != Some(now);
        self.tenths = self.tenths.saturating_add(u32::from(is_first));
        is_first
    }

    /// Adds the mean of the frames so far as a picture and compares it. Inlined whole, also into AVX2 code.
    #[inline(always)]
    pub(crate) fn next_picture(&mut self, now: i64, zones: &ZoneMask) -> Activity {
        let Some((_, mut picture)) = self.pictures.pop_front() else { return Activity::default() };
        self.sums.take_mean(&mut picture);
        let activity = self.compare(now, &picture, zones).unwrap_or_default();
        self.pictures.push_back((now, picture));
        activity
    }

    #[inline(always)]
    fn compare(&mut self, now: i64, new: &Luma, zones: &ZoneMask) -> Option<Activity> {
        let pictures = || self.pictures.iter().rev();
        let &(then, ref old) =
            pictures().find(|(at, _)| now.saturating_sub(*at) >= APART as i64)?;
        let within = |end: i64, tenths: usize| {
            let is_within = move |at: i64| at <= end && end.saturating_sub(at) < tenths as i64;
            pictures().filter(move |(at, _)| is_within(*at)).map(|(_, picture)| &**picture)
        };
        let [older, newer] = &mut *self.means;
        older.be_mean(within(then, OLD));
        newer.be_mean(within(now, NEW).chain([new]));
        let (_, mut changes) = self.changes.pop_front()?;
        // Later comparisons need only the usual changes of these.
        let earlier = self.changes.iter_mut().rev().filter(|(at, _)| *at <= then).skip(1);
        earlier.for_each(|(_, changes)| changes.iter_mut().for_each(Changes::keep_usual));
        let before = || self.changes.iter().rev().filter(|(at, _)| *at <= then);
        let [quick, steady] = &mut *changes;
        let before_quick = before().map(|(_, changes)| &changes[0]);
        let quick = compare((old, new), before_quick, &mut self.room, quick);
        let before_steady = before().map(|(_, changes)| &changes[1]);
        let steady = compare((older, newer), before_steady, &mut self.room, steady);
        let moved = std::array::from_fn(|row| quick[row] | steady[row]);
        self.changes.push_back((now, changes));
        Some(zones.activity(&moved))
    }
}

fn population(cells: &Cells) -> u32 {
    cells.iter().map(|row| row.count_ones()).sum()
}

#[cfg(test)]
mod tests;
