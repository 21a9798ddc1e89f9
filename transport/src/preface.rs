//! Detection of the HTTP version from a connection's first bytes (RFC 9113 3.4).
//!
//! The bytes read for detection are returned with those that have come since, in one read: a head that
//! arrives in two pieces would make the reader grow its buffer for the rest of the connection.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll},
};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};

/// Connection preface of an HTTP/2 client.
pub(crate) const PREFACE: [u8; 24] = *b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Version of HTTP on TCP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HttpVersion {
    Http1,
    Http2,
}

/// Connection whose first bytes were read for detection.
pub(crate) struct SniffedStream<S> {
    first: [u8; PREFACE.len()],
    /// Bytes of `first` already returned, and bytes available in it.
    again: usize,
    read: usize,
    stream: S,
}

/// Reads until the version is known, at most the length of the preface.
pub(crate) async fn sniff_http_version<S: AsyncRead + Unpin>(
    mut stream: S,
) -> io::Result<(HttpVersion, SniffedStream<S>)> {
    let (mut first, mut read) = ([0; PREFACE.len()], 0);
    let version = loop {
        let more = stream.read(&mut first[read..]).await?;
        read += more;
        if more == 0 || first[..read] != PREFACE[..read] {
            break HttpVersion::Http1;
        }
        if read == PREFACE.len() {
            break HttpVersion::Http2;
        }
    };
    Ok((version, SniffedStream { first, again: 0, read, stream }))
}

impl<S: AsyncRead + Unpin> AsyncRead for SniffedStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let SniffedStream { first, again, read, stream } = &mut *self;
        if again == read {
            return Pin::new(stream).poll_read(cx, buf);
        }
        let count = buf.remaining().min(*read - *again);
        buf.put_slice(&first[*again..*again + count]);
        *again += count;
        if buf.remaining() > 0 {
            // An error of this read occurs again on the next one.
            let _more = Pin::new(stream).poll_read(cx, buf);
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for SniffedStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncWriteExt, duplex};

    use super::*;

    #[tokio::test]
    async fn the_first_bytes_tell_and_none_is_lost() {
        let h2 = [&PREFACE[..], b"\0\0\0\x04\0\0\0\0\0"].concat();
        let rows: [(&str, &[u8], HttpVersion); 9] = [
            ("a request", b"GET / HTTP/1.1\r\nhost: a\r\n\r\n", HttpVersion::Http1),
            ("a POST", b"POST / HTTP/1.1\r\n\r\n", HttpVersion::Http1),
            ("a method like it", b"PROPFIND / HTTP/1.1\r\n\r\n", HttpVersion::Http1),
            ("another version", b"PRI * HTTP/3.0\r\n\r\nSM\r\n\r\n", HttpVersion::Http1),
            ("half of it", b"PRI * HT", HttpVersion::Http1),
            ("all but the last byte", &PREFACE[..23], HttpVersion::Http1),
            ("all of it", &PREFACE, HttpVersion::Http2),
            ("all of it and more", &h2, HttpVersion::Http2),
            ("nothing", b"", HttpVersion::Http1),
        ];
        for (name, said, expected) in rows {
            for piece in [1, 3, 24, 100] {
                let (mut peer, stream) = duplex(piece);
                let greeted = async {
                    let (version, mut stream) = sniff_http_version(stream).await.expect("read");
                    let mut all = Vec::new();
                    stream.read_to_end(&mut all).await.expect("read");
                    (version, all)
                };
                let talk = async {
                    peer.write_all(said).await.expect("taken");
                    drop(peer);
                };
                let ((version, all), ()) = tokio::join!(greeted, talk);
                assert_eq!((version, &all[..]), (expected, said), "{name}, {piece} at a time");
            }
        }
    }

    #[tokio::test]
    async fn what_has_come_is_read_at_once() {
        let (mut peer, stream) = duplex(1000);
        let head = [&b"GET / HTTP/1.1\r\nx: "[..], &[b'y'; 400], b"\r\n\r\n"].concat();
        peer.write_all(&head).await.expect("taken");
        let (_, mut stream) = sniff_http_version(stream).await.expect("read");
        let mut buffer = [0; 1000];
        let read = stream.read(&mut buffer).await.expect("read");
        assert_eq!(&buffer[..read], head);
        // A small buffer is filled with what fits.
        let (mut peer, stream) = duplex(1000);
        peer.write_all(&head).await.expect("taken");
        let (_, mut stream) = sniff_http_version(stream).await.expect("read");
        assert_eq!(stream.read(&mut buffer[..5]).await.expect("read"), 5);
        let read = stream.read(&mut buffer[5..]).await.expect("read");
        assert_eq!(&buffer[..5 + read], head);
    }
}
