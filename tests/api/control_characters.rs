//! Control characters in what callers write: kept as they came, or refused by the field's name.

use scripted_model::Step;
use serde_json::{Value, json};

use crate::{
    api::{
        uploads::{TYPE, file_form},
        whip::{attached, offer, publishing},
    },
    support::{
        Setup, clip_bytes,
        model::{Model, prompt},
        shared,
    },
};

/// White space and others, at both ends and between.
pub const ODD: &str = "\t\u{1}a\u{7}b\u{85}c\r\nd\u{7f}\n";

/// Beside the fields whose patterns `limits.rs` tries.
#[test]
fn what_has_no_room_for_them_is_refused_by_name() {
    let server = shared();
    let run = server.create_run();
    let hook = server.post_run(&run, "webhooks", &json!({"url": "https://ho\nst.example/"}));
    let tenant = server.call("POST", "/v1/runs").header("x-tenant-id", "a\tb").json(&json!({}));
    let upload = server.call("POST", "/v1/upload").header("content-type", TYPE);
    let upload = upload.body(file_form("a\u{85}.mp4", &clip_bytes("motion.mp4")));
    for (reply, field) in [(hook, "url"), (tenant.send(), "x-tenant-id"), (upload.send(), "file")] {
        reply.assert_invalid(field, "a control character");
    }
}

#[test]
fn prompts_and_descriptions_stay_as_they_were_written() {
    let model = Model::start(|_| Step::chat("hello"));
    let setup = model.behind(Setup::temporary().clips());
    let server = setup.var("SERVICE_EGRESS_ALLOWED_NETWORKS", "127.0.0.0/8").start();
    let asked = |path: &str, body: &Value| {
        let before = model.server.seen().len();
        let reply = server.post(path, body);
        assert_eq!(reply.status, 200, "{path}: {}", reply.text);
        prompt(&model.server.seen()[before])
    };
    let of = "qwen3-vl-4b";
    assert_eq!(asked("/v1/infer", &json!({"model": of, "prompt": ODD})), ODD);
    let run = server.create_run();
    let body = json!({
        "source_uri": "motion.mp4", "model": of, "max_frames": 30, "semantic_prompt": ODD,
    });
    let hook = json!({"url": "https://127.0.0.1:9/hook", "description": ODD});
    let made = server.post_run(&run, "webhooks", &hook).assert_ok();
    assert_eq!(made.json()["description"], ODD);
    let said = asked(&format!("/v1/runs/{run}/reason"), &body);
    assert!(said.contains(ODD), "{said:?}");
    let config = attached(&json!({"prompt": ODD}));
    let reply = publishing(&server, &offer("VP8"))
        .header("x-attach-config", &config)
        .send()
        .assert_status(201);
    let path = format!("{}/prompt", reply.header("location"));
    let updated = server.call("PATCH", &path).json(&json!({"prompt": ODD})).send();
    assert_eq!((updated.status, &updated.json()["prompt"]), (200, &json!(ODD)));
}
