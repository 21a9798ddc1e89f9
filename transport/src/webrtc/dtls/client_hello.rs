//! Filter for DTLS datagrams before they are parsed (RFC 6347 4.1, 4.2.2).

use bytes::Buf as _;

const RECORD_BYTES: usize = 13;
const FRAGMENT_BYTES: usize = 12;
const CHANGE_CIPHER_SPEC: u8 = 20;
const ALERT: u8 = 21;
const HANDSHAKE: u8 = 22;
const CLIENT_HELLO: u8 = 1;
const HELLO_VERIFY_REQUEST: u8 = 3;
const USE_SRTP: u16 = 14;
const AEAD_AES_128_GCM: u16 = 7;
/// Most messages of a client in one handshake (two hellos, certificate, key, signature, Finished), with
/// reserve; a message with a higher number is dropped.
const MESSAGES_MAX: u16 = 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::webrtc) enum HandshakeStage {
    /// Handshake in progress; messages with lower numbers than this have been answered.
    Shaking(u16),
    Established,
}

#[derive(Debug, Default, PartialEq, Eq)]
pub(in crate::webrtc) struct FilteredDatagram {
    /// Records; unencrypted ones are renumbered and hold one handshake fragment each.
    pub(in crate::webrtc) datagram: Vec<u8>,
    /// Number of handshake fragments; an encrypted record counts as one.
    pub(in crate::webrtc) fragments: u32,
    /// Successor of the last unencrypted handshake message number.
    pub(in crate::webrtc) messages: u16,
    /// True if the peer repeats answered messages, so it waits for the last flight.
    pub(in crate::webrtc) repeats: bool,
}

/// Removes records with which an attacker could end the association: all unencrypted ones but the handshake.
/// `None` if the record lengths are inconsistent.
///
/// Each fragment gets a record of its own, because the parser takes bytes after a fragment for more of its
/// message; `numbers` counts those records. Unencrypted record numbers are not authenticated anyway.
pub(in crate::webrtc) fn filter_records(
    datagram: &[u8],
    stage: HandshakeStage,
    numbers: &mut u64,
) -> Option<FilteredDatagram> {
    let mut rest = datagram;
    let mut sifted = FilteredDatagram::default();
    while !rest.is_empty() {
        let start = rest;
        let head = rest.split_off(..RECORD_BYTES)?;
        let bytes = usize::from(u16::from_be_bytes([head[11], head[12]]));
        let content = rest.split_off(..bytes)?;
        let in_the_clear = head[3..5] == [0, 0];
        match (head[0], in_the_clear, stage) {
            (HANDSHAKE, false, HandshakeStage::Established) => sifted.repeats = true,
            (ALERT, false, _) | (_, false, HandshakeStage::Shaking(_)) => {
                sifted.fragments += 1;
                sifted.datagram.extend_from_slice(&start[..RECORD_BYTES + bytes]);
            }
            (HANDSHAKE, true, _) => sifted.split(head, content, stage, numbers)?,
            (CHANGE_CIPHER_SPEC, true, HandshakeStage::Shaking(_)) if content == [1] => {
                sifted.fragments += 1;
                sifted.record(head, content, numbers);
            }
            _ => {}
        }
    }
    Some(sifted)
}

impl FilteredDatagram {
    /// Splits an unencrypted handshake record into its fragments.
    fn split(
        &mut self,
        head: &[u8],
        mut content: &[u8],
        stage: HandshakeStage,
        numbers: &mut u64,
    ) -> Option<()> {
        while !content.is_empty() {
            let start = content;
            let fragment = content.split_off(..FRAGMENT_BYTES)?;
            let bytes = u32::from_be_bytes([0, fragment[9], fragment[10], fragment[11]]) as usize;
            content.split_off(..bytes)?;
            let message = u16::from_be_bytes([fragment[4], fragment[5]]);
            match stage {
                HandshakeStage::Shaking(answered) if message < MESSAGES_MAX => {
                    self.repeats |= message < answered;
                    self.messages = self.messages.max(message + 1);
                    self.fragments += 1;
                    self.record(head, &start[..FRAGMENT_BYTES + bytes], numbers);
                }
                HandshakeStage::Shaking(_) => {}
                HandshakeStage::Established => self.repeats = true,
            }
        }
        Some(())
    }

    /// Appends a record with the next own number.
    fn record(&mut self, head: &[u8], content: &[u8], numbers: &mut u64) {
        // Content type, version and epoch; then a 48-bit number.
        self.datagram.extend_from_slice(&head[..5]);
        self.datagram.extend_from_slice(&numbers.to_be_bytes()[2..]);
        // The content is no longer than the record that contained it.
        self.datagram.extend_from_slice(&(content.len() as u16).to_be_bytes());
        self.datagram.extend_from_slice(content);
        *numbers += 1;
    }
}

/// Returns true for an own HelloVerifyRequest, whose loss the peer repairs by repeating its hello (RFC 6347
/// 4.2.1).
pub(in crate::webrtc) fn verifies(datagram: &[u8]) -> bool {
    datagram.first() == Some(&HANDSHAKE)
        && datagram.get(RECORD_BYTES) == Some(&HELLO_VERIFY_REQUEST)
}

/// Returns true for a ClientHello whose `use_srtp` extension lists AES-128-GCM. A list beyond the first
/// fragment of the hello is not seen.
pub(in crate::webrtc) fn offers_gcm(datagram: &[u8]) -> bool {
    profiles(datagram).is_some_and(|list| {
        list.chunks_exact(2).any(|profile| profile == AEAD_AES_128_GCM.to_be_bytes())
    })
}

