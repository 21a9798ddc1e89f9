//! Digest of one run: a fold over its events, which goes on where it ended.

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

/// Heads of events looked at in one step.
const STEP: usize = 4096;
/// Analyses whose markers are counted apart: the newest of as many streams.
const ANALYSES_MAX: usize = 16;
/// Types of markers that are counted apart.
const TYPES_MAX: usize = 32;
/// The type of markers of all further types.
const OTHERS: &str = "other";
/// Stills in which a description that follows is looked for, and descriptions in which a still that
/// follows is.
const NEAR: usize = 16;

/// Reasons for which a still is the one that is shown: the last of these goes before the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Telling {
    First,
    Described,
    Artifact,
    Cut,
}

/// The markers of one analysis by their type.
struct Counted {
    stream: StreamId,
    analysis: Option<AnalysisId>,
    types: BTreeMap<String, u64>,
}

/// The newest decoding.
#[derive(Clone, Copy)]
struct Decoding {
    frames: u64,
    extent: Dimensions,
    source_fps: Option<FrameRate>,
    took_ms: Option<u64>,
    truncated: bool,
}

/// The run as the events before `next` tell of it.
#[derive(Default)]
pub(super) struct Digest {
    next: Seq,
    /// Start of the last ingest.
    started: Option<WallTime>,
    decoded: Option<Decoding>,
    /// Its signals, until they are measured.
    signals: Option<(Signals, GateConfig)>,
    /// Distribution of its frames over its duration.
    measured: Option<Box<Told>>,
    /// Distribution of the stills, where nothing is decoded.
    shape: Shape,
    named: Named,
    stills: u64,
    still: Option<(Telling, BlobHash, u64)>,
    /// The size of a still, which is that of the picture where no decoding tells it.
    still_extent: Option<Dimensions>,
    /// The last stills, and times that were described, which none of them shows.
    recent: VecDeque<(i64, BlobHash, u64)>,
    described: VecDeque<(i64, i64)>,
    frames_seen: u64,
    descriptions: u64,
    description: Option<String>,
    markers: VecDeque<Counted>,
}

impl Digest {
    /// Takes in what is new of `run`; events that cannot be read say nothing here, and fail where
    /// they are asked for.
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
            self.measured = Some(Box::new(measured(timeline, &signals, gate).told()));
            self.shape = Shape::default();
        }
        if self.decoded.is_none() && self.still_extent.is_none() {
            // A list waits for no object store.
            let here = self.still.filter(|(_, hash, _)| blobs.is_here(hash));
            let still = here.and_then(|(_, hash, bytes)| blobs.get(&hash, bytes).ok()?);
            self.still_extent = still.and_then(|jpeg| Supervisor::still_extent(&jpeg));
        }
    }

    /// Summary so far; `None` where nothing was decoded.
    pub fn summary(&self) -> Option<Summary> {
        if self.decoded.is_none() && self.stills == 0 {
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
                // Of a file the signals tell the rest.
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
        let event = timeline.get_parts(head.seq).ok().flatten().and_then(|it| it.decode().ok());
        match event {
            Some(Event::FramesDecoded(decoded)) => self.decoded(decoded, head.at, gate),
            Some(Event::KeyframeStored(still)) => self.stored(&still),
            Some(Event::MarkerEmitted(marker)) if !marker.beside => self.marked(&marker),
            Some(Event::AnalysisGenerated(made)) => {
                // Of a stream, the newest analysis counts.
                self.markers.retain(|counted| {
                    counted.stream != made.stream_id || counted.analysis == made.analysis_id
                });
            }
            Some(Event::SemanticChunkInferred(chunk)) if !chunk.semantic_fallback_used => {
                let span = chunk.start_pts_ms.zip(chunk.end_pts_ms);
                self.said(&chunk.description, chunk.object_label, span);
            }
            // One without a summary tells that nobody described it.
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
        // One without a picture has no frames.
        let Some(extent) = Dimensions::new(width, height) else { return };
        // A clock that was set back meanwhile tells nothing.
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
        // Models answer in any order: what they name first need not come first.
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

/// The shape of recorded signals, the gate's decisions made again; as far as they can be read.
fn measured(timeline: &Timeline, signals: &Signals, gate: GateConfig) -> Shape {
    let mut shape = Shape::default();
    let mut gate = Gate::new(gate);
    let rows = timeline.signal_rows(signals).into_iter().flatten();
    for signal in rows.map_while(Result::ok) {
        let decision = gate.offer(&signal);
        shape.measured(signal.pts_ms, signal.luma_mean);
        if decision.selected {
            shape.kept(signal.pts_ms, &decision.event_type);
        }
    }
    shape
}
