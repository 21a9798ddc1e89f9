//! Tests with the vectors of RFC 5769 and of malformed bytes; checks and responses for others, by another
//! implementation.

use rtc_dtls::crypto_provider::{RTCCryptoProvider as _, providers::AwsLcRsProvider};
use rtc_stun::{
    attributes::{ATTR_PRIORITY, ATTR_USERNAME, AttrType},
    error_code::ErrorCodeAttribute,
    fingerprint::FINGERPRINT,
    integrity::MessageIntegrity,
    message::{BINDING_REQUEST, Getter, Message, Setter, TransactionId},
    textattrs::TextAttribute,
    xoraddr::XorMappedAddress,
};

use super::*;

/// Returns the HMAC key of a password (RFC 8489 9.1.1).
pub(in crate::webrtc) fn key(password: &str) -> hmac::Key {
    hmac::Key::new(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, password.as_bytes())
}

/// Returns a check of another implementation, with `more` attributes before the integrity.
pub(in crate::webrtc) fn check(username: &str, password: &str, more: &[(u16, &[u8])]) -> Vec<u8> {
    let provider = AwsLcRsProvider::new();
    let integrity = MessageIntegrity::new_short_term_integrity_with_provider(
        password.to_owned(),
        provider.crypto(),
    );
    let user = TextAttribute::new(ATTR_USERNAME, username.to_owned());
    let mut message = Message::new();
    let head: [Box<dyn Setter>; 3] =
        [Box::new(BINDING_REQUEST), Box::new(TransactionId::new()), Box::new(user)];
    message.build(&head).expect("it fits");
    message.add(ATTR_PRIORITY, &1u32.to_be_bytes());
    more.iter().for_each(|(kind, value)| message.add(AttrType(*kind), value));
    integrity.add_to(&mut message).expect("signed");
    FINGERPRINT.add_to(&mut message).expect("it fits");
    message.raw
}

pub(in crate::webrtc) const NOMINATE: (u16, &[u8]) = (USE_CANDIDATE, &[]);
pub(in crate::webrtc) const CONTROLLING: (u16, &[u8]) = (0x802A, &[7; 8]);
pub(in crate::webrtc) const CONTROLLED: (u16, &[u8]) = (ICE_CONTROLLED, &[7; 8]);

/// Parses a response and verifies its checksum and signature.
pub(in crate::webrtc) fn verified(bytes: &[u8], password: &str) -> Message {
    let mut message = Message::new();
    message.unmarshal_binary(bytes).expect("a message");
    FINGERPRINT.check(&message).expect("its checksum");
    let provider = AwsLcRsProvider::new();
    MessageIntegrity::check(&mut message, password.as_bytes(), provider.crypto()).expect("signed");
    message
}

/// Returns the address in a response and its error code, 0 without one.
pub(in crate::webrtc) fn response(bytes: &[u8], password: &str) -> (Option<SocketAddr>, u16) {
    let message = verified(bytes, password);
    let (mut seen, mut refused) = (XorMappedAddress::default(), ErrorCodeAttribute::default());
    let has_address = seen.get_from(&message).is_ok();
    let has_code = refused.get_from(&message).is_ok();
    let address = has_address.then(|| SocketAddr::new(seen.ip, seen.port));
    (address, if has_code { refused.code.0 } else { 0 })
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
