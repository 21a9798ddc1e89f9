//! Summaries of runs for lists, computed from their events and kept.
//!
//! Promises that a further request reads only the new events of a run, and that memory is bounded: the least
//! recently requested digests are dropped and computed again. Does not decide who may see a run.

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

pub use shape::{Bucket, Named, Shape, Told};

/// Maximum digests kept: 3 KiB each, up to 16 of live video, and 4 more where models named objects.
pub const KEPT_MAX: usize = 8192;
pub const DESCRIPTION_BYTES_MAX: usize = 256;

/// Stores that summaries are computed from.
#[derive(Clone, Copy)]
pub struct Records<'a> {
    pub timeline: &'a Timeline,
    pub blobs: &'a BlobStore,
    /// Thresholds of the gate for recordings that name none.
    pub gate: GateConfig,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Summary {
    /// Number of frames of the newest decoding.
    pub frames: u64,
    /// Number of frames that the gate selected.
    pub kept: u64,
    /// Number of markers of the newest analysis of each stream, by type.
    pub markers: BTreeMap<String, u64>,
    pub descriptions: u64,
    /// Best still: of a scene cut, else of an artifact, else a described one, else the first.
    pub still: Option<BlobHash>,
    /// Duration of the newest decoding's job, in ms.
    pub took_ms: Option<u64>,
    /// True if the newest decoding's source ended early or is damaged.
    pub truncated: bool,
    /// Last description, truncated.
    pub description: Option<String>,
    pub extent: Option<Dimensions>,
    pub source_fps: Option<FrameRate>,
    /// Distribution of the frames over the duration.
    pub shape: Told,
    /// Stretches of the run in which models named an object.
    pub named: Named,
    /// Number of events that cannot be read, so that the summary leaves them out.
    pub damaged_events: u64,
}

/// Digests of runs, the recently requested ones.
#[derive(Default)]
pub struct Summaries(Mutex<Kept>);

#[derive(Default)]
struct Kept {
    digests: HashMap<RunId, (u64, Arc<Mutex<Digest>>)>,
    /// Runs by the tick of their last request, oldest first.
    asked: BTreeMap<u64, RunId>,
    clock: u64,
}

impl Summaries {
    /// Returns the summary of `run`; `None` if nothing was decoded. Reads new events, which blocks
    /// on the disk.
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
