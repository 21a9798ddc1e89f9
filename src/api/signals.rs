//! Recorded signals of a run with the gate's decisions: of every frame, in buckets, or of one frame.
//!
//! Decisions are a function of the signals, so they are computed from the column and not stored.
//! Answers are streamed; only a piece is in memory, whatever the number of frames.

mod buckets;
mod columns;

use std::ops::RangeInclusive;

use axum::extract::Path;
use gate::{Decision, Gate, GateConfig, SelectionReason};
use media::Signal;

use super::{activity::Region, extract::RawParams, prelude::*, thresholds::GateThresholds};
use crate::{base::arrow::Column, record::frames::Frames};
use buckets::{Buckets, FrameBucket};
use columns::{of_buckets, of_frames, wants_arrow};

/// Maximum number of points in an answer; more frames are combined into buckets.
pub type MaxPoints = BoundedInt<2, 20_000>;
pub type FrameNumber = BoundedInt<0, { u64::MAX }>;

/// A recorded frame with the gate's decision.
#[derive(Serialize, ToSchema)]
struct RecordedFrame {
    /// Index among the analysed frames.
    frame_index: u64,
    /// Index of the frame in the source.
    #[schema(required = true)]
    source_frame_index: Option<u64>,
    pts_ms: i64,
    #[schema(value_type = schema_types::PerceptualHash)]
    perceptual_hash: String,
    luma_mean: schema_types::Fraction,
    flicker_score: schema_types::Fraction,
    ghosting_score: schema_types::Fraction,
    noise_variance_score: schema_types::Fraction,
    #[schema(required = true)]
    scene_score: Option<schema_types::Fraction>,
    /// Fraction of the picture's cells that differ from 0.4 s earlier; null for recordings of older servers.
    #[schema(required = true)]
    activity_score: Option<schema_types::Fraction>,
    /// Bounding box of the changed cells; absent if none changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    activity_region: Option<Region>,
    /// True if the gate selected the frame for a still; of a lasting artifact, the first frame only.
    kept: bool,
    /// First reason that applies, in the order of the gate's rules.
    reason: schema_types::GateReason,
}

impl From<(Signal, Decision)> for RecordedFrame {
    fn from((signal, decision): (Signal, Decision)) -> RecordedFrame {
        RecordedFrame {
            frame_index: signal.frame_index,
            source_frame_index: signal.source_frame_index,
            pts_ms: signal.pts_ms,
            perceptual_hash: format!("{:016x}", signal.perceptual_hash),
            luma_mean: signal.luma_mean.into(),
            flicker_score: signal.flicker_score.into(),
            ghosting_score: signal.ghosting_score.into(),
            noise_variance_score: signal.noise_variance_score.into(),
            scene_score: signal.scene_score.map(Into::into),
            activity_score: signal.activity.map(|activity| activity.score.into()),
            activity_region: signal.activity.and_then(|activity| Region::of(activity.region)),
            kept: decision.selected,
            reason: decision.reason.into(),
        }
    }
}

struct Recorded {
    run: Arc<Run>,
    frames: Frames,
    gate: GateConfig,
}

/// A frame with its decision, or the error that ends the list.
type Decided = ApiResult<(Signal, Decision)>;

impl Recorded {
    /// Returns the newest recording of `run`, of `stream` if that is given.
    fn find(app: &App, run: Arc<Run>, stream: Option<&StreamId>) -> ApiResult<Option<Recorded>> {
        let found = Frames::find(app.registry.timeline(), app.runner.columns(), &run, stream)?;
        Ok(found.map(|frames| {
            let gate = frames.decoded.gate.unwrap_or(app.settings.gate);
            Recorded { run, frames, gate }
        }))
    }

    fn stream_id(&self) -> &StreamId {
        &self.frames.decoded.stream_id
    }

    /// Returns the frames up to `last` in order, with decisions based on all frames before them.
    fn frames(&self, last: u64) -> ApiResult<impl Iterator<Item = Decided> + Send + use<>> {
        let rows = self.frames.rows()?;
        let (run, mut gate) = (Arc::clone(&self.run), Gate::new(self.gate));
        let decided = rows.map(move |signal| {
            if !run.lifecycle().is_visible() {
                return Err(ApiError::RUN_NOT_FOUND);
            }
            let signal = signal?;
            let decision = gate.offer(&signal);
            Ok((signal, decision))
        });
        Ok(decided.take_while(move |frame| {
            frame.as_ref().map_or(true, |(signal, _)| signal.frame_index <= last)
        }))
    }

