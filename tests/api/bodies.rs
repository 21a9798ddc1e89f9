//! Bodies and queries: what is JSON, and every limit at the bound and one past it.

use serde_json::{Value, json};

use crate::support::shared;

#[test]
fn a_body_is_json_or_its_fault_is_named() {
    let server = shared();
    let padded = |len: usize| format!("{{\"x\":\"{}\"}}", "a".repeat(len - 8)).into_bytes();
    let json = "application/json";
    let rows: Vec<(&str, Vec<u8>, &str, u16, &str)> = vec![
        (json, b"{}".to_vec(), "", 200, ""),
        ("application/json; charset=utf-8", b"{}".to_vec(), "", 200, ""),
        ("Application/JSON", b"{}".to_vec(), "identity", 200, ""),
        ("application/problem+json", b"{}".to_vec(), "", 200, ""),
        ("text/plain", b"{}".to_vec(), "", 415, ""),
        ("", b"{}".to_vec(), "", 415, ""),
        (json, b"{}".to_vec(), "gzip", 415, ""),
        (json, b"".to_vec(), "", 400, ""),
        (json, b"{".to_vec(), "", 400, ""),
        (json, b"{\"mode\":NaN}".to_vec(), "", 400, ""),
        (json, b"\xff".to_vec(), "", 400, ""),
        (json, b"[".repeat(100_000), "", 400, ""),
        (json, b"{\"mode\":1}".to_vec(), "", 422, "mode"),
        (json, b"{\"mode\":null}".to_vec(), "", 200, ""),
        (json, b"{\"mode\":\"custom\",\"mode\":\"custom\"}".to_vec(), "", 422, "mode"),
        (json, b"{\"a\":{\"b\":1,\"b\":1}}".to_vec(), "", 422, "a.b"),
        (json, b"{\"x\":1e999}".to_vec(), "", 422, "x"),
        (json, b"null".to_vec(), "", 422, "body"),
        (json, padded(2 << 20), "", 200, ""),
        (json, padded((2 << 20) + 1), "", 413, ""),
    ];
    for (content_type, body, encoding, status, field) in rows {
        let name = String::from_utf8_lossy(&body[..body.len().min(40)]).into_owned();
        let mut call = server.call("POST", "/v1/runs").body(body);
        for (header, value) in [("content-type", content_type), ("content-encoding", encoding)] {
            if !value.is_empty() {
                call = call.header(header, value);
            }
        }
        let reply = call.send();
        assert_eq!(reply.status, status, "{name} as {content_type:?}: {}", reply.text);
        assert_eq!(reply.fields().first().map_or("", |field| field), field, "{name}");
        assert!(status == 422 || reply.code().is_empty(), "{name} is answered in plain text");
        assert!(status != 413 || reply.text.contains("2097152"), "{}", reply.text);
    }
}

fn frame(index: u64) -> Value {
    json!({
        "frame_index": index, "pts_ms": index * 40, "perceptual_hash": "00000000000000ff",
        "luma_mean": 0.5, "flicker_score": 0.1, "ghosting_score": 0.1,
        "noise_variance_score": 0.1, "scene_score": 0.0,
    })
}

fn frames(count: u64) -> Value {
    (0..count).map(frame).collect()
}

fn with(mut base: Value, field: &str, value: Value) -> Value {
    base[field] = value;
    base
}

#[test]
fn ingest_limits_hold_at_the_bound_and_not_past_it() {
    let server = shared();
    let path = format!("/v1/runs/{}/ingest", server.create_run());
    let fixed = json!({"sampling_policy": "fixed", "fixed_fps": 1});
    let rows: Vec<(Value, Option<&str>)> = vec![
        (json!({"max_frames": 1}), None),
        (json!({"max_frames": 500_000}), None),
        (json!({"max_frames": 0}), Some("max_frames")),
        (json!({"max_frames": 500_001}), Some("max_frames")),
        (json!({"max_frames": 1.0}), Some("max_frames")),
        (json!({"max_frames": "1"}), Some("max_frames")),
        (with(fixed.clone(), "fixed_fps", json!(0.2)), None),
        (with(fixed.clone(), "fixed_fps", json!(120)), None),
        (with(fixed.clone(), "fixed_fps", json!(0.199)), Some("fixed_fps")),
        (with(fixed.clone(), "fixed_fps", json!(120.001)), Some("fixed_fps")),
        (with(fixed.clone(), "fixed_fps", Value::Null), Some("fixed_fps")),
        (json!({"fixed_fps": 121}), Some("fixed_fps")),
        (json!({"sample_fps": 0.2}), None),
        (json!({"sample_fps": 0.1}), Some("sample_fps")),
        (with(fixed.clone(), "sample_fps", json!(1)), None),
        (with(fixed, "sample_fps", json!(2)), None),
        (json!({"sampling_policy": "every"}), Some("sampling_policy")),
        (json!({"stream_id": "s".repeat(128)}), None),
        (json!({"stream_id": "s".repeat(129)}), Some("stream_id")),
        (json!({"stream_id": ""}), Some("stream_id")),
        (json!({"stream_id": "a\nb"}), Some("stream_id")),
        (json!({"source_uri": 7}), Some("source_uri")),
        (json!({"unknown": 1}), Some("unknown")),
    ];
    for (fields, refused) in rows {
        let mut body = json!({"source_uri": "missing.mp4"});
        body.as_object_mut().expect("an object").extend(fields.as_object().expect("one").clone());
        let reply = server.post(&path, &body);
        // A request within its limits gets as far as the file, which is not there.
        let (field, message) = (refused.unwrap_or("source_uri"), "not found");
        assert_eq!((reply.status, reply.fields()), (422, vec![field.to_owned()]), "{body}");
        assert!(refused.is_some() || reply.source_message() == message, "{body}: {}", reply.text);
    }
}

