//! Ends and restarts of a server: settings it refuses, crashes, a drain.

use std::{
    ffi::OsStr,
    io::{Read, Write},
    os::unix::ffi::OsStrExt,
    process::Command,
    time::{Duration, Instant},
};

use serde_json::json;
use worker::SandboxPolicy;

use super::{analyses::frame, reason::state, remote, uploads};
use crate::support::{Server, Setup, clip_bytes, host::Certificate, sandbox, wait_until};

/// The code with which a server ends by itself, and what it wrote to stdout and to stderr.
pub fn ended(command: &mut Command) -> (Option<i32>, String, String) {
    let output = command.output().expect("it runs");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

#[test]
fn settings_are_checked_before_anything_starts() {
    let dir = tempfile::tempdir().expect("a directory");
    let setup = Setup::new(dir.path());
    let good = setup.clone().var("SERVICE_BIND_ADDRESS", "x");
    let (code, shown, warned) = ended(good.command().arg("--check-config"));
    assert_eq!(code, Some(0), "{warned}");
    assert!(
        shown.contains("SERVICE_API_KEYS=(set, hidden)") && !shown.contains("alice"),
        "{shown}"
    );
    assert!(warned.contains("meant SERVICE_BIND_ADDR?"), "{warned}");
    let labels = dir.path().join("labels.json");
    std::fs::write(&labels, "{\"acme\": 1}").expect("written");
    let (maps, labels) = ("SERVICE_TENANT_LABEL_MAPS_PATH", labels.as_os_str().as_bytes());
    let rows = [
        ("SERVICE_ACTIVE_STREAM_LIMIT", &b"many"[..], None, 2, "SERVICE_ACTIVE_STREAM_LIMIT"),
        (maps, labels, None, 1, maps),
        (maps, labels, Some("--check-config"), 1, maps),
        (
            "SERVICE_DATA_DIR",
            &b"/\xff"[..],
            Some("--check-config"),
            2,
            "SERVICE_DATA_DIR is not UTF-8",
        ),
    ];
    for (name, value, argument, code, says) in rows {
        let mut command = setup.command();
        command.env(name, OsStr::from_bytes(value)).args(argument);
        let (found, _, said) = ended(&mut command);
        assert!(
            found == Some(code) && said.contains(says),
            "{name} {argument:?}: {found:?}: {said}"
        );
    }
}

#[test]
fn a_backend_that_is_missing_stops_the_start_and_says_what_is() {
    let dir = tempfile::tempdir().expect("a directory");
    let libraries = dir.path().join("libraries");
    std::fs::create_dir(&libraries).expect("made");
    // A machine with a driver may have one of the first name as well.
    for name in ["libcuda.so", "libcuda.so.1"] {
        std::fs::write(libraries.join(name), "not a library").expect("written");
    }
    let rows = [
        ("DECODE", "nvdec", "0", "libcuda.so.1 cannot be loaded"),
        ("DECODE", "vaapi", "/dev/dri/none", "the render node cannot be opened: No such file"),
        ("GATE", "cuda", "", "no NVIDIA driver: "),
    ];
    for (kind, backend, device, missing) in rows {
        let setting = format!("SERVICE_{kind}_BACKEND");
        let setup =
            Setup::new(dir.path()).var(&setting, backend).var("SERVICE_DECODE_DEVICE", device);
        let (code, _, said) = ended(setup.command().env("LD_LIBRARY_PATH", &libraries));
        assert_eq!(code, Some(1), "{said}");
        let named = format!("{setting} asks for {backend}: {missing}");
        assert!(said.contains(&named), "{said}");
    }
}

#[test]
fn too_few_file_descriptors_stop_a_start() {
    let setup = Setup::temporary();
    let command = setup.command();
    let mut limited = Command::new("sh");
    limited.args(["-c", "ulimit -n 256 && exec \"$1\"", "sh"]).arg(command.get_program());
    limited.env_clear();
    limited.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let (code, _, said) = ended(&mut limited);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("gives 256 file descriptors"), "{said}");
}

