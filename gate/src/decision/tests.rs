//! Tables of reasons, selections and confidences.

use media::{Activity, EventType, Score, Signal};

use super::*;

fn score(millionths: u32) -> Score {
    Score::from_millionths(millionths)
}

/// A calm signal: mid luma, no score.
fn calm(frame_index: u64) -> Signal {
    Signal {
        luma_mean: score(500_000),
        scene_score: Some(Score::ZERO),
        ..Signal::plain(frame_index, 40 * frame_index as i64)
    }
}

fn every_30_frames() -> GateConfig {
    GateConfig { keepalive_frames: 30, keepalive_ms: None, ..GateConfig::default() }
}

/// Decisions about calm signals 0, 1, 2, ... after `change` was applied to each.
fn decide(count: u64, change: impl Fn(&mut Signal)) -> Vec<Decision> {
    let mut gate = Gate::new(every_30_frames());
    (0..count)
        .map(|index| {
            let mut signal = calm(index);
            change(&mut signal);
            gate.offer(&signal)
        })
        .collect()
}

#[test]
fn the_highest_reason_that_holds_wins() {
    let all = |signal: &mut Signal| {
        signal.scene_score = Some(Score::ONE);
        signal.luma_mean = Score::ONE;
        signal.flicker_score = Score::ONE;
        signal.ghosting_score = Score::ONE;
        signal.noise_variance_score = Score::ONE;
        signal.activity = Some(Activity { score: Score::ONE, ..Activity::default() });
    };
    type Edit = fn(&mut Signal);
    // Each row takes away the reason of the row before.
    let take: [(Reason, u64, Edit); 8] = [
        (Reason::InitialFrame, 0, |_| {}),
        (Reason::SceneCut, 30, |_| {}),
        (Reason::ActivityStarted, 30, |signal| signal.scene_score = Some(Score::ZERO)),
        (Reason::PeriodicKeepalive, 30, |signal| signal.activity = None),
        (Reason::ExposureShift, 31, |_| {}),
        (Reason::FlickerSuspected, 31, |signal| signal.luma_mean = calm(0).luma_mean),
        (Reason::GhostingSuspected, 31, |signal| signal.flicker_score = Score::ZERO),
        (Reason::NoiseVarianceSpike, 31, |signal| signal.ghosting_score = Score::ZERO),
    ];
    for row in 0..take.len() {
        let (expected, at, _) = take[row];
        let decisions = decide(at + 1, |signal| {
            if signal.frame_index == at {
                all(signal);
                take[..=row].iter().for_each(|(_, _, change)| change(signal));
            }
        });
        assert_eq!(decisions[at as usize].reason, expected);
        assert!(decisions[at as usize].selected, "{expected:?}");
    }
    assert_eq!(decide(2, |_| {})[1].reason, Reason::NoTrigger);
}

#[test]
fn a_keepalive_in_time_keeps_the_first_frame_at_or_after_each_multiple() {
    // Milliseconds, and what is kept of frames of 40 ms each.
    for (every, expected) in [
        (100, vec![0, 3, 5, 8, 10, 13, 15, 18]),
        (40, (0..20).collect()),
        (1000, vec![0]),
        (0, vec![0]),
    ] {
        let config =
            GateConfig { keepalive_frames: 0, keepalive_ms: Some(every), ..GateConfig::default() };
        let mut gate = Gate::new(config);
        let kept: Vec<u64> = (0..20).filter(|index| gate.offer(&calm(*index)).selected).collect();
        assert_eq!(kept, expected, "{every} ms");
        let mut resumed = Gate::resume(config, 0);
        resumed.offer(&calm(6));
        let kept: Vec<u64> =
            (7..20).filter(|index| resumed.offer(&calm(*index)).selected).collect();
        let rest: Vec<u64> = expected.into_iter().filter(|index| *index > 6).collect();
        assert_eq!(kept, rest, "{every} ms, resumed");
    }
}

