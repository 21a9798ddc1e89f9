//! The sidecar's protocol, without a socket: bytes come in as they come, messages go out whole.
//!
//! Numbers of lengths are big-endian, those of embeddings little-endian. Reserved bytes are sent as
//! 0 and not looked at. Answers come in the order of the requests.
//! ```text
//! request   "SLEM", version 1, 3 reserved, length of the JPEG (4), the JPEG
//! answer    "SLER", version 1, status, dimensions (2), 4 reserved, the embedding (4 each)
//! ```

use bytes::{Bytes, BytesMut};
use media::{ErrorKind, ParseError};

use crate::embedding::{DIMENSIONS_MAX, Embedding};

#[cfg(test)]
mod tests;

/// Most bytes of a JPEG in a request.
pub const JPEG_BYTES_MAX: usize = 4 << 20;

const VERSION: u8 = 1;
const HEADER: usize = 12;

/// Answer of a sidecar to a request.
#[derive(Clone, Debug, PartialEq)]
pub enum SidecarReply {
    /// Status 0.
    Embedding(Embedding),
    /// Any other status, without an embedding.
    Refused(SidecarStatus),
}

/// Reason that a sidecar has no embedding, as the status byte of its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SidecarStatus {
    /// 1: not a JPEG that it can read.
    Picture,
    /// 2: too many pictures wait.
    Busy,
    /// 3: its model failed.
    Model,
    /// Another sidecar's own.
    Other(u8),
}

impl SidecarStatus {
    fn status(self) -> u8 {
        match self {
            SidecarStatus::Picture => 1,
            SidecarStatus::Busy => 2,
            SidecarStatus::Model => 3,
            SidecarStatus::Other(status) => status,
        }
    }

    /// `None` for 0, which is no refusal.
    fn of(status: u8) -> Option<SidecarStatus> {
        Some(match status {
            0 => return None,
            1 => SidecarStatus::Picture,
            2 => SidecarStatus::Busy,
            3 => SidecarStatus::Model,
            other => SidecarStatus::Other(other),
        })
    }
}

impl std::fmt::Display for SidecarStatus {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            SidecarStatus::Picture => f.write_str("it cannot read the picture"),
            SidecarStatus::Busy => f.write_str("too many pictures wait there"),
            SidecarStatus::Model => f.write_str("its model failed"),
            SidecarStatus::Other(status) => write!(f, "status {status}"),
        }
    }
}

/// Bytes that are no message. Where the next one would begin is not known: the connection is of no
/// further use.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SidecarProtocolError {
    /// The first bytes are another protocol's.
    #[error("the peer speaks another protocol")]
    Magic,
    /// Another version of this one.
    #[error("the peer speaks version {0} of the protocol, not {VERSION}")]
    Version(u8),
    /// A picture that is empty or too large.
    #[error("a picture of {0} bytes, not 1 to {JPEG_BYTES_MAX}")]
    Length(u32),
    /// An embedding of no or too many dimensions.
    #[error("an embedding of {0} dimensions, not 1 to {DIMENSIONS_MAX}")]
    Dimensions(u16),
    /// Numbers that are no direction.
    #[error(transparent)]
    Embedding(ParseError),
}

impl SidecarProtocolError {
    /// Always [`ErrorKind::InvalidInput`].
    pub fn kind(&self) -> ErrorKind {
        ErrorKind::InvalidInput
    }
}

/// Returns the header of a JPEG's bytes; `None` for one that is empty or too large to be sent.
pub fn request_header(jpeg_bytes: usize) -> Option<[u8; HEADER]> {
    if !(1..=JPEG_BYTES_MAX).contains(&jpeg_bytes) {
        return None;
    }
    let mut header = [0; HEADER];
    header[..4].copy_from_slice(b"SLEM");
    header[4] = VERSION;
    header[8..].copy_from_slice(&(jpeg_bytes as u32).to_be_bytes());
    Some(header)
}

