//! Answer of an analysis: counts, markers, then one metadata object per frame, streamed.
//!
//! Half a million frames are a few hundred megabytes of JSON, which are never in memory at once.

use media::{Dimensions, FrameRate};
use timeline::SamplingPolicy;
use worker::ChunkImageOptions;

use super::prelude::*;
use crate::record::gate_replay::{FrameAnalysis, MetadataWindow, ModelOutcome, Windowing, windows};

/// Values shared by all metadata objects of an analysis.
pub struct MetadataContext {
    pub request_id: RequestId,
    pub run_id: RunId,
    pub stream_id: StreamId,
    pub mode: String,
    /// Model that answered, or the requested one.
    pub model: String,
    pub trace_id: Option<String>,
    pub policy: SamplingPolicy,
    pub sample_fps: FrameRate,
    /// Origin of the signals: `ingest`, `request` or `reason`.
    pub source: &'static str,
    /// Model that was to describe the frames.
    pub asked_model: Option<String>,
    /// True if the caller wants one object per frame.
    pub is_included: bool,
    /// True if the model could be, and was, asked.
    pub is_asked: bool,
    /// Region of the pictures shown to the model; `None` if that is the whole picture.
    pub coordinates: Option<FrameCoordinates>,
}

/// Returns the answer `result`, whose last field is an empty `metadata`, with one object per frame in that.
pub fn answer(
    result: impl Serialize,
    context: MetadataContext,
    frames: Vec<FrameAnalysis>,
    windowing: Windowing,
) -> ApiResult {
    let windows = if context.is_included { windows(&frames, windowing) } else { Vec::new() };
    let mut head = written(&result);
    let before = head.strip_suffix("[]}").map(str::len);
    head.truncate(before.ok_or(ApiError::Bug("the metadata of an answer do not come last"))?);
    let places = windows
        .into_iter()
        .flat_map(|window| (window.first..window.first + window.len).map(move |at| (window, at)));
    let mut comma = "";
    let objects = places.map(move |(window, at)| {
        let text = written(&metadata(&context, &window, &frames[at]));
        Ok(std::mem::replace(&mut comma, ",").to_owned() + &text)
    });
    listed(head, objects, || "}".to_owned(), READING_BYTES)
}

fn written(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("our own types with string keys are writable")
}

/// Metadata of one analysed frame, as `schemas/frame-metadata.schema.json` says.
#[derive(Serialize, ToSchema)]
pub struct FrameMetadata<'a> {
    #[schema(value_type = schema_types::RunId)]
    run_id: String,
    #[schema(value_type = schema_types::Label)]
    stream_id: &'a str,
    frame_index: u64,
    pts_ms: i64,
    #[schema(value_type = schema_types::AnalysisMode)]
    mode: &'a str,
    #[schema(value_type = schema_types::Label)]
    model: &'a str,
    window: FrameWindow,
    annotations: FrameAnnotations<'a>,
    #[schema(value_type = schema_types::Fraction)]
    confidence: f64,
    fallback: FrameFallback<'a>,
    trace: FrameTrace<'a>,
    /// `run_id:pts_ms:frame_index`.
    ordering_key: String,
    sampling_policy: schema_types::Sampling,
    /// Frame rate of the source or as requested, else estimated from the timestamps of the frames.
    #[schema(value_type = schema_types::Fps)]
    sample_fps: f64,
    /// `gate` if no model was asked about the frame, `stop` if a model answered, else `other`.
    #[schema(value_type = schema_types::FrameFinish)]
    finish_reason: &'static str,
    /// Region of the pictures that a model was shown; absent without a model or a crop.
    #[serde(skip_serializing_if = "Option::is_none")]
    coordinates: Option<FrameCoordinates>,
    /// `sightline.image.v1`; present with `coordinates`.
    #[serde(skip_serializing_if = "Option::is_none")]
    coordinate_schema: Option<&'static str>,
}

