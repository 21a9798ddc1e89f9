//! Turns measurements into signals over a short window of neighbouring frames.
//!
//! The signal of a frame depends only on the [`BACK`] frames before it and the [`AHEAD`] after it, its
//! activity on the frames of [`TENTHS_BACK`] tenths of a second: windows started anywhere agree beyond those.
//! All memory is allocated when a window is made, except for known signals.

use std::{collections::VecDeque, mem};

use media::{Activity, Signal};

use crate::{
    FrameMeasurements, ZoneMask,
    activity::{self, Movement, TENTHS_BACK},
    artifact_scores, scene,
    thumbnail::{CELLS, CellThumbnail, luma_means},
};

/// Frames before a frame on which its signal, except the activity, may depend.
pub const BACK: usize = 8;
/// Frames after a frame on which its signal may depend.
pub const AHEAD: usize = 2;

/// Interval in milliseconds from which on frames are samples of a scene and not neighbours in motion:
/// flashes, flicker and double images are not visible at eight frames a second or less.
const CLOSE_MS: i64 = 125;

const RING: usize = BACK + 1 + AHEAD;

/// Position of a frame in its sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameMeta {
    /// Position among the analysed frames.
    pub frame_index: u64,
    /// Position among the source's frames in presentation order.
    pub source_frame_index: u64,
    /// Presentation time in whole milliseconds.
    pub pts_ms: i64,
}

/// Data that the window keeps of a frame.
#[derive(Debug)]
pub(crate) struct WindowSlot {
    pub(crate) stamp: FrameMeta,
    pub(crate) thumb: CellThumbnail,
    /// [`scene::step`] from the frame before; 0 for the first.
    pub(crate) step: u32,
    /// [`artifact_scores::brightness_change`] from the frame before; 0 for the first.
    pub(crate) brightness_change: i32,
    /// [`artifact_scores::noise_variance`]; 0 until the frame's signal is made.
    pub(crate) noise: u32,
    activity: Activity,
    /// Number of tenths of a second with a frame, up to this frame.
    tenths: u32,
}

/// Parts of a signal that may depend on frames before the first pushed one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Past {
    /// All values.
    Unknown,
    /// The activity, but it equals that of the frame before.
    ActivityAsBefore,
    /// The activity.
    ActivityUnknown,
    /// No value.
    Known,
}

/// Turns measurements, in order, into signals, in order.
#[derive(Debug)]
pub struct SignalWindow {
    ring: Box<[WindowSlot]>,
    /// Number of frames taken; frame `i` is in slot `i % RING` until [`RING`] later ones came.
    pushed: u64,
    first: FrameMeta,
    /// Number of frames whose signal is made.
    done: u64,
    /// Number of leading frames whose signal was known already and is not queued again.
    told: u64,
    lookahead: u64,
    zones: ZoneMask,
    movement: Movement,
    /// Tenths of a second skipped before activity is measured; `None` while it is skipped.
    unmade: Option<u32>,
    /// Buffer for the luma cells of a frame whose signal is known.
    luma: Box<[u16; CELLS]>,
    ready: VecDeque<Signal>,
}

impl SignalWindow {
    /// Returns a window that holds a frame back until `lookahead` further ones have come.
    ///
    /// Values above [`AHEAD`], which files use, mean [`AHEAD`]; smaller values trade flash suppression for
    /// latency.
    pub fn new(lookahead: usize) -> SignalWindow {
        let blank = FrameMeta { frame_index: 0, source_frame_index: 0, pts_ms: 0 };
        let slot = || WindowSlot {
            stamp: blank,
            thumb: CellThumbnail::blank(),
            step: 0,
            brightness_change: 0,
            noise: 0,
            activity: Activity::default(),
            tenths: 0,
        };
        SignalWindow {
            ring: std::iter::repeat_with(slot).take(RING).collect(),
            pushed: 0,
            first: blank,
            done: 0,
            told: 0,
            lookahead: lookahead.min(AHEAD) as u64,
            zones: ZoneMask::default(),
            movement: Movement::new(),
            unmade: Some(0),
            luma: Box::new([0; CELLS]),
            ready: VecDeque::with_capacity(RING),
        }
    }

    /// Returns the window with these zones.
    pub fn with_zones(self, zones: ZoneMask) -> SignalWindow {
        SignalWindow { zones, ..self }
    }

    /// Forgets every frame. If they were too few for a known activity, the next ones skip activity until they
    /// are more: segments of a file are alike, and activity costs more than all else.
    pub fn restart(&mut self) {
        if self.pushed > 0 {
            self.unmade = (self.movement.tenths > TENTHS_BACK).then_some(0);
        }
        (self.pushed, self.done, self.told) = (0, 0, 0);
        self.ready.clear();
        self.movement.restart();
    }

    /// Returns the parts of `signal`, polled last, that earlier unseen frames may change.
    pub fn past_of(&self, signal: &Signal) -> Past {
        let place = signal.frame_index.saturating_sub(self.first.frame_index);
        let tenths_at = |place: u64| self.ring[(place % RING as u64) as usize].tenths;
        match tenths_at(place) {
            _ if self.first.frame_index == 0 => Past::Known,
            _ if place < BACK as u64 => Past::Unknown,
            tenths if self.unmade.is_some_and(|unmade| tenths > unmade + TENTHS_BACK) => {
                Past::Known
            }
            tenths if tenths != tenths_at(place - 1) => Past::ActivityUnknown,
            _ => Past::ActivityAsBefore,
        }
    }

    /// Takes the next frame.
    pub fn push(&mut self, stamp: FrameMeta, measurements: &FrameMeasurements) {
        self.push_picture(stamp, measurements, true);
    }

