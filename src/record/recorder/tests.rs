//! Tests of the recorder: frames in, batches out, at any pace, with and without stills.

use media::{MarkerStatus, Score, StreamId};
use timeline::{AnalysisKey, MarkerConfig};

use super::*;
use crate::record::gate_replay;

fn key() -> AnalysisKey {
    let stream: StreamId = "main".parse().expect("an id");
    AnalysisKey { run: RunId::from_bytes([1; 16]), stream, ordinal: 0 }
}

fn recorder() -> Recorder {
    recorder_of(Some(MarkerDeriver::new(key(), MarkerConfig::default())))
}

/// Recorder with the default gate, without labels and zones.
pub(crate) fn recorder_of(markers: Option<MarkerDeriver>) -> Recorder {
    Recorder::new(RecorderSpec {
        gate: GateConfig::default(),
        words: TenantLabels::default(),
        markers,
        request_id: RequestId::from_bytes([1; 8]),
        stream_id: key().stream,
        zones: Vec::new(),
        session_id: None,
        index_name: None,
    })
}

/// Signals with cuts, artifacts and repeating pictures, generated from `seed`.
fn signals(seed: u64) -> Vec<Signal> {
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut random = move || rng.u64(..1 << 31);
    let pictures = [0, 0xffff_ffff, 0xffff_0000_ffff, 0x00ff_00ff_00ff_00ff];
    let signal = |frame_index| {
        let scores = [(); 4].map(|()| Score::from_millionths((random() % 700_000) as u32));
        let is_cut = random() % 11 == 0;
        Signal {
            frame_index,
            source_frame_index: None,
            pts_ms: frame_index as i64 * 40,
            perceptual_hash: pictures[(random() % 4) as usize],
            luma_mean: scores[0],
            flicker_score: scores[1],
            ghosting_score: scores[2],
            noise_variance_score: scores[3],
            scene_score: Some(if is_cut { Score::ONE } else { Score::ZERO }),
            activity: None,
        }
    };
    (0..300).map(signal).collect()
}

/// Records `signals`, taking a batch every `pace` frames, with the stills that `has_still` selects. Returns
/// rows, number of stills and events; asserts that no batch has a frame past its last row.
fn recorded(
    signals: &[Signal],
    pace: usize,
    has_still: impl Fn(u64) -> bool,
) -> (Vec<Signal>, usize, Vec<(u64, Event)>) {
    let (mut recorder, mut gate) = (recorder(), Gate::new(GateConfig::default()));
    let (mut rows, mut stills, mut events) = (Vec::new(), 0, Vec::new());
    let mut take = |recorder: &mut Recorder| {
        let batch = recorder.take();
        rows.extend(batch.signals);
        let last = rows.last().map_or(0, |row: &Signal| row.frame_index);
        assert!(batch.stills.iter().all(|still| still.frame_index <= last));
        assert!(batch.events.iter().all(|(frame, _)| *frame <= last));
        stills += batch.stills.len();
        events.extend(batch.events);
    };
    for (signal, at) in signals.iter().zip(1..) {
        let decision = gate.offer(signal);
        let is_kept = decision.selected && has_still(signal.frame_index);
        let still = is_kept.then_some(Bytes::from_static(b"jpeg"));
        assert_eq!(recorder.frame(*signal, still), Ok(decision));
        if at % pace == 0 {
            take(&mut recorder);
        }
    }
    recorder.end();
    take(&mut recorder);
    assert_eq!(recorder.frames(), signals.len() as u64);
    let markers = events.iter().filter(|(_, event)| matches!(event, Event::MarkerEmitted(_)));
    assert_eq!(recorder.markers(), markers.count() as u64);
    (rows, stills, events)
}

#[test]
fn pace_and_lost_pictures_change_no_row_and_no_event() {
    for seed in 0..20 {
        let signals = signals(seed);
        let (rows, stills, events) = recorded(&signals, 1, |_| true);
        assert!(rows == signals && stills > 0, "{seed}: {stills} stills");
        assert!(
            events.iter().any(|(_, event)| matches!(event, Event::Found(..))),
            "{seed}: a loop"
        );
        for pace in [2, 7, 64, 1000] {
            let some = recorded(&signals, pace, |frame| frame % 3 == 0);
            assert_eq!((&some.0, &some.2), (&signals, &events), "{seed}, every {pace}");
        }
    }
}

#[test]
fn a_picture_that_the_gate_did_not_select_is_a_violation() {
    let still = || Some(Bytes::from_static(b"jpeg"));
    let mut recorder = recorder();
    assert!(recorder.frame(Signal::plain(0, 0), still()).is_ok(), "the first frame is kept");
    let told = recorder.frame(Signal::plain(1, 40), still());
    assert_eq!(told, Err(WireError::Unexpected("still")));
    assert_eq!(recorder.take().stills.len(), 1);
}

#[test]
fn markers_are_those_of_a_later_analysis_but_for_the_open_segment() {
    for seed in 0..20 {
        let signals = signals(seed);
        let config = MarkerConfig::default();
        let frames =
            gate_replay::replay(signals.iter().copied(), GateConfig::default(), |name| name);
        let expected = gate_replay::markers(&key(), &frames, config);
        let told = |events: Vec<(u64, Event)>| -> Vec<_> {
            let markers = events.into_iter().filter_map(|(_, event)| match event {
                Event::MarkerEmitted(marker) => Some(marker),
                _ => None,
            });
            markers.collect()
        };
        let mut recorder = recorder();
        signals.iter().for_each(|signal| _ = recorder.decide(*signal));
        let mut live = told(recorder.take().events);
        let open = expected.len() - live.len();
        assert!((1..=2).contains(&open) && expected.starts_with(&live), "{seed}: {open}");
        recorder.end();
        live.extend(told(recorder.take().events));
        assert_eq!(live, expected, "{seed}");
        assert!(expected.iter().any(|marker| marker.status == MarkerStatus::Provisional), "{seed}");
    }
}