    fn count(&self, range: &RangeInclusive<u64>) -> ApiResult<u64> {
        let mut count = 0;
        for signal in self.frames.rows()? {
            count += u64::from(range.contains(&signal?.frame_index));
        }
        Ok(count)
    }
}

/// Selection of frames, and the maximum number of points.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
pub struct SignalsQuery {
    /// Stream; the one decoded last when missing.
    #[param(value_type = Option<schema_types::Label>)]
    stream_id: Option<StreamId>,
    /// Only this frame and later ones.
    #[param(inline)]
    from_frame: Option<FrameNumber>,
    /// Only this frame and earlier ones.
    #[param(inline)]
    to_frame: Option<FrameNumber>,
    /// Maximum number of points, beyond which frames are combined into buckets; every frame when missing.
    #[param(inline)]
    max_points: Option<MaxPoints>,
}

declared!(SignalsQuery { stream_id: optional parsed, from_frame, to_frame, max_points });

/// Recorded signals of a run; either `signals` or `buckets` is an array, the other is null.
#[derive(ToSchema)]
#[expect(dead_code, reason = "says what `list` writes")]
struct RunSignals {
    request_id: schema_types::RequestId,
    run_id: schema_types::RunId,
    /// Stream of the signals; null if the run has no frames.
    #[schema(required = true)]
    stream_id: Option<schema_types::Label>,
    /// Number of frames in the requested range.
    frames: u64,
    thresholds: GateThresholds,
    /// Frames, if there are no more of them than `max_points`; else null.
    #[schema(required = true)]
    signals: Option<Vec<RecordedFrame>>,
    /// Frames combined into `max_points` buckets of equal length; else null.
    #[schema(required = true)]
    buckets: Option<Vec<FrameBucket>>,
}

/// List the recorded signals of a run with the gate's decisions.
///
/// A run without decoded frames has no signals; a run in progress returns those so far. Beyond `max_points`,
/// frames are combined into buckets with minimum, maximum and mean of every signal, so that no peak is lost.
/// If `Accept` prefers Arrow, the answer is an Arrow IPC stream, else JSON.
#[utoipa::path(
    get, path = "/v1/runs/{id}/signals", operation_id = "getSignals", tag = "timeline",
    params(SignalsQuery),
    responses(
        (status = 200, description = "The signals; as an Arrow stream the columns of `signals` or of `buckets`, those of inner \
            objects called by their path (`luma_mean.max`), and the rest as metadata of its schema", content(
            (RunSignals = "application/json"),
            (schema_types::Bytes = "application/vnd.apache.arrow.stream"),
        )),
        FailureResponse<503>,
    ),
)]
pub async fn list(
    OwnedRun(app, caller, run): OwnedRun,
    QueryParams(query): QueryParams<SignalsQuery>,
    headers: HeaderMap,
) -> ApiResult {
    let stream = query.stream_id;
    let from = query.from_frame.map_or(0, |BoundedInt(from)| from);
    let to = query.to_frame.map_or(u64::MAX, |BoundedInt(to)| to);
    let points = query.max_points.map(|BoundedInt(points)| points);
    let as_arrow = wants_arrow(&headers);
    let reader = Arc::clone(&app);
    let made = app.reading(&caller.principal, move || {
        let (request_id, run_id, gate) = (caller.request_id, run.id(), reader.settings.gate);
        let recorded = Recorded::find(&reader, run, stream.as_ref())?;
        let count = recorded.as_ref().map_or(Ok(0), |recorded| recorded.count(&(from..=to)))?;
        let head = serde_json::json!({
            "request_id": request_id.to_string(),
            "run_id": run_id.to_string(),
            "stream_id": recorded.as_ref().map(|recorded| recorded.stream_id().as_str()),
            "frames": count,
            "thresholds": GateThresholds::from(recorded.as_ref().map_or(gate, |one| one.gate)),
        });
        let frames = recorded.map(|recorded| recorded.frames(to)).transpose()?;
        let frames = frames.into_iter().flatten().filter(move |frame| {
            frame.as_ref().map_or(true, |(signal, _)| signal.frame_index >= from)
        });
        match points.filter(|points| *points < count) {
            None => {
                let records = frames.map(|frame| frame.map(RecordedFrame::from));
                answer(&head, as_arrow.then(of_frames), ["signals", "buckets"], records)
            }
            Some(points) => {
                let records = Buckets::new(frames, count, points);
                answer(&head, as_arrow.then(of_buckets), ["buckets", "signals"], records)
            }
        }
    });
    made.await?
}

