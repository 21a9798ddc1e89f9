//! `GET /v1/doctor`: each thing that people get wrong is found, and said with what to do about it.

use std::path::Path;

use serde_json::{Value, json};
use worker::SandboxPolicy;

use super::reason::finding;
use crate::support::{Server, Setup, model::stock, sandbox::policy, shared, wait_until};

/// The check of this name.
fn check(server: &Server, name: &str) -> Value {
    let found = server.get("/v1/doctor").json()["checks"].clone();
    let mut checks = found.as_array().expect("an array").iter();
    let found = checks.find(|check| check["name"] == name);
    found.unwrap_or_else(|| panic!("no check {name}")).clone()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

#[test]
fn every_check_says_what_it_found_and_what_to_do() {
    let reply = shared().get("/v1/doctor");
    let found = reply.json();
    assert_eq!(found["request_id"], reply.header("x-request-id"));
    for check in found["checks"].as_array().expect("an array") {
        assert!(!text(&check["name"]).is_empty() && !text(&check["message"]).is_empty(), "{check}");
        let is_ok = check["status"] == "ok";
        assert_eq!(is_ok, check["advice"].is_null(), "advice goes with what is not well: {check}");
    }
    assert_eq!(check(&shared(), "keys")["status"], "ok");
}

#[test]
fn a_worker_tried_its_sandbox_when_the_server_started() {
    let check = check(&shared(), "sandbox");
    let refused = text(&check["message"]).split(' ').find_map(|word| word.parse::<u32>().ok());
    let is_whole = policy(env!("CARGO_BIN_EXE_sightline-server")) == SandboxPolicy::Require;
    assert_eq!(refused.is_some_and(|refused| refused >= 12), is_whole, "{check}");
}

#[test]
fn what_people_get_wrong_is_found() {
    let dir = tempfile::tempdir().expect("a directory");
    let dir = dir.path();
    let setup = || Setup::new(dir);
    let gone = dir.join("gone");
    std::fs::create_dir(&gone).expect("made");
    let model = stock(&["acme/a"], finding("a van", 0.9));
    let url = model.server.base_url();
    let own = "priority = 1\nmodel = \"qwen3-vl-8b\"\nupstream_model = \"qwen3\"";
    let path = |path: &Path| path.to_str().expect("UTF-8").to_owned();
    let keyless = || setup().var("SERVICE_REQUIRE_API_KEY", "false").var("SERVICE_API_KEYS", "");
    let vllm = |url: &str| setup().var("SERVICE_VLLM_BASE_URL", url);
    let open = || setup().var("SERVICE_BIND_ADDR", "0.0.0.0:0");
    // The server's settings, the check, how it ends, words of what it found and of its advice.
    let rows = [
        (keyless(), "keys", "advice", "are off", "SERVICE_API_KEYS"),
        (keyless().var("SERVICE_BIND_ADDR", "0.0.0.0:0"), "keys", "problem", "whoever", "openssl"),
        (setup(), "address", "ok", "this machine alone", ""),
        (open(), "address", "advice", "without TLS", "SERVICE_TLS_CERT_PATH"),
        (setup(), "ingest roots", "advice", "none", "SERVICE_INGEST_FILE_ROOTS"),
        (setup().root(&gone), "ingest roots", "problem", "1 of 1 cannot be read", "start it again"),
        (setup(), "ready", "ok", "the log takes events", ""),
        (setup(), "disk", "ok", "free above the reserve", ""),
        (
            setup().var("SERVICE_DISK_RESERVE_MIB", "16777216"),
            "disk",
            "problem",
            "MiB reserved",
            "room",
        ),
        (setup(), "models", "advice", "no backend is configured", "SERVICE_VLLM_BASE_URL"),
        (vllm("http://127.0.0.1:9"), "model backend vllm", "problem", "not answered; its", "URL"),
        (vllm(&url), "model backend vllm", "ok", "serves acme/a; it lists acme/a", ""),
        (
            setup().backend("own", &url, own),
            "model backend own",
            "problem",
            "asked for qwen3, a name that it does not serve; it lists acme/a",
            "upstream_model",
        ),
        (
            vllm(&url).var("SERVICE_LIVE_MODEL", "qwen3-vl-8b"),
            "live model",
            "problem",
            "SERVICE_LIVE_MODEL names qwen3-vl-8b",
            "sightline models",
        ),
        (setup(), "webrtc", "ok", "this machine alone", ""),
        (open(), "webrtc", "advice", "another at each start", "SERVICE_WEBRTC_UDP_PORT"),
        (setup(), "time", "ok", "T", ""),
        (setup(), "gate", "ok", "cpu", ""),
        (setup().var("SERVICE_FFPROBE_PATH", "/nowhere"), "ffprobe", "advice", "PATH", "FFmpeg"),
    ];
    for (setup, name, status, message, advice) in rows {
        let server = setup.start();
        if status == "problem" && name == "ingest roots" {
            std::fs::remove_dir(&gone).expect("removed");
        }
        let check = check(&server, name);
        assert_eq!(check["status"], status, "{check}");
        assert!(text(&check["message"]).contains(message), "{check}");
        assert!(text(&check["advice"]).contains(advice), "{check}");
        let all = server.get("/v1/doctor").text;
        assert!(!all.contains(&path(dir)), "no path of the server's: {all}");
    }
}

#[test]
fn a_name_that_a_backend_answered_with_404_is_found() {
    let model = stock(&["acme/a"], finding("a van", 0.9));
    let server = Setup::temporary().var("SERVICE_VLLM_BASE_URL", &model.server.base_url()).start();
    server
        .post("/v1/infer", &json!({"model": "qwen3-vl-4b", "prompt": "What is it?"}))
        .assert_status(500);
    // What a backend answered last is looked at every five seconds.
    let found = || check(&server, "model backend vllm");
    wait_until("the check tells the failure", || found()["status"] == "advice");
    let check = found();
    assert!(text(&check["advice"]).contains("a name that it does not serve"), "{check}");
}
