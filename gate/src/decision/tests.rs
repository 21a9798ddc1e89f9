//! Tables of reasons, selections and confidences.

use media::{Activity, EventType, Score, Signal};

use super::*;

fn score(millionths: u32) -> Score {
    Score::from_millionths(millionths)
}

/// Returns a calm signal: mid luma, all scores 0.
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

/// Returns the decisions about calm signals 0, 1, 2, ... after `change` was applied to each.
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
    // Each row removes the reason of the row before.
    let take: [(SelectionReason, u64, Edit); 8] = [
        (SelectionReason::InitialFrame, 0, |_| {}),
        (SelectionReason::SceneCut, 30, |_| {}),
        (SelectionReason::ActivityStarted, 30, |signal| signal.scene_score = Some(Score::ZERO)),
        (SelectionReason::PeriodicKeepalive, 30, |signal| signal.activity = None),
        (SelectionReason::ExposureShift, 38, |_| {}),
        (SelectionReason::FlickerSuspected, 38, |signal| signal.luma_mean = calm(0).luma_mean),
        (SelectionReason::GhostingSuspected, 38, |signal| signal.flicker_score = Score::ZERO),
        (SelectionReason::NoiseVarianceSpike, 38, |signal| signal.ghosting_score = Score::ZERO),
    ];
    for row in 0..take.len() {
        let (expected, at, _) = take[row];
        let decisions = decide(at + 1, |signal| {
            // The light changed a second before and has stayed changed.
            if signal.frame_index == at {
                all(signal);
            } else if (10..at).contains(&signal.frame_index) {
                signal.luma_mean = Score::ONE;
            }
            take[..=row].iter().for_each(|(_, _, change)| change(signal));
        });
        assert_eq!(decisions[at as usize].reason, expected);
        assert!(decisions[at as usize].selected, "{expected:?}");
    }
    assert_eq!(decide(2, |_| {})[1].reason, SelectionReason::NoTrigger);
}

