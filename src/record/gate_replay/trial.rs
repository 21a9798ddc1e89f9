//! Other thresholds and zones on the same signals: what each side decides, and where the two differ.

use gate::{Episode, EpisodeChange, Episodes, Gate, GateConfig, SelectionReason};
use media::Signal;

use super::rezoned::Rezoned;

/// Frames that are decided differently and told one by one; the others are counted.
pub const DIFFERENCES_MAX: usize = 10_000;

/// Episodes that are told one by one; the others are counted.
pub const EPISODES_MAX: usize = 10_000;

/// Terms by which a gate decides.
#[derive(Clone, Debug)]
pub struct Terms {
    /// Thresholds.
    pub gate: GateConfig,
    /// Zones in place of those of the recording.
    pub zones: Option<Rezoned>,
}

impl Terms {
    /// The signal that the gate is shown.
    pub fn signal(&self, signal: &Signal) -> Signal {
        self.zones.as_ref().map_or(*signal, |zones| zones.signal(*signal))
    }
}

/// Decision of a gate about a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// Reason of the decision.
    pub reason: SelectionReason,
    /// True where it is kept.
    pub selected: bool,
}

/// A frame that is decided differently.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Difference {
    /// Position among the analysed frames.
    pub frame_index: u64,
    /// Presentation time.
    pub pts_ms: i64,
    /// Decision by the terms of before.
    pub before: Verdict,
    /// Decision by the terms that are tried.
    pub after: Verdict,
}

/// The decisions of one gate, counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Frames that are kept.
    pub kept: u64,
    reasons: [u64; SelectionReason::ALL.len()],
}

impl Tally {
    /// Frames by reason.
    pub fn reasons(&self) -> impl Iterator<Item = (SelectionReason, u64)> {
        SelectionReason::ALL.into_iter().zip(self.reasons)
    }

    fn count(&mut self, verdict: Verdict) {
        self.kept += u64::from(verdict.selected);
        for (reason, count) in SelectionReason::ALL.iter().zip(&mut self.reasons) {
            *count += u64::from(*reason == verdict.reason);
        }
    }
}

/// The decisions of two gates on the same signals.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trial {
    /// Decisions by the terms of before.
    pub before: Tally,
    /// Decisions by the terms that are tried.
    pub after: Tally,
    /// Frames that are decided differently.
    pub changed: u64,
    /// The first of them.
    pub differences: Vec<Difference>,
    /// Episodes of activity by the terms that are tried.
    pub episode_count: u64,
    /// The first of them.
    pub episodes: Vec<Episode>,
}

impl Trial {
    /// Tries `after` in place of `before`.
    pub fn of(signals: &[Signal], before: &Terms, after: &Terms) -> Trial {
        let (mut trial, terms) = (Trial::default(), [before, after]);
        let mut gates = terms.map(|terms| Gate::new(terms.gate));
        let mut episodes = Episodes::default();
        for signal in signals {
            let shown = terms.map(|terms| terms.signal(signal));
            let [before, after] = gates.each_mut();
            let decisions = [before.offer(&shown[0]), after.offer(&shown[1])];
            let change = episodes.push(&shown[1], &decisions[1], terms[1].gate.quiet_below());
            if let Some(EpisodeChange::Ended(episode)) = change {
                trial.tell(episode);
            }
            let [before, after] = decisions
                .map(|decision| Verdict { reason: decision.reason, selected: decision.selected });
            trial.before.count(before);
            trial.after.count(after);
            if before == after {
                continue;
            }
            trial.changed += 1;
            if trial.differences.len() < DIFFERENCES_MAX {
                let Signal { frame_index, pts_ms, .. } = *signal;
                trial.differences.push(Difference { frame_index, pts_ms, before, after });
            }
        }
        episodes.end().into_iter().for_each(|episode| trial.tell(episode));
        trial
    }

    fn tell(&mut self, episode: Episode) {
        self.episode_count += 1;
        if self.episodes.len() < EPISODES_MAX {
            self.episodes.push(episode);
        }
    }
}
