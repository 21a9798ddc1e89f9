//! Foresees, inside a segment, which frames the file's one gate will select and which are shown.
//!
//! A signal depends on a few frames before and [`AHEAD`] after it, its activity on 2.5 seconds, and a decision on
//! the signals of a second and the episode of activity at hand. A gate of the segment's own therefore agrees with the file's
//! gate but for the first few and the last `AHEAD` frames, and those that it is unsure about: where they may
//! not be selected, they are kept as they are, and sequenced later.

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

/// Pixels a segment may keep for later; what is beyond is encoded on suspicion.
const HELD_BYTES_MAX: u64 = 64 << 20;

/// A frame of which a picture may be wanted.
pub(super) struct ImageCandidate {
    pub frame_index: u64,
    pub form: CandidateState,
}

/// State of a candidate.
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
    /// Frames without a decision yet, oldest first; `None` where the frame was handed over.
    undecided: VecDeque<(u64, Option<Frame>)>,
    /// Past of the signal that the gate was offered last.
    past: Past,
    /// Signals made that are the file's, without the activity where it is not known, for the sequencer.
    signals: Vec<Signal>,
    held_bytes: u64,
}

/// The segment's own account of the chunk at hand.
struct ForeseenViews {
    grid: ChunkGrid,
    shown: ImageSelection<()>,
}

impl SelectionPredictor {
    /// `None` where the job wants no pictures.
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

    /// A segment starts whose predecessor this predictor has not seen.
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

    /// The segment is complete: its undecided frames are for the sequencer, and those that are held come
    /// to this machine's memory; its signals are given.
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
                frame.pixels = frame.pixels.fetched()?;
            }
        }
        Ok(mem::take(&mut self.signals))
    }

    fn hold(&mut self, frame: Frame) -> Result<CandidateState, JobFault> {
        self.held_bytes += frame_bytes(&frame);
        if self.held_bytes > HELD_BYTES_MAX {
            return Ok(CandidateState::Encoded(self.maker.make(
                &frame,
                &self.spec,
                self.wanted,
            )?));
        }
        Ok(CandidateState::Held(frame))
    }
}

impl ForeseenViews {
    /// Returns true where the next frame may be shown. One whose decision may differ from the
    /// file's is left out of the account, which then wants no less than the file does.
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

/// Returns true where a frame with this reason is selected whatever the gate knows of its past, if maybe for another one.
fn stands(reason: SelectionReason) -> bool {
    matches!(
        reason,
        SelectionReason::SceneCut
            | SelectionReason::PeriodicKeepalive
            | SelectionReason::ExposureShift
    )
}

/// Bytes of a frame's samples that measuring it on a device takes beside them: none where they are there.
pub(crate) fn bytes_to_send(frame: &Frame) -> u64 {
    match frame.pixels {
        Pixels::Host(_) => frame_bytes(frame),
        Pixels::Device(_) => 0,
    }
}

/// Bytes of a frame's samples.
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
