//! Fields of a request to reason.

use std::{sync::Arc, time::Duration};

use gate::GateConfig;
use infer::{OutputSchema, finding::default_answer};
use media::{Label, Rate, Score, StreamId, Zones};
use serde_json::Value;
use timeline::{MarkerConfig, SamplingPolicy};
use utoipa::ToSchema;
use worker::{Chunking, Crop, ViewOptions};

use crate::{
    api::{
        analyze::{Index, SegmentMs, WindowSize, trace, windowing},
        error::ApiError,
        extract::Body,
        ingest::{MAX_FRAMES_DEFAULT, MaxFrames, SourceUri, default_stream, sampling},
        openapi::terms,
        thresholds::{self, GateFields},
        zones::{ZoneFields, zones},
    },
    base::{
        catalog::{Catalog, Mode},
        json::{Fields, Int, Problem, Text, boolean, name, number, parsed, said, score},
    },
    record::{
        analysis::Windowing,
        reason::{Ask, Inquiry},
    },
};

/// Analysed frames of a chunk.
pub type ChunkSize = Int<5, 500>;
/// Frames of a chunk where a caller says nothing of them.
pub const CHUNK_SIZE_DEFAULT: u64 = 30;
/// Prompt about the chunks of a source.
pub type SemanticPrompt = Text<0, 4096>;
/// Pictures of a chunk.
pub type ChunkPictures = Int<1, 4>;
/// Pixels of a picture's longer edge.
pub type MaxEdge = Int<64, 4096>;
/// Milliseconds for an answer.
pub type SemanticTimeout = Int<100, 120_000>;
/// Milliseconds for an answer where a caller says nothing of them.
pub const SEMANTIC_TIMEOUT_DEFAULT: u64 = 30_000;
/// Chunks that are asked about at once.
pub type Concurrency = Int<1, 64>;
/// Chunks that are asked about at once where a caller says nothing of them.
pub const CONCURRENCY_DEFAULT: u64 = 4;
/// Least confidence of a first pass where a caller says nothing of it.
pub const THRESHOLD_DEFAULT: f64 = 0.7;
/// Longest clip, in seconds.
pub const CLIP_S_MAX: f64 = 60.0;
/// Seconds of a clip where a caller says nothing of them.
pub const CLIP_S_DEFAULT: f64 = 1.0;
/// A part of the picture, in fractions of its sides.
#[derive(ToSchema)]
#[schema(as = Crop)]
#[expect(dead_code, reason = "says what `crop` reads")]
pub struct CropFields {
    x: terms::Fraction,
    y: terms::Fraction,
    /// `x` and `width` are together at most 1.
    #[schema(exclusive_minimum = 0.0, maximum = 1.0)]
    width: f64,
    /// `y` and `height` are together at most 1.
    #[schema(exclusive_minimum = 0.0, maximum = 1.0)]
    height: f64,
}

/// Source to reason over, and options of the analysis and of the questions to models.
#[derive(ToSchema)]
#[expect(dead_code, reason = "says what `read` reads")]
pub struct ReasonRequest {
    /// Source, as on an ingest.
    #[schema(inline)]
    source_uri: SourceUri,
    /// The model that is asked, unless `first_pass_model` names another: one of `GET /v1/models`, also
    /// by its makers' name.
    model: String,
    /// The run's own when missing; it says how often frames are kept where nothing happens.
    mode: Option<terms::AnalysisMode>,
    /// `main` when missing.
    stream_id: Option<terms::Label>,
    /// `source_fps_adaptive` when missing: every frame.
    sampling_policy: Option<terms::Sampling>,
    /// Frames a second; required with the policy `fixed`.
    fixed_fps: Option<terms::Fps>,
    /// Frames after which the work ends; 512 when missing.
    #[schema(inline)]
    max_frames: Option<MaxFrames>,
    /// Analysed frames of a chunk; 30 when missing.
    #[schema(inline)]
    chunk_size: Option<ChunkSize>,
    /// Frames of a metadata window; 16 when missing.
    #[schema(inline)]
    window_size: Option<WindowSize>,
    /// Milliseconds of a metadata segment; 250 when missing.
    #[schema(inline)]
    segment_ms: Option<SegmentMs>,
    /// Most frames from a segment's end to the start of the one that finalizes it; 3 when missing.
    #[schema(inline)]
    marker_correction_window_frames: Option<Index>,
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
    output_schema: Option<terms::AnyObject>,
    /// The model that is asked about every chunk; `model` when missing.
    first_pass_model: Option<String>,
    /// The model that is asked again where the first is not sure; none when missing.
    second_pass_model: Option<String>,
    /// Confidence that the first must reach; 0.7 when missing.
    second_pass_threshold: Option<terms::Fraction>,
    /// Kept in events, which can be filtered by it.
    index_name: Option<terms::Label>,
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
    trace_id: Option<String>,
    /// The answer's `metadata` has an object a frame; true when missing, else it is empty.
    include_frame_metadata: Option<bool>,
    /// Thresholds of this recording and its analysis, in place of those of the mode.
    gate: Option<GateFields>,
    /// Parts of the picture that are watched: an episode of activity names those that it touches.
    #[schema(max_items = 16)]
    zones: Option<Vec<ZoneFields>>,
    /// True to take no notice of what moves outside of the zones.
    activity_zones_only: Option<bool>,
}

