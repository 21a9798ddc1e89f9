//! STUN messages (RFC 8489) for ICE: parses binding requests, writes responses.
//!
//! Parses in place and allocates nothing, because every datagram of a flood passes here before its sender is
//! known. Promises to reject malformed messages; the integrity is checked separately, with the password of
//! the user that the request names.

use std::net::{IpAddr, SocketAddr};

use aws_lc_rs::{constant_time::verify_slices_are_equal, hmac};

const HEADER_BYTES: usize = 20;
const COOKIE: u32 = 0x2112_A442;
const FINGERPRINT_XOR: u32 = 0x5354_554E;
/// Longest message that is parsed; those of ICE are below 200 bytes.
const MESSAGE_BYTES_MAX: usize = 1280;

const BINDING_REQUEST: u16 = 0x0001;
const BINDING_SUCCESS: u16 = 0x0101;
const BINDING_ERROR: u16 = 0x0111;

const USERNAME: u16 = 0x0006;
const MESSAGE_INTEGRITY: u16 = 0x0008;
const ERROR_CODE: u16 = 0x0009;
const UNKNOWN_ATTRIBUTES: u16 = 0x000A;
const XOR_MAPPED_ADDRESS: u16 = 0x0020;
const PRIORITY: u16 = 0x0024;
const USE_CANDIDATE: u16 = 0x0025;
const FINGERPRINT: u16 = 0x8028;
const ICE_CONTROLLED: u16 = 0x8029;

/// Bytes of MESSAGE-INTEGRITY and of FINGERPRINT, headers included.
const INTEGRITY_BYTES: usize = 24;
const FINGERPRINT_BYTES: usize = 8;

/// Reason that bytes are not a binding request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StunParseError {
    /// A valid message of another type.
    Other,
    /// Malformed, or without the attributes that RFC 8445 7.1 requires of a check.
    Malformed,
}

/// Binding request with valid format and fingerprint.
#[derive(Clone, Copy, Debug)]
pub(super) struct BindingRequest<'a> {
    bytes: &'a [u8],
    integrity_at: usize,
    username: &'a [u8],
    /// True if the peer nominates the pair (USE-CANDIDATE).
    pub(super) nominates: bool,
    /// True if the peer claims the controlled role (ICE-CONTROLLED), which is the server's.
    pub(super) controlled: bool,
    /// First unknown comprehension-required attribute.
    pub(super) unknown: Option<u16>,
}

