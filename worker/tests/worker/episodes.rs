//! Episodes of clips of which it is known when something moves: each start is found, and nothing else is, in noise, in
//! light that swings and at any rate.

use std::path::{Path, PathBuf};

use clips::{in_turn, pick_with, rendered_from};
use gate::{EpisodeChange, Episodes, Gate, GateConfig};
use serde::Deserialize;
use worker::JobSpec;

use crate::support::{alone, run, spec};

/// Moments and times of a clip, in seconds.
#[derive(Clone, Deserialize)]
struct Label {
    clip: String,
    events: Vec<Event>,
    /// Times in which something moves.
    spans: Vec<[f64; 2]>,
    /// Times in which nothing does.
    calm: Vec<[f64; 2]>,
}

#[derive(Clone, Deserialize)]
struct Event {
    start: f64,
    /// From its first stir to its last.
    span: [f64; 2],
}

/// Most that an episode may start after what it is about.
const NEAR: f64 = 0.5;
/// Most that an episode may lie beside what it is about.
const GRACE: f64 = 1.0;
/// Less than this lie starts apart that are the same.
const SAME: f64 = 0.2;
/// Encoding of all that is made here.
const CODING: &str = "-an -c:v libx264 -preset ultrafast -crf 18 -pix_fmt yuv420p";

/// The built-in clip in which something passes twice, or the real ones.
fn labelled() -> Vec<(PathBuf, Label)> {
    let real = include_str!("../../../benches/activity/real.json");
    let mut real: Vec<Label> = serde_json::from_str(real).expect("labels");
    // Of one, all is one span.
    real.retain(|label| !label.events.is_empty());
    let passing = [[2.0, 4.0], [7.0, 9.0]];
    let passing = Label {
        clip: "passing.mp4".to_owned(),
        events: passing.map(|span| Event { start: span[0], span }).to_vec(),
        spans: passing.to_vec(),
        calm: vec![[0.0, 1.9]],
    };
    let named = |labels: Vec<Label>| -> Vec<_> {
        labels.into_iter().map(|label| (label.clip.clone(), label)).collect()
    };
    pick_with(&named(vec![passing]), &named(real))
}

/// First and last second of each episode.
fn episodes(path: &Path) -> Vec<[f64; 2]> {
    let heard = run(JobSpec { stills: false, ..spec(path) });
    let signals = heard.unwrap_or_else(|error| panic!("{}: {error}", path.display())).signals;
    let config = GateConfig::default();
    let (mut gate, mut open, mut over) = (Gate::new(config), Episodes::default(), Vec::new());
    for signal in &signals {
        let decision = gate.offer(signal);
        if let Some(EpisodeChange::Ended(episode)) =
            open.push(signal, &decision, config.quiet_below())
        {
            over.push(episode);
        }
    }
    over.extend(open.end());
    let seconds = |ms: i64| ms as f64 / 1000.0;
    over.iter().map(|one| [seconds(one.start_pts_ms), seconds(one.end_pts_ms)]).collect()
}

/// A clip put through filters.
fn filtered(clip: &Path, filter: &str) -> PathBuf {
    rendered_from("filtered.mp4", &format!("-i {{0}} -filter_complex {filter} {CODING}"), &[clip])
}

/// Start of the episode that tells an event.
fn start_of(event: &Event, episodes: &[[f64; 2]]) -> Option<f64> {
    let told = event.span[0] - GRACE..=event.start + NEAR;
    episodes.iter().map(|episode| episode[0]).find(|start| told.contains(start))
}

/// Starts that no episode tells, and episodes in which nothing moves.
fn faults(label: &Label, episodes: &[[f64; 2]]) -> Vec<String> {
    let missed = label.events.iter().filter(|event| start_of(event, episodes).is_none());
    let missed = missed.map(|event| format!("missed {}", event.start));
    let moves = |episode: &[f64; 2]| {
        let mut spans = label.spans.iter();
        spans.any(|span| episode[0] < span[1] + GRACE && span[0] - GRACE < episode[1])
    };
    let invented = episodes.iter().filter(|episode| !moves(episode));
    missed.chain(invented.map(|episode| format!("invented {episode:?}"))).collect()
}

/// Nothing, noise, and light that is added or multiplies.
const DISTURBANCES: [&str; 5] = [
    "null",
    "noise=alls=24:allf=t",
    "noise=alls=40:allf=t",
    "eq=brightness='0.1*sin(PI*t/2)':eval=frame",
    "geq=lum='min(255,lum(X,Y)*(1+0.1*sin(PI*T/2)))':cb='cb(X,Y)':cr='cr(X,Y)'",
];

#[test]
fn each_start_is_told_and_nothing_else_whatever_disturbs_the_picture() {
    let _alone = alone();
    let clips = labelled();
    for (row, filter) in DISTURBANCES.iter().enumerate() {
        for (path, label) in in_turn(row, 1, &clips) {
            let told = episodes(&filtered(path, filter));
            assert_eq!(faults(label, &told), [""; 0], "{} {filter}: {told:?}", label.clip);
        }
    }
}

#[test]
fn calm_footage_has_no_episode() {
    let _alone = alone();
    let clips = labelled();
    for (row, filter) in DISTURBANCES.iter().enumerate() {
        for (path, label) in in_turn(row, 1, &clips) {
            let [start, end] = label.calm[0];
            // To and fro, so that nothing jumps.
            let calm = format!(
                "trim={start}:{end},split[a][b];[b]reverse[r];[a][r]concat,loop=5:32767,setpts=N/FR/TB,{filter}"
            );
            let none: [[f64; 2]; 0] = [];
            assert_eq!(episodes(&filtered(path, &calm)), none, "{} {filter}", label.clip);
        }
    }
}

#[test]
fn a_start_is_told_at_the_same_time_at_any_rate() {
    let _alone = alone();
    for (path, label) in in_turn(0, 1, &labelled()) {
        let told = ["fps=10", "fps=25", "fps=60"].map(|rate| {
            let told = episodes(&filtered(path, rate));
            assert_eq!(faults(label, &told), [""; 0], "{} {rate}: {told:?}", label.clip);
            label.events.iter().map(|event| start_of(event, &told)).collect::<Vec<_>>()
        });
        for (at, event) in label.events.iter().enumerate() {
            let starts = told.each_ref().map(|told| told[at].expect("it has no fault"));
            let apart = starts.into_iter().fold(f64::MIN, f64::max)
                - starts.into_iter().fold(f64::MAX, f64::min);
            assert!(apart < SAME, "{} {}: {starts:?}", label.clip, event.start);
        }
    }
}
