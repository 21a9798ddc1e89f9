//! Episodes of clips with known movement: exactly the known starts are found, in noise, in changing light and
//! at any frame rate.
//!
//! A clip is decoded once, at half the size of those of the media folder, and disturbed in memory.

use std::{f64::consts::PI, ops::Range, path::PathBuf};

use clips::pick_with;
use gate::{EpisodeChange, Episodes, Gate, GateConfig};
use media::Dimensions;
use serde::Deserialize;

use crate::{
    cuts::signals_of,
    raw::{PLANAR, rendered},
};

/// Known events and times of a clip, in seconds.
#[derive(Clone, Deserialize)]
struct Label {
    clip: String,
    /// Frames per second.
    fps: f64,
    events: Vec<Event>,
    /// Times with movement.
    spans: Vec<[f64; 2]>,
    /// Times without movement.
    calm: Vec<[f64; 2]>,
}

#[derive(Clone, Deserialize)]
struct Event {
    start: f64,
    /// First to last movement of the event.
    span: [f64; 2],
}

/// Longest delay of an episode's start after its event, in seconds.
const NEAR: f64 = 0.5;
/// Longest distance of an episode from its event, in seconds.
const GRACE: f64 = 1.0;
/// Largest difference of equal starts, in seconds.
const SAME: f64 = 0.2;
/// Largest difference of equal starts of slow hands, for which a few cells decide.
const SAME_OF_HANDS: f64 = 0.4;

const SIZE: Dimensions = Dimensions { width: 384, height: 216 };

/// Returns the built-in clip with two passing objects, or the real clips.
fn labelled() -> Vec<(PathBuf, Label)> {
    let real = include_str!("../../../benches/activity/real.json");
    let mut real: Vec<Label> = serde_json::from_str(real).expect("labels");
    // The whole clip is one span.
    real.retain(|label| !label.events.is_empty());
    let passing = [[2.0, 4.0], [7.0, 9.0]];
    let passing = Label {
        clip: "passing.mp4".to_owned(),
        fps: 25.0,
        events: passing.map(|span| Event { start: span[0], span }).to_vec(),
        spans: passing.to_vec(),
        calm: vec![[0.0, 1.9]],
    };
    let named = |labels: Vec<Label>| -> Vec<_> {
        labels.into_iter().map(|label| (label.clip.clone(), label)).collect()
    };
    pick_with(&named(vec![passing]), &named(real))
}

/// Decoded clip.
struct Clip {
    label: Label,
    pictures: Vec<Vec<u8>>,
}

impl Clip {
    fn decode((path, label): (PathBuf, Label)) -> Clip {
        let scale = format!("scale={}:{}:flags=area", SIZE.width, SIZE.height);
        let arguments = ["-i".as_ref(), path.as_os_str(), "-vf".as_ref(), scale.as_ref()];
        Clip { label, pictures: rendered(arguments, ("yuv420p", PLANAR), SIZE).collect() }
    }

    /// Returns the pictures in order at this frame rate.
    fn at_rate(&self, fps: f64) -> Vec<(usize, f64)> {
        let (own, last) = (self.label.fps, self.pictures.len() - 1);
        let count = (self.pictures.len() as f64 / own * fps) as usize;
        // Like FFmpeg's filter `fps`: each picture moves to the nearest time.
        let shown = |index: usize| ((index as f64 + 0.5) * own / fps).ceil() as usize;
        (0..count)
            .map(|index| (shown(index).saturating_sub(1).min(last), index as f64 / fps))
            .collect()
    }

    /// Returns the pictures of a time range forwards and backwards, so that nothing jumps.
    fn to_and_fro(&self, [start, end]: [f64; 2]) -> Vec<(usize, f64)> {
        let at = |seconds: f64| (seconds * self.label.fps) as usize;
        let some: Range<usize> = at(start)..at(end).min(self.pictures.len());
        let both = some.clone().chain(some.rev());
        let turns = std::iter::repeat_n(both, TURNS).flatten();
        turns.enumerate().map(|(index, picture)| (picture, index as f64 / self.label.fps)).collect()
    }

    /// Returns start and end in seconds of each episode of pictures shown at these times.
    fn episodes(&self, shown: &[(usize, f64)], disturbance: Disturbance) -> Vec<[f64; 2]> {
        let disturbed = (0..).zip(shown).map(|(index, &(picture, seconds))| {
            let picture = disturbance.of(&self.pictures[picture], index, seconds);
            (picture, (seconds * 1000.0) as i64)
        });
        let config = GateConfig::default();
        let (mut gate, mut episodes) = (Gate::new(config), Episodes::default());
        let mut over = Vec::new();
        for signal in signals_of(disturbed, SIZE) {
            let decision = gate.offer(&signal);
            let change = episodes.push(&signal, &decision, config.quiet_below());
            if let Some(EpisodeChange::Ended(episode)) = change {
                over.push(episode);
            }
        }
        over.extend(episodes.end());
        let seconds = |ms: i64| ms as f64 / 1000.0;
        over.iter().map(|one| [seconds(one.start_pts_ms), seconds(one.end_pts_ms)]).collect()
    }
}

