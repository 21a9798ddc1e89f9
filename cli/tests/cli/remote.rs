//! The commands that use a server, against a scripted one.

use std::{
    fs::File,
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    process::Command,
    sync::{Arc, Mutex, mpsc::sync_channel},
    thread,
};

use serde_json::{Value, json};

use crate::support::{Outcome, command, doctor, finish};

pub const RUN: &str = "run-000102030405060708090a0b0c0d0eff";
pub const KEY: &str = "verysecretkey";

/// Scripted response: status and body.
pub type Answer = (u16, String);

/// Request that a client sent.
pub struct Asked {
    pub line: String,
    key: Option<String>,
    pub authorization: Option<String>,
    pub body: String,
}

/// Answers one request after the other, each on its own connection.
pub struct Script {
    address: String,
    asked: Arc<Mutex<Vec<Asked>>>,
}

impl Script {
    pub fn start(answers: Vec<Answer>) -> Script {
        let asked = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&asked);
        let most = answers.len();
        let mut answers = answers.into_iter();
        let address = serve(most, move |request| {
            log.lock().expect("no panic").push(request);
            let (status, body) = answers.next().expect("one for each request");
            (status, "/elsewhere".to_owned(), body)
        });
        Script { address, asked }
    }

    pub fn address(&self) -> &str {
        &self.address
    }

    pub fn run(&self, args: &[&str]) -> Outcome {
        self.ask(command(args))
    }

    /// Runs a command against this server.
    pub fn ask(&self, mut command: Command) -> Outcome {
        command.env("SIGHTLINE_SERVER", &self.address).env("SIGHTLINE_API_KEY", KEY);
        finish(command)
    }

    pub fn asked(&self) -> Vec<Asked> {
        std::mem::take(&mut *self.asked.lock().expect("no panic"))
    }
}

/// Answers the first `most` requests, each on its own connection, with the status, Location and body that
/// `answer` returns.
pub fn serve(
    most: usize,
    mut answer: impl FnMut(Asked) -> (u16, String, String) + Send + 'static,
) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = format!("http://{}", listener.local_addr().expect("bound"));
    let serve = move || {
        for stream in listener.incoming().take(most) {
            let mut stream = stream.expect("a connection");
            let (status, location, body) = answer(read(&stream));
            let length = body.len();
            let head = format!(
                "HTTP/1.1 {status} x\r\nlocation: {location}\r\ncontent-length: {length}\r\n\
                 connection: close\r\n\r\n{body}"
            );
            stream.write_all(head.as_bytes()).expect("sent");
        }
    };
    thread::Builder::new().name("server".to_owned()).spawn(serve).expect("a thread");
    address
}

fn read(stream: &TcpStream) -> Asked {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line).expect("a request line");
    let (mut key, mut authorization, mut length) = (None, None, 0);
    loop {
        let mut header = String::new();
        reader.read_line(&mut header).expect("a header");
        let Some((name, value)) = header.trim().split_once(": ") else { break };
        match name.to_lowercase().as_str() {
            "x-api-key" => key = Some(value.to_owned()),
            "authorization" => authorization = Some(value.to_owned()),
            "content-length" => length = value.parse().expect("a number"),
            _ => {}
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).expect("a body");
    let body = String::from_utf8(body).expect("UTF-8");
    Asked { line: line.trim().to_owned(), key, authorization, body }
}

pub fn event(seq: u64, kind: &str, payload: Value) -> Value {
    json!({ "seq": seq, "pts_ms": 951_827_696_789_u64, "kind": kind, "run_id": RUN, "payload": payload })
}

pub fn ok(value: Value) -> Answer {
    (200, value.to_string())
}

pub fn snapshot(events: &[Value]) -> Answer {
    ok(json!({ "request_id": "req-1", "run_id": RUN, "events": events }))
}

pub fn page(events: &[Value], next: u64) -> Answer {
    ok(
        json!({ "request_id": "req-1", "matches": events, "next_from_seq": next, "has_more": events.len() == 1000 }),
    )
}

