//! Markers: runs of frames with the same event type, and the certainty of each.
//!
//! A pure function of the findings, computed at once or frame by frame. A segment ends where the type changes
//! or an index is skipped. A provisional segment that the next one confirms keeps its marker and gains a
//! finalized one. Labels are renamed by the caller beforehand; segments follow the renamed label, while a
//! scene cut stays one under any name.

use media::{
    AnalysisId, EventType, Marker, MarkerId, MarkerOrigin, MarkerStatus, RunId, Score, StreamId,
};
use sha2::{Digest, Sha256};

/// Finding of the analysis about one frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FrameLabel {
    /// Position among the analysed frames.
    pub frame_index: u64,
    /// Presentation time in milliseconds.
    pub pts_ms: i64,
    /// Event type of the frame, used for its marker.
    pub event_type: EventType,
    /// True for a scene cut under any label: its segment is exact, as is that of every frame labelled as a
    /// scene cut.
    pub is_scene_cut: bool,
    /// Confidence of the finding.
    pub confidence: Score,
    /// Origin of the finding.
    pub origin: MarkerOrigin,
}

/// Identity of an analysis; a replay of the same analysis yields the same ids.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AnalysisKey {
    /// Analysed run.
    pub run: RunId,
    /// The stream of the run.
    pub stream: StreamId,
    /// Number of earlier analyses of the stream.
    pub ordinal: u64,
}

impl AnalysisKey {
    /// Returns the id of the analysis.
    pub fn id(&self) -> AnalysisId {
        AnalysisId::from_bytes(self.derived(&["analysis"], &[]))
    }

    /// Derives an id within the analysis from `texts` and `numbers`.
    fn derived(&self, texts: &[&str], numbers: &[u64]) -> [u8; 8] {
        let mut digest = Sha256::new();
        digest.update(self.run.as_bytes());
        // The length comes first, so that no two lists of texts yield the same bytes.
        for text in [self.stream.as_str()].iter().chain(texts) {
            digest.update((text.len() as u64).to_le_bytes());
            digest.update(text.as_bytes());
        }
        for number in [self.ordinal].iter().chain(numbers) {
            digest.update(number.to_le_bytes());
        }
        digest.finalize()[..8].try_into().expect("a digest has 32 bytes")
    }
}

/// Thresholds of exact markers and of confirmations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MarkerConfig {
    /// Least confidence of an exact segment.
    pub threshold: Score,
    /// Largest distance in frames from the end of a segment to the start of the next that confirms it.
    pub correction_window_frames: u64,
}

impl Default for MarkerConfig {
    fn default() -> MarkerConfig {
        MarkerConfig { threshold: Score::from_millionths(700_000), correction_window_frames: 3 }
    }
}

/// Derives the markers of `frames`, which must have ascending `frame_index`, like a [`MarkerDeriver`].
pub fn derive_markers(
    analysis: &AnalysisKey,
    frames: impl IntoIterator<Item = FrameLabel>,
    config: MarkerConfig,
) -> Vec<Marker> {
    let mut deriver = MarkerDeriver::new(analysis.clone(), config);
    let mut markers = Vec::new();
    for frame in frames {
        markers.extend(deriver.push(frame));
    }
    markers.extend(deriver.finish());
    markers
}

/// Derives markers frame by frame, as a recording grows.
///
/// Returns one marker per segment, in order, when the segment closes; a finalized marker directly follows the
/// marker of the segment that confirms it. In a chain of provisional segments each is confirmed by its own
/// successor only, so A, B, C gives A, B, A+B, C, B+C. Later frames do not change a returned marker.
#[derive(Clone, Debug)]
pub struct MarkerDeriver {
    analysis: AnalysisKey,
    id: AnalysisId,
    config: MarkerConfig,
    open: Option<Segment>,
    /// Marker of the last closed segment.
    previous: Option<Marker>,
}

impl MarkerDeriver {
    /// Returns a deriver whose next frame is the first of `analysis`.
    pub fn new(analysis: AnalysisKey, config: MarkerConfig) -> MarkerDeriver {
        let id = analysis.id();
        MarkerDeriver { analysis, id, config, open: None, previous: None }
    }

    /// Takes the next frame and returns the markers that it completes, in order.
    pub fn push(&mut self, frame: FrameLabel) -> impl Iterator<Item = Marker> + use<> {
        let closed = match &mut self.open {
            Some(segment) if segment.continues_with(&frame) => {
                segment.extend(&frame);
                None
            }
            open => open.replace(Segment::start(frame)),
        };
        self.close(closed)
    }

