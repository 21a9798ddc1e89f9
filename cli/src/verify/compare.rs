//! Decodes a pass again and compares it with the record: finds the first difference.

use std::{collections::HashMap, fmt, path::Path};

use gate::{AHEAD, Decision, Gate, GateConfig};
use media::{BlobHash, Signal, Zones};
use serde::Serialize;
use sha2::{Digest, Sha256};
use timeline::KeyframeStored;
use worker::{CancelToken, JobOptions, Supervisor};

use super::{recorded::RecordedPass, sampling};
use crate::{
    analysis::{self, AnalyzeJob},
    error::CliError,
};

/// Result of decoding again.
pub struct VerifyResult {
    pub decoder: String,
    pub frames: u64,
    pub stills: u64,
    pub divergence: Option<FirstDifference>,
}

/// First difference between record and result.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct FirstDifference {
    pub frame_index: u64,
    pub what: &'static str,
    pub recorded: String,
    pub found: String,
}

impl fmt::Display for FirstDifference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let FirstDifference { frame_index, what, recorded, found } = self;
        write!(f, "frame {frame_index}: {what} was recorded as {recorded} and is {found}")
    }
}

/// A still that was made: frame, time in milliseconds and SHA-256.
type Still = (u64, i64, BlobHash);

/// Decodes `path` with the options of the pass, and compares.
pub fn prove(
    supervisor: &Supervisor,
    pass: &RecordedPass,
    path: &Path,
    (gate, zones): (GateConfig, Zones),
    cancel: &CancelToken,
) -> Result<VerifyResult, CliError> {
    // A pass that ended at its frame limit was decided without later frames; one that was cut off was not.
    let ahead = if pass.is_cut { AHEAD as u64 } else { 0 };
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let options = JobOptions {
        sampling: sampling(pass),
        max_frames: (pass.signals.len() as u64 + ahead).max(1),
        threads: cores,
        stills: !pass.stills.is_empty(),
        gate,
        zones,
        ..JobOptions::default()
    };
    let job = AnalyzeJob { path: path.to_owned(), run: analysis::NO_RUN, options };
    let mut made: Vec<Still> = Vec::new();
    let analysis = analysis::analyze(supervisor, &job, cancel, |still| {
        let hash = BlobHash::from_bytes(Sha256::digest(&still.picture.jpeg).into());
        made.push((still.frame_index, still.pts_ms, hash));
        Ok(())
    })?;
    if !pass.signals.iter().any(|signal| signal.activity.is_some()) {
        // The pass was recorded without activity: drops stills that the gate selects only for activity.
        let mut gate = Gate::new(gate);
        let decided = pass.signals.iter().map(|it| (it.frame_index, gate.offer(it).selected));
        let selected: HashMap<u64, bool> = decided.collect();
        made.retain(|(frame, ..)| selected.get(frame) != Some(&false));
    }
    let (mut found, mut decided) = (&analysis.signals[..], &pass.signals[..]);
    if pass.is_cut {
        let last = pass.stills.last().map_or(0, |still| still.frame_index);
        made.retain(|(frame, ..)| *frame <= last);
        decided = &decided[..decided.partition_point(|signal| signal.frame_index <= last)];
        found = &found[..found.len().min(pass.signals.len())];
    }
    let candidates = [
        first_signal(&pass.signals, found),
        first_decision(gate, decided, &pass.stills),
        first_still(&pass.stills, &made),
    ];
    let divergence = candidates.into_iter().flatten().min_by_key(|found| found.frame_index);
    Ok(VerifyResult {
        decoder: analysis.report.decoder,
        frames: pass.signals.len() as u64,
        stills: pass.stills.len() as u64,
        divergence,
    })
}

fn first_signal(recorded: &[Signal], found: &[Signal]) -> Option<FirstDifference> {
    for (was, is) in recorded.iter().zip(found) {
        // Older recordings have no activity, which is no difference.
        let is = Signal { activity: was.activity.and(is.activity), ..*is };
        let differing = fields(was).into_iter().zip(fields(&is)).find(|(was, is)| was != is);
        if let Some(((what, recorded), (_, found))) = differing {
            return Some(FirstDifference { frame_index: was.frame_index, what, recorded, found });
        }
    }
    differing_count("the number of frames", recorded.len(), found.len(), |at| at as u64)
}

