//! Predicts, inside a segment, which frames the file's only gate will select and which views are wanted.
//!
//! A signal depends on a few frames before and [`AHEAD`] after it, its activity on 2.5 seconds, and a
//! decision on the signals of a second and the current episode of activity. So a gate of the segment's own
//! agrees with the file's, except for the first few frames, the last `AHEAD`, and those that the gate is
//! unsure about: uncertain frames are kept as pixels, and decided when the segments are merged.

use std::{collections::VecDeque, mem};

use gate::{
    AHEAD, FrameMeasurements, FrameMeta, Gate, GateConfig, Past, SelectionReason, SignalWindow,
};
use media::{DeviceMemoryLost, Frame, Pixels, Signal, Subsampling};

use super::Job;
use crate::{
    FrameImages, JobFault,
    pictures::{ImageEncoder, PictureKinds, PictureSpec},
    plan::chunks::{ChunkGrid, ImageSelection},
};

/// Bytes of pixels that a segment may keep; frames beyond that are encoded without a decision.
const HELD_BYTES_MAX: u64 = 64 << 20;

/// Frame of which a picture may be wanted.
pub(super) struct ImageCandidate {
    pub frame_index: u64,
    pub form: CandidateState,
}

/// Pictures of a candidate, or its pixels.
pub(super) enum CandidateState {
    Encoded(FrameImages),
    Held(Frame),
}

pub(super) struct SelectionPredictor {
    config: GateConfig,
    /// Pictures that may be wanted of a frame.
    wanted: PictureKinds,
    spec: PictureSpec,
    maker: ImageEncoder,
    views: Option<ForeseenViews>,
    window: SignalWindow,
    gate: Gate,
    /// Frames without a decision, oldest first; `None` for a frame that was handed over.
    undecided: VecDeque<(u64, Option<Frame>)>,
    /// Past of the last signal offered to the gate.
    past: Past,
    /// Signals that equal the file's, for the merger; without their activity if that is uncertain.
    signals: Vec<Signal>,
    held_bytes: u64,
}

/// The segment's own selection of views for the current chunk.
struct ForeseenViews {
    grid: ChunkGrid,
    shown: ImageSelection<()>,
}

impl SelectionPredictor {
    /// Creates the predictor; `None` if the job wants no pictures.
    pub fn new(job: &Job<'_>) -> Option<SelectionPredictor> {
        let options = job.options;
        let wanted =
            PictureKinds { still: options.stills, view: options.views.is_some(), clip: false };
        wanted.is_any().then(|| SelectionPredictor {
            config: options.gate,
            wanted,
            spec: job.pictures,
            maker: ImageEncoder::default(),
            views: options.views.as_ref().map(|options| ForeseenViews {
                grid: ChunkGrid::new(options),
                shown: ImageSelection::new(options),
            }),
            window: job.window(),
            gate: Gate::new(options.gate),
            undecided: VecDeque::with_capacity(AHEAD + 1),
            past: Past::Known,
            signals: Vec::new(),
            held_bytes: 0,
        })
    }

    /// Starts a segment whose predecessor this predictor has not seen.
    pub fn restart(&mut self, first_frame_index: u64) {
        self.past = if first_frame_index == 0 { Past::Known } else { Past::Unknown };
        self.window.restart();
        self.gate = Gate::new(self.config);
        self.undecided.clear();
        self.signals.clear();
        self.held_bytes = 0;
        if let Some(views) = &mut self.views {
            views.grid.restart();
            views.shown.clear();
        }
    }

