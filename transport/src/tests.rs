//! Tests of the fuzz corpora: accepted as they are, and broken.

#[path = "../../tests/support/corpus.rs"]
mod corpus;

use proptest::{prelude::*, sample::Index};

use crate::{egress, rtp, webrtc::fuzz};
use corpus::{breaks, broken, corpus};

/// Name of a corpus, its digest, and the least that each entry yields: one that is rejected would test little
/// when broken.
type Target = (&'static str, fn(&[u8]) -> usize, usize);

const TARGETS: [Target; 9] = [
    ("answer", egress::fuzz::answer, 3),
    ("packets", rtp::fuzz::packets, 2),
    ("arrivals", fuzz::arrivals, 4),
    ("offer", fuzz::offer, 1),
    ("fragment", fuzz::fragment, 1),
    ("stun", fuzz::stun, 1),
    ("dtls", fuzz::dtls, 1),
    ("srtp", fuzz::srtp, 1),
    ("rtcp", fuzz::control, 1),
];

#[test]
fn every_corpus_is_digested() {
    for (name, digest, least) in TARGETS {
        for bytes in corpus(name) {
            assert!(digest(&bytes) >= least, "{name}: {bytes:02x?}");
        }
    }
    assert!(corpus("packets").len() >= 6, "each codec, and a restart");
    assert!(corpus("arrivals").len() >= 4, "in order, overtaken, far and many");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2304))]

    #[test]
    fn a_broken_corpus_is_digested(
        target in 0..TARGETS.len(),
        seed in any::<Index>(),
        breaks in breaks(),
    ) {
        let (name, digest, _) = TARGETS[target];
        digest(&broken(seed.get::<Vec<u8>>(&corpus(name)), &breaks));
    }

    #[test]
    fn any_bytes_are_digested(
        target in 0..TARGETS.len(),
        bytes in proptest::collection::vec(any::<u8>(), 0..2000),
    ) {
        (TARGETS[target].1)(&bytes);
    }
}
