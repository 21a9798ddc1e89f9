//! Tests against a scripted sidecar on a real socket: results of requests, and times of retries.

use std::{future::Future, pin::Pin, task::Poll};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

use super::*;
use crate::protocol::{MessageDecoder, SidecarReply, encode_reply};

const ENDLESS: Duration = Duration::from_secs(60);

struct Script {
    listener: TcpListener,
    address: String,
}

/// A connection, seen from the sidecar.
struct Peer {
    stream: TcpStream,
    requests: MessageDecoder,
}

impl Script {
    async fn new() -> Script {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("bound").to_string();
        Script { listener, address }
    }

    async fn accept(&self) -> Peer {
        let (stream, _) = self.listener.accept().await.expect("a connection");
        Peer { stream, requests: MessageDecoder::default() }
    }
}

impl Peer {
    async fn request(&mut self) -> Bytes {
        loop {
            if let Some(jpeg) = self.requests.poll_request().expect("a request") {
                return jpeg;
            }
            let mut bytes = [0; 4096];
            let count = self.stream.read(&mut bytes).await.expect("readable");
            assert_ne!(count, 0, "the client went away");
            self.requests.push(&bytes[..count]);
        }
    }

    async fn answer(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).await.expect("the client reads");
    }
}

/// Creates a client whose back-off lasts longer than any test.
fn rested_for_long(address: &str) -> SidecarClient {
    SidecarClient::resting(address, ENDLESS, Backoff::starting_with(ENDLESS))
}

fn direction(byte: u8) -> Embedding {
    Embedding::new(vec![f32::from(byte), 1.0]).expect("a direction")
}

fn embedded(jpeg: &[u8]) -> Vec<u8> {
    encode_reply(&SidecarReply::Embedding(direction(jpeg[0])))
}

fn jpeg(byte: u8) -> Bytes {
    Bytes::from(vec![byte; 100_000])
}

fn is(result: &Result<Embedding, SidecarError>, byte: u8) -> bool {
    result.as_ref().is_ok_and(|got| got.distance(&direction(byte)) == Some(media::Score::ZERO))
}

/// Returns the name of the failure, or `Embedded`.
fn name(result: &Result<Embedding, SidecarError>) -> String {
    let said = result.as_ref().map_or_else(|error| format!("{error:?}"), |_| "Embedded".to_owned());
    said.split('(').next().unwrap_or_default().to_owned()
}

#[tokio::test]
async fn asks_follow_each_other_and_answers_keep_their_order() {
    let script = Script::new().await;
    let sidecar = SidecarClient::new(&script.address, ENDLESS);
    let serve = async {
        let mut peer = script.accept().await;
        let mut all = Vec::new();
        for _ in 0..3 {
            all.extend(embedded(&peer.request().await));
        }
        // The sidecar replies only after all requests have come, and then in pieces.
        for piece in all.chunks(5) {
            peer.answer(piece).await;
        }
        peer
    };
    let (a, b, c, mut peer) =
        tokio::join!(sidecar.embed(jpeg(1)), sidecar.embed(jpeg(2)), sidecar.embed(jpeg(3)), serve);
    assert!(is(&a, 1) && is(&b, 2) && is(&c, 3), "{a:?} {b:?} {c:?}");
    let refuse = async {
        peer.request().await;
        peer.answer(&encode_reply(&SidecarReply::Refused(SidecarStatus::BUSY))).await;
        let next = peer.request().await;
        peer.answer(&embedded(&next)).await;
    };
    let (refused, next, ()) = tokio::join!(sidecar.embed(jpeg(4)), sidecar.embed(jpeg(5)), refuse);
    assert_eq!(name(&refused), "Refused");
    assert!(is(&next, 5), "a refusal is of one picture: {next:?}");
}

#[tokio::test]
async fn each_way_to_fail_has_its_name_and_rests_the_sidecar() {
    let cases: [(&str, &[u8]); 4] = [
        ("Closed", b""),
        ("Protocol", b"HTTP/1.1 400 Bad Request\r\n"),
        ("Protocol", b"SLER\x01\0\0\0\0\0\0\0"),
        ("Closed", b"SLER\x01\0\0\x01\0\0"),
    ];
    for (expected, bytes) in cases {
        let script = Script::new().await;
        let sidecar = rested_for_long(&script.address);
        let serve = async {
            let mut peer = script.accept().await;
            peer.request().await;
            peer.answer(bytes).await;
        };
        let (first, ()) = tokio::join!(sidecar.embed(jpeg(1)), serve);
        assert_eq!(name(&first), expected, "{bytes:?}");
        assert_eq!(name(&sidecar.embed(jpeg(1)).await), "BackingOff", "{bytes:?}");
    }
}

