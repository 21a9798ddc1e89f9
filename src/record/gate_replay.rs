//! Replays the gate on recorded signals to derive findings, markers and frame metadata; measures nothing.
//!
//! Pure: the result depends only on the signals, the model answers and the settings, so that a repeated
//! analysis gives the same markers with the same ids.

pub mod rezoned;
pub mod trial;

use std::{collections::HashSet, sync::Arc};

use gate::{Gate, GateConfig, SelectionReason};
use media::{EventType, FrameRate, Marker, MarkerId, MarkerOrigin, Score, Signal};
use timeline::{AnalysisKey, FrameLabel, MarkerConfig, derive_markers};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FrameAnalysis {
    /// Position among the analysed frames.
    pub frame_index: u64,
    pub pts_ms: i64,
    pub reason: SelectionReason,
    /// Event type by the gate, renamed by the tenant's labels.
    pub event_type: EventType,
    /// Confidence of the gate.
    pub confidence: Score,
    /// Outcome of the model stage; `None` if no model was to be asked.
    pub insight: Option<Arc<ModelOutcome>>,
}

/// Outcome of the model stage for a range of frames.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ModelOutcome {
    Said(ModelFinding),
    /// Reason that there is no finding, for the owner.
    Unsaid(String),
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ModelFinding {
    /// Event type, renamed by the tenant's labels; `None` if the model named none.
    pub event_type: Option<EventType>,
    /// True if the model called the frames a scene cut, before any renaming.
    pub is_scene_cut: bool,
    /// Confidence of the model; `None` if it gave none.
    pub confidence: Option<Score>,
    /// Label of the main object, renamed by the tenant's labels.
    pub object_label: Option<String>,
    /// Summary of one line.
    pub summary: String,
    pub model: Option<String>,
}

impl FrameAnalysis {
    pub fn said(&self) -> Option<&ModelFinding> {
        match self.insight.as_deref() {
            Some(ModelOutcome::Said(said)) => Some(said),
            _ => None,
        }
    }

    /// Returns the event type of the frame and its confidence; each is the model's if it gave one,
    /// else the gate's.
    pub fn finding(&self) -> (&EventType, Score) {
        let said = self.said().and_then(|said| Some((said.event_type.as_ref()?, said.confidence)));
        let (event_type, confidence) = said.unwrap_or((&self.event_type, None));
        (event_type, confidence.unwrap_or(self.confidence))
    }

    fn by_gate(&self) -> FrameLabel {
        FrameLabel {
            frame_index: self.frame_index,
            pts_ms: self.pts_ms,
            event_type: self.event_type.clone(),
            is_scene_cut: self.reason == SelectionReason::SceneCut,
            confidence: self.confidence,
            origin: MarkerOrigin::Gate,
        }
    }

    /// Label of the frame: by the model if that named an event type, else by the gate.
    fn label(&self) -> FrameLabel {
        let by_gate = self.by_gate();
        let Some(said) = self.said().filter(|said| said.event_type.is_some()) else {
            return by_gate;
        };
        let (event_type, confidence) = self.finding();
        FrameLabel {
            event_type: event_type.clone(),
            is_scene_cut: said.is_scene_cut,
            confidence,
            origin: MarkerOrigin::Model,
            ..by_gate
        }
    }
}

/// Returns the gate's decisions on `signals`, each event type mapped by `rename`.
pub fn replay(
    signals: impl IntoIterator<Item = Signal>,
    gate: GateConfig,
    rename: impl Fn(EventType) -> EventType,
) -> Vec<FrameAnalysis> {
    let mut gate = Gate::new(gate);
    let results = signals.into_iter().map(|signal| {
        let decision = gate.offer(&signal);
        FrameAnalysis {
            frame_index: signal.frame_index,
            pts_ms: signal.pts_ms,
            reason: decision.reason,
            event_type: rename(decision.reason.event_type()),
            confidence: decision.confidence,
            insight: None,
        }
    });
    results.collect()
}

pub fn markers(
    analysis: &AnalysisKey,
    frames: &[FrameAnalysis],
    config: MarkerConfig,
) -> Vec<Marker> {
    derive_markers(analysis, frames.iter().map(FrameAnalysis::label), config)
}

/// Derives the markers of the gate alone that `markers` lacks; empty unless a model named an event type.
pub fn markers_beside(
    analysis: &AnalysisKey,
    frames: &[FrameAnalysis],
    config: MarkerConfig,
    markers: &[Marker],
) -> Vec<Marker> {
    let by_gate = |frame: &FrameAnalysis| frame.said().is_none_or(|said| said.event_type.is_none());
    if frames.iter().all(by_gate) {
        return Vec::new();
    }
    let known: HashSet<MarkerId> = markers.iter().map(|marker| marker.marker_id).collect();
    let mut own = derive_markers(analysis, frames.iter().map(FrameAnalysis::by_gate), config);
    own.retain(|marker| !known.contains(&marker.marker_id));
    own.iter_mut().for_each(|marker| marker.beside = true);
    own
}

/// Frame rate by the presentation times, clamped to the analysed range; 1 for a single frame.
pub fn rate_of(frames: &[FrameAnalysis]) -> FrameRate {
    let span_ms = match (frames.first(), frames.last()) {
        (Some(first), Some(last)) => last.pts_ms.abs_diff(first.pts_ms),
        _ => 0,
    };
    let steps = frames.len().saturating_sub(1);
    if steps == 0 {
        return FrameRate::ONE;
    }
    // Several frames with the same time have an infinite rate, which is clamped.
    let fps = steps as f64 * 1e3 / span_ms as f64;
    let fps = fps.clamp(*FrameRate::ANALYSED.start(), *FrameRate::ANALYSED.end());
    FrameRate::from_f64(fps).unwrap_or(FrameRate::FASTEST)
}

