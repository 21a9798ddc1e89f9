//! Ends and restarts of a server: settings it refuses, a drain, a log that fails; long because each
//! of its ends is told.

use std::{
    ffi::OsStr,
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    os::unix::ffi::OsStrExt,
    process::Stdio,
    time::{Duration, Instant},
};

use serde_json::json;
use worker::SandboxPolicy;

use super::{remote, routes::frame, uploads};
use crate::support::{
    ALICE, Server, Setup, clips,
    host::{Certificate, Host},
    sandbox, wait_until,
};

#[test]
fn settings_are_checked_before_anything_starts() {
    let dir = tempfile::tempdir().expect("a directory");
    let run = |setup: &Setup, argument: Option<&str>| {
        let output = setup.command().args(argument).output().expect("it runs");
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("UTF-8");
        (output.status.code(), text(output.stdout), text(output.stderr))
    };
    let good = Setup::new(dir.path()).var("SERVICE_BIND_ADDRESS", "x");
    let (code, shown, warned) = run(&good, Some("--check-config"));
    assert_eq!(code, Some(0), "{warned}");
    assert!(
        shown.contains("SERVICE_API_KEYS=(set, hidden)") && !shown.contains("alice"),
        "{shown}"
    );
    assert!(warned.contains("meant SERVICE_BIND_ADDR?"), "{warned}");
    let bad = [
        ("SERVICE_ACTIVE_STREAM_LIMIT", "many"),
        ("SERVICE_TRANSPORT", "h3"),
        ("SERVICE_DECODE_BACKEND", "fast"),
        ("SERVICE_GATE_BACKEND", "gpu"),
        ("SERVICE_API_KEYS", ""),
    ];
    for (name, value) in bad {
        let (code, _, said) = run(&Setup::new(dir.path()).var(name, value), None);
        assert_eq!(code, Some(2), "{name}={value}: {said}");
        assert!(said.contains(name), "{name}={value}: {said}");
    }
    let labels = dir.path().join("labels.json");
    std::fs::write(&labels, "{\"acme\": 1}").expect("written");
    let setup = Setup::new(dir.path())
        .var("SERVICE_TENANT_LABEL_MAPS_PATH", labels.to_str().expect("UTF-8"));
    for argument in [None, Some("--check-config")] {
        let (code, _, said) = run(&setup, argument);
        let named = said.contains("SERVICE_TENANT_LABEL_MAPS_PATH");
        assert!(code == Some(1) && named, "{argument:?}: {code:?}: {said}");
    }
    let mut command = Setup::new(dir.path()).command();
    command.env("SERVICE_DATA_DIR", OsStr::from_bytes(b"/tmp/\xff")).arg("--check-config");
    let output = command.output().expect("it runs");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() == Some(2), "{said}");
    assert!(said.contains("SERVICE_DATA_DIR is not UTF-8"), "{said}");
}

#[test]
fn a_decode_backend_that_is_missing_stops_the_start_and_says_what_is() {
    let dir = tempfile::tempdir().expect("a directory");
    let libraries = dir.path().join("libraries");
    std::fs::create_dir(&libraries).expect("made");
    std::fs::write(libraries.join("libcuda.so.1"), "not a library").expect("written");
    let rows = [
        ("nvdec", "0", "libcuda.so.1 cannot be loaded"),
        ("vaapi", "/dev/dri/none", "the render node cannot be opened: No such file"),
    ];
    for (backend, device, missing) in rows {
        let setup = Setup::new(dir.path())
            .var("SERVICE_DECODE_BACKEND", backend)
            .var("SERVICE_DECODE_DEVICE", device);
        let mut command = setup.command();
        let output = command.env("LD_LIBRARY_PATH", &libraries).output().expect("it runs");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{said}");
        let named = format!("SERVICE_DECODE_BACKEND asks for {backend}: {missing}");
        assert!(said.contains(&named), "{said}");
    }
}

#[test]
fn a_collectors_password_is_not_printed() {
    let setup = Setup::temporary();
    let setup = setup.var("SERVICE_TRACES_ENDPOINT", "https://me:hush@collector.example:4317");
    let output = setup.command().arg("--check-config").output().expect("it runs");
    let shown = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(shown.contains("https://***@collector.example:4317"), "{shown}");
    assert!(!shown.contains("hush"), "{shown}");
}