#[test]
fn what_the_server_refuses_has_its_exit_code_and_its_reason() {
    let envelope = |message: &str| {
        json!({ "error": { "code": "x", "message": message, "request_id": "req-0011223344556677",
            "details": [{ "field": "source_uri", "message": "outside the roots" }] } })
        .to_string()
    };
    let cases = [
        (401, envelope("missing key"), 6, "missing key; SIGHTLINE_API_KEY (or --key) is none of"),
        (401, envelope("x-tenant-id is required"), 6, "required; --tenant or SIGHTLINE_TENANT_ID"),
        (404, envelope("no such run"), 3, "no such run"),
        (422, envelope("refused"), 5, "source_uri: outside the roots"),
        (404, "nothing here".to_owned(), 3, "older than this command, or no Sightline server"),
        (429, "slow down".to_owned(), 1, "slow down"),
        (500, envelope("odd\u{1b}[2J"), 1, "odd\u{fffd}[2J (HTTP 500, req-0011223344556677)"),
        (302, String::new(), 1, "HTTP 302"),
        (200, "<html>".to_owned(), 1, "unexpected answer"),
    ];
    for (status, body, code, words) in cases {
        let script = Script::start(vec![(status, body)]);
        let outcome = script.run(&["runs", "show", RUN]);
        outcome.says(code, words);
        assert!(!outcome.stderr.contains(KEY), "HTTP {status}");
        let asked = script.asked();
        assert_eq!(asked.len(), 1, "HTTP {status}: a redirect must not be followed");
        assert_eq!(asked[0].key.as_deref(), Some(KEY));
        assert_eq!(asked[0].line, format!("GET /v1/runs/{RUN} HTTP/1.1"));
    }
}

#[test]
fn doctor_prints_what_the_server_finds_wrong_with_itself() {
    let row = |name: &str, status: &str, advice: Option<&str>| json!({ "name": name, "status": status, "message": format!("{name} looked at"), "advice": advice });
    let checks = [
        row("keys", "ok", None),
        row("disk", "advice", Some("make\u{1b}[2J room")),
        row("model backend gpu", "problem", Some("start it")),
        row("later kind", "unheard of", None),
    ];
    let script = Script::start(vec![ok(json!({ "request_id": "r", "checks": checks }))]);
    let outcome = script.ask(doctor(&["--json"]));
    assert_eq!(script.asked()[0].line, "GET /v1/doctor HTTP/1.1");
    for (name, state, detail) in [
        ("answers", "ok", "http://127.0.0.1"),
        ("keys", "ok", "keys looked at"),
        ("disk", "warn", "disk looked at: make\u{fffd}[2J room"),
        ("model backend gpu", "fail", "looked at: start it"),
        ("later kind", "warn", "looked at"),
    ] {
        let check = outcome.check("server", name);
        assert_eq!(check["state"], state, "{check}");
        assert!(check["detail"].as_str().unwrap_or_default().contains(detail), "{check}");
    }
    assert_eq!(outcome.code, 1, "{}", outcome.stderr);
    for (answer, words) in [
        ((404, "no such route".to_owned()), "older than this command"),
        ((200, "<html>".to_owned()), "another program has the port"),
    ] {
        let outcome = Script::start(vec![answer]).ask(doctor(&[]));
        let line = outcome.stdout.lines().find(|line| line.contains("answers")).expect("a line");
        assert!(line.contains(words), "{line}");
    }
}

#[test]
fn ingest_and_analyze_send_what_was_asked_for() {
    let script = Script::start(vec![
        ok(json!({ "decoded_frames": 12, "decoder": "software:h264", "more_frames": true })),
        ok(json!({ "run_id": RUN, "status": "processing", "model": "m-1" })),
        ok(json!({ "generated": 12, "markers": [{}, {}] })),
    ]);
    let source = ["runs", "ingest", RUN, "/srv/a.mp4", "--fps", "2", "--max-frames", "12"];
    let zones = ["--zone", "door=0,0;0.5,0;0,1", "--zones-only"];
    let ingest = [&source[..], &zones[..]].concat();
    assert_eq!(
        script.run(&ingest).stdout,
        "12 frames decoded (software:h264); the source has more: --max-frames asks for them\n"
    );
    assert_eq!(script.run(&["runs", "analyze", RUN]).stdout, "12 frames analysed, 2 markers\n");
    let bodies: Vec<Value> = script
        .asked()
        .iter()
        .map(|asked| serde_json::from_str(&asked.body).unwrap_or_default())
        .collect();
    let expected = json!({ "source_uri": "/srv/a.mp4", "sampling_policy": "fixed",
        "fixed_fps": 2.0, "max_frames": 12, "activity_zones_only": true,
        "zones": [{ "name": "door", "polygon": [[0.0, 0.0], [0.5, 0.0], [0.0, 1.0]] }] });
    assert_eq!(bodies, [expected, Value::Null, json!({ "model": "m-1" })]);
}

