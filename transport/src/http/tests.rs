//! Tests of raw sockets against a served router, with short limits.
//!
//! Long because a peer can be slow, malformed or gone in many ways.

use std::time::Instant as SystemInstant;

use axum::routing::{get, post};
use bytes::Bytes;
use http::{HeaderMap, HeaderName};
use tokio::task::JoinHandle;

use super::*;
use crate::{ConnectionLimits, certificate::tests::Pair};

const IDLE: Duration = Duration::from_millis(300);
const X_ID: HeaderName = HeaderName::from_static("x-id");
/// Request after whose response the server closes.
const GET: &[u8] = b"GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n";

struct Served {
    addr: std::net::SocketAddr,
    ends: ShutdownSignals,
    task: JoinHandle<usize>,
}

fn start(limits: ServerLimits) -> Served {
    serve_on(listener(), limits, 4096)
}

fn listener() -> Listener {
    Listener::bind(([127, 0, 0, 1], 0).into()).expect("a free port")
}

fn serve_on(listener: Listener, limits: ServerLimits, connections: usize) -> Served {
    let slow = || async {
        tokio::time::sleep(IDLE * 3).await;
        "slow"
    };
    // Responds before the body is complete, and reads on.
    let before = |body: axum::body::Body| async move {
        tokio::spawn(http_body_util::BodyExt::collect(body));
        "no"
    };
    let router = Router::new()
        .route("/", get(|| async { "ok" }))
        .route("/before", post(before))
        .route("/slow", get(slow))
        .route("/echo", post(|body: Bytes| async move { body }));
    let addr = listener.local_addr().expect("bound");
    let refusal_headers = || HeaderMap::from_iter([(X_ID, HeaderValue::from_static("7"))]);
    let elsewhere = Some(HeaderValue::from_static("h3=\":8443\"; ma=86400"));
    let site = ServiceConfig { router, limits, elsewhere, refusal_headers };
    let ends = ShutdownSignals::default();
    let limiter =
        ConnectionLimiter::new(ConnectionLimits { total: connections, per_address: connections });
    let task = tokio::spawn(serve(listener, site, limiter, ends.clone()));
    Served { addr, ends, task }
}

/// Starts a server with TLS; returns its certificate.
fn start_tls(limits: ServerLimits) -> (Served, Pair) {
    let pair = Pair::new("site.example");
    let certificate = ReloadingCertificate::open(pair.files()).expect("a pair");
    let listener = listener().with_tls(&certificate).expect("a TLS listener");
    (serve_on(listener, limits, 64), pair)
}

fn short() -> ServerLimits {
    ServerLimits { idle: IDLE, ..ServerLimits::default() }
}

/// Sends `bytes` and reads until the server closes.
async fn exchange(served: &Served, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(served.addr).await.expect("accepted");
    stream.write_all(bytes).await.expect("sent");
    rest(stream).await
}

/// Reads until the server closes; TLS may end without close_notify.
async fn rest(mut stream: impl AsyncRead + Unpin) -> String {
    let mut reply = Vec::new();
    let read = timeout(Duration::from_secs(20), stream.read_to_end(&mut reply)).await;
    if let Err(error) = read.expect("the server closes") {
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof, "{error}");
    }
    String::from_utf8_lossy(&reply).into_owned()
}

fn head_of(total: usize) -> Vec<u8> {
    let mut head = b"GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n".to_vec();
    while total - head.len() > 10_000 {
        head.extend_from_slice(b"x-pad: ");
        head.extend(vec![b'a'; 8000]);
        head.extend_from_slice(b"\r\n");
    }
    head.extend_from_slice(b"x-pad: ");
    head.extend(vec![b'a'; total - head.len() - 4]);
    head.extend_from_slice(b"\r\n\r\n");
    assert_eq!(head.len(), total);
    head
}