/// Formats a signal's fields.
fn fields(signal: &Signal) -> [(&'static str, String); 10] {
    let Signal {
        frame_index,
        source_frame_index,
        pts_ms,
        perceptual_hash,
        luma_mean,
        flicker_score,
        ghosting_score,
        noise_variance_score,
        scene_score,
        activity,
    } = signal;
    let optional = |number: Option<String>| number.unwrap_or_else(|| "nothing".to_owned());
    let score = |score: media::Score| score.as_f64().to_string();
    let told = |activity: media::Activity| {
        let media::Activity { region, zones, .. } = activity;
        format!("{} in {region:?}, zones {zones:b}", score(activity.score))
    };
    [
        ("frame_index", frame_index.to_string()),
        ("source_frame_index", optional(source_frame_index.map(|index| index.to_string()))),
        ("pts_ms", pts_ms.to_string()),
        ("perceptual_hash", format!("{perceptual_hash:016x}")),
        ("luma_mean", score(*luma_mean)),
        ("flicker_score", score(*flicker_score)),
        ("ghosting_score", score(*ghosting_score)),
        ("noise_variance_score", score(*noise_variance_score)),
        ("scene_score", optional(scene_score.map(score))),
        ("activity", optional(activity.map(told))),
    ]
}

/// Finds the first decision that differs from the recorded signals; without stills nothing is compared.
fn first_decision(
    gate: GateConfig,
    signals: &[Signal],
    stills: &[KeyframeStored],
) -> Option<FirstDifference> {
    if stills.is_empty() {
        return None;
    }
    let told = |selected: bool, why: &str| match selected {
        true => format!("selected ({why})"),
        false => "not selected".to_owned(),
    };
    let mut gate = Gate::new(gate);
    let mut recorded = stills.iter().peekable();
    for signal in signals {
        let Decision { selected, reason, .. } = gate.offer(signal);
        let still = recorded.next_if(|still| still.frame_index == signal.frame_index);
        // Older logs have no reason.
        let why = still.and_then(|still| still.reason.as_deref()).unwrap_or(reason.as_str());
        if still.is_some() != selected || selected && why != reason.as_str() {
            return Some(FirstDifference {
                frame_index: signal.frame_index,
                what: "the decision",
                recorded: told(still.is_some(), why),
                found: told(selected, reason.as_str()),
            });
        }
    }
    recorded.next().map(|still| FirstDifference {
        frame_index: still.frame_index,
        what: "the decision",
        recorded: "selected".to_owned(),
        found: "of no frame".to_owned(),
    })
}

fn first_still(recorded: &[KeyframeStored], found: &[Still]) -> Option<FirstDifference> {
    let recorded: Vec<Still> = recorded
        .iter()
        .map(|still| (still.frame_index, still.pts_ms, still.image_sha256))
        .collect();
    for ((index, pts_ms, hash), is) in recorded.iter().zip(found) {
        if (*index, *pts_ms, hash) != (is.0, is.1, &is.2) {
            let (recorded, found) = (format!("{hash}"), format!("{}", is.2));
            return Some(FirstDifference {
                frame_index: *index.min(&is.0),
                what: "the still",
                recorded: format!("frame {index} at {pts_ms} ms, {recorded}"),
                found: format!("frame {} at {} ms, {found}", is.0, is.1),
            });
        }
    }
    let longer = if recorded.len() > found.len() { &recorded } else { found };
    differing_count("the number of stills", recorded.len(), found.len(), |at| longer[at].0)
}

fn differing_count(
    what: &'static str,
    recorded: usize,
    found: usize,
    frame_at: impl Fn(usize) -> u64,
) -> Option<FirstDifference> {
    (recorded != found).then(|| FirstDifference {
        frame_index: frame_at(recorded.min(found)),
        what,
        recorded: recorded.to_string(),
        found: found.to_string(),
    })
}
