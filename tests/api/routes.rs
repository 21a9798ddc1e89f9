//! One row a route and outcome.

use serde_json::{Value, json};

use crate::support::{Reply, Setup};

const HASH: &str = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
const MISSING: &str = "run-00000000000000000000000000000000";

fn envelope(reply: &Reply) -> bool {
    let json = reply.json();
    let error = &json["error"];
    error["request_id"] == reply.header("x-request-id")
        && error["message"].is_string()
        && error["details"].is_array()
}

#[test]
fn every_route_answers_as_the_contract_says() {
    let dir = tempfile::tempdir().expect("a directory");
    let server = Setup::new(dir.path()).root(dir.path()).start();
    let (live, ended, deleted) = (server.create_run(), server.create_run(), server.create_run());
    assert_eq!(server.post(&format!("/v1/runs/{ended}/stop"), &json!({})).status, 200);
    assert_eq!(server.call("DELETE", &format!("/v1/runs/{deleted}")).send().status, 200);
    let frame = json!({
        "frame_index": 0, "pts_ms": 0, "perceptual_hash": "00ff00ff00ff00ff", "luma_mean": 0.5,
        "flicker_score": 0.0, "ghosting_score": 0.0, "noise_variance_score": 0.0,
    });
    let frames = json!({ "model": "m", "frames": [frame] });
    let none = Value::Null;
    let rows: Vec<(&str, String, Value, u16, &str)> = vec![
        ("GET", "/v1/health".into(), none.clone(), 200, ""),
        ("GET", "/v1/ready".into(), none.clone(), 200, ""),
        ("GET", "/v1/limits".into(), none.clone(), 200, ""),
        ("POST", "/v1/runs".into(), json!({}), 200, ""),
        (
            "POST",
            "/v1/runs".into(),
            json!({"mode": "detailed", "model": "gemma-3-4b", "other": 1}),
            200,
            "",
        ),
        ("POST", "/v1/runs".into(), json!({"mode": "fast"}), 422, "validation_error"),
        ("POST", "/v1/runs".into(), json!({"model": "gpt-0"}), 422, "validation_error"),
        ("POST", "/v1/runs".into(), json!([]), 422, "validation_error"),
        ("GET", "/v1/runs?status=pending&limit=1".into(), none.clone(), 200, ""),
        ("GET", "/v1/runs?status=gone".into(), none.clone(), 422, "validation_error"),
        ("GET", format!("/v1/runs/{live}"), none.clone(), 200, ""),
        ("GET", format!("/v1/runs/{ended}"), none.clone(), 200, ""),
        ("GET", format!("/v1/runs/{deleted}"), none.clone(), 404, "not_found"),
        ("GET", format!("/v1/runs/{MISSING}"), none.clone(), 404, "not_found"),
        ("GET", "/v1/runs/nonsense".into(), none.clone(), 404, "not_found"),
        ("DELETE", format!("/v1/runs/{deleted}"), none.clone(), 200, ""),
        ("DELETE", format!("/v1/runs/{MISSING}"), none.clone(), 404, "not_found"),
        ("GET", format!("/v1/runs/{ended}/state"), none.clone(), 200, ""),
        ("GET", format!("/v1/runs/{deleted}/state"), none.clone(), 404, "not_found"),
        ("POST", format!("/v1/runs/{live}/keepalive"), none.clone(), 200, ""),
        ("POST", format!("/v1/runs/{ended}/keepalive"), none.clone(), 409, "conflict"),
        ("POST", format!("/v1/runs/{ended}/stop"), none.clone(), 409, "conflict"),
        ("POST", format!("/v1/runs/{MISSING}/stop"), none.clone(), 404, "not_found"),
        (
            "POST",
            format!("/v1/runs/{live}/ingest"),
            json!({"source_uri": "no.mp4"}),
            422,
            "validation_error",
        ),
        ("POST", format!("/v1/runs/{live}/ingest"), json!({}), 422, "validation_error"),
        (
            "POST",
            format!("/v1/runs/{MISSING}/ingest"),
            json!({"source_uri": "no.mp4"}),
            404,
            "not_found",
        ),
        (
            "POST",
            format!("/v1/runs/{live}/analyze"),
            json!({"model": "m"}),
            422,
            "validation_error",
        ),
        ("POST", format!("/v1/runs/{live}/analyze"), frames.clone(), 200, ""),
        ("POST", format!("/v1/runs/{ended}/analyze"), frames, 409, "conflict"),
        (
            "GET",
            format!("/v1/runs/{live}/events?limit=1&from_seq=0&index=x"),
            none.clone(),
            200,
            "",
        ),
        ("GET", format!("/v1/runs/{live}/events?limit=x"), none.clone(), 422, "validation_error"),
        ("GET", format!("/v1/runs/{deleted}/events"), none.clone(), 404, "not_found"),
        (
            "GET",
            format!("/v1/runs/{live}/markers?status=exact&from_frame=0&to_frame=9"),
            none.clone(),
            200,
            "",
        ),
        (
            "GET",
            format!("/v1/runs/{live}/markers?status=sure"),
            none.clone(),
            422,
            "validation_error",
        ),
        (
            "GET",
            format!("/v1/runs/{live}/markers?from_frame=-1"),
            none.clone(),
            422,
            "validation_error",
        ),
        ("GET", format!("/v1/runs/{live}/keyframes"), none.clone(), 200, ""),
        ("GET", format!("/v1/runs/{live}/keyframes/{HASH}"), none.clone(), 404, "not_found"),
        ("GET", format!("/v1/runs/{live}/keyframes/xyz"), none.clone(), 422, "validation_error"),
        ("POST", "/v1/query".into(), json!({"run_id": live, "kind": "run_created"}), 200, ""),
        (
            "POST",
            "/v1/query".into(),
            json!({"run_id": live, "kind": "no_such"}),
            422,
            "validation_error",
        ),
        ("POST", "/v1/query".into(), json!({"run_id": deleted}), 404, "not_found"),
        ("POST", "/v1/query".into(), json!({"run_id": "nonsense"}), 404, "not_found"),
        ("POST", "/v1/query".into(), json!({}), 422, "validation_error"),
    ];
    for (method, path, body, status, code) in rows {
        let call = server.call(method, &path);
        let reply = if body.is_null() { call.send() } else { call.json(&body).send() };
        let name = format!("{method} {path} {body}: {}", reply.text);
        assert_eq!((reply.status, reply.code().as_str()), (status, code), "{name}");
        assert!(reply.header("x-request-id").starts_with("req-"), "{name}");
        assert!(status == 200 || envelope(&reply), "{name}");
        assert_eq!(reply.header("x-content-type-options"), "nosniff", "{name}");
        assert_eq!(reply.header("referrer-policy"), "no-referrer", "{name}");
        assert_eq!(reply.header("cache-control"), "no-store", "{name}");
        assert!(reply.header("content-security-policy").contains("default-src 'none'"), "{name}");
    }
}