#[tokio::test]
async fn every_silence_and_excess_has_its_answer() {
    let served = start(short());
    let limit = ServerLimits::default().header_bytes_max;
    let many = format!(
        "GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n{}\r\n",
        "x-a: b\r\n".repeat(999)
    );
    let cases: [(&str, &[u8], &str); 14] = [
        ("no host", b"GET / HTTP/1.1\r\nconnection: close\r\n\r\n", "HTTP/1.1 400"),
        (
            "two hosts",
            b"GET / HTTP/1.1\r\nhost: a\r\nhost: b\r\nconnection: close\r\n\r\n",
            "HTTP/1.1 400",
        ),
        ("an old version without", b"GET / HTTP/1.0\r\n\r\n", "HTTP/1.0 200"),
        ("whole request", GET, "HTTP/1.1 200"),
        ("half a head", b"GET / HTTP/1.1\r\nhost", "HTTP/1.1 408"),
        ("one byte", b"G", "HTTP/1.1 408"),
        ("nothing", b"", ""),
        (
            "half a body",
            b"POST /echo HTTP/1.1\r\nhost: a\r\ncontent-length: 9\r\n\r\nhalf",
            "HTTP/1.1 408",
        ),
        ("head at the limit", &head_of(limit), "HTTP/1.1 200"),
        ("head one past it", &head_of(limit + 1), "HTTP/1.1 431"),
        ("head far past it", &head_of(limit * 2), "HTTP/1.1 431"),
        ("many small headers", many.as_bytes(), "HTTP/1.1 200"),
        ("no HTTP", b"GET / HTTP/9.9\r\n\r\n", "HTTP/1.1 400"),
        ("a broken header", b"GET / HTTP/1.1\r\nhost: a\r\na b: c\r\n\r\n", "HTTP/1.1 400"),
    ];
    for (name, bytes, expected) in cases {
        let reply = exchange(&served, bytes).await;
        assert!(reply.starts_with(expected), "{name}: {reply:?}");
        assert_eq!(reply.is_empty(), expected.is_empty(), "{name}: {reply:?}");
        // The response to an incomplete body comes from the router, which adds its own headers.
        if reply.starts_with("HTTP/1.1 4") && name != "half a body" {
            assert!(reply.contains("\r\nx-id: 7\r\n"), "{name}: {reply:?}");
        }
        if expected.ends_with(" 200") {
            let elsewhere = "\r\nalt-svc: h3=\":8443\"; ma=86400\r\n";
            assert!(reply.contains(elsewhere), "{name}: {reply:?}");
        }
    }
}

#[tokio::test]
async fn a_long_answer_is_not_silence_and_an_idle_connection_ends() {
    let served = start(short());
    let started = SystemInstant::now();
    let reply = exchange(&served, b"GET /slow HTTP/1.1\r\nhost: a\r\n\r\n").await;
    assert!(reply.ends_with("slow"), "{reply:?}");
    assert!(started.elapsed() >= IDLE * 4, "kept for the next request: {:?}", started.elapsed());
}

#[tokio::test]
async fn in_a_full_server_what_waits_for_its_peer_gives_way() {
    let served = serve_on(listener(), ServerLimits::default(), 1);
    let mut first = TcpStream::connect(served.addr).await.expect("accepted");
    first.write_all(b"GET / HTTP/1.1\r\nhost").await.expect("sent");
    let reply = exchange(&served, GET).await;
    assert!(reply.starts_with("HTTP/1.1 200"), "the unused connection gives way: {reply:?}");
    assert_eq!(first.read(&mut [0; 8]).await.unwrap_or(0), 0, "closed");
    let mut busy = TcpStream::connect(served.addr).await.expect("accepted");
    busy.write_all(b"GET /slow HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n")
        .await
        .expect("sent");
    tokio::time::sleep(IDLE).await;
    let reply = exchange(&served, b"GET / HTTP/1.1\r\nhost: a\r\n\r\n").await;
    assert!(reply.starts_with("HTTP/1.1 503") && reply.contains("\r\nx-id: 7\r\n"), "{reply:?}");
    let mut slow = String::new();
    busy.read_to_string(&mut slow).await.expect("readable");
    assert!(slow.ends_with("slow"), "what is worked for is not cut: {slow:?}");
}

