//! Gate backends change nothing that a client sees; one that is missing stops the start.

use std::path::Path;

use serde_json::{Value, json};

use crate::support::{Server, Setup, skip, this_test};

/// Fields whose values differ from run to run.
const OF_A_RUN: [&str; 4] = ["request_id", "marker_id", "analysis_id", "job_id"];

/// The events of a clip without what differs from run to run: kinds and payloads.
fn events_of(server: &Server) -> Vec<Value> {
    let run = server.ingested(&json!({"source_uri": "motion.mp4"}));
    server.post_run(&run, "analyze", &json!({"model": "qwen3-vl-8b"})).assert_ok();
    let scrubbed = |event: &Value| {
        let event = json!({ "kind": event["kind"], "payload": event["payload"] });
        settled(&event, &run)
    };
    server.events(&run).iter().map(scrubbed).collect()
}

/// The same without what is made of numbers of requests and runs, and another name for this run.
fn settled(value: &Value, run: &str) -> Value {
    match value {
        Value::Object(fields) => {
            let kept = fields.iter().filter(|(name, _)| !OF_A_RUN.contains(&name.as_str()));
            kept.map(|(name, value)| (name.clone(), settled(value, run))).collect()
        }
        Value::Array(items) => items.iter().map(|item| settled(item, run)).collect(),
        Value::String(text) => Value::String(text.replace(run, "run")),
        other => other.clone(),
    }
}

#[test]
fn a_clip_measured_on_a_vulkan_adapter_gives_the_events_of_the_cpu_field_by_field() {
    let setup = |gate: &str| Setup::temporary().clips().var("SERVICE_GATE_BACKEND", gate);
    if !Path::new("/usr/share/vulkan/icd.d").is_dir() {
        return skip(&this_test(), "there is no Vulkan driver");
    }
    let (on_adapter, on_cpu) = (setup("wgpu").start(), setup("cpu").start());
    let gate = |server: &Server| server.get("/v1/models").json()["gate"].clone();
    let named = gate(&on_adapter);
    assert_eq!(named["backend"], "wgpu");
    assert!(named["measurer"].as_str().is_some_and(|name| name.starts_with("wgpu:")), "{named}");
    assert_eq!(gate(&on_cpu)["backend"], "cpu");
    let (measured, expected) = (events_of(&on_adapter), events_of(&on_cpu));
    assert!(expected.iter().any(|event| event["kind"] == "frames_decoded"));
    for (measured, expected) in measured.iter().zip(&expected) {
        assert_eq!(measured, expected);
    }
    assert_eq!(measured.len(), expected.len());
    assert_eq!(on_adapter.metric("service_gate_devices_lost_total"), 0.0, "nothing was given up");
}

#[test]
fn a_clip_that_an_ffmpeg_beside_the_worker_decodes_gives_the_same_events() {
    let server = |backend: &str| {
        let setup = Setup::temporary().clips();
        setup.var("SERVICE_DECODE_BACKEND", backend).start()
    };
    let (external, software) = (server("ffmpeg-cli"), server("software"));
    assert_eq!(external.get("/v1/models").json()["decode"]["backend"], "ffmpeg-cli");
    let decoder = |event: &mut Value| event["payload"].as_object_mut()?.remove("decoder");
    let (mut decoded, mut expected) = (events_of(&external), events_of(&software));
    let by: Vec<Value> = decoded.iter_mut().filter_map(decoder).collect();
    assert_eq!(by, ["ffmpeg-cli:h264"]);
    assert_eq!(expected.iter_mut().filter_map(decoder).collect::<Vec<_>>(), ["software:h264"]);
    assert_eq!(decoded, expected);
}

#[test]
fn a_gate_backend_that_is_missing_stops_the_start_and_says_what_is() {
    let dir = tempfile::tempdir().expect("a directory");
    let libraries = dir.path().join("libraries");
    std::fs::create_dir(&libraries).expect("made");
    // A machine with a driver may have one of the first name as well.
    for name in ["libcuda.so", "libcuda.so.1"] {
        std::fs::write(libraries.join(name), "not a library").expect("written");
    }
    let words = ["asks for cuda: no NVIDIA driver: ", "libcuda.so.1: file too short"];
    let mut command = Setup::new(dir.path()).var("SERVICE_GATE_BACKEND", "cuda").command();
    let output = command.env("LD_LIBRARY_PATH", &libraries).output().expect("it runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("SERVICE_GATE_BACKEND"), "{said}");
    assert!(words.iter().all(|words| said.contains(words)), "{said}");
}