#[test]
fn too_few_file_descriptors_stop_a_start() {
    let setup = Setup::temporary();
    let command = setup.command();
    let mut limited = std::process::Command::new("sh");
    limited.args(["-c", "ulimit -n 256 && exec \"$1\"", "sh"]).arg(command.get_program());
    limited.env_clear();
    limited.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let output = limited.output().expect("it runs");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("gives 256 file descriptors"), "{said}");
}

/// Starts an ingest from a host that never answers, and waits until it is under way.
fn endless_ingest<'scope>(
    scope: &'scope std::thread::Scope<'scope, '_>,
    server: &'scope Server,
    run: &'scope str,
    source: &'scope str,
) {
    scope.spawn(move || {
        let call = server.call("POST", &format!("/v1/runs/{run}/ingest"));
        let body = json!({ "source_uri": source });
        assert!(call.json(&body).try_send().is_err(), "the server dies before it answers");
    });
    wait_until("an ingest begins", || {
        server.get(&format!("/v1/runs/{run}/state")).json()["progress"].is_object()
    });
}

#[test]
fn a_run_whose_job_a_crash_cut_off_has_failed_and_says_why() {
    let certificate = Certificate::new();
    let host = Host::start(&certificate, |_, _| {
        loop {
            std::thread::park();
        }
    });
    let setup = remote::setup(&certificate).clips();
    let mut server = setup.start();
    let done = server.create_run();
    let body = json!({ "source_uri": "motion.mp4", "max_frames": 5 });
    server.post_run(&done, "ingest", &body).assert_ok();
    let (cut, idle) = (server.create_run(), server.create_run());
    let source = host.url("/never.mp4");
    std::thread::scope(|scope| {
        endless_ingest(scope, &server, &cut, &source);
        // A moment in which the note of the job must be on disk: it precedes the request.
        wait_until("the source is fetched", || !host.asked().is_empty());
        server.signal_kill();
    });
    server.kill();
    for _ in 0..2 {
        server = setup.start();
        assert_eq!(server.get(&format!("/v1/runs/{cut}/state")).json()["state"], "failed");
        assert_eq!(server.kinds(&cut), ["run_created", "ingest_started", "run_failed"]);
        let failed = server.events(&cut).pop().expect("an event");
        assert_eq!(failed["payload"]["reason"], "interrupted", "{failed}");
        assert!(failed["payload"]["request_id"].is_string(), "{failed}");
        for (run, state) in [(&done, "processing"), (&idle, "pending")] {
            let shown = server.get(&format!("/v1/runs/{run}/state")).json();
            assert_eq!(shown["state"], state, "only what was cut off ends");
        }
        server.kill();
    }
}

#[test]
fn missing_programs_are_named_and_stop_nothing() {
    let server = Setup::temporary().var("SERVICE_FFPROBE_PATH", "/nonexistent").start();
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
fn a_log_that_nobody_reads_holds_no_request() {
    let free = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr());
    let addr = free.expect("a free port");
    let setup = Setup::temporary().var("SERVICE_BIND_ADDR", &addr.to_string());
    let mut command = setup.command();
    let unread = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut server = unread.spawn().expect("it starts");
    let health = || -> std::io::Result<String> {
        let mut stream = TcpStream::connect(addr)?;
        stream.set_read_timeout(Some(Duration::from_secs(5)))?;
        stream.write_all(b"GET /v1/health HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n")?;
        let mut reply = String::new();
        stream.read_to_string(&mut reply).map(|_| reply)
    };
    wait_until("the server listens", || health().is_ok());
    // A line a request: several times what a pipe takes.
    for at in 0..1500 {
        let reply = health().expect("an answer");
        assert!(reply.starts_with("HTTP/1.1 200"), "request {at}: {reply}");
    }
    server.kill().and_then(|()| server.wait()).expect("killed");
}

