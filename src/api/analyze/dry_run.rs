//! Effect of an analysis that is not recorded: counts, and every frame decided differently.

use std::collections::BTreeMap;

use gate::GateConfig;
use media::{AnalysisId, Marker, Signal};

use crate::{
    api::{activity::EpisodeRecord, prelude::*, thresholds::GateThresholds},
    record::gate_replay::trial::{Tally, Terms, Trial, Verdict},
};

/// Effect of other thresholds and zones on the same signals; nothing is recorded.
#[derive(Serialize, ToSchema)]
pub struct GateDryRun {
    /// Newest analysis of the stream, whose terms `before` uses; null if there is none or it did
    /// not record them: `before` then uses those of the recording.
    #[schema(value_type = Option<schema_types::AnalysisId>, required = true)]
    compared_with: Option<String>,
    before: GateDecisionCounts,
    /// Decisions with the thresholds and zones of the request.
    after: GateDecisionCounts,
    /// Number of markers by type, as the analysis would emit them.
    marker_types: BTreeMap<String, u64>,
    /// Number of frames with a different decision.
    changed_frames: u64,
    /// First 10000 frames with a different decision.
    differences: Vec<GateDifference>,
    /// Number of episodes of activity with the thresholds and zones of the request.
    episode_count: u64,
    /// First 10000 of these episodes.
    episodes: Vec<EpisodeRecord>,
}

/// Counts of a gate's decisions.
#[derive(Serialize, ToSchema)]
struct GateDecisionCounts {
    gate: GateThresholds,
    /// Number of frames that are kept.
    kept: u64,
    /// Number of frames by the reason of the decision.
    reasons: BTreeMap<&'static str, u64>,
}

/// A frame with a different decision.
#[derive(Serialize, ToSchema)]
struct GateDifference {
    frame_index: u64,
    pts_ms: i64,
    before: GateDecision,
    after: GateDecision,
}

/// Decision of a gate about a frame.
#[derive(Serialize, ToSchema)]
struct GateDecision {
    reason: &'static str,
    kept: bool,
}

impl GateDryRun {
    /// Compares `after` with `before`, the terms of the analysis `compared_with`.
    pub fn of(
        signals: &[Signal],
        (compared_with, before): (Option<AnalysisId>, &Terms),
        after: &Terms,
        markers: &[Marker],
        (stream, zones): (&StreamId, &[String]),
    ) -> GateDryRun {
        let trial = Trial::of(signals, before, after);
        let mut marker_types = BTreeMap::new();
        for marker in markers {
            *marker_types.entry(marker.event_type.as_str().to_owned()).or_default() += 1;
        }
        let differences = trial.differences.into_iter().map(|difference| GateDifference {
            frame_index: difference.frame_index,
            pts_ms: difference.pts_ms,
            before: difference.before.into(),
            after: difference.after.into(),
        });
        let episodes = trial.episodes.iter().map(|it| EpisodeRecord::of(it, stream, zones));
        GateDryRun {
            compared_with: compared_with.map(|id| id.to_string()),
            before: GateDecisionCounts::of(before.gate, &trial.before),
            after: GateDecisionCounts::of(after.gate, &trial.after),
            marker_types,
            changed_frames: trial.changed,
            differences: differences.collect(),
            episode_count: trial.episode_count,
            episodes: episodes.collect(),
        }
    }
}

impl GateDecisionCounts {
    fn of(gate: GateConfig, tally: &Tally) -> GateDecisionCounts {
        let reasons = tally.reasons().map(|(reason, count)| (reason.as_str(), count));
        GateDecisionCounts { gate: gate.into(), kept: tally.kept, reasons: reasons.collect() }
    }
}

impl From<Verdict> for GateDecision {
    fn from(verdict: Verdict) -> GateDecision {
        GateDecision { reason: verdict.reason.as_str(), kept: verdict.selected }
    }
}
