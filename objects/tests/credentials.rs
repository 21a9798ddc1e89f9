//! Tests of container credentials, and of a store behind TLS.
#![allow(missing_docs)]

mod support;

use std::{
    io::{Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    sync::Arc,
    thread,
};

use s3_server::{ACCESS_KEY, SECRET_KEY};
use support::{Size as _, World, upload};
use timeline::RemoteFault;
use tokio_rustls::TlsAcceptor;

/// Serves a new port: answers each request with `status` and `body`, until the test ends.
fn answering(status: &'static str, body: String) -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let address = listener.local_addr().expect("an address");
    let answer = move |mut stream: TcpStream| {
        let (mut request, mut byte) = (Vec::new(), [0]);
        while !request.ends_with(b"\r\n\r\n") && stream.read(&mut byte)? > 0 {
            request.push(byte[0]);
        }
        let length = body.len();
        write!(stream, "HTTP/1.1 {status}\r\ncontent-length: {length}\r\n\r\n{body}")
    };
    let serve = move || listener.incoming().flatten().for_each(|stream| drop(answer(stream)));
    thread::Builder::new().name("credentials".into()).spawn(serve).expect("a thread");
    address
}

#[test]
fn a_container_is_given_credentials() {
    let world = World::new();
    let token = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(token.path(), "token-of-the-container").expect("written");
    let client = |address: SocketAddr| {
        let url = format!("http://{address}/v1/credentials");
        let variables = [
            ("AWS_CONTAINER_CREDENTIALS_FULL_URI", url.as_str()),
            ("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", token.path().to_str().expect("a path")),
        ];
        world.client_at(&world.server.url(), "srv-1", &variables).folder("stills")
    };
    let given = |key: &str| {
        format!(
            r#"{{"AccessKeyId": "{key}", "SecretAccessKey": "{SECRET_KEY}", "Token": "token-1",
                "Expiration": "2999-01-01T00:00:00Z"}}"#
        )
    };
    let file = world.file(1, 100);
    let stills = client(answering("200 OK", given(ACCESS_KEY)));
    upload(&*stills, &file).expect("stored");
    assert_eq!(stills.size(&file.0), Ok(Some(100)));
    // None of these errors may count as a missing file.
    for (status, body, fault) in [
        ("404 Not Found", String::new(), RemoteFault::Failed),
        ("403 Forbidden", "no token-of-the-container".to_owned(), RemoteFault::Denied),
        ("200 OK", r#"{"AccessKeyId": "half"#.to_owned(), RemoteFault::Failed),
        (
            "200 OK",
            r#"{"AccessKeyId": 1, "SecretAccessKey": "sec-1"}"#.to_owned(),
            RemoteFault::Failed,
        ),
        ("200 OK", given("unknown-key"), RemoteFault::Denied),
    ] {
        let error = client(answering(status, body)).size(&file.0).expect_err(status);
        assert_eq!(error.fault, fault, "{error}");
        for secret in ["token-of", "sec-1", "unknown-key", "half"] {
            assert!(!error.detail.contains(secret), "{error}");
        }
    }
}

#[test]
fn a_certificate_that_nobody_vouches_for_is_told() {
    let world = World::new();
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("made");
    let key = made.signing_key.serialize_der().try_into().expect("a key");
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)
        .expect("a configuration");
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = world.runtime.block_on(tokio::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)));
    let listener = listener.expect("a port");
    let url = format!("https://localhost:{}", listener.local_addr().expect("an address").port());
    world.runtime.spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            acceptor.accept(stream).await.err();
        }
    });
    let variables = [("AWS_ACCESS_KEY_ID", ACCESS_KEY), ("AWS_SECRET_ACCESS_KEY", SECRET_KEY)];
    let stills = world.client_at(&url, "srv-1", &variables).folder("stills");
    let error = stills.size(&world.file(1, 100).0).expect_err("untrusted");
    assert_eq!(error.fault, RemoteFault::Unreachable);
    assert!(error.detail.contains("certificate"), "{error}");
}
