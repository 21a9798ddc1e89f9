//! Fuzzing of the sidecar's protocol, and its invariants for any bytes.

use crate::protocol::{MessageDecoder, SidecarReply, encode_reply, request_header};

/// Reads `bytes` as a client's requests and as a sidecar's replies, whole and in pieces.
///
/// # Panics
/// Panics if the pieces give other messages than the whole, or a message differs once encoded and read again.
pub fn sidecar(bytes: &[u8]) {
    let requests = |bytes: &[u8], piece| messages(bytes, piece, MessageDecoder::poll_request);
    let answers = |bytes: &[u8], piece| messages(bytes, piece, MessageDecoder::poll_reply);
    assert_eq!(requests(bytes, bytes.len()), requests(bytes, 7), "requests in pieces");
    assert_eq!(answers(bytes, bytes.len()), answers(bytes, 7), "answers in pieces");
    for jpeg in requests(bytes, bytes.len()) {
        let header = request_header(jpeg.len()).expect("it was within the limits");
        assert_eq!(requests(&[&header[..], &jpeg].concat(), usize::MAX), [jpeg]);
    }
    for answer in answers(bytes, bytes.len()) {
        let again = answers(&encode_reply(&answer), usize::MAX);
        let same = match (&answer, &again[..]) {
            (SidecarReply::Embedding(one), [SidecarReply::Embedding(other)]) => {
                one.distance(other) == Some(media::Score::ZERO)
            }
            (one, [other]) => one == other,
            _ => false,
        };
        assert!(same, "{answer:?} came back as {again:?}");
    }
}

/// Decodes `bytes`, pushed in pieces of this length, up to the first error.
fn messages<T>(
    bytes: &[u8],
    piece: usize,
    poll: impl Fn(&mut MessageDecoder) -> Result<Option<T>, String>,
) -> Vec<T> {
    let (mut decoder, mut found) = (MessageDecoder::default(), Vec::new());
    for piece in bytes.chunks(piece.max(1)) {
        decoder.push(piece);
        loop {
            match poll(&mut decoder) {
                Ok(Some(message)) => found.push(message),
                Ok(None) => break,
                Err(_) => return found,
            }
        }
    }
    found
}
