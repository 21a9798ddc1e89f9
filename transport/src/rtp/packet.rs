//! RTP packet header (RFC 3550 5.1), and the packet inside a retransmission (RFC 4588).

/// Bytes of a header without CSRCs and extension.
const HEADER_BYTES: usize = 12;

/// A decrypted RTP packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RtpPacket<'a> {
    /// Negotiated payload type, in 0..=127.
    pub payload_type: u8,
    /// Synchronization source.
    pub ssrc: u32,
    /// Sequence number, modulo 2^16.
    pub sequence: u16,
    /// Timestamp in ticks of the 90 kHz clock, modulo 2^32.
    pub timestamp: u32,
    /// Marker bit; most senders set it on the last packet of a picture.
    pub marker: bool,
    /// Payload without header, extension and padding.
    pub payload: &'a [u8],
}

/// Packet behind its header and its extension.
pub(crate) struct Split<'a> {
    header: &'a [u8; HEADER_BYTES],
    /// Profile and content of the header extension.
    extension: Option<(u16, &'a [u8])>,
    /// Payload and padding.
    pub(crate) rest: &'a [u8],
}

/// Splits a whole packet; `None` if the version is not 2 or the header does not fit.
pub(crate) fn split(bytes: &[u8]) -> Option<Split<'_>> {
    let (header, rest) = bytes.split_first_chunk::<HEADER_BYTES>()?;
    if header[0] >> 6 != 2 {
        return None;
    }
    let rest = rest.get(4 * usize::from(header[0] & 0x0f)..)?;
    if header[0] & 0x10 == 0 {
        return Some(Split { header, extension: None, rest });
    }
    let (&[high, low, words @ ..], rest) = rest.split_first_chunk::<4>()?;
    let (content, rest) = rest.split_at_checked(4 * usize::from(u16::from_be_bytes(words)))?;
    Some(Split { header, extension: Some((u16::from_be_bytes([high, low]), content)), rest })
}

impl<'a> RtpPacket<'a> {
    /// Parses a whole decrypted datagram; `None` if the version is not 2, or if the header or the padding,
    /// which has a byte at least, does not fit.
    pub fn parse(bytes: &'a [u8]) -> Option<RtpPacket<'a>> {
        let Split { header, rest: mut payload, .. } = split(bytes)?;
        if header[0] & 0x20 != 0 {
            let padding = payload.last().copied().filter(|padding| *padding > 0)?;
            payload = &payload[..payload.len().checked_sub(usize::from(padding))?];
        }
        Some(RtpPacket {
            payload_type: header[1] & 0x7f,
            ssrc: u32::from_be_bytes([header[8], header[9], header[10], header[11]]),
            sequence: u16::from_be_bytes([header[2], header[3]]),
            timestamp: u32::from_be_bytes([header[4], header[5], header[6], header[7]]),
            marker: header[1] & 0x80 != 0,
            payload,
        })
    }

    /// Returns the original packet of a retransmission (RFC 4588 4), as part of the source `ssrc`.
    ///
    /// Returns `None` without a payload: senders probe the path with empty retransmissions.
    pub fn unwrap_rtx(self, payload_type: u8, ssrc: u32) -> Option<RtpPacket<'a>> {
        let (original, payload) = self.payload.split_first_chunk::<2>()?;
        Some(RtpPacket {
            payload_type,
            ssrc,
            sequence: u16::from_be_bytes(*original),
            payload,
            ..self
        })
    }
}

