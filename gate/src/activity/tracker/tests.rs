//! Course of episodes, and trackers that saw only a part of it.

use media::Activity;
use proptest::prelude::*;

use super::*;

fn signal(pts_ms: i64, permille: u32) -> Signal {
    let score = Score::from_millionths(permille * 1000);
    Signal { activity: Some(Activity { score, ..Activity::default() }), ..Signal::plain(0, pts_ms) }
}

fn config() -> GateConfig {
    let permille = |count: u32| Score::from_millionths(count * 1000);
    GateConfig { activity_on: permille(16), activity_off: permille(6), ..GateConfig::default() }
}

/// Returns the changes for frames of 100 ms.
fn changes(scores: &[u32], cuts: &[usize]) -> Vec<(usize, Change)> {
    let mut tracker = Tracker::new();
    let frames = scores.iter().enumerate();
    let offered = frames.filter_map(|(at, &score)| {
        let outcome = tracker.offer(&config(), &signal(100 * at as i64, score), cuts.contains(&at));
        assert!(!outcome.is_unsure);
        outcome.change.map(|change| (at, change))
    });
    offered.collect()
}

#[test]
fn an_episode_starts_peaks_and_settles() {
    use Change::{Peaked, Settled, Started};
    let with = |runs: &[(usize, u32)]| -> Vec<u32> {
        runs.iter().flat_map(|&(count, score)| vec![score; count]).collect()
    };
    /// Name, runs of scores, frames of cuts, and the reported changes.
    type Row =
        (&'static str, &'static [(usize, u32)], &'static [usize], &'static [(usize, Change)]);
    let rows: [Row; 10] = [
        ("calm", &[(40, 15)], &[], &[]),
        // Below the lower threshold from frame 10 on: over at the first grid point a second later.
        ("short", &[(7, 0), (3, 16), (30, 5)], &[], &[(7, Started), (20, Settled)]),
        ("hovers", &[(7, 0), (1, 16), (30, 6), (15, 0)], &[], &[(7, Started), (50, Settled)]),
        (
            "a pause",
            &[(7, 0), (1, 16), (9, 0), (1, 6), (30, 0)],
            &[],
            &[(7, Started), (30, Settled)],
        ),
        (
            "rises",
            &[(7, 0), (4, 16), (9, 23), (9, 24), (9, 80), (20, 0)],
            &[],
            &[(7, Started), (20, Peaked), (30, Peaked), (50, Settled)],
        ),
        (
            "peaks between are passed over",
            &[(7, 0), (4, 16), (3, 80), (20, 16)],
            &[],
            &[(7, Started)],
        ),
        ("from the first frame", &[(3, 900), (20, 0)], &[], &[(0, Started), (15, Settled)]),
        ("a cut is no movement", &[(10, 0), (3, 900), (20, 0)], &[10], &[]),
        (
            "movement after a cut",
            &[(10, 0), (9, 900), (20, 0)],
            &[10],
            &[(17, Started), (30, Settled)],
        ),
        (
            "again",
            &[(6, 0), (1, 16), (19, 0), (1, 16)],
            &[],
            &[(6, Started), (20, Settled), (26, Started)],
        ),
    ];
    for (name, runs, cuts, expected) in rows {
        assert_eq!(changes(&with(runs), cuts), expected, "{name}");
    }
}

#[test]
fn levels_rise_by_halves() {
    let score = Score::from_millionths;
    let rows = [(10, 0), (14, 0), (15, 1), (22, 1), (23, 2), (34, 3), (1000, 11), (1_000_000, 16)];
    for (millionths, expected) in rows {
        assert_eq!(level(score(millionths), score(10)), expected, "{millionths}");
    }
    assert_eq!(level(Score::ONE, Score::ZERO), LEVELS);
}

proptest! {
    /// A tracker that starts anywhere is right where it is sure, and unsure everywhere else.
    #[test]
    fn a_tracker_that_starts_anywhere_foresees_every_change(
        frames in prop::collection::vec((10i64..300, prop_oneof![0u32..6, 0u32..30, 0u32..200], prop::bool::weighted(0.05)), 1..120),
        start in 0usize..60,
    ) {
        let mut whole = Tracker::new();
        let mut part: Option<Tracker> = None;
        let mut now = 0;
        for (at, (gap, score, is_cut)) in frames.into_iter().enumerate() {
            now += gap;
            let signal = signal(now, score);
            let expected = whole.offer(&config(), &signal, is_cut);
            prop_assert!(!expected.is_unsure);
            if let Some(part) = &mut part {
                let foreseen = part.offer(&config(), &signal, is_cut);
                prop_assert!(foreseen.is_unsure || foreseen == expected, "{at}: {foreseen:?}, {expected:?}");
            }
            if at == start {
                part = Some(Tracker::after(now));
            }
        }
    }

    /// The following frames depend only on the state after a frame.
    #[test]
    fn a_tracker_resumes_where_another_stood(
        frames in prop::collection::vec((10i64..300, 0u32..60, prop::bool::weighted(0.05)), 2..80),
        stop in 0usize..60,
    ) {
        let mut tracker = Tracker::new();
        let mut now = 0;
        let mut resumed: Option<Tracker> = None;
        for (at, (gap, score, is_cut)) in frames.into_iter().enumerate() {
            now += gap;
            let signal = signal(now, score);
            let expected = tracker.offer(&config(), &signal, is_cut);
            if let Some(resumed) = &mut resumed {
                prop_assert_eq!(resumed.offer(&config(), &signal, is_cut), expected);
            }
            if at == stop {
                resumed = Some(Tracker::resume(tracker.state(), now));
            }
        }
    }
}
