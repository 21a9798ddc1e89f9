//! Scales stills down, each in its own sandboxed worker; keeps the latest in memory.
//!
//! This process never decodes a picture. The caller must have checked that it may see the still.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
};

use bytes::Bytes;
use media::BlobHash;
use parking_lot::Mutex;
use worker::{Supervisor, WorkerError};

use crate::base::metrics::Metrics;

/// Maximum bytes of kept pictures; the oldest are dropped first.
pub const KEPT_BYTES_MAX: usize = 32 << 20;

/// Hash of a still and the longer edge, in pixels, of its scaled picture.
type Key = (BlobHash, u32);

/// Scales stills down and keeps the results.
pub struct SmallStills {
    supervisor: Supervisor,
    metrics: Arc<Metrics>,
    kept: Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    pictures: HashMap<Key, Bytes>,
    order: VecDeque<Key>,
    bytes: usize,
}

impl SmallStills {
    /// Creates an empty cache that scales in workers of `supervisor`.
    pub fn new(supervisor: Supervisor, metrics: Arc<Metrics>) -> SmallStills {
        SmallStills { supervisor, metrics, kept: Mutex::default() }
    }

    pub fn kept(&self, still: &BlobHash, edge: u32) -> Option<Bytes> {
        self.kept.lock().pictures.get(&(*still, edge)).cloned()
    }

    /// Scales the still `jpeg`, whose hash is `still`, to a longer edge of `edge` pixels; returns
    /// a smaller one unchanged. Blocks on a worker.
    pub fn make(&self, still: BlobHash, jpeg: Vec<u8>, edge: u32) -> Result<Bytes, WorkerError> {
        let is_small = |jpeg: &[u8]| {
            Supervisor::still_extent(jpeg)
                .is_some_and(|extent| extent.width.max(extent.height) <= edge)
        };
        if is_small(&jpeg) {
            return Ok(jpeg.into());
        }
        let timer = self.metrics.shrink_seconds.start_timer();
        let picture = Bytes::from(self.supervisor.shrink(jpeg, edge)?);
        timer.observe_duration();
        self.kept.lock().keep((still, edge), picture.clone());
        Ok(picture)
    }
}

impl Kept {
    fn keep(&mut self, key: Key, picture: Bytes) {
        // A picture that two callers made at once is kept once.
        if picture.len() > KEPT_BYTES_MAX || self.pictures.contains_key(&key) {
            return;
        }
        self.bytes += picture.len();
        self.pictures.insert(key, picture);
        self.order.push_back(key);
        while self.bytes > KEPT_BYTES_MAX {
            let Some(oldest) = self.order.pop_front() else { return };
            self.bytes -= self.pictures.remove(&oldest).map_or(0, |picture| picture.len());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_pictures_make_room() {
        let mut kept = Kept::default();
        let key = |number: u8| (BlobHash::from_bytes([number; 32]), 64);
        let quarter = Bytes::from(vec![0; KEPT_BYTES_MAX / 4]);
        for number in [1, 2, 1, 3, 4, 5, 5] {
            kept.keep(key(number), quarter.clone());
        }
        let there = [1, 2, 3, 4, 5].map(|number| kept.pictures.contains_key(&key(number)));
        assert_eq!(there, [false, true, true, true, true]);
        assert_eq!((kept.bytes, kept.order.len()), (KEPT_BYTES_MAX, 4));
        kept.keep(key(6), Bytes::from(vec![0; KEPT_BYTES_MAX + 1]));
        assert!(!kept.pictures.contains_key(&key(6)) && kept.order.len() == 4, "too large");
    }
}
