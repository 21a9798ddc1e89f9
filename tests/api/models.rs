//! `/v1/models` and `/v1/limits`: what they say is what this server is; a vLLM as it is started without further settings, behind
//! one variable.

use scripted_model::Step;
use serde_json::{Value, json};

use super::reason::{MODEL, finding, reason};
use crate::support::{
    Server, Setup,
    model::{Model, list, stock},
    shared, wait_until,
};

#[test]
fn models_come_from_the_catalog_and_decoders_from_a_real_worker() {
    let server = shared();
    let answer = server.get("/v1/models").json();
    let models = answer["models"].as_array().expect("an array");
    let find = |id: &str| models.iter().find(|model| model["id"] == id).expect("a curated model");
    assert_eq!(
        find("qwen2.5-vl-7b"),
        &json!({
            "id": "qwen2.5-vl-7b", "tier": "small", "availability": "not_configured",
            "providers_available": [], "fallback_candidates": ["qwen2.5-vl-3b"],
        })
    );
    let tiers = ["internvl3-78b", "gemini-2.5-pro", "smolvlm2-256m", "gemma-3-27b", "qwen3-vl-4b"];
    let tiers = tiers.map(|id| find(id)["tier"].as_str().expect("a tier"));
    assert_eq!(tiers, ["medium", "cloud", "small", "medium", "small"]);
    for model in models {
        let body = json!({"model": model["id"]});
        assert_eq!(server.post("/v1/runs", &body).json()["model"], model["id"]);
    }
    assert_eq!(answer["providers"], json!([]));
    let codecs: Vec<Value> = answer["decode"]["codecs"].as_array().expect("an array").clone();
    let names: Vec<&str> = codecs.iter().filter_map(|codec| codec["codec"].as_str()).collect();
    assert_eq!(names, ["h264", "hevc", "vp8", "vp9", "av1", "mpeg4", "mjpeg"]);
    for codec in &codecs {
        let decoder = codec["decoder"].as_str().unwrap_or_default();
        assert!(decoder.starts_with("software:"), "Debian's FFmpeg has every decoder: {codec}");
    }
    assert_eq!(codecs[0]["decoder"], "software:h264", "its own");
    assert_eq!(answer["decode"]["sandbox"], server.get("/v1/ready").json()["sandbox"]);
    let measurer = answer["gate"]["measurer"].as_str().expect("a worker measures");
    let avx2 = std::fs::read_to_string("/proc/cpuinfo").expect("there").contains(" avx2");
    if answer["gate"]["backend"] == "cpu" {
        assert_eq!(measurer, if avx2 { "cpu-avx2" } else { "cpu-reference" });
    }
    let passed_over = ["decode", "gate"].map(|part| answer[part]["passed_over"].as_array());
    for over in passed_over.into_iter().flat_map(|over| over.expect("an array")) {
        assert!(over["reason"].as_str().is_some_and(|reason| !reason.is_empty()), "{over}");
    }
    assert_eq!(answer["embedding"], json!({"availability": "not_configured", "provider": null}));
}

/// A limit that is off is null, one that nothing is set of has its default, and none is more than JSON can say.
#[test]
fn settings_move_the_limits_that_name_them() {
    // Which of two servers, a limit, its setting, and the values of both.
    let rows = [
        (1, "requests", "SERVICE_RATE_LIMIT_GLOBAL_RPS", "", json!(2000)),
        (1, "principal_requests", "SERVICE_RATE_LIMIT_TENANT_RPS", "", json!(400)),
        (1, "connections_per_address", "SERVICE_MAX_CONNECTIONS_PER_ADDRESS", "7", json!(7)),
        (1, "active_runs", "SERVICE_ACTIVE_STREAM_LIMIT", "7", json!(7)),
        (1, "run_idle", "SERVICE_STREAM_TTL_SECS", "61", json!(61)),
        (1, "disk_reserve", "SERVICE_DISK_RESERVE_MIB", "3", json!(3 << 20)),
        (2, "requests", "SERVICE_RATE_LIMIT_GLOBAL_RPS", "0", Value::Null),
        (2, "principal_requests", "SERVICE_RATE_LIMIT_TENANT_RPS", "900", json!(900)),
        (2, "connections_per_address", "SERVICE_MAX_CONNECTIONS_PER_ADDRESS", "0", Value::Null),
    ];
    for server in [1, 2] {
        let rows = rows.iter().filter(|row| row.0 == server);
        let setup = rows.clone().fold(Setup::temporary(), |setup, row| setup.var(row.2, row.3));
        let limits = setup.start().get("/v1/limits").json()["limits"].clone();
        for (_, name, setting, value, expected) in rows {
            let found = (&limits[name]["max"], limits[name]["setting"].as_str());
            assert_eq!(found, (expected, Some(*setting)), "{name}: {value:?}");
        }
        let least = &limits["api_key"]["min"];
        assert_eq!((&limits["failed_authentications"]["max"], least), (&json!(20), &json!(16)));
        for (name, limit) in limits.as_object().expect("an object") {
            let max = limit["max"].as_f64().unwrap_or(0.0);
            assert!(max <= (1u64 << 60) as f64, "{name}: {limit}");
        }
        for name in ["request_idle", "file_job", "file_job_memory", "upload_form"] {
            assert!(limits[name]["max"].is_u64(), "{name}: {limits}");
        }
    }
}