/// A request that can be carried out.
pub struct Request {
    /// Source to read, as the caller names it.
    pub source_uri: String,
    /// The model asked for.
    pub model: Label,
    /// Mode of the analysis; the run's own when `None`.
    pub mode: Option<Mode>,
    /// The stream of the run.
    pub stream_id: StreamId,
    /// Policy by which frames are chosen.
    pub policy: SamplingPolicy,
    /// The rate frames are chosen at.
    pub rate: Option<Rate>,
    /// Most frames.
    pub max_frames: u64,
    /// Windows into which frames are grouped.
    pub windowing: Windowing,
    /// Rules by which markers are confirmed.
    pub markers: MarkerConfig,
    /// The caller's index.
    pub index_name: Option<Label>,
    /// The caller's trace.
    pub trace_id: Option<String>,
    /// The answer has an object a frame.
    pub includes_metadata: bool,
    /// Options of the questions to models; `None` where none is asked.
    pub semantics: Option<Wanted>,
    /// Thresholds of the recording.
    pub gate: GateConfig,
    /// Zones of the picture that are watched.
    pub zones: Zones,
}

/// Options of the questions to models.
pub struct Wanted {
    /// The pictures that they are shown.
    pub views: ViewOptions,
    /// Prompt, and the chunks that are asked about at once.
    pub inquiry: Inquiry,
    /// Models to ask, and the requirements of their answers.
    pub ask: Ask,
}

/// Reads a request about models of `catalog` to a server with these thresholds, for a run of mode `own`; compiles its
/// schema.
pub fn read(
    body: &Body,
    catalog: &Catalog,
    own: Option<Mode>,
    server: GateConfig,
) -> Result<Request, ApiError> {
    let mut fields = body.fields()?;
    let model_of = |value: &Value| model_name(catalog, value);
    let source_uri = fields.required("source_uri", SourceUri::read);
    let model = fields.required("model", model_of);
    let mode = fields.optional("mode", name(Mode::NAMES, Mode::from_name));
    let stream_id = fields.optional("stream_id", parsed).unwrap_or_else(default_stream);
    let (policy, rate) = sampling(&mut fields);
    let max_frames = fields.optional("max_frames", MaxFrames::read).unwrap_or(MAX_FRAMES_DEFAULT);
    let windowing = windowing(&mut fields);
    let window = fields.optional("marker_correction_window_frames", Index::read);
    let mut markers = MarkerConfig::default();
    markers.correction_window_frames = window.unwrap_or(markers.correction_window_frames);
    let index_name = fields.optional("index_name", parsed);
    let trace_id = fields.optional("trace_id", trace);
    let includes_metadata = fields.optional("include_frame_metadata", boolean).unwrap_or(true);
    let semantics = semantics(&mut fields, model.as_ref(), model_of);
    for field in ["media", "local_audio"] {
        fields.optional(field, |_| -> Result<(), Problem> {
            Err("is not served: nothing is done with sound yet".into())
        });
    }
    let gate = thresholds::chosen(&mut fields, mode.or(own), server);
    let zones = zones(&mut fields);
    let read = fields.finish(|| {
        Some(Request {
            source_uri: source_uri?.to_owned(),
            model: model?,
            mode,
            stream_id,
            policy,
            rate,
            max_frames,
            windowing,
            markers,
            index_name,
            trace_id,
            includes_metadata,
            semantics,
            gate,
            zones,
        })
    });
    read.map_err(ApiError::Invalid)
}

/// The name of a model that a caller can name: the service's, its makers', or one that a backend lists.
pub fn model_name(catalog: &Catalog, value: &Value) -> Result<Label, Problem> {
    known_model(catalog, parsed(value)?)
}

/// A name of a model, where a caller can name it so.
pub fn known_model(catalog: &Catalog, name: Label) -> Result<Label, Problem> {
    let known = catalog.contains(name.as_str()).then_some(name);
    known.ok_or_else(|| "names no model of this server: GET /v1/models lists them".into())
}

