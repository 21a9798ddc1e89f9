//! Decision of the gate about a frame, from its signal and the signals before it.
//!
//! A decision depends on the frame's own signal, the one before it, the distance from the first
//! frame's index and the episode that is open: a gate resumed anywhere agrees with one that saw
//! everything, or says that it is unsure.

use media::{EventType, Score, Signal};

use crate::{
    GateConfig,
    activity::{ActivityState, Change, Outcome, Tracker},
};

/// Reason that a frame is remarkable; the first that holds, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// The first frame.
    InitialFrame,
    /// `scene_score` at or above its threshold.
    SceneCut,
    /// An episode of activity starts.
    ActivityStarted,
    /// Half as much activity again as in the frames of the episode that are kept.
    ActivityPeak,
    /// An episode of activity is over and the picture at rest.
    ActivitySettled,
    /// The distance from the first frame's index is a multiple of the keepalive interval, or the frame is
    /// the first at or after a multiple of its time.
    PeriodicKeepalive,
    /// `luma_mean` moved against the previous frame.
    ExposureShift,
    /// `flicker_score` at or above its threshold.
    FlickerSuspected,
    /// `ghosting_score` at or above its threshold.
    GhostingSuspected,
    /// `noise_variance_score` at or above its threshold.
    NoiseVarianceSpike,
    /// None of the above.
    NoTrigger,
}

impl Reason {
    /// Every reason, highest priority first.
    pub const ALL: [Reason; 11] = [
        Reason::InitialFrame,
        Reason::SceneCut,
        Reason::ActivityStarted,
        Reason::ActivityPeak,
        Reason::ActivitySettled,
        Reason::PeriodicKeepalive,
        Reason::ExposureShift,
        Reason::FlickerSuspected,
        Reason::GhostingSuspected,
        Reason::NoiseVarianceSpike,
        Reason::NoTrigger,
    ];

    /// Name on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Reason::InitialFrame => "initial_frame",
            Reason::SceneCut => "scene_cut",
            Reason::ActivityStarted => "activity_started",
            Reason::ActivityPeak => "activity_peak",
            Reason::ActivitySettled => "activity_settled",
            Reason::PeriodicKeepalive => "periodic_keepalive",
            Reason::ExposureShift => "exposure_shift",
            Reason::FlickerSuspected => "flicker_suspected",
            Reason::GhostingSuspected => "ghosting_suspected",
            Reason::NoiseVarianceSpike => "noise_variance_spike",
            Reason::NoTrigger => "no_trigger",
        }
    }

    /// Returns the event type of a frame selected for this reason.
    pub fn event_type(self) -> EventType {
        match self {
            Reason::SceneCut => EventType::SceneCut,
            Reason::FlickerSuspected | Reason::GhostingSuspected | Reason::NoiseVarianceSpike => {
                EventType::ArtifactSuspected
            }
            Reason::InitialFrame
            | Reason::ActivityStarted
            | Reason::ActivityPeak
            | Reason::ActivitySettled
            | Reason::PeriodicKeepalive
            | Reason::ExposureShift => EventType::KeyframeKeep,
            Reason::NoTrigger => EventType::ContextObservation,
        }
    }
}

/// Decision of the gate about one frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// The highest reason that holds.
    pub reason: Reason,
    /// The frame is kept as a still. Of a run of frames with the same artifact only the first is.
    pub selected: bool,
    /// Event type of the frame's marker.
    pub event_type: EventType,
    /// Confidence of the event type.
    pub confidence: Score,
    /// Change of the episode of activity, whatever the reason is.
    pub activity: Option<Change>,
    /// Of a gate that did not see the start: another past might give this frame another reason.
    pub is_unsure: bool,
}

/// Decides frame by frame; pure, and a function of the signals alone.
#[derive(Clone, Debug)]
pub struct Gate {
    config: GateConfig,
    first_index: Option<u64>,
    previous: Option<Signal>,
    activity: Option<Tracker>,
}

impl Gate {
    /// A gate whose next frame is the first.
    pub fn new(config: GateConfig) -> Gate {
        Gate { config, first_index: None, previous: None, activity: Some(Tracker::new()) }
    }

    /// A gate in the middle of a sequence that began at `first_index`.
    ///
    /// Its decisions equal those of a gate that saw every frame once it has been offered one
    /// signal, whose own decision is to be ignored, but for those that it is unsure about.
    pub fn resume(config: GateConfig, first_index: u64) -> Gate {
        Gate { first_index: Some(first_index), activity: None, ..Gate::new(config) }
    }

    /// A gate that goes on behind `last`, at which the episodes stood so.
    pub fn after(config: GateConfig, first_index: u64, last: Signal, state: ActivityState) -> Gate {
        let activity = Some(Tracker::resume(state, last.pts_ms));
        Gate { config, first_index: Some(first_index), previous: Some(last), activity }
    }