#[test]
fn keepalives_lie_on_a_grid_from_the_first_index() {
    let kept = |first: u64, interval| {
        let config = GateConfig { keepalive_frames: interval, ..every_30_frames() };
        let mut gate = Gate::new(config);
        let decide = |index| gate.offer(&calm(index)).selected.then_some(index);
        (first..first + 65).filter_map(decide).collect::<Vec<_>>()
    };
    assert_eq!(kept(0, 30), [0, 30, 60]);
    assert_eq!(kept(7, 30), [7, 37, 67]);
    assert_eq!(kept(7, 0), [7]);
    assert_eq!(kept(0, 32), [0, 32, 64]);
}

#[test]
fn an_artifact_is_reported_on_every_frame_and_selected_on_the_first() {
    let decisions = decide(12, |signal| {
        if (3..=6).contains(&signal.frame_index) || signal.frame_index == 9 {
            signal.ghosting_score = score(700_000);
        }
    });
    let at = |wanted: fn(&Decision) -> bool| -> Vec<usize> {
        (1..12).filter(|&index| wanted(&decisions[index])).collect()
    };
    assert_eq!(at(|d| d.reason == Reason::GhostingSuspected), [3, 4, 5, 6, 9]);
    assert_eq!(at(|d| d.selected), [3, 9]);
    assert_eq!(decisions[4].event_type, EventType::ArtifactSuspected);
    assert_eq!(decisions[4].confidence, score(700_000));
}

#[test]
fn thresholds_belong_to_the_reason() {
    let cases = [(149_999, Reason::NoTrigger), (150_000, Reason::ExposureShift)];
    for (shift, expected) in cases {
        for luma in [500_000 - shift, 500_000 + shift] {
            let decisions = decide(2, |signal| {
                if signal.frame_index == 1 {
                    signal.luma_mean = score(luma);
                }
            });
            assert_eq!(decisions[1].reason, expected, "luma {luma}");
        }
    }
    for (value, expected) in [(499_999, Reason::NoTrigger), (500_000, Reason::SceneCut)] {
        let decisions = decide(2, |signal| signal.scene_score = Some(score(value)));
        assert_eq!(decisions[1].reason, expected, "scene {value}");
    }
}

#[test]
fn confidence_follows_the_event_type() {
    let decisions = decide(3, |signal| {
        signal.noise_variance_score = score(200_000);
        signal.scene_score = Some(score(if signal.frame_index == 2 { 800_000 } else { 300_000 }));
    });
    let found: Vec<_> = decisions.into_iter().map(|d| (d.event_type, d.confidence)).collect();
    let expected = [
        (EventType::KeyframeKeep, Score::ONE),
        (EventType::ContextObservation, score(700_000)),
        (EventType::SceneCut, score(800_000)),
    ];
    assert_eq!(found, expected);
}

#[test]
fn without_a_scene_score_the_hash_decides() {
    for (bits, expected) in [(17, Reason::NoTrigger), (18, Reason::SceneCut)] {
        let decisions = decide(2, |signal| {
            signal.scene_score = None;
            signal.perceptual_hash = if signal.frame_index == 1 { (1 << bits) - 1 } else { 0 };
        });
        assert_eq!(decisions[1].reason, expected, "{bits} bits");
    }
}

#[test]
fn a_gate_resumed_anywhere_agrees() {
    let signal = |index: u64| Signal {
        luma_mean: score((index * 7919 % 1000) as u32 * 400),
        flicker_score: score((index * 104_729 % 1000) as u32 * 700),
        scene_score: Some(score((index * 1_299_709 % 1000) as u32 * 510)),
        ..calm(index)
    };
    let mut whole = Gate::new(every_30_frames());
    let expected: Vec<Decision> = (10..200).map(|index| whole.offer(&signal(index))).collect();
    for start in 11..100 {
        let mut resumed = Gate::resume(every_30_frames(), 10);
        resumed.offer(&signal(start - 1));
        for index in start..200 {
            let decision = Decision { is_unsure: false, ..resumed.offer(&signal(index)) };
            assert_eq!(decision, expected[index as usize - 10], "{index}");
        }
    }
}
