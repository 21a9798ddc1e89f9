//! Tests of a client with the same libraries against a router; long because of tests on raw streams.

use std::{net::SocketAddr, sync::atomic::AtomicUsize, sync::atomic::Ordering};

use axum::{
    Router,
    body::Body as AxumBody,
    extract::DefaultBodyLimit,
    routing::{get, post},
};
use bytes::Buf;
use h3::error::StreamError;
use http::{HeaderMap, Request, StatusCode, Version};
use http_body::Frame;
use http_body_util::BodyExt;
use quinn::{ClientConfig, crypto::rustls::QuicClientConfig};
use tokio::task::JoinHandle;

use super::*;
use crate::{ConnectionLimits, certificate::tests::Pair};

type SendRequest = h3::client::SendRequest<h3_quinn::OpenStreams, Bytes>;

struct Served {
    pair: Pair,
    addr: SocketAddr,
    working: Arc<AtomicUsize>,
    given_up: Arc<AtomicUsize>,
}

/// Guard that counts its drops.
struct Leaving(Arc<AtomicUsize>);

impl Drop for Leaving {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

struct Client {
    quic: quinn::Connection,
    requests: SendRequest,
    _endpoint: Endpoint,
}

struct Reply {
    status: StatusCode,
    body: Vec<u8>,
}

fn start(limits: ServerLimits, connections: usize) -> Served {
    let (working, given_up) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let counted = Arc::clone(&working);
    let slow = move || async move {
        counted.fetch_add(1, Ordering::Relaxed);
        tokio::time::sleep(Duration::from_millis(300)).await;
        "slow"
    };
    let (begun, left) = (Arc::clone(&working), Arc::clone(&given_up));
    let never = move || async move {
        begun.fetch_add(1, Ordering::Relaxed);
        let _guard = Leaving(left);
        std::future::pending::<()>().await
    };
    // Reads one part and gives up while waiting for more.
    let some = |mut body: AxumBody| async move {
        let first = body.frame().await.expect("a part").expect("whole");
        let first = first.into_data().expect("data");
        let more = timeout(Duration::from_millis(50), body.frame()).await;
        assert!(more.is_err(), "nothing more has come");
        first
    };
    // Reads one part, and then waits until the request is cancelled.
    let parked = |mut body: AxumBody| async move {
        drop(body.frame().await);
        std::future::pending::<()>().await;
        drop(body);
    };
    let router = Router::new()
        .route(
            "/",
            get(|request: Request<AxumBody>| async move {
                assert_eq!(request.version(), Version::HTTP_3);
                "ok"
            }),
        )
        .route("/echo", post(|body: Bytes| async move { body }))
        .route("/unread", post(|| async { (StatusCode::FORBIDDEN, "no") }))
        .route("/slow", get(slow))
        .route("/broken", post(|_: Bytes| async { AxumBody::new(Broken(false)) }))
        .route("/some", post(some))
        .route("/never", get(never))
        .route("/parked", post(parked))
        .route("/large", get(|| async { Bytes::from_static(&[7; 16 << 20]) }))
        .layer(DefaultBodyLimit::max(64 << 20));
    let pair = Pair::new("site.example");
    let certificate = ReloadingCertificate::open(pair.files()).expect("a pair");
    let listener = QuicListener::bind(([127, 0, 0, 1], 0).into(), &certificate, limits);
    let listener = listener.expect("a free port");
    let addr = listener.local_addr().expect("bound");
    let limiter =
        ConnectionLimiter::new(ConnectionLimits { total: connections, per_address: connections });
    let site = ServiceConfig { router, limits, elsewhere: None, refusal_headers: HeaderMap::new };
    tokio::spawn(serve_quic(listener, site, limiter, ShutdownSignals::default()));
    Served { pair, addr, working, given_up }
}

/// Body that breaks off after its first part; true once that is out.
struct Broken(bool);

impl Body for Broken {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<std::io::Result<Frame<Bytes>>>> {
        Poll::Ready(Some(match std::mem::replace(&mut self.0, true) {
            true => Err(std::io::Error::other("broken")),
            false => Ok(Frame::data(Bytes::from_static(b"begun"))),
        }))
    }
}

impl Served {
    async fn quic(&self) -> (Endpoint, quinn::Connection) {
        self.quic_of(EndpointConfig::default(), TransportConfig::default()).await
    }

    async fn quic_of(
        &self,
        endpoint: EndpointConfig,
        transport: TransportConfig,
    ) -> (Endpoint, quinn::Connection) {
        let crypto = QuicClientConfig::try_from(self.pair.client(b"h3")).expect("TLS 1.3");
        let mut config = ClientConfig::new(Arc::new(crypto));
        config.transport_config(Arc::new(transport));
        let socket = UdpSocket::bind(("127.0.0.1", 0)).expect("a port");
        let runtime = Arc::new(quinn::TokioRuntime);
        let mut endpoint = Endpoint::new(endpoint, None, socket, runtime).expect("an endpoint");
        endpoint.set_default_client_config(config);
        let connecting = endpoint.connect(self.addr, "site.example").expect("a name");
        (endpoint, connecting.await.expect("a handshake"))
    }

