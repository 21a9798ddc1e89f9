//! The metrics: who may read them, what a real Prometheus makes of them; and the last hour by minutes, of the caller's own work and of
//! the machine.

use std::{
    fs,
    io::Write,
    path::Path,
    process::{Command, Stdio},
};

use reqwest::blocking::Client;
use serde_json::{Value, json};

use crate::support::{
    ALICE, BOB, Running, Server, Setup, free_address, shared, skip, this_test, wait_until,
};

#[test]
fn metrics_have_a_toggle_of_their_own() {
    type Asks = [(Option<&'static str>, u16)];
    // The settings of a server, and what a scraper with each of these keys is told.
    let keyless = ("SERVICE_REQUIRE_API_KEY", "false");
    let open = ("SERVICE_METRICS_REQUIRE_API_KEY", "false");
    let asked = [(None, 401), (Some("wrong"), 401), (Some(ALICE), 200)];
    let rows: [(&[(&str, &str)], &Asks); 4] = [
        (&[("SERVICE_REQUIRE_TENANT_ID", "true")], &asked),
        (&[open], &[(None, 200)]),
        (&[keyless], &[(None, 401), (Some(ALICE), 200)]),
        (&[keyless, ("SERVICE_API_KEYS", ""), open], &[(None, 200)]),
    ];
    for (vars, asks) in rows {
        let setup =
            vars.iter().fold(Setup::temporary(), |setup, (name, value)| setup.var(name, value));
        let server = setup.start();
        for (key, status) in asks {
            let reply = server.call("GET", "/v1/metrics").key(*key).send();
            let code = if *status == 401 { "unauthorized" } else { "" };
            let told = (reply.status, reply.code());
            assert_eq!(told, (*status, code.to_owned()), "{vars:?} {key:?}: {}", reply.text);
            assert_eq!(reply.header("retry-after"), "", "{vars:?} {key:?}");
            if *status == 200 {
                let kind = reply.header("content-type");
                assert_eq!(kind, "text/plain; version=0.0.4; charset=utf-8", "{vars:?}");
            }
        }
    }
}

#[test]
fn requests_and_refusals_are_counted_by_what_they_were_and_by_minutes() {
    let server = Setup::temporary().clips().var("SERVICE_ACTIVE_STREAM_LIMIT", "1").start();
    let run = server.create_run();
    for _ in 0..3 {
        assert_eq!(server.get(&format!("/v1/runs/{run}")).status, 200);
        assert_eq!(server.get("/v1/no/such/route").status, 404);
        assert_eq!(server.post("/v1/runs", &json!({})).status, 409);
    }
    let rows = [
        (r#"service_http_requests_total{method="GET",route="/v1/runs/{id}",status="200"}"#, 3.0),
        (r#"service_http_requests_total{method="GET",route="unmatched",status="404"}"#, 3.0),
        (r#"service_http_requests_total{method="POST",route="/v1/runs",status="200"}"#, 1.0),
        (r#"service_http_requests_total{method="POST",route="/v1/runs",status="409"}"#, 3.0),
        (r#"service_http_request_duration_seconds_count{route="/v1/runs/{id}"}"#, 3.0),
        (r#"service_refusals_total{reason="active_runs"}"#, 3.0),
        (r#"service_refusals_total{reason="global_rate"}"#, 0.0),
        (r#"service_events_appended_total{kind="run_created"}"#, 1.0),
        (r#"service_runs{state="pending"}"#, 1.0),
        (r#"service_runs{state="cancelled"}"#, 0.0),
        ("service_log_fsync_seconds_count", 1.0),
        ("service_log_head", 1.0),
        ("service_pipeline_keyframes_total", 0.0),
    ];
    check_series(&server, rows);
    let text = server.get("/v1/metrics").text;
    assert!(!text.contains(&run) && !text.contains("/no/such"), "no label grows: {text}");
    assert_eq!(server.post_run(&run, "stop", &json!({})).status, 200);
    let ended =
        [(r#"service_runs{state="pending"}"#, 0.0), (r#"service_runs{state="cancelled"}"#, 1.0)];
    check_series(&server, ended);
    check_last_hour(&server);
}

#[track_caller]
fn check_series<const N: usize>(server: &Server, rows: [(&str, f64); N]) {
    for (series, expected) in rows {
        assert_eq!(server.metric(series), expected, "{series}");
    }
}

/// A program of Debian's package `prometheus`, or a loud line that says why a test did nothing.
fn found(program: &str) -> bool {
    let started = Command::new(program).arg("--version").output();
    let found = started.is_ok_and(|output| output.status.success());
    if !found {
        skip(&this_test(), format!("no {program}: deploy/setup.sh installs it"));
    }
    found
}

#[test]
fn promtool_finds_nothing_to_mend() {
    if !found("promtool") {
        return;
    }
    let server = shared();
    server.create_run();
    let mut promtool = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut input = promtool.stdin.take().expect("piped");
    input.write_all(&server.get("/v1/metrics").assert_ok().bytes).expect("it reads");
    drop(input);
    let output = promtool.wait_with_output().expect("it ends");
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success() && said.is_empty(), "{said}");
}

/// By the files of `deploy/prometheus`, with addresses and times of the test.
#[test]
fn a_real_prometheus_scrapes_a_server_and_alerts_once_it_is_gone() {
    if !found("prometheus") {
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    let server = Setup::new(dir.path()).start();
    server.create_run();
    let deployed = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/prometheus");
    let [key, config] = ["sightline.key", "prometheus.yml"].map(|name| dir.path().join(name));
    fs::write(&key, ALICE).expect("written");
    let here = [
        ("15s", "1s\n  evaluation_interval: 1s".to_owned()),
        ("alerts.yml", deployed.join("alerts.yml").display().to_string()),
        ("/etc/prometheus/sightline.key", key.display().to_string()),
        ("sightline:8080", server.addr().to_owned()),
    ];
    let mut text = fs::read_to_string(deployed.join("prometheus.yml")).expect("readable");
    for (documented, here) in here {
        assert!(text.contains(documented), "{documented}");
        text = text.replace(documented, &here);
    }
    fs::write(&config, text).expect("written");
    let address = free_address();
    let mut command = Command::new("prometheus");
    command.arg(format!("--config.file={}", config.display()));
    command.arg(format!("--storage.tsdb.path={}", dir.path().join("tsdb").display()));
    command.arg(format!("--web.listen-address={address}"));
    let running = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    let _running = Running(running.expect("it starts"));

    let prometheus = Server::at(format!("http://{address}"), Client::builder());
    let ask = |path: &str| {
        // Refused until it listens.
        let reply = prometheus.call("GET", &format!("/api/v1/{path}")).try_send().ok();
        reply.map_or(Value::Null, |reply| reply.json()["data"].take())
    };
    let wait_for_one = |series: &str| {
        let path = format!("query?query={series}");
        wait_until(series, || ask(&path)["result"][0]["value"][1] == "1");
    };
    wait_for_one("up");
    wait_for_one(r#"service_runs{state="pending"}"#);
    wait_for_one(r#"service_http_request_duration_seconds_count{route="/v1/runs"}"#);
    drop(server);
    wait_for_one(r#"ALERTS{alertname="SightlineDown"}"#);
    let rules = ask("rules")["groups"][0]["rules"].take();
    for rule in rules.as_array().expect("rules") {
        assert_eq!(rule["health"], "ok", "{rule}");
    }
}

fn points(server: &Server, key: &str) -> Vec<Value> {
    let reply = server.call("GET", "/v1/stats?minutes=60").key(Some(key)).send().assert_ok();
    reply.json()["points"].as_array().expect("an array").clone()
}

/// Adds the minutes up.
fn sum(points: &[Value], field: &str) -> u64 {
    points.iter().map(|point| point["own"][field].as_u64().expect("a number")).sum()
}

/// Work counts for its owner alone and for the machine; three more requests were refused before.
fn check_last_hour(server: &Server) {
    let run = server.ingested(&json!({"source_uri": "talk.mp4", "max_frames": 40}));
    let stills = server.still_paths(&run).len();
    let analyze = json!({"model": "qwen3-vl-8b"});
    assert_eq!(server.post_run(&run, "analyze", &analyze).status, 200);
    let rows = [
        // Once by the ingest and once by the analyze, which decides again.
        ("service_pipeline_gate_frames_analyzed_total", 80.0),
        ("service_pipeline_gate_keyframes_selected_total", 2.0 * stills as f64),
        ("service_pipeline_keyframes_total", 0.0),
        ("service_job_seconds_count", 1.0),
        ("service_pipeline_decode_seconds_count", 1.0),
        ("service_pipeline_gate_seconds_count", 1.0),
        (r#"service_events_appended_total{kind="frames_decoded"}"#, 1.0),
        (r#"service_events_appended_total{kind="keyframe_stored"}"#, stills as f64),
        (r#"service_runs{state="processing"}"#, 1.0),
    ];
    check_series(server, rows);
    assert!(server.metric("service_pipeline_decode_seconds_sum") > 0.0);
    assert!(server.metric("process_resident_memory_bytes") > 1e6);
    let idle = server.create_run();
    assert_eq!(server.post("/v1/runs", &json!({})).status, 409, "{idle} is active");
    let last = server.get("/v1/stats?minutes=1").json();
    assert_eq!(last["points"].as_array().map(Vec::len), Some(1));
    let own = points(server, ALICE);
    assert_eq!(sum(&own, "frames"), 80, "of the ingest and of the analysis");
    assert_eq!(sum(&own, "kept"), 2 * stills as u64);
    assert_eq!((sum(&own, "refused"), sum(&own, "descriptions"), sum(&own, "tokens")), (4, 0, 0));
    let last = &own[own.len() - 1];
    let machine = &last["machine"];
    assert!(machine["server_memory_bytes"].as_u64() > Some(1 << 20), "{machine}");
    for field in ["frames_per_second", "kept_per_second", "descriptions_per_minute"] {
        assert!(machine[field].is_number(), "{field}: {machine}");
    }
    assert!(own.iter().any(|point| point["machine"]["log_commit_ms"].is_number()), "{own:?}");
    assert!(machine["memory_percent"].is_number(), "{machine}");
    assert_eq!((&machine["live_sessions"], &machine["jobs"]), (&json!(0), &json!(0)));
    assert!(last["seconds"].as_f64().is_some_and(|seconds| (0.0..=61.0).contains(&seconds)));

    let bobs = points(server, BOB);
    for field in ["frames", "kept", "descriptions", "tokens", "refused"] {
        assert_eq!(sum(&bobs, field), 0, "{field} is Alice's");
    }
    let frames: f64 = bobs
        .iter()
        .map(|point| {
            let rate = point["machine"]["frames_per_second"].as_f64().expect("a number");
            rate * point["seconds"].as_f64().expect("a number")
        })
        .sum();
    assert!((frames - 80.0).abs() < 8.0, "the machine's are everybody's: {frames}");
}
