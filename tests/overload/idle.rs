//! Subscribers that hear nothing for long: what each costs, one event to all of them, and their end.

use std::time::Instant;

use clips::sized;
use serde_json::json;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    runtime::Runtime,
    task::JoinSet,
};

use crate::{
    overload::report::tell,
    support::{ALICE, Server, Setup, can_open, wait_until},
};

/// Memory of the server with all of them, kB, without the pages of its program.
const MEMORY_MAX: u64 = 300_000;
/// Growth of memory by each, kB.
const EACH_MAX: u64 = 25;
/// Descriptors of either process for other things.
const RESERVED: u64 = 700;
/// Connections that are opened at once.
const OPENING: usize = 100;

#[test]
fn idle_subscribers_are_cheap_and_hear_of_an_event_and_of_the_end() {
    let count: usize = sized(2000, 10_000);
    if !can_open(count as u64 + RESERVED) {
        return;
    }
    let server = Setup::temporary().start();
    let run = server.create_run();
    server.metric("service_event_streams");
    let before = (descriptors(&server), server.memory_kb("RssAnon"));
    let runtime = Runtime::new().expect("a runtime");
    let opened = runtime.block_on(open(&server, &run, count));
    assert_eq!(server.metric("service_event_streams"), count as f64);
    let memory = || server.memory_kb("RssAnon");
    let idle = memory();
    let act = |action: &str| {
        let reply = server.post(&format!("/v1/runs/{run}/{action}"), &json!({}));
        assert_eq!(reply.status, 200, "{}", reply.text);
        Instant::now()
    };
    let told = act("keepalive");
    let heard = runtime.block_on(all_read(opened, "event: keepalive_refreshed\n"));
    let (told, active) = (told.elapsed(), memory());
    act("stop");
    // The last chunk of a whole answer.
    let ended = runtime.block_on(all_read(heard, "\r\n0\r\n\r\n"));
    drop(ended);
    wait_until("no stream is open", || server.metric("service_event_streams") == 0.0);
    wait_until("descriptors are closed", || descriptors(&server) <= before.0 + 8);
    tell(
        "idle",
        &[json!({
            "subscribers": count, "before_kb": before.1, "idle_kb": idle, "after_an_event_kb": active,
            "with_the_program_kb": server.memory_kb("VmHWM"), "told_all_ms": told.as_secs_f64() * 1e3,
        })],
    );
    let most = idle.max(active);
    assert!(most < MEMORY_MAX, "{most} kB with {count} subscribers");
    assert!(
        most <= before.1 + EACH_MAX * count as u64 + 16_384,
        "from {} to {most} kB with {count} subscribers",
        before.1
    );
}

fn descriptors(server: &Server) -> usize {
    std::fs::read_dir(format!("/proc/{}/fd", server.pid())).map_or(0, Iterator::count)
}

/// Followers of `run`, each of which has heard of its first event.
async fn open(server: &Server, run: &str, count: usize) -> Vec<TcpStream> {
    let (addr, key) = (server.addr(), server.key(ALICE));
    let head = format!(
        "GET /v1/runs/{run}/events/stream HTTP/1.1\r\nhost: idle\r\nx-api-key: {key}\r\n\r\n"
    );
    let mut opened = Vec::new();
    while opened.len() < count {
        let mut some = Vec::new();
        for _ in 0..OPENING.min(count - opened.len()) {
            let mut stream = TcpStream::connect(addr).await.expect("connected");
            stream.write_all(head.as_bytes()).await.expect("sent");
            some.push(stream);
        }
        opened.extend(all_read(some, "event: run_created\n").await);
    }
    opened
}

/// Reads each of `streams` up to `end`, which comes once in each.
async fn all_read(streams: Vec<TcpStream>, end: &'static str) -> Vec<TcpStream> {
    let mut reads = JoinSet::new();
    for mut stream in streams {
        reads.spawn(async move {
            let (mut text, mut bytes) = (String::new(), [0; 2048]);
            while !text.contains(end) {
                let count = stream.read(&mut bytes).await.expect("readable");
                assert!(count > 0, "a stream ends after {text}");
                text.push_str(&String::from_utf8_lossy(&bytes[..count]));
            }
            assert_eq!(text.matches(end).count(), 1, "{text}");
            stream
        });
    }
    reads.join_all().await
}
