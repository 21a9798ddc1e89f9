//! Recorded signals with the gate's decisions: frame by frame, in buckets, of one frame.

use media::{RequestId, RunId, Score, Signal};
use serde_json::{Value, json};
use timeline::{Event, FramesDecoded, SamplingPolicy, Signals};

use crate::support::{Server, Setup, assert_has, seed, shared};

const RUN: RunId = RunId::from_bytes([5; 16]);
const REQUEST: RequestId = RequestId::from_bytes([5; 8]);
const SCORES: [&str; 4] = ["luma_mean", "flicker_score", "ghosting_score", "noise_variance_score"];

fn signals(server: &Server, run: &str, query: &str) -> Value {
    let reply = server.get(&format!("/v1/runs/{run}/signals?{query}"));
    assert_eq!(reply.status, 200, "{query}: {}", reply.text);
    reply.json()
}

fn array<'a>(answer: &'a Value, field: &str) -> &'a Vec<Value> {
    answer[field].as_array().unwrap_or_else(|| panic!("no {field}: {answer}"))
}

#[test]
fn recorded_frames_come_with_their_decisions_whole_in_buckets_and_one_by_one() {
    let server = shared().with_clips();
    let source = json!({"source_uri": "talk.mp4", "max_frames": 100, "stream_id": "door \"1\""});
    let run = server.ingested(&source);
    let whole = signals(&server, &run, "");
    check_whole(&server, &run, &whole);
    check_buckets(&server, &run, array(&whole, "signals"));
    check_single_frames(&server, &run, &whole);
    assert_eq!(server.call("DELETE", &format!("/v1/runs/{run}")).send().status, 200);
    assert_eq!(server.get(&format!("/v1/runs/{run}/signals")).status, 404);
}

fn check_whole(server: &Server, run: &str, whole: &Value) {
    assert_has(whole, &json!({"frames": 100, "stream_id": "door \"1\"", "buckets": null}));
    assert_eq!(whole["thresholds"]["keepalive_ms"], 2000);
    let decoded = server.payloads(run, "frames_decoded");
    let frames = array(whole, "signals");
    let recorded = array(&decoded[0], "signals");
    assert_eq!(frames.len(), recorded.len());
    frames.iter().zip(recorded).for_each(|(frame, signal)| assert_has(frame, signal));
    let stills = server.payloads(run, "keyframe_stored");
    let stills: Vec<&Value> = stills.iter().map(|still| &still["frame_index"]).collect();
    let kept = frames.iter().filter(|frame| frame["kept"] == true);
    let kept: Vec<&Value> = kept.map(|frame| &frame["frame_index"]).collect();
    assert_eq!(kept, stills, "what is kept has a still");
    assert_eq!(frames[0]["reason"], "initial_frame");
    assert!(frames.iter().skip(1).any(|frame| frame["kept"] == true));
    let part = signals(server, run, "from_frame=10&to_frame=40&max_points=31");
    assert_eq!(array(&part, "signals")[..], frames[10..=40], "decided about after all before it");
    for query in ["stream_id=other", "from_frame=100", "from_frame=9&to_frame=8"] {
        let none = signals(server, run, query);
        assert_eq!(none["frames"], 0, "{query}");
        assert_eq!(none["signals"], json!([]), "{query}");
    }
    let fresh = signals(server, &server.create_run(), "max_points=2");
    assert_has(&fresh, &json!({"stream_id": null, "signals": []}));
}

/// Past its points an answer has buckets; `src/api/signals/buckets.rs` has which frames are in each.
fn check_buckets(server: &Server, run: &str, frames: &[Value]) {
    let answer = signals(server, run, "max_points=2");
    assert_eq!((&answer["signals"], &answer["frames"]), (&Value::Null, &json!(100)));
    let [first, second] = &array(&answer, "buckets")[..] else { panic!("two: {answer}") };
    let last = first["last_frame"].as_u64().expect("a number") as usize;
    for (bucket, from, to) in [(first, 0, last), (second, last + 1, 99)] {
        let of = &frames[from..=to];
        let kept = of.iter().filter(|frame| frame["kept"] == true).count();
        let expected = json!({
            "first_frame": from, "last_frame": to, "frames": of.len(), "kept_frames": kept,
            "start_pts_ms": of[0]["pts_ms"], "end_pts_ms": of[of.len() - 1]["pts_ms"],
        });
        assert_has(bucket, &expected);
        for field in SCORES {
            let values = of.iter().map(|frame| frame[field].as_f64().expect("a number"));
            assert_eq!(bucket[field]["max"], values.fold(0.0, f64::max), "{field}: {bucket}");
        }
    }
    assert!(signals(server, run, "max_points=100")["signals"].is_array(), "as many as points");
}

