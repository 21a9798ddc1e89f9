//! Runs in short, for lists: told from their events, each read once, and kept.
//!
//! Promises that asking again reads only what is new of a run, and that what is kept is bounded: the
//! runs that nobody asked about for longest make room, and are read again. Does not decide who may see a run.

mod digest;
mod shape;

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use gate::GateConfig;
use media::{BlobHash, Dimensions, FrameRate, RunId};
use parking_lot::Mutex;
use timeline::{BlobStore, Timeline};

use crate::runs::registry::Run;
use digest::Digest;

pub use shape::{BUCKETS, Bucket, Named, Shape, Told};

/// Runs that are kept, each 3 KiB, one of live video up to 16, and 4 more where models named something.
pub const KEPT_MAX: usize = 8192;
/// Bytes of the description that is told.
pub const DESCRIPTION_BYTES_MAX: usize = 256;

/// Parts that runs are told from.
#[derive(Clone, Copy)]
pub struct Records<'a> {
    /// Their events.
    pub timeline: &'a Timeline,
    /// Their stills.
    pub blobs: &'a BlobStore,
    /// Thresholds of recordings that have none of their own.
    pub gate: GateConfig,
}

/// A run in short.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Summary {
    /// Frames of the newest decoding.
    pub frames: u64,
    /// Frames among them that the gate keeps.
    pub kept: u64,
    /// Markers of the newest analysis of each stream, by type.
    pub markers: BTreeMap<String, u64>,
    /// Descriptions that models gave.
    pub descriptions: u64,
    /// The most telling still: of a cut, or else of an artifact, one that was described, the first.
    pub still: Option<BlobHash>,
    /// Time from the start of the job of the newest decoding to its end.
    pub took_ms: Option<u64>,
    /// Its source ended early or is damaged.
    pub truncated: bool,
    /// The last description, cut where it is long.
    pub description: Option<String>,
    /// The size of the picture.
    pub extent: Option<Dimensions>,
    /// Frames a second of the source.
    pub source_fps: Option<FrameRate>,
    /// Distribution of its frames over its duration.
    pub shape: Told,
    /// Stretches of it in which models named something.
    pub named: Named,
}

/// Digests of runs.
#[derive(Default)]
pub struct Summaries(Mutex<Kept>);

#[derive(Default)]
struct Kept {
    digests: HashMap<RunId, (u64, Arc<Mutex<Digest>>)>,
    /// Runs by the tick of their last request, the oldest first.
    asked: BTreeMap<u64, RunId>,
    clock: u64,
}

impl Summaries {
    /// Summary of `run` from `records`; `None` where nothing of it is decoded. Reads where there is
    /// something new.
    pub fn of(&self, run: &Run, records: Records<'_>) -> Option<Summary> {
        let digest = self.0.lock().digest(run.id());
        let mut digest = digest.lock();
        digest.follow(run, records);
        digest.summary()
    }
}

impl Kept {
    fn digest(&mut self, run: RunId) -> Arc<Mutex<Digest>> {
        self.clock += 1;
        let (asked, digest) = self.digests.entry(run).or_default();
        self.asked.remove(&std::mem::replace(asked, self.clock));
        self.asked.insert(self.clock, run);
        let digest = Arc::clone(digest);
        while self.digests.len() > KEPT_MAX
            && let Some((_, oldest)) = self.asked.pop_first()
        {
            self.digests.remove(&oldest);
        }
        digest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_runs_that_were_asked_about_longest_ago_make_room() {
        let mut kept = Kept::default();
        let run = |number: usize| RunId::from_bytes((number as u128).to_be_bytes());
        for number in 0..KEPT_MAX {
            kept.digest(run(number));
        }
        kept.digest(run(0));
        kept.digest(run(KEPT_MAX));
        let there = [0, 1, 2, KEPT_MAX].map(|number| kept.digests.contains_key(&run(number)));
        assert_eq!(there, [true, false, true, true]);
        assert_eq!((kept.digests.len(), kept.asked.len()), (KEPT_MAX, KEPT_MAX));
    }
}