#[tokio::test]
async fn a_drain_finishes_what_fits_and_cuts_the_rest() {
    for (drain, cut) in [(IDLE * 8, 0), (IDLE, 1)] {
        let served = start(short());
        let mut stream = TcpStream::connect(served.addr).await.expect("accepted");
        stream.write_all(b"GET /slow HTTP/1.1\r\nhost: a\r\n\r\n").await.expect("sent");
        tokio::time::sleep(IDLE / 2).await;
        served.ends.stop.cancel();
        let cut_later = served.ends.cut.clone();
        tokio::spawn(async move {
            tokio::time::sleep(drain).await;
            cut_later.cancel();
        });
        let mut reply = String::new();
        let read = stream.read_to_string(&mut reply).await;
        assert_eq!(served.task.await.expect("no panic"), cut, "drain {drain:?}");
        assert_eq!(reply.ends_with("slow"), cut == 0, "{reply:?} {read:?}");
        assert!(TcpStream::connect(served.addr).await.is_err(), "no longer listening");
    }
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut bytes = (payload.len() as u32).to_be_bytes()[1..].to_vec();
    bytes.extend([kind, flags]);
    bytes.extend(stream.to_be_bytes());
    bytes.extend(payload);
    bytes
}

#[tokio::test]
async fn answers_that_nobody_takes_and_pings_for_nothing_end_a_connection() {
    let served = start(short());
    let no_window = [0, 4, 0, 0, 0, 0];
    let preface = |settings: &[u8]| {
        [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", &frame(4, 0, 0, settings)[..]].concat()
    };
    let get = frame(1, 5, 1, &[0x82, 0x86, 0x84, 0x01, 1, b'a']);
    let rows = [
        ("an answer without a window", [preface(&no_window), get].concat()),
        ("nothing but pings", preface(&[])),
    ];
    for (name, opening) in rows {
        let mut stream = TcpStream::connect(served.addr).await.expect("accepted");
        stream.write_all(&opening).await.expect("sent");
        let (mut reader, mut writer) = stream.split();
        let pings = async {
            while writer.write_all(&frame(6, 0, 0, &[1; 8])).await.is_ok() {
                tokio::time::sleep(IDLE / 6).await;
            }
        };
        let ended = async { while reader.read(&mut [0; 1024]).await.is_ok_and(|read| read > 0) {} };
        let both = async {
            tokio::select! { () = pings => {}, () = ended => {} }
        };
        let ends = timeout(Duration::from_secs(10), both).await;
        assert!(ends.is_ok(), "{name}: still open");
    }
}

/// Sends a head byte by byte, one in each `pause`; returns the answer.
async fn drip(mut stream: TcpStream, pause: Duration) -> String {
    let (mut reader, mut writer) = stream.split();
    let drips = async {
        for byte in b"GET / HTTP/1.1\r\nhost: a\r\nx-pad: ".iter().chain(&[b'a'; 10_000]) {
            if writer.write_all(&[*byte]).await.is_err() {
                break;
            }
            tokio::time::sleep(pause).await;
        }
        std::future::pending::<()>().await;
    };
    // Bytes, as a text would be lost with a reset after it: a byte that drips after the close causes one.
    let mut reply = Vec::new();
    tokio::select! {
        () = drips => {}
        read = reader.read_to_end(&mut reply) => drop(read),
    }
    String::from_utf8_lossy(&reply).into_owned()
}

#[tokio::test]
async fn heads_that_drip_are_all_given_up_on_in_time() {
    let served = start(short());
    let stream = TcpStream::connect(served.addr).await.expect("accepted");
    let reply = timeout(Duration::from_secs(10), drip(stream, IDLE / 6)).await.expect("still open");
    assert!(reply.starts_with("HTTP/1.1 408 "), "{reply:?}");
    // The silence limit alone would let the connections go on for ever.
    let served = start(ServerLimits { header: IDLE * 2, ..ServerLimits::default() });
    let mut dripping = tokio::task::JoinSet::new();
    for _ in 0..200 {
        let stream = TcpStream::connect(served.addr).await.expect("accepted");
        dripping.spawn(drip(stream, IDLE / 30));
    }
    let replies = timeout(Duration::from_secs(30), dripping.join_all()).await;
    for reply in replies.expect("some are still open") {
        // A byte that arrives after the close discards the response.
        assert!(reply.is_empty() || reply.starts_with("HTTP/1.1 408 "), "{reply:?}");
    }
}

#[tokio::test]
async fn with_tls_the_handshake_counts() {
    let limits = ServerLimits { handshake: IDLE, ..ServerLimits::default() };
    let (served, pair) = start_tls(limits);
    let hello = TcpStream::connect(served.addr).await.expect("accepted");
    let silent = dial(&served, pair.client(b"http/1.1")).await.expect("a handshake");
    let mut half = dial(&served, pair.client(b"http/1.1")).await.expect("a handshake");
    half.write_all(b"GET / HTTP/1.1\r\n").await.expect("sent");
    assert_eq!([rest(hello).await, rest(silent).await], ["", ""]);
    let told = rest(half).await;
    assert!(told.starts_with("HTTP/1.1 408 "), "{told:?}");
}

#[tokio::test]
async fn a_head_with_an_uncertain_end_is_refused_and_what_came_before_it_answered() {
    let served = start(ServerLimits::default());
    // In which ways an end is uncertain: `heads/tests.rs`.
    let post = "POST /echo HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n";
    let body = "5\r\nhello\r\n0\r\n\r\n";
    let odd = format!("{post}content-length: 4\r\n\r\n{body}{body}");
    let told = exchange(&served, odd.as_bytes()).await;
    assert!(told.starts_with("HTTP/1.1 400 "), "{told:?}");
    assert_eq!(told.matches("HTTP/1.1 400 ").count(), 1, "{told:?}");
    assert!(told.contains("\r\nconnection: close\r\n"), "{told:?}");
    assert!(told.contains("\r\nx-id: 7\r\n"), "{told:?}");
    let told = exchange(&served, format!("{post}\r\n{body}{odd}").as_bytes()).await;
    let statuses: Vec<&str> = told.split("HTTP/1.1 ").skip(1).map(|one| &one[..3]).collect();
    assert_eq!(statuses, ["200", "400"], "{told:?}");
    assert!(told.contains("\r\n\r\nhelloHTTP/1.1 400"), "{told:?}");
}

#[tokio::test]
async fn what_is_left_of_a_refused_body_is_no_half_request() {
    let served = start(short());
    let mut stream = TcpStream::connect(served.addr).await.expect("accepted");
    let head = b"POST /before HTTP/1.1\r\nhost: a\r\ncontent-length: 8\r\n\r\nhalf";
    stream.write_all(head).await.expect("sent");
    let mut reply = vec![0; 1024];
    let read = stream.read(&mut reply).await.expect("answered");
    assert!(reply[..read].starts_with(b"HTTP/1.1 200"), "{:?}", &reply[..read]);
    stream.write_all(b"half").await.expect("sent");
    assert_eq!(rest(stream).await, "", "nothing was asked");
}

/// Opens a client connection with TLS.
async fn dial(
    served: &Served,
    client: rustls::ClientConfig,
) -> io::Result<tokio_rustls::client::TlsStream<TcpStream>> {
    let connector = tokio_rustls::TlsConnector::from(Arc::new(client));
    let stream = TcpStream::connect(served.addr).await.expect("accepted");
    connector.connect("site.example".try_into().expect("a name"), stream).await
}

#[tokio::test]
async fn with_tls_both_versions_are_offered_and_clear_text_is_told_so() {
    let (served, pair) = start_tls(ServerLimits::default());
    for protocol in [&b"http/1.1"[..], b"h2"] {
        let stream = dial(&served, pair.client(protocol)).await.expect("a handshake");
        assert_eq!(stream.get_ref().1.alpn_protocol(), Some(protocol));
    }
    let mut stream = dial(&served, pair.client(b"http/1.1")).await.expect("a handshake");
    stream.write_all(GET).await.expect("sent");
    assert!(rest(stream).await.starts_with("HTTP/1.1 200 OK\r\n"));
    let told = exchange(&served, b"GET / HTTP/1.1\r\nhost: a\r\n\r\n").await;
    assert!(told.starts_with("HTTP/1.1 400 "), "{told}");
    assert!(told.ends_with("\r\n\r\nthis port speaks HTTPS"), "{told}");
}
