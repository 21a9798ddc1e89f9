//! Digest of one run: an incremental fold over its events.

use std::collections::{BTreeMap, VecDeque};

use gate::{Gate, GateConfig};
use media::{
    AnalysisId, BlobHash, Dimensions, EventType, FrameRate, Marker, Seq, StreamId, WallTime,
};
use timeline::{
    Event, EventKind, EventMeta, FindingKind, FramesDecoded, KeyframeStored, Signals, Timeline,
};

use worker::Supervisor;

use super::{DESCRIPTION_BYTES_MAX, Named, Records, Shape, Summary, Told};
use crate::runs::registry::Run;

/// Event heads read in one step.
const STEP: usize = 4096;
/// Analyses whose markers are counted separately: the newest ones, of different streams.
const ANALYSES_MAX: usize = 16;
/// Marker types that are counted separately.
const TYPES_MAX: usize = 32;
/// Name under which markers of all further types are counted.
const OTHERS: &str = "other";
/// Number of recent stills searched for a new description's picture, and of recent descriptions
/// searched for a new still.
const NEAR: usize = 16;

/// Reasons for choosing a still as the one shown, weakest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Telling {
    First,
    Described,
    Artifact,
    Cut,
}

/// Markers of one analysis, by type.
struct Counted {
    stream: StreamId,
    analysis: Option<AnalysisId>,
    types: BTreeMap<String, u64>,
}

#[derive(Clone, Copy)]
struct Decoding {
    frames: u64,
    extent: Dimensions,
    source_fps: Option<FrameRate>,
    took_ms: Option<u64>,
    truncated: bool,
}

/// Summary of a run by its events before `next`.
#[derive(Default)]
pub(super) struct Digest {
    next: Seq,
    /// Start of the last ingest.
    started: Option<WallTime>,
    decoded: Option<Decoding>,
    /// Signals of the decoding, until they are measured.
    signals: Option<(Signals, GateConfig)>,
    /// Distribution of the decoded frames over their duration.
    measured: Option<Box<Told>>,
    /// Distribution of the stills, while nothing is decoded.
    shape: Shape,
    named: Named,
    stills: u64,
    still: Option<(Telling, BlobHash, u64)>,
    /// Dimensions of a still, used if no decoding tells those of the picture.
    still_extent: Option<Dimensions>,
    /// Recent stills, and recent described spans without a still.
    recent: VecDeque<(i64, BlobHash, u64)>,
    described: VecDeque<(i64, i64)>,
    frames_seen: u64,
    descriptions: u64,
    description: Option<String>,
    markers: VecDeque<Counted>,
    damaged: u64,
}

impl Digest {
    /// Reads the new events of `run`; unreadable ones are counted.
    pub fn follow(&mut self, run: &Run, records: Records<'_>) {
        let Records { timeline, blobs, gate } = records;
        let is_live = run.origin().session.is_some();
        loop {
            let heads = timeline.heads_of(run.id(), self.next, STEP);
            let Some(last) = heads.last() else { break };
            self.next = Seq(last.seq.0 + 1);
            heads.iter().for_each(|head| self.hear(head, timeline, is_live, gate));
        }
        if let Some((signals, gate)) = self.signals.take() {
            let (shape, is_whole) = measured(timeline, &signals, gate);
            self.damaged += u64::from(!is_whole);
            self.measured = Some(Box::new(shape.told()));
            self.shape = Shape::default();
        }
        // Retention may have removed it; a later one takes its place.
        self.still = self.still.filter(|(_, hash, _)| blobs.has(hash));
        if self.decoded.is_none() && self.still_extent.is_none() {
            // A list must not wait for the object store.
            let here = self.still.filter(|(_, hash, _)| blobs.is_here(hash));
            let still = here.and_then(|(_, hash, bytes)| blobs.get(&hash, bytes).ok()?);
            self.still_extent = still.and_then(|jpeg| Supervisor::still_extent(&jpeg));
        }
    }

