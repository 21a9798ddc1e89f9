//! Decisions about the frames of one recording, and the events that follow from them.
//!
//! The same for every source: loops and markers are functions of the signals alone, whatever is shed or lost
//! beside them. Pure: knows no clock, no disk and no log.

use std::mem;

use bytes::Bytes;
use gate::{
    Decision, Episode, EpisodeChange, Episodes, Gate, GateConfig, GateState, Loops, SelectionReason,
};
use media::{BlobHash, EventType, MarkerOrigin, RequestId, RunId, Score, Signal, StreamId};
use timeline::{
    ActivityEpisode, Event, FindingKind, FindingPayload, FrameLabel, KeyframeStored, MarkerDeriver,
};
use worker::WireError;

use crate::base::labels::TenantLabels;

/// Signals of live media that wait to be recorded: five minutes of them.
pub const SIGNALS_MAX: usize = 8192;
/// Stills among them.
const STILLS_MAX: usize = 32;
/// Bytes of these: 32 of 1080p. One of any size is always taken.
pub const STILLS_BYTES_MAX: usize = 8 << 20;

/// Picture of a selected frame.
#[derive(Clone, Debug, PartialEq)]
pub struct Kept {
    /// Position among the analysed frames.
    pub frame_index: u64,
    /// Its presentation time.
    pub pts_ms: i64,
    /// Event type by the gate.
    pub event_type: EventType,
    /// Reason of the gate's decision.
    pub reason: SelectionReason,
    /// The JPEG.
    pub jpeg: Bytes,
}

impl Kept {
    /// The event that names it in `run` once it is stored under `hash`.
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

/// Part of a recording that is to be written together.
#[derive(Debug, Default)]
pub struct Batch {
    /// Rows that follow those of the batch before.
    pub signals: Vec<Signal>,
    /// Stills of frames up to the last row, in order.
    pub stills: Vec<Kept>,
    /// Events about frames up to the last row, in order, each with its frame.
    pub events: Vec<(u64, Event)>,
}

impl Batch {
    /// Returns true if it holds more than rows.
    pub fn tells(&self) -> bool {
        !self.stills.is_empty() || !self.events.is_empty()
    }

    /// Returns true if it holds nothing.
    pub fn is_empty(&self) -> bool {
        self.signals.is_empty() && !self.tells()
    }

    /// Bytes of its pictures.
    pub fn picture_bytes(&self) -> usize {
        self.stills.iter().map(|still| still.jpeg.len()).sum()
    }

    /// Returns true if another still of live media may wait with those in it.
    pub fn has_room(&self, still: &[u8]) -> bool {
        let bytes = self.picture_bytes();
        self.stills.len() < STILLS_MAX && (bytes == 0 || bytes + still.len() <= STILLS_BYTES_MAX)
    }
}

/// Settings of a recording's decisions.
#[derive(Clone, Debug)]
pub struct RecorderSpec {
    /// Thresholds of the gate.
    pub gate: GateConfig,
    /// Names of the tenant for event types.
    pub words: TenantLabels,
    /// Markers are told as their segments close.
    pub markers: Option<MarkerDeriver>,
    /// Fields that the findings of the recording share.
    pub finding: FindingPayload,
    /// Fields that the episodes of the recording share.
    pub watch: Watch,
}

/// Recording whose episodes of activity are told.
#[derive(Clone, Debug)]
pub struct Watch {
    /// The request.
    pub request_id: RequestId,
    /// The stream of the run.
    pub stream_id: StreamId,
    /// Names of the zones, in the order of the signals' bits.
    pub zones: Vec<String>,
}

/// Recorder of the frames of one source, in order and without gaps.
#[derive(Debug)]
pub struct Recorder {
    gate: Gate,
    loops: Loops,
    episodes: Episodes,
    quiet_below: Score,
    words: TenantLabels,
    markers: Option<MarkerDeriver>,
    finding: FindingPayload,
    watch: Watch,
    frames: u64,
    marker_count: u64,
    last: Option<Signal>,
    batch: Batch,
}

impl Recorder {
    /// A recorder whose next frame is the first.
    pub fn new(spec: RecorderSpec) -> Recorder {
        let RecorderSpec { gate, words, markers, finding, watch } = spec;
        Recorder {
            gate: Gate::new(gate),
            loops: Loops::default(),
            episodes: Episodes::default(),
            quiet_below: gate.quiet_below(),
            words,
            markers,
            finding,
            watch,
            frames: 0,
            marker_count: 0,
            last: None,
            batch: Batch::default(),
        }
    }

