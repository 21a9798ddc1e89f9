//! Signals to findings, markers and frame metadata: the gate replayed, nothing measured.
//!
//! Pure, and a function of the signals and settings alone, so that a repeated analysis gives
//! the same markers with the same ids.

use gate::{Gate, GateConfig, Reason};
use media::{EventType, Marker, RunId, Score, Signal, StreamId};
use timeline::{FrameFinding, MarkerConfig, derive_markers};

/// What analysis says of one frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FrameResult {
    /// Position among the analysed frames.
    pub frame_index: u64,
    /// Presentation time.
    pub pts_ms: i64,
    /// Why the gate would select it.
    pub reason: Reason,
    /// What it is about, in the tenant's words.
    pub event_type: EventType,
    /// How sure.
    pub confidence: Score,
}

/// The gate's decisions on `signals`, each event type passed through `rename`.
pub fn replay(
    signals: &[Signal],
    gate: GateConfig,
    rename: impl Fn(EventType) -> EventType,
) -> Vec<FrameResult> {
    let mut gate = Gate::new(gate);
    let results = signals.iter().map(|signal| {
        let decision = gate.offer(signal);
        FrameResult {
            frame_index: signal.frame_index,
            pts_ms: signal.pts_ms,
            reason: decision.reason,
            event_type: rename(decision.event_type),
            confidence: decision.confidence,
        }
    });
    results.collect()
}

/// The markers of analysed frames.
pub fn markers(
    run: RunId,
    stream: &StreamId,
    frames: &[FrameResult],
    config: MarkerConfig,
) -> Vec<Marker> {
    let findings = frames.iter().map(|frame| FrameFinding {
        frame_index: frame.frame_index,
        pts_ms: frame.pts_ms,
        event_type: frame.event_type.clone(),
        is_scene_cut: frame.reason == Reason::SceneCut,
        confidence: frame.confidence,
    });
    derive_markers(run, stream, findings, config)
}

/// How frames are grouped into the windows of their metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Windowing {
    /// Most frames in a window.
    pub frames: u32,
    /// Longest span of a window.
    pub span_ms: u32,
}

/// A group of consecutive frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
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
pub fn windows(frames: &[FrameResult], windowing: Windowing) -> Vec<Window> {
    let mut windows: Vec<Window> = Vec::new();
    for (at, frame) in frames.iter().enumerate() {
        let fits = |window: &&mut Window| {
            let span = frame.pts_ms.saturating_sub(window.start_ms);
            window.len < windowing.frames as usize && span < i64::from(windowing.span_ms)
        };
        match windows.last_mut().filter(fits) {
            Some(window) => {
                window.end_ms = frame.pts_ms;
                window.len += 1;
            }
            None => windows.push(Window {
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
    use super::*;

    #[test]
    fn a_window_ends_at_its_span_or_its_frame_count() {
        let frames: Vec<FrameResult> = [0, 40, 80, 120, 1000, 1040, 1300]
            .into_iter()
            .enumerate()
            .map(|(at, pts_ms)| FrameResult {
                frame_index: at as u64,
                pts_ms,
                reason: Reason::NoTrigger,
                event_type: EventType::ContextObservation,
                confidence: Score::ONE,
            })
            .collect();
        let shape = |frames_max, span_ms| -> Vec<(i64, i64, usize)> {
            let windowing = Windowing { frames: frames_max, span_ms };
            windows(&frames, windowing).iter().map(|w| (w.start_ms, w.end_ms, w.len)).collect()
        };
        assert_eq!(shape(16, 250), [(0, 120, 4), (1000, 1040, 2), (1300, 1300, 1)]);
        assert_eq!(shape(2, 250), [(0, 40, 2), (80, 120, 2), (1000, 1040, 2), (1300, 1300, 1)]);
        assert_eq!(shape(16, 50), [(0, 40, 2), (80, 120, 2), (1000, 1040, 2), (1300, 1300, 1)]);
        assert_eq!(shape(16, 60_000).len(), 1);
    }
}