/// Window of frames that were analysed together.
#[derive(Serialize, ToSchema)]
struct FrameWindow {
    start_ms: i64,
    end_ms: i64,
    segment_id: String,
    /// `ingest`, `request` or `reason`.
    source: &'static str,
}

/// Findings in the frame.
#[derive(Serialize, ToSchema)]
struct FrameAnnotations<'a> {
    /// Summary by a model; empty if no model described the frame.
    summary: &'a str,
    /// Main object, if a model named one.
    objects: Vec<FrameObject<'a>>,
    /// Findings; the first is the frame's event type. If that is a model's, the gate's follows.
    #[schema(min_items = 1)]
    events: Vec<FrameFinding<'a>>,
}

/// An object that a model named.
#[derive(Serialize, ToSchema)]
struct FrameObject<'a> {
    label: &'a str,
    #[schema(value_type = schema_types::Fraction)]
    score: f64,
}

/// A finding in the frame.
#[derive(Serialize, ToSchema)]
struct FrameFinding<'a> {
    #[serde(rename = "type")]
    event_type: &'a str,
    #[schema(value_type = schema_types::Fraction)]
    score: f64,
    /// Reason of the gate's decision, or a model's one-line summary.
    description: &'a str,
}

/// Fallback to the gate's decision if a model gave no answer.
#[derive(Serialize, ToSchema)]
struct FrameFallback<'a> {
    used: bool,
    /// Reason why there was no answer; absent if there was one, or no model was asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'a str>,
    /// Model that was asked; absent without a fallback.
    #[serde(skip_serializing_if = "Option::is_none")]
    from_model: Option<&'a str>,
}

/// Ids that identify the analysis.
#[derive(Serialize, ToSchema)]
struct FrameTrace<'a> {
    #[schema(value_type = schema_types::RequestId)]
    request_id: String,
    #[schema(value_type = String)]
    trace_id: std::borrow::Cow<'a, str>,
    /// The 16 hexadecimal digits of the request id.
    span_id: String,
}

fn metadata<'a>(
    context: &'a MetadataContext,
    window: &MetadataWindow,
    frame: &'a FrameAnalysis,
) -> FrameMetadata<'a> {
    let run_id = context.run_id.to_string();
    let request_id = context.request_id.to_string();
    let (pts_ms, frame_index) = (frame.pts_ms, frame.frame_index);
    let reason = match frame.insight.as_deref() {
        Some(ModelOutcome::Unsaid(reason)) => Some(reason.as_str()),
        _ => None,
    };
    FrameMetadata {
        ordering_key: format!("{run_id}:{pts_ms}:{frame_index}"),
        run_id,
        stream_id: context.stream_id.as_str(),
        frame_index,
        pts_ms,
        mode: &context.mode,
        model: frame.said().and_then(|said| said.model.as_deref()).unwrap_or(&context.model),
        window: FrameWindow {
            start_ms: window.start_ms,
            end_ms: window.end_ms,
            segment_id: format!("seg-{}", window.ordinal),
            source: context.source,
        },
        annotations: annotations(frame),
        confidence: frame.finding().1.as_f64(),
        fallback: FrameFallback {
            used: reason.is_some(),
            reason,
            from_model: reason.and(context.asked_model.as_deref()),
        },
        trace: FrameTrace {
            // Without a caller's trace id, the request id is used.
            trace_id: match &context.trace_id {
                Some(trace_id) => trace_id.into(),
                None => request_id.clone().into(),
            },
            span_id: request_id.trim_start_matches("req-").to_owned(),
            request_id,
        },
        sampling_policy: context.policy.into(),
        sample_fps: context.sample_fps.as_f64(),
        finish_reason: match frame.insight.as_deref() {
            Some(ModelOutcome::Said(_)) => "stop",
            // A model that gave no answer did not finish.
            Some(ModelOutcome::Unsaid(_)) if context.is_asked => "other",
            _ => "gate",
        },
        coordinates: context.coordinates,
        coordinate_schema: context.coordinates.map(|_| COORDINATE_SCHEMA),
    }
}