    /// Summary so far; `None` if nothing was decoded, and no event is unreadable.
    pub fn summary(&self) -> Option<Summary> {
        if self.decoded.is_none() && self.stills == 0 && self.damaged == 0 {
            return None;
        }
        let mut markers = BTreeMap::new();
        for (name, count) in self.markers.iter().flat_map(|counted| &counted.types) {
            *markers.entry(name.clone()).or_default() += count;
        }
        let shape = match self.measured.as_deref() {
            Some(measured) => measured.clone(),
            None => self.shape.told(),
        };
        let decoded = self.decoded;
        Some(Summary {
            frames: decoded.map_or(self.frames_seen, |it| it.frames),
            kept: shape.kept(),
            markers,
            descriptions: self.descriptions,
            took_ms: decoded.and_then(|it| it.took_ms),
            truncated: decoded.is_some_and(|it| it.truncated),
            still: self.still.map(|(_, hash, _)| hash),
            description: self.description.clone(),
            extent: decoded.map(|it| it.extent).or(self.still_extent),
            source_fps: decoded.and_then(|it| it.source_fps),
            shape,
            named: self.named.clone(),
            damaged_events: self.damaged,
        })
    }

    fn hear(&mut self, head: &EventMeta, timeline: &Timeline, is_live: bool, gate: GateConfig) {
        use EventKind::{
            AnalysisGenerated, ClipVlm, ClipVlmTiered, FramesDecoded, IngestStarted,
            KeyframeStored, MarkerEmitted, RunCompleted, SemanticChunkInferred, Vlm, VlmTiered,
        };
        let tells = match head.kind {
            KeyframeStored => {
                self.stills += 1;
                // The signals of a file provide the rest.
                is_live || self.still.is_none_or(|(telling, ..)| telling < Telling::Cut)
            }
            RunCompleted => is_live,
            IngestStarted => {
                self.started = Some(head.at);
                false
            }
            FramesDecoded | MarkerEmitted | AnalysisGenerated | SemanticChunkInferred => true,
            Vlm | VlmTiered | ClipVlm | ClipVlmTiered => true,
            _ => false,
        };
        if !tells {
            return;
        }
        let stored = timeline.get_parts(head.seq);
        let event = match stored.and_then(|it| it.map(|it| it.decode()).transpose()) {
            Ok(event) => event,
            Err(error) => {
                tracing::error!(%error, seq = %head.seq, "an event cannot be read");
                self.damaged += 1;
                return;
            }
        };
        match event {
            Some(Event::FramesDecoded(decoded)) => self.decoded(decoded, head.at, gate),
            Some(Event::KeyframeStored(still)) => self.stored(&still),
            Some(Event::MarkerEmitted(marker)) if !marker.beside => self.marked(&marker),
            Some(Event::AnalysisGenerated(made)) => {
                // The newest analysis of a stream counts.
                self.markers.retain(|counted| {
                    counted.stream != made.stream_id || counted.analysis == made.analysis_id
                });
            }
            Some(Event::SemanticChunkInferred(chunk)) if !chunk.semantic_fallback_used => {
                let span = chunk.start_pts_ms.zip(chunk.end_pts_ms);
                self.said(&chunk.description, chunk.object_label, span);
            }
            // A finding without a summary says that no model described the frame.
            Some(Event::Found(kind, found)) if found.summary.is_some() => {
                self.frames_seen = self.frames_seen.max(found.frame_index + 1);
                let is_clip = matches!(kind, FindingKind::ClipVlm | FindingKind::ClipVlmTiered);
                let end = found.end_pts_ms.filter(|_| is_clip).unwrap_or(found.pts_ms);
                self.said(&found.description, found.object_label, Some((found.pts_ms, end)));
            }
            Some(Event::RunCompleted(completed)) => {
                self.frames_seen = self.frames_seen.max(completed.frames);
            }
            _ => {}
        }
    }

    fn decoded(&mut self, decoded: FramesDecoded, at: WallTime, gate: GateConfig) {
        let FramesDecoded { width, height, source_fps, decoded_frames, truncated, .. } = decoded;
        // A decoding without dimensions has no frames.
        let Some(extent) = Dimensions::new(width, height) else { return };
        // The duration is unknown if the clock was set back meanwhile.
        let took = self.started.and_then(|it| u64::try_from(at.epoch_ms - it.epoch_ms).ok());
        self.decoded =
            Some(Decoding { frames: decoded_frames, extent, source_fps, took_ms: took, truncated });
        self.signals = Some((decoded.signals, decoded.gate.unwrap_or(gate)));
    }

