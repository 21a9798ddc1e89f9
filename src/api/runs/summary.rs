//! Summaries of runs, which lists include on request.

use std::collections::BTreeMap;

use media::{FrameRate, Score};

use crate::{
    api::prelude::*,
    runs::summary::{Bucket, Records, Summary},
};

/// Summary of a run.
#[derive(Serialize, ToSchema)]
pub struct RunSummary {
    counts: RunCounts,
    /// Media time from the first frame to the last, milliseconds; null if there is no frame.
    #[schema(required = true)]
    length_ms: Option<u64>,
    /// Duration of the job of the newest decoding, milliseconds; null if unknown, or nothing is decoded.
    #[schema(required = true)]
    took_ms: Option<u64>,
    /// True if the source ended early or is damaged; the part before that was recorded.
    truncated: bool,
    /// Representative still: the first of a scene cut, else of an artifact, else a described or any one.
    #[schema(value_type = Option<schema_types::Sha256>, required = true)]
    still_sha256: Option<String>,
    /// Last description by a model, at most 256 bytes.
    #[schema(required = true)]
    description: Option<String>,
    #[schema(required = true)]
    width: Option<u32>,
    #[schema(required = true)]
    height: Option<u32>,
    /// Frame rate of the source; null until it is known.
    #[schema(required = true)]
    source_fps: Option<f64>,
    shape: RunHistogram,
    /// Number of events that cannot be read, so that this summary leaves them out; absent if there are none.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = u64)]
    damaged_events: Option<u64>,
}

/// Counts of a run.
#[derive(Serialize, ToSchema)]
struct RunCounts {
    /// Frames of the newest decoding.
    frames: u64,
    /// Frames among them that the gate selected.
    kept: u64,
    /// Markers of the newest analysis of each stream, by type; beyond 32 types as `other`.
    markers: BTreeMap<String, u64>,
    /// Descriptions returned by models.
    descriptions: u64,
}

/// Histograms of a run's frames over time; each array has 64 spans of equal length.
#[derive(Serialize, ToSchema)]
struct RunHistogram {
    /// Mean brightness; null for spans without a measured frame.
    #[schema(value_type = Vec<Option<schema_types::Fraction>>, min_items = 64, max_items = 64)]
    luma_mean: Vec<Option<f64>>,
    /// Frames that the gate selected.
    #[schema(min_items = 64, max_items = 64)]
    kept: Vec<u32>,
    /// Scene cuts among them.
    #[schema(min_items = 64, max_items = 64)]
    cuts: Vec<u32>,
    /// Suspected artifacts among them.
    #[schema(min_items = 64, max_items = 64)]
    artifacts: Vec<u32>,
    /// Descriptions in which a model named an object.
    #[schema(min_items = 64, max_items = 64)]
    descriptions: Vec<u32>,
}

impl From<&Summary> for RunHistogram {
    fn from(Summary { shape, named, .. }: &Summary) -> RunHistogram {
        let counts = |count: fn(&Bucket) -> u32| shape.buckets.iter().map(count).collect();
        let means = shape.buckets.iter().map(|bucket| bucket.luma_mean().map(thousandths));
        RunHistogram {
            luma_mean: means.collect(),
            kept: counts(|bucket| bucket.kept),
            cuts: counts(|bucket| bucket.cuts),
            artifacts: counts(|bucket| bucket.artifacts),
            descriptions: named.told(shape).into(),
        }
    }
}

/// Rounds to three digits: enough for a chart a few pixels high.
fn thousandths(score: Score) -> f64 {
    f64::from((score.millionths() + 500) / 1000) / 1000.0
}

impl RunSummary {
    /// Returns the summary of `run`; `None` if nothing is decoded. May read the log.
    pub fn of(app: &App, run: &Arc<Run>) -> Option<RunSummary> {
        let timeline = app.registry.timeline();
        let gate = app.settings.gate;
        let kept = app.tables.summaries.of(run, Records { timeline, blobs: &app.blobs, gate });
        // The events of a running job may not yet cover all that it has decoded.
        let decoded = run.progress().filter(|progress| progress.frames > 0);
        let mut summary = kept.or_else(|| {
            decoded.map(|progress| Summary { frames: progress.frames, ..Summary::default() })
        })?;
        if let Some(session) = app.live.of(run) {
            let (frames, shape) = session.shape();
            (summary.frames, summary.shape) = (frames, shape.told());
            summary.kept = summary.shape.kept();
        }
        let (extent, shape) = (summary.extent, RunHistogram::from(&summary));
        Some(RunSummary {
            counts: RunCounts {
                frames: summary.frames,
                kept: summary.kept,
                markers: summary.markers,
                descriptions: summary.descriptions,
            },
            length_ms: summary.shape.length_ms,
            took_ms: summary.took_ms,
            truncated: summary.truncated,
            still_sha256: summary.still.map(|hash| hash.to_string()),
            description: summary.description,
            width: extent.map(|extent| extent.width),
            height: extent.map(|extent| extent.height),
            source_fps: summary.source_fps.map(FrameRate::as_f64),
            shape,
            damaged_events: (summary.damaged_events > 0).then_some(summary.damaged_events),
        })
    }
}