/// Limits of the windows into which frames are grouped for their metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Windowing {
    pub frames: u32,
    pub span_ms: u32,
}

/// A group of consecutive frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetadataWindow {
    pub ordinal: u64,
    /// Presentation time of the first frame, in ms.
    pub start_ms: i64,
    /// Presentation time of the last frame, in ms.
    pub end_ms: i64,
    /// Index of the first frame; the window is `first..first + len`.
    pub first: usize,
    pub len: usize,
}

/// Groups `frames` into windows, each as long as `windowing` allows.
pub fn windows(frames: &[FrameAnalysis], windowing: Windowing) -> Vec<MetadataWindow> {
    let mut windows: Vec<MetadataWindow> = Vec::new();
    for (at, frame) in frames.iter().enumerate() {
        let fits = |window: &&mut MetadataWindow| {
            let span = frame.pts_ms.saturating_sub(window.start_ms);
            window.len < windowing.frames as usize && span < i64::from(windowing.span_ms)
        };
        match windows.last_mut().filter(fits) {
            Some(window) => {
                window.end_ms = frame.pts_ms;
                window.len += 1;
            }
            None => windows.push(MetadataWindow {
                ordinal: windows.len() as u64,
                start_ms: frame.pts_ms,
                end_ms: frame.pts_ms,
                first: at,
                len: 1,
            }),
        }
    }
    windows
}

#[cfg(test)]
mod tests {
    use media::RunId;

    use super::*;

    fn frame(
        frame_index: u64,
        reason: SelectionReason,
        insight: Option<ModelOutcome>,
    ) -> FrameAnalysis {
        let insight = insight.map(Arc::new);
        let (event_type, confidence) = (EventType::ContextObservation, Score::ONE);
        FrameAnalysis { frame_index, pts_ms: 0, reason, event_type, confidence, insight }
    }

    /// Frames at these times.
    fn frames(times: &[i64]) -> Vec<FrameAnalysis> {
        let frame =
            |(&pts_ms, at)| FrameAnalysis { pts_ms, ..frame(at, SelectionReason::NoTrigger, None) };
        times.iter().zip(0..).map(frame).collect()
    }

    #[test]
    fn what_a_model_says_goes_before_what_the_gate_says() {
        let half = Score::from_millionths(500_000);
        let said = |name: Option<&str>, is_scene_cut| {
            let event_type = name.map(EventType::from_name);
            Some(ModelOutcome::Said(ModelFinding {
                event_type,
                is_scene_cut,
                confidence: Some(half),
                ..ModelFinding::default()
            }))
        };
        // The gate calls every frame an observation, and the third one a cut.
        let frames = [
            frame(0, SelectionReason::NoTrigger, said(Some("van_turns"), false)),
            frame(1, SelectionReason::NoTrigger, said(Some("van_turns"), false)),
            frame(2, SelectionReason::SceneCut, said(Some("van_leaves"), false)),
            frame(3, SelectionReason::NoTrigger, said(Some("cut"), true)),
            frame(4, SelectionReason::NoTrigger, said(None, false)),
            frame(5, SelectionReason::NoTrigger, Some(ModelOutcome::Unsaid("timeout".to_owned()))),
            frame(6, SelectionReason::NoTrigger, None),
        ];
        let stream = "main".parse().expect("an id");
        let analysis = AnalysisKey { run: RunId::from_bytes([1; 16]), stream, ordinal: 0 };
        let markers = markers(&analysis, &frames, MarkerConfig::default());
        let found: Vec<_> = markers
            .iter()
            .map(|marker| (marker.event_type.as_str(), marker.status.as_str(), marker.end_frame))
            .collect();
        let expected = [
            ("van_turns", "provisional", 1),
            ("van_leaves", "provisional", 2),
            ("cut", "exact", 3),
            ("context_observation", "exact", 6),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn frames_have_the_rate_of_their_times() {
        let rows: [(&[i64], f64); 7] = [
            (&[], 1.0),
            (&[700], 1.0),
            (&[-40, 0, 40, 80], 25.0),
            (&[0, 33, 67, 100], 30.0),
            (&[5, 5], 120.0),
            (&[0, 60_000], 0.2),
            (&[i64::MIN, i64::MAX], 0.2),
        ];
        for (times, expected) in rows {
            assert_eq!(rate_of(&frames(times)).as_f64(), expected, "{times:?}");
        }
    }

    #[test]
    fn a_window_ends_at_its_span_or_its_frame_count() {
        let frames = frames(&[0, 40, 80, 120, 1000, 1040, 1300]);
        let shape = |frames_max, span_ms| -> Vec<(i64, i64, usize)> {
            let windowing = Windowing { frames: frames_max, span_ms };
            windows(&frames, windowing).iter().map(|w| (w.start_ms, w.end_ms, w.len)).collect()
        };
        assert_eq!(shape(16, 250), [(0, 120, 4), (1000, 1040, 2), (1300, 1300, 1)]);
        assert_eq!(shape(2, 250), [(0, 40, 2), (80, 120, 2), (1000, 1040, 2), (1300, 1300, 1)]);
        assert_eq!(shape(16, 80), [(0, 40, 2), (80, 120, 2), (1000, 1040, 2), (1300, 1300, 1)]);
        assert_eq!(shape(16, 60_000).len(), 1);
    }
}