/// Returns the profiles in the `use_srtp` extension of a ClientHello (RFC 5764 4.1.1).
fn profiles(datagram: &[u8]) -> Option<&[u8]> {
    let mut rest = datagram;
    let (record, message) = (rest.split_off(..RECORD_BYTES)?, rest.split_off(..FRAGMENT_BYTES)?);
    if record[0] != HANDSHAKE || message[0] != CLIENT_HELLO {
        return None;
    }
    // Version and random; then session, cookie, cipher suites and compressions, each after its length.
    rest.split_off(..2 + 32)?;
    for length_bytes in [1, 1, 2, 1] {
        let bytes = rest.try_get_uint(length_bytes).ok()? as usize;
        rest.split_off(..bytes)?;
    }
    rest.try_get_u16().ok()?;
    loop {
        let (kind, bytes) = (rest.try_get_u16().ok()?, rest.try_get_u16().ok()?);
        let mut extension = rest.split_off(..usize::from(bytes))?;
        if kind == USE_SRTP {
            let list = extension.try_get_u16().ok()?;
            return extension.split_off(..usize::from(list));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(kind: u8, epoch: u16, content: &[u8]) -> Vec<u8> {
        let mut bytes = vec![kind, 254, 253];
        bytes.extend_from_slice(&epoch.to_be_bytes());
        bytes.extend_from_slice(&[0; 6]);
        bytes.extend_from_slice(&(content.len() as u16).to_be_bytes());
        bytes.extend_from_slice(content);
        bytes
    }

    fn fragment(kind: u8, content: &[u8]) -> Vec<u8> {
        let mut bytes =
            vec![kind, 0, 0, content.len() as u8, 0, 0, 0, 0, 0, 0, 0, content.len() as u8];
        bytes.extend_from_slice(content);
        bytes
    }

    /// Returns content type, epoch and content of each record.
    fn records(datagram: &[u8]) -> Vec<(u8, u8, Vec<u8>)> {
        let mut rest = datagram;
        std::iter::from_fn(|| {
            let head = rest.split_off(..RECORD_BYTES)?;
            let bytes = usize::from(u16::from_be_bytes([head[11], head[12]]));
            Some((head[0], head[4], rest.split_off(..bytes)?.to_vec()))
        })
        .collect()
    }

    #[test]
    fn what_a_stranger_could_have_sent_is_left_out() {
        let (shaking, established) = (HandshakeStage::Shaking(0), HandshakeStage::Established);
        let alert = || record(ALERT, 0, &[2, 40]);
        let sealed = |kind| record(kind, 1, b"sealed");
        let message = || record(HANDSHAKE, 0, &fragment(1, b"abc"));
        let cases = [
            ("an alert in the clear", alert(), shaking, 0, false),
            ("data in the clear", record(23, 0, b"x"), shaking, 0, false),
            ("a change of cipher", record(CHANGE_CIPHER_SPEC, 0, &[1]), shaking, 1, false),
            ("a broken change", record(CHANGE_CIPHER_SPEC, 0, &[2, 0]), shaking, 0, false),
            ("a sealed alert", sealed(ALERT), shaking, 1, false),
            ("a sealed end", sealed(HANDSHAKE), shaking, 1, false),
            ("a message", message(), shaking, 1, false),
            ("a message again", message(), HandshakeStage::Shaking(1), 1, true),
            ("a message of none", numbered(9, message()), shaking, 0, false),
            ("an alert, then", alert(), established, 0, false),
            ("a sealed alert, then", sealed(ALERT), established, 1, false),
            ("sealed data, then", sealed(23), established, 0, false),
            ("a sealed end again, then", sealed(HANDSHAKE), established, 0, true),
            ("a message again, then", message(), established, 0, true),
            ("a change again", record(CHANGE_CIPHER_SPEC, 0, &[1]), established, 0, false),
        ];
        for (name, bytes, stage, kept, repeats) in cases {
            let sifted = filter_records(&bytes, stage, &mut 0).expect("adds up");
            assert_eq!(records(&sifted.datagram).len(), kept, "{name}");
            assert_eq!((sifted.fragments as usize, sifted.repeats), (kept, repeats), "{name}");
        }
    }

    fn numbered(message: u8, mut record: Vec<u8>) -> Vec<u8> {
        record[RECORD_BYTES + 5] = message;
        record
    }

    #[test]
    fn every_fragment_gets_a_record_of_its_own() {
        // End of one message and the whole next one, as stacks with long certificates send.
        let mut end = fragment(11, b"end");
        (end[3], end[8]) = (200, 197);
        let next = fragment(16, b"key");
        let together = record(HANDSHAKE, 0, &[&end[..], &next].concat());
        let mut numbers = 7;
        let sifted =
            filter_records(&together, HandshakeStage::Shaking(0), &mut numbers).expect("adds up");
        let expected = [(HANDSHAKE, 0, end), (HANDSHAKE, 0, next)];
        assert_eq!(records(&sifted.datagram), expected);
        assert_eq!((sifted.fragments, numbers), (2, 9));
        assert_eq!((sifted.datagram[10], sifted.datagram[10 + RECORD_BYTES + 15]), (7, 8));
    }

    #[test]
    fn what_does_not_add_up_is_refused() {
        let two = [fragment(1, b"abc"), fragment(2, b"")].concat();
        let cases = [
            ("a record that is cut", record(HANDSHAKE, 0, &two)[..20].to_vec()),
            ("a fragment that lies", record(HANDSHAKE, 0, &two[..14])),
            ("a head that is cut", vec![22, 254, 253]),
        ];
        for (name, bytes) in cases {
            assert_eq!(filter_records(&bytes, HandshakeStage::Shaking(0), &mut 0), None, "{name}");
        }
        assert_eq!(
            filter_records(&[], HandshakeStage::Shaking(0), &mut 0),
            Some(FilteredDatagram::default())
        );
    }
}
