//! Server-Sent Events over HTTP: frames, resuming, ends, places, the drain.

use std::{
    io::{BufRead, BufReader},
    time::Duration,
};

use media::RunId;
use reqwest::blocking::Response;
use serde_json::{Value, json};

use crate::support::{ALICE, BOB, Server, Setup, seed, wait_until};

/// An open stream, read line by line.
pub struct Stream(BufReader<Response>);

#[derive(Debug, PartialEq)]
pub struct Told {
    pub id: u64,
    pub event: String,
    pub data: Value,
}

fn open(server: &Server, path: &str, last: Option<&str>) -> Response {
    open_as(server, ALICE, path, last)
}

fn open_as(server: &Server, key: &str, path: &str, last: Option<&str>) -> Response {
    let call = server.call("GET", path).key(Some(key));
    let call = last.into_iter().fold(call, |call, last| call.header("last-event-id", last));
    call.open().expect("an answer")
}

impl Stream {
    pub fn open(server: &Server, path: &str, last: Option<&str>) -> Stream {
        let response = open(server, path, last);
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        Stream(BufReader::new(response))
    }

    /// The next event, or the last comment once the stream has ended.
    fn next(&mut self) -> Result<Told, String> {
        let (mut fields, mut comment) = (Vec::new(), String::new());
        loop {
            let mut line = String::new();
            if self.0.read_line(&mut line).expect("whole") == 0 {
                return Err(comment);
            }
            let line = line.trim_end_matches('\n');
            if let Some(text) = line.strip_prefix(':') {
                comment = text.trim().to_owned();
            } else if !line.is_empty() {
                fields.push(line.to_owned());
            } else if !fields.is_empty() {
                let field = |at: usize, name: &str| {
                    let line: &String = &fields[at];
                    line.strip_prefix(name).unwrap_or_else(|| panic!("{name}: {line}")).to_owned()
                };
                assert_eq!(fields.len(), 3, "{fields:?}");
                return Ok(Told {
                    id: field(0, "id: ").parse().expect("a number"),
                    event: field(1, "event: "),
                    data: serde_json::from_str(&field(2, "data: ")).expect("JSON"),
                });
            }
        }
    }

    pub fn event(&mut self) -> Told {
        self.next().expect("an event")
    }

    /// Reads on behind the next event of this kind.
    pub fn wait_for(&mut self, kind: &str) {
        while self.event().event != kind {}
    }
}

fn act(server: &Server, run: &str, action: &str) {
    server.post(&format!("/v1/runs/{run}/{action}"), &json!({})).assert_ok();
}

#[test]
fn events_come_as_they_happen_of_one_run_or_all_of_the_caller_s_and_ends_are_told() {
    let server = Setup::temporary().start();
    check_one_run(&server);
    check_every_run(&server);
}

fn check_one_run(server: &Server) {
    let run = server.create_run();
    let path = format!("/v1/runs/{run}/events/stream");
    let mut stream = Stream::open(server, &path, None);
    let first = stream.event();
    assert_eq!((first.id, first.event.as_str()), (1, "run_created"));
    assert_eq!(first.data, {
        let mut event = server.events(&run)[0].clone();
        event.as_object_mut().expect("an object").remove("run_id");
        event
    });
    act(server, &run, "keepalive");
    assert_eq!(stream.event().event, "keepalive_refreshed");
    act(server, &run, "stop");
    assert_eq!(stream.event().event, "stop_requested");
    assert_eq!(stream.next(), Err("the run has ended".to_owned()));
    // A browser asks again with the last id, and is told to stop asking.
    assert_eq!(open(server, &path, Some("3")).status(), 204);
    assert_eq!(open(server, &format!("{path}?after=3"), None).status(), 204);
    let mut again = Stream::open(server, &format!("{path}?after=3"), Some("1"));
    assert_eq!((again.event().id, again.event().id), (2, 3));
    let mut kinds = Stream::open(server, &format!("{path}?kind=keepalive_refreshed"), None);
    assert_eq!(kinds.event().id, 2);
    assert_eq!(kinds.next(), Err("the run has ended".to_owned()));
    let head = server.call("HEAD", &path).send();
    assert_eq!((head.status, head.header("content-type")), (200, "text/event-stream"));
    assert_eq!(head.header("cache-control"), "no-store");
}

