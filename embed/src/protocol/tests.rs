//! Tests of the layout byte by byte, of every error, and of any bytes in any pieces.

use proptest::{prelude::*, sample::Index};

use super::*;
use crate::corpus::{breaks, broken, corpus};

fn embedding(values: &[f32]) -> Embedding {
    Embedding::new(values.to_vec()).expect("an embedding")
}

fn request(jpeg: &[u8]) -> Vec<u8> {
    [&request_header(jpeg.len()).expect("a fair length")[..], jpeg].concat()
}

fn pushed(bytes: &[u8]) -> MessageDecoder {
    let mut decoder = MessageDecoder::default();
    decoder.push(bytes);
    decoder
}

#[test]
fn messages_are_laid_out_as_documented() {
    assert_eq!(request(b"jpeg"), b"SLEM\x01\0\0\0\0\0\0\x04jpeg");
    let answer = encode_reply(&SidecarReply::Embedding(embedding(&[0.0, 2.0])));
    assert_eq!(answer, b"SLER\x01\0\0\x02\0\0\0\0\0\0\0\0\0\0\x80\x3f");
    let refused = encode_reply(&SidecarReply::Refused(SidecarStatus::BUSY));
    assert_eq!(refused, b"SLER\x01\x02\0\0\0\0\0\0");
}

#[test]
fn a_message_that_is_none_ends_the_conversation() {
    let other = "the peer speaks another protocol";
    let version = "the peer speaks version 2 of the protocol, not 1";
    let requests: [(&str, &[u8], &str); 5] = [
        ("HTTP", b"GET", other),
        ("an answer", b"SLER\x01", other),
        ("the next version", b"SLEM\x02", version),
        ("nothing in it", b"SLEM\x01\0\0\0\0\0\0\0", "a picture of 0 bytes, not 1 to 4194304"),
        ("too long", b"SLEM\x01\0\0\0\0\x40\0\x01", "a picture of 4194305 bytes, not 1 to 4194304"),
    ];
    for (name, bytes, expected) in requests {
        assert_eq!(pushed(bytes).poll_request(), Err(expected.to_owned()), "{name}");
    }
    let zeros = Embedding::new(vec![0.0]).expect_err("points nowhere").to_string();
    let sizes = ["an embedding of 0", "an embedding of 4097"]
        .map(|start| format!("{start} dimensions, not 1 to 4096"));
    let answers: [(&str, &[u8], &str); 5] = [
        ("a request", b"SLEM", other),
        ("the next version", b"SLER\x02", version),
        ("no dimensions", b"SLER\x01\0\0\0\0\0\0\0", &sizes[0]),
        ("too many", b"SLER\x01\0\x10\x01\0\0\0\0", &sizes[1]),
        ("zeros", b"SLER\x01\0\0\x01\0\0\0\0\0\0\0\0", &zeros),
    ];
    for (name, bytes, expected) in answers {
        assert_eq!(pushed(bytes).poll_reply(), Err(expected.to_owned()), "{name}");
    }
}

#[test]
fn reserved_bytes_and_numbers_of_a_refusal_are_passed_over() {
    let mut requests = pushed(b"SLEM\x01\x07\x08\x09\0\0\0\x01j");
    assert_eq!(requests.poll_request(), Ok(Some(Bytes::from_static(b"j"))));
    let mut answers = pushed(b"SLER\x01\x63\0\x01\x07\x08\x09\x0aabcdSLER");
    assert_eq!(answers.poll_reply(), Ok(Some(SidecarReply::Refused(SidecarStatus(99)))));
    assert_eq!(answers.poll_reply(), Ok(None));
}

fn answer() -> impl Strategy<Value = SidecarReply> {
    let direction = proptest::collection::vec(-1.0_f32..1.0, 1..40)
        .prop_filter_map("points nowhere", |values| Embedding::new(values).ok());
    prop_oneof![
        direction.prop_map(SidecarReply::Embedding),
        (1_u8..=255).prop_map(|status| SidecarReply::Refused(SidecarStatus(status))),
    ]
}

proptest! {
    #[test]
    fn requests_survive_any_cutting(
        jpegs in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 1..60), 1..6),
        cuts in proptest::collection::vec(1_usize..30, 1..20),
    ) {
        let stream: Vec<u8> = jpegs.iter().flat_map(|jpeg| request(jpeg)).collect();
        let (mut requests, mut got, mut rest) = (MessageDecoder::default(), Vec::new(), &stream[..]);
        for cut in cuts.iter().cycle() {
            let (piece, after) = rest.split_at(rest.len().min(*cut));
            requests.push(piece);
            while let Some(jpeg) = requests.poll_request().expect("well formed") {
                got.push(jpeg.to_vec());
            }
            rest = after;
            if rest.is_empty() {
                break;
            }
        }
        prop_assert_eq!(got, jpegs);
        prop_assert!(requests.is_empty());
    }

    /// An embedding is normalised again by the receiver, which changes its values by a rounding error.
    #[test]
    fn answers_survive_any_cutting(
        sent in proptest::collection::vec(answer(), 1..6),
        cut in 1_usize..50,
    ) {
        let stream: Vec<u8> = sent.iter().flat_map(encode_reply).collect();
        let (mut answers, mut got) = (MessageDecoder::default(), Vec::new());
        for piece in stream.chunks(cut) {
            answers.push(piece);
            while let Some(answer) = answers.poll_reply().expect("well formed") {
                got.push(answer);
            }
        }
        prop_assert_eq!(got.len(), sent.len());
        for pair in got.iter().zip(&sent) {
            match pair {
                (SidecarReply::Embedding(got), SidecarReply::Embedding(sent)) => {
                    prop_assert_eq!(got.distance(sent), Some(media::Score::ZERO));
                }
                (got, sent) => prop_assert_eq!(got, sent),
            }
        }
    }

    #[test]
    fn any_bytes_are_digested(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        crate::fuzz::sidecar(&bytes);
    }

    #[test]
    fn a_broken_corpus_is_digested(
        seed in any::<Index>(),
        breaks in breaks(),
        cut in any::<Index>(),
    ) {
        let bytes = broken(seed.get::<Vec<u8>>(&corpus("sidecar")), &breaks);
        crate::fuzz::sidecar(&bytes);
        crate::fuzz::sidecar(&bytes[..cut.index(bytes.len() + 1)]);
    }
}

#[test]
fn the_corpus_is_digested() {
    corpus("sidecar").iter().for_each(|bytes| crate::fuzz::sidecar(bytes));
}
