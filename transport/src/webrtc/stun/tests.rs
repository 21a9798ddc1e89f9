//! Tests with the vectors of RFC 5769, client-side checks of responses, and malformed bytes.

use super::*;

/// Returns the HMAC key of a password (RFC 8489 9.1.1).
pub(in crate::webrtc) fn key(password: &str) -> hmac::Key {
    hmac::Key::new(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, password.as_bytes())
}

/// Returns a check of a controlling agent, with `more` attributes before the integrity.
pub(in crate::webrtc) fn check(username: &str, password: &str, more: &[(u16, &[u8])]) -> Vec<u8> {
    let mut out = Vec::new();
    out.extend_from_slice(&BINDING_REQUEST.to_be_bytes());
    out.extend_from_slice(&[0, 0]);
    out.extend_from_slice(&COOKIE.to_be_bytes());
    out.extend_from_slice(b"transaction!");
    attribute(USERNAME, username.as_bytes(), &mut out);
    attribute(PRIORITY, &1u32.to_be_bytes(), &mut out);
    for (kind, value) in more {
        attribute(*kind, value, &mut out);
    }
    close(0, &key(password), &mut out);
    out
}

pub(in crate::webrtc) const NOMINATE: (u16, &[u8]) = (USE_CANDIDATE, &[]);
pub(in crate::webrtc) const CONTROLLING: (u16, &[u8]) = (0x802A, &[7; 8]);
pub(in crate::webrtc) const CONTROLLED: (u16, &[u8]) = (ICE_CONTROLLED, &[7; 8]);

/// Returns the type of a response and its address or error code; checks the integrity.
pub(in crate::webrtc) fn response(bytes: &[u8], password: &str) -> (u16, Option<SocketAddr>, u16) {
    let (mut at, mut address, mut code, mut signed) = (HEADER_BYTES, None, 0, false);
    while at < bytes.len() {
        let (kind, length) = (word(bytes, at), usize::from(word(bytes, at + 2)));
        let value = &bytes[at + 4..at + 4 + length];
        match kind {
            XOR_MAPPED_ADDRESS => {
                let port = word(value, 2) ^ (COOKIE >> 16) as u16;
                let plain: Vec<u8> =
                    value[4..].iter().zip(&bytes[4..20]).map(|(one, other)| one ^ other).collect();
                let ip: IpAddr = match value[1] {
                    1 => <[u8; 4]>::try_from(plain).expect("four octets").into(),
                    _ => <[u8; 16]>::try_from(plain).expect("sixteen octets").into(),
                };
                address = Some(SocketAddr::new(ip, port));
            }
            ERROR_CODE => code = u16::from(value[2]) * 100 + u16::from(value[3]),
            MESSAGE_INTEGRITY => {
                let length = at + INTEGRITY_BYTES - HEADER_BYTES;
                let tag = sign(&key(password), &bytes[..at], length);
                signed = tag.as_ref() == value;
            }
            FINGERPRINT => {
                assert_eq!(long(value, 0), crc32fast::hash(&bytes[..at]) ^ FINGERPRINT_XOR);
                assert_eq!(at + 8, bytes.len());
            }
            _ => {}
        }
        at += 4 + length.next_multiple_of(4);
    }
    assert!(signed, "a response is signed");
    assert_eq!(usize::from(word(bytes, 2)), bytes.len() - HEADER_BYTES);
    (word(bytes, 0), address, code)
}

/// Sample request of RFC 5769 2.1.
const SAMPLE: &str = "000100582112a442b7e7a701bc34d686fa87dfae\
    802200105354554e207465737420636c69656e74\
    002400046e0001ff\
    80290008932ff9b151263b36\
    00060009 6576746a3a68367659 202020\
    00080014 9aeaa70cbfd8cb56781ef2b5b2d3f249c1b571a2\
    80280004 e57a3bcf";

fn sample() -> Vec<u8> {
    let digits: Vec<u8> = SAMPLE.bytes().filter(u8::is_ascii_hexdigit).collect();
    let pair = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).expect("hex"), 16);
    digits.chunks(2).map(|digits| pair(digits).expect("hex")).collect()
}

#[test]
fn the_sample_request_of_rfc_5769_is_read_and_checked() {
    let bytes = sample();
    let request = BindingRequest::parse(&bytes).expect("it is a check");
    assert_eq!(request.users(), Some(("evtj", "h6vY")));
    assert!(request.controlled);
    assert!(!request.nominates);
    assert_eq!(request.unknown, None);
    assert!(request.is_signed_with(&key("VOkJxbRl1RmTxUk/WvJxBt")));
    assert!(!request.is_signed_with(&key("VOkJxbRl1RmTxUk/WvJxBT")));
}

#[test]
fn every_changed_bit_is_noticed() {
    let bytes = sample();
    let password = key("VOkJxbRl1RmTxUk/WvJxBt");
    for bit in 0..bytes.len() * 8 {
        let mut changed = bytes.clone();
        changed[bit / 8] ^= 1 << (bit % 8);
        let taken =
            BindingRequest::parse(&changed).is_ok_and(|read| read.is_signed_with(&password));
        assert!(!taken, "bit {bit}");
    }
}

#[test]
fn what_is_no_check_is_told_apart() {
    let good = check("ours:theirs", "password", &[]);
    let with = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = good.clone();
        change(&mut bytes);
        BindingRequest::parse(&bytes).err()
    };
    let cases: [(&str, Option<StunParseError>, Option<StunParseError>); 7] = [
        ("a good one", with(&|_| {}), None),
        ("cut", with(&|bytes| bytes.truncate(40)), Some(StunParseError::Malformed)),
        ("no cookie", with(&|bytes| bytes[4] = 0), Some(StunParseError::Malformed)),
        ("an indication", with(&|bytes| bytes[1] = 0x11), Some(StunParseError::Other)),
        ("a response", with(&|bytes| bytes[0] = 1), Some(StunParseError::Other)),
        ("a length that lies", with(&|bytes| bytes[3] ^= 4), Some(StunParseError::Malformed)),
        ("more behind it", with(&|bytes| bytes.extend([0; 4])), Some(StunParseError::Malformed)),
    ];
    for (name, found, expected) in cases {
        assert_eq!(found, expected, "{name}");
    }
    assert_eq!(BindingRequest::parse(&check("", "p", &[])).err(), Some(StunParseError::Malformed));
    let strange = check("ours:theirs", "password", &[(0x0033, &[1, 2, 3])]);
    assert_eq!(BindingRequest::parse(&strange).expect("it is a check").unknown, Some(0x0033));
    let optional = check("ours:theirs", "password", &[(0xC057, &[1, 2])]);
    assert_eq!(BindingRequest::parse(&optional).expect("it is a check").unknown, None);
}
