//! Bodies and queries: what is JSON, and fields that do not go with others; each by itself is in [`super::limits`].

use serde_json::{Value, json};

use super::analyses::frame;
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
        (json, b"{".to_vec(), "", 400, ""),
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

pub fn with(mut base: Value, field: &str, value: Value) -> Value {
    base[field] = value;
    base
}

#[test]
fn an_analysis_names_the_frame_or_field_that_does_not_go_with_the_others() {
    let server = shared();
    let path = format!("/v1/runs/{}/analyze", server.create_run());
    let base = json!({"model": "qwen3-vl-8b", "frames": [frame(0)]});
    let of = |frames: Value| with(base.clone(), "frames", frames);
    let one = |field: &str, value: Value| of(json!([with(frame(0), field, value)]));
    let at = |pts_ms: u64| with(frame(6), "pts_ms", json!(pts_ms));
    let rows = [
        (base.clone(), ""),
        (json!({"frames": [frame(0)]}), "model"),
        (of(json!([1])), "frames[0]"),
        (of(json!([frame(1), frame(0)])), "frames[1].frame_index"),
        (of(json!([frame(1), frame(1)])), "frames[1].frame_index"),
        (of(json!([frame(5), at(200)])), ""),
        (of(json!([frame(5), at(0)])), "frames[1].pts_ms"),
        (with(base.clone(), "trace_id", json!("a b")), "trace_id"),
        (with(base.clone(), "sampling_policy", json!("fixed")), "fixed_fps"),
        (with(base.clone(), "unknown", json!(1)), ""),
        (one("noise_variance_score", Value::Null), "frames[0].noise_variance_score"),
        (one("scene_score", Value::Null), ""),
        (one("perceptual_hash", json!("ff")), "frames[0].perceptual_hash"),
        (one("frame_index", json!(0.0)), "frames[0].frame_index"),
    ];
    for (body, field) in rows {
        let reply = server.post(&path, &body);
        let status = if field.is_empty() { 200 } else { 422 };
        assert_eq!(reply.status, status, "{body}: {}", reply.text);
        assert_eq!(reply.fields().first().map_or("", |field| field), field, "{body}");
    }
}

#[test]
fn a_query_has_a_parameter_once_and_in_digits() {
    let server = shared();
    let run = server.create_run();
    let of_run = |list: &str| format!("/v1/runs/{run}/{list}");
    for list in ["/v1/runs".to_owned(), of_run("events"), of_run("keyframes"), of_run("markers")] {
        for limit in ["%2B1", "1&limit=1"] {
            let reply = server.get(&format!("{list}?limit={limit}"));
            assert_eq!(reply.status, 422, "{list}?limit={limit}: {}", reply.text);
        }
    }
}
