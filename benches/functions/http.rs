//! Requests over loopback to a router that says little: what serving costs before a route does anything.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
};

use axum::{Router, routing::get};
use bytes::Bytes;
use criterion::{Criterion, Throughput};
use http::{HeaderMap, Request};
use http_body_util::{BodyExt, Empty};
use hyper::client::conn::http2::{SendRequest, handshake};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::runtime::Runtime;
use transport::{
    ConnectionLimiter, ConnectionLimits, Listener, ServerLimits, ServiceConfig, ShutdownSignals,
    serve,
};

/// Requests at once on a connection of HTTP/2.
const AT_ONCE: u64 = 32;

fn start(runtime: &Runtime) -> SocketAddr {
    let _inside = runtime.enter();
    let listener = Listener::bind(([127, 0, 0, 1], 0).into()).expect("a free port");
    let addr = listener.local_addr().expect("bound");
    let router = Router::new().route("/", get(|| async { "ok" }));
    let limits = ServerLimits::default();
    let site = ServiceConfig { router, limits, elsewhere: None, refusal_headers: HeaderMap::new };
    let limiter = ConnectionLimiter::new(ConnectionLimits { total: 64, per_address: 64 });
    runtime.spawn(serve(listener, site, limiter, ShutdownSignals::default()));
    addr
}

async fn connect(addr: SocketAddr) -> SendRequest<Empty<Bytes>> {
    let stream = tokio::net::TcpStream::connect(addr).await.expect("accepted");
    stream.set_nodelay(true).expect("a socket");
    let shaken = handshake(TokioExecutor::new(), TokioIo::new(stream)).await;
    let (requests, connection) = shaken.expect("HTTP/2");
    tokio::spawn(connection);
    requests
}

async fn ask(mut requests: SendRequest<Empty<Bytes>>) -> Bytes {
    let request = Request::get("http://localhost/").body(Empty::new()).expect("a request");
    let response = requests.send_request(request).await.expect("answered");
    response.into_body().collect().await.expect("whole").to_bytes()
}

pub fn serving(criterion: &mut Criterion) {
    let runtime = Runtime::new().expect("a runtime");
    let addr = start(&runtime);
    let mut group = criterion.benchmark_group("http");
    let mut stream = TcpStream::connect(addr).expect("accepted");
    let mut answer = [0; 1024];
    group.bench_function("HTTP/1.1, one after the other", |bench| {
        bench.iter(|| {
            stream.write_all(b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n").expect("sent");
            let mut end = 0;
            while !answer[..end].ends_with(b"\r\n\r\nok") {
                end += stream.read(&mut answer[end..]).expect("answered");
            }
        });
    });
    let requests = runtime.block_on(connect(addr));
    group.throughput(Throughput::Elements(AT_ONCE));
    group.bench_function("HTTP/2, 32 at once", |bench| {
        bench.iter(|| {
            let asking = (0..AT_ONCE).map(|_| runtime.spawn(ask(requests.clone())));
            for answer in asking.collect::<Vec<_>>() {
                assert_eq!(runtime.block_on(answer).expect("no panic"), "ok");
            }
        });
    });
}
