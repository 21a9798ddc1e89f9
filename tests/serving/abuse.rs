//! Peers that break the rules of QUIC and HTTP/3, or use them up: the others are served on.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use quinn::{TransportConfig, VarInt, crypto::rustls::QuicClientConfig};
use tokio::time::timeout;

use super::client::{Answer, Call, Client, PATIENCE, Served, Version, exchange};
use crate::support::Setup;

fn served() -> (tempfile::TempDir, Served) {
    let dir = tempfile::tempdir().expect("a directory");
    let served = Served::start(dir.path(), Setup::new(dir.path()));
    (dir, served)
}

async fn health(client: &Client) -> Answer {
    let (_quic, mut requests) = client.http3().await;
    exchange(&mut requests, &Call::get("/v1/health")).await.expect("answered")
}

/// The server's memory in MiB.
fn resident(served: &Served) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", served.server.pid()));
    let status = status.expect("it runs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a size");
    line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") / 1024
}

/// A GET of `/v1/health` by hand (RFC 9204 3.1, 4.5), with its frame.
fn head() -> Vec<u8> {
    let mut block = vec![0, 0, 0xc0 | 17, 0xc0 | 23, 0x50, 1, b'a', 0x51, 10];
    block.extend_from_slice(b"/v1/health");
    [&[1, block.len() as u8], &block[..]].concat()
}

/// What is said on one stream, and whether the stream goes both ways.
type Said<'a> = (&'a str, bool, &'a [u8]);

/// Each breaks the connection or its stream: RFC 9114 where no other is named.
const MALFORMED: [Said<'_>; 17] = [
    ("data before a head (4.1)", true, b"\0\x03abc"),
    ("settings on a request (7.2.4)", true, b"\x04\0"),
    ("goaway on a request (7.2.6)", true, b"\x07\x01\0"),
    ("a push promise of a client (7.2.5)", true, b"\x05\x01\0"),
    ("a frame type of HTTP/2 (7.2.8)", true, b"\x02\x01\0"),
    ("half a frame (7.1)", true, b"\x01\x40\x80\0\0"),
    ("no head at all (4.1)", true, b""),
    ("a head that is no QPACK (9204 2.2.3)", true, b"\x01\x04\xff\xff\xff\xff"),
    ("a reference to a table that is empty (9204 3.2)", true, b"\x01\x03\x02\0\x80"),
    ("a head without a method (4.3.1)", true, b"\x01\x03\0\0\xd7"),
    ("a control stream without settings (6.2.1)", false, b"\0\x07\x01\0"),
    ("data on the control stream (7.2.1)", false, b"\0\x04\0\0\x01a"),
    ("a control stream that ends (6.2.1)", false, b"\0\x04\0"),
    ("settings of HTTP/2 (7.2.4.1)", false, b"\0\x04\x02\x02\0"),
    ("an endless frame on the control stream", false, b"\0\x04\0\x21\xbf\xff\xff\xff"),
    ("a push stream of a client (6.2.2)", false, b"\x01\0"),
    ("a stream type that nobody knows (6.2.3)", false, b"\x40\x54hello"),
];

#[test]
fn malformed_frames_harm_nobody_else() {
    let (_dir, served) = served();
    let client = &served.client;
    client.runtime.block_on(async {
        let (_bystander, mut bystander) = client.http3().await;
        for (case, is_bidi, bytes) in MALFORMED {
            let quic = client.quic().await;
            let (mut send, receive) = if is_bidi {
                let (send, receive) = quic.open_bi().await.expect(case);
                (send, Some(receive))
            } else {
                (quic.open_uni().await.expect(case), None)
            };
            send.write_all(bytes).await.expect(case);
            send.finish().expect(case);
            if let Some(mut receive) = receive {
                let end = timeout(PATIENCE, receive.read_to_end(1 << 16)).await.expect(case);
                assert!(!end.is_ok_and(|answer| answer.starts_with(b"\x01")), "answered: {case}");
            }
            let answer = exchange(&mut bystander, &Call::get("/v1/health")).await.expect(case);
            assert_eq!(answer.status, 200, "{case}");
        }
        let by_hand = client.quic().await;
        let (mut send, mut receive) = by_hand.open_bi().await.expect("a stream");
        send.write_all(&head()).await.expect("sent");
        send.finish().expect("open");
        let answer = receive.read_to_end(1 << 16).await.expect("answered");
        assert_eq!(answer.first(), Some(&1), "what breaks no rule is answered");
    });
}

