//! Episodes of activity, frame by frame, from scores and times alone.
//!
//! Tracks every past that is still possible, as ranges, so that a segment in the middle of a recording can be
//! analysed before the ones that precede it. A tracker that saw the start has exactly one past.

use media::{GateConfig, Score, Signal};

use super::{ACROSS, tenth};

/// Milliseconds below the lower threshold after which an episode is over.
const QUIET_MS: i64 = 1000;
/// Grid in milliseconds: peaks and ends are reported at the first frame at or after a multiple of it.
const GRID_MS: i64 = 500;
/// Number of score levels above the upper threshold, each 1.5 times the one before; the last is beyond every
/// useful threshold.
const LEVELS: u8 = 16;

/// Change of an episode of activity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// An episode starts with this frame.
    Started,
    /// The activity reaches a higher level than in any reported frame; levels are 1.5 times apart.
    Peaked,
    /// The picture has been at rest for a second.
    Settled,
}

/// Result of one frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Outcome {
    /// Change that every possible past yields.
    pub(crate) change: Option<Change>,
    /// True if the possible pasts disagree about the change.
    pub(crate) is_unsure: bool,
}

/// Possible pasts, as ranges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Pasts {
    /// True if the picture may be at rest.
    at_rest: bool,
    /// Ranges of the episode that may be open.
    open: Option<Open>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Open {
    /// Lowest and highest possible level reported so far.
    level: (u8, u8),
    /// Earliest and latest possible time of the last frame that was not quiet.
    loud_ms: (i64, i64),
}

/// State of the episodes after a frame, for a gate that saw all frames before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct ActivityState {
    /// Level of the open episode; `None` while the picture is at rest.
    pub level: Option<u32>,
    /// Time of the episode's last frame that was not quiet.
    pub loud_ms: i64,
    /// Time of the last hard transition.
    pub cut_ms: Option<i64>,
}

#[derive(Clone, Debug)]
pub(crate) struct Tracker {
    pasts: Pasts,
    last_ms: Option<i64>,
    /// Earliest and latest possible time of the last hard transition.
    cut_ms: (i64, i64),
}

impl Tracker {
    /// Returns a tracker whose next frame is the first.
    pub(crate) fn new() -> Tracker {
        let pasts = Pasts { at_rest: true, open: None };
        Tracker { pasts, last_ms: None, cut_ms: (i64::MIN, i64::MIN) }
    }

    /// Returns a tracker that saw neither the frame at `pts_ms` nor any before it.
    pub(crate) fn after(pts_ms: i64) -> Tracker {
        let range = (i64::MIN, pts_ms);
        let open = Open { level: (0, LEVELS), loud_ms: range };
        let pasts = Pasts { at_rest: true, open: Some(open) };
        Tracker { pasts, last_ms: Some(pts_ms), cut_ms: range }
    }

    /// Returns a tracker whose next frame follows the one at `pts_ms`, with the given state.
    pub(crate) fn resume(state: ActivityState, pts_ms: i64) -> Tracker {
        let open = state.level.map(|level| {
            let level = level.min(LEVELS.into()) as u8;
            Open { level: (level, level), loud_ms: (state.loud_ms, state.loud_ms) }
        });
        let pasts = Pasts { at_rest: open.is_none(), open };
        let cut = state.cut_ms.unwrap_or(i64::MIN);
        Tracker { pasts, last_ms: Some(pts_ms), cut_ms: (cut, cut) }
    }

    /// Returns the state; if several pasts are possible, the lowest level and the earliest times.
    pub(crate) fn state(&self) -> ActivityState {
        let (open, cut) = (self.pasts.open, self.cut_ms.0);
        ActivityState {
            level: open.map(|open| open.level.0.into()),
            loud_ms: open.map_or(0, |open| open.loud_ms.0),
            cut_ms: (cut != i64::MIN).then_some(cut),
        }
    }

    /// Takes the next frame.
    pub(crate) fn offer(&mut self, config: &GateConfig, signal: &Signal, is_cut: bool) -> Outcome {
        let now = signal.pts_ms;
        if is_cut {
            self.cut_ms = (now, now);
        }
        // For some tenths after a cut, pictures of two scenes are compared: the score is ignored.
        let follows = |cut: i64| cut != i64::MIN && tenth(now).saturating_sub(tenth(cut)) <= ACROSS;
        let score = signal.activity.map_or(Score::ZERO, |activity| activity.score);
        let frame = |score: Score| Frame {
            level: (score >= config.activity_on).then(|| level(score, config.activity_on)),
            is_quiet: score < config.quiet_below(),
            now,
            on_grid: self.last_ms.is_some_and(|last| is_on_grid(last, now)),
        };
        let pasts = self.pasts;
        let heard = || pasts.after(frame(score));
        let muted = || pasts.after(frame(Score::ZERO));
        let (pasts, outcome) = match (follows(self.cut_ms.0), follows(self.cut_ms.1)) {
            (true, _) => muted(),
            (false, false) => heard(),
            (false, true) => {
                let ((a, first), (b, second)) = (heard(), muted());
                let same = first == second;
                let is_any = first != Outcome::default() || second != Outcome::default();
                let unsure = Outcome { change: None, is_unsure: is_any };
                (a.or(b), if same { first } else { unsure })
            }
        };
        (self.pasts, self.last_ms) = (pasts, Some(now));
        outcome
    }
}