    pub fn push(
        &mut self,
        stamp: FrameMeta,
        measured: &FrameMeasurements,
        frame: Frame,
        out: &mut Vec<ImageCandidate>,
    ) -> Result<(), JobFault> {
        self.undecided.push_back((stamp.frame_index, Some(frame)));
        self.window.push(stamp, measured);
        while let Some(signal) = self.window.poll() {
            let past = self.window.past_of(&signal);
            let is_known = past == Past::Known;
            let before = mem::replace(&mut self.past, past);
            if before == Past::Unknown || is_known != (before == Past::Known) {
                self.gate = Gate::resume(self.config, 0);
            }
            let decision = self.gate.offer(&signal);
            let selected = decision.selected.then_some(decision.reason);
            let uncertain = decision.is_unsure || past == Past::ActivityUnknown;
            let view =
                self.views.as_mut().is_some_and(|views| views.want(&signal, selected, uncertain));
            if past != Past::Unknown {
                self.signals
                    .push(Signal { activity: signal.activity.filter(|_| is_known), ..signal });
            }
            let Some((frame_index, Some(frame))) = self.undecided.pop_front() else { continue };
            let still = self.wanted.still && selected.is_some();
            let wanted = match uncertain {
                true => self.wanted,
                false => PictureKinds { still, view, clip: false },
            };
            let is_kept_anyway = still && past != Past::Unknown && stands(decision.reason);
            if uncertain && !is_kept_anyway {
                out.push(ImageCandidate { frame_index, form: self.hold(frame)? });
            } else if wanted.is_any() {
                let form = CandidateState::Encoded(self.maker.make(&frame, &self.spec, wanted)?);
                out.push(ImageCandidate { frame_index, form });
            }
        }
        Ok(())
    }

    /// Completes the segment: returns its signals, adds its undecided frames to the candidates, and copies
    /// kept frames from device to host memory.
    pub fn hand_over(
        &mut self,
        out: &mut Vec<ImageCandidate>,
    ) -> Result<Vec<Signal>, DeviceMemoryLost> {
        self.held_bytes = 0;
        for (frame_index, frame) in &mut self.undecided {
            let frame_index = *frame_index;
            let held = frame.take().map(CandidateState::Held);
            out.extend(held.map(|form| ImageCandidate { frame_index, form }));
        }
        for candidate in out {
            if let CandidateState::Held(frame) = &mut candidate.form {
                frame.pixels = Pixels::Host(frame.pixels.host()?.clone());
            }
        }
        Ok(mem::take(&mut self.signals))
    }

    fn hold(&mut self, frame: Frame) -> Result<CandidateState, JobFault> {
        self.held_bytes += frame_bytes(&frame);
        if self.held_bytes > HELD_BYTES_MAX {
            let pictures = self.maker.make(&frame, &self.spec, self.wanted)?;
            return Ok(CandidateState::Encoded(pictures));
        }
        Ok(CandidateState::Held(frame))
    }
}

impl ForeseenViews {
    /// Returns true if the next frame may be wanted as a view. A frame whose decision is uncertain is not
    /// entered into the selection, so the selection never wants less than the file's.
    fn want(
        &mut self,
        signal: &Signal,
        selected: Option<SelectionReason>,
        uncertain: bool,
    ) -> bool {
        let place = self.grid.place(signal);
        if place.starts {
            self.shown.clear();
        }
        let wanted = !uncertain && self.shown.wants(place, selected);
        if wanted {
            self.shown.take(selected, ());
        }
        wanted
    }
}

/// Returns true if a frame with this reason is selected whatever came before it, maybe for another reason.
fn stands(reason: SelectionReason) -> bool {
    matches!(
        reason,
        SelectionReason::SceneCut
            | SelectionReason::PeriodicKeepalive
            | SelectionReason::ExposureShift
    )
}

/// Returns the bytes to upload to measure a frame on a device: 0 for a frame in device memory.
pub(crate) fn bytes_to_send(frame: &Frame) -> u64 {
    match frame.pixels {
        Pixels::Host(_) => frame_bytes(frame),
        Pixels::Device(_) => 0,
    }
}

/// Returns the size of a frame's samples in bytes.
pub(crate) fn frame_bytes(frame: &Frame) -> u64 {
    let luma = frame.extent.area();
    let samples = match frame.layout.subsampling {
        Subsampling::Gray => luma,
        Subsampling::Yuv420 | Subsampling::Yuv411 => luma * 3 / 2,
        Subsampling::Yuv422 | Subsampling::Yuv440 => luma * 2,
        Subsampling::Yuv444 => luma * 3,
    };
    samples * frame.layout.sample.bytes() as u64
}