    /// Takes the next frames, at least [`BACK`], with known signals, which it queues after all earlier ones.
    /// Measures missing activity (first frames only). [`SignalWindow::past_of`] is invalid for these.
    pub fn push_known(
        &mut self,
        signals: impl IntoIterator<Item = Signal>,
        stamps: &[FrameMeta],
        measurements: &[FrameMeasurements],
    ) {
        let frames = || stamps.iter().copied().zip(measurements);
        // Frames on which signals of earlier frames depend.
        for (stamp, measurements) in frames().take(self.lookahead as usize) {
            self.push_picture(stamp, measurements, false);
        }
        let needed = stamps.len() - frames_back(stamps);
        let mut is_ahead = false;
        for (place, (mut signal, (stamp, measurements))) in
            signals.into_iter().zip(frames()).enumerate()
        {
            if signal.activity.is_some() && place < needed {
                is_ahead = true;
            } else {
                if mem::take(&mut is_ahead) {
                    self.movement.restart();
                }
                luma_means(measurements, &mut self.luma);
                let activity = self.movement.push(stamp.pts_ms, &self.luma, &self.zones);
                signal.activity.get_or_insert(activity);
            }
            self.ready.push_back(signal);
        }
        (self.pushed, self.done, self.told) = (0, 0, BACK as u64);
        for (stamp, measurements) in frames().skip(stamps.len() - BACK) {
            self.push_picture(stamp, measurements, false);
        }
    }

    fn push_picture(
        &mut self,
        stamp: FrameMeta,
        measurements: &FrameMeasurements,
        with_activity: bool,
    ) {
        if self.pushed == 0 {
            self.first = stamp;
            self.unmade = self.unmade.or((stamp.frame_index == 0).then_some(0));
        }
        let at = (self.pushed % RING as u64) as usize;
        let previous = (at + RING - 1) % RING;
        self.ring[at].thumb.derive(measurements);
        let (step, brightness_change) = if self.pushed == 0 {
            (0, 0)
        } else {
            let (old, new) = (&self.ring[previous].thumb, &self.ring[at].thumb);
            (scene::step(old, new), artifact_scores::brightness_change(old, new))
        };
        let slot = &mut self.ring[at];
        (slot.stamp, slot.step, slot.brightness_change) = (stamp, step, brightness_change);
        slot.noise = 0;
        if with_activity {
            slot.activity = match self.unmade {
                Some(_) => self.movement.push(stamp.pts_ms, &slot.thumb.luma, &self.zones),
                None => self.movement.skip(stamp.pts_ms),
            };
            slot.tenths = self.movement.tenths;
            self.unmade = self.unmade.or((slot.tenths > TENTHS_BACK).then_some(slot.tenths));
        }
        self.pushed += 1;
        if self.pushed - self.done > self.lookahead {
            self.finish_next();
        }
    }

    /// Returns the next signal, once enough frames after it are known.
    pub fn poll(&mut self) -> Option<Signal> {
        self.ready.pop_front()
    }

    /// Makes the signals of the frames held back, because no frame follows.
    pub fn flush(&mut self) {
        while self.done < self.pushed {
            self.finish_next();
        }
    }

    fn finish_next(&mut self) {
        let frames = FrameNeighbourhood { ring: &self.ring, pushed: self.pushed, frame: self.done };
        let noise = artifact_scores::noise_variance(&frames);
        let Some(slot) = frames.at(0) else { return };
        let signal = Signal {
            frame_index: slot.stamp.frame_index,
            source_frame_index: Some(slot.stamp.source_frame_index),
            pts_ms: slot.stamp.pts_ms,
            perceptual_hash: slot.thumb.hash,
            luma_mean: slot.thumb.luma_mean,
            flicker_score: artifact_scores::flicker(&frames),
            ghosting_score: artifact_scores::ghosting(&frames),
            noise_variance_score: artifact_scores::noise_score(&frames, noise),
            scene_score: Some(scene::score(&frames)),
            activity: Some(slot.activity),
        };
        self.ring[(self.done % RING as u64) as usize].noise = noise;
        if self.done >= self.told {
            self.ready.push_back(signal);
        }
        self.done += 1;
    }
}

/// Returns the number of last frames on which the signal of a following frame depends.
fn frames_back(frames: &[FrameMeta]) -> usize {
    let tenth = |frame: &FrameMeta| activity::tenth(frame.pts_ms);
    let firsts = frames.windows(2).rev().scan(0, |tenths, pair| {
        *tenths += u32::from(tenth(&pair[0]) != tenth(&pair[1]));
        Some(*tenths)
    });
    (firsts.take_while(|&tenths| tenths <= TENTHS_BACK).count() + 1).max(BACK)
}

/// A frame and the surrounding frames that its signal may depend on.
pub(crate) struct FrameNeighbourhood<'a> {
    ring: &'a [WindowSlot],
    pushed: u64,
    frame: u64,
}

impl<'a> FrameNeighbourhood<'a> {
    /// Returns the frame `offset` places after this one; `None` outside the sequence or beyond [`BACK`].
    pub(crate) fn at(&self, offset: isize) -> Option<&'a WindowSlot> {
        let index = self.frame.checked_add_signed(offset as i64)?;
        let within = offset >= -(BACK as isize) && index < self.pushed;
        within.then(|| &self.ring[(index % RING as u64) as usize])
    }

    /// Returns true if consecutive frames from `first` to `last` are less than [`CLOSE_MS`] apart.
    pub(crate) fn are_close(&self, first: isize, last: isize) -> bool {
        (first..last).all(|offset| match (self.at(offset), self.at(offset + 1)) {
            (Some(old), Some(new)) => {
                let gap = new.stamp.pts_ms.saturating_sub(old.stamp.pts_ms);
                (0..CLOSE_MS).contains(&gap)
            }
            _ => false,
        })
    }
}