#[test]
fn a_tenants_labels_are_read_again_at_sighup() {
    let dir = tempfile::tempdir().expect("a directory");
    let labels = dir.path().join("labels.json");
    let say = |name: &str| {
        let maps = json!({"acme": {"event_types": {"keyframe_keep": name}}});
        std::fs::write(&labels, maps.to_string()).expect("written");
    };
    say("kept");
    let path = labels.to_str().expect("UTF-8");
    let server = Setup::new(dir.path()).var("SERVICE_TENANT_LABEL_MAPS_PATH", path).start();
    let body = json!({"model": "qwen3-vl-8b", "frames": [frame()]});
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
fn a_disk_that_is_almost_full_takes_no_new_work() {
    let setup = Setup::temporary().own_root();
    let mut server = setup.start();
    let run = server.create_run();
    server.kill();
    let server = setup.var("SERVICE_DISK_RESERVE_MIB", "16777216").start();
    let path = format!("/v1/runs/{run}");
    let work = [
        ("/v1/runs".to_owned(), json!({})),
        (format!("{path}/ingest"), json!({"source_uri": "a.mp4"})),
        (format!("{path}/analyze"), json!({"model": "qwen3-vl-8b"})),
    ];
    for (path, body) in work {
        let reply = server.post(&path, &body);
        assert_eq!((reply.status, reply.code().as_str()), (503, "unavailable"), "{path}");
        assert!(reply.text.contains("16777216 MiB reserved"), "{path}: {}", reply.text);
        assert!(!reply.header("retry-after").is_empty(), "{path}");
    }
    let ready = server.get("/v1/ready");
    assert!(ready.status == 503 && ready.text.contains("reserved"), "{}", ready.text);
    assert_eq!(server.post(&format!("{path}/stop"), &json!({})).status, 200);
    assert_eq!(server.call("DELETE", &path).send().status, 200);
}

#[test]
fn a_second_server_does_not_share_the_log() {
    let setup = Setup::temporary();
    let _first = setup.start();
    let output = setup.command().output().expect("it runs");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && said.contains("another server"), "{said}");
}

#[test]
fn sigterm_finishes_what_is_under_way_and_loses_nothing() {
    let setup = Setup::temporary().clips();
    let mut server = setup.start();
    let (run, idle) = (server.create_run(), server.create_run());
    let ingest = json!({"source_uri": "motion.mp4"});
    let poll = json!({"run_id": idle, "kind": "vlm", "wait_ms": 30_000});
    let started = Instant::now();
    let (ingested, polled) = std::thread::scope(|scope| {
        let long = scope.spawn(|| server.post_run(&run, "ingest", &ingest));
        let poll = scope.spawn(|| server.post("/v1/query", &poll));
        std::thread::sleep(Duration::from_millis(150));
        server.terminate();
        (long.join().expect("no panic"), poll.join().expect("no panic"))
    });
    assert_eq!(ingested.status, 200, "{}", ingested.text);
    assert_eq!((polled.status, &polled.json()["matches"]), (200, &json!([])));
    assert!(server.wait(Duration::from_secs(15)).success());
    assert!(started.elapsed() < Duration::from_secs(15), "{:?}", started.elapsed());
    let server = setup.start();
    let kinds = server.kinds(&run);
    assert_eq!(kinds.last().map(String::as_str), Some("frames_decoded"));
    assert_eq!(server.get(&format!("/v1/runs/{run}/state")).json()["state"], "processing");
}

#[test]
fn a_job_that_outlasts_the_drain_fails_by_name() {
    let setup = Setup::temporary().clips();
    let mut server = setup.start();
    let run = server.create_run();
    // 363 s of 1080p AV1: no machine decodes it within the drain.
    let ingest = json!({"source_uri": "long.mp4", "max_frames": 500_000});
    let reply = std::thread::scope(|scope| {
        let long = scope.spawn(|| server.post_run(&run, "ingest", &ingest));
        std::thread::sleep(Duration::from_millis(800));
        server.terminate();
        long.join().expect("no panic")
    })
    .assert_refused(503, "unavailable");
    assert!(!reply.header("retry-after").is_empty());
    assert!(server.wait(Duration::from_secs(20)).success());
    let server = setup.start();
    let events = server.events(&run);
    let last = events.last().expect("events");
    assert_eq!(
        (&last["kind"], &last["payload"]["reason"]),
        (&json!("run_failed"), &json!("shutdown"))
    );
    assert_eq!(server.get(&format!("/v1/runs/{run}/state")).json()["state"], "failed");
}

