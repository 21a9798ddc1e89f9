//! JSON text of payloads, and its decoding to the same event.

use media::{Activity, CellBox, FrameRate, GateConfig, Score, Seq, Signal, Zone, Zones};

use super::*;
use crate::event::*;

const RUN: RunId = RunId::from_bytes([0xab; 16]);
const AT: WallTime = WallTime { epoch_ms: -5 };

/// Returns the record of `event`.
fn stored(event: Event) -> Vec<u8> {
    let draft = RecordBuilder::of(NewEvent { run: RUN, event }).expect("fits");
    let mut bytes = Vec::new();
    draft.put(&mut bytes, Seq(9), AT);
    assert_eq!(bytes.len(), draft.record_bytes());
    bytes
}

/// Checks that the payload of `event` is `expected` and that the stored event decodes to `event`.
#[track_caller]
fn check(event: Event, expected: &str) {
    let bytes = stored(event.clone());
    let record = JournalRecord::parse(&bytes).expect("intact");
    assert_eq!(record.head, EventMeta { seq: Seq(9), at: AT, run: RUN, kind: event.kind() });
    let payload = record.payload().expect("text");
    assert_eq!(payload.text, expected);
    assert_eq!(record.decode().expect("decodes"), event);
    let known: serde_json::Value = match payload.column {
        None => serde_json::from_str(payload.text).expect("valid JSON"),
        Some(_) => return,
    };
    assert!(known.is_object());
}

fn text(text: &str) -> String {
    text.to_owned()
}

/// Kinds and payloads, some as older versions wrote them.
const PAYLOADS: &str = include_str!("../../../fixtures/payloads.txt");