/// Every run of the caller is in one stream, and a deletion ends that of its run.
fn check_every_run(server: &Server) {
    let from_the_start = Stream::open(server, "/v1/events/stream", None).event().id;
    assert_eq!(from_the_start, 1);
    let first = server.create_run();
    let mut stream = Stream::open(server, "/v1/events/stream", Some("3"));
    assert_eq!(stream.event().data["run_id"], json!(first));
    let bobs = server.call("POST", "/v1/runs").key(Some(BOB)).json(&json!({})).send();
    assert_eq!(bobs.status, 200);
    let second = server.create_run();
    let told = stream.event();
    assert_eq!((told.id, &told.data["run_id"]), (6, &json!(second)));
    let path = format!("/v1/runs/{first}/events/stream");
    let mut own = Stream::open(server, &path, None);
    assert_eq!(own.event().id, 4);
    assert_eq!(server.call("DELETE", &format!("/v1/runs/{first}")).send().status, 200);
    assert_eq!(own.event().event, "run_deleted");
    assert_eq!(own.next(), Err("the run was deleted".to_owned()));
    let told = stream.event();
    assert_eq!((told.event.as_str(), &told.data["run_id"]), ("run_deleted", &json!(first)));
    let mut again = Stream::open(server, "/v1/events/stream", Some("3"));
    assert_eq!((again.event().id, again.event().id), (6, 7));
    assert_eq!(open(server, &path, None).status(), 404);
}

#[test]
fn a_stream_is_refused_by_name() {
    let setup = Setup::temporary().var("SERVICE_MAX_PRINCIPAL_STREAMS", "2");
    let server = setup.var("SERVICE_MAX_STREAMS", "3").start();
    let run = server.create_run();
    let path = format!("/v1/runs/{run}/events/stream");
    for (query, last, field) in [
        ("?after=1000", None, "after"),
        ("?after=1&after=1", None, "after"),
        ("", Some("x"), "last-event-id"),
        ("", Some("1 "), ""),
        ("", Some("+1"), "last-event-id"),
        ("", Some("18446744073709551616"), "last-event-id"),
    ] {
        for path in [path.as_str(), "/v1/events/stream"] {
            let mut call = server.call("HEAD", &format!("{path}{query}"));
            if let Some(last) = last {
                call = call.header("last-event-id", last);
            }
            let status = if field.is_empty() { 200 } else { 422 };
            assert_eq!(call.send().status, status, "{path}{query} {last:?}");
        }
    }
    let bad = server.call("GET", &path).header("last-event-id", "x").send();
    assert_eq!(bad.fields(), ["last-event-id"]);
    let held = [Stream::open(&server, &path, None), Stream::open(&server, &path, None)];
    let reply = server.get(&path).assert_refused(429, "rate_limited");
    assert!(reply.text.contains("close one") && !reply.header("retry-after").is_empty());
    let bobs = open_as(&server, BOB, "/v1/events/stream", None);
    assert_eq!(bobs.status(), 200);
    let bob = server.call("GET", "/v1/events/stream").key(Some(BOB)).header("accept", "x");
    let reply = bob.send().assert_refused(503, "unavailable");
    assert!(!reply.header("retry-after").is_empty());
    drop((held, bobs));
    wait_until("places come back", || open(&server, &path, None).status() == 200);
}

#[test]
fn a_drain_ends_streams_and_readers_resume_after_it() {
    let setup = Setup::temporary();
    let mut server = setup.start();
    let run = server.create_run();
    let path = format!("/v1/runs/{run}/events/stream");
    let mut streams =
        [Stream::open(&server, &path, None), Stream::open(&server, "/v1/events/stream", None)];
    streams.iter_mut().for_each(|stream| assert_eq!(stream.event().id, 1));
    server.terminate();
    for stream in &mut streams {
        assert_eq!(stream.next(), Err("the server is shutting down".to_owned()));
    }
    assert!(server.wait(Duration::from_secs(10)).success());
    let server = setup.start();
    act(&server, &run, "keepalive");
    for path in [path.as_str(), "/v1/events/stream"] {
        assert_eq!(Stream::open(&server, path, Some("1")).event().id, 2);
    }
}

#[test]
fn a_reader_that_reads_nothing_holds_up_nobody() {
    const LONG: u64 = 300;
    let dir = tempfile::tempdir().expect("a directory");
    let run = RunId::from_bytes([1; 16]);
    {
        let log = seed::log(dir.path());
        let append = |event| seed::append(&log, run, [event]);
        append(seed::created("alice"));
        // More than the sockets between us take.
        (0..LONG).for_each(|_| append(seed::described(&"x".repeat(60_000))));
    }
    let server = Setup::new(dir.path()).start();
    let mut idle = Stream::open(&server, &format!("/v1/runs/{run}/events/stream"), None);
    assert_eq!(idle.event().id, 1);
    for _ in 0..50 {
        act(&server, &run.to_string(), "keepalive");
    }
    act(&server, &run.to_string(), "stop");
    for id in 2..=LONG + 52 {
        assert_eq!(idle.event().id, id);
    }
    assert_eq!(idle.next(), Err("the run has ended".to_owned()));
}
