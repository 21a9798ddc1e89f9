//! Abuse of the transport: hand-written HTTP/2 frames.
//!
//! After each the server answers on a new connection, and its memory has not grown much.

use std::{
    io::{Read, Write},
    net::TcpStream,
    time::Duration,
};

use media::RunId;

use crate::support::{ALICE, BOB, Server, Setup, eventually, seed, wait_until};

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;
const CONTINUATION: u8 = 9;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut bytes = (payload.len() as u32).to_be_bytes()[1..].to_vec();
    bytes.extend([kind, flags]);
    bytes.extend(stream.to_be_bytes());
    bytes.extend(payload);
    bytes
}

pub fn preface() -> Vec<u8> {
    [PREFACE, &frame(SETTINGS, 0, 0, &[])].concat()
}

/// The head of `GET /v1/health` with these fields, in place of its own where they have the name.
pub fn h2_headers(fields: &[(&str, &str)]) -> Vec<u8> {
    request(1, fields)
}

fn request(stream: u32, fields: &[(&str, &str)]) -> Vec<u8> {
    frame(HEADERS, END_HEADERS | END_STREAM, stream, &block(fields))
}

/// Fields in HPACK without Huffman codes.
fn block(fields: &[(&str, &str)]) -> Vec<u8> {
    let own =
        [(":method", "GET"), (":scheme", "http"), (":path", "/v1/health"), (":authority", "a")];
    let kept = own.iter().filter(|(own, _)| !fields.iter().any(|(name, _)| name == own));
    let pseudo = fields.iter().filter(|(name, _)| name.starts_with(':'));
    let plain = fields.iter().filter(|(name, _)| !name.starts_with(':'));
    let mut block = Vec::new();
    for (name, value) in kept.chain(pseudo).chain(plain) {
        block.extend([0, name.len() as u8]);
        block.extend(name.as_bytes());
        block.push(value.len() as u8);
        block.extend(value.as_bytes());
    }
    block
}

fn setting(id: u16, value: u32) -> Vec<u8> {
    [&id.to_be_bytes()[..], &value.to_be_bytes()].concat()
}

/// End of a connection by the server.
#[derive(Debug, Default)]
struct End {
    goaway: Option<u32>,
    closed: bool,
}

/// Sends what `next` makes until it makes nothing, or the server will not have more; then reads.
fn send(server: &Server, mut next: impl FnMut() -> Option<Vec<u8>>) -> End {
    let mut stream = TcpStream::connect(server.addr()).expect("accepted");
    stream.set_write_timeout(Some(Duration::from_secs(2))).expect("set");
    stream.set_read_timeout(Some(Duration::from_secs(3))).expect("set");
    while let Some(bytes) = next() {
        if stream.write_all(&bytes).is_err() {
            break;
        }
    }
    let (mut read, mut end) = (Vec::new(), End::default());
    let mut buffer = [0; 1 << 16];
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => end.closed = true,
            Ok(count) => {
                read.extend(&buffer[..count]);
                continue;
            }
            Err(error) => end.closed = error.kind() == std::io::ErrorKind::ConnectionReset,
        }
        break;
    }
    let mut rest = &read[..];
    while let Some((head, after)) = rest.split_first_chunk::<9>() {
        let len = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
        let Some((payload, after)) = after.split_at_checked(len) else { break };
        if head[3] == GOAWAY && payload.len() >= 8 {
            end.goaway = Some(u32::from_be_bytes(payload[4..8].try_into().expect("four")));
        }
        rest = after;
    }
    end
}

pub fn resident(server: &Server) -> f64 {
    server.metric("process_resident_memory_bytes")
}

