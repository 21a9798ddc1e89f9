//! Fields of a reason request.

use infer::{OutputSchema, finding::default_answer};
use media::{Label, Score};
use worker::{ChunkBoundary, ChunkImageOptions, Crop};

use crate::{
    api::{
        analyze::{FrameIndex, SegmentMs, WindowSize, trace},
        ingest::{MaxFrames, SourceUri, check_rate},
        prelude::*,
        thresholds::GateOverrides,
        zones::{self, ZoneFields, ZoneList},
    },
    base::json::{Declared, number, said, score},
    record::reason::{PromptConfig, ReasonQuery},
};

pub type ChunkSize = BoundedInt<5, 500>;
pub const CHUNK_SIZE_DEFAULT: u64 = 30;
pub type SemanticPrompt = BoundedText<0, 4096>;
pub type ChunkPictures = BoundedInt<1, 4>;
pub type MaxEdge = BoundedInt<64, 4096>;
pub type SemanticTimeout = BoundedInt<100, 120_000>;
pub const SEMANTIC_TIMEOUT_DEFAULT: u64 = 30_000;
pub type Concurrency = BoundedInt<1, 64>;
pub const CONCURRENCY_DEFAULT: u64 = 4;
/// Default of the confidence below which the second model is asked.
pub const THRESHOLD_DEFAULT: f64 = 0.7;
pub const CLIP_S_MAX: f64 = 60.0;
pub const CLIP_S_DEFAULT: f64 = 1.0;
/// Region of the picture, in fractions of its sides.
#[derive(ToSchema)]
#[schema(as = Crop)]
pub struct CropFields {
    x: schema_types::Fraction,
    y: schema_types::Fraction,
    /// Width; `x` and `width` add up to at most 1.
    #[schema(value_type = f64, exclusive_minimum = 0.0, maximum = 1.0)]
    width: Score,
    /// Height; `y` and `height` add up to at most 1.
    #[schema(value_type = f64, exclusive_minimum = 0.0, maximum = 1.0)]
    height: Score,
}

declared!(CropFields { x, y, width: required side, height: required side }; closed |object| {
    let reaches = |from: &Option<schema_types::Fraction>, len: Option<Score>| {
        let sum = from.as_ref().zip(len).map(|(from, len)| from.0.millionths() + len.millionths());
        sum.is_some_and(|sum| sum > Score::SCALE)
    };
    if reaches(&x, width) {
        object.refuse("width", "reaches beyond the picture: x and width are together more than 1");
    }
    if reaches(&y, height) {
        object.refuse("height", "reaches beyond the picture: y and height are together more than 1");
    }
});

impl CropFields {
    /// Converts the fields; `None` if they do not form a region within the picture.
    pub fn crop(self) -> Option<Crop> {
        Crop::new(self.x.0, self.y.0, self.width, self.height)
    }
}

/// Name of a model: an id of the service, its maker's name, or one that a backend lists.
pub struct ModelName(pub Label);

impl Declared for ModelName {
    fn take(value: &Value, form: Form<'_>) -> Result<ModelName, Faults> {
        let name: Label = parsed(value)?;
        match form {
            Form::Naming(catalog) if !catalog.contains(name.as_str()) => {
                let problem = "names no model of this server: GET /v1/models lists them";
                Err(ValueError::from(problem).into())
            }
            _ => Ok(ModelName(name)),
        }
    }
}

