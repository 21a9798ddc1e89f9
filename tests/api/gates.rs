//! Backends that decode and measure change nothing that a client sees.

use std::path::Path;

use serde_json::{Value, json};

use super::replay::without_ids;
use crate::support::{Server, Setup, skip, this_test};

/// The kinds and payloads of a clip's events, without what differs from run to run.
fn events_of(server: &Server) -> Vec<Value> {
    let run = server.ingested(&json!({"source_uri": "motion.mp4"}));
    server.post_run(&run, "analyze", &json!({"model": "qwen3-vl-8b"})).assert_ok();
    let told = |event: &Value| -> Value {
        let event = json!({ "kind": event["kind"], "payload": event["payload"] });
        serde_json::from_str(&without_ids(&event.to_string())).expect("JSON")
    };
    server.events(&run).iter().map(told).collect()
}

#[test]
fn a_clip_gives_the_same_events_field_by_field_whatever_decodes_and_measures_it() {
    let start =
        |variable: &str, backend: &str| Setup::temporary().clips().var(variable, backend).start();
    let backend = |server: &Server, of: &str| server.get("/v1/models").json()[of].clone();
    let decoder = |event: &mut Value| event["payload"].as_object_mut()?.remove("decoder");
    let on_cpu = start("SERVICE_GATE_BACKEND", "cpu");
    assert_eq!(backend(&on_cpu, "gate")["backend"], "cpu");
    let mut expected = events_of(&on_cpu);
    assert!(expected.iter().any(|event| event["kind"] == "frames_decoded"));
    if Path::new("/usr/share/vulkan/icd.d").is_dir() {
        let on_adapter = start("SERVICE_GATE_BACKEND", "wgpu");
        let named = backend(&on_adapter, "gate");
        assert_eq!(named["backend"], "wgpu");
        let measurer = named["measurer"].as_str().unwrap_or_default();
        assert!(measurer.starts_with("wgpu:"), "{named}");
        let measured = events_of(&on_adapter);
        for (measured, expected) in measured.iter().zip(&expected) {
            assert_eq!(measured, expected);
        }
        assert_eq!(measured.len(), expected.len());
        let lost = on_adapter.metric("service_gate_devices_lost_total");
        assert_eq!(lost, 0.0, "nothing was given up");
    } else {
        skip(&this_test(), "there is no Vulkan driver");
    }
    let external = start("SERVICE_DECODE_BACKEND", "ffmpeg-cli");
    assert_eq!(backend(&external, "decode")["backend"], "ffmpeg-cli");
    let mut decoded = events_of(&external);
    let by: Vec<Value> = decoded.iter_mut().filter_map(decoder).collect();
    assert_eq!(by, ["ffmpeg-cli:h264"]);
    assert_eq!(expected.iter_mut().filter_map(decoder).collect::<Vec<_>>(), ["software:h264"]);
    assert_eq!(decoded, expected);
}
