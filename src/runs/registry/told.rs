//! Contents of a run's events, read on request: its analyses, its answered chunks (frames, for a live session) in
//! order, and the wall-clock starts of its streams.
//!
//! Each event is read once, and what it tells is kept: two numbers per chunk.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

use gate::GateConfig;
use media::{AnalysisId, RunId, Seq, StreamId, WallTime, Zones};
use timeline::{
    AnalysisGenerated, AnalysisKey, Event, EventKind, EventMeta, Timeline, TimelineError,
};
use tokio::sync::{Mutex, OwnedMutexGuard};

use super::{each_of_kind, readable, run::Run};

/// Analyses in the events before `next`, and the lock to add another.
#[derive(Default)]
pub(super) struct Analyses {
    next: Seq,
    made: Vec<Made>,
    /// Number of events of analyses that cannot be read.
    damaged: u64,
    turn: Arc<Mutex<()>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Made {
    seq: Seq,
    stream: StreamId,
    /// Id of the analysis; `None` if it is older than ids of analyses.
    pub id: Option<AnalysisId>,
    /// Thresholds of the analysis; `None` likewise.
    pub gate: Option<GateConfig>,
}

impl Made {
    fn of(seq: Seq, generated: &AnalysisGenerated) -> Made {
        let AnalysisGenerated { stream_id, analysis_id, gate, .. } = generated;
        Made { seq, stream: stream_id.clone(), id: *analysis_id, gate: *gate }
    }

    /// Returns the zones that replaced those of the recording; blocks on the disk.
    pub fn zones(&self, timeline: &Timeline) -> Result<Option<Zones>, TimelineError> {
        let event = timeline.get_parts(self.seq)?.and_then(|stored| readable(&stored));
        Ok(match event {
            // For the analysis of an open recording, the event at `seq` is an unrelated one.
            Some(Event::AnalysisGenerated(made)) if made.analysis_id == self.id => made.zones,
            _ => None,
        })
    }
}

impl Run {
    /// Locks the choice of the next analysis's ordinal and its recording; others wait until the
    /// guard is dropped.
    pub async fn analysis_turn(&self) -> OwnedMutexGuard<()> {
        let turn = Arc::clone(&self.analyses.lock().turn);
        turn.lock_owned().await
    }

    /// Returns the key of the next analysis of `stream`; blocks on the disk.
    pub fn next_analysis(
        &self,
        timeline: &Timeline,
        stream: &StreamId,
    ) -> Result<AnalysisKey, TimelineError> {
        let growing = self.growing();
        self.with_analyses(timeline, |made| {
            // The analysis of an open recording has taken its ordinal, but has no event before its end.
            let growing = growing.filter(|growing| growing.decoded.stream_id == *stream);
            let growing = growing.and_then(|growing| growing.analysis.as_ref()?.analysis_id);
            let taken = growing.is_some_and(|id| made.iter().all(|made| made.id != Some(id)));
            let ended = made.iter().filter(|made| made.stream == *stream).count();
            let ordinal = ended as u64 + u64::from(taken);
            AnalysisKey { run: self.id(), stream: stream.clone(), ordinal }
        })
    }

    /// Returns the newest analysis of each stream in the events up to `until`; blocks on the disk.
    pub fn newest_analyses(
        &self,
        timeline: &Timeline,
        until: Seq,
    ) -> Result<HashMap<StreamId, Made>, TimelineError> {
        let growing = self.growing();
        self.with_analyses(timeline, |made| {
            let made = made.iter().take_while(|made| made.seq <= until);
            let mut newest: HashMap<_, _> =
                made.map(|made| (made.stream.clone(), made.clone())).collect();
            if let Some(growing) = growing
                && let Some(analysis) = &growing.analysis
                && newest.get(&analysis.stream_id).is_none_or(|made| made.seq <= growing.since)
            {
                newest.insert(analysis.stream_id.clone(), Made::of(growing.since, analysis));
            }
            newest
        })
    }

