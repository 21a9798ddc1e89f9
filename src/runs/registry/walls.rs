//! Wall-clock start times of a run's streams: read from the log on request, and kept.

use std::collections::BTreeMap;

use media::{Seq, StreamId, WallTime};
use timeline::{Event, EventKind, EventMeta, Timeline};

use super::Run;

/// Event heads read in one step.
const STEP: usize = 4096;
const LIVE: &str = "main";

/// Start times of the streams, from the events before `next`.
#[derive(Default)]
pub(super) struct Walls {
    next: Seq,
    starts: BTreeMap<StreamId, Option<WallTime>>,
    /// Number of `frames_decoded` events that cannot be read.
    pub(super) damaged: u64,
}

impl Run {
    /// Returns the start of each stream; reads new events only.
    pub fn wall_starts(&self, timeline: &Timeline) -> BTreeMap<StreamId, Option<WallTime>> {
        let is_live = self.origin().session.is_some();
        let mut walls = self.walls.lock();
        loop {
            let heads = timeline.heads_of(self.id(), walls.next, STEP);
            let Some(last) = heads.last() else { return walls.starts.clone() };
            walls.next = Seq(last.seq.0 + 1);
            for head in heads {
                match head.kind {
                    EventKind::FramesDecoded => match told(timeline, &head) {
                        Some((stream, start)) => _ = walls.starts.insert(stream, start),
                        None => walls.damaged += 1,
                    },
                    // The first keyframe of a session is stored as soon as it arrives.
                    EventKind::KeyframeStored if is_live && walls.starts.is_empty() => {
                        let live = LIVE.parse().expect("a valid stream id");
                        walls.starts.insert(live, Some(head.at));
                    }
                    _ => {}
                }
            }
        }
    }
}

/// Returns stream and start time of a `frames_decoded` event; `None` if it cannot be read.
fn told(timeline: &Timeline, head: &EventMeta) -> Option<(StreamId, Option<WallTime>)> {
    let parts = timeline.get_parts(head.seq).ok()??;
    match parts.decode().ok()? {
        Event::FramesDecoded(decoded) => Some((decoded.stream_id, decoded.wall_start_ms.flatten())),
        _ => None,
    }
}