#[test]
fn a_draining_server_answers_and_a_second_signal_ends_it() {
    let setup = Setup::temporary().clips();
    let mut server = setup.start();
    let run = server.create_run();
    let ingest = json!({"source_uri": "long.mp4", "max_frames": 500_000});
    let path = format!("/v1/runs/{run}/ingest");
    let (started, reply) = std::thread::scope(|scope| {
        let long = scope.spawn(|| server.post(&path, &ingest));
        std::thread::sleep(Duration::from_millis(800));
        server.terminate();
        std::thread::sleep(Duration::from_millis(300));
        let fresh = reqwest::blocking::Client::new();
        let health = fresh.get(format!("http://{}/v1/health", server.addr())).send();
        assert_eq!(health.expect("accepted").status(), 200);
        let ready = server.get("/v1/ready");
        assert!(ready.status == 503 && ready.text.contains("shutting down"), "{}", ready.text);
        assert_eq!(server.post("/v1/runs", &json!({})).status, 503, "no new work");
        let started = Instant::now();
        server.terminate();
        (started, long.join().expect("no panic"))
    });
    assert_eq!(reply.status, 503, "{}", reply.text);
    assert!(server.wait(Duration::from_secs(5)).success());
    assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
    let events = setup.start().events(&run);
    assert_eq!(events.last().expect("events")["payload"]["reason"], "shutdown");
}

#[test]
fn an_upload_that_has_begun_ends_within_the_drain() {
    let clips = clips();
    let dir = tempfile::tempdir().expect("a directory");
    let setup = Setup::new(dir.path());
    let mut server = setup.start();
    let content = std::fs::read(clips.join("motion.mp4")).expect("a clip");
    let form = uploads::file_form("a.mp4", &content);
    let (first, second) = form.split_at(form.len() / 2);
    let mut stream = TcpStream::connect(server.addr()).expect("connected");
    let head = format!(
        "POST /v1/upload HTTP/1.1\r\nhost: a\r\nconnection: close\r\nx-api-key: {ALICE}\r\n\
         content-type: {}\r\ncontent-length: {}\r\n\r\n",
        uploads::TYPE,
        form.len()
    );
    stream.write_all(&[head.as_bytes(), first].concat()).expect("sent");
    uploads::wait_for_files(dir.path(), 1);
    server.terminate();
    wait_until("a drain", || server.get("/v1/ready").status == 503);
    stream.write_all(second).expect("sent");
    let mut reply = String::new();
    stream.read_to_string(&mut reply).expect("answered");
    assert!(reply.starts_with("HTTP/1.1 200"), "{reply}");
    assert!(server.wait(Duration::from_secs(20)).success());
    let listed = setup.start().get("/v1/files").json();
    assert_eq!(listed["files"].as_array().expect("files").len(), 1, "{listed}");
}

#[test]
fn a_restart_shows_what_was_there_before() {
    let setup = Setup::temporary();
    let mut server = setup.start();
    let runs: Vec<String> = (0..4).map(|_| server.create_run()).collect();
    assert_eq!(server.post(&format!("/v1/runs/{}/keepalive", runs[1]), &json!({})).status, 200);
    assert_eq!(server.post(&format!("/v1/runs/{}/stop", runs[2]), &json!({})).status, 200);
    assert_eq!(server.call("DELETE", &format!("/v1/runs/{}", runs[3])).send().status, 200);
    let listed = server.get("/v1/runs").text;
    let events: Vec<_> = runs[..3].iter().map(|run| server.events(run)).collect();
    server.kill();
    let server = setup.start();
    assert_eq!(server.get("/v1/runs").text, listed);
    for (run, events) in runs.iter().zip(events) {
        assert_eq!(server.events(run), events);
    }
    assert_eq!(server.get(&format!("/v1/runs/{}", runs[3])).status, 404);
    assert_eq!(server.call("DELETE", &format!("/v1/runs/{}", runs[3])).send().status, 404);
}
