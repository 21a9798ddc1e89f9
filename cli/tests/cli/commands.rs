//! One row per command: its request to the server, and its output for the response.

use std::{fs, net::TcpListener};

use serde_json::{Value, json};

use crate::{
    remote::{Answer, RUN, Script, ok, serve},
    support::{command, finish, text},
};

const HASH: &str = "aaaabbbbaaaabbbbaaaabbbbaaaabbbbaaaabbbbaaaabbbbaaaabbbbaaaabbbb";
const JOB: &str = "job-000102030405060708090a0b0c0d0eff";

/// Command, responses, lines of the requests, body of the last one, expected output. `RUN`, `JOB` and `HASH`
/// stand for themselves.
type Row = (&'static str, Vec<Answer>, &'static str, Value, &'static str);

fn one(
    args: &'static str,
    answer: Value,
    line: &'static str,
    body: Value,
    shown: &'static str,
) -> Row {
    (args, vec![ok(answer)], line, body, shown)
}

fn get(args: &'static str, answer: Value, line: &'static str, shown: &'static str) -> Row {
    one(args, answer, line, Value::Null, shown)
}

#[test]
fn each_command_asks_for_one_thing_and_shows_what_came() {
    let job = json!({ "job_id": JOB, "kind": "ingest", "status": "running", "frames_done": 7,
        "frames_total": 9, "frames_per_second": 3.0, "eta_ms": 900, "started_at": "2026-01-01T00:00:00Z",
        "result": null, "error": null });
    let stills = json!({ "keyframes": [{ "pts_ms": 1000, "frame_index": 30, "event_type": "scene_cut",
        "image_bytes": 2048, "image_sha256": HASH, "description": "a van" }] });
    let episode = json!({ "stream_id": "main", "start_frame": 30, "end_frame": null, "start_pts_ms": 1000,
        "end_pts_ms": null, "peak_score": 0.25, "peak_frame": 31, "image_sha256": null, "zones": ["door"],
        "region": { "x": 0.0, "y": 0.4, "width": 0.2, "height": 0.2 } });
    let said = json!({ "interactions": [{ "start_pts_ms": 0, "end_pts_ms": 960, "event_type": "van",
        "confidence": 0.5, "description": "a van\u{1b}[2J waits" }] });
    let file = json!({ "file_name": "1.mp4", "uploaded_at": "2026-01-01T00:00:00Z", "bytes": 2048,
        "media_type": "video/mp4", "original_name": "a.mp4", "file_path": "/data/1.mp4" });
    let hooks = json!({ "webhooks": [{ "webhook_id": "wh-1", "status": "active", "dead_letters": 2,
        "kinds": null, "url": "https://example.org/",
        "last_error": { "seq": 4, "message": "refused" } }] });
    let models = json!({
        "models": [
            { "id": "m-ready", "tier": "small", "availability": "ready", "providers_available": ["gpu"] },
            { "id": "m-other", "tier": "small", "availability": "name_not_served", "providers_available": [] },
        ],
        "providers": [{ "name": "gpu", "type": "openai_compat", "reachable": true, "asked_for": null,
            "lists": ["acme/a"], "last_error": null }],
    });
    let hits = json!({ "scanned": 1, "total_hits": 1, "hits": [{ "seq": 1, "run_id": RUN, "pts_ms": 0,
        "kind": "vlm", "snippet": "van", "description": "a van" }] });
    let query = json!({ "query": "van", "limit": 50 });
    let listed = json!([{ "run_id": RUN, "status": "pending", "semantic": 7 }]);
    let fleet = json!({ "runs": [{ "node": "node-1", "run_id": RUN, "label": null, "status": "pending",
        "created_at": "2026-01-01T00:00:00Z", "last_event_at": "2026-01-01T00:00:00Z", "later": 7 }] });
    let active = json!([{ "run_id": RUN, "status": "pending" }]);
    let stopped = json!({ "run_id": RUN, "status": "cancelled" });
    let (jobs, ready) = (json!({ "jobs": [job] }), json!({ "status": "ready", "reasons": [] }));
    let (label, good) = (json!({ "label": "gate-3" }), json!({ "word": "good" }));
    let hook = json!({ "url": "https://example.org/", "kinds": ["vlm", "activity_started"] });
    let hooked =
        json!({ "webhook_id": "wh-1", "url": "https://example.org/", "secret": "whsec_x" });
    let analyze = json!({ "model": "m", "gate": { "scene_cut": 0.4 }, "dry_run": true,
        "zones": [{ "name": "a", "polygon": [[0.0, 0.0], [1.0, 0.0], [1.0, 1.0]] }],
        "activity_zones_only": true });
    let analyzed = json!({ "generated": 9, "dry_run": { "before": { "kept": 3 }, "after": { "kept": 5 },
        "changed_frames": 2, "marker_types": { "scene_cut": 2 }, "episodes": [{
            "stream_id": "main", "start_frame": 20, "end_frame": 24, "start_pts_ms": 800,
            "end_pts_ms": 1000, "peak_score": 0.02, "peak_frame": 20, "zones": ["a"],
            "region": null,
        }] } });
    let deleted = json!({ "file_name": "1.mp4" });
    let rows: Vec<Row> = vec![
        get("interactions RUN", said, "GET /v1/runs/RUN/interactions", "a van\u{fffd}[2J waits"),
        get(
            "activity RUN --stream-id main",
            json!({ "episodes": [episode] }),
            "GET /v1/runs/RUN/activity?stream_id=main",
            "lasts  0.250          31  left, in door",
        ),
        get("keyframes RUN", stills.clone(), "GET /v1/runs/RUN/keyframes", HASH),
        (
            "keyframe RUN AAAAB --max-edge 64",
            vec![ok(stills), (200, "jpeg".to_owned())],
            "GET /v1/runs/RUN/keyframes\nGET /v1/runs/RUN/keyframes/HASH?max_edge=64",
            Value::Null,
            "jpeg",
        ),
        get("jobs RUN", jobs, "GET /v1/runs/RUN/jobs", "ingest running, 7 of 9 frames"),
        get("jobs RUN --cancel JOB", job, "DELETE /v1/runs/RUN/jobs/JOB", "ingest running"),
        get("models", models.clone(), "GET /v1/models", "m-ready"),
        get("models --all", models, "GET /v1/models", "m-other"),
        get("health", json!({ "status": "ok" }), "GET /v1/health", "ok"),
        get("health --ready", ready, "GET /v1/ready", "ready"),
        get("files list", json!({ "files": [file] }), "GET /v1/files", "2.0 KiB"),
        get("files delete 1.mp4", deleted, "DELETE /v1/files/1.mp4", "1.mp4 deleted"),
        (
            "files get 1.mp4",
            vec![(200, "the bytes".to_owned())],
            "GET /v1/files/1.mp4",
            Value::Null,
            "the bytes",
        ),
        one("search van --json", hits, "POST /v1/search", query, "\"description\": \"a van\""),
        get("runs list --json", listed, "GET /v1/runs?limit=100", "\"semantic\": 7"),
        get("fleet runs", fleet.clone(), "GET /v1/fleet/runs?limit=100", "node-1  run-"),
        get("fleet runs --json", fleet, "GET /v1/fleet/runs?limit=100", "\"later\": 7"),
        get("webhooks list --run RUN", hooks, "GET /v1/runs/RUN/webhooks", "refused"),
        one(
            "webhooks create https://example.org/ --kinds vlm,activity_started",
            hooked,
            "POST /v1/webhooks",
            hook,
            "whsec_x",
        ),
        one(
            "webhooks redeliver wh-1 --run RUN",
            json!({}),
            "POST /v1/runs/RUN/webhooks/wh-1/redeliver",
            json!({}),
            "sent them again",
        ),
        one("runs finish RUN", json!({}), "POST /v1/runs/RUN/finish", json!({}), "finished"),
        one("runs label RUN gate-3", json!({}), "PATCH /v1/runs/RUN", label, "labelled"),
        get("runs health RUN", good, "GET /v1/runs/RUN/health", "good"),
        (
            "runs stop --all",
            vec![ok(active), ok(json!([])), ok(stopped)],
            "GET /v1/runs?status=pending&limit=1000\nGET /v1/runs?status=processing&limit=1000\n\
             POST /v1/runs/RUN/stop",
            json!({}),
            "stopped",
        ),
        one(
            "runs analyze RUN --model m --dry-run --scene-cut 0.4 --zone a=0,0;1,0;1,1 --zones-only",
            analyzed,
            "POST /v1/runs/RUN/analyze",
            analyze,
            "5 frames kept instead of 3, 2 decided otherwise; markers: 2 scene_cut\n\
             ACTIVITY     START  LENGTH   PEAK  PEAK FRAME  WHERE\n\
             1         0:00.800   0.2 s  0.020          20  in a\n",
        ),
    ];
    let named = |text: &str| text.replace("RUN", RUN).replace("JOB", JOB).replace("HASH", HASH);
    for (args, answers, lines, body, shown) in rows {
        let script = Script::start(answers);
        let outcome = script.run(&named(args).split(' ').collect::<Vec<_>>());
        assert_eq!(outcome.code, 0, "{args:?}: {}", outcome.stderr);
        assert!(outcome.stdout.contains(shown), "{args:?}: {}", outcome.stdout);
        let asked = script.asked();
        let found = asked.iter().map(|asked| asked.line.trim_end_matches(" HTTP/1.1"));
        assert_eq!(found.collect::<Vec<_>>().join("\n"), named(lines), "{args:?}");
        let mut bodies: Vec<Value> = asked
            .iter()
            .map(|asked| serde_json::from_str(&asked.body).unwrap_or_default())
            .collect();
        assert_eq!(bodies.pop(), Some(body), "{args:?}");
        assert!(bodies.iter().all(Value::is_null), "{args:?}: {bodies:?}");
    }
}

#[test]
fn a_file_that_is_saved_replaces_another_once_it_is_whole() {
    let dir = tempfile::tempdir().expect("a directory");
    let out = dir.path().join("1.mp4");
    fs::write(&out, "old").expect("written");
    let mut answers = ["3\r\nnew\r\n", "3\r\nnew\r\n0\r\n\r\n"].into_iter();
    let chunked = "/\r\ntransfer-encoding: chunked";
    let server = serve(2, move |_| {
        (200, chunked.to_owned(), answers.next().expect("one for each request").to_owned())
    });
    for (code, content) in [(4, "old"), (0, "new")] {
        let mut command = command(&["files", "get", "1.mp4", "--out", &text(out.clone())]);
        command.env("SIGHTLINE_SERVER", &server);
        finish(command).says(code, "");
        assert_eq!(fs::read_to_string(&out).expect("readable"), content);
        assert_eq!(fs::read_dir(dir.path()).expect("readable").count(), 1, "nothing is left");
    }
}

#[test]
fn a_server_that_cannot_work_is_a_failure_that_says_why() {
    let unready =
        json!({ "status": "not_ready", "reasons": ["the disk is full", "shutting down"] });
    for (status, body, shown) in [
        (503, unready.to_string(), "not ready: the disk is full; shutting down"),
        (503, "no backend".to_owned(), "not ready: no backend"),
        (502, "bad gateway".to_owned(), "bad gateway (HTTP 502)"),
    ] {
        Script::start(vec![(status, body)]).run(&["health", "--ready"]).says(1, shown);
    }
}

#[test]
fn a_silent_server_is_waited_for_no_longer_than_a_supervisor_would() {
    let silent = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let server = format!("http://{}", silent.local_addr().expect("bound"));
    finish(command(&["health", "--server", &server])).says(4, "no answer within 5 s");
}

#[test]
fn a_system_without_certificates_is_asked_for_them_where_they_are_needed() {
    let script = Script::start(vec![ok(json!({ "status": "ok" }))]);
    let secure = script.address().replace("http:", "https:");
    for (server, code, said) in [(script.address(), 0, ""), (&secure, 2, "ca-certificates")] {
        let mut command = command(&["health", "--server", server]);
        command.env("SSL_CERT_FILE", "/dev/null").env("SSL_CERT_DIR", "/nonexistent");
        finish(command).says(code, said);
    }
}

#[test]
fn a_missing_key_names_the_variable() {
    let refused = json!({ "error": { "code": "unauthorized", "message": "missing or invalid API key",
        "request_id": "req-1", "details": [] } });
    let script = Script::start(vec![(401, refused.to_string())]);
    let mut command = command(&["runs", "list", "--server", script.address()]);
    command.env_remove("SIGHTLINE_API_KEY");
    finish(command).says(6, "SIGHTLINE_API_KEY is not set");
}

#[test]
fn a_source_that_the_server_does_not_find_says_what_to_do() {
    for (found, words) in [
        ("not found", "not found beneath the server's ingest roots; --upload sends a local file"),
        ("is outside the ingest roots", "not found beneath the server's ingest roots; --upload"),
        ("no ingest root is configured", "no ingest root (SERVICE_INGEST_FILE_ROOTS); --upload"),
        ("is empty", "source_uri: is empty"),
    ] {
        let said = format!("source_uri: {found}");
        let refused = json!({ "error": { "code": "validation_error", "message": said,
            "request_id": "req-1", "details": [{ "field": "source_uri", "message": found }] } });
        let script = Script::start(vec![(422, refused.to_string())]);
        script.run(&["runs", "ingest", RUN, "clip.mp4"]).says(5, words);
    }
}

#[test]
fn a_camera_that_is_stopped_elsewhere_ends_well() {
    let run = || json!({ "run_id": RUN, "status": "cancelled" });
    let job = || json!({ "job_id": JOB, "status": "cancelled", "frames_done": 7, "frames_per_second": 3 });
    let events = || json!({ "matches": [], "next_from_seq": 1, "has_more": false });
    let found = ["episodes", "markers", "interactions"].map(|name| json!({ name: [] }));
    let answers = [run(), job(), events(), job(), events(), run(), run()].into_iter().chain(found);
    let script = Script::start(answers.map(ok).collect());
    script.run(&["run", "rtsp://camera/", "--model", "m"]).says(0, "cancelled: no markers");
}

#[test]
fn the_help_says_what_the_words_mean() {
    for (command, words) in [
        ("markers", ["scene_cut", "provisional", "from 0 to 1"]),
        ("events", ["ingest_started", "semantic_chunk_inferred", "the last two pictures repeat"]),
    ] {
        let help = crate::support::sightline(&[command, "--help"]).stdout;
        for word in words {
            assert!(help.contains(word), "{command}: {word}: {help}");
        }
    }
}