/// Returns the answer of `head` and the `records` called `name`, beside `other`, which is null; with `columns`, as an
/// Arrow stream.
fn answer<T: Serialize>(
    head: &Value,
    columns: Option<Vec<Column>>,
    [name, other]: [&str; 2],
    records: impl Iterator<Item = ApiResult<T>> + Send + 'static,
) -> ApiResult {
    if let (Some(columns), Value::Object(head)) = (columns, head) {
        return columns::answer(columns, head, records);
    }
    let head = head.to_string();
    let open = head.strip_suffix('}').unwrap_or_default();
    let before = format!(r#"{open},"{other}":null,"{name}":"#);
    listed(before, record_texts(records), || "}".to_owned(), READING_BYTES)
}

/// Stream of the requested frame.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
struct FrameQuery {
    /// Stream; the one decoded last when missing.
    #[param(value_type = Option<schema_types::Label>)]
    stream_id: Option<StreamId>,
}

declared!(FrameQuery { stream_id: optional parsed });

/// A recorded frame, with the values that explain the gate's decision.
#[derive(Serialize, ToSchema)]
pub struct FrameExplanation {
    request_id: schema_types::RequestId,
    run_id: schema_types::RunId,
    #[schema(value_type = schema_types::Label)]
    stream_id: String,
    #[serde(flatten)]
    frame: RecordedFrame,
    /// Change of `luma_mean` from the previous frame; null for the first frame.
    #[schema(required = true)]
    luma_shift: Option<schema_types::Fraction>,
    /// Reason of the decision about the previous frame; null for the first frame.
    #[schema(value_type = Option<schema_types::GateReason>, required = true)]
    previous_reason: Option<&'static str>,
    thresholds: GateThresholds,
}

/// Fetch the signals of one frame, the gate's decision about it and the thresholds used.
#[utoipa::path(
    get, path = "/v1/runs/{id}/frames/{frame_index}", operation_id = "getFrame", tag = "timeline",
    params(FrameQuery),
    responses((status = 200, description = "The frame", body = FrameExplanation), FailureResponse<503>),
)]
pub async fn fetch(
    OwnedRun(app, caller, run): OwnedRun,
    Path((_run, frame_index)): Path<(String, String)>,
    params: RawParams,
) -> ApiResult<Json<FrameExplanation>> {
    let mut faults = Faults::default();
    let query = faults.part("", params.read());
    let index = faults.part("frame_index", FrameNumber::digits(&Value::String(frame_index)));
    let (FrameQuery { stream_id: stream }, index) = faults.finish(|| query.zip(index))?;
    let reader = Arc::clone(&app);
    let made = app.reading(&caller.principal, move || {
        let missing = || ApiError::NotFound("frame");
        let recorded = Recorded::find(&reader, run, stream.as_ref())?.ok_or_else(missing)?;
        let mut before: Option<(Signal, Decision)> = None;
        for frame in recorded.frames(index)? {
            let (signal, decision) = frame?;
            if signal.frame_index < index {
                before = Some((signal, decision));
                continue;
            }
            let shift = before.as_ref().map(|(it, _)| it.luma_mean.abs_diff(signal.luma_mean));
            let previous_reason =
                before.map(|(_, decision)| SelectionReason::as_str(decision.reason));
            return Ok(Json(FrameExplanation {
                request_id: caller.request_id.into(),
                run_id: recorded.run.id().into(),
                stream_id: recorded.stream_id().as_str().to_owned(),
                frame: (signal, decision).into(),
                luma_shift: shift.map(Into::into),
                previous_reason,
                thresholds: recorded.gate.into(),
            }));
        }
        Err(missing())
    });
    made.await?
}