    /// Takes the next frame, with its still; one that is not selected must have none.
    pub fn frame(&mut self, signal: Signal, still: Option<Bytes>) -> Result<Decision, WireError> {
        let decision = self.decide(signal);
        if let Some(jpeg) = still {
            if !decision.selected {
                return Err(WireError::Unexpected("still"));
            }
            let Signal { frame_index, pts_ms, .. } = signal;
            let event_type = self.words.event_type(decision.event_type.clone());
            let reason = decision.reason;
            self.batch.stills.push(Kept { frame_index, pts_ms, event_type, reason, jpeg });
        }
        Ok(decision)
    }

    /// Takes the signal of the next frame and decides about it.
    pub fn decide(&mut self, signal: Signal) -> Decision {
        let decision = self.gate.offer(&signal);
        let frame_index = signal.frame_index;
        if let Some(entered) = self.loops.push(&signal) {
            let finding = FindingPayload {
                frame_index,
                pts_ms: signal.pts_ms,
                confidence: entered.likeness,
                description: format!("the picture is again that of frame {}", entered.to_frame),
                ..self.finding.clone()
            };
            let entered = Event::Found(FindingKind::LoopDetected, finding);
            self.batch.events.push((frame_index, entered));
        }
        if let Some(change) = self.episodes.push(&signal, &decision, self.quiet_below) {
            let event = match change {
                EpisodeChange::Started(episode) => {
                    Event::ActivityStarted(self.told(episode, false))
                }
                EpisodeChange::Ended(episode) => Event::ActivityEnded(self.told(episode, true)),
            };
            self.batch.events.push((frame_index, event));
        }
        if let Some(markers) = &mut self.markers {
            let closed = markers.push(FrameLabel {
                frame_index,
                pts_ms: signal.pts_ms,
                event_type: self.words.event_type(decision.event_type.clone()),
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
        let Watch { request_id, stream_id, zones } = &self.watch;
        ActivityEpisode {
            request_id: *request_id,
            stream_id: stream_id.clone(),
            session_id: self.finding.session_id,
            start_frame: episode.start_frame,
            end_frame: is_over.then_some(episode.end_frame),
            start_pts_ms: episode.start_pts_ms,
            end_pts_ms: is_over.then_some(episode.end_pts_ms),
            peak_score: episode.peak_score,
            peak_frame: episode.peak_frame,
            region: episode.region,
            zones: episode.touched(zones),
        }
    }

    /// Adds an event about a frame that is the last, or one before it.
    pub fn tell(&mut self, frame_index: u64, event: Event) {
        self.batch.events.push((frame_index, event));
    }

    /// Last signal, and the state of the gate behind it.
    pub fn last(&self) -> Option<(Signal, GateState)> {
        Some((self.last?, self.gate.state()))
    }

    /// Frames so far.
    pub fn frames(&self) -> u64 {
        self.frames
    }

    /// Markers so far.
    pub fn markers(&self) -> u64 {
        self.marker_count
    }

    /// The part that is not taken yet.
    pub fn pending(&self) -> &Batch {
        &self.batch
    }

    /// Returns true if the last frame belongs to a loop.
    pub fn is_looping(&self) -> bool {
        self.loops.is_inside()
    }

    /// Takes what is to be written.
    pub fn take(&mut self) -> Batch {
        mem::take(&mut self.batch)
    }

    /// Takes the rows alone.
    pub fn take_rows(&mut self) -> Vec<Signal> {
        mem::take(&mut self.batch.signals)
    }

    /// Closes the open episode and segment: the events are in the next batch.
    pub fn end(&mut self) {
        let last = self.frames.saturating_sub(1);
        if let Some(episode) = self.episodes.end() {
            let event = Event::ActivityEnded(self.told(episode, true));
            self.batch.events.push((last, event));
        }
        for marker in self.markers.take().into_iter().flat_map(MarkerDeriver::finish) {
            self.marker_count += 1;
            self.batch.events.push((last, Event::MarkerEmitted(marker)));
        }
    }
}

#[cfg(test)]
mod tests;