#[test]
fn a_run_whose_job_a_crash_cut_off_has_failed_and_says_why() {
    let certificate = Certificate::new();
    let host = remote::silent_host(&certificate);
    let setup = remote::setup(&certificate).clips();
    let mut server = setup.start();
    let done = server.create_run();
    let body = json!({ "source_uri": "motion.mp4", "max_frames": 5 });
    server.post_run(&done, "ingest", &body).assert_ok();
    let (cut, idle) = (server.create_run(), server.create_run());
    let source = host.url("/never.mp4");
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let call = server.call("POST", &format!("/v1/runs/{cut}/ingest"));
            let reply = call.json(&json!({ "source_uri": source })).try_send();
            assert!(reply.is_err(), "the server dies before it answers");
        });
        // A moment in which the note of the job must be on disk: it precedes the request.
        wait_until("the source is fetched", || !host.asked().is_empty());
        server.signal_kill();
    });
    server.kill();
    for _ in 0..2 {
        server = setup.start();
        assert_eq!(state(&server, &cut), "failed");
        assert_eq!(server.kinds(&cut), ["run_created", "ingest_started", "run_failed"]);
        let failed = server.events(&cut).pop().expect("an event");
        assert_eq!(failed["payload"]["reason"], "interrupted", "{failed}");
        assert!(failed["payload"]["request_id"].is_string(), "{failed}");
        let others = [state(&server, &done), state(&server, &idle)];
        assert_eq!(others, ["processing", "pending"], "only what was cut off ends");
        server.kill();
    }
}

/// Missing programs are named.
fn check_missing_tools(server: &Server) {
    let ready = server.get("/v1/ready");
    let missing = json!([
        {"name": "ffprobe", "variable": "SERVICE_FFPROBE_PATH", "searched": "/nonexistent"}
    ]);
    assert_eq!((ready.status, &ready.json()["missing_tools"]), (200, &missing));
    let whole = match sandbox::policy(env!("CARGO_BIN_EXE_sightline-server")) {
        SandboxPolicy::Require => "full",
        SandboxPolicy::BestEffort => "partial",
    };
    assert_eq!(ready.json()["sandbox"], whole, "this machine sandboxes media workers");
}

#[test]
fn missing_programs_stop_nothing_and_a_tenants_labels_are_read_again_at_sighup() {
    let dir = tempfile::tempdir().expect("a directory");
    let labels = dir.path().join("labels.json");
    let say = |name: &str| {
        let maps = json!({"acme": {"event_types": {"keyframe_keep": name}}});
        std::fs::write(&labels, maps.to_string()).expect("written");
    };
    say("kept");
    let path = labels.to_str().expect("UTF-8");
    let setup = Setup::new(dir.path()).var("SERVICE_FFPROBE_PATH", "/nonexistent");
    let server = setup.var("SERVICE_TENANT_LABEL_MAPS_PATH", path).start();
    check_missing_tools(&server);
    let body = json!({"model": "qwen3-vl-8b", "frames": [frame(0)]});
    let label = |tenant: &str| {
        let create = server.call("POST", "/v1/runs").header("x-tenant-id", tenant).json(&json!({}));
        let run = create.send().run();
        let reply = server.post_run(&run, "analyze", &body).json();
        reply["markers"][0]["event_type"].as_str().expect("a type").to_owned()
    };
    assert_eq!([label("acme"), label("other")], ["kept", "keyframe_keep"]);
    say("held");
    server.hang_up();
    wait_until("the new file is in force", || label("acme") == "held");
    std::fs::write(&labels, "{").expect("written");
    server.hang_up();
    std::thread::sleep(Duration::from_millis(200));
    assert_eq!(label("acme"), "held", "a broken file changes nothing");
}

