//! Control characters in what callers write: kept as they came, or refused by the field's name.

use scripted_model::Step;
use serde_json::{Value, json};

use crate::{
    api::{
        uploads::{TYPE, file_form},
        whip::{attached, offer, publishing},
    },
    support::{
        Setup, clips,
        model::{Model, prompt},
        shared,
    },
};

/// White space and others, at both ends and between.
pub const ODD: &str = "\t\u{1}a\u{7}b\u{85}c\r\nd\u{7f}\n";

#[test]
fn what_has_no_room_for_them_is_refused_by_name() {
    let server = shared();
    let run = server.create_run();
    let of_run = |what: &str| format!("/v1/runs/{run}{what}");
    let model = "qwen3-vl-4b";
    let rows = [
        ("POST", "/v1/runs".to_owned(), json!({"label": ODD}), "label"),
        ("PATCH", of_run(""), json!({"label": ODD}), "label"),
        ("POST", "/v1/runs".to_owned(), json!({"model": ODD}), "model"),
        ("POST", of_run("/ingest"), json!({"source_uri": "a", "stream_id": ODD}), "stream_id"),
        ("POST", of_run("/ingest"), json!({"source_uri": "https://ho\nst/a"}), "source_uri"),
        ("POST", of_run("/ingest"), json!({"source_uri": "rtsps://host/a\t"}), "source_uri"),
        (
            "POST",
            of_run("/reason"),
            json!({"source_uri": "a", "model": model, "index_name": ODD}),
            "index_name",
        ),
        ("POST", of_run("/analyze"), json!({"model": model, "trace_id": ODD}), "trace_id"),
        ("POST", of_run("/webhooks"), json!({"url": "https://ho\nst.example/"}), "url"),
        ("POST", of_run("/feedback"), json!({"rating": 1, "category": "a\0"}), "category"),
        ("POST", "/v1/infer".to_owned(), json!({"prompt": "p", "model": ODD}), "model"),
    ];
    for (method, path, body, field) in rows {
        let reply = server.call(method, &path).json(&body).send();
        let told = (reply.status, reply.fields());
        assert_eq!(told, (422, vec![field.to_owned()]), "{method} {path} {body}: {}", reply.text);
    }
    assert_eq!(server.kinds(&run), ["run_created"]);
    let tenant = server.call("POST", "/v1/runs").header("x-tenant-id", "a\tb").json(&json!({}));
    assert_eq!(tenant.send().fields(), ["x-tenant-id"]);
    let clip = std::fs::read(clips().join("motion.mp4")).expect("readable");
    let upload = server.call("POST", "/v1/upload").header("content-type", TYPE);
    let reply = upload.body(file_form("a\u{85}.mp4", &clip)).send();
    assert_eq!((reply.status, reply.fields()), (422, vec!["file".to_owned()]), "{}", reply.text);
    for field in ["label", "index_name"] {
        let config = attached(&json!({ field: ODD }));
        let reply = publishing(&server, &offer("VP8")).header("x-attach-config", &config).send();
        assert!(reply.status == 400 && reply.text.contains(field), "{}", reply.text);
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
