//! HTTP/1.1 requests, one after the other.

use tokio::time::Instant;

use super::Ambiguous;

/// Bytes of a line that are kept: more than a valid length or coding has.
const LINE_BYTES: usize = 64;

#[derive(Debug)]
pub(super) struct Http1 {
    part: Part,
    line: Line,
    framing: Framing,
}

/// Part of a message to which the next byte belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    /// Request line; empty lines before it are skipped.
    Request,
    Field,
    /// Body with this many bytes left.
    Body(u64),
    ChunkSize,
    /// Chunk with this many bytes left, the end of its line included.
    Chunk(u64),
    Trailer,
    /// Bytes that the HTTP library rejects.
    Nothing,
}

/// Start of a line.
#[derive(Debug)]
struct Line {
    kept: [u8; LINE_BYTES],
    /// Bytes of the line so far, kept or not.
    bytes: usize,
}

/// End of a body as stated by its head.
#[derive(Debug, Default)]
struct Framing {
    length: Option<u64>,
    is_chunked: bool,
    /// True if the end is ambiguous or of an unsupported kind.
    is_unclear: bool,
}

impl Http1 {
    pub fn new() -> Http1 {
        let line = Line { kept: [0; LINE_BYTES], bytes: 0 };
        Http1 { part: Part::Request, line, framing: Framing::default() }
    }

    /// Takes the bytes that arrived at `now`; `since` is set while a head is incomplete.
    pub fn read(
        &mut self,
        bytes: &[u8],
        now: Instant,
        since: &mut Option<Instant>,
    ) -> Result<(), Ambiguous> {
        let (mut rest, mut before) = (bytes, 0);
        while !rest.is_empty() {
            match self.part {
                Part::Nothing => return Ok(()),
                Part::Body(left) | Part::Chunk(left) => {
                    let count = rest.len().min(usize::try_from(left).unwrap_or(usize::MAX));
                    rest = &rest[count..];
                    self.part = match (self.part, left - count as u64) {
                        (Part::Chunk(_), 0) => Part::ChunkSize,
                        (Part::Chunk(_), left) => Part::Chunk(left),
                        (_, 0) => Part::Request,
                        (_, left) => Part::Body(left),
                    };
                }
                _ => {
                    let is_head = matches!(self.part, Part::Request | Part::Field);
                    if is_head {
                        since.get_or_insert(now);
                    }
                    let Some(end) = rest.iter().position(|byte| *byte == b'\n') else {
                        self.line.keep(rest);
                        return Ok(());
                    };
                    self.line.keep(&rest[..end]);
                    rest = &rest[end + 1..];
                    if is_head && self.part == Part::Field && self.line.text().is_empty() {
                        *since = None;
                    }
                    self.end_line().ok_or(Ambiguous { before })?;
                    self.line.bytes = 0;
                }
            }
            if self.part == Part::Request {
                before = bytes.len() - rest.len();
            }
        }
        Ok(())
    }

    /// Moves on to the part after the line; `None` if the body of the head has no certain end.
    fn end_line(&mut self) -> Option<()> {
        let Http1 { part, line, framing } = self;
        *part = match (*part, line.text()) {
            (Part::Request, []) => Part::Request,
            (Part::Field, []) => std::mem::take(framing).body()?,
            (Part::Request | Part::Field, text) => {
                framing.note(text, line.is_whole());
                Part::Field
            }
            (Part::ChunkSize, text) => match chunk_bytes(text) {
                Some(0) => Part::Trailer,
                Some(bytes) => Part::Chunk(bytes),
                None => Part::Nothing,
            },
            (Part::Trailer, []) => Part::Request,
            (part, _) => part,
        };
        Some(())
    }
}

impl Line {
    fn keep(&mut self, bytes: &[u8]) {
        let room = &mut self.kept[self.bytes.min(LINE_BYTES)..];
        let count = bytes.len().min(room.len());
        room[..count].copy_from_slice(&bytes[..count]);
        self.bytes += bytes.len();
    }

    fn is_whole(&self) -> bool {
        self.bytes <= LINE_BYTES
    }

    /// Returns the line, or its start, without CR.
    fn text(&self) -> &[u8] {
        let kept = &self.kept[..self.bytes.min(LINE_BYTES)];
        kept.strip_suffix(b"\r").filter(|_| self.is_whole()).unwrap_or(kept)
    }
}

impl Framing {
    fn note(&mut self, line: &[u8], is_whole: bool) {
        let Some(colon) = line.iter().position(|byte| *byte == b':') else { return };
        let (name, value) = (&line[..colon], line[colon + 1..].trim_ascii());
        if name.eq_ignore_ascii_case(b"content-length") {
            let length = number(value, 10);
            let differs = self.length.is_some() && self.length != length;
            self.is_unclear |= !is_whole || length.is_none() || differs;
            self.length = length;
        } else if name.eq_ignore_ascii_case(b"transfer-encoding") {
            let is_chunked = is_whole && value.eq_ignore_ascii_case(b"chunked");
            self.is_unclear |= !is_chunked || self.is_chunked;
            self.is_chunked = true;
        }
    }

    /// Returns the part after the head; `None` if the body has no certain end.
    fn body(self) -> Option<Part> {
        match (self.length, self.is_chunked) {
            _ if self.is_unclear => None,
            (Some(_), true) => None,
            (None, true) => Some(Part::ChunkSize),
            (Some(0) | None, false) => Some(Part::Request),
            (Some(length), false) => Some(Part::Body(length)),
        }
    }
}

/// Returns the bytes of a chunk with the end of its line; 0 for the last chunk.
fn chunk_bytes(line: &[u8]) -> Option<u64> {
    let digits = line.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
    match number(&line[..digits], 16)? {
        0 => Some(0),
        bytes => bytes.checked_add(2),
    }
}

fn number(digits: &[u8], radix: u32) -> Option<u64> {
    let is_digits = digits.iter().all(|byte| char::from(*byte).is_digit(radix));
    let text = std::str::from_utf8(digits).ok().filter(|_| is_digits)?;
    u64::from_str_radix(text, radix).ok()
}