    fn stored(&mut self, still: &KeyframeStored) {
        let KeyframeStored { pts_ms, ref event_type, image_sha256, image_bytes, .. } = *still;
        if self.decoded.is_none() {
            self.shape.kept(pts_ms, event_type);
        }
        // Set here because models answer in any order: the first span named need not be the first in time.
        self.named.begin(pts_ms);
        self.frames_seen = self.frames_seen.max(still.frame_index + 1);
        let is_described = !still.description.is_empty()
            || self.described.iter().any(|(start, end)| (*start..=*end).contains(&pts_ms));
        let telling = match event_type {
            EventType::SceneCut => Telling::Cut,
            EventType::ArtifactSuspected => Telling::Artifact,
            _ if is_described => Telling::Described,
            _ => Telling::First,
        };
        self.offer(telling, image_sha256, image_bytes);
        push(&mut self.recent, (pts_ms, image_sha256, image_bytes));
    }

    fn said(&mut self, description: &str, named: Option<String>, span: Option<(i64, i64)>) {
        self.descriptions += 1;
        if !description.is_empty() {
            let mut cut = description.floor_char_boundary(DESCRIPTION_BYTES_MAX);
            if cut < description.len() {
                cut = description.floor_char_boundary(DESCRIPTION_BYTES_MAX - '…'.len_utf8());
            }
            let more = if cut < description.len() { "…" } else { "" };
            self.description = Some(format!("{}{more}", &description[..cut]));
        }
        let Some((start, end)) = span else { return };
        if named.is_some_and(|name| !name.is_empty()) {
            self.named.named(start, end);
        }
        let shown = self.recent.iter().find(|(pts_ms, ..)| (start..=end).contains(pts_ms));
        match shown.copied() {
            Some((_, hash, bytes)) => self.offer(Telling::Described, hash, bytes),
            None => push(&mut self.described, (start, end)),
        }
    }

    fn offer(&mut self, telling: Telling, hash: BlobHash, bytes: u64) {
        if self.still.is_none_or(|(known, ..)| known < telling) {
            self.still = Some((telling, hash, bytes));
        }
    }

    fn marked(&mut self, marker: &Marker) {
        let is_its = |counted: &&mut Counted| {
            counted.analysis == marker.analysis_id && counted.stream == marker.stream_id
        };
        let counted = match self.markers.iter_mut().rev().find(is_its) {
            Some(counted) => counted,
            None => {
                if self.markers.len() == ANALYSES_MAX {
                    self.markers.pop_front();
                }
                let (stream, analysis) = (marker.stream_id.clone(), marker.analysis_id);
                self.markers.push_back(Counted { stream, analysis, types: BTreeMap::new() });
                self.markers.back_mut().expect("pushed")
            }
        };
        let name = marker.event_type.as_str();
        let is_room = counted.types.len() < TYPES_MAX || counted.types.contains_key(name);
        let name = if is_room { name } else { OTHERS };
        *counted.types.entry(name.to_owned()).or_default() += 1;
    }
}

fn push<T>(last: &mut VecDeque<T>, one: T) {
    if last.len() == NEAR {
        last.pop_front();
    }
    last.push_back(one);
}

/// Returns the distribution of recorded signals, with the gate's decisions replayed, up to the first unreadable
/// one, and true if there is none.
fn measured(timeline: &Timeline, signals: &Signals, gate: GateConfig) -> (Shape, bool) {
    let mut shape = Shape::default();
    let mut gate = Gate::new(gate);
    let Ok(rows) = timeline.signal_rows(signals) else { return (shape, false) };
    for signal in rows {
        let Ok(signal) = signal else { return (shape, false) };
        let decision = gate.offer(&signal);
        shape.measured(signal.pts_ms, signal.luma_mean);
        if decision.selected {
            shape.kept(signal.pts_ms, &decision.reason.event_type());
        }
    }
    (shape, true)
}
