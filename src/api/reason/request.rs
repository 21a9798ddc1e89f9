//! Fields of a reason request.

use std::{sync::Arc, time::Duration};

use infer::{OutputSchema, finding::default_answer};
use media::{Label, Score, StreamId};
use serde_json::Value;
use utoipa::ToSchema;
use worker::{ChunkBoundary, ChunkImageOptions, Crop};

use crate::{
    api::{
        analyze::{FrameIndex, SegmentMs, WindowSize, trace},
        ingest::{MaxFrames, SourceUri, check_rate},
        openapi::schema_types,
        thresholds::GateFields,
        zones::{self, ZoneFields, ZoneList},
    },
    base::json::{
        BoundedInt, BoundedText, Declared, Faults, Form, ValueError, declared, number, parsed,
        said, score,
    },
    record::reason::{PromptConfig, ReasonQuery},
};

/// Number of analysed frames in a chunk.
pub type ChunkSize = BoundedInt<5, 500>;
/// Default of [`ChunkSize`].
pub const CHUNK_SIZE_DEFAULT: u64 = 30;
/// Prompt about each chunk of a source.
pub type SemanticPrompt = BoundedText<0, 4096>;
/// Number of pictures shown of a chunk.
pub type ChunkPictures = BoundedInt<1, 4>;
/// Maximum length of a picture's longer edge, pixels.
pub type MaxEdge = BoundedInt<64, 4096>;
/// Timeout of the answer about a chunk, milliseconds.
pub type SemanticTimeout = BoundedInt<100, 120_000>;
/// Default of [`SemanticTimeout`].
pub const SEMANTIC_TIMEOUT_DEFAULT: u64 = 30_000;
/// Number of chunks in flight to models.
pub type Concurrency = BoundedInt<1, 64>;
/// Default of [`Concurrency`].
pub const CONCURRENCY_DEFAULT: u64 = 4;
/// Default of the confidence below which the second model is asked.
pub const THRESHOLD_DEFAULT: f64 = 0.7;
/// Maximum length of a clip, seconds.
pub const CLIP_S_MAX: f64 = 60.0;
/// Default length of a clip, seconds.
pub const CLIP_S_DEFAULT: f64 = 1.0;
/// A part of the picture, in fractions of its sides.
#[derive(ToSchema)]
#[schema(as = Crop)]
pub struct CropFields {
    x: schema_types::Fraction,
    y: schema_types::Fraction,
    /// `x` and `width` are together at most 1.
    #[schema(value_type = f64, exclusive_minimum = 0.0, maximum = 1.0)]
    width: Score,
    /// `y` and `height` are together at most 1.
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

/// Source to reason over, and options of the analysis and of the questions to models.
#[derive(ToSchema)]
pub struct ReasonRequest {
    /// Source, as on an ingest.
    #[schema(inline)]
    pub(super) source_uri: SourceUri,
    /// The model that is asked, unless `first_pass_model` names another: one of `GET /v1/models`, also
    /// by its makers' name.
    #[schema(value_type = String)]
    pub(super) model: ModelName,
    /// The run's own when missing; it says how often frames are kept where nothing happens.
    pub(super) mode: Option<schema_types::AnalysisMode>,
    /// `main` when missing.
    #[schema(value_type = Option<schema_types::Label>)]
    pub(super) stream_id: Option<StreamId>,
    /// `source_fps_adaptive` when missing: every frame.
    pub(super) sampling_policy: Option<schema_types::Sampling>,
    /// Frames a second; required with the policy `fixed`.
    pub(super) fixed_fps: Option<schema_types::Fps>,
    /// Frames after which the work ends; 512 when missing.
    #[schema(inline)]
    pub(super) max_frames: Option<MaxFrames>,
    /// Analysed frames of a chunk; 30 when missing.
    #[schema(inline)]
    chunk_size: Option<ChunkSize>,
    /// Frames of a metadata window; 16 when missing.
    #[schema(inline)]
    pub(super) window_size: Option<WindowSize>,
    /// Milliseconds of a metadata segment; 250 when missing.
    #[schema(inline)]
    pub(super) segment_ms: Option<SegmentMs>,
    /// Most frames from a segment's end to the start of the one that finalizes it; 3 when missing.
    #[schema(inline)]
    pub(super) marker_correction_window_frames: Option<FrameIndex>,
    /// True to ask models; when missing they are asked where there is a prompt.
    semantic_inference: Option<bool>,
    /// Prompt about each chunk.
    #[schema(inline)]
    semantic_prompt: Option<SemanticPrompt>,
    /// Most pictures shown of a chunk: those that the gate selected first, then ones that are evenly spaced
    /// over its whole length; of a chunk or clip that the end of the source cuts short there are fewer.
    /// 1 when missing, of a clip 4; with `visual_diff` no more than 1.
    #[schema(inline)]
    semantic_frames_per_chunk: Option<ChunkPictures>,
    /// Pixels of the longer edge above which pictures are scaled down.
    #[schema(inline)]
    semantic_frame_max_edge: Option<MaxEdge>,
    /// Milliseconds for the answer to a chunk, once it is asked; 30000 when missing.
    #[schema(inline)]
    semantic_timeout_ms: Option<SemanticTimeout>,
    /// The part of each picture that is shown; all of it when missing.
    crop: Option<CropFields>,
    /// JSON Schema that answers must match. Of its own fields those are known that events have:
    /// `event_type`, `object_label`, `summary`, `description`, `confidence`.
    #[schema(value_type = Option<schema_types::AnyObject>)]
    output_schema: Option<OutputSchema>,
    /// The model that is asked about every chunk; `model` when missing.
    #[schema(value_type = Option<String>)]
    first_pass_model: Option<ModelName>,
    /// The model that is asked again where the first is not sure; none when missing.
    #[schema(value_type = Option<String>)]
    second_pass_model: Option<ModelName>,
    /// Confidence that the first must reach; 0.7 when missing.
    second_pass_threshold: Option<schema_types::Fraction>,
    /// Kept in events, which can be filtered by it.
    pub(super) index_name: Option<schema_types::Label>,
    /// Each chunk is asked about with the description of the one before, and so one at a time.
    temporal_chain: Option<bool>,
    /// One picture of each chunk is shown, beside that of the chunk before.
    visual_diff: Option<bool>,
    /// Chunks are clips of media time, each described as a whole.
    video_clip_mode: Option<bool>,
    /// Seconds of a clip; 1 when missing.
    #[schema(exclusive_minimum = 0.0, maximum = 60.0)]
    video_clip_duration_s: Option<f64>,
    /// Chunks that are asked about at once; 4 when missing.
    #[schema(inline)]
    vlm_concurrency: Option<Concurrency>,
    /// Visible ASCII; the request's id when missing.
    #[schema(min_length = 1, max_length = 64, pattern = "^[!-~]+$")]
    pub(super) trace_id: Option<String>,
    /// The answer's `metadata` has an object a frame; true when missing, else it is empty.
    pub(super) include_frame_metadata: Option<bool>,
    /// Thresholds of this recording and its analysis, in place of those of the mode.
    pub(super) gate: Option<GateFields>,
    /// Parts of the picture that are watched: an episode of activity names those that it touches.
    #[schema(value_type = Option<Vec<ZoneFields>>, max_items = 16)]
    pub(super) zones: Option<ZoneList>,
    /// True to take no notice of what moves outside of the zones.
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

/// Options of the model stage.
pub struct ModelOptions {
    /// Selection and size of the images shown to models.
    pub views: ChunkImageOptions,
    /// Prompt, and the number of chunks in flight.
    pub inquiry: PromptConfig,
    /// Models to ask, and requirements on their answers.
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
        threshold: asked
            .second_pass_threshold
            .as_ref()
            .map_or(THRESHOLD_DEFAULT, |it| it.0.as_f64()),
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
        chunks,
        per_chunk,
        max_edge: asked.semantic_frame_max_edge.map(|BoundedInt(edge)| edge as u32),
        crop: asked.crop.take().and_then(CropFields::crop),
        novelty: None,
    }
}

fn clip(value: &Value) -> Result<f64, ValueError> {
    let seconds = number(0.0..=CLIP_S_MAX)(value).ok().filter(|seconds| *seconds > 0.0);
    let problem = || format!("must be a number greater than 0 and at most {CLIP_S_MAX}").into();
    seconds.ok_or_else(problem)
}

/// Reads the width or height of a crop.
fn side(value: &Value) -> Result<Score, ValueError> {
    let side = score(value).ok().filter(|side| *side > Score::ZERO);
    side.ok_or_else(|| "must be a number greater than 0 and at most 1".into())
}

/// Compiles the schema of answers; a model that gives no JSON has its text kept.
pub fn output_schema(value: &Value) -> Result<OutputSchema, ValueError> {
    let schema = OutputSchema::compile(value.clone()).map(OutputSchema::or_text);
    schema.map_err(|error| error.to_string().into())
}
