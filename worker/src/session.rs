//! Live sessions inside a worker: access units in, signals and stills out, several beside each
//! other on the worker's one thread, in the order in which they arrive.

use std::{
    collections::{BTreeMap, VecDeque},
    io, slice,
};

use decode::{DecodeError, Decoder, LiveOptions, open_decoder};
use gate::{
    AHEAD, CpuMeasurer, FrameStamp, Gate, GateConfig, Measurements, Measurer, SignalWindow,
};
use media::{AccessUnit, Codec, ErrorKind, Frame, Rotation, Signal};

use crate::{Fault, Still, protocol::Request, still::StillEncoder};

/// Sessions in one worker.
const SESSIONS_MAX: usize = 64;

/// What a live session says.
#[derive(Clone, Debug, PartialEq)]
pub enum SessionEvent {
    /// Signals of the next frames, in order and without gaps.
    Signals(Vec<Signal>),
    /// A selected frame, before the signals that contain it.
    Still(Still),
    /// An access unit did not decode; nothing comes until the next clean start.
    Damaged {
        /// What the decoder says.
        detail: String,
    },
    /// The session was closed and everything it had to say has been said.
    Closed {
        /// Frames measured.
        frames: u64,
        /// The decoder really used.
        decoder: String,
    },
    /// The session ended early.
    Failed(Fault),
}

type Say<'a> = &'a mut dyn FnMut(u32, SessionEvent) -> io::Result<()>;

/// All sessions of a worker by the server's numbers.
#[derive(Default)]
pub(crate) struct Sessions(BTreeMap<u32, Session>);

impl Sessions {
    /// Does what a session request asks; an error is one of `say`.
    pub fn take(&mut self, request: Request, say: Say<'_>) -> io::Result<()> {
        let (number, outcome) = match request {
            Request::OpenSession { session, codec, stills, gate } => {
                (session, self.open(session, codec, stills, gate))
            }
            Request::AccessUnit { session, pts, keyframe, data } => {
                // Units on their way to a session that has failed are of no interest.
                let Some(live) = self.0.get_mut(&session) else { return Ok(()) };
                let unit = AccessUnit { codec: live.codec, pts, keyframe, data };
                (session, live.push(&unit))
            }
            Request::CloseSession { session } => {
                let Some(live) = self.0.remove(&session) else { return Ok(()) };
                (session, live.close())
            }
            Request::Confine(_)
            | Request::Job { .. }
            | Request::Resource { .. }
            | Request::Probe
            | Request::Look => return Ok(()),
        };
        match outcome {
            Ok(events) => events.into_iter().try_for_each(|event| say(number, event)),
            Err(fault) => {
                self.0.remove(&number);
                say(number, SessionEvent::Failed(fault))
            }
        }
    }

    fn open(
        &mut self,
        number: u32,
        codec: Codec,
        stills: bool,
        gate: GateConfig,
    ) -> Result<Vec<SessionEvent>, Fault> {
        if self.0.len() >= SESSIONS_MAX {
            let message = format!("a media worker holds at most {SESSIONS_MAX} sessions");
            return Err(Fault::Other { kind: ErrorKind::Exhausted, message });
        }
        self.0.insert(number, Session::new(codec, stills, gate)?);
        Ok(Vec::new())
    }
}

struct Session {
    codec: Codec,
    decoder: Box<dyn Decoder>,
    measurer: CpuMeasurer,
    measured: Vec<Measurements>,
    window: SignalWindow,
    gate: Gate,
    stills: Option<StillEncoder>,
    frames: u64,
    /// Frames measured and not decided about, oldest first; only where stills are wanted.
    undecided: VecDeque<Frame>,
}

impl Session {
    fn new(codec: Codec, stills: bool, gate: GateConfig) -> Result<Session, Fault> {
        Ok(Session {
            codec,
            decoder: open_decoder(codec, LiveOptions::default())?,
            measurer: CpuMeasurer::new(),
            measured: Vec::with_capacity(1),
            window: SignalWindow::new(AHEAD),
            gate: Gate::new(gate),
            stills: if stills { Some(StillEncoder::new()?) } else { None },
            frames: 0,
            undecided: VecDeque::with_capacity(AHEAD + 1),
        })
    }

    fn push(&mut self, unit: &AccessUnit) -> Result<Vec<SessionEvent>, Fault> {
        let mut events = Vec::new();
        match self.decoder.push(unit) {
            Ok(()) => {}
            Err(DecodeError::DamagedUnit { detail }) => {
                events.push(SessionEvent::Damaged { detail });
            }
            Err(error) => return Err(error.into()),
        }
        self.measure(&mut events)?;
        Ok(events)
    }

    fn close(mut self) -> Result<Vec<SessionEvent>, Fault> {
        let mut events = Vec::new();
        self.decoder.flush()?;
        self.measure(&mut events)?;
        self.window.flush();
        self.decide(&mut events)?;
        let decoder = self.decoder.name().to_owned();
        events.push(SessionEvent::Closed { frames: self.frames, decoder });
        Ok(events)
    }

    fn measure(&mut self, events: &mut Vec<SessionEvent>) -> Result<(), Fault> {
        loop {
            let frame = match self.decoder.poll() {
                Ok(Some(frame)) => frame,
                Ok(None) => break,
                Err(DecodeError::DamagedUnit { detail }) => {
                    events.push(SessionEvent::Damaged { detail });
                    break;
                }
                Err(error) => return Err(error.into()),
            };
            let stamp = FrameStamp {
                frame_index: self.frames,
                source_frame_index: frame.source_index,
                pts_ms: frame.pts.as_millis(),
            };
            self.measured.clear();
            self.measurer.measure(slice::from_ref(&frame), &mut self.measured)?;
            for measured in &self.measured {
                self.window.push(stamp, measured);
            }
            self.frames += 1;
            if self.stills.is_some() {
                self.undecided.push_back(frame);
            }
        }
        self.decide(events)
    }

    fn decide(&mut self, events: &mut Vec<SessionEvent>) -> Result<(), Fault> {
        let mut signals = Vec::new();
        while let Some(signal) = self.window.poll() {
            let decision = self.gate.offer(&signal);
            signals.push(signal);
            let (Some(encoder), Some(frame)) = (&mut self.stills, self.undecided.pop_front())
            else {
                continue;
            };
            if decision.selected {
                let picture = encoder.encode(&frame, Rotation::None)?;
                events.push(SessionEvent::Still(Still::new(&signal, decision, picture)));
            }
        }
        if !signals.is_empty() {
            events.push(SessionEvent::Signals(signals));
        }
        Ok(())
    }
}
