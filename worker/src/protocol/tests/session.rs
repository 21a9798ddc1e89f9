//! Messages of live sessions.

use gate::ActivityState;
use proptest::{collection::vec, option, prelude::*};

use super::{SessionEvent, codec, crop, fault, gate_config, record, signal, zones};
use crate::{
    ClipSpec, EmbeddingInput, NoveltyInput, NoveltySpec, SessionResume, SessionSpec, ViewOptions,
    ViewSpec,
    protocol::{HEADER_BYTES, Request, decode, encode},
    wire::ProtocolError,
};

fn clip_spec() -> impl Strategy<Value = ClipSpec> {
    let times = (1..=ClipSpec::FPS_MAX, ClipSpec::LENGTH_MS_MIN..=ClipSpec::LENGTH_MS_MAX);
    let delay = 0..=ClipSpec::DELAY_MS_MAX;
    let edge = ViewOptions::EDGE_MIN..=ClipSpec::EDGE_MAX;
    (times, delay, 1..=ClipSpec::PICTURES_MAX, edge).prop_map(
        |((target_fps, length_ms), delay_ms, pictures, max_edge)| ClipSpec {
            target_fps,
            length_ms,
            delay_ms,
            pictures,
            max_edge,
        },
    )
}

pub fn spec() -> impl Strategy<Value = SessionSpec> {
    let edge = option::of(ViewOptions::EDGE_MIN..=ViewOptions::EDGE_MAX);
    let view = option::of(edge.prop_map(|max_edge| ViewSpec { max_edge }));
    let side = NoveltySpec::SIDE_MIN..=NoveltySpec::SIDE_MAX;
    let novelty = option::of(side.prop_map(|side| NoveltySpec { side }));
    let shown = (option::of(crop()), view, option::of(clip_spec()), novelty);
    let goes_on = (any::<bool>(), option::of(resume()));
    (codec(), (gate_config(), zones()), goes_on, shown).prop_map(
        |(codec, (gate, zones), (stills, resume), (crop, view, clip, novelty))| SessionSpec {
            codec,
            gate,
            zones,
            stills,
            crop,
            view,
            clip,
            novelty,
            resume,
        },
    )
}

pub fn resume() -> impl Strategy<Value = SessionResume> {
    (signal(), option::of(any::<u8>()), any::<i64>()).prop_map(|(last, level, loud_ms)| {
        let activity = ActivityState { level: level.map(Into::into), loud_ms, cut_ms: None };
        SessionResume { last, activity }
    })
}

pub fn novelty() -> impl Strategy<Value = NoveltyInput> {
    let side = NoveltySpec::SIDE_MIN;
    any::<u8>().prop_map(move |value| NoveltyInput {
        cells: vec![value; NoveltyInput::COLUMNS * NoveltyInput::ROWS],
        picture: EmbeddingInput { side, rgb: vec![value; 3 * (side * side) as usize] },
    })
}

pub fn event() -> impl Strategy<Value = SessionEvent> {
    prop_oneof![
        vec(record(), 0..5).prop_map(SessionEvent::Frames),
        ".{0,9}".prop_map(|detail| SessionEvent::Damaged { detail }),
        (any::<u64>(), ".{0,9}")
            .prop_map(|(frames, decoder)| { SessionEvent::Closed { frames, decoder } }),
        fault().prop_map(SessionEvent::Failed),
    ]
}

/// Numbers that a caller may hold, beyond every bound as well.
fn unbounded() -> impl Strategy<Value = SessionSpec> {
    (spec(), any::<[u32; 7]>()).prop_map(|(spec, numbers)| {
        let [edge, target_fps, length_ms, delay_ms, pictures, max_edge, side] = numbers;
        let clip = ClipSpec { target_fps, length_ms, delay_ms, pictures, max_edge };
        SessionSpec {
            view: spec.view.map(|_| ViewSpec { max_edge: Some(edge) }),
            clip: spec.clip.map(|_| clip),
            novelty: spec.novelty.map(|_| NoveltySpec { side }),
            ..spec
        }
    })
}

proptest! {
    #[test]
    fn a_spec_is_sent_within_its_bounds_and_refused_beyond(spec in unbounded()) {
        let within = spec.clone().within_bounds();
        prop_assert_eq!(within.clone().within_bounds(), within.clone());
        for given in [spec, within.clone()] {
            let mut bytes = Vec::new();
            let is_within = given == within;
            let request = Request::OpenSession { session: 1, spec: given };
            encode(&request, &mut bytes).expect("below the bound");
            let expected =
                if is_within { Ok(request) } else { Err(ProtocolError::Invalid("session spec")) };
            prop_assert_eq!(decode::<Request>(&bytes[HEADER_BYTES..]), expected);
        }
    }
}
