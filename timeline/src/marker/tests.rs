//! Rules of the wire contract, one case each.

use proptest::prelude::*;

use super::*;

/// Segments as (type, frames, confidence in millionths); indices inside are consecutive.
type Segments<'a> = &'a [(&'a str, std::ops::RangeInclusive<u64>, u32)];

#[test]
fn a_marker_is_a_models_where_a_model_named_some_of_its_frames() {
    use MarkerOrigin::{Gate, Model};
    let finding = |&(frame_index, name, origin): &(u64, &str, MarkerOrigin)| FrameLabel {
        origin,
        ..label(frame_index, name, 100_000)
    };
    let found = |frames: &[(u64, &str, MarkerOrigin)]| -> Vec<_> {
        let markers = derive_markers(&first(), frames.iter().map(finding), MarkerConfig::default());
        markers.iter().map(|marker| marker.origin).collect()
    };
    assert_eq!(found(&[(0, "a", Gate), (1, "b", Model)]), [Some(Gate), Some(Model)]);
    assert_eq!(found(&[(0, "a", Gate), (1, "a", Model), (2, "a", Gate)]), [Some(Model)]);
    let confirmed = [Some(Gate), Some(Model), Some(Model)];
    assert_eq!(found(&[(0, "a", Gate), (2, "a", Model)]), confirmed);
    assert_eq!(found(&[(0, "a", Gate), (2, "a", Gate)]), [Some(Gate); 3]);
}

/// Returns the first analysis of a stream.
fn first() -> AnalysisKey {
    let stream = "cam".parse().expect("a stream id");
    AnalysisKey { run: RunId::from_bytes([7; 16]), stream, ordinal: 0 }
}

/// Returns the gate's finding of a frame at 25 frames a second.
fn label(frame_index: u64, name: &str, millionths: u32) -> FrameLabel {
    FrameLabel {
        frame_index,
        pts_ms: frame_index as i64 * 40,
        event_type: EventType::from_name(name),
        is_scene_cut: name == "scene_cut",
        confidence: Score::from_millionths(millionths),
        origin: MarkerOrigin::Gate,
    }
}

fn derive(segments: Segments<'_>) -> Vec<Marker> {
    let frames = segments.iter().flat_map(|(name, frames, confidence)| {
        frames.clone().map(|frame_index| label(frame_index, name, *confidence))
    });
    derive_markers(&first(), frames, MarkerConfig::default())
}

fn outline(markers: &[Marker]) -> Vec<String> {
    let line = |marker: &Marker| {
        let (kind, status) = (marker.event_type.as_str(), marker.status.as_str());
        let (start, end) = (marker.start_frame, marker.end_frame);
        format!("{kind} {status} {start}-{end} {}", marker.confidence.as_f64())
    };
    markers.iter().map(line).collect()
}

#[test]
fn each_rule_gives_its_markers() {
    let rows: [(&str, Segments<'_>, &[&str]); 11] = [
        ("no frames", &[], &[]),
        (
            "neighbours of one type merge, and a change of type splits",
            &[("keyframe_keep", 0..=0, 1_000_000), ("context_observation", 1..=4, 900_000)],
            &["keyframe_keep exact 0-0 1", "context_observation exact 1-4 0.9"],
        ),
        ("the threshold", &[("person", 0..=9, 700_000)], &["person exact 0-9 0.7"]),
        ("below it", &[("person", 0..=9, 699_999)], &["person provisional 0-9 0.699999"]),
        ("a scene cut", &[("scene_cut", 3..=3, 0)], &["scene_cut exact 3-3 0"]),
        (
            "the mean over the frames",
            &[("person", 0..=0, 500_000), ("person", 1..=3, 900_000)],
            &["person exact 0-3 0.8"],
        ),
        (
            "confirmed by the next inside the window",
            &[("person", 0..=4, 600_000), ("person", 7..=9, 900_000)],
            &["person provisional 0-4 0.6", "person exact 7-9 0.9", "person finalized 0-9 0.75"],
        ),
        (
            "outside the window",
            &[("person", 0..=4, 600_000), ("person", 8..=9, 600_000)],
            &["person provisional 0-4 0.6", "person provisional 8-9 0.6"],
        ),
        (
            "after another type",
            &[("person", 0..=1, 600_000), ("car", 2..=2, 900_000), ("person", 3..=4, 600_000)],
            &["person provisional 0-1 0.6", "car exact 2-2 0.9", "person provisional 3-4 0.6"],
        ),
        (
            "after an exact one",
            &[("person", 0..=1, 700_000), ("person", 3..=4, 600_000)],
            &["person exact 0-1 0.7", "person provisional 3-4 0.6"],
        ),
        (
            "the mean of segments, not of frames",
            &[("person", 0..=99, 400_000), ("person", 101..=101, 600_000)],
            &[
                "person provisional 0-99 0.4",
                "person provisional 101-101 0.6",
                "person finalized 0-101 0.5",
            ],
        ),
    ];
    for (rule, segments, expected) in rows {
        assert_eq!(outline(&derive(segments)), expected, "{rule}");
    }
}

#[test]
fn a_scene_cut_under_another_name_is_exact_and_so_is_what_is_called_one() {
    let derive = |frames: &[(&str, bool)]| {
        let findings = frames.iter().zip(0..).map(|(&(name, is_scene_cut), index)| FrameLabel {
            is_scene_cut,
            ..label(index, name, 100_000)
        });
        outline(&derive_markers(&first(), findings, MarkerConfig::default()))
    };
    assert_eq!(derive(&[("shot change", true)]), ["shot change exact 0-0 0.1"]);
    assert_eq!(derive(&[("scene_cut", false)]), ["scene_cut exact 0-0 0.1"]);
    // Two types under one label are one segment, exact if it contains a scene cut.
    assert_eq!(derive(&[("shot", false), ("shot", true)]), ["shot exact 0-1 0.1"]);
}

#[test]
fn ids_repeat_on_a_replay_and_differ_by_every_part() {
    let segments: Segments<'_> = &[("car", 0..=1, 200_000), ("car", 3..=4, 400_000)];
    let (once, replay) = (derive(segments), derive(segments));
    assert_eq!(once, replay);
    // Fixed: a change of the derivation would rename stored markers.
    assert_eq!(once[0].marker_id.to_string(), "mk-948e99fd1262b7fb");
    assert_eq!(once[0].analysis_id, Some(first().id()));
    assert_eq!(first().id().to_string(), "an-1102acf6fe255147");
    let other_run = AnalysisKey { run: RunId::from_bytes([8; 16]), ..first() };
    let other_stream = AnalysisKey { stream: "cams".parse().expect("a stream id"), ..first() };
    let second = AnalysisKey { ordinal: 1, ..first() };
    let keys = [first(), other_run, other_stream, second];
    let mut markers = keys.each_ref().map(|key| key.derived(&["car", "exact"], &[0, 1])).to_vec();
    markers.extend([
        first().derived(&["van", "exact"], &[0, 1]),
        first().derived(&["car", "finalized"], &[0, 1]),
        first().derived(&["car", "exact"], &[1, 1]),
        first().derived(&["car", "exact"], &[0, 2]),
    ]);
    let ids = keys.map(|key| key.id().to_string());
    for (i, id) in ids.iter().enumerate() {
        assert!(!ids[..i].contains(id), "analysis {i} repeats");
    }
    for (i, id) in markers.iter().enumerate() {
        assert!(!markers[..i].contains(id), "marker {i} repeats");
    }
}

/// Generates findings in ascending order with few types, for many segments, gaps and confirmations.
fn findings(frames_max: usize) -> impl Strategy<Value = Vec<FrameLabel>> {
    const NAMES: [&str; 3] = ["scene_cut", "person", "car"];
    let steps = prop_oneof![3 => Just(1u64), 1 => 2..6u64];
    let frame = (steps, 0..3usize, 0..=10u32, any::<bool>());
    prop::collection::vec(frame, 0..frames_max).prop_map(|frames| {
        let mut index = 0;
        let findings = frames.into_iter().map(|(step, name, tenths, is_model)| {
            index += step;
            let origin = if is_model { MarkerOrigin::Model } else { MarkerOrigin::Gate };
            FrameLabel { origin, ..label(index, NAMES[name], tenths * 100_000) }
        });
        findings.collect()
    })
}

#[test]
fn a_marker_is_given_by_the_first_frame_behind_its_segment() {
    let mut deriver = MarkerDeriver::new(first(), MarkerConfig::default());
    let rows: [(u64, &str, &[&str]); 6] = [
        (0, "car", &[]),
        (1, "car", &[]),
        (3, "car", &["car provisional 0-1 0.5"]),
        (4, "van", &["car provisional 3-3 0.5", "car finalized 0-3 0.5"]),
        (5, "van", &[]),
        (6, "car", &["van provisional 4-5 0.5"]),
    ];
    for (frame_index, name, expected) in rows {
        let given: Vec<Marker> = deriver.push(label(frame_index, name, 500_000)).collect();
        assert_eq!(outline(&given), expected, "frame {frame_index}");
    }
    let last: Vec<Marker> = deriver.finish().collect();
    assert_eq!(outline(&last), ["car provisional 6-6 0.5"]);
}

proptest! {
    /// Compares with the markers of segments that are first separated from the whole.
    #[test]
    fn markers_are_those_of_whole_segments_and_stand_once_given(
        findings in findings(120),
        cut in any::<prop::sample::Index>(),
        others in findings(40),
        gap in prop_oneof![5 => 0..6u64, 1 => Just(u64::MAX)],
    ) {
        let config = MarkerConfig { correction_window_frames: gap, ..MarkerConfig::default() };
        let segments: Vec<_> = findings.chunk_by(|one, next| {
            one.event_type == next.event_type && one.frame_index + 1 == next.frame_index
        }).collect();
        let mut whole = Vec::new();
        let mut before: Option<Marker> = None;
        for segment in segments {
            // One segment yields one marker; of two, the confirmation comes last.
            let own = derive_markers(&first(), segment.to_vec(), config);
            prop_assert_eq!(own.len(), 1);
            let marker = own[0].clone();
            let ends = [segment.first(), segment.last()].map(|frame| frame.expect("not empty"));
            let [start, end] = ends.map(|frame| (frame.frame_index, frame.pts_ms));
            prop_assert_eq!((marker.start_frame, marker.start_pts_ms), start);
            prop_assert_eq!((marker.end_frame, marker.end_pts_ms), end);
            whole.push(marker.clone());
            if let Some(before) = before.replace(marker.clone())
                && before.status == MarkerStatus::Provisional
                && before.event_type == marker.event_type
                && marker.start_frame - before.end_frame <= gap
            {
                let names = [marker.event_type.as_str(), "finalized"];
                let frames = [before.start_frame, marker.end_frame];
                let is_model = [&before, &marker].map(|one| one.origin == Some(MarkerOrigin::Model));
                whole.push(Marker {
                    marker_id: MarkerId::from_bytes(first().derived(&names, &frames)),
                    status: MarkerStatus::Finalized,
                    start_frame: before.start_frame,
                    start_pts_ms: before.start_pts_ms,
                    confidence: Score::mean([before.confidence, marker.confidence]).expect("two"),
                    supersedes_marker_id: Some(before.marker_id),
                    origin: Some(if is_model.contains(&true) { MarkerOrigin::Model } else { MarkerOrigin::Gate }),
                    ..marker
                });
            }
        }
        let (early, late) = findings.split_at(cut.index(findings.len() + 1));
        let mut deriver = MarkerDeriver::new(first(), config);
        let mut given: Vec<Marker> = Vec::new();
        early.iter().for_each(|frame| given.extend(deriver.push(frame.clone())));
        // The frames so far alone, and followed by other ones.
        let base = early.last().map_or(0, |frame| frame.frame_index);
        let others = others.into_iter().map(|frame| FrameLabel {
            frame_index: base + frame.frame_index,
            ..frame
        });
        for follows in [Vec::new(), others.collect()] {
            let markers = derive_markers(&first(), [early, &follows].concat(), config);
            prop_assert!(markers.starts_with(&given));
        }
        late.iter().for_each(|frame| given.extend(deriver.push(frame.clone())));
        given.extend(deriver.finish());
        prop_assert_eq!(given, whole);
    }
}