#[derive(Clone, Copy)]
struct Frame {
    /// Level of the score; `None` below the upper threshold.
    level: Option<u8>,
    is_quiet: bool,
    now: i64,
    on_grid: bool,
}

impl Pasts {
    fn after(self, frame: Frame) -> (Pasts, Outcome) {
        let now = frame.now;
        let loud = |open: Open| Open { loud_ms: (now, now), ..open };
        match (frame.level, self.open) {
            (Some(level), _) => self.after_loud(level, frame),
            (None, Some(open)) if !frame.is_quiet => {
                (Pasts { open: Some(loud(open)), ..self }, Outcome::default())
            }
            (None, Some(open)) if frame.on_grid => self.after_quiet(open, now),
            (None, _) => (self, Outcome::default()),
        }
    }

    fn after_loud(self, level: u8, frame: Frame) -> (Pasts, Outcome) {
        let now = frame.now;
        let continued = self.open.map(|open| match frame.on_grid {
            true => (open.level.0.max(level), open.level.1.max(level)),
            false => open.level,
        });
        let peaked = self.open.filter(|_| frame.on_grid).map(|open| {
            let (low, high) = open.level;
            (level > high, level > low)
        });
        let outcome = match (self.at_rest, peaked) {
            (true, None) if self.open.is_none() => Change::Started.sure(),
            (true, _) => Outcome { change: None, is_unsure: true },
            (false, Some((true, _))) => Change::Peaked.sure(),
            (false, Some((false, maybe))) => Outcome { change: None, is_unsure: maybe },
            (false, None) => Outcome::default(),
        };
        let level = match continued {
            Some((low, high)) if self.at_rest => (low.min(level), high.max(level)),
            Some(range) => range,
            None => (level, level),
        };
        (Pasts { at_rest: false, open: Some(Open { level, loud_ms: (now, now) }) }, outcome)
    }

    fn after_quiet(self, open: Open, now: i64) -> (Pasts, Outcome) {
        let (first, last) = open.loud_ms;
        let is_over = |loud: i64| now.saturating_sub(loud) >= QUIET_MS;
        if is_over(last) {
            let outcome = match self.at_rest {
                true => Outcome { change: None, is_unsure: true },
                false => Change::Settled.sure(),
            };
            return (Pasts { at_rest: true, open: None }, outcome);
        }
        if !is_over(first) {
            return (self, Outcome::default());
        }
        let open = Open { loud_ms: (now - QUIET_MS + 1, last), ..open };
        (Pasts { at_rest: true, open: Some(open) }, Outcome { change: None, is_unsure: true })
    }

    fn or(self, other: Pasts) -> Pasts {
        let open = match (self.open, other.open) {
            (Some(a), Some(b)) => Some(Open {
                level: (a.level.0.min(b.level.0), a.level.1.max(b.level.1)),
                loud_ms: (a.loud_ms.0.min(b.loud_ms.0), a.loud_ms.1.max(b.loud_ms.1)),
            }),
            (one, other) => one.or(other),
        };
        Pasts { at_rest: self.at_rest || other.at_rest, open }
    }
}

impl Change {
    fn sure(self) -> Outcome {
        Outcome { change: Some(self), is_unsure: false }
    }
}

/// Returns true if a multiple of [`GRID_MS`] lies after `last` (the frame before) and at or before `now`.
pub(crate) fn is_on_grid(last: i64, now: i64) -> bool {
    now.div_euclid(GRID_MS) > last.div_euclid(GRID_MS)
}

/// Returns how many times `on` can be multiplied by 1.5 without exceeding `score`.
fn level(score: Score, on: Score) -> u8 {
    let mut step = u64::from(on.millionths().max(1)) * 1024;
    let reached = u64::from(score.millionths()) * 1024;
    let mut level = 0;
    while level < LEVELS && step + step / 2 <= reached {
        step += step / 2;
        level += 1;
    }
    level
}

#[cfg(test)]
mod tests;