/// Source to reason over, and options of the analysis and of the model stage.
#[derive(ToSchema)]
pub struct ReasonRequest {
    /// Source, as for an ingest.
    #[schema(inline)]
    pub(super) source_uri: SourceUri,
    /// Model to ask, unless `first_pass_model` is given: an id of `GET /v1/models` or an upstream
    /// name.
    #[schema(value_type = String)]
    pub(super) model: ModelName,
    /// Mode, which sets how often frames are kept without activity; that of the run when missing.
    pub(super) mode: Option<schema_types::AnalysisMode>,
    /// Stream; `main` when missing.
    #[schema(value_type = Option<schema_types::Label>)]
    pub(super) stream_id: Option<StreamId>,
    /// Sampling policy; when missing `source_fps_adaptive`, which analyses every frame.
    pub(super) sampling_policy: Option<schema_types::Sampling>,
    /// Frames per second; required with the policy `fixed`.
    pub(super) fixed_fps: Option<schema_types::Fps>,
    /// Maximum number of frames; 512 when missing.
    #[schema(inline)]
    pub(super) max_frames: Option<MaxFrames>,
    /// Number of analysed frames in a chunk; 30 when missing.
    #[schema(inline)]
    chunk_size: Option<ChunkSize>,
    /// Number of frames in a metadata window; 16 when missing.
    #[schema(inline)]
    pub(super) window_size: Option<WindowSize>,
    /// Length of a metadata segment, milliseconds; 250 when missing.
    #[schema(inline)]
    pub(super) segment_ms: Option<SegmentMs>,
    /// Maximum frames from the end of a segment to the start of its finalizing one; 3 when missing.
    #[schema(inline)]
    pub(super) marker_correction_window_frames: Option<FrameIndex>,
    /// True to ask models; when missing, they are asked if there is a prompt.
    semantic_inference: Option<bool>,
    /// Prompt about each chunk.
    #[schema(inline)]
    semantic_prompt: Option<SemanticPrompt>,
    /// Maximum number of pictures shown of a chunk: those that the gate selected, then evenly
    /// spaced ones; fewer if the end of the source cuts the chunk short. 1 when missing, 4 for
    /// clips; at most 1 with `visual_diff`.
    #[schema(inline)]
    semantic_frames_per_chunk: Option<ChunkPictures>,
    /// Maximum length of the longer edge, to which pictures are scaled down, pixels.
    #[schema(inline)]
    semantic_frame_max_edge: Option<MaxEdge>,
    /// Timeout of the answer about a chunk once it is sent, milliseconds; 30000 when missing.
    #[schema(inline)]
    semantic_timeout_ms: Option<SemanticTimeout>,
    /// Region of each picture that is shown; the whole picture when missing.
    crop: Option<CropFields>,
    /// JSON Schema that answers must match. Events use these of its fields: `event_type`, `object_label`,
    /// `summary`, `description`, `confidence`.
    #[schema(value_type = Option<schema_types::AnyObject>)]
    output_schema: Option<OutputSchema>,
    /// Model to ask about every chunk; `model` when missing.
    #[schema(value_type = Option<String>)]
    first_pass_model: Option<ModelName>,
    /// Model to ask again if the first is unsure; none when missing.
    #[schema(value_type = Option<String>)]
    second_pass_model: Option<ModelName>,
    /// Confidence below which the second model is asked; 0.7 when missing.
    second_pass_threshold: Option<schema_types::Fraction>,
    /// Label stored in events, which can be filtered by it.
    pub(super) index_name: Option<schema_types::Label>,
    /// True to send each chunk with the description of the previous one, hence one at a time.
    temporal_chain: Option<bool>,
    /// True to show one picture of each chunk beside that of the previous chunk.
    visual_diff: Option<bool>,
    /// True to use clips of media time as chunks, each described as a whole.
    video_clip_mode: Option<bool>,
    /// Length of a clip in seconds; 1 when missing.
    #[schema(exclusive_minimum = 0.0, maximum = 60.0)]
    video_clip_duration_s: Option<f64>,
    /// Number of chunks sent to models in parallel; 4 when missing.
    #[schema(inline)]
    vlm_concurrency: Option<Concurrency>,
    /// Trace id, visible ASCII; the id of the request when missing.
    #[schema(min_length = 1, max_length = 64, pattern = "^[!-~]+$")]
    pub(super) trace_id: Option<String>,
    /// True, or missing, for one object per frame in `metadata`; false leaves it empty.
    pub(super) include_frame_metadata: Option<bool>,
    /// Thresholds of this recording and its analysis, which override those of the mode.
    pub(super) gate: Option<GateOverrides>,
    /// Watched zones; an episode of activity names those that it touches.
    #[schema(value_type = Option<Vec<ZoneFields>>, max_items = 16)]
    pub(super) zones: Option<ZoneList>,
    /// True to ignore motion outside of the zones.
    pub(super) activity_zones_only: Option<bool>,
}

