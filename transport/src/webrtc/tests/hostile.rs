//! Tests of the fuzz corpora of signalling and datagrams: accepted as they are, and mutated.

use proptest::{prelude::*, sample::Index};

use super::fuzz::hostile;
use crate::corpus::{breaks, broken, corpus};

type Target = (&'static str, fn(&[u8]) -> usize);

const TARGETS: [Target; 6] = [
    ("offer", hostile::offer),
    ("fragment", hostile::fragment),
    ("stun", hostile::stun),
    ("dtls", hostile::dtls),
    ("srtp", hostile::srtp),
    ("rtcp", hostile::control),
];

#[test]
fn every_corpus_is_digested() {
    for (name, digest) in TARGETS {
        for bytes in corpus(name) {
            assert!(digest(&bytes) > 0, "{name}: {bytes:02x?}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1024))]

    #[test]
    fn a_broken_corpus_is_digested(
        target in 0..TARGETS.len(),
        seed in any::<Index>(),
        breaks in breaks(),
    ) {
        let (name, digest) = TARGETS[target];
        digest(&broken(seed.get::<Vec<u8>>(&corpus(name)), &breaks));
    }

    #[test]
    fn any_bytes_are_digested(target in 0..TARGETS.len(), bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
        (TARGETS[target].1)(&bytes);
    }
}
