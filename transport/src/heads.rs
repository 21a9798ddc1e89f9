//! Boundaries of request heads in the bytes of a connection, and detection of ambiguous heads.
//!
//! Follows HTTP/1.1 by lengths and chunks (RFC 9112 6 and 7) and HTTP/2 by frames (RFC 9113 4); time is an
//! argument. Other bytes are left to the HTTP library, which rejects them.

mod http1;

use std::time::Duration;

use tokio::time::Instant;

use http1::Http1;

/// Connection preface of an HTTP/2 client (RFC 9113 3.4).
pub(crate) const PREFACE: [u8; 24] = *b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Parts of an HTTP/2 frame (RFC 9113 4.1 and 6).
const HEADER_BYTES: usize = 9;
const HEADERS: u8 = 1;
const CONTINUATION: u8 = 9;
const END_HEADERS: u8 = 4;

/// Parser state of a connection, as far as heads are concerned.
#[derive(Debug)]
pub(crate) struct Heads {
    spoken: Spoken,
    /// Arrival of the first byte of the incomplete head.
    since: Option<Instant>,
}

/// Detected version of HTTP.
#[derive(Debug)]
enum Spoken {
    /// Unknown yet: the first bytes match this many bytes of the HTTP/2 preface.
    Unclear(usize),
    Http1(Http1),
    Http2(Frames),
}

/// Head whose body has no certain end; the bytes after it could pass for another request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ambiguous {
    /// Bytes of this read that came before the head.
    pub before: usize,
}

impl Heads {
    pub(crate) fn new() -> Heads {
        Heads { spoken: Spoken::Unclear(0), since: None }
    }

    /// Takes the bytes that arrived at `now`. After an error no further bytes may be passed.
    pub(crate) fn read(&mut self, bytes: &[u8], now: Instant) -> Result<(), Ambiguous> {
        let matched = match &mut self.spoken {
            Spoken::Http1(http1) => return http1.read(bytes, now, &mut self.since),
            Spoken::Http2(frames) => {
                frames.read(bytes, now, &mut self.since);
                return Ok(());
            }
            Spoken::Unclear(matched) => matched,
        };
        if !bytes.is_empty() {
            self.since.get_or_insert(now);
        }
        let known = PREFACE[*matched..].iter().zip(bytes).take_while(|(a, b)| a == b).count();
        let before = *matched;
        *matched += known;
        if *matched == PREFACE.len() {
            self.since = None;
            self.spoken = Spoken::Http2(Frames::default());
        } else if known < bytes.len() {
            let mut http1 = Http1::new();
            // At most a request line and an empty line, so nothing ambiguous.
            http1.read(&PREFACE[..before], now, &mut self.since)?;
            self.spoken = Spoken::Http1(http1);
            return self.read(bytes, now);
        } else {
            return Ok(());
        }
        self.read(&bytes[known..], now)
    }

    /// Returns true while a head is incomplete.
    pub(crate) fn is_within(&self) -> bool {
        self.since.is_some()
    }

    /// Returns the deadline of the incomplete head, which may take `within`. HTTP/1.1 reads the next head
    /// only after the previous response has ended, at `free`.
    pub(crate) fn due(&self, free: Instant, within: Duration) -> Option<Instant> {
        let since = self.since?;
        Some(if self.is_http2() { since } else { since.max(free) } + within)
    }

    pub(crate) fn is_unclear(&self) -> bool {
        matches!(self.spoken, Spoken::Unclear(_))
    }

    /// Returns true for HTTP/2, where responses have their own streams.
    pub(crate) fn is_http2(&self) -> bool {
        matches!(self.spoken, Spoken::Http2(_))
    }
}

/// HTTP/2 frames, as far as they carry heads.
#[derive(Debug, Default)]
struct Frames {
    header: [u8; HEADER_BYTES],
    /// Bytes of `header` received.
    have: usize,
    /// Bytes of the frame's payload not yet received.
    left: usize,
    /// True within a field block (HEADERS and CONTINUATION).
    in_block: bool,
}

impl Frames {
    /// Sets `since` while a head, or the first bytes of a frame that may be one, is incomplete.
    fn read(&mut self, mut bytes: &[u8], now: Instant, since: &mut Option<Instant>) {
        while !bytes.is_empty() {
            if self.have < HEADER_BYTES {
                since.get_or_insert(now);
                let count = bytes.len().min(HEADER_BYTES - self.have);
                self.header[self.have..self.have + count].copy_from_slice(&bytes[..count]);
                self.have += count;
                bytes = &bytes[count..];
                if self.have < HEADER_BYTES {
                    return;
                }
                let [a, b, c, ..] = self.header;
                self.left = usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c);
                self.in_block |= matches!(self.header[3], HEADERS | CONTINUATION);
            }
            let count = bytes.len().min(self.left);
            self.left -= count;
            bytes = &bytes[count..];
            if self.left == 0 {
                let [.., kind, flags, _, _, _, _] = self.header;
                let is_head = matches!(kind, HEADERS | CONTINUATION);
                self.in_block &= !(is_head && flags & END_HEADERS != 0);
                self.have = 0;
            }
            if !self.in_block {
                *since = None;
            }
        }
    }
}

#[cfg(test)]
mod tests;
