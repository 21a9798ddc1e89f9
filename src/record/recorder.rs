//! Decides about the frames of one recording, and derives the events that follow.
//!
//! The same for every source: loops and markers depend on the signals alone, whatever pictures are dropped.
//! Pure: no clock, no disk, no log.

use std::mem;

use bytes::Bytes;
use gate::{
    Decision, Episode, EpisodeChange, Episodes, Gate, GateConfig, GateState, Loops, SelectionReason,
};
use media::{
    BlobHash, EventType, Label, MarkerOrigin, RequestId, RunId, SessionId, Signal, StreamId,
};
use timeline::{
    ActivityEpisode, Event, FindingKind, FindingPayload, FrameLabel, KeyframeStored, MarkerDeriver,
};
use worker::WireError;

use crate::base::labels::TenantLabels;

/// Signals of live media that may wait to be recorded: five minutes of them.
pub const SIGNALS_MAX: usize = 8192;
/// Stills of live media that may wait to be recorded.
const STILLS_MAX: usize = 32;
/// Bytes of stills that may wait: 32 of 1080p. A still of any size is accepted while none wait.
pub const STILLS_BYTES_MAX: usize = 8 << 20;

#[derive(Clone, Debug, PartialEq)]
pub struct Kept {
    pub frame_index: u64,
    pub pts_ms: i64,
    /// Event type by the gate, renamed by the tenant's labels.
    pub event_type: EventType,
    pub reason: SelectionReason,
    pub jpeg: Bytes,
}

impl Kept {
    /// Returns the event of the still in `run`, stored under `hash`.
    pub fn stored(&self, run: RunId, hash: BlobHash) -> Event {
        Event::KeyframeStored(KeyframeStored {
            frame_index: self.frame_index,
            pts_ms: self.pts_ms,
            event_type: self.event_type.clone(),
            reason: Some(self.reason.as_str().to_owned()),
            description: String::new(),
            image_ref: format!("/v1/runs/{run}/keyframes/{hash}"),
            image_bytes: self.jpeg.len() as u64,
            image_sha256: hash,
            truncated: false,
        })
    }
}

/// Part of a recording that is written at once.
#[derive(Debug, Default)]
pub struct Batch {
    /// Signals that follow those of the previous batch.
    pub signals: Vec<Signal>,
    /// Stills of frames up to the last signal, in order.
    pub stills: Vec<Kept>,
    /// Events about frames up to the last signal, in order, each with its frame index.
    pub events: Vec<(u64, Event)>,
}

impl Batch {
    pub fn tells(&self) -> bool {
        !self.stills.is_empty() || !self.events.is_empty()
    }

    pub fn is_empty(&self) -> bool {
        self.signals.is_empty() && !self.tells()
    }

    pub fn picture_bytes(&self) -> usize {
        self.stills.iter().map(|still| still.jpeg.len()).sum()
    }

    /// Returns true if a further still of live media may be added.
    pub fn has_room(&self, still: &[u8]) -> bool {
        let bytes = self.picture_bytes();
        self.stills.len() < STILLS_MAX && (bytes == 0 || bytes + still.len() <= STILLS_BYTES_MAX)
    }
}

#[derive(Clone, Debug)]
pub struct RecorderSpec {
    pub gate: GateConfig,
    pub words: TenantLabels,
    /// Deriver of markers, emitted as their segments close; `None` derives none.
    pub markers: Option<MarkerDeriver>,
    pub request_id: RequestId,
    pub stream_id: StreamId,
    /// Names of the zones, in the order of the bits in the signals.
    pub zones: Vec<String>,
    pub session_id: Option<SessionId>,
    /// Index name of the loop findings.
    pub index_name: Option<Label>,
}

/// Recorder of the frames of one source, in order and without gaps.
#[derive(Debug)]
pub struct Recorder {
    spec: RecorderSpec,
    gate: Gate,
    loops: Loops,
    episodes: Episodes,
    frames: u64,
    marker_count: u64,
    last: Option<Signal>,
    batch: Batch,
}

impl Recorder {
    pub fn new(spec: RecorderSpec) -> Recorder {
        Recorder {
            gate: Gate::new(spec.gate),
            spec,
            loops: Loops::default(),
            episodes: Episodes::default(),
            frames: 0,
            marker_count: 0,
            last: None,
            batch: Batch::default(),
        }
    }