fn annotations(frame: &FrameAnalysis) -> FrameAnnotations<'_> {
    let gate = FrameFinding {
        event_type: frame.event_type.as_str(),
        score: frame.confidence.as_f64(),
        description: frame.reason.as_str(),
    };
    let Some(said) = frame.said() else {
        return FrameAnnotations { summary: "", objects: Vec::new(), events: vec![gate] };
    };
    let score = said.confidence.unwrap_or(frame.confidence).as_f64();
    let event_type = said.event_type.as_ref();
    let description = said.summary.as_str();
    let model =
        event_type.map(|name| FrameFinding { event_type: name.as_str(), score, description });
    let label = said.object_label.as_deref();
    FrameAnnotations {
        summary: &said.summary,
        objects: label.map(|label| FrameObject { label, score }).into_iter().collect(),
        events: model.into_iter().chain([gate]).collect(),
    }
}

const COORDINATE_SCHEMA: &str = "sightline.image.v1";

/// Region of the pictures that a model was shown, given for the first picture after rotation.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, ToSchema)]
pub struct FrameCoordinates {
    source_extent: FrameSize,
    requested_region: FrameFractions,
    resolved_region: FramePixels,
    /// Size of the region after scaling.
    analysis_extent: FrameSize,
}

/// A size in pixels.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, ToSchema)]
struct FrameSize {
    width: u32,
    height: u32,
}

/// A rectangle as fractions of the picture.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, ToSchema)]
struct FrameFractions {
    #[schema(value_type = schema_types::Fraction)]
    x: f64,
    #[schema(value_type = schema_types::Fraction)]
    y: f64,
    #[schema(exclusive_minimum = 0.0, maximum = 1.0)]
    width: f64,
    #[schema(exclusive_minimum = 0.0, maximum = 1.0)]
    height: f64,
}

/// A rectangle of whole pixels of the source.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, ToSchema)]
struct FramePixels {
    x: u32,
    y: u32,
    width: u32,
    height: u32,
}

impl From<Dimensions> for FrameSize {
    fn from(Dimensions { width, height }: Dimensions) -> FrameSize {
        FrameSize { width, height }
    }
}

impl FrameCoordinates {
    /// Returns the region that `views` crop from pictures of size `source`; `None` without a crop.
    pub fn of(views: &ChunkImageOptions, source: Dimensions) -> Option<FrameCoordinates> {
        let [x, y, width, height] = views.crop?.sides().map(|side| side.as_f64());
        let (region, shown) = views.images_per_chunk(source);
        Some(FrameCoordinates {
            source_extent: source.into(),
            requested_region: FrameFractions { x, y, width, height },
            resolved_region: FramePixels {
                x: region.x,
                y: region.y,
                width: region.width,
                height: region.height,
            },
            analysis_extent: shown.into(),
        })
    }
}

#[cfg(test)]
mod tests {
    use media::Score;
    use serde_json::json;
    use worker::{ChunkBoundary, Crop};

    use super::*;

    #[test]
    fn a_crop_is_told_as_it_was_asked_for_and_as_it_was_made() {
        let score = |value| Score::from_f64(value).expect("a fraction");
        let crop = Crop::new(score(0.25), score(0.0), score(0.5), score(0.75));
        let chunks = ChunkBoundary::Frames(30);
        let views =
            ChunkImageOptions { chunks, per_chunk: 1, max_edge: Some(64), crop, novelty: None };
        let source = Dimensions { width: 640, height: 360 };
        let told = FrameCoordinates::of(&views, source).map(|told| json!(told));
        let expected = json!({
            "source_extent": {"width": 640, "height": 360},
            "requested_region": {"x": 0.25, "y": 0.0, "width": 0.5, "height": 0.75},
            "resolved_region": {"x": 160, "y": 0, "width": 320, "height": 270},
            "analysis_extent": {"width": 64, "height": 54},
        });
        assert_eq!(told, Some(expected));
        assert_eq!(FrameCoordinates::of(&ChunkImageOptions { crop: None, ..views }, source), None);
    }
}