    /// Returns the number of analyses that cannot be read, by the events read so far.
    pub fn damaged_analyses(&self) -> u64 {
        self.analyses.lock().damaged
    }

    /// Calls `take` with all analyses, after reading the new events.
    fn with_analyses<T>(
        &self,
        timeline: &Timeline,
        take: impl FnOnce(&[Made]) -> T,
    ) -> Result<T, TimelineError> {
        let mut analyses = self.analyses.lock();
        let Analyses { next, made, damaged, .. } = &mut *analyses;
        let kind = EventKind::AnalysisGenerated;
        each_of_kind(timeline, self.id(), kind, next, |seq, event| match event {
            Some(Event::AnalysisGenerated(generated)) => made.push(Made::of(seq, &generated)),
            Some(_) => {}
            None => *damaged += 1,
        })?;
        Ok(take(&analyses.made))
    }
}

/// Events read from the log at a time; a payload has at most 1 MiB.
const READ: usize = 16;

/// Kinds of events with a model's description of pictures.
const KINDS: [EventKind; 5] = [
    EventKind::SemanticChunkInferred,
    EventKind::Vlm,
    EventKind::VlmTiered,
    EventKind::ClipVlm,
    EventKind::ClipVlmTiered,
];

/// Indices of chunks (frames, for a live session) with their events, from the events of each kind
/// before its `next`.
#[derive(Default)]
pub(super) struct ChunkOrder {
    next: [Seq; KINDS.len()],
    order: BTreeSet<(u64, Seq)>,
    /// Number of events that cannot be read.
    damaged: u64,
}

/// Error of a cursor that is no event of an answered chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoSuchChunk;

impl Run {
    /// Returns the events of answered chunks in the order of the chunks, from the event `from` on
    /// if given. Reads new events only.
    pub fn said_of_chunks(
        &self,
        timeline: &Timeline,
        from: Option<Seq>,
    ) -> Result<Result<Vec<Seq>, NoSuchChunk>, TimelineError> {
        // The lock is released between steps, so that other readers can use the known part.
        while self.chunks.lock().follow(timeline, self.id())? {}
        Ok(self.chunks.lock().from(from))
    }

    /// Returns the number of descriptions that cannot be read, by the events read so far.
    pub fn damaged_chunks(&self) -> u64 {
        self.chunks.lock().damaged
    }
}

impl ChunkOrder {
    /// Reads some new events of `run`; returns false if there were none.
    fn follow(&mut self, timeline: &Timeline, run: RunId) -> Result<bool, TimelineError> {
        let mut is_news = false;
        for (kind, next) in KINDS.into_iter().zip(&mut self.next) {
            for stored in timeline.read_parts(run, *next, READ, Some(kind))? {
                is_news = true;
                *next = Seq(stored.head.seq.0 + 1);
                // An event without an answer describes nothing.
                let place = match readable(&stored) {
                    Some(Event::SemanticChunkInferred(chunk)) if !chunk.semantic_fallback_used => {
                        chunk.chunk_index
                    }
                    Some(Event::Found(_, finding)) if finding.summary.is_some() => {
                        finding.frame_index
                    }
                    Some(_) => continue,
                    None => {
                        self.damaged += 1;
                        continue;
                    }
                };
                self.order.insert((place, stored.head.seq));
            }
        }
        Ok(is_news)
    }

    /// Returns the events in the order of their chunks, from the event `from` on if given.
    fn from(&self, from: Option<Seq>) -> Result<Vec<Seq>, NoSuchChunk> {
        let events = self.order.iter().map(|(_, seq)| *seq);
        let Some(from) = from else { return Ok(events.collect()) };
        let left = events.skip_while(|seq| *seq != from).collect::<Vec<_>>();
        if left.is_empty() { Err(NoSuchChunk) } else { Ok(left) }
    }
}

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
