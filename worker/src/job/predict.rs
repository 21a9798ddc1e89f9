//! Foresees, inside a segment, which frames the file's one gate will select.
//!
//! A signal depends on [`BACK`] frames before and [`AHEAD`] after it, and a decision on one more
//! signal. A gate of the segment's own therefore agrees with the file's gate but for the first
//! `BACK + 1` and the last `AHEAD` frames: those are kept as they are, and sequenced later.

use std::{collections::VecDeque, mem};

use gate::{AHEAD, BACK, FrameStamp, Gate, GateConfig, Measurements, SignalWindow};
use media::{Frame, Rotation, Signal, Subsampling};

use crate::{
    Fault,
    still::{Picture, StillEncoder},
};

/// Pixels a segment may keep for later; what is beyond is encoded on suspicion.
const HELD_BYTES_MAX: u64 = 64 << 20;

/// A frame that the gate may select.
pub(super) struct Candidate {
    pub frame_index: u64,
    pub form: Form,
}

/// What is known of a candidate.
pub(super) enum Form {
    Encoded(Picture),
    Held(Frame),
}

pub(super) struct Predictor {
    config: GateConfig,
    rotation: Rotation,
    encoder: Option<StillEncoder>,
    window: SignalWindow,
    gate: Gate,
    /// Frames without a decision yet, oldest first; `None` where the frame was handed over.
    undecided: VecDeque<(u64, Option<Frame>)>,
    /// Decisions to come that may differ from the file's gate.
    uncertain: usize,
    /// Signals made that are the file's, for the sequencer.
    signals: Vec<Signal>,
    held_bytes: u64,
}

impl Predictor {
    pub fn new(config: GateConfig, rotation: Rotation) -> Predictor {
        Predictor {
            config,
            rotation,
            encoder: None,
            window: SignalWindow::new(AHEAD),
            gate: Gate::new(config),
            undecided: VecDeque::with_capacity(AHEAD + 1),
            uncertain: 0,
            signals: Vec::new(),
            held_bytes: 0,
        }
    }

    /// A segment starts whose predecessor this predictor has not seen.
    pub fn restart(&mut self, first_frame_index: u64) {
        let starts_file = first_frame_index == 0;
        self.window = SignalWindow::new(AHEAD);
        self.gate = if starts_file { Gate::new(self.config) } else { Gate::resume(self.config, 0) };
        self.undecided.clear();
        self.uncertain = if starts_file { 0 } else { BACK + 1 };
        self.signals.clear();
        self.held_bytes = 0;
    }

    pub fn push(
        &mut self,
        stamp: FrameStamp,
        measured: &Measurements,
        frame: Frame,
        out: &mut Vec<Candidate>,
    ) -> Result<(), Fault> {
        self.undecided.push_back((stamp.frame_index, Some(frame)));
        self.window.push(stamp, measured);
        while let Some(signal) = self.window.poll() {
            let selected = self.gate.offer(&signal).selected;
            let uncertain = self.uncertain > 0;
            // A decision looks one signal further back than a signal looks at frames.
            if self.uncertain <= 1 {
                self.signals.push(signal);
            }
            self.uncertain = self.uncertain.saturating_sub(1);
            let Some((frame_index, Some(frame))) = self.undecided.pop_front() else { continue };
            if uncertain {
                let form = self.hold(frame)?;
                out.push(Candidate { frame_index, form });
            } else if selected {
                let form = Form::Encoded(self.encode(&frame)?);
                out.push(Candidate { frame_index, form });
            }
        }
        Ok(())
    }

    /// The segment is complete: its undecided frames are for the sequencer, its signals are given.
    pub fn hand_over(&mut self, out: &mut Vec<Candidate>) -> Vec<Signal> {
        self.held_bytes = 0;
        for (frame_index, frame) in &mut self.undecided {
            out.extend(
                frame
                    .take()
                    .map(|frame| Candidate { frame_index: *frame_index, form: Form::Held(frame) }),
            );
        }
        mem::take(&mut self.signals)
    }

    fn hold(&mut self, frame: Frame) -> Result<Form, Fault> {
        self.held_bytes += frame_bytes(&frame);
        if self.held_bytes > HELD_BYTES_MAX {
            return Ok(Form::Encoded(self.encode(&frame)?));
        }
        Ok(Form::Held(frame))
    }

    fn encode(&mut self, frame: &Frame) -> Result<Picture, Fault> {
        let encoder = match &mut self.encoder {
            Some(encoder) => encoder,
            none => none.insert(StillEncoder::new()?),
        };
        Ok(encoder.encode(frame, self.rotation)?)
    }
}

fn frame_bytes(frame: &Frame) -> u64 {
    let luma = frame.extent.area();
    let samples = match frame.layout.subsampling {
        Subsampling::Gray => luma,
        Subsampling::Yuv420 | Subsampling::Yuv411 => luma * 3 / 2,
        Subsampling::Yuv422 | Subsampling::Yuv440 => luma * 2,
        Subsampling::Yuv444 => luma * 3,
    };
    samples * frame.layout.sample.bytes() as u64
}