declared!(ReasonRequest {
    source_uri, model, mode, stream_id: optional parsed, sampling_policy, fixed_fps, max_frames, chunk_size, window_size,
    segment_ms, marker_correction_window_frames, semantic_inference, semantic_prompt: optional said(SemanticPrompt::read),
    semantic_frames_per_chunk, semantic_frame_max_edge, semantic_timeout_ms, crop, output_schema: optional output_schema,
    first_pass_model, second_pass_model, second_pass_threshold, index_name, temporal_chain, visual_diff, video_clip_mode,
    video_clip_duration_s: optional clip, vlm_concurrency, trace_id: optional trace, include_frame_metadata, gate, zones,
    activity_zones_only,
} |object| {
    check_rate(object, &sampling_policy, &fixed_fps, "is required");
    if visual_diff == Some(Some(true)) && matches!(semantic_frames_per_chunk, Some(Some(BoundedInt(2..)))) {
        let why = "must be 1 with visual_diff, which shows one picture and the one before";
        object.refuse("semantic_frames_per_chunk", why);
    }
    for field in ["media", "local_audio"] {
        if object.given(field).is_some() {
            object.refuse(field, "is not served: nothing is done with sound yet");
        }
    }
    zones::check(object, &zones, &activity_zones_only);
});

pub struct ModelOptions {
    pub views: ChunkImageOptions,
    pub inquiry: PromptConfig,
    pub ask: ReasonQuery,
}

/// Returns the options of the model stage; `None` if no model is to be asked.
pub(super) fn semantics(asked: &mut ReasonRequest) -> Option<ModelOptions> {
    let task = asked.semantic_prompt.take().map_or_else(String::new, |it| it.0);
    if !asked.semantic_inference.unwrap_or(!task.trim().is_empty()) {
        return None;
    }
    let inquiry = PromptConfig {
        task,
        is_clip: asked.video_clip_mode.unwrap_or(false),
        is_chained: asked.temporal_chain.unwrap_or(false),
        compares: asked.visual_diff.unwrap_or(false),
        concurrency: asked.vlm_concurrency.map_or(CONCURRENCY_DEFAULT, |it| it.0) as usize,
    };
    let views = views(asked, &inquiry);
    let timeout = asked.semantic_timeout_ms.map_or(SEMANTIC_TIMEOUT_DEFAULT, |it| it.0);
    let named = |ModelName(model): &ModelName| model.as_str().to_owned();
    let ask = ReasonQuery {
        first: named(asked.first_pass_model.as_ref().unwrap_or(&asked.model)),
        second: asked.second_pass_model.as_ref().map(named),
        threshold: asked.second_pass_threshold.map_or(THRESHOLD_DEFAULT, |it| it.0.as_f64()),
        timeout: Duration::from_millis(timeout),
        schema: asked.output_schema.take().map_or_else(default_answer, Arc::new),
    };
    Some(ModelOptions { views, inquiry, ask })
}

fn views(asked: &mut ReasonRequest, inquiry: &PromptConfig) -> ChunkImageOptions {
    let chunks = if inquiry.is_clip {
        let seconds = asked.video_clip_duration_s.unwrap_or(CLIP_S_DEFAULT);
        ChunkBoundary::Span { ms: (seconds * 1000.0).round().max(1.0) as u32 }
    } else {
        ChunkBoundary::Frames(asked.chunk_size.map_or(CHUNK_SIZE_DEFAULT, |it| it.0) as u32)
    };
    let per_chunk = match asked.semantic_frames_per_chunk {
        _ if inquiry.compares => 1,
        Some(BoundedInt(pictures)) => pictures as u8,
        None if inquiry.is_clip => ChunkImageOptions::PER_CHUNK_MAX,
        None => 1,
    };
    ChunkImageOptions {
        max_edge: asked.semantic_frame_max_edge.map(|BoundedInt(edge)| edge as u32),
        crop: asked.crop.take().and_then(CropFields::crop),
        ..ChunkImageOptions::new(chunks, per_chunk)
    }
}

fn clip(value: &Value) -> Result<f64, ValueError> {
    let seconds = number(0.0..=CLIP_S_MAX)(value).ok().filter(|seconds| *seconds > 0.0);
    let problem = || format!("must be a number greater than 0 and at most {CLIP_S_MAX}").into();
    seconds.ok_or_else(problem)
}

fn side(value: &Value) -> Result<Score, ValueError> {
    let side = score(value).ok().filter(|side| *side > Score::ZERO);
    side.ok_or_else(|| "must be a number greater than 0 and at most 1".into())
}

/// Compiles the schema of answers; a model that gives no JSON has its text kept.
pub fn output_schema(value: &Value) -> Result<OutputSchema, ValueError> {
    let schema = OutputSchema::compile(value.clone()).map(OutputSchema::or_text);
    schema.map_err(|error| error.to_string().into())
}