/// Name that the server lists.
const STOCK: &str = "Qwen/Qwen3-VL-8B-Instruct";
const OWN: &str = "acme/house-vl-7b";
/// Name of the first of them in the service.
const CURATED: &str = "qwen3-vl-8b";

/// Entry of a model in `GET /v1/models`.
fn shown(server: &Server, id: &str) -> Value {
    let models = server.get("/v1/models").json()["models"].clone();
    let found = models.as_array().expect("an array").iter().find(|model| model["id"] == id);
    found.cloned().unwrap_or_default()
}

#[test]
fn a_stock_vllm_is_asked_by_any_name_of_its_models_and_answers_as_it_was_asked() {
    let model = stock(&[STOCK, OWN], finding("van waits", 0.9));
    let server = model.behind(Setup::temporary().clips()).start();
    for (name, upstream) in [(CURATED, STOCK), (STOCK, STOCK), (OWN, OWN)] {
        let created = server.post("/v1/runs", &json!({ "model": name }));
        assert_eq!(created.status, 200, "{name}: {}", created.text);
        assert_eq!(created.json()["model"], name);
        let run = created.run();
        let asked = server.post("/v1/infer", &json!({"model": name, "prompt": "What is it?"}));
        assert_eq!((asked.status, &asked.json()["model"]), (200, &json!(name)), "{}", asked.text);
        let question = json!({"model": name, "prompt": "What is it?"});
        let batch = server.post("/v1/infer/batch", &json!({ "requests": [question] })).json();
        assert_eq!(batch["results"][0]["result"]["model"], name, "{batch}");
        let described = reason(&server, &run, &json!({"max_frames": 30, "model": name}));
        assert_eq!(described.status, 200, "{name}: {}", described.text);
        let chunk = &server.payloads(&run, "semantic_chunk_inferred")[0];
        assert_eq!((&chunk["model"], &chunk["semantic_error"]), (&json!(name), &Value::Null));
        assert_eq!(described.json()["metadata"][0]["model"], name);
        let seen = model.server.seen();
        let asked_as: Vec<Value> =
            seen.iter().rev().take(3).map(|seen| seen.json()["model"].clone()).collect();
        assert_eq!(asked_as, [json!(upstream), json!(upstream), json!(upstream)], "{name}");
        let gated = server.create_run();
        let ingest = json!({"source_uri": "talk.mp4", "max_frames": 30});
        assert_eq!(server.post_run(&gated, "ingest", &ingest).status, 200);
        let path = format!("/v1/runs/{gated}/analyze");
        let analyzed = server.post(&path, &json!({ "model": name }));
        assert_eq!(analyzed.json()["metadata"][0]["model"], name, "{}", analyzed.text);
    }
    assert_eq!(shown(&server, CURATED)["availability"], "ready");
    let own = shown(&server, OWN);
    assert_eq!((&own["availability"], &own["tier"]), (&json!("ready"), &json!("small")));
    assert_eq!(shown(&server, STOCK), Value::Null, "a curated model has one entry");
    assert_eq!(shown(&server, MODEL)["availability"], "name_not_served");
    assert_eq!(shown(&server, "gemini-2.5-pro")["availability"], "not_configured");
    let lists = server.get("/v1/models").json()["providers"][0]["lists"].clone();
    assert_eq!(lists, json!([STOCK, OWN]));
    for path in ["/v1/runs", "/v1/infer"] {
        let other = json!({"model": "acme/other", "prompt": "x"});
        server.post(path, &other).assert_invalid("model", path);
    }
    model.server.answer_probes(list(&["acme/other"]));
    let is_known = || server.post("/v1/runs", &json!({"model": "acme/other"})).status == 200;
    wait_until("what the backend has now is known", is_known);
}

#[test]
fn a_configured_name_that_a_backend_does_not_list_is_said() {
    let dir = tempfile::tempdir().expect("a directory");
    let model = Model::start(|_| Step::chat("a van"));
    model.server.answer_probes(list(&[STOCK]));
    let own = format!("priority = 1\nmodel = \"{CURATED}\"\nupstream_model = \"qwen3\"");
    let log = dir.path().join("log");
    let setup = Setup::new(dir.path()).backend("own", &model.server.base_url(), &own);
    let server = setup.log_to(&log).start();
    assert_eq!(shown(&server, CURATED)["availability"], "name_not_served");
    let warns = |line: &str| line.contains("WARN") && line.contains("does not list the model");
    wait_until("the log says it", || {
        std::fs::read_to_string(&log).expect("a log").lines().any(warns)
    });
    let provider = server.get("/v1/models").json()["providers"][0].clone();
    assert_eq!((&provider["lists"], &provider["asked_for"]), (&json!([STOCK]), &json!("qwen3")));
    // What programs list is not always what they answer to.
    let asked = server.post("/v1/infer", &json!({"model": STOCK, "prompt": "What is it?"}));
    assert_eq!((asked.status, &asked.json()["model"]), (200, &json!(STOCK)), "{}", asked.text);
    assert_eq!(shown(&server, CURATED)["availability"], "ready");
}