#[test]
fn following_ends_with_the_run_and_moves_its_cursor() {
    let exact = "{\"session\":1.50,\"b\":1e3}";
    let first = snapshot(&[event(3, "ingest_received", json!({ "source_uri": "a" }))])
        .1
        .replace("{\"source_uri\":\"a\"}", exact);
    let processing =
        |job: Value| ok(json!({ "request_id": "r", "status": "processing", "active_job": job }));
    let script = Script::start(vec![
        (200, first),
        processing(json!({ "job_id": "job-1" })),
        page(&[], 4),
        processing(Value::Null),
        page(&[], 4),
        processing(Value::Null),
        page(&[event(9, "run_completed", json!({ "frames": 1 }))], 10),
    ]);
    let outcome = script.run(&["events", RUN, "--follow", "--json", "--from-seq", "2"]);
    assert_eq!(outcome.code, 0, "{}", outcome.stderr);
    let lines: Vec<&str> = outcome.stdout.lines().collect();
    assert_eq!(lines.len(), 2);
    assert!(lines[0].contains(exact), "payloads are printed as they came: {}", lines[0]);
    let asked = script.asked();
    assert_eq!(asked[0].line, format!("GET /v1/runs/{RUN}/events?from_seq=2 HTTP/1.1"));
    let queries = asked.iter().filter(|asked| asked.line.starts_with("POST"));
    let cursors: Vec<(Value, Value)> = queries
        .map(|asked| serde_json::from_str(&asked.body).expect("JSON"))
        .map(|body: Value| (body["from_seq"].clone(), body["wait_ms"].clone()))
        .collect();
    assert_eq!(
        cursors,
        [(4.into(), 20_000.into()), (4.into(), 20_000.into()), (4.into(), 20_000.into()),]
    );
    assert_eq!(outcome.stderr.matches("runs finish").count(), 1, "{}", outcome.stderr);
}

#[test]
fn a_job_that_failed_ends_as_its_failure_would_as_an_answer() {
    for (code, exit) in [("validation_error", 5), ("not_found", 3), ("unavailable", 1)] {
        let error = json!({ "error": { "code": code, "message": "no", "request_id": "req-1", "details": [] } });
        let job = json!({ "job_id": "job-1", "status": "failed", "frames_done": 0, "frames_total": null,
            "frames_per_second": 0.0, "eta_ms": null, "result": null, "error": error });
        let accepted = (202, json!({ "job_id": "job-1" }).to_string());
        let answers = vec![accepted, page(&[], 1), ok(job), page(&[], 1)];
        let outcome = Script::start(answers).run(&["runs", "ingest", RUN, "a.mp4"]);
        assert_eq!(outcome.code, exit, "{code}: {}", outcome.stderr);
    }
}

#[test]
fn following_a_run_that_has_ended_ends() {
    // The event that ends the run is not of the kind asked for; an older server ignores `kind` and sends all.
    let ended = ok(json!({ "request_id": "r", "status": "completed" }));
    let others = snapshot(&[event(3, "run_created", json!({}))]);
    let script = Script::start(vec![others, ended, page(&[], 4)]);
    let outcome = script.run(&["events", RUN, "--follow", "--kind", "vlm", "--json"]);
    assert_eq!((outcome.code, outcome.stdout.as_str()), (0, ""), "{}", outcome.stderr);
    let asked = script.asked().remove(0).line;
    assert_eq!(asked, format!("GET /v1/runs/{RUN}/events?from_seq=0&kind=vlm HTTP/1.1"));
}

#[test]
fn a_timeline_that_is_cut_short_is_printed_as_far_as_it_came_and_read_on_where_it_is_followed() {
    let whole = snapshot(&[event(3, "run_created", json!({})), event(4, "vlm", json!({}))]).1;
    let at = whole.find("vlm").expect("the second");
    let cut = || (200, whole[..at].to_owned());
    for args in [&["events", RUN][..], &["events", RUN, "--json"]] {
        let outcome = Script::start(vec![cut()]).run(args);
        assert_eq!(outcome.code, 4, "{}", outcome.stderr);
        assert!(outcome.stdout.contains("run_created"), "{}", outcome.stdout);
        assert!(outcome.stderr.contains("cut short: try again"), "{}", outcome.stderr);
    }
    let rest = snapshot(&[event(4, "run_completed", json!({}))]);
    let script = Script::start(vec![cut(), rest]);
    let outcome = script.run(&["events", RUN, "--follow", "--json"]);
    assert_eq!((outcome.code, outcome.stdout.lines().count()), (0, 2), "{}", outcome.stderr);
    let asked = script.asked().remove(1).line;
    assert_eq!(asked, format!("GET /v1/runs/{RUN}/events?from_seq=4 HTTP/1.1"));
}

