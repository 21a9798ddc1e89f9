//! `GET /v1/doctor`: each thing that people get wrong is found, and said with what to do about it.

use serde_json::{Value, json};
use worker::SandboxPolicy;

use super::reason::finding;
use crate::support::{Server, Setup, model::stock, sandbox::policy, shared, wait_until};

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
    let server = shared();
    let reply = server.get("/v1/doctor");
    let found = reply.json();
    assert_eq!(found["request_id"], reply.header("x-request-id"));
    for check in found["checks"].as_array().expect("an array") {
        assert!(!text(&check["name"]).is_empty() && !text(&check["message"]).is_empty(), "{check}");
        let is_ok = check["status"] == "ok";
        assert_eq!(is_ok, check["advice"].is_null(), "advice goes with what is not well: {check}");
    }
    assert_eq!(check(&server, "keys")["status"], "ok");
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
    // Each row: the check, how it ends, words of what it found and of its advice.
    let assert_found = |setup: Setup, rows: &[[&str; 4]]| {
        let server = setup.start();
        // Only where it is a root.
        std::fs::remove_dir(&gone).ok();
        for [name, status, message, advice] in rows {
            let check = check(&server, name);
            assert_eq!(check["status"], *status, "{check}");
            assert!(text(&check["message"]).contains(message), "{check}");
            assert!(text(&check["advice"]).contains(advice), "{check}");
        }
        let all = server.get("/v1/doctor").text;
        assert!(!all.contains(dir.to_str().expect("UTF-8")), "no path of the server's: {all}");
        server
    };
    assert_found(
        setup(),
        &[
            ["address", "ok", "this machine alone", ""],
            ["ingest roots", "advice", "none", "SERVICE_INGEST_FILE_ROOTS"],
            ["ready", "ok", "the log takes events", ""],
            ["disk", "ok", "free above the reserve", ""],
            ["models", "advice", "no backend is configured", "SERVICE_VLLM_BASE_URL"],
            ["webrtc", "ok", "this machine alone", ""],
            ["time", "ok", "T", ""],
            ["gate", "ok", "cpu", ""],
        ],
    );

    std::fs::create_dir(&gone).expect("made");
    let keyless = || setup().var("SERVICE_REQUIRE_API_KEY", "false").var("SERVICE_API_KEYS", "");
    let open = keyless().root(&gone).var("SERVICE_BIND_ADDR", "0.0.0.0:0");
    let open = open.var("SERVICE_DISK_RESERVE_MIB", "16777216");
    let open = open.var("SERVICE_FFPROBE_PATH", "/nowhere");
    assert_found(
        open.var("SERVICE_VLLM_BASE_URL", "http://127.0.0.1:9"),
        &[
            ["keys", "problem", "whoever", "openssl"],
            ["address", "advice", "without TLS", "SERVICE_TLS_CERT_PATH"],
            ["ingest roots", "problem", "1 of 1 cannot be read", "start it again"],
            ["disk", "problem", "MiB reserved", "room"],
            ["model backend vllm", "problem", "not answered; its", "URL"],
            ["webrtc", "advice", "another at each start", "SERVICE_WEBRTC_UDP_PORT"],
            ["ffprobe", "advice", "PATH", "FFmpeg"],
        ],
    );

    let model = stock(&["acme/a"], finding("a van", 0.9));
    let asked = "asked for qwen3, a name that it does not serve; it lists acme/a";
    let own = "priority = 1\nmodel = \"qwen3-vl-8b\"\nupstream_model = \"qwen3\"";
    assert_found(
        setup().backend("own", &model.server.base_url(), own),
        &[["model backend own", "problem", asked, "upstream_model"]],
    );
    let live = "SERVICE_LIVE_MODEL names qwen3-vl-8b";
    let server = assert_found(
        model.behind(keyless()).var("SERVICE_LIVE_MODEL", "qwen3-vl-8b"),
        &[
            ["keys", "advice", "are off", "SERVICE_API_KEYS"],
            ["model backend vllm", "ok", "serves acme/a; it lists acme/a", ""],
            ["live model", "problem", live, "sightline models"],
        ],
    );
    server
        .post("/v1/infer", &json!({"model": "qwen3-vl-4b", "prompt": "What is it?"}))
        .assert_status(500);
    // What a backend answered last is looked at every five seconds.
    let found = || check(&server, "model backend vllm");
    wait_until("the check tells the failure", || found()["status"] == "advice");
    let check = found();
    assert!(text(&check["advice"]).contains("a name that it does not serve"), "{check}");
}
