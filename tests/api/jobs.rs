//! Work as jobs: left with a header, found again, joined by its repetition, cancelled, cut off.

use std::path::PathBuf;

use serde_json::{Value, json};

use crate::support::{
    ALICE, BOB, PATIENCE, Reply, Server, Setup, assert_has, clips, eventually, shared, wait_until,
};

fn asked(server: &Server, run: &str, what: &str, body: &Value) -> Reply {
    let path = format!("/v1/runs/{run}/{what}");
    server.call("POST", &path).header("prefer", "respond-async").json(body).send()
}

/// Frames after which the signals of some have come: they come a group of pictures at a time.
const SOME: u64 = 400;

/// A source that no machine decodes while a test runs, of short groups of pictures.
fn long_clip() -> PathBuf {
    let source = "-f lavfi -i testsrc2=size=320x180:rate=30:duration=4 -pix_fmt yuv420p";
    let part = format!("{source} -c:v libx264 -preset ultrafast -g 30");
    let part = clips::rendered("short-groups.mp4", &part);
    clips::rendered_from("long.mp4", "-stream_loop 999 -i {0} -c copy", &[&part])
}

/// An ingest of it.
pub fn long() -> Value {
    json!({"source_uri": long_clip().display().to_string(), "max_frames": 500_000})
}

/// A server that reads beneath [`clips`] and where the long clip is.
pub fn reading() -> Setup {
    let long = long_clip();
    let roots = [clips(), long.parent().expect("a folder").to_owned()];
    let roots = roots.map(|root| root.display().to_string()).join(",");
    Setup::temporary().var("SERVICE_INGEST_FILE_ROOTS", &roots)
}

/// A run with an ingest of the long clip, of which signals have come; where its job is.
fn begun(server: &Server) -> (String, String) {
    let run = server.create_run();
    let reply = server.start_job(&run, "ingest", &long());
    wait_until("frames are decoded", || {
        server.record(&run)["active_job"]["frames_done"].as_u64() > Some(SOME)
    });
    (run, reply.header("location").to_owned())
}

#[test]
fn work_that_is_left_is_found_again_after_a_kill_which_says_what_came() {
    let setup = reading();
    let mut server = setup.start();
    let run = server.create_run();
    let source = json!({"source_uri": "motion.mp4"});
    let reply = asked(&server, &run, "ingest", &source).assert_status(202);
    assert_eq!(reply.header("preference-applied"), "respond-async");
    let job = reply.json();
    let location = reply.header("location").to_owned();
    assert_eq!(location, format!("/v1/runs/{run}/jobs/{}", job["job_id"].as_str().expect("an id")));
    let ended = server.get(&format!("{location}?wait_ms=30000")).json();
    let expected = json!({"status": "succeeded", "kind": "ingest", "frames_done": 150,
        "frames_total": 150, "fraction": 1.0, "eta_ms": null, "error": null});
    assert_has(&ended, &expected);
    assert!(ended["frames_per_second"].as_f64().is_some_and(|rate| rate > 0.0), "{ended}");
    assert_eq!(ended["result"]["decoded_frames"], 150);
    assert_eq!(server.record(&run)["active_job"], Value::Null);

    let analyses =
        [json!({"model": "qwen3-vl-8b"}), json!({"model": "qwen3-vl-8b", "stream_id": "none"})];
    let [(analysis, analyzed), (failing, failed)] = analyses.map(|body| {
        let location = server.start_job(&run, "analyze", &body).header("location").to_owned();
        let ended = server.get(&format!("{location}?wait_ms=30000")).json();
        (location, ended)
    });
    assert_eq!(analyzed["result"]["generated"], 150, "{}", analyzed["status"]);
    assert_has(&failed, &json!({"status": "failed", "result": null}));
    assert_eq!(failed["error"]["error"]["code"], "validation_error", "{failed}");

    let kinds = server.kinds(&run);
    assert_eq!(kinds[..3], ["run_created", "ingest_started", "keyframe_stored"]);
    let (id, request) = (&job["job_id"], &job["request_id"]);
    let started = json!({"job_id": id, "ingest": source, "request_id": request});
    assert_has(&server.events(&run)[1]["payload"], &started);

    let jobs = |server: &Server| server.get(&format!("/v1/runs/{run}/jobs")).json()["jobs"].clone();
    let listed = jobs(&server);
    assert_eq!(listed.as_array().map(Vec::len), Some(3), "{listed}");
    assert_eq!((&listed[0]["job_id"], listed[0].get("result")), (&job["job_id"], None));
    let (killed, cut) = begun(&server);
    server.signal_kill();
    server.wait(PATIENCE);
    let server = setup.start();
    check_killed(&server, &killed, &cut);
    assert_eq!(jobs(&server), listed);
    for (path, before) in [(&location, &ended), (&analysis, &analyzed), (&failing, &failed)] {
        let (mut again, mut before) = (server.get(path).json(), before.clone());
        for job in [&mut again, &mut before] {
            job["request_id"].take();
        }
        assert_eq!(again, before, "{path}");
    }
}

