//! Invariants of every parser of outside bytes in this crate, for any bytes.
//!
//! For fuzzers, which call these functions with what they make up, and for the tests below, which
//! do the same with a stable compiler: the corpus as it is, and broken in every way.

pub use crate::source::fuzz::{conversation, playlist};

use std::fmt::Debug;

use media::Dimensions;

use crate::{
    jpeg,
    protocol::{WorkerReply, WorkerRequest},
    still::JpegEncoder,
    wire::{HEADER_BYTES, Message, decode, encode},
};

/// A message from the other end of the worker's socket.
///
/// An accepted message reads the same once it was written again.
pub fn message(bytes: &[u8]) {
    keeps_its_meaning::<WorkerRequest>(bytes);
    keeps_its_meaning::<WorkerReply>(bytes);
}

fn keeps_its_meaning<T: Message + PartialEq + Debug>(payload: &[u8]) {
    if let Ok(message) = decode::<T>(payload) {
        let mut bytes = Vec::new();
        encode(&message, &mut bytes).expect("hardly longer than what was read");
        assert_eq!(decode::<T>(&bytes[HEADER_BYTES..]).as_ref(), Ok(&message));
    }
}

/// Pixels of a picture that is decoded here.
const PIXELS_MAX: u64 = 1 << 20;
/// Edge to which it is scaled down.
const EDGE_MAX: u32 = 64;

/// A picture from the other end of the worker's socket.
///
/// An accepted picture has the size that its header and the decoder give, and is refused for any other size and with a byte
/// more or less. Scaled down it is accepted again.
pub fn picture(bytes: &[u8]) {
    let Some(extent) = jpeg::extent_of(bytes).filter(|extent| jpeg::is_baseline(bytes, *extent))
    else {
        return;
    };
    let Dimensions { width, height } = extent;
    assert!(!jpeg::is_baseline(bytes, Dimensions { width: height + 1, height: width }));
    assert!(!jpeg::is_baseline(&[bytes, &[0]].concat(), extent));
    assert!(!jpeg::is_baseline(&bytes[..bytes.len() - 1], extent));
    let Ok(header) = turbojpeg::read_header(bytes) else { return };
    assert_eq!((header.width, header.height), (width as usize, height as usize));
    if u64::from(width) * u64::from(height) > PIXELS_MAX {
        return;
    }
    let mut encoder = JpegEncoder::new().expect("libjpeg is there");
    if let Ok(small) = encoder.shrink(bytes, EDGE_MAX) {
        assert!(small.extent.width.max(small.extent.height) <= EDGE_MAX, "{:?}", small.extent);
        assert!(jpeg::is_baseline(&small.jpeg, small.extent), "{:?}", small.extent);
    }
}

#[cfg(test)]
mod tests {
    use proptest::{prelude::*, sample::Index};

    use super::*;
    use crate::corpus::{breaks, broken, corpus};

    /// A parser, and the folder of the corpus that has bytes for it.
    type Target = (&'static str, fn(&[u8]));

    const TARGETS: [Target; 4] = [
        ("playlist", playlist),
        ("conversation", conversation),
        ("message", message),
        ("picture", picture),
    ];

    #[test]
    fn the_corpus_is_digested() {
        for (name, parse) in TARGETS {
            let corpus = corpus(name);
            assert!(!corpus.is_empty(), "{name}: no corpus");
            corpus.iter().for_each(|bytes| parse(bytes));
        }
    }

    #[test]
    fn the_corpus_has_pictures() {
        for bytes in corpus("picture") {
            let extent = jpeg::extent_of(&bytes).expect("a picture");
            assert!(jpeg::is_baseline(&bytes, extent), "{extent:?}");
        }
    }

    /// One that is refused as it is would test nothing when it is broken.
    #[test]
    fn the_corpus_has_a_message_of_frames() {
        let found = corpus("message").iter().any(|bytes| {
            matches!(decode(bytes), Ok(WorkerReply::Job(crate::JobEvent::Frames(records))) if records.len() == 3)
        });
        assert!(found);
    }

    proptest! {
        #[test]
        fn a_broken_corpus_is_digested(
            breaks in breaks(),
            seed in any::<Index>(),
        ) {
            for (name, parse) in TARGETS {
                let corpus = corpus(name);
                parse(&broken(seed.get::<Vec<u8>>(&corpus), &breaks));
            }
        }
    }
}