#[test]
fn heads_without_an_end_and_noise_cost_nothing() {
    let (_dir, served) = served();
    let client = &served.client;
    client.runtime.block_on(async {
        let noise = tokio::net::UdpSocket::bind("127.0.0.1:0").await.expect("a port");
        for at in 0..5_000_u32 {
            // Long headers of a version that is served, others', and short ones (RFC 9000 17).
            let mut packet = vec![[0xc0, 0xff, 0x40, 0][at as usize % 4]];
            packet.extend_from_slice(&[0, 0, 0, (at % 2) as u8, 8]);
            packet.extend(std::iter::repeat_n((at % 251) as u8, 1195));
            noise.send_to(&packet, client.udp).await.expect("sent");
        }
        let quic = client.quic().await;
        let (mut send, _receive) = quic.open_bi().await.expect("a stream");
        send.write_all(&[0x01, 0xbf, 0xff, 0xff, 0xff]).await.expect("sent");
        let endless = async { while send.write_all(&[0; 10_000]).await.is_ok() {} };
        timeout(PATIENCE, endless).await.expect("the server ends it");
        assert_eq!(health(client).await.status, 200);
    });
    let rss = resident(&served);
    assert!(rss < 200, "{rss} MiB");
}

#[test]
fn a_flood_of_resets_is_served_by_nobody() {
    let (_dir, served) = served();
    let client = &served.client;
    client.runtime.block_on(async {
        let quic = client.quic().await;
        let flood = async {
            for _ in 0..20_000 {
                let Ok((mut send, mut receive)) = quic.open_bi().await else { break };
                if send.write_all(&head()).await.is_err() {
                    break;
                }
                // Either may be over already.
                send.reset(VarInt::from_u32(0x10c)).ok();
                receive.stop(VarInt::from_u32(0x10c)).ok();
            }
        };
        timeout(PATIENCE, flood).await.expect("the streams are taken or the connection is ended");
        let started = Instant::now();
        assert_eq!(health(client).await.status, 200);
        assert!(started.elapsed() < PATIENCE);
    });
    let rss = resident(&served);
    assert!(rss < 300, "{rss} MiB");
}

#[test]
fn readers_that_do_not_read_keep_little() {
    let (_dir, served) = served();
    let client = &served.client;
    client.runtime.block_on(async {
        let mut transport = TransportConfig::default();
        transport.stream_receive_window(1024_u32.into());
        let crypto = QuicClientConfig::try_from(client.tls(b"h3")).expect("TLS 1.3");
        let mut config = quinn::ClientConfig::new(Arc::new(crypto));
        config.transport_config(Arc::new(transport));
        let mut endpoint = quinn::Endpoint::client(([127, 0, 0, 1], 0).into()).expect("a port");
        endpoint.set_default_client_config(config);
        let mut kept = Vec::new();
        for _ in 0..16 {
            let connecting = endpoint.connect(client.udp, "localhost").expect("a name");
            let quic = connecting.await.expect("a handshake");
            let made = h3::client::new(h3_quinn::Connection::new(quic)).await;
            let (mut driver, mut requests) = made.expect("HTTP/3");
            let driving = tokio::spawn(async move { driver.wait_idle().await });
            for _ in 0..100 {
                let call = Call::get("/v1/openapi.json").request(Version::Http3);
                let mut stream = requests.send_request(call).await.expect("sent");
                stream.finish().await.expect("sent");
                kept.push(stream);
            }
            drop(driving);
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(health(client).await.status, 200);
        let rss = resident(&served);
        assert!(rss < 400, "{rss} MiB for {} answers", kept.len());
    });
}
