//! Compares two settings of thresholds and zones on the same signals.

use gate::{Episode, EpisodeChange, Episodes, Gate, GateConfig, SelectionReason};
use media::Signal;

use super::rezoned::Rezoned;

/// Maximum listed differences; further ones are only counted.
pub const DIFFERENCES_MAX: usize = 10_000;

/// Maximum listed episodes; further ones are only counted.
pub const EPISODES_MAX: usize = 10_000;

/// Settings of a gate.
#[derive(Clone, Debug)]
pub struct Terms {
    pub gate: GateConfig,
    /// Mapping to other zones; `None` keeps those of the recording.
    pub zones: Option<Rezoned>,
}

impl Terms {
    /// Returns the signal that the gate is shown.
    pub fn signal(&self, signal: &Signal) -> Signal {
        self.zones.as_ref().map_or(*signal, |zones| zones.signal(*signal))
    }
}

/// Decision of a gate about a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verdict {
    pub reason: SelectionReason,
    pub selected: bool,
}

/// Frame that the two settings decide differently.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Difference {
    pub frame_index: u64,
    pub pts_ms: i64,
    /// Decision with the old settings.
    pub before: Verdict,
    /// Decision with the new settings.
    pub after: Verdict,
}

/// Counts of the decisions with one setting.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Number of selected frames.
    pub kept: u64,
    reasons: [u64; SelectionReason::ALL.len()],
}

impl Tally {
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

/// Decisions with two settings on the same signals.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trial {
    pub before: Tally,
    pub after: Tally,
    /// Number of frames that are decided differently.
    pub changed: u64,
    /// First differences, at most [`DIFFERENCES_MAX`].
    pub differences: Vec<Difference>,
    /// Number of activity episodes with the new settings.
    pub episode_count: u64,
    /// First episodes, at most [`EPISODES_MAX`].
    pub episodes: Vec<Episode>,
}

impl Trial {
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