/// One frame tells why it was kept or not.
fn check_single_frames(server: &Server, run: &str, frames: &Value) {
    let at = |rest: &str| server.get(&format!("/v1/runs/{run}/frames/{rest}"));
    for index in [0, 1, 30, 31] {
        let frame = at(&format!("{index}?stream_id=door%20%221%22")).assert_ok().json();
        assert_has(&frame, &frames["signals"][index]);
        assert_eq!(frame["thresholds"], frames["thresholds"]);
        let before = index.checked_sub(1).map(|at| &frames["signals"][at]);
        let expected = before.map_or(&Value::Null, |frame| &frame["reason"]);
        assert_eq!(&frame["previous_reason"], expected);
        assert_eq!(frame["luma_shift"].is_null(), index == 0, "{frame}");
    }
    for (rest, status, code) in [
        ("100", 404, "not_found"),
        ("0?stream_id=other", 404, "not_found"),
        ("-1", 422, "validation_error"),
        ("+1", 422, "validation_error"),
        ("1.0", 422, "validation_error"),
        ("18446744073709551616", 422, "validation_error"),
        ("0?stream_id=", 422, "validation_error"),
    ] {
        let reply = at(rest);
        assert_eq!((reply.status, reply.code().as_str()), (status, code), "{rest}: {}", reply.text);
    }
    assert_eq!(at("x").fields(), ["frame_index"]);
}

/// Frames of a column that a server is not to have in memory.
const MANY: u64 = 150_000;

/// A recording of an older server.
pub fn decoded(signals: Signals) -> FramesDecoded {
    let (uri, stream) = ("a.mp4".to_owned(), "main".parse().expect("an id"));
    FramesDecoded {
        decoded_frames: signals.count(),
        width: 16,
        height: 16,
        pixel_format: "yuv420p".to_owned(),
        signals,
        ..FramesDecoded::new(REQUEST, uri, stream, SamplingPolicy::SourceFpsAdaptive)
    }
}

fn seed(dir: &std::path::Path) {
    let log = seed::log(dir);
    let mut column = log.column_writer();
    for index in 0..MANY {
        let peak = if index == MANY / 3 + 1 { Score::ONE } else { Score::ZERO };
        let signal = Signal {
            source_frame_index: Some(index),
            perceptual_hash: index,
            noise_variance_score: peak,
            scene_score: Some(Score::ZERO),
            ..Signal::plain(index, index as i64 * 40)
        };
        column.push(&signal).expect("room");
    }
    let (signals, _lease) = column.finish().expect("durable");
    assert!(matches!(signals, Signals::Column { .. }));
    let created = seed::created("alice");
    let decoded = Event::FramesDecoded(decoded(signals));
    seed::append(&log, RUN, [created, decoded]);
}

#[test]
fn a_long_column_is_answered_without_having_it_in_memory() {
    let dir = tempfile::tempdir().expect("a directory");
    seed(dir.path());
    let server = Setup::new(dir.path()).start();
    let run = RUN.to_string();
    // What any answer needs once.
    signals(&server, &run, "to_frame=1000");
    let before = server.memory_kb("VmRSS");
    let whole = server.get(&format!("/v1/runs/{run}/signals"));
    let grown = server.memory_kb("VmHWM").saturating_sub(before);
    assert!(whole.bytes.len() > 30 << 20, "{} bytes", whole.bytes.len());
    assert!(whole.text.ends_with("}]}"), "the answer has its end");
    assert!(grown < 16 << 10, "{grown} kB for {} bytes", whole.bytes.len());
    let cut = signals(&server, &run, "max_points=500");
    let buckets = array(&cut, "buckets");
    let peaks = buckets.iter().filter(|one| one["noise_variance_score"]["max"] == 1.0);
    let peaks: Vec<&Value> = peaks.collect();
    assert_eq!((buckets.len(), peaks.len()), (500, 1));
    assert_eq!(peaks[0]["reasons"]["noise_variance_spike"], 1);
}