    /// State of the episodes behind the last frame.
    pub fn activity(&self) -> ActivityState {
        self.activity.as_ref().map(Tracker::state).unwrap_or_default()
    }

    /// Decides about the next frame.
    pub fn offer(&mut self, signal: &Signal) -> Decision {
        let first_index = *self.first_index.get_or_insert(signal.frame_index);
        let scene_score = signal.scene_score.unwrap_or_else(|| self.scene_from_hash(signal));
        let outcome = self.track(signal, scene_score);
        let reason = self.reason(signal, scene_score, first_index, outcome.change);
        let artifact = artifact_score(reason, signal);
        let selected = match artifact {
            Some(_) => !self.previous.is_some_and(|previous| self.holds(reason, &previous)),
            None => reason != Reason::NoTrigger,
        };
        let confidence = match artifact {
            _ if reason == Reason::SceneCut => scene_score,
            Some(score) => score,
            None if selected => Score::ONE,
            None => highest(signal, scene_score).complement(),
        };
        self.previous = Some(*signal);
        let Outcome { change: activity, is_unsure } = outcome;
        Decision {
            reason,
            selected,
            event_type: reason.event_type(),
            confidence,
            activity,
            is_unsure,
        }
    }

    fn track(&mut self, signal: &Signal, scene_score: Score) -> Outcome {
        match &mut self.activity {
            Some(tracker) => {
                tracker.offer(&self.config, signal, scene_score >= self.config.scene_cut)
            }
            None => {
                self.activity = Some(Tracker::after(signal.pts_ms));
                Outcome { change: None, is_unsure: true }
            }
        }
    }

    fn reason(
        &self,
        signal: &Signal,
        scene_score: Score,
        first_index: u64,
        activity: Option<Change>,
    ) -> Reason {
        if signal.frame_index == first_index && self.previous.is_none() {
            return Reason::InitialFrame;
        }
        if scene_score >= self.config.scene_cut {
            return Reason::SceneCut;
        }
        match activity {
            Some(Change::Started) => return Reason::ActivityStarted,
            Some(Change::Peaked) => return Reason::ActivityPeak,
            Some(Change::Settled) => return Reason::ActivitySettled,
            None => {}
        }
        let distance = signal.frame_index.saturating_sub(first_index);
        let is_due = distance.checked_rem(u64::from(self.config.keepalive_frames)) == Some(0);
        if is_due || self.passes_keepalive(signal) {
            return Reason::PeriodicKeepalive;
        }
        let shift = self.previous.map(|previous| previous.luma_mean.abs_diff(signal.luma_mean));
        if shift.is_some_and(|shift| shift >= self.config.luma_shift) {
            return Reason::ExposureShift;
        }
        [Reason::FlickerSuspected, Reason::GhostingSuspected, Reason::NoiseVarianceSpike]
            .into_iter()
            .find(|&reason| self.holds(reason, signal))
            .unwrap_or(Reason::NoTrigger)
    }

    /// The frame is the first at or after a multiple of the keepalive's time.
    fn passes_keepalive(&self, signal: &Signal) -> bool {
        let (Some(every), Some(previous)) = (self.config.keepalive_ms, self.previous) else {
            return false;
        };
        let multiple = |signal: &Signal| signal.pts_ms.checked_div_euclid(every.into());
        multiple(signal) > multiple(&previous)
    }

    /// Returns true where the signal alone reaches the threshold of an artifact reason.
    fn holds(&self, reason: Reason, signal: &Signal) -> bool {
        let threshold = match reason {
            Reason::FlickerSuspected => self.config.flicker,
            Reason::GhostingSuspected => self.config.ghosting,
            Reason::NoiseVarianceSpike => self.config.noise,
            _ => return false,
        };
        artifact_score(reason, signal).is_some_and(|score| score >= threshold)
    }

    /// For signals without a scene score: hashes of unrelated pictures differ in many bits.
    fn scene_from_hash(&self, signal: &Signal) -> Score {
        self.previous.map_or(Score::ZERO, |previous| {
            let bits = (previous.perceptual_hash ^ signal.perceptual_hash).count_ones();
            Score::from_ratio(u64::from(bits), HASH_BITS_OF_ONE)
        })
    }
}

/// Hash distance that maps to a scene score of 1. Half of it is a cut: of 1,149 known cuts 1,076
/// differ in as many bits, and so do 79 other frames of the same clips.
const HASH_BITS_OF_ONE: u64 = 36;

fn artifact_score(reason: Reason, signal: &Signal) -> Option<Score> {
    match reason {
        Reason::FlickerSuspected => Some(signal.flicker_score),
        Reason::GhostingSuspected => Some(signal.ghosting_score),
        Reason::NoiseVarianceSpike => Some(signal.noise_variance_score),
        _ => None,
    }
}

fn highest(signal: &Signal, scene_score: Score) -> Score {
    scene_score
        .max(signal.flicker_score)
        .max(signal.ghosting_score)
        .max(signal.noise_variance_score)
}

#[cfg(test)]
mod tests;