/// Options of the questions to models; `None` where none is asked, or something was refused.
fn semantics<'a>(
    fields: &mut Fields<'a>,
    model: Option<&Label>,
    model_of: impl Fn(&'a Value) -> Result<Label, Problem>,
) -> Option<Wanted> {
    let asks = fields.optional("semantic_inference", boolean);
    let task = fields.optional("semantic_prompt", said(SemanticPrompt::read)).unwrap_or_default();
    let is_clip = fields.optional("video_clip_mode", boolean).unwrap_or(false);
    let compares = fields.optional("visual_diff", boolean).unwrap_or(false);
    let is_chained = fields.optional("temporal_chain", boolean).unwrap_or(false);
    let concurrency = fields.optional("vlm_concurrency", Concurrency::read);
    let inquiry = Inquiry {
        task: task.to_owned(),
        is_clip,
        is_chained,
        compares,
        concurrency: concurrency.unwrap_or(CONCURRENCY_DEFAULT) as usize,
    };
    let views = views(fields, &inquiry);
    let first = fields.optional("first_pass_model", &model_of);
    let second = fields.optional("second_pass_model", &model_of);
    let threshold = fields.optional("second_pass_threshold", score);
    let timeout = fields.optional("semantic_timeout_ms", SemanticTimeout::read);
    let schema = fields.optional("output_schema", output_schema);
    let ask = Ask {
        first: first.as_ref().or(model)?.as_str().to_owned(),
        second: second.map(|model| model.as_str().to_owned()),
        threshold: threshold.map_or(THRESHOLD_DEFAULT, Score::as_f64),
        timeout: Duration::from_millis(timeout.unwrap_or(SEMANTIC_TIMEOUT_DEFAULT)),
        schema: schema.map_or_else(default_answer, Arc::new),
    };
    asks.unwrap_or(!task.trim().is_empty()).then_some(Wanted { views, inquiry, ask })
}

fn views(fields: &mut Fields<'_>, inquiry: &Inquiry) -> ViewOptions {
    let frames = fields.optional("chunk_size", ChunkSize::read).unwrap_or(CHUNK_SIZE_DEFAULT);
    let clip_s = fields.optional("video_clip_duration_s", clip).unwrap_or(CLIP_S_DEFAULT);
    let per_chunk = fields.optional("semantic_frames_per_chunk", ChunkPictures::read);
    let max_edge = fields.optional("semantic_frame_max_edge", MaxEdge::read);
    let crop = fields.object("crop", crop);
    if inquiry.compares && per_chunk.is_some_and(|pictures| pictures > 1) {
        let why = "must be 1 with visual_diff, which shows one picture and the one before";
        fields.refuse("semantic_frames_per_chunk", why);
    }
    let chunks = if inquiry.is_clip {
        Chunking::Span { ms: (clip_s * 1000.0).round().max(1.0) as u32 }
    } else {
        Chunking::Frames(frames as u32)
    };
    let per_chunk = match per_chunk {
        _ if inquiry.compares => 1,
        Some(pictures) => pictures as u8,
        None if inquiry.is_clip => ViewOptions::PER_CHUNK_MAX,
        None => 1,
    };
    ViewOptions {
        chunks,
        per_chunk,
        max_edge: max_edge.map(|edge| edge as u32),
        crop,
        novelty: None,
    }
}

fn clip(value: &Value) -> Result<f64, Problem> {
    let seconds = number(0.0..=CLIP_S_MAX)(value).ok().filter(|seconds| *seconds > 0.0);
    let problem = || format!("must be a number greater than 0 and at most {CLIP_S_MAX}").into();
    seconds.ok_or_else(problem)
}

/// A side of a crop.
fn side(value: &Value) -> Result<Score, Problem> {
    let side = score(value).ok().filter(|side| *side > Score::ZERO);
    side.ok_or_else(|| "must be a number greater than 0 and at most 1".into())
}

/// A part of the picture.
pub fn crop(fields: &mut Fields<'_>) -> Option<Crop> {
    let (x, y) = (fields.required("x", score), fields.required("y", score));
    let (width, height) = (fields.required("width", side), fields.required("height", side));
    fields.refuse_unknown();
    let (x, y, width, height) = (x?, y?, width?, height?);
    for (from, len, name, problem) in [
        (x, width, "width", "reaches beyond the picture: x and width are together more than 1"),
        (y, height, "height", "reaches beyond the picture: y and height are together more than 1"),
    ] {
        if from.millionths() + len.millionths() > Score::SCALE {
            fields.refuse(name, problem);
        }
    }
    Crop::new(x, y, width, height)
}

/// Schema that answers can be made to match; where a model gives no JSON its text is kept.
pub fn output_schema(value: &Value) -> Result<OutputSchema, Problem> {
    let schema = OutputSchema::compile(value.clone()).map(OutputSchema::or_text);
    schema.map_err(|error| error.to_string().into())
}