/// The whole of an answer.
pub fn encode_reply(answer: &SidecarReply) -> Vec<u8> {
    let (status, values) = match answer {
        SidecarReply::Embedding(embedding) => (0, embedding.values()),
        SidecarReply::Refused(refusal) => (refusal.status(), &[][..]),
    };
    let mut bytes = Vec::with_capacity(HEADER + values.len() * 4);
    bytes.extend_from_slice(b"SLER");
    bytes.extend_from_slice(&[VERSION, status]);
    bytes.extend_from_slice(&(values.len() as u16).to_be_bytes());
    bytes.extend_from_slice(&[0; 4]);
    bytes.extend(values.iter().flat_map(|value| value.to_le_bytes()));
    bytes
}

/// The requests in a stream of bytes. Holds at most one of them and what was pushed after it.
#[derive(Debug, Default)]
pub struct RequestDecoder {
    buffer: BytesMut,
}

impl RequestDecoder {
    /// Bytes as they came.
    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// The next JPEG, if all of it is here. Ask until there is none before pushing more.
    pub fn poll(&mut self) -> Result<Option<Bytes>, SidecarProtocolError> {
        let Some(header) = header(&self.buffer, b"SLEM")? else { return Ok(None) };
        let length = u32::from_be_bytes([header[8], header[9], header[10], header[11]]);
        if length == 0 || length as usize > JPEG_BYTES_MAX {
            return Err(SidecarProtocolError::Length(length));
        }
        Ok(body(&mut self.buffer, length as usize))
    }

    /// Returns true where the bytes so far end between two messages.
    pub fn is_empty(&self) -> bool {
        self.buffer.is_empty()
    }
}

/// The answers in a stream of bytes. Holds at most one of them and what was pushed after it.
#[derive(Debug, Default)]
pub struct ReplyDecoder {
    buffer: BytesMut,
}

impl ReplyDecoder {
    /// Bytes as they came.
    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// The next answer, if all of it is here. Ask until there is none before pushing more.
    pub fn poll(&mut self) -> Result<Option<SidecarReply>, SidecarProtocolError> {
        let Some(header) = header(&self.buffer, b"SLER")? else { return Ok(None) };
        let refusal = SidecarStatus::of(header[5]);
        let dimensions = u16::from_be_bytes([header[6], header[7]]);
        let some = usize::from(dimensions) <= DIMENSIONS_MAX && dimensions > 0;
        let none = refusal.is_some() && dimensions == 0;
        if !some && !none {
            return Err(SidecarProtocolError::Dimensions(dimensions));
        }
        let Some(body) = body(&mut self.buffer, usize::from(dimensions) * 4) else {
            return Ok(None);
        };
        if let Some(refusal) = refusal {
            return Ok(Some(SidecarReply::Refused(refusal)));
        }
        let (numbers, _) = body.as_chunks::<4>();
        let values = numbers.iter().map(|number| f32::from_le_bytes(*number)).collect();
        let embedding = Embedding::new(values).map_err(SidecarProtocolError::Embedding)?;
        Ok(Some(SidecarReply::Embedding(embedding)))
    }
}

/// The first bytes, once they are here; wrong ones fail as early as possible.
fn header(
    buffer: &BytesMut,
    magic: &[u8; 4],
) -> Result<Option<[u8; HEADER]>, SidecarProtocolError> {
    let known = buffer.len().min(4);
    if buffer[..known] != magic[..known] {
        return Err(SidecarProtocolError::Magic);
    }
    if let Some(version) = buffer.get(4).filter(|version| **version != VERSION) {
        return Err(SidecarProtocolError::Version(*version));
    }
    Ok(buffer.first_chunk().copied())
}

/// The bytes after the header, taken with it, once all are here.
fn body(buffer: &mut BytesMut, length: usize) -> Option<Bytes> {
    let whole = HEADER + length;
    if buffer.len() < whole {
        // The announced length is within its limit, so that room for it may be made at once.
        buffer.reserve(whole - buffer.len());
        return None;
    }
    Some(buffer.split_to(whole).freeze().slice(HEADER..))
}