#[test]
fn what_never_reaches_a_handler_is_plain() {
    let dir = tempfile::tempdir().expect("a directory");
    let server = Setup::new(dir.path()).start();
    let rows = [
        ("GET", "/v1/nothing", 404),
        ("GET", "/", 404),
        ("PUT", "/v1/runs", 405),
        ("DELETE", "/v1/health", 405),
        ("GET", "/v1/runs/%zz", 400),
        ("GET", "/v1/runs/%ff", 400),
        ("GET", "/v1/runs?status=%f", 400),
    ];
    for (method, path, status) in rows {
        let reply = server.call(method, path).send();
        assert_eq!((reply.status, reply.code().as_str()), (status, ""), "{method} {path}");
        assert!(reply.header("x-request-id").starts_with("req-"), "{method} {path}");
    }
}

#[test]
fn head_answers_like_get_without_a_body() {
    let dir = tempfile::tempdir().expect("a directory");
    let server = Setup::new(dir.path()).start();
    let run = server.create_run();
    for path in ["/v1/health", "/v1/runs", &format!("/v1/runs/{run}"), "/v1/runs/none"] {
        let (get, head) = (server.get(path), server.call("HEAD", path).send());
        assert_eq!((head.status, head.text.as_str()), (get.status, ""), "{path}");
        assert_eq!(head.header("content-type"), get.header("content-type"), "{path}");
        assert_eq!(head.header("content-length"), get.header("content-length"), "{path}");
    }
}

#[test]
fn a_run_record_has_the_fields_of_the_contract() {
    let dir = tempfile::tempdir().expect("a directory");
    let server = Setup::new(dir.path()).start();
    let body = json!({"mode": "efficiency", "model": "qwen3-vl-4b"});
    let created = server.call("POST", "/v1/runs").header("x-tenant-id", "acme").json(&body).send();
    let run = created.json()["run_id"].as_str().expect("an id").to_owned();
    assert_eq!(created.json()["status"], "pending");
    let record = server.get(&format!("/v1/runs/{run}")).json();
    let expected = json!({
        "run_id": run, "status": "pending", "mode": "efficiency", "model": "qwen3-vl-4b",
        "source_uri": null, "source": null, "session_id": null, "tenant_id": "acme",
    });
    for (field, value) in expected.as_object().expect("an object") {
        assert_eq!(&record[field], value, "{field}");
    }
    for field in ["created_at", "updated_at", "expires_at"] {
        let text = record[field].as_str().expect("a time");
        assert!(text.len() == 24 && text.ends_with('Z'), "{field}: {text}");
    }
    let listed = server.get("/v1/runs").json();
    assert!(listed[0]["request_id"].is_null() && listed[0]["run_id"] == run.as_str(), "{listed}");
}
