//! `/v1/models` and `/v1/limits`: what they say is what this server is.

use serde_json::{Value, json};

use crate::support::{Setup, shared};

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
    let passed_over = answer["decode"]["passed_over"].as_array().expect("an array");
    for over in passed_over {
        assert!(over["reason"].as_str().is_some_and(|reason| !reason.is_empty()), "{over}");
    }
    assert_eq!(answer["decode"]["sandbox"], server.get("/v1/ready").json()["sandbox"]);
    let measurer = answer["gate"]["measurer"].as_str().expect("a worker measures");
    let avx2 = std::fs::read_to_string("/proc/cpuinfo").expect("there").contains(" avx2");
    if answer["gate"]["backend"] == "cpu" {
        assert_eq!(measurer, if avx2 { "cpu-avx2" } else { "cpu-reference" });
    }
    for over in answer["gate"]["passed_over"].as_array().expect("an array") {
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