    /// Closes the open segment and returns the last markers, in order.
    pub fn finish(mut self) -> impl Iterator<Item = Marker> + use<> {
        let closed = self.open.take();
        self.close(closed)
    }

    fn close(&mut self, segment: Option<Segment>) -> impl Iterator<Item = Marker> + use<> {
        let marker = segment.map(|segment| self.marker_of(segment));
        let finalized = marker.as_ref().and_then(|marker| {
            let previous = self.previous.replace(marker.clone())?;
            self.finalized(&previous, marker)
        });
        marker.into_iter().chain(finalized)
    }

    fn marker_of(&self, segment: Segment) -> Marker {
        let confidence = segment.confidence();
        let is_cut = segment.has_scene_cut || segment.event_type == EventType::SceneCut;
        let exact = is_cut || confidence >= self.config.threshold;
        let status = if exact { MarkerStatus::Exact } else { MarkerStatus::Provisional };
        let Segment { event_type, origin, start, end, .. } = segment;
        Marker { origin: Some(origin), ..self.marker(event_type, status, start, end, confidence) }
    }

    /// Returns the marker of `previous` and `next` together, if `next` confirms `previous`.
    fn finalized(&self, previous: &Marker, next: &Marker) -> Option<Marker> {
        let distance = next.start_frame.checked_sub(previous.end_frame)?;
        let is_confirmed = previous.status == MarkerStatus::Provisional
            && previous.event_type == next.event_type
            && distance <= self.config.correction_window_frames;
        if !is_confirmed {
            return None;
        }
        let confidence =
            Score::mean([previous.confidence, next.confidence]).expect("two scores have a mean");
        let marker = self.marker(
            previous.event_type.clone(),
            MarkerStatus::Finalized,
            (previous.start_frame, previous.start_pts_ms),
            (next.end_frame, next.end_pts_ms),
            confidence,
        );
        let is_model = [previous, next].iter().any(|one| one.origin == Some(MarkerOrigin::Model));
        let origin = Some(if is_model { MarkerOrigin::Model } else { MarkerOrigin::Gate });
        Some(Marker { supersedes_marker_id: Some(previous.marker_id), origin, ..marker })
    }

    fn marker(
        &self,
        event_type: EventType,
        status: MarkerStatus,
        start: (u64, i64),
        end: (u64, i64),
        confidence: Score,
    ) -> Marker {
        let names = [event_type.as_str(), status.as_str()];
        Marker {
            marker_id: MarkerId::from_bytes(self.analysis.derived(&names, &[start.0, end.0])),
            run_id: self.analysis.run,
            stream_id: self.analysis.stream.clone(),
            event_type,
            status,
            start_frame: start.0,
            end_frame: end.0,
            start_pts_ms: start.1,
            end_pts_ms: end.1,
            confidence,
            supersedes_marker_id: None,
            analysis_id: Some(self.id),
            origin: None,
            beside: false,
        }
    }
}

#[derive(Clone, Debug)]
struct Segment {
    event_type: EventType,
    has_scene_cut: bool,
    origin: MarkerOrigin,
    start: (u64, i64),
    end: (u64, i64),
    millionths: u64,
    frames: u64,
}

impl Segment {
    fn start(frame: FrameLabel) -> Segment {
        let at = (frame.frame_index, frame.pts_ms);
        let millionths = u64::from(frame.confidence.millionths());
        Segment {
            event_type: frame.event_type,
            has_scene_cut: frame.is_scene_cut,
            origin: frame.origin,
            start: at,
            end: at,
            millionths,
            frames: 1,
        }
    }

    fn continues_with(&self, frame: &FrameLabel) -> bool {
        frame.event_type == self.event_type && self.end.0.checked_add(1) == Some(frame.frame_index)
    }

    fn extend(&mut self, frame: &FrameLabel) {
        self.end = (frame.frame_index, frame.pts_ms);
        self.has_scene_cut |= frame.is_scene_cut;
        if frame.origin == MarkerOrigin::Model {
            self.origin = MarkerOrigin::Model;
        }
        self.millionths += u64::from(frame.confidence.millionths());
        self.frames += 1;
    }

    fn confidence(&self) -> Score {
        Score::from_ratio(self.millionths, self.frames * u64::from(Score::SCALE))
    }
}

#[cfg(test)]
mod tests;
