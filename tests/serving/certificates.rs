//! Certificates: shown, replaced under way, made for development.

use std::time::Instant;

use http_body_util::Full;
use hyper_util::rt::TokioIo;

use super::client::{Call, Client, Pair, Version, served};
use crate::support::{PATIENCE, Setup};

#[test]
fn a_new_certificate_is_shown_and_open_connections_stay() {
    let (dir, served) = served();
    let Client { tcp, udp, .. } = served.client;
    let health = Call::get("/v1/health");
    served.client.runtime.block_on(async {
        let io = TokioIo::new(served.client.dial(b"http/1.1").await.expect("TLS"));
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(io).await.expect("HTTP/1.1");
        tokio::spawn(connection);
        let (_quic, mut requests) = served.client.http3().await;
        let next = Pair::new(dir.path());
        let mut newcomer = Client::new(tcp, &next.der);
        newcomer.udp = udp;
        let started = Instant::now();
        while newcomer.dial(b"http/1.1").await.is_err() {
            assert!(started.elapsed() < PATIENCE, "the new certificate is not shown");
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        }
        let (_newer, mut newer) = newcomer.http3().await;
        let request = health.request(Version::Http1).map(|()| Full::<bytes::Bytes>::default());
        assert_eq!(sender.send_request(request).await.expect("still open").status(), 200);
        for requests in [&mut requests, &mut newer] {
            let answer = super::client::exchange(requests, &health).await.expect("open");
            assert_eq!(answer.status, 200);
        }
        // Shut down where it may wait.
        tokio::task::spawn_blocking(move || drop(newcomer)).await.expect("no panic");
    });
}

#[test]
fn what_cannot_be_shown_stops_the_start() {
    let dir = tempfile::tempdir().expect("a directory");
    let pair = Pair::new(dir.path());
    let setup = Setup::new(dir.path())
        .var("SERVICE_TLS_CERT_PATH", &pair.chain.display().to_string())
        .var("SERVICE_TLS_KEY_PATH", "/nonexistent");
    for argument in [None, Some("--check-config")] {
        let output = setup.command().args(argument).output().expect("it runs");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{argument:?}: {said}");
        assert!(said.contains("cannot read a key"), "{argument:?}: {said}");
    }
}
