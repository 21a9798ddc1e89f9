//! Compact sets of still hashes, small enough for millions of them.

use std::collections::HashSet;

use media::BlobHash;

/// Hashes by their first 8 bytes: a collision only keeps a still longer.
#[derive(Default)]
pub(super) struct Hashes(HashSet<[u8; 8]>);

impl Hashes {
    fn start(hash: &BlobHash) -> [u8; 8] {
        let mut start = [0; 8];
        start.copy_from_slice(&hash.as_bytes()[..8]);
        start
    }

    pub(super) fn insert(&mut self, hash: &BlobHash) {
        self.0.insert(Hashes::start(hash));
    }

    pub(super) fn contains(&self, hash: &BlobHash) -> bool {
        self.0.contains(&Hashes::start(hash))
    }
}