#[test]
fn analyze_limits_hold_at_the_bound_and_not_past_it() {
    let server = shared();
    let path = format!("/v1/runs/{}/analyze", server.create_run());
    let one = |field: &str, value: Value| json!({"model": "qwen3-vl-8b", "frames": [with(frame(0), field, value)]});
    let base = json!({"model": "qwen3-vl-8b", "frames": [frame(0)]});
    let rows: Vec<(Value, &str)> = vec![
        (base.clone(), ""),
        (json!({"frames": [frame(0)]}), "model"),
        (with(base.clone(), "model", json!("")), "model"),
        (with(base.clone(), "mode", json!("odd")), "mode"),
        (with(base.clone(), "frames", json!([])), "frames"),
        (with(base.clone(), "frames", frames(4096)), ""),
        (with(base.clone(), "frames", frames(4097)), "frames"),
        (with(base.clone(), "frames", json!([1])), "frames[0]"),
        (with(base.clone(), "frames", json!([frame(1), frame(0)])), "frames[1].frame_index"),
        (with(base.clone(), "frames", json!([frame(1), frame(1)])), "frames[1].frame_index"),
        (with(base.clone(), "frames", json!([frame(5), with(frame(6), "pts_ms", json!(200))])), ""),
        (
            with(base.clone(), "frames", json!([frame(5), with(frame(6), "pts_ms", json!(0))])),
            "frames[1].pts_ms",
        ),
        (with(base.clone(), "window_size", json!(2)), ""),
        (with(base.clone(), "window_size", json!(256)), ""),
        (with(base.clone(), "window_size", json!(1)), "window_size"),
        (with(base.clone(), "window_size", json!(257)), "window_size"),
        (with(base.clone(), "segment_ms", json!(50)), ""),
        (with(base.clone(), "segment_ms", json!(60_000)), ""),
        (with(base.clone(), "segment_ms", json!(49)), "segment_ms"),
        (with(base.clone(), "segment_ms", json!(60_001)), "segment_ms"),
        (with(base.clone(), "segment_ms", json!(50.5)), "segment_ms"),
        (with(base.clone(), "trace_id", json!("t".repeat(64))), ""),
        (with(base.clone(), "trace_id", json!("t".repeat(65))), "trace_id"),
        (with(base.clone(), "trace_id", json!("a b")), "trace_id"),
        (with(base.clone(), "sampling_policy", json!("fixed")), "fixed_fps"),
        (with(base.clone(), "marker_correction_window_frames", json!(0)), ""),
        (with(base.clone(), "marker_correction_window_frames", json!((1u64 << 53) - 1)), ""),
        (
            with(base.clone(), "marker_correction_window_frames", json!(1u64 << 53)),
            "marker_correction_window_frames",
        ),
        (
            with(base.clone(), "marker_correction_window_frames", json!(-1)),
            "marker_correction_window_frames",
        ),
        (with(base, "unknown", json!(1)), ""),
        (one("luma_mean", json!(1)), ""),
        (one("luma_mean", json!(1.000_001)), "frames[0].luma_mean"),
        (one("flicker_score", json!(-0.000_001)), "frames[0].flicker_score"),
        (one("noise_variance_score", Value::Null), "frames[0].noise_variance_score"),
        (one("scene_score", Value::Null), ""),
        (one("scene_score", json!(2)), "frames[0].scene_score"),
        (one("perceptual_hash", json!(u64::MAX)), ""),
        (one("perceptual_hash", json!("ff")), "frames[0].perceptual_hash"),
        (one("perceptual_hash", json!(1.5)), "frames[0].perceptual_hash"),
        (one("frame_index", json!(0.0)), "frames[0].frame_index"),
        (one("pts_ms", json!("0")), "frames[0].pts_ms"),
    ];
    for (body, field) in rows {
        let reply = server.post(&path, &body);
        let name: String = body.to_string().chars().take(160).collect();
        let status = if field.is_empty() { 200 } else { 422 };
        assert_eq!(reply.status, status, "{name}: {}", reply.text);
        assert_eq!(reply.fields().first().map_or("", |field| field), field, "{name}");
    }
}

#[test]
fn list_and_query_limits_hold_at_the_bound_and_not_past_it() {
    let server = shared();
    let run = server.create_run();
    for list in [
        "/v1/runs".to_owned(),
        format!("/v1/runs/{run}/events"),
        format!("/v1/runs/{run}/keyframes"),
        format!("/v1/runs/{run}/markers"),
    ] {
        for (limit, status) in [
            ("1", 200),
            ("1000", 200),
            ("0", 422),
            ("1001", 422),
            ("%2B1", 422),
            ("1&limit=1", 422),
        ] {
            let reply = server.get(&format!("{list}?limit={limit}"));
            assert_eq!(reply.status, status, "{list}?limit={limit}: {}", reply.text);
        }
    }
    let rows = [
        ("limit", json!(1), 200),
        ("limit", json!(10_000), 200),
        ("limit", json!(0), 422),
        ("limit", json!(10_001), 422),
        ("wait_ms", json!(0), 200),
        ("wait_ms", json!(30_000), 200),
        ("wait_ms", json!(30_001), 422),
        ("wait_ms", json!(-1), 422),
        ("from_seq", json!(u64::MAX), 200),
        ("from_seq", json!(-1), 422),
        ("from_seq", json!("1"), 422),
    ];
    for (field, value, status) in rows {
        let reply = server.post("/v1/query", &with(json!({"run_id": run}), field, value.clone()));
        assert_eq!(reply.status, status, "{field} {value}: {}", reply.text);
    }
}