#[tokio::test]
async fn an_answer_that_nobody_asked_for_ends_the_connection() {
    let script = Script::new().await;
    let sidecar = SidecarClient::new(&script.address, ENDLESS);
    let serve = async {
        let mut peer = script.accept().await;
        let answer = embedded(&peer.request().await);
        peer.answer(&[&answer[..], &answer[..]].concat()).await;
        // The client closes the connection: nothing more is read.
        let mut rest = [0; 1];
        peer.stream.read(&mut rest).await.unwrap_or(0)
    };
    let (first, rest) = tokio::join!(sidecar.embed(jpeg(1)), serve);
    assert!(is(&first, 1), "{first:?}");
    assert_eq!(rest, 0);
}

#[tokio::test]
async fn a_late_answer_costs_the_connection_and_a_new_one_is_tried() {
    let script = Script::new().await;
    let sidecar = SidecarClient::new(&script.address, Duration::from_millis(300));
    let silent = async {
        let mut peer = script.accept().await;
        peer.request().await;
        peer
    };
    let (late, _peer) = tokio::join!(sidecar.embed(jpeg(1)), silent);
    assert_eq!(name(&late), "Late");
    let recover = async {
        let mut peer = script.accept().await;
        loop {
            let next = peer.request().await;
            peer.answer(&embedded(&next)).await;
        }
    };
    let ask = async {
        let until = Instant::now() + ENDLESS;
        loop {
            let result = sidecar.embed(jpeg(2)).await;
            if is(&result, 2) {
                return;
            }
            assert!(Instant::now() < until, "{result:?}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::select! {
        () = ask => {}
        () = recover => {}
    }
}

#[tokio::test]
async fn a_sidecar_that_went_away_while_idle_is_found_again_at_once() {
    let script = Script::new().await;
    let sidecar = SidecarClient::new(&script.address, ENDLESS);
    for byte in 1..=3 {
        let serve = async {
            let mut peer = script.accept().await;
            let answer = embedded(&peer.request().await);
            peer.answer(&answer).await;
            peer.stream.shutdown().await.expect("open");
            // Waits until the client has noticed.
            let mut rest = [0; 1];
            assert_eq!(peer.stream.read(&mut rest).await.unwrap_or(0), 0);
        };
        let (result, ()) = tokio::join!(sidecar.embed(jpeg(byte)), serve);
        assert!(is(&result, byte), "{byte}: {result:?}");
    }
}

#[tokio::test]
async fn nobody_there_and_nothing_to_send_are_errors() {
    let Script { listener, address } = Script::new().await;
    drop(listener);
    let sidecar = rested_for_long(&address);
    assert_eq!(name(&sidecar.embed(jpeg(1)).await), "Io");
    assert_eq!(name(&sidecar.embed(jpeg(1)).await), "BackingOff");
    assert_eq!(name(&sidecar.embed(Bytes::new()).await), "Picture");
    let long = Bytes::from(vec![0; JPEG_BYTES_MAX + 1]);
    assert_eq!(name(&sidecar.embed(long).await), "Picture");
    sidecar.task.abort();
    sidecar.asks.closed().await;
    assert_eq!(name(&sidecar.embed(jpeg(1)).await), "Closed");
}

#[tokio::test]
async fn asks_past_the_bound_are_refused_at_once() {
    let script = Script::new().await;
    let sidecar = SidecarClient::new(&script.address, ENDLESS);
    let mut asks: Vec<Pin<Box<_>>> =
        (0..=IN_FLIGHT_MAX).map(|_| Box::pin(sidecar.embed(jpeg(1)))).collect();
    // Polls each request once; the connection's task does not run in between and takes none.
    let first_done = std::future::poll_fn(|context| {
        let done =
            asks.iter_mut().enumerate().find_map(|(at, ask)| match ask.as_mut().poll(context) {
                Poll::Ready(result) => Some((at, name(&result))),
                Poll::Pending => None,
            });
        Poll::Ready(done)
    });
    assert_eq!(first_done.await, Some((IN_FLIGHT_MAX, "Full".to_owned())));
}