#[test]
fn a_job_is_its_owner_s_and_what_is_refused_at_once_is_none() {
    let server = shared().with_clips();
    let (run, other) = (server.create_run(), server.create_run());
    for (body, field) in [
        (json!({"source_uri": 7}), "source_uri"),
        (json!({"source_uri": "missing.mp4"}), "source_uri"),
        (json!({"source_uri": "motion.mp4", "unknown": 1}), "unknown"),
    ] {
        asked(&server, &run, "ingest", &body).assert_invalid(field, &body);
    }
    assert_eq!(server.kinds(&run), ["run_created"]);
    let reply = asked(&server, &run, "ingest", &json!({"source_uri": "motion.mp4"}));
    let location = reply.header("location").to_owned();
    assert_eq!(server.get(&format!("{location}?wait_ms=30000")).json()["status"], "succeeded");
    let id = location.rsplit('/').next().expect("an id");
    let unknown = format!("job-{}", "0".repeat(32));
    let rows = [
        (location.clone(), BOB, 404),
        (format!("/v1/runs/{other}/jobs/{id}"), ALICE, 404),
        (format!("/v1/runs/{run}/jobs/{unknown}"), ALICE, 404),
        (format!("/v1/runs/{run}/jobs/{}", id.to_uppercase()), ALICE, 422),
    ];
    for (path, key, status) in rows {
        assert_eq!(server.call("GET", &path).key(Some(key)).send().status, status, "{path}");
    }
    assert_eq!(server.call("DELETE", &location).send().json()["status"], "succeeded");
    let spelled = run.replace('-', "%2D");
    let analysis = json!({"model": "qwen3-vl-8b"});
    asked(&server, &spelled, "analyze", &analysis).assert_status(202);
    // Until frames have come, an analysis is refused instead of recorded without any.
    server.start_job(&other, "ingest", &json!({"source_uri": "motion.mp4"}));
    let first = eventually("frames come", || {
        let reply = server.post_run(&other, "analyze", &analysis);
        (reply.status != 409).then_some(reply)
    });
    assert!(first.assert_ok().json()["generated"].as_u64() > Some(0));
}