#[test]
fn a_keepalive_in_time_keeps_the_first_frame_at_or_after_each_multiple() {
    // Interval in milliseconds, and the kept frames of 40 ms each.
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
fn an_artifact_is_reported_on_every_frame_and_selected_once_until_it_is_gone_for_a_second() {
    let shown = [3, 4, 5, 6, 9, 20, 44, 69];
    let decisions = decide(80, |signal| {
        if shown.contains(&signal.frame_index) {
            signal.ghosting_score = score(700_000);
        }
    });
    let at = |wanted: fn(&Decision) -> bool| -> Vec<u64> {
        (1..80).filter(|&index| wanted(&decisions[index as usize])).collect()
    };
    assert_eq!(at(|d| d.reason == SelectionReason::GhostingSuspected), shown);
    assert_eq!(at(|d| d.selected), [3, 30, 60, 69]);
    assert_eq!(decisions[4].reason.event_type(), EventType::ArtifactSuspected);
    assert_eq!(decisions[4].confidence, score(700_000));
}

#[test]
fn thresholds_belong_to_the_reason() {
    for (shift, expected) in [(149_999, vec![]), (150_000, vec![38])] {
        for luma in [500_000 - shift, 500_000 + shift] {
            let shifts = shifts(60, |at| if at < 10 { 500_000 } else { luma });
            assert_eq!(shifts, expected, "luma {luma}");
        }
    }
    for (value, expected) in
        [(499_999, SelectionReason::NoTrigger), (500_000, SelectionReason::SceneCut)]
    {
        let decisions = decide(2, |signal| signal.scene_score = Some(score(value)));
        assert_eq!(decisions[1].reason, expected, "scene {value}");
    }
}

/// Returns the frames of 40 ms reported as an exposure shift; `luma` is the brightness in millionths.
fn shifts(count: u64, luma: impl Fn(u64) -> u32) -> Vec<usize> {
    let decisions = decide(count, |signal| signal.luma_mean = score(luma(signal.frame_index)));
    let told = |at: &usize| decisions[*at].reason == SelectionReason::ExposureShift;
    (0..decisions.len()).filter(told).collect()
}

#[test]
fn a_change_of_light_is_one_that_stays_for_a_second() {
    type Luma = fn(u64) -> u32;
    let cases: [(&str, Luma, &[usize]); 10] = [
        ("on at 0.4 s: told at 1.5 s", |at| 400_000 + 200_000 * u32::from(at >= 10), &[38]),
        ("told later where a keepalive is due", |at| 400_000 + 200_000 * u32::from(at >= 2), &[38]),
        ("a flash", |at| 400_000 + 400_000 * u32::from(at == 10 || at == 11), &[]),
        ("on for 0.9 s", |at| 400_000 + 200_000 * u32::from((10..33).contains(&at)), &[]),
        (
            "on, and off after three seconds",
            |at| 400_000 + 200_000 * u32::from((10..85).contains(&at)),
            &[38, 113],
        ),
        (
            "in two steps",
            |at| 200_000 + 200_000 * (u32::from(at >= 10) + u32::from(at >= 20)),
            &[50],
        ),
        (
            "there and half way back",
            |at| 200_000 + 400_000 * u32::from(at >= 10) - 160_000 * u32::from(at >= 20),
            &[50],
        ),
        ("blinking once a second", |at| 400_000 + 200_000 * u32::from(at / 12 % 2 == 1), &[]),
        ("blinking twelve times a second", |at| 400_000 + 200_000 * (at % 2) as u32, &[]),
        ("a slow change", |at| 300_000 + 5_000 * at as u32, &[]),
    ];
    for (name, luma, expected) in cases {
        assert_eq!(shifts(120, luma), expected, "{name}");
    }
}

#[test]
fn confidence_follows_the_event_type() {
    let decisions = decide(3, |signal| {
        signal.noise_variance_score = score(200_000);
        signal.scene_score = Some(score(if signal.frame_index == 2 { 800_000 } else { 300_000 }));
    });
    let found: Vec<_> =
        decisions.into_iter().map(|d| (d.reason.event_type(), d.confidence)).collect();
    let expected = [
        (EventType::KeyframeKeep, Score::ONE),
        (EventType::ContextObservation, score(700_000)),
        (EventType::SceneCut, score(800_000)),
    ];
    assert_eq!(found, expected);
}

#[test]
fn without_a_scene_score_the_hash_decides() {
    for (bits, expected) in [(17, SelectionReason::NoTrigger), (18, SelectionReason::SceneCut)] {
        let decisions = decide(2, |signal| {
            signal.scene_score = None;
            signal.perceptual_hash = if signal.frame_index == 1 { (1 << bits) - 1 } else { 0 };
        });
        assert_eq!(decisions[1].reason, expected, "{bits} bits");
    }
}

#[test]
fn a_gate_resumed_anywhere_agrees_or_is_unsure() {
    // Lasting and short changes of light, flicker and quiet, episodes, and a cut.
    let luma = |index: u64| match index {
        _ if index.is_multiple_of(97) => 900_000,
        _ if index % 130 < 60 => 300_000,
        _ => 600_000 - 200 * (index % 7) as u32,
    };
    let signal = |index: u64| Signal {
        luma_mean: score(luma(index)),
        flicker_score: score(if index % 70 < 20 { (index * 7919 % 1000) as u32 * 700 } else { 0 }),
        scene_score: Some(score(if index == 163 { 600_000 } else { 1000 })),
        activity: Some(Activity {
            score: score(if index % 80 < 20 { 1600 + 40 * (index % 20) as u32 } else { 0 }),
            ..Activity::default()
        }),
        ..calm(index)
    };
    let mut whole = Gate::new(every_30_frames());
    let (mut expected, mut states) = (Vec::new(), Vec::new());
    for index in 10..400 {
        expected.push(whole.offer(&signal(index)));
        states.push(whole.state());
    }
    for reason in [
        SelectionReason::ExposureShift,
        SelectionReason::FlickerSuspected,
        SelectionReason::ActivitySettled,
    ] {
        let told = expected.iter().filter(|one: &&Decision| one.reason == reason && one.selected);
        assert!(told.count() >= 2, "{reason:?}");
    }
    let mut unsure = 0;
    for start in 11..200 {
        let mut resumed = Gate::resume(every_30_frames(), 10);
        resumed.offer(&signal(start - 1));
        let place = start as usize - 11;
        let mut after = Gate::after(every_30_frames(), 10, signal(start - 1), states[place]);
        for (index, expected) in (start..400).zip(&expected[place + 1..]) {
            assert_eq!(after.offer(&signal(index)), *expected, "{index} behind {start}");
            let decision = resumed.offer(&signal(index));
            unsure += u32::from(decision.is_unsure);
            assert!(
                decision.is_unsure || decision == *expected,
                "{index} from {start}: {decision:?} for {expected:?}"
            );
        }
    }
    assert!(unsure < 189 * 12, "{unsure} frames of 189 gates");
}
