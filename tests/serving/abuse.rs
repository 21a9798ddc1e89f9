//! Peers that break the rules of QUIC and HTTP/3, or use them up: the others are served on.

use quinn::{ConnectionError, TransportConfig, VarInt};
use tokio::time::timeout;

use super::client::{Answer, Call, Client, Version, exchange, http3, served};
use crate::support::PATIENCE;

async fn health(client: &Client) -> Answer {
    let (_quic, mut requests) = client.http3().await;
    exchange(&mut requests, &Call::get("/v1/health")).await.expect("answered")
}

/// A GET of `/v1/health` by hand (RFC 9204 3.1, 4.5), with its frame.
fn head() -> Vec<u8> {
    let mut block = vec![0, 0, 0xc0 | 17, 0xc0 | 23, 0x50, 1, b'a', 0x51, 10];
    block.extend_from_slice(b"/v1/health");
    [&[1, block.len() as u8], &block[..]].concat()
}

/// The stream that something is said on.
#[derive(Clone, Copy, PartialEq, Eq)]
enum On {
    Request,
    /// One of the client's own, which ends the connection where a rule is broken.
    OneWay,
    /// One of the client's own that is not read further, and ends nothing.
    Ignored,
}

/// RFC 9114 where no other is named.
const MALFORMED: [(&str, On, &[u8]); 17] = [
    ("data before a head (4.1)", On::Request, b"\0\x03abc"),
    ("settings on a request (7.2.4)", On::Request, b"\x04\0"),
    ("goaway on a request (7.2.6)", On::Request, b"\x07\x01\0"),
    ("a push promise of a client (7.2.5)", On::Request, b"\x05\x01\0"),
    ("a frame type of HTTP/2 (7.2.8)", On::Request, b"\x02\x01\0"),
    ("half a frame (7.1)", On::Request, b"\x01\x40\x80\0\0"),
    ("no head at all (4.1)", On::Request, b""),
    ("a head that is no QPACK (9204 2.2.3)", On::Request, b"\x01\x04\xff\xff\xff\xff"),
    ("a reference to a table that is empty (9204 3.2)", On::Request, b"\x01\x03\x02\0\x80"),
    ("a head without a method (4.3.1)", On::Request, b"\x01\x03\0\0\xd7"),
    ("a control stream without settings (6.2.1)", On::OneWay, b"\0\x07\x01\0"),
    ("data on the control stream (7.2.1)", On::OneWay, b"\0\x04\0\0\x01a"),
    ("a control stream that ends (6.2.1)", On::OneWay, b"\0\x04\0"),
    ("settings of HTTP/2 (7.2.4.1)", On::OneWay, b"\0\x04\x02\x02\0"),
    ("an endless frame on the control stream", On::OneWay, b"\0\x04\0\x21\xbf\xff\xff\xff"),
    // A connection error by the RFC; the library takes it for a type that it does not know.
    ("a push stream of a client (6.2.2)", On::Ignored, b"\x01\0"),
    ("a stream type that nobody knows (6.2.3)", On::Ignored, b"\x40\x54hello"),
];

#[test]
fn peers_that_break_the_rules_or_use_them_up_cost_others_nothing() {
    let (_dir, served) = served();
    let client = &served.client;
    malformed_frames_harm_nobody_else(client);
    let stays_below = |most: u64| {
        let rss = served.server.memory_kb("VmRSS") >> 10;
        assert!(rss < most, "{rss} MiB of {most}");
    };
    heads_without_an_end_and_noise_cost_nothing(client);
    stays_below(200);
    others_are_answered_while_one_resets_all_it_asks(client);
    stays_below(300);
}