impl<'a> BindingRequest<'a> {
    /// Parses a datagram that RFC 7983 assigns to STUN.
    pub(super) fn parse(bytes: &'a [u8]) -> Result<BindingRequest<'a>, StunParseError> {
        let malformed = Err(StunParseError::Malformed);
        if bytes.len() < HEADER_BYTES || bytes.len() > MESSAGE_BYTES_MAX {
            return malformed;
        }
        let length = usize::from(word(bytes, 2));
        if length != bytes.len() - HEADER_BYTES || length % 4 != 0 || long(bytes, 4) != COOKIE {
            return malformed;
        }
        if word(bytes, 0) != BINDING_REQUEST {
            return Err(StunParseError::Other);
        }
        let mut read = BindingRequest {
            bytes,
            integrity_at: 0,
            username: &[],
            nominates: false,
            controlled: false,
            unknown: None,
        };
        let fingerprint_at = read.attributes()?;
        // RFC 8445 7.1.2: every check has all three.
        if read.username.is_empty() || read.integrity_at == 0 || fingerprint_at == 0 {
            return malformed;
        }
        let expected = crc32fast::hash(&bytes[..fingerprint_at]) ^ FINGERPRINT_XOR;
        if long(bytes, fingerprint_at + 4) != expected {
            return malformed;
        }
        Ok(read)
    }

    /// Reads the attributes; returns the offset of FINGERPRINT, or 0.
    fn attributes(&mut self) -> Result<usize, StunParseError> {
        let bytes = self.bytes;
        let mut at = HEADER_BYTES;
        while at < bytes.len() {
            let (kind, length) = (word(bytes, at), usize::from(word(bytes, at + 2)));
            let value_at = at + 4;
            let Some(value) = bytes.get(value_at..value_at + length) else {
                return Err(StunParseError::Malformed);
            };
            match kind {
                FINGERPRINT => {
                    // RFC 8489 14.7: FINGERPRINT is the last attribute.
                    let last = length == 4 && value_at + length == bytes.len();
                    return if last { Ok(at) } else { Err(StunParseError::Malformed) };
                }
                // RFC 8489 14.5: attributes after MESSAGE-INTEGRITY are ignored.
                _ if self.integrity_at != 0 => {}
                USERNAME => self.username = value,
                MESSAGE_INTEGRITY if length == 20 => self.integrity_at = at,
                MESSAGE_INTEGRITY => return Err(StunParseError::Malformed),
                USE_CANDIDATE => self.nominates = true,
                ICE_CONTROLLED => self.controlled = true,
                PRIORITY => {}
                // Attributes of the lower half are comprehension-required (RFC 8489 14).
                0x0000..=0x7FFF => {
                    self.unknown.get_or_insert(kind);
                }
                _ => {}
            }
            at = value_at + length.next_multiple_of(4);
        }
        Ok(0)
    }

    /// Returns the user fragments in USERNAME: the server's and the peer's.
    pub(super) fn users(&self) -> Option<(&'a str, &'a str)> {
        std::str::from_utf8(self.username).ok()?.split_once(':')
    }

    pub(super) fn is_signed_with(&self, key: &hmac::Key) -> bool {
        // The signed length counts up to and including MESSAGE-INTEGRITY (RFC 8489 14.5).
        let length = self.integrity_at + INTEGRITY_BYTES - HEADER_BYTES;
        let tag = sign(key, &self.bytes[..self.integrity_at], length);
        let given = &self.bytes[self.integrity_at + 4..self.integrity_at + INTEGRITY_BYTES];
        verify_slices_are_equal(tag.as_ref(), given).is_ok()
    }

    /// Appends the success response with the peer's address as seen here.
    pub(super) fn accept(&self, from: SocketAddr, key: &hmac::Key, out: &mut Vec<u8>) {
        let port = from.port() ^ (COOKIE >> 16) as u16;
        let mut value = [0u8; 20];
        value[2..4].copy_from_slice(&port.to_be_bytes());
        let (family, end) = match from.ip().to_canonical() {
            IpAddr::V4(ip) => {
                value[4..8].copy_from_slice(&ip.octets());
                (1, 8)
            }
            IpAddr::V6(ip) => {
                value[4..].copy_from_slice(&ip.octets());
                (2, 20)
            }
        };
        value[1] = family;
        // The mask is the cookie and, after it, the transaction.
        for (octet, mask) in value[4..].iter_mut().zip(&self.bytes[4..HEADER_BYTES]) {
            *octet ^= mask;
        }
        self.respond(BINDING_SUCCESS, &[(XOR_MAPPED_ADDRESS, &value[..end])], key, out);
    }

    /// Appends the error response 487: both sides are controlled (RFC 8445 7.3.1.1).
    pub(super) fn refuse_role(&self, key: &hmac::Key, out: &mut Vec<u8>) {
        let code = b"\0\0\x04\x57Role Conflict";
        self.respond(BINDING_ERROR, &[(ERROR_CODE, code)], key, out);
    }

    /// Appends the error response 420 with the unknown attribute (RFC 8489 6.3.1).
    pub(super) fn refuse_attribute(&self, unknown: u16, key: &hmac::Key, out: &mut Vec<u8>) {
        let code = b"\0\0\x04\x14Unknown Attribute";
        let names = unknown.to_be_bytes();
        let attributes: [(u16, &[u8]); 2] = [(ERROR_CODE, code), (UNKNOWN_ATTRIBUTES, &names)];
        self.respond(BINDING_ERROR, &attributes, key, out);
    }

    /// Appends a response with these attributes, signed, and with its fingerprint.
    fn respond(&self, kind: u16, with: &[(u16, &[u8])], key: &hmac::Key, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(&kind.to_be_bytes());
        out.extend_from_slice(&[0, 0]);
        out.extend_from_slice(&self.bytes[4..HEADER_BYTES]);
        with.iter().for_each(|(kind, value)| attribute(*kind, value, out));
        let length = out.len() - start - HEADER_BYTES + INTEGRITY_BYTES;
        let tag = sign(key, &out[start..], length);
        attribute(MESSAGE_INTEGRITY, tag.as_ref(), out);
        let length = ((length + FINGERPRINT_BYTES) as u16).to_be_bytes();
        out[start + 2..start + 4].copy_from_slice(&length);
        let fingerprint = crc32fast::hash(&out[start..]) ^ FINGERPRINT_XOR;
        attribute(FINGERPRINT, &fingerprint.to_be_bytes(), out);
    }
}

fn word(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

fn long(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn attribute(kind: u16, value: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(&kind.to_be_bytes());
    // All values written here are below 100 bytes.
    out.extend_from_slice(&(value.len() as u16).to_be_bytes());
    out.extend_from_slice(value);
    out.resize(out.len() + value.len().next_multiple_of(4) - value.len(), 0);
}

fn sign(key: &hmac::Key, message: &[u8], length: usize) -> hmac::Tag {
    let mut context = hmac::Context::with_key(key);
    context.update(&message[..2]);
    context.update(&(length as u16).to_be_bytes());
    context.update(&message[4..]);
    context.sign()
}

#[cfg(test)]
#[path = "stun/tests.rs"]
pub(super) mod tests;