/// Frames by the number of those before, up to so many.
type Flood = (&'static str, usize, Box<dyn Fn(usize) -> Vec<u8>>);

fn floods() -> Vec<Flood> {
    let many = clips::sized(60_000, 500_000);
    let bomb = |at: usize| {
        // One entry of 4,000 bytes in the table, then nothing but references to it.
        let mut block = block(&[]);
        if at == 0 {
            block.extend([0x40, 1, b'x', 0x7f, 0xa1, 0x1e]);
            block.extend([b'a'; 4000]);
        }
        block.extend([0xbe; 12_000]);
        frame(HEADERS, END_HEADERS | END_STREAM, 2 * at as u32 + 1, &block)
    };
    let reset = |at: usize| {
        let stream = 2 * at as u32 + 1;
        [request(stream, &[]), frame(RST_STREAM, 0, stream, &8_u32.to_be_bytes())].concat()
    };
    // Empty header names and values.
    let empty = [0x00, 1, b'x', 0].repeat(2000);
    vec![
        ("rapid reset", 50_000, Box::new(reset)),
        ("an endless head", 8192, behind_head(0, frame(CONTINUATION, 0, 1, &empty))),
        ("an endless head of nothing", many, behind_head(0, frame(CONTINUATION, 0, 1, &[]))),
        ("a compressed bomb", 1000, Box::new(bomb)),
        ("settings", many, Box::new(|_| frame(SETTINGS, 0, 0, &setting(3, 100)))),
        ("pings", many, Box::new(|_| frame(PING, 0, 0, &[7; 8]))),
        ("data of nothing", 300_000, behind_head(END_HEADERS, frame(DATA, 0, 1, &[]))),
        ("windows", many, Box::new(|_| frame(WINDOW_UPDATE, 0, 0, &1_u32.to_be_bytes()))),
    ]
}

/// The head of a request, and behind it the same frame again and again.
fn behind_head(flags: u8, again: Vec<u8>) -> Box<dyn Fn(usize) -> Vec<u8>> {
    Box::new(move |at| match at {
        0 => frame(HEADERS, flags, 1, &block(&[])),
        _ => again.clone(),
    })
}

#[test]
fn floods_and_windows_of_zero_leave_the_server_healthy() {
    let server = Setup::temporary().start();
    server.get("/v1/runs");
    let before = resident(&server);
    for (name, count, make) in floods() {
        let mut at = 0;
        let end = send(&server, || {
            // A thousand at a time, so that it is the server that is busy.
            let from = at;
            at = (at + 1000).min(count);
            (from < count).then(|| match from {
                0 => [preface(), (0..at).flat_map(&make).collect()].concat(),
                _ => (from..at).flat_map(&make).collect(),
            })
        });
        assert_eq!(server.get("/v1/health").status, 200, "{name}");
        let must_end = ["rapid reset", "an endless head", "data of nothing"].contains(&name);
        assert!(!must_end || end.closed || end.goaway.is_some(), "{name}: {end:?}");
        assert!(matches!(end.goaway, None | Some(0 | 1 | 9 | 11)), "{name}: {end:?}");
    }
    let grown = resident(&server) - before;
    assert!(grown < 100e6, "{grown} bytes after all floods");
    // Last: what it leaves to the allocator would hide as much of the floods.
    windows_of_zero_hold_answers_and_nobody_else(&server);
}

/// A connection with a window of zero on which the same is asked for a hundred times.
fn unread(server: &Server, fields: &[(&str, &str)]) -> TcpStream {
    let mut bytes = [PREFACE, &frame(SETTINGS, 0, 0, &setting(4, 0))].concat();
    bytes.extend((0..100).flat_map(|at| request(2 * at + 1, fields)));
    let mut stream = TcpStream::connect(server.addr()).expect("accepted");
    stream.write_all(&bytes).expect("sent");
    stream
}

fn windows_of_zero_hold_answers_and_nobody_else(server: &Server) {
    let before = resident(server);
    let _held: Vec<TcpStream> = (0..50).map(|_| unread(server, &[])).collect();
    for _ in 0..20 {
        assert_eq!(server.get("/v1/health").status, 200);
    }
    let grown = resident(server) - before;
    assert!(grown < 100e6, "{grown} bytes for 5,000 answers that nobody takes");
}

#[test]
fn requests_that_do_not_end_have_a_bound_after_which_their_owner_is_refused() {
    let server = Setup::temporary().start();
    let search = || server.call("POST", "/v1/search").header("content-type", "application/json");
    let ask = |key| search().key(Some(key)).body(r#"{"query": "van"}"#).send();
    let unfinished: Vec<TcpStream> =
        (0..32).map(|_| search().header("content-length", "2097152").begin()).collect();
    wait_until("a refusal", || ask(ALICE).status == 429);
    assert_eq!(ask(BOB).status, 200, "another principal is not held up");
    drop(unfinished);
    wait_until("room", || ask(ALICE).status == 200);
}

#[test]
fn answers_that_nobody_takes_have_a_bound_after_which_their_owner_is_refused() {
    let dir = tempfile::tempdir().expect("a directory");
    let run = RunId::from_bytes([7; 16]);
    let log = seed::log(dir.path());
    // A page of its events takes about a megabyte.
    let events = vec![seed::described(&"d".repeat(1024)); 1000];
    seed::append(&log, run, [seed::created("alice")].into_iter().chain(events));
    drop(log);
    let server = Setup::new(dir.path()).start();
    let path = format!("/v1/runs/{run}/events?limit=1000");
    let wait_for = |status: u16| {
        let ask = || Some(server.get("/v1/limits")).filter(|reply| reply.status == status);
        eventually("the other answer", ask)
    };
    wait_for(200);
    let before = resident(&server);
    let fields = [(":path", &*path), ("x-api-key", ALICE)];
    let held: Vec<TcpStream> = (0..4).map(|_| unread(&server, &fields)).collect();
    let refused = wait_for(429).assert_refused(429, "rate_limited");
    assert_eq!(refused.header("retry-after"), "1");
    assert_eq!(server.get("/v1/health").status, 200);
    assert_eq!(server.get("/v1/ready").status, 200, "a probe must hear");
    // Another principal is not held up.
    server.call("GET", "/v1/runs").key(Some(BOB)).send().assert_ok();
    let grown = (resident(&server) - before) / 1e6;
    assert!(grown < 160.0, "{grown} MB");
    drop(held);
    wait_for(200);
}
