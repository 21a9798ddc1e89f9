//! What must be known of a DTLS datagram before it is parsed (RFC 6347 4.1, 4.2.2).

const RECORD_BYTES: usize = 13;
const FRAGMENT_BYTES: usize = 12;
const HANDSHAKE: u8 = 22;
const CLIENT_HELLO: u8 = 1;
const USE_SRTP: u16 = 14;
const AEAD_AES_128_GCM: u16 = 7;

/// Reads forward through bytes.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, bytes: usize) -> Option<&'a [u8]> {
        let (one, rest) = self.0.split_at_checked(bytes)?;
        self.0 = rest;
        Some(one)
    }

    fn byte(&mut self) -> Option<usize> {
        self.take(1).map(|bytes| usize::from(bytes[0]))
    }

    fn word(&mut self) -> Option<usize> {
        self.take(2).map(|bytes| usize::from(u16::from_be_bytes([bytes[0], bytes[1]])))
    }
}

/// How many handshake fragments a datagram brings in the clear, an encrypted record counting as
/// one; `None` when its records do not add up.
pub(super) fn fragments(datagram: &[u8]) -> Option<u32> {
    let mut reader = Reader(datagram);
    let mut fragments = 0;
    while !reader.0.is_empty() {
        let head = reader.take(RECORD_BYTES)?;
        let bytes = usize::from(u16::from_be_bytes([head[11], head[12]]));
        let mut record = Reader(reader.take(bytes)?);
        let in_the_clear = head[3..5] == [0, 0];
        if head[0] != HANDSHAKE || !in_the_clear {
            fragments += 1;
            continue;
        }
        while !record.0.is_empty() {
            let head = record.take(FRAGMENT_BYTES)?;
            let bytes = u32::from_be_bytes([0, head[9], head[10], head[11]]) as usize;
            record.take(bytes)?;
            fragments += 1;
        }
    }
    Some(fragments)
}

/// Whether a datagram starts a handshake whose `use_srtp` extension lists AES-128-GCM. A hello in
/// several fragments may list it further on; then it is not seen.
pub(super) fn offers_gcm(datagram: &[u8]) -> bool {
    profiles(datagram).is_some_and(|list| {
        list.chunks_exact(2).any(|profile| profile == AEAD_AES_128_GCM.to_be_bytes())
    })
}

/// The profiles in the `use_srtp` extension of a ClientHello (RFC 5764 4.1.1).
fn profiles(datagram: &[u8]) -> Option<&[u8]> {
    let mut reader = Reader(datagram);
    if reader.take(RECORD_BYTES)?[0] != HANDSHAKE {
        return None;
    }
    if reader.take(FRAGMENT_BYTES)?[0] != CLIENT_HELLO {
        return None;
    }
    // Version and random; then session, cookie, cipher suites and compressions with their lengths.
    reader.take(2 + 32)?;
    let session = reader.byte()?;
    reader.take(session)?;
    let cookie = reader.byte()?;
    reader.take(cookie)?;
    let suites = reader.word()?;
    reader.take(suites)?;
    let compressions = reader.byte()?;
    reader.take(compressions)?;
    reader.word()?;
    loop {
        let (kind, bytes) = (reader.word()?, reader.word()?);
        let mut extension = Reader(reader.take(bytes)?);
        if kind == usize::from(USE_SRTP) {
            let list = extension.word()?;
            return extension.take(list);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

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

    fn hello(profiles: &[u16]) -> Vec<u8> {
        let mut body = vec![254, 253];
        body.extend_from_slice(&[7; 32]);
        body.extend_from_slice(&[0, 0, 0, 2, 0xC0, 0x2B, 1, 0]);
        let list = 2 * profiles.len() as u8;
        body.extend_from_slice(&[0, 13 + list, 0, 23, 0, 0, 0, 14, 0, list + 3, 0, list]);
        profiles.iter().for_each(|profile| body.extend_from_slice(&profile.to_be_bytes()));
        body.push(0);
        record(HANDSHAKE, 0, &fragment(CLIENT_HELLO, &body))
    }

    #[test]
    fn gcm_is_found_where_it_is_offered() {
        assert!(offers_gcm(&hello(&[1, 8, 7])));
        assert!(!offers_gcm(&hello(&[1, 8])));
        assert!(!offers_gcm(&hello(&[])));
        assert!(!offers_gcm(&hello(&[7])[..60]), "cut before the extensions");
        assert!(!offers_gcm(b""));
    }

    #[test]
    fn fragments_are_counted() {
        let two = [fragment(1, b"abc"), fragment(2, b"")].concat();
        let cases = [
            ("nothing", vec![], Some(0)),
            ("a hello", hello(&[7]), Some(1)),
            ("two fragments", record(HANDSHAKE, 0, &two), Some(2)),
            ("an encrypted record", record(HANDSHAKE, 1, &two), Some(1)),
            ("two records", [record(20, 0, &[1]), record(HANDSHAKE, 1, b"x")].concat(), Some(2)),
            ("a record that is cut", record(HANDSHAKE, 0, &two)[..20].to_vec(), None),
            ("a fragment that lies", record(HANDSHAKE, 0, &two[..14]), None),
            ("a head that is cut", vec![22, 254, 253], None),
        ];
        for (name, bytes, expected) in cases {
            assert_eq!(fragments(&bytes), expected, "{name}");
        }
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            fragments(&bytes);
            offers_gcm(&bytes);
            let inside = record(HANDSHAKE, 0, &bytes);
            prop_assert!(fragments(&inside).is_none_or(|count| count as usize <= bytes.len()));
        }
    }
}