    async fn client(&self) -> Client {
        Client::new(self.quic().await).await
    }
}

impl Client {
    async fn new((endpoint, quic): (Endpoint, quinn::Connection)) -> Client {
        let made = h3::client::new(h3_quinn::Connection::new(quic.clone())).await;
        let (mut driver, requests) = made.expect("HTTP/3");
        tokio::spawn(async move { driver.wait_idle().await });
        Client { quic, requests, _endpoint: endpoint }
    }

    async fn ask(&mut self, request: Request<()>, parts: Vec<Bytes>) -> Result<Reply, StreamError> {
        ask(&mut self.requests, request, parts).await
    }

    /// Asks for what takes a while; returns once the server works on it.
    async fn ask_slowly(&self, served: &Served) -> JoinHandle<Result<Reply, StreamError>> {
        let mut requests = self.requests.clone();
        let asking = async move { ask(&mut requests, plain("GET", "/slow"), Vec::new()).await };
        let asking = tokio::spawn(asking);
        until(&served.working, 1).await;
        asking
    }
}

async fn ask(
    requests: &mut SendRequest,
    request: Request<()>,
    parts: Vec<Bytes>,
) -> Result<Reply, StreamError> {
    let mut stream = requests.send_request(request).await?;
    for part in parts {
        // A server that stops reading sends STOP_SENDING and still responds.
        if stream.send_data(part).await.is_err() {
            break;
        }
    }
    stream.finish().await.ok();
    let response = stream.recv_response().await?;
    let mut body = Vec::new();
    while let Some(data) = stream.recv_data().await? {
        body.extend_from_slice(data.chunk());
    }
    Ok(Reply { status: response.status(), body })
}

/// Waits until `count` has reached `least`.
async fn until(count: &AtomicUsize, least: usize) {
    let reached = async {
        while count.load(Ordering::Relaxed) < least {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(Duration::from_secs(20), reached).await.expect("in time");
}

fn to(method: &str, path: &str) -> http::request::Builder {
    Request::builder().method(method).uri(format!("https://site.example{path}"))
}

fn plain(method: &str, path: &str) -> Request<()> {
    to(method, path).body(()).expect("a request")
}

fn parts(bytes: usize) -> Vec<Bytes> {
    let pattern: Vec<u8> = (0..=250).cycle().take(bytes).collect();
    pattern.chunks(100_000).map(Bytes::copy_from_slice).collect()
}

#[tokio::test]
async fn requests_are_answered_small_and_large() {
    let served = start(ServerLimits::default(), 64);
    let mut client = served.client().await;
    let reply = client.ask(plain("GET", "/"), Vec::new()).await.expect("answered");
    assert_eq!((reply.status, &reply.body[..]), (StatusCode::OK, &b"ok"[..]));
    for bytes in [0, 1, 4_000, 5_000, 70_000, 5_000_000] {
        let sent = parts(bytes);
        let reply = client.ask(plain("POST", "/echo"), sent.clone()).await.expect("answered");
        assert_eq!(reply.status, StatusCode::OK, "{bytes}");
        assert!(reply.body == sent.concat(), "{bytes} bytes come back as they went");
    }
}

#[tokio::test]
async fn datagrams_are_as_large_as_the_path_and_the_peer_take() {
    let served = start(ServerLimits::default(), 64);
    for bytes in [1472, DATAGRAM_BYTES] {
        let mut sizes = EndpointConfig::default();
        sizes.max_udp_payload_size(bytes).expect("a size");
        let mut client =
            Client::new(served.quic_of(sizes, transport(ServerLimits::default())).await).await;
        let reply = client.ask(plain("POST", "/echo"), parts(5_000_000)).await.expect("answered");
        assert_eq!(reply.body.len(), 5_000_000);
        let stats = client.quic.stats();
        let mean = stats.udp_rx.bytes / stats.udp_rx.datagrams;
        assert!(stats.path.current_mtu > 1472, "{} go", stats.path.current_mtu);
        assert!(mean <= u64::from(bytes), "{mean} came of at most {bytes}");
        assert_eq!(mean > 1472, bytes > 1472, "{mean} came of at most {bytes}");
    }
}

#[tokio::test]
async fn every_head_has_its_answer_and_a_reset_is_of_one_stream_alone() {
    let served = start(ServerLimits::default(), 64);
    let mut client = served.client().await;
    let (large, some) = ("a".repeat(70_000), ("x-a", "b"));
    for (path, (name, value), expected) in [
        ("/echo", ("content-length", "3"), Ok(StatusCode::OK)),
        ("/echo", ("content-length", "4"), Ok(StatusCode::BAD_REQUEST)),
        ("/echo", ("content-length", "2"), Ok(StatusCode::BAD_REQUEST)),
        ("/echo", ("x-pad", &*large), Ok(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE)),
        ("/nowhere", some, Ok(StatusCode::NOT_FOUND)),
        ("/echo", ("content-length", "+3"), Err(Code::H3_MESSAGE_ERROR)),
        ("/echo", ("connection", "close"), Err(Code::H3_MESSAGE_ERROR)),
        ("/echo", ("te", "gzip"), Err(Code::H3_MESSAGE_ERROR)),
        ("/broken", some, Err(Code::H3_INTERNAL_ERROR)),
    ] {
        let request = to("POST", path).header(name, value).body(()).expect(path);
        let found = match client.ask(request, vec!["abc".into()]).await {
            Ok(reply) => Ok(reply.status),
            Err(StreamError::RemoteTerminate { code, .. }) => Err(code),
            Err(error) => panic!("{path}, {name}: {value:.9}: {error}"),
        };
        assert_eq!(found, expected, "{path}, {name}: {value:.9}");
    }
    assert!(client.ask(plain("GET", "/"), Vec::new()).await.is_ok(), "the connection stands");
}

#[tokio::test]
async fn an_unread_body_is_stopped_and_the_answer_arrives() {
    let served = start(ServerLimits::default(), 64);
    let mut client = served.client().await;
    let mut stream = client.requests.send_request(plain("POST", "/unread")).await.expect("sent");
    let stopped = async {
        while stream.send_data(Bytes::from_static(&[7; 10_000])).await.is_ok() {
            tokio::task::yield_now().await;
        }
    };
    timeout(Duration::from_secs(20), stopped).await.expect("the server stops the body");
    let response = stream.recv_response().await.expect("answered");
    assert_eq!(response.status(), StatusCode::FORBIDDEN);
    let reply = client.ask(plain("GET", "/"), Vec::new()).await.expect("the connection stands");
    assert_eq!(reply.status, StatusCode::OK);
}

#[tokio::test]
async fn a_full_server_says_so() {
    let served = start(ServerLimits::default(), 1);
    let mut first = served.client().await;
    let working = first.ask_slowly(&served).await;
    let (_endpoint, quic) = served.quic().await;
    let closed = quic.closed().await;
    let quinn::ConnectionError::ApplicationClosed(close) = closed else { panic!("{closed}") };
    assert_eq!(close.error_code, code(Code::H3_EXCESSIVE_LOAD));
    assert_eq!(working.await.expect("no panic").expect("answered").status, StatusCode::OK);
    assert!(first.ask(plain("GET", "/"), Vec::new()).await.is_ok());
}

/// Starts a server with a short idle limit, in which 64 KiB must move.
fn impatient() -> Served {
    start(ServerLimits { idle: Duration::from_millis(300), ..ServerLimits::default() }, 64)
}

#[tokio::test]
async fn a_body_that_drips_is_answered_before_its_end_and_a_connection_of_no_use_closed() {
    let served = impatient();
    let mut client = served.client().await;
    let stream = client.requests.send_request(plain("POST", "/echo")).await.expect("sent");
    let (mut sending, mut receiving) = stream.split();
    let drips = async {
        while sending.send_data(Bytes::from_static(b"a")).await.is_ok() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        std::future::pending::<()>().await;
    };
    let answered = async {
        tokio::select! { () = drips => unreachable!("it waits"), it = receiving.recv_response() => it }
    };
    let response = timeout(Duration::from_secs(20), answered).await.expect("given up on");
    assert_eq!(response.expect("answered").status(), StatusCode::REQUEST_TIMEOUT);
    assert!(client.ask(plain("GET", "/"), Vec::new()).await.is_ok(), "the connection stands");
    timeout(Duration::from_secs(20), client.quic.closed()).await.expect("of no use, it is closed");
}

#[tokio::test]
async fn an_answer_that_is_taken_too_slowly_is_reset_alone() {
    let served = impatient();
    let mut narrow = TransportConfig::default();
    // Window of bytes in flight: at most this many are taken with each read.
    narrow.stream_receive_window((16_u32 << 10).into());
    let mut client = Client::new(served.quic_of(EndpointConfig::default(), narrow).await).await;
    let mut stream = client.requests.send_request(plain("GET", "/large")).await.expect("sent");
    stream.finish().await.expect("sent");
    assert_eq!(stream.recv_response().await.expect("answered").status(), StatusCode::OK);
    let taken = async {
        let mut bytes = 0;
        loop {
            match stream.recv_data().await {
                Ok(Some(data)) => bytes += data.remaining(),
                Ok(None) => panic!("all {bytes} bytes were sent"),
                Err(error) => return error,
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    };
    let error = timeout(Duration::from_secs(20), taken).await.expect("given up on");
    let StreamError::RemoteTerminate { code, .. } = error else { panic!("not reset: {error}") };
    assert_eq!(code, Code::H3_REQUEST_CANCELLED);
    assert!(client.ask(plain("GET", "/"), Vec::new()).await.is_ok(), "the connection stands");
}

/// Returns the head of a POST without content-length to `path` (RFC 9204 3.1, 4.5).
fn raw_head(path: &str) -> Vec<u8> {
    let mut block = vec![0, 0, 0xc0 | 20, 0xc0 | 23, 0x50, 1, b'a', 0x51, path.len() as u8];
    block.extend_from_slice(path.as_bytes());
    [&[1, block.len() as u8], &block[..]].concat()
}

/// Returns the payload of DATA frames in `stream`; no frame is longer than 63 bytes.
fn data_in(mut stream: &[u8]) -> Vec<u8> {
    let mut data = Vec::new();
    while let [kind, length, rest @ ..] = stream {
        let (payload, rest) = rest.split_at(usize::from(*length));
        if *kind == 0 {
            data.extend_from_slice(payload);
        }
        stream = rest;
    }
    data
}

#[tokio::test]
async fn a_body_is_its_data_however_it_is_framed() {
    let served = start(ServerLimits::default(), 64);
    let singles: Vec<u8> = b"one by one".iter().flat_map(|byte| [0, 1, *byte]).collect();
    let rows: [(&str, &[u8], &[u8]); 7] = [
        ("nothing", b"", b""),
        ("one frame", b"\0\x03abc", b"abc"),
        ("empty ones between", b"\0\0\0\0\0\x01a\0\0\0\0\0\x02bc\0\0\0\0", b"abc"),
        ("only empty ones", b"\0\0\0\0\0\0\0\0", b""),
        ("unknown ones between", b"\x21\x03xyz\0\x03abc\x40\x40\0", b"abc"),
        ("trailers", b"\0\x03abc\x01\x07\0\0\x21x\x02ok", b"abc"),
        ("a byte a frame", &singles, b"one by one"),
    ];
    for (case, frames, body) in rows {
        let (_endpoint, quic) = served.quic().await;
        let (mut send, mut receive) = quic.open_bi().await.expect("a stream");
        send.write_all(&[&raw_head("/echo"), frames].concat()).await.expect("sent");
        send.finish().expect("open");
        let reply = receive.read_to_end(1 << 16).await.expect(case);
        assert_eq!(data_in(&reply), body, "{case}");
    }
}

#[tokio::test]
async fn a_body_that_is_left_half_read_is_stopped() {
    let served = start(ServerLimits::default(), 64);
    let mut client = served.client().await;
    let mut stream = client.requests.send_request(plain("POST", "/some")).await.expect("sent");
    stream.send_data(Bytes::from_static(b"first")).await.expect("sent");
    assert_eq!(stream.recv_response().await.expect("answered").status(), StatusCode::OK);
    let data = stream.recv_data().await.expect("whole").expect("a part");
    assert_eq!(data.chunk(), b"first");
    let stopped = async { while stream.send_data(Bytes::from_static(b"more")).await.is_ok() {} };
    timeout(Duration::from_secs(20), stopped).await.expect("the server stops the body");
    assert!(client.ask(plain("GET", "/"), Vec::new()).await.is_ok());
}

#[tokio::test]
async fn frames_of_a_byte_are_not_gathered_without_bound() {
    let served = start(ServerLimits::default(), 64);
    let (_endpoint, quic) = served.quic().await;
    quic.set_send_window(64 << 10);
    let (mut send, _receive) = quic.open_bi().await.expect("a stream");
    send.write_all(&raw_head("/parked")).await.expect("sent");
    let frames = [0, 1, b'a'].repeat(10_000);
    let mut sent = 0;
    while let Ok(all) = timeout(Duration::from_secs(2), send.write_all(&frames)).await {
        all.expect("open");
        sent += frames.len();
        assert!(sent < 4 << 20, "{sent} bytes were taken");
    }
}

#[tokio::test]
async fn what_nobody_waits_for_any_more_is_given_up() {
    let served = start(ServerLimits::default(), 64);
    let mut client = served.client().await;
    let mut stream = client.requests.send_request(plain("GET", "/never")).await.expect("sent");
    until(&served.working, 1).await;
    stream.stop_sending(Code::H3_REQUEST_CANCELLED);
    until(&served.given_up, 1).await;
    let _other = client.requests.send_request(plain("GET", "/never")).await.expect("sent");
    until(&served.working, 2).await;
    client.quic.close(code(Code::H3_NO_ERROR), b"");
    until(&served.given_up, 2).await;
}