fn malformed_frames_harm_nobody_else(client: &Client) {
    client.runtime.block_on(async {
        let (_bystander, mut bystander) = client.http3().await;
        for (case, on, bytes) in MALFORMED {
            let quic = client.quic().await;
            let (mut send, receive) = if on == On::Request {
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
            if on == On::OneWay {
                let end = timeout(PATIENCE, quic.closed()).await.expect(case);
                assert!(matches!(end, ConnectionError::ApplicationClosed(_)), "{case}: {end}");
            }
            if on == On::Ignored {
                by_hand(&quic).await;
            }
            let answer = exchange(&mut bystander, &Call::get("/v1/health")).await.expect(case);
            assert_eq!(answer.status, 200, "{case}");
        }
        // What breaks no rule is answered.
        by_hand(&client.quic().await).await;
    });
}

/// Asks for the health by hand, and is answered with a head.
async fn by_hand(quic: &quinn::Connection) {
    let (mut send, mut receive) = quic.open_bi().await.expect("a stream");
    send.write_all(&head()).await.expect("sent");
    send.finish().expect("open");
    let answer = timeout(PATIENCE, receive.read_to_end(1 << 16)).await.expect("in time");
    assert_eq!(answer.expect("answered").first(), Some(&1));
}

fn heads_without_an_end_and_noise_cost_nothing(client: &Client) {
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
        let closed = timeout(PATIENCE, quic.closed()).await.expect("in time");
        let ConnectionError::ApplicationClosed(close) = closed else { panic!("{closed}") };
        // H3_EXCESSIVE_LOAD
        assert_eq!(close.error_code, VarInt::from_u32(0x107));
        assert_eq!(health(client).await.status, 200);
    });
}

fn others_are_answered_while_one_resets_all_it_asks(client: &Client) {
    client.runtime.block_on(async {
        let (_quic, mut bystander) = client.http3().await;
        let quic = client.quic().await;
        let flood = async {
            for at in 0..20_000 {
                let Ok((mut send, mut receive)) = quic.open_bi().await else { return at };
                if send.write_all(&head()).await.is_err() {
                    return at;
                }
                // Either may be over already.
                send.reset(VarInt::from_u32(0x10c)).ok();
                receive.stop(VarInt::from_u32(0x10c)).ok();
            }
            20_000
        };
        let mut flood = std::pin::pin!(timeout(PATIENCE, flood));
        let (mut answers, call) = (0, Call::get("/v1/health"));
        let sent = loop {
            tokio::select! {
                sent = &mut flood => break sent.expect("taken, or the connection is ended"),
                answer = exchange(&mut bystander, &call) => {
                    assert_eq!(answer.expect("answered").status, 200);
                    answers += 1;
                }
            }
        };
        assert!(sent > 100 && answers > 0, "{sent} resets, {answers} answers");
        assert_eq!(health(client).await.status, 200);
    });
}

#[test]
fn readers_that_do_not_read_keep_little() {
    let (_dir, served) = served();
    let client = &served.client;
    client.runtime.block_on(async {
        let mut transport = TransportConfig::default();
        transport.stream_receive_window(1024_u32.into());
        let endpoint = client.endpoint(transport);
        // A connection is closed when the last that asks on it is dropped.
        let (mut open, mut asking, mut unread) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..16 {
            let quic = client.connect(&endpoint).await;
            let mut requests = http3(&quic).await;
            for _ in 0..100 {
                let call = Call::get("/v1/openapi.json").request(Version::Http3);
                let mut stream = requests.send_request(call).await.expect("sent");
                stream.finish().await.expect("sent");
                unread.push(stream);
            }
            open.push(quic);
            asking.push(requests);
        }
        // Every answer has begun.
        for stream in &mut unread {
            let begun = timeout(PATIENCE, stream.recv_response()).await.expect("in time");
            assert_eq!(begun.expect("a head").status(), 200);
        }
        assert_eq!(health(client).await.status, 200);
        let rss = served.server.memory_kb("VmRSS") >> 10;
        assert!(open.iter().all(|quic| quic.close_reason().is_none()), "they are still there");
        assert!(rss < 400, "{rss} MiB for {} answers", unread.len());
        drop(asking);
    });
}