/// Returns the header extension `id` of a whole packet, in one-byte or two-byte form (RFC 8285 4.2, 4.3);
/// `None` if absent.
pub(crate) fn extension(bytes: &[u8], id: u8) -> Option<&[u8]> {
    let (profile, mut rest) = split(bytes)?.extension?;
    let has_short_names = match profile {
        0xbede => true,
        0x1000..=0x100f => false,
        _ => return None,
    };
    while let Some((&first, after)) = rest.split_first() {
        // A zero byte is padding.
        if first == 0 {
            rest = after;
            continue;
        }
        let (name, bytes, after) = if has_short_names {
            (first >> 4, usize::from(first & 0x0f) + 1, after)
        } else {
            let (&bytes, after) = after.split_first()?;
            (first, usize::from(bytes), after)
        };
        // ID 15 ends the extensions in one-byte form.
        if has_short_names && name == 15 {
            return None;
        }
        let (value, after) = after.split_at_checked(bytes)?;
        if name == id {
            return Some(value);
        }
        rest = after;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: [u8; 14] = [0x80, 0xe0, 1, 2, 0, 0, 0, 9, 0, 0, 0, 7, 0xaa, 0xbb];

    /// Returns [`PLAIN`] with these flags in its first byte, and with `rest` after its fixed header.
    fn with(flags: u8, rest: &[u8]) -> Vec<u8> {
        [&[PLAIN[0] | flags], &PLAIN[1..HEADER_BYTES], rest].concat()
    }

    #[test]
    fn an_extension_is_found_by_its_name() {
        let with = |kind: [u8; 2], words: u8, body: &[u8]| {
            with(0x10, &[&kind[..], &[0, words], body, &[0xaa, 0xbb]].concat())
        };
        let (one, two) = ([0xbe, 0xde], [0x10, 0]);
        type Found = Option<&'static [u8]>;
        let cases: [(&str, Vec<u8>, Found); 10] = [
            ("none", PLAIN.to_vec(), None),
            ("named by one byte", with(one, 1, &[0x31, 7, 8, 0]), Some(&[7, 8])),
            (
                "after another and padding",
                with(one, 2, &[0x10, 1, 0, 0x31, 7, 8, 0, 0]),
                Some(&[7, 8]),
            ),
            ("another", with(one, 1, &[0x41, 7, 8, 0]), None),
            ("behind the end", with(one, 2, &[0xf0, 1, 0, 0, 0x31, 7, 8, 0]), None),
            ("cut", with(one, 1, &[0x37, 7, 8, 0]), None),
            ("named by two bytes", with(two, 1, &[3, 2, 7, 8]), Some(&[7, 8])),
            ("empty, by two", with(two, 1, &[3, 0, 0, 0]), Some(&[])),
            ("of another profile", with([1, 2], 1, &[0x31, 7, 8, 0]), None),
            ("longer than the packet", with(one, 200, &[0x31, 7, 8, 0]), None),
        ];
        for (name, bytes, expected) in cases {
            assert_eq!(extension(&bytes, 3), expected, "{name}");
        }
    }

    #[test]
    fn every_part_of_the_header_is_passed_over() {
        const WHOLE: Option<&[u8]> = Some(&[0xaa, 0xbb]);
        let extension = [0xbe, 0xde, 0, 1, 0x10, 0x31, 0, 0, 0xaa, 0xbb];
        type Payload<'a> = Option<&'a [u8]>;
        let cases: [(&str, Vec<u8>, Payload<'_>); 13] = [
            ("plain", PLAIN.to_vec(), WHOLE),
            ("no payload", PLAIN[..12].to_vec(), Some(&[])),
            ("a byte short", PLAIN[..11].to_vec(), None),
            ("empty", vec![], None),
            ("version 3", with(0x40, &[0xaa, 0xbb]), None),
            ("one source", with(1, &[0, 0, 0, 0, 0xaa, 0xbb]), WHOLE),
            ("sources cut off", with(1, &[0xaa, 0xbb]), None),
            ("an extension", with(0x10, &extension), WHOLE),
            ("an extension that is cut", with(0x10, &[0xbe, 0xde, 0, 9, 0xaa, 0xbb]), None),
            ("padding", with(0x20, &[0xaa, 0xbb, 0, 2]), WHOLE),
            ("nothing but padding", with(0x20, &[0, 0, 3]), Some(&[])),
            ("more padding than bytes", with(0x20, &[0xaa, 0xbb, 200]), None),
            ("padding of no byte", with(0x20, &[0xaa, 0xbb, 0]), None),
        ];
        for (name, bytes, expected) in cases {
            assert_eq!(RtpPacket::parse(&bytes).map(|packet| packet.payload), expected, "{name}");
        }
    }

    #[test]
    fn a_retransmission_holds_the_packet_that_it_repeats() {
        let packet = RtpPacket::parse(&PLAIN).expect("valid");
        let inner = packet.unwrap_rtx(96, 5).expect("holds one");
        let expected =
            RtpPacket { payload_type: 96, ssrc: 5, sequence: 0xaabb, payload: &[], ..packet };
        assert_eq!(inner, expected);
        let probe = RtpPacket { payload: &[0], ..packet };
        assert_eq!(probe.unwrap_rtx(96, 5), None);
    }
}