    /// Adds the next frame with its still; fails if it has a still and is not selected.
    pub fn frame(&mut self, signal: Signal, still: Option<Bytes>) -> Result<Decision, WireError> {
        let decision = self.decide(signal);
        if let Some(jpeg) = still {
            if !decision.selected {
                return Err(WireError::Unexpected("still"));
            }
            let Signal { frame_index, pts_ms, .. } = signal;
            let event_type = self.spec.words.event_type(decision.reason.event_type());
            let reason = decision.reason;
            self.batch.stills.push(Kept { frame_index, pts_ms, event_type, reason, jpeg });
        }
        Ok(decision)
    }

    /// Adds the signal of the next frame and decides about it.
    pub fn decide(&mut self, signal: Signal) -> Decision {
        let decision = self.gate.offer(&signal);
        let frame_index = signal.frame_index;
        if let Some(entered) = self.loops.push(&signal) {
            let finding = FindingPayload {
                frame_index,
                pts_ms: signal.pts_ms,
                confidence: entered.likeness,
                description: format!("the picture is again that of frame {}", entered.to_frame),
                session_id: self.spec.session_id,
                index_name: self.spec.index_name.clone(),
                ..FindingPayload::default()
            };
            let entered = Event::Found(FindingKind::LoopDetected, finding);
            self.batch.events.push((frame_index, entered));
        }
        let quiet_below = self.spec.gate.quiet_below();
        if let Some(change) = self.episodes.push(&signal, &decision, quiet_below) {
            let event = match change {
                EpisodeChange::Started(episode) => {
                    Event::ActivityStarted(self.told(episode, false))
                }
                EpisodeChange::Ended(episode) => Event::ActivityEnded(self.told(episode, true)),
            };
            self.batch.events.push((frame_index, event));
        }
        if let Some(markers) = &mut self.spec.markers {
            let closed = markers.push(FrameLabel {
                frame_index,
                pts_ms: signal.pts_ms,
                event_type: self.spec.words.event_type(decision.reason.event_type()),
                is_scene_cut: decision.reason == SelectionReason::SceneCut,
                confidence: decision.confidence,
                origin: MarkerOrigin::Gate,
            });
            for marker in closed {
                self.marker_count += 1;
                self.batch.events.push((frame_index, Event::MarkerEmitted(marker)));
            }
        }
        self.batch.signals.push(signal);
        self.last = Some(signal);
        self.frames += 1;
        decision
    }

    fn told(&self, episode: Episode, is_over: bool) -> ActivityEpisode {
        ActivityEpisode {
            request_id: self.spec.request_id,
            stream_id: self.spec.stream_id.clone(),
            session_id: self.spec.session_id,
            start_frame: episode.start_frame,
            end_frame: is_over.then_some(episode.end_frame),
            start_pts_ms: episode.start_pts_ms,
            end_pts_ms: is_over.then_some(episode.end_pts_ms),
            peak_score: episode.peak_score,
            peak_frame: episode.peak_frame,
            region: episode.region,
            zones: episode.touched(&self.spec.zones),
        }
    }

    /// Adds an event about the last frame, or one before it.
    pub fn tell(&mut self, frame_index: u64, event: Event) {
        self.batch.events.push((frame_index, event));
    }

    pub fn last(&self) -> Option<(Signal, GateState)> {
        Some((self.last?, self.gate.state()))
    }

    pub fn frames(&self) -> u64 {
        self.frames
    }

    pub fn markers(&self) -> u64 {
        self.marker_count
    }

    pub fn pending(&self) -> &Batch {
        &self.batch
    }

    pub fn is_looping(&self) -> bool {
        self.loops.is_inside()
    }

    pub fn take(&mut self) -> Batch {
        mem::take(&mut self.batch)
    }

    /// Takes the signals of the batch and leaves the rest.
    pub fn take_rows(&mut self) -> Vec<Signal> {
        mem::take(&mut self.batch.signals)
    }

    /// Closes the open episode and segment; their events are in the next batch.
    pub fn end(&mut self) {
        let last = self.frames.saturating_sub(1);
        if let Some(episode) = self.episodes.end() {
            let event = Event::ActivityEnded(self.told(episode, true));
            self.batch.events.push((last, event));
        }
        for marker in self.spec.markers.take().into_iter().flat_map(MarkerDeriver::finish) {
            self.marker_count += 1;
            self.batch.events.push((last, Event::MarkerEmitted(marker)));
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
