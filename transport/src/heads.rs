//! Boundaries of the heads of requests in the bytes of a connection, and which must not be
//! served.
//!
//! Follows HTTP/1.1 by its lengths and chunks (RFC 9112 6 and 7) and HTTP/2 by its frames
//! (RFC 9113 4); time is an argument. What is neither is left to the library, which refuses it.

mod frames;
mod http1;

use std::time::Duration;

use tokio::time::Instant;

use crate::preface::PREFACE;
use frames::Frames;
use http1::Http1;

/// The bytes of a connection so far, as far as heads go.
#[derive(Debug)]
pub(crate) struct Heads {
    spoken: Spoken,
    /// Start of the head that is not yet whole.
    since: Option<Instant>,
}

/// A version of HTTP, once it is clear.
#[derive(Debug)]
enum Spoken {
    /// As many bytes as these are those of the preface.
    Unclear(usize),
    Http1(Http1),
    Http2(Frames),
}

/// A head whose body has no certain end: what comes after it could be taken for another request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ambiguous {
    /// The bytes of this read that came before it.
    pub before: usize,
}

impl Heads {
    pub(crate) fn new() -> Heads {
        Heads { spoken: Spoken::Unclear(0), since: None }
    }

    /// Takes what came at `now`; after an error there is nothing more to take.
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
            // No more than a request line and an empty one: nothing ambiguous.
            http1.read(&PREFACE[..before], now, &mut self.since)?;
            self.spoken = Spoken::Http1(http1);
            return self.read(bytes, now);
        } else {
            return Ok(());
        }
        self.read(&bytes[known..], now)
    }

    /// A head has begun that is not yet whole.
    pub(crate) fn is_within(&self) -> bool {
        self.since.is_some()
    }

    /// Returns the deadline of the head that has begun, where it may take `within`: HTTP/1.1 reads
    /// the next one only once the answer before it has ended, at `free`.
    pub(crate) fn due(&self, free: Instant, within: Duration) -> Option<Instant> {
        let since = self.since?;
        Some(if self.is_http2() { since } else { since.max(free) } + within)
    }

    /// HTTP/2 is spoken, where answers go on their own streams.
    pub(crate) fn is_http2(&self) -> bool {
        matches!(self.spoken, Spoken::Http2(_))
    }
}

#[cfg(test)]
mod tests;
