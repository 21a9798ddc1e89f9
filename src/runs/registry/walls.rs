//! Wall times at which the streams of a run began: read from the log on request, and kept.

use std::collections::BTreeMap;

use media::{Seq, StreamId, WallTime};
use timeline::{Event, EventKind, EventMeta, Timeline};

use super::Run;

/// Heads of events looked at in one step.
const STEP: usize = 4096;
/// The stream of live video.
const LIVE: &str = "main";

/// Starts of the streams, from the events before `next`.
#[derive(Default)]
pub(super) struct Walls {
    next: Seq,
    starts: BTreeMap<StreamId, Option<WallTime>>,
}

impl Run {
    /// Start of each stream; reads only events that are new to it.
    pub fn wall_starts(&self, timeline: &Timeline) -> BTreeMap<StreamId, Option<WallTime>> {
        let is_live = self.origin().session.is_some();
        let mut walls = self.walls.lock();
        loop {
            let heads = timeline.heads_of(self.id(), walls.next, STEP);
            let Some(last) = heads.last() else { return walls.starts.clone() };
            walls.next = Seq(last.seq.0 + 1);
            for head in heads {
                match head.kind {
                    EventKind::FramesDecoded => walls.starts.extend(told(timeline, &head)),
                    // The first picture of a session is kept as soon as it has come.
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

/// Stream and start in a `frames_decoded`; `None` of one that cannot be read.
fn told(timeline: &Timeline, head: &EventMeta) -> Option<(StreamId, Option<WallTime>)> {
    let parts = timeline.get_parts(head.seq).ok()??;
    match parts.decode().ok()? {
        Event::FramesDecoded(decoded) => Some((decoded.stream_id, decoded.wall_start_ms.flatten())),
        _ => None,
    }
}
