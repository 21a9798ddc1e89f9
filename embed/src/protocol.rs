//! The sidecar's protocol, without a socket: bytes go in in pieces of any size, whole messages come out.
//!
//! Lengths and dimensions are big-endian, embeddings little-endian floats. Reserved bytes are sent as 0 and
//! ignored. Replies come in the order of the requests.
//! ```text
//! request   "SLEM", version 1, 3 reserved, length of the JPEG (4), the JPEG
//! answer    "SLER", version 1, status, dimensions (2), 4 reserved, the embedding (4 each)
//! ```

use bytes::{Bytes, BytesMut};

use crate::embedding::{DIMENSIONS_MAX, Embedding};

#[cfg(test)]
mod tests;

/// Most bytes of a JPEG in a request.
pub const JPEG_BYTES_MAX: usize = 4 << 20;

const VERSION: u8 = 1;
const HEADER: usize = 12;

/// Reply of a sidecar to a request.
#[derive(Clone, Debug, PartialEq)]
pub enum SidecarReply {
    /// Status 0.
    Embedding(Embedding),
    /// Any other status, without an embedding.
    Refused(SidecarStatus),
}

/// Reason for a refusal: the status byte of a reply, which is not 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SidecarStatus(u8);

impl SidecarStatus {
    /// The picture is not a JPEG that the sidecar can read.
    pub const PICTURE: SidecarStatus = SidecarStatus(1);
    /// Too many pictures wait at the sidecar.
    pub const BUSY: SidecarStatus = SidecarStatus(2);
    /// The sidecar's model failed.
    pub const MODEL: SidecarStatus = SidecarStatus(3);
}

impl std::fmt::Display for SidecarStatus {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            1 => f.write_str("it cannot read the picture"),
            2 => f.write_str("too many pictures wait there"),
            3 => f.write_str("its model failed"),
            status => write!(f, "status {status}"),
        }
    }
}

/// Returns the header of a request for a JPEG of `jpeg_bytes`; `None` if that is 0 or over the limit.
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

/// Encodes a reply, header included.
pub fn encode_reply(answer: &SidecarReply) -> Vec<u8> {
    let (status, values) = match answer {
        SidecarReply::Embedding(embedding) => (0, embedding.values()),
        SidecarReply::Refused(refusal) => (refusal.0, &[][..]),
    };
    let mut bytes = Vec::with_capacity(HEADER + values.len() * 4);
    bytes.extend_from_slice(b"SLER");
    bytes.extend_from_slice(&[VERSION, status]);
    bytes.extend_from_slice(&(values.len() as u16).to_be_bytes());
    bytes.extend_from_slice(&[0; 4]);
    bytes.extend(values.iter().flat_map(|value| value.to_le_bytes()));
    bytes
}

/// Incremental decoder of requests or replies. Buffers at most one of them and what was pushed after it.
///
/// An error says how the bytes break the protocol. The start of the next message is then unknown: close the
/// connection.
#[derive(Debug, Default)]
pub struct MessageDecoder {
    buffer: BytesMut,
}

impl MessageDecoder {
    /// Appends received bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// Returns the JPEG of the next request if all of it has arrived. Call until `None` before pushing more.
    pub fn poll_request(&mut self) -> Result<Option<Bytes>, String> {
        let Some(header) = self.header(b"SLEM")? else { return Ok(None) };
        let length = u32::from_be_bytes([header[8], header[9], header[10], header[11]]);
        if length == 0 || length as usize > JPEG_BYTES_MAX {
            return Err(format!("a picture of {length} bytes, not 1 to {JPEG_BYTES_MAX}"));
        }
        Ok(self.body(length as usize))
    }

    /// Returns the next reply if all of it has arrived. Call until `None` before pushing more.
    pub fn poll_reply(&mut self) -> Result<Option<SidecarReply>, String> {
        let Some(header) = self.header(b"SLER")? else { return Ok(None) };
        let refusal = Some(header[5]).filter(|status| *status != 0).map(SidecarStatus);
        let dimensions = u16::from_be_bytes([header[6], header[7]]);
        let some = usize::from(dimensions) <= DIMENSIONS_MAX && dimensions > 0;
        let none = refusal.is_some() && dimensions == 0;
        if !some && !none {
            let problem =
                format!("an embedding of {dimensions} dimensions, not 1 to {DIMENSIONS_MAX}");
            return Err(problem);
        }
        let Some(body) = self.body(usize::from(dimensions) * 4) else { return Ok(None) };
        if let Some(refusal) = refusal {
            return Ok(Some(SidecarReply::Refused(refusal)));
        }
        let (numbers, _) = body.as_chunks::<4>();
        let values = numbers.iter().map(|number| f32::from_le_bytes(*number)).collect();
        let embedding = Embedding::new(values).map_err(|error| error.to_string())?;
        Ok(Some(SidecarReply::Embedding(embedding)))
    }

    /// Returns true if no part of a message is buffered.
    pub fn is_empty(&self) -> bool {
        self.buffer.is_empty()
    }

    /// Returns the header once all of it has arrived; a wrong magic or version fails as early as possible.
    fn header(&self, magic: &[u8; 4]) -> Result<Option<[u8; HEADER]>, String> {
        let known = self.buffer.len().min(4);
        if self.buffer[..known] != magic[..known] {
            return Err("the peer speaks another protocol".to_owned());
        }
        if let Some(version) = self.buffer.get(4).filter(|version| **version != VERSION) {
            return Err(format!(
                "the peer speaks version {version} of the protocol, not {VERSION}"
            ));
        }
        Ok(self.buffer.first_chunk().copied())
    }

    /// Takes a message from the buffer and returns its body, once all of it has arrived.
    fn body(&mut self, length: usize) -> Option<Bytes> {
        let whole = HEADER + length;
        if self.buffer.len() < whole {
            // The announced length is within its limit, so reserving room for it at once is safe.
            self.buffer.reserve(whole - self.buffer.len());
            return None;
        }
        Some(self.buffer.split_to(whole).freeze().slice(HEADER..))
    }
}
