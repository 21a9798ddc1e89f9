//! Signals to findings, markers and frame metadata: the gate replayed, nothing measured.
//!
//! Pure, and a function of the signals, of what models said and of settings alone, so that a
//! repeated analysis gives the same markers with the same ids.

pub mod rezoned;
pub mod trial;

use std::{collections::HashSet, sync::Arc};

use gate::{Gate, GateConfig, SelectionReason};
use media::{EventType, FrameRate, Marker, MarkerId, MarkerOrigin, Score, Signal};
use timeline::{AnalysisKey, FrameLabel, MarkerConfig, derive_markers};

/// Result of the analysis of one frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FrameAnalysis {
    /// Position among the analysed frames.
    pub frame_index: u64,
    /// Presentation time.
    pub pts_ms: i64,
    /// Reason of the gate's decision.
    pub reason: SelectionReason,
    /// Event type by the gate, in the tenant's words.
    pub event_type: EventType,
    /// Confidence of the gate.
    pub confidence: Score,
    /// Outcome of asking a model; `None` where none was to be asked.
    pub insight: Option<Arc<ModelOutcome>>,
}

/// Outcome of asking a model about frames.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ModelOutcome {
    /// An answer.
    Said(ModelFinding),
    /// Reason that there is none, in words for the owner.
    Unsaid(String),
}

/// Finding of a model about frames.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ModelFinding {
    /// Event type, in the tenant's words; `None` where the model named none.
    pub event_type: Option<EventType>,
    /// The model called it a scene cut, whatever the tenant does.
    pub is_scene_cut: bool,
    /// Confidence of the model; `None` where it gave none.
    pub confidence: Option<Score>,
    /// The main object, in the tenant's words.
    pub object_label: Option<String>,
    /// One line.
    pub summary: String,
    /// The model that said it.
    pub model: Option<String>,
}

impl FrameAnalysis {
    /// Finding of a model, if one answered.
    pub fn said(&self) -> Option<&ModelFinding> {
        match self.insight.as_deref() {
            Some(ModelOutcome::Said(said)) => Some(said),
            _ => None,
        }
    }

    /// Event type of the frame and its confidence: a model's value goes before the gate's, each for
    /// itself.
    pub fn finding(&self) -> (&EventType, Score) {
        let said = self.said().and_then(|said| Some((said.event_type.as_ref()?, said.confidence)));
        let (event_type, confidence) = said.unwrap_or((&self.event_type, None));
        (event_type, confidence.unwrap_or(self.confidence))
    }

    /// Origin of its event type.
    fn origin(&self) -> MarkerOrigin {
        let said = self.said().is_some_and(|said| said.event_type.is_some());
        if said { MarkerOrigin::Model } else { MarkerOrigin::Gate }
    }

    /// The frame as the gate alone tells of it.
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

    fn is_scene_cut(&self) -> bool {
        let said = self.said().filter(|said| said.event_type.is_some());
        said.map_or(self.reason == SelectionReason::SceneCut, |said| said.is_scene_cut)
    }
}

/// The gate's decisions on `signals`, each event type passed through `rename`.
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
            event_type: rename(decision.event_type),
            confidence: decision.confidence,
            insight: None,
        }
    });
    results.collect()
}

/// The markers of the frames of `analysis`.
pub fn markers(
    analysis: &AnalysisKey,
    frames: &[FrameAnalysis],
    config: MarkerConfig,
) -> Vec<Marker> {
    let findings = frames.iter().map(|frame| {
        let (event_type, confidence) = frame.finding();
        FrameLabel {
            frame_index: frame.frame_index,
            pts_ms: frame.pts_ms,
            event_type: event_type.clone(),
            is_scene_cut: frame.is_scene_cut(),
            confidence,
            origin: frame.origin(),
        }
    });
    derive_markers(analysis, findings, config)
}

/// The markers of the gate alone that `markers`, those of `frames`, have not got: a model spoke.
pub fn markers_beside(
    analysis: &AnalysisKey,
    frames: &[FrameAnalysis],
    config: MarkerConfig,
    markers: &[Marker],
) -> Vec<Marker> {
    if frames.iter().all(|frame| frame.origin() == MarkerOrigin::Gate) {
        return Vec::new();
    }
    let known: HashSet<MarkerId> = markers.iter().map(|marker| marker.marker_id).collect();
    let mut own = derive_markers(analysis, frames.iter().map(FrameAnalysis::by_gate), config);
    own.retain(|marker| !known.contains(&marker.marker_id));
    own.iter_mut().for_each(|marker| marker.beside = true);
    own
}

/// Frames a second by the times of `frames`, within what sources are analysed at; of a single frame 1.
pub fn rate_of(frames: &[FrameAnalysis]) -> FrameRate {
    let span_ms = match (frames.first(), frames.last()) {
        (Some(first), Some(last)) => last.pts_ms.abs_diff(first.pts_ms),
        _ => 0,
    };
    let steps = frames.len().saturating_sub(1);
    if steps == 0 {
        return FrameRate::ONE;
    }
    // No time at all between several frames is faster than all.
    let fps = steps as f64 * 1e3 / span_ms as f64;
    let fps = fps.clamp(*FrameRate::ANALYSED.start(), *FrameRate::ANALYSED.end());
    FrameRate::from_f64(fps).unwrap_or(FrameRate::FASTEST)
}

/// Limits of the windows into which frames are grouped for their metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Windowing {
    /// Most frames in a window.
    pub frames: u32,
    /// Longest span of a window.
    pub span_ms: u32,
}

/// A group of consecutive frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetadataWindow {
    /// Position among the windows.
    pub ordinal: u64,
    /// Presentation time of its first frame.
    pub start_ms: i64,
    /// Presentation time of its last frame.
    pub end_ms: i64,
    /// Its frames: `first..first + len`.
    pub first: usize,
    /// Number of its frames.
    pub len: usize,
}

/// The windows over `frames`, each as long as `windowing` lets it be.
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
            let frames = times.iter().map(|pts_ms| FrameAnalysis {
                pts_ms: *pts_ms,
                ..frame(0, SelectionReason::NoTrigger, None)
            });
            let found = rate_of(&frames.collect::<Vec<_>>());
            assert_eq!(found.as_f64(), expected, "{times:?}");
        }
    }

    #[test]
    fn a_window_ends_at_its_span_or_its_frame_count() {
        let frames: Vec<FrameAnalysis> = [0, 40, 80, 120, 1000, 1040, 1300]
            .into_iter()
            .enumerate()
            .map(|(at, pts_ms)| FrameAnalysis {
                pts_ms,
                ..frame(at as u64, SelectionReason::NoTrigger, None)
            })
            .collect();
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