/// Repetitions of a calm time range, forwards and backwards.
const TURNS: usize = 6;

/// Disturbance of the luma of each picture.
#[derive(Clone, Copy, Debug)]
enum Disturbance {
    None,
    /// Grain of this many levels, as coarse as in a picture of twice the size.
    Noise(f64),
    /// Added light, up to ten percent of white either way.
    Added,
    /// Light multiplied by up to ten percent more or less.
    Multiplied,
}

const DISTURBANCES: [Disturbance; 5] = [
    Disturbance::None,
    Disturbance::Noise(24.0),
    Disturbance::Noise(40.0),
    Disturbance::Added,
    Disturbance::Multiplied,
];

impl Disturbance {
    fn of(self, picture: &[u8], index: u64, seconds: f64) -> Vec<u8> {
        let mut picture = picture.to_vec();
        let luma = &mut picture[..SIZE.area() as usize];
        let swing = 0.1 * (PI * seconds / 2.0).sin();
        let table: [u8; 256] = std::array::from_fn(|level| match self {
            Disturbance::Added => (level as f64 + 255.0 * swing) as u8,
            Disturbance::Multiplied => (level as f64 * (1.0 + swing)) as u8,
            Disturbance::None | Disturbance::Noise(_) => level as u8,
        });
        if let Disturbance::Noise(levels) = self {
            add_noise(luma, levels, index);
        } else {
            luma.iter_mut().for_each(|level| *level = table[usize::from(*level)]);
        }
        picture
    }
}

/// Adds grain like FFmpeg's filter `noise`, with a deviation of its strength / sqrt(3); here half of that,
/// since a pixel stands for four.
fn add_noise(luma: &mut [u8], strength: f64, seed: u64) {
    // The sum of four bytes is nearly normally distributed, with a deviation of 147.8.
    let step = strength / 3f64.sqrt() / 2.0 / 147.8;
    let grain: Vec<i32> = (-510..=510).map(|sum| (f64::from(sum) * step).round() as i32).collect();
    let mut state = seed.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    for level in luma {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let sum: usize = state.to_le_bytes()[..4].iter().map(|&byte| usize::from(byte)).sum();
        *level = (i32::from(*level) + grain[sum]).clamp(0, 255) as u8;
    }
}

/// Returns the start of the episode that matches an event.
fn start_of(event: &Event, episodes: &[[f64; 2]]) -> Option<f64> {
    let told = event.span[0] - GRACE..=event.start + NEAR;
    episodes.iter().map(|episode| episode[0]).find(|start| told.contains(start))
}

/// Returns the events without an episode, and the episodes without movement.
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

#[test]
fn each_start_is_told_and_nothing_else_whatever_disturbs_the_picture() {
    for clip in labelled().into_iter().map(Clip::decode) {
        let (label, shown) = (&clip.label, clip.at_rate(clip.label.fps));
        for disturbance in DISTURBANCES {
            let told = clip.episodes(&shown, disturbance);
            assert_eq!(faults(label, &told), [""; 0], "{} {disturbance:?}: {told:?}", label.clip);
            let calm = clip.episodes(&clip.to_and_fro(label.calm[0]), disturbance);
            assert_eq!(calm, [[0.0; 2]; 0], "calm {} {disturbance:?}", label.clip);
        }
    }
}

#[test]
fn a_start_is_told_at_the_same_time_at_any_rate() {
    for clip in labelled().into_iter().map(Clip::decode) {
        let label = &clip.label;
        let told = [10.0, 25.0, 60.0].map(|fps| {
            let told = clip.episodes(&clip.at_rate(fps), Disturbance::None);
            assert_eq!(faults(label, &told), [""; 0], "{} {fps}: {told:?}", label.clip);
            label.events.iter().map(|event| start_of(event, &told)).collect::<Vec<_>>()
        });
        for (at, event) in label.events.iter().enumerate() {
            let starts = told.each_ref().map(|told| told[at].expect("it has no fault"));
            let apart = starts.into_iter().fold(f64::MIN, f64::max)
                - starts.into_iter().fold(f64::MAX, f64::min);
            let same = if label.clip.contains("bottle") { SAME_OF_HANDS } else { SAME };
            assert!(apart < same, "{} {}: {starts:?}", label.clip, event.start);
        }
    }
}
