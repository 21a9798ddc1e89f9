//! Decision of the gate about a frame, from its signal and the signals before it.
//!
//! A decision depends on the frame's own signal, the signals of the second before, the distance from the
//! first frame's index and the open episode: a gate resumed anywhere agrees with one that saw every frame, or
//! reports that it is unsure.

mod light;

use media::{EventType, Score, Signal};

use crate::{
    GateConfig,
    activity::{ActivityState, Change, Outcome, Tracker, is_on_grid},
};
use light::{Last, Steps};

media::named! {
    /// Reason that a frame is remarkable. If several hold, the first in this order is given.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub enum SelectionReason {
        /// The first frame.
        InitialFrame = "initial_frame",
        /// `scene_score` at or above its threshold.
        SceneCut = "scene_cut",
        /// An episode of activity starts.
        ActivityStarted = "activity_started",
        /// The activity reaches a higher level than in the kept frames; levels are 1.5 times apart.
        ActivityPeak = "activity_peak",
        /// An episode of activity is over and the picture at rest.
        ActivitySettled = "activity_settled",
        /// The distance from the first frame's index is a multiple of the keepalive interval in frames, or
        /// the frame is the first at or after a multiple of the interval in milliseconds.
        PeriodicKeepalive = "periodic_keepalive",
        /// `luma_mean` changed in one or more steps and then stayed for a second.
        ExposureShift = "exposure_shift",
        /// `flicker_score` at or above its threshold.
        FlickerSuspected = "flicker_suspected",
        /// `ghosting_score` at or above its threshold.
        GhostingSuspected = "ghosting_suspected",
        /// `noise_variance_score` at or above its threshold.
        NoiseVarianceSpike = "noise_variance_spike",
        /// None of the above.
        NoTrigger = "no_trigger",
    }
}

impl SelectionReason {
    /// Returns the event type of a frame selected for this reason.
    pub fn event_type(self) -> EventType {
        match self {
            SelectionReason::SceneCut => EventType::SceneCut,
            SelectionReason::FlickerSuspected
            | SelectionReason::GhostingSuspected
            | SelectionReason::NoiseVarianceSpike => EventType::ArtifactSuspected,
            SelectionReason::InitialFrame
            | SelectionReason::ActivityStarted
            | SelectionReason::ActivityPeak
            | SelectionReason::ActivitySettled
            | SelectionReason::PeriodicKeepalive
            | SelectionReason::ExposureShift => EventType::KeyframeKeep,
            SelectionReason::NoTrigger => EventType::ContextObservation,
        }
    }
}

/// Decision of the gate about one frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// The highest reason that holds.
    pub reason: SelectionReason,
    /// True if the frame is kept as a still; of frames with one artifact within a second, only the first is.
    pub selected: bool,
    /// Confidence of the reason's event type.
    pub confidence: Score,
    /// Change of the episode of activity, independent of the reason.
    pub activity: Option<Change>,
    /// True if the gate did not see the start and another past could give this frame another reason.
    pub is_unsure: bool,
}

/// Decides frame by frame; a pure function of the signals.
#[derive(Clone, Debug)]
pub struct Gate {
    config: GateConfig,
    first_index: Option<u64>,
    previous: Option<Signal>,
    activity: Option<Tracker>,
    steps: Option<Steps>,
    /// Time of the last frame with each of [`ARTIFACTS`].
    artifacts: [Last; ARTIFACTS.len()],
}

/// State of a gate after a frame, for a gate that saw all frames before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct GateState {
    /// State of the episodes.
    pub activity: ActivityState,
    /// Brightness before the pending steps, and the time of the last step.
    pub steps: Option<(Score, i64)>,
    /// Time of the last frame with flicker, with ghosting and with noise.
    pub artifacts_ms: [Option<i64>; ARTIFACTS.len()],
}

/// Reasons that are artifacts, highest priority first.
const ARTIFACTS: [SelectionReason; 3] = [
    SelectionReason::FlickerSuspected,
    SelectionReason::GhostingSuspected,
    SelectionReason::NoiseVarianceSpike,
];

impl Gate {
    /// Returns a gate whose next frame is the first.
    pub fn new(config: GateConfig) -> Gate {
        Gate {
            config,
            first_index: None,
            previous: None,
            activity: Some(Tracker::new()),
            steps: None,
            artifacts: [Last::known(None); ARTIFACTS.len()],
        }
    }

    /// Returns a gate in the middle of a sequence that began at `first_index`.
    ///
    /// The decision about the first signal must be ignored; later ones equal those of a gate that saw every
    /// frame, except where [`Decision::is_unsure`].
    pub fn resume(config: GateConfig, first_index: u64) -> Gate {
        Gate { first_index: Some(first_index), activity: None, ..Gate::new(config) }
    }

    /// Returns a gate that continues after `last` with this state.
    pub fn after(config: GateConfig, first_index: u64, last: Signal, state: GateState) -> Gate {
        Gate {
            config,
            first_index: Some(first_index),
            previous: Some(last),
            activity: Some(Tracker::resume(state.activity, last.pts_ms)),
            steps: state.steps.map(|(from, ms)| Steps::with(None, from, ms)),
            artifacts: state.artifacts_ms.map(Last::known),
        }
    }

    /// Returns the state after the last frame.
    pub fn state(&self) -> GateState {
        GateState {
            activity: self.activity.as_ref().map(Tracker::state).unwrap_or_default(),
            steps: self.steps.and_then(|steps| steps.from.zip(steps.last.earliest())),
            artifacts_ms: self.artifacts.map(Last::earliest),
        }
    }