#[test]
fn events_and_markers_are_tables_for_people() {
    let marker = json!({ "marker_id": "mk-1", "run_id": RUN, "stream_id": "s",
        "event_type": "door\u{1b}[31m", "status": "exact", "start_frame": 3, "end_frame": 5,
        "start_pts_ms": 61_000, "end_pts_ms": 61_080, "confidence": 0.75, "later_field": 1 });
    let script = Script::start(vec![
        snapshot(&[
            event(1, "run_created", json!({ "mode": "balanced" })),
            event(
                2,
                "activity_started",
                json!({ "stream_id": "main", "start_frame": 52,
                "start_pts_ms": 2080, "peak_score": 0.03, "peak_frame": 52, "zones": ["door"],
                "region": { "x": 0.1, "y": 0.4, "width": 0.2, "height": 0.3 } }),
            ),
        ]),
        ok(json!({ "request_id": "r", "run_id": RUN, "markers": [marker], "damaged_events": 2 })),
    ]);
    let events = script.run(&["events", RUN]).stdout;
    let line = events.lines().nth(1).expect("a row");
    assert_eq!(line, "  1  2000-02-29T12:34:56.789Z  run_created       mode=balanced");
    let line = events.lines().nth(2).expect("a row");
    assert!(line.ends_with("activity_started  0:02.080 something moves: left, in door"), "{line}");
    let markers = script.run(&["markers", RUN, "--status", "exact", "--from-frame", "2"]);
    markers.says(0, "left out 2 events that the server cannot read");
    let line = markers.stdout.lines().nth(1).expect("a row");
    let cells: Vec<&str> = line.split_whitespace().collect();
    assert_eq!(cells, ["door\u{fffd}[31m", "exact", "1:01.000", "1:01.080", "3-5", "0.750"]);
    let asked = script.asked().pop().expect("asked").line;
    assert_eq!(asked, format!("GET /v1/runs/{RUN}/markers?status=exact&from_frame=2 HTTP/1.1"));
}

#[test]
fn a_file_is_uploaded_and_ingested_by_its_name_there() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("clip.mp4");
    std::fs::write(&file, "the bytes").expect("written");
    let file = file.to_str().expect("UTF-8");
    let kept = ok(json!({ "file_path": "/data/uploads/o/1.mp4", "file_name": "1.mp4" }));
    let script = Script::start(vec![
        kept.clone(),
        kept,
        ok(json!({ "decoded_frames": 3, "decoder": "software:h264" })),
        (413, "the file is larger than 5 bytes, the most that is accepted".to_owned()),
    ]);
    assert_eq!(script.run(&["upload", file]).stdout, "/data/uploads/o/1.mp4\n");
    let ingest = script.run(&["runs", "ingest", RUN, file, "--upload"]);
    assert_eq!(ingest.stdout, "3 frames decoded (software:h264)\n", "{}", ingest.stderr);
    script.run(&["upload", file]).says(5, "larger than 5 bytes");
    let asked = script.asked();
    for upload in [&asked[0], &asked[1], &asked[3]] {
        assert_eq!(upload.line, "POST /v1/upload HTTP/1.1");
        let form = "form-data; name=\"file\"; filename=\"clip.mp4\"\r\n";
        assert!(upload.body.contains(form) && upload.body.contains("the bytes"), "{}", upload.body);
    }
    let body: Value = serde_json::from_str(&asked[2].body).expect("JSON");
    assert_eq!(body["source_uri"], "/data/uploads/o/1.mp4");
    let missing = script.run(&["upload", "/no/such/clip.mp4"]);
    assert_eq!(missing.code, 3, "{}", missing.stderr);
}

#[test]
fn a_refusal_that_comes_before_the_whole_file_is_sent_is_told() {
    let dir = tempfile::tempdir().expect("a directory");
    // A line break in its name is none in the form.
    let file = dir.path().join("clip\n.mp4");
    File::create(&file).and_then(|file| file.set_len(1 << 30)).expect("made");
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = format!("http://{}", listener.local_addr().expect("bound"));
    let (head, heads) = sync_channel(1);
    let serve = move || {
        let (mut stream, _) = listener.accept().expect("a connection");
        let mut piece = vec![0; 1 << 16];
        let mut asked = Vec::new();
        while !asked.windows(6).any(|bytes| bytes == b"mp4\"\r\n") {
            let count = stream.read(&mut piece).expect("a form");
            assert!(count > 0, "no name");
            asked.extend_from_slice(&piece[..count]);
        }
        head.send(asked).expect("received");
        let answer = "HTTP/1.1 413 x\r\ncontent-length: 5\r\nconnection: close\r\n\r\nlarge";
        stream.write_all(answer.as_bytes()).expect("sent");
        // Reads on as the server does, so that no reset takes the answer.
        while stream.read(&mut piece).is_ok_and(|count| count > 0) {}
    };
    thread::Builder::new().name("server".to_owned()).spawn(serve).expect("a thread");
    let mut command = command(&["upload", file.to_str().expect("UTF-8")]);
    command.env("SIGHTLINE_SERVER", &address);
    finish(command).says(5, "large (HTTP 413)");
    let asked = String::from_utf8_lossy(&heads.recv().expect("sent")).into_owned();
    assert!(asked.contains("filename=\"clip .mp4\"\r\n"), "{asked}");
}