#[test]
fn a_job_is_joined_shown_and_cancelled_and_keeps_what_came() {
    let server = reading().var("SERVICE_ACTIVE_STREAM_LIMIT", "1").start();
    let ((run, location), body) = (begun(&server), long());
    let job = server.record(&run)["active_job"]["job_id"].clone();
    assert!(job.as_str().is_some_and(|job| location.ends_with(job)), "{location}: {job}");
    let listed = server.get("/v1/runs").json();
    assert_eq!(listed[0]["active_job"]["status"], "running", "{listed}");
    let jobs = server.get(&format!("/v1/runs/{run}/jobs")).json()["jobs"].clone();
    assert_eq!((&jobs[0]["job_id"], &jobs[1]), (&job, &Value::Null), "told once: {jobs}");
    assert_eq!(server.post("/v1/runs", &json!({})).status, 409, "its run is active");
    // The same again is the same job; another one has to wait for it.
    assert_eq!(asked(&server, &run, "ingest", &body).json()["job_id"], job);
    for (what, other) in [
        ("ingest", json!({"source_uri": "motion.mp4"})),
        ("reason", json!({"source_uri": "motion.mp4", "model": "qwen3-vl-8b"})),
    ] {
        let refused = server.post_run(&run, what, &other).assert_status(409);
        let detail = json!([{"field": "job_id", "message": job}]);
        assert_eq!(refused.json()["error"]["details"], detail);
    }
    std::thread::scope(|scope| {
        // Whoever repeats the request without the header gets what the job comes to.
        let waiting = scope.spawn(|| server.post_run(&run, "ingest", &body));
        let cancelled = server.call("DELETE", &location).send().assert_ok().json();
        assert_eq!(cancelled["status"], "cancelled", "{cancelled}");
        assert!(cancelled["error"]["error"]["message"].is_string(), "{cancelled}");
        // One that came too late began anew.
        wait_until("the other ends", || {
            let active = server.record(&run)["active_job"]["job_id"].clone();
            if let Some(id) = active.as_str() {
                server.call("DELETE", &format!("/v1/runs/{run}/jobs/{id}")).send();
            }
            waiting.is_finished()
        });
        waiting.join().expect("no panic").assert_refused(409, "conflict");
    });
    let frames = server.payloads(&run, "frames_decoded").remove(0);
    assert_has(&frames, &json!({"truncated": true, "reason": "stopped"}));
    let decoded = frames["decoded_frames"].as_u64().expect("a number");
    assert_eq!(frames["signals"].as_array().map(|all| all.len() as u64), Some(decoded));
    // The run goes on, and without work it is not active.
    wait_until("the job ends", || server.record(&run)["active_job"].is_null());
    assert_eq!(server.record(&run)["status"], "processing");
    let other = server.create_run();
    assert_eq!(server.call("DELETE", &format!("/v1/runs/{other}")).send().status, 200);
    server.post_run(&run, "analyze", &json!({"model": "qwen3-vl-8b"})).assert_ok();
    server.post_run(&run, "ingest", &json!({"source_uri": "motion.mp4"})).assert_ok();
}

/// Checks what a kill left of the ingest `location` of the long clip.
fn check_killed(server: &Server, run: &str, location: &str) {
    let job = server.get(location).json();
    assert_has(&job, &json!({"status": "failed", "result": null}));
    let message = job["error"]["error"]["message"].as_str().unwrap_or_default();
    assert!(message.starts_with("interrupted"), "{job}");
    let frames = server.payloads(run, "frames_decoded").remove(0);
    assert_has(&frames, &json!({"truncated": true, "reason": "interrupted"}));
    assert_eq!(job["frames_done"], frames["decoded_frames"]);
    let signals = frames["signals"].as_array().expect("an array");
    let indices: Vec<_> = signals.iter().filter_map(|row| row["frame_index"].as_u64()).collect();
    let decoded = frames["decoded_frames"].as_u64().expect("a number");
    assert!(decoded > 0 && indices == (0..decoded).collect::<Vec<_>>(), "{decoded}: {indices:?}");
    assert_eq!(server.record(run)["source_uri"], long()["source_uri"]);
}

#[test]
fn an_answer_longer_than_the_ledger_keeps_is_kept_whole_until_its_run_is_gone() {
    let setup = reading();
    let mut server = setup.start();
    let run = server.create_run();
    let mut body = long();
    body["max_frames"] = json!(15_000);
    server.post_run(&run, "ingest", &body).assert_ok();
    let model = json!({"model": "qwen3-vl-8b"});
    let location = server.start_job(&run, "analyze", &model).header("location").to_owned();
    // What is waited for is the same as what is left.
    let again = server.post_run(&run, "analyze", &model);
    let mut found = Value::Null;
    wait_until("the job ends", || {
        found = server.get(&format!("{location}?wait_ms=30000")).json();
        found["ended_at"].is_string()
    });
    assert_has(&found, &json!({"status": "succeeded", "error": null}));
    let result = &found["result"];
    assert_eq!(result["metadata"].as_array().map(Vec::len), Some(15_000));
    let markers = |answer: &Value| answer["markers"].as_array().map(Vec::len);
    assert_eq!(markers(&again.json()), markers(result));
    server.signal_kill();
    server.wait(PATIENCE);
    server = setup.start();
    assert!(server.get(&location).json()["result"] == *result, "the same after a crash");
    let kept = || std::fs::read_dir(setup.dir().join("data/answers")).expect("there").count();
    assert!(kept() > 0, "it is in a file");
    assert_eq!(server.call("DELETE", &format!("/v1/runs/{run}")).send().status, 200);
    wait_until("the file is gone", || kept() == 0);
}