    /// Decides about the next frame.
    pub fn offer(&mut self, signal: &Signal) -> Decision {
        let first_index = *self.first_index.get_or_insert(signal.frame_index);
        let scene_score = signal.scene_score.unwrap_or_else(|| self.scene_from_hash(signal));
        let is_cut = scene_score >= self.config.scene_cut;
        let Outcome { change: activity, mut is_unsure } = self.track(signal, is_cut);
        // In the order of `ARTIFACTS`.
        let GateConfig { flicker, ghosting, noise, .. } = self.config;
        let scores = [signal.flicker_score, signal.ghosting_score, signal.noise_variance_score];
        let thresholds = [flicker, ghosting, noise];
        let holds: [bool; ARTIFACTS.len()] =
            std::array::from_fn(|place| scores[place] >= thresholds[place]);
        let mut artifact = None;
        let reason = match self.scheduled(signal, is_cut, first_index, activity) {
            Some(reason) => reason,
            None => {
                let light = self.tell_light(signal, is_unsure);
                is_unsure |= light.is_none();
                if light == Some(true) {
                    SelectionReason::ExposureShift
                } else {
                    artifact = holds.iter().position(|&holds| holds);
                    artifact.map_or(SelectionReason::NoTrigger, |place| ARTIFACTS[place])
                }
            }
        };
        // Frames with the same artifact less than a second apart show one occurrence.
        let is_new = artifact.map(|place| self.artifacts[place].is_over(signal.pts_ms));
        let selected = reason != SelectionReason::NoTrigger && is_new != Some(Some(false));
        let confidence = match artifact {
            _ if reason == SelectionReason::SceneCut => scene_score,
            Some(place) => scores[place],
            None if selected => Score::ONE,
            None => scores.into_iter().fold(scene_score, Score::max).complement(),
        };
        for (last, _) in self.artifacts.iter_mut().zip(holds).filter(|(_, holds)| *holds) {
            *last = Last::known(Some(signal.pts_ms));
        }
        self.previous = Some(*signal);
        is_unsure |= is_new == Some(None);
        Decision { reason, selected, confidence, activity, is_unsure }
    }

    fn track(&mut self, signal: &Signal, is_cut: bool) -> Outcome {
        let now = signal.pts_ms;
        let Some(tracker) = &mut self.activity else {
            self.activity = Some(Tracker::after(now));
            self.steps = Some(Steps { from: None, last: Last::until(now) });
            self.artifacts = ARTIFACTS.map(|_| Last::until(now));
            return Outcome { change: None, is_unsure: true };
        };
        if is_cut {
            self.steps = None;
        } else if let Some(previous) = &self.previous
            && previous.luma_mean.abs_diff(signal.luma_mean) >= self.config.luma_shift
        {
            self.steps = Some(Steps::with(self.steps, previous.luma_mean, now));
        }
        tracker.offer(&self.config, signal, is_cut)
    }

    /// Returns the first reason that holds among those ranked above a change of light.
    fn scheduled(
        &self,
        signal: &Signal,
        is_cut: bool,
        first_index: u64,
        activity: Option<Change>,
    ) -> Option<SelectionReason> {
        if signal.frame_index == first_index && self.previous.is_none() {
            return Some(SelectionReason::InitialFrame);
        }
        if is_cut {
            return Some(SelectionReason::SceneCut);
        }
        match activity {
            Some(Change::Started) => return Some(SelectionReason::ActivityStarted),
            Some(Change::Peaked) => return Some(SelectionReason::ActivityPeak),
            Some(Change::Settled) => return Some(SelectionReason::ActivitySettled),
            None => {}
        }
        let distance = signal.frame_index.saturating_sub(first_index);
        let is_due = distance.checked_rem(u64::from(self.config.keepalive_frames)) == Some(0);
        (is_due || self.passes_keepalive(signal)).then_some(SelectionReason::PeriodicKeepalive)
    }

    /// Returns true if the light has stayed changed for a second; `None` if that depends on an unseen past.
    /// Each change is reported once, unless an episode may have taken the frame.
    fn tell_light(&mut self, signal: &Signal, episodes_are_unsure: bool) -> Option<bool> {
        let (Some(steps), Some(previous)) = (self.steps, &self.previous) else {
            return Some(false);
        };
        if !is_on_grid(previous.pts_ms, signal.pts_ms) {
            return Some(false);
        }
        let is_over = steps.last.is_over(signal.pts_ms);
        if is_over != Some(true) {
            return is_over;
        }
        self.steps = episodes_are_unsure.then_some(Steps { from: None, ..steps });
        steps.from.map(|from| from.abs_diff(signal.luma_mean) >= self.config.luma_shift)
    }

    /// Returns true if the frame is the first at or after a multiple of the keepalive interval.
    fn passes_keepalive(&self, signal: &Signal) -> bool {
        let (Some(every), Some(previous)) = (self.config.keepalive_ms, self.previous) else {
            return false;
        };
        let multiple = |signal: &Signal| signal.pts_ms.checked_div_euclid(every.into());
        multiple(signal) > multiple(&previous)
    }

    /// Returns the scene score of a signal without one: hashes of unrelated pictures differ in many bits.
    fn scene_from_hash(&self, signal: &Signal) -> Score {
        self.previous.map_or(Score::ZERO, |previous| {
            let bits = (previous.perceptual_hash ^ signal.perceptual_hash).count_ones();
            Score::from_ratio(u64::from(bits), HASH_BITS_OF_ONE)
        })
    }
}

/// Hash distance that maps to a scene score of 1; half of it counts as a cut. Of 1,149 known cuts 1,076 reach
/// that half, and so do 79 other frames of the same clips.
const HASH_BITS_OF_ONE: u64 = 36;

#[cfg(test)]
mod tests;