#[test]
fn a_payload_is_written_as_it_was_read() {
    let mut missing = EventKind::ALL.to_vec();
    for row in PAYLOADS.lines() {
        let (kind, text) = row.split_once(' ').expect("a kind and a payload");
        let kind = EventKind::from_name(kind).expect("a kind");
        check(Event::parse(kind, text).unwrap_or_else(|field| panic!("{field} of {row}")), text);
        missing.retain(|other| *other != kind);
    }
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn thresholds_have_their_names() {
    let [scene_cut, luma_shift, activity_on, activity_off, flicker, ghosting, noise] =
        [1, 2, 4, 3, 5, 6, 7].map(|percent| Score::from_ratio(percent, 100));
    let (keepalive_frames, keepalive_ms) = (9, None);
    #[rustfmt::skip]
    let gate = GateConfig { keepalive_frames, keepalive_ms, scene_cut, luma_shift, activity_on, activity_off, flicker, ghosting, noise };
    let expected = r#"{"keepalive_frames":9,"scene_cut":0.01,"activity_on":0.04,"activity_off":0.03,"luma_shift":0.02,"flicker":0.05,"ghosting":0.06,"noise":0.07}"#;
    assert_eq!(String::from_utf8_lossy(&JsonObjectWriter::of(&gate)), expected);
    let read = JsonObjectReader::parse(expected).and_then(|fields| GateConfig::read(&fields));
    assert_eq!(read, Ok(gate));
}

/// Beginning of the payload of [`frames`].
const START: &str = r#"{"request_id":"req-1111111111111111","source_uri":"/a.mp4","stream_id":"yard","sampling_policy":"fixed","source_fps":30.0,"sample_fps":null,"decoded_frames":2,"width":640,"height":360,"pixel_format":"yuv420p","#;

#[track_caller]
fn parsed(payload: &str) -> FramesDecoded {
    let read = Event::parse(EventKind::FramesDecoded, payload);
    let Ok(Event::FramesDecoded(read)) = read else { panic!("{read:?}") };
    read
}

fn frames(signals: Signals) -> FramesDecoded {
    FramesDecoded { signals, ..parsed(&format!(r#"{START}"signals":[]}}"#)) }
}

#[test]
fn a_rate_that_an_earlier_version_wrote_is_readable() {
    let odd = START.replace("30.0", "90000.0");
    let read = parsed(&format!(r#"{odd}"signals":[]}}"#));
    assert_eq!(read.source_fps, FrameRate::new(4000, 1));
}

#[test]
fn frames_with_signals_inline_and_in_a_column() {
    let signal = Signal {
        frame_index: 1,
        source_frame_index: Some(15),
        pts_ms: -40,
        perceptual_hash: 0xf0,
        luma_mean: Score::from_millionths(500_000),
        flicker_score: Score::ZERO,
        ghosting_score: Score::ONE,
        noise_variance_score: Score::from_millionths(1),
        scene_score: Some(Score::from_millionths(123_450)),
        activity: Some(Activity {
            score: Score::from_millionths(15_625),
            region: CellBox { left: 16, top: 10, right: 17, bottom: 40 },
            zones: 0b1000_0000_0000_0101,
        }),
    };
    let bare = Signal { source_frame_index: None, scene_score: None, activity: None, ..signal };
    let signals = r#""signals":[{"frame_index":1,"source_frame_index":15,"pts_ms":-40,"perceptual_hash":"00000000000000f0","luma_mean":0.5,"flicker_score":0.0,"ghosting_score":1.0,"noise_variance_score":0.000001,"scene_score":0.12345,"activity_score":0.015625,"activity_region":{"x":0.25,"y":0.25,"width":0.015625,"height":0.75},"activity_zones":[0,2,15]},{"frame_index":1,"pts_ms":-40,"perceptual_hash":"00000000000000f0","luma_mean":0.5,"flicker_score":0.0,"ghosting_score":1.0,"noise_variance_score":0.000001}]}"#;
    let decoded = frames(Signals::Inline(vec![signal, bare]));
    check(Event::FramesDecoded(decoded), &format!("{START}{signals}"));
    let column = Signals::Column { hash: BlobHash::from_bytes([3; 32]), count: 2 };
    let reason = Some(text("stopped"));
    let decoded = FramesDecoded { truncated: true, reason, ..frames(column.clone()) };
    let cut = "\"truncated\":true,\"reason\":\"stopped\",";
    check(Event::FramesDecoded(decoded), &format!("{START}{cut}\"signals\":"));
    let (decoder, decoder_fallback) = (Some(text("nvdec:h264+software:h264")), Some(text("lost")));
    let wall_start_ms = Some(Some(WallTime { epoch_ms: 1_700_000_000_123 }));
    let decoded = FramesDecoded { decoder, decoder_fallback, wall_start_ms, ..frames(column) };
    let named = "\"decoder\":\"nvdec:h264+software:h264\",\"decoder_fallback\":\"lost\",";
    check(
        Event::FramesDecoded(decoded),
        &format!("{START}{named}\"wall_start_ms\":1700000000123,\"signals\":"),
    );
}

#[test]
fn zones_of_a_recording() {
    let score = Score::from_millionths;
    let corners = [(0, 0), (500_000, 0), (500_000, 1_000_000)];
    let polygon = corners.into_iter().map(|(x, y)| (score(x), score(y))).collect();
    let door = Zone { name: text("door"), polygon };
    let zones = Zones { zones: vec![door], only: true };
    let decoded = FramesDecoded { zones, ..frames(Signals::Inline(Vec::new())) };
    let told = r#""zones":[{"name":"door","polygon":[[0.0,0.0],[0.5,0.0],[0.5,1.0]]}],"activity_zones_only":true,"signals":[]}"#;
    check(Event::FramesDecoded(decoded), &format!("{START}{told}"));
    // Older logs have only the names.
    let older = format!(r#"{START}"zones":["door","yard"],"signals":[]}}"#);
    let read = parsed(&older);
    assert_eq!(read.zones.names(), ["door", "yard"]);
    assert!(read.zones.zones.iter().all(|zone| zone.polygon.is_empty()) && !read.zones.only);
    let rows = [
        r#"["door",7]"#,
        r#"[{"name":"door"}]"#,
        r#"[{"name":"door","polygon":[[0,2]]}]"#,
        r#"[{"name":"door","polygon":[[0]]}]"#,
    ];
    for zones in rows {
        let odd = format!(r#"{START}"zones":{zones},"signals":[]}}"#);
        assert!(Event::parse(EventKind::FramesDecoded, &odd).is_err(), "{zones}");
    }
}

#[test]
fn a_payload_of_another_shape_names_its_field() {
    let cases = [
        (EventKind::RunFailed, r#"{}"#, "reason"),
        (EventKind::RunFailed, r#"{"reason":7}"#, "reason"),
        (EventKind::RunCompleted, r#"{"request_id":"req-1"}"#, "request_id"),
        (EventKind::RunExpired, r#"[]"#, "(no JSON object)"),
    ];
    for (kind, text, field) in cases {
        assert_eq!(Event::parse(kind, text), Err(field), "{text}");
    }
    let tolerated = r#"{"reason":"x","added_later":[1]}"#;
    assert!(Event::parse(EventKind::RunFailed, tolerated).is_ok());
}

#[test]
fn json_text_is_one_value() {
    assert!(JsonText::parse(" {\"a\": 1} ").is_some());
    for text in ["", "{", "{} {}", "nul"] {
        assert_eq!(JsonText::parse(text), None, "{text}");
    }
}

#[test]
fn no_flipped_bit_leaves_a_record_intact() {
    let failed = RunFailed { request_id: None, reason: text("shutdown") };
    let bytes = stored(Event::RunFailed(failed));
    for bit in 0..bytes.len() * 8 {
        let mut damaged = bytes.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        assert!(JournalRecord::parse(&damaged).is_err(), "bit {bit}");
    }
}
