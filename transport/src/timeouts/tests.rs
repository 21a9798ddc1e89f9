//! Tests of the bytes that tell the version of HTTP.

use http::HeaderMap;
use tokio::io::{AsyncWriteExt, duplex};

use super::*;
use crate::Peer;

fn watched<S>(stream: S) -> TimeoutStream<S> {
    let peer = Peer(std::net::Ipv4Addr::LOCALHOST.into());
    let (state, retire) = (ConnectionState::new(peer), CancellationToken::new());
    TimeoutStream::new(stream, ServerLimits::default(), None, state, retire, HeaderMap::new)
}

#[tokio::test]
async fn the_first_bytes_tell_and_none_is_lost() {
    let h2 = [&PREFACE[..], b"\0\0\0\x04\0\0\0\0\0"].concat();
    let rows: [(&str, &[u8], bool); 9] = [
        ("a request", b"GET / HTTP/1.1\r\nhost: a\r\n\r\n", false),
        ("a POST", b"POST / HTTP/1.1\r\n\r\n", false),
        ("a method like it", b"PROPFIND / HTTP/1.1\r\n\r\n", false),
        ("another version", b"PRI * HTTP/3.0\r\n\r\nSM\r\n\r\n", false),
        ("half of it", b"PRI * HT", false),
        ("all but the last byte", &PREFACE[..23], false),
        ("all of it", &PREFACE, true),
        ("all of it and more", &h2, true),
        ("nothing", b"", false),
    ];
    for (name, said, expected) in rows {
        for piece in [1, 3, 24, 100] {
            let (mut peer, stream) = duplex(piece);
            let greeted = async {
                let (is_http2, mut stream) = watched(stream).sniff_http2().await.expect("read");
                let mut all = Vec::new();
                stream.read_to_end(&mut all).await.expect("read");
                (is_http2, all)
            };
            let talk = async {
                peer.write_all(said).await.expect("taken");
                drop(peer);
            };
            let ((is_http2, all), ()) = tokio::join!(greeted, talk);
            assert_eq!((is_http2, &all[..]), (expected, said), "{name}, {piece} at a time");
        }
    }
}

#[tokio::test]
async fn what_has_come_is_read_at_once() {
    let head = [&b"GET / HTTP/1.1\r\nx: "[..], &[b'y'; 400], b"\r\n\r\n"].concat();
    // A small buffer is filled with what fits.
    for first in [1000, 5] {
        let (mut peer, stream) = duplex(1000);
        peer.write_all(&head).await.expect("taken");
        let (_, mut stream) = watched(stream).sniff_http2().await.expect("read");
        let mut buffer = [0; 1000];
        let mut read = stream.read(&mut buffer[..first]).await.expect("read");
        assert_eq!(read, first.min(head.len()));
        if read < head.len() {
            read += stream.read(&mut buffer[read..]).await.expect("read");
        }
        assert_eq!(buffer[..read], head);
    }
}