#[test]
fn a_second_server_shares_no_log_and_sigterm_finishes_what_is_under_way_in_the_first() {
    let setup = Setup::temporary().clips();
    let mut server = setup.start();
    let (code, _, said) = ended(&mut setup.command());
    assert!(code != Some(0) && said.contains("another server"), "{said}");
    let (run, idle) = (server.create_run(), server.create_run());
    let ingest = json!({"source_uri": "motion.mp4"});
    let poll = json!({"run_id": idle, "kind": "vlm", "wait_ms": 30_000});
    let started = Instant::now();
    let form = uploads::file_form("a.mp4", &clip_bytes("motion.mp4"));
    let (first, second) = form.split_at(form.len() / 2);
    let call = server.call("POST", "/v1/upload").header("content-type", uploads::TYPE);
    let call = call.header("connection", "close").header("content-length", &form.len().to_string());
    let mut upload = call.body(first.to_vec()).begin();
    uploads::wait_for_files(setup.dir(), 1);
    let (ingested, polled) = std::thread::scope(|scope| {
        let long = scope.spawn(|| server.post_run(&run, "ingest", &ingest));
        let poll = scope.spawn(|| server.post("/v1/query", &poll));
        std::thread::sleep(Duration::from_millis(150));
        server.terminate();
        wait_until("a drain", || server.get("/v1/ready").status == 503);
        upload.write_all(second).expect("sent");
        (long.join().expect("no panic"), poll.join().expect("no panic"))
    });
    let mut uploaded = String::new();
    upload.read_to_string(&mut uploaded).expect("answered");
    assert!(uploaded.starts_with("HTTP/1.1 200"), "{uploaded}");
    assert_eq!(ingested.status, 200, "{}", ingested.text);
    assert_eq!((polled.status, &polled.json()["matches"]), (200, &json!([])));
    assert!(server.wait(Duration::from_secs(15)).success());
    assert!(started.elapsed() < Duration::from_secs(15), "{:?}", started.elapsed());
    let server = setup.start();
    let listed = server.get("/v1/files").json();
    assert_eq!(listed["files"].as_array().expect("files").len(), 1, "{listed}");
    let kinds = server.kinds(&run);
    assert_eq!(kinds.last().map(String::as_str), Some("frames_decoded"));
    assert_eq!(state(&server, &run), "processing");
}

/// A draining server answers and takes no new work.
fn check_draining(server: &Server) {
    let fresh = reqwest::blocking::Client::new();
    let health = fresh.get(format!("http://{}/v1/health", server.addr())).send();
    assert_eq!(health.expect("accepted").status(), 200);
    let ready = server.get("/v1/ready");
    assert!(ready.status == 503 && ready.text.contains("shutting down"), "{}", ready.text);
    assert_eq!(server.post("/v1/runs", &json!({})).status, 503, "no new work");
}

#[test]
fn a_job_that_outlasts_the_drain_fails_by_name_and_a_second_signal_waits_for_none() {
    let setup = Setup::temporary().clips();
    // 363 s of 1080p AV1: no machine decodes it within the drain.
    let ingest = json!({"source_uri": "long.mp4", "max_frames": 500_000});
    let mut server = setup.start();
    for (signals, limit) in [(1, Duration::from_secs(60)), (2, Duration::from_secs(5))] {
        let run = server.create_run();
        let (last_signal, reply) = std::thread::scope(|scope| {
            let long = scope.spawn(|| server.post_run(&run, "ingest", &ingest));
            std::thread::sleep(Duration::from_millis(800));
            server.terminate();
            if signals == 2 {
                std::thread::sleep(Duration::from_millis(300));
                check_draining(&server);
                server.terminate();
            }
            (Instant::now(), long.join().expect("no panic"))
        });
        let reply = reply.assert_refused(503, "unavailable");
        assert!(!reply.header("retry-after").is_empty(), "{signals}");
        assert!(server.wait(limit).success(), "{signals}");
        assert!(last_signal.elapsed() < limit, "{signals}: {:?}", last_signal.elapsed());
        server = setup.start();
        let events = server.events(&run);
        let last = events.last().expect("events");
        let told = (&last["kind"], &last["payload"]["reason"]);
        assert_eq!(told, (&json!("run_failed"), &json!("shutdown")), "{signals}");
        assert_eq!(state(&server, &run), "failed", "{signals}");
    }
}
