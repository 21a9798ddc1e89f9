//! A live session inside a worker: access units in, signals and pictures out.
//!
//! Signals go out with the unit that completes them, two frames after their own; pixels are held until
//! then, and only where pictures are wanted. Times that jump change no decision: the gate counts
//! frames, and its signals take neighbours that are far apart or out of order for what they are.

mod batches;
mod check;
mod clip;
mod device;
mod pool;
mod selected;
mod spec;
mod tools;

use std::collections::VecDeque;

use decode::{DecodeError, Decoder, Decoders, Limits, LiveOptions, open_decoder_by};
use gate::{AHEAD, Decision, FrameStamp, Gate, Measurements, SignalWindow, ZoneMask};
use media::{AccessUnit, Codec, Frame, Signal};

use crate::{
    Chunk, Fault, Still, View,
    still::{Cut, Picture},
    views::VIEW_BYTES_MAX,
};

pub(crate) use check::SessionCheck;
use clip::Clipper;
pub(crate) use pool::{SESSIONS_MAX, Sessions, THREADS_MAX as SESSION_THREADS_MAX};
pub use selected::{EmbeddingInput, NoveltyInput, SelectedFrame, SelectedView};
pub use spec::{ClipSpec, NoveltySpec, SessionSpec, ViewSpec};
use tools::{CLIP_PICTURE_BYTES_MAX, Tools};

/// Pixels of DCI 4K, upright or not.
const AREA_PX: u64 = 4096 * 2304;

/// Pictures that a live session may have: the largest with ten bits of 4:2:0, or eight of 4:4:4.
pub(crate) const LIMITS: Limits =
    Limits { side_px: 4096, area_px: AREA_PX, picture_bytes: AREA_PX * 3, streams: 1 };

/// Pictures that a session is taken to keep: sixteen references, the one that is being decoded, those undecided.
const PICTURES_MAX: u64 = 16 + 1 + AHEAD as u64 + 1;

/// Bytes of pictures that a session is taken to keep. A decoder may keep references and pictures that
/// wait to be shown apart. One of AV1 looks at their bytes only when it shows one, and its eight
/// references are fewer than these even at twice the bytes.
pub(crate) const SESSION_BYTES_MAX: u64 = PICTURES_MAX * LIMITS.picture_bytes;

/// Event of a live session.
#[derive(Clone, Debug, PartialEq)]
pub enum SessionEvent {
    /// Signals of the next frames, in order and without gaps.
    Signals(Vec<Signal>),
    /// A selected frame, before the signals that contain it.
    Still(Still),
    /// The same frame as models are given it, right after its still.
    Selected(SelectedFrame),
    /// The next clip, right after the signals that complete it. Between one clip and the next frames
    /// may be left out; a session that is closed shows how far its last clip came.
    Clip(Chunk),
    /// An access unit did not decode; nothing comes until the next clean start.
    Damaged {
        /// Message of the decoder.
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

struct Session {
    spec: SessionSpec,
    decoder: Box<dyn Decoder>,
    window: SignalWindow,
    gate: Gate,
    clipper: Option<Clipper>,
    frames: u64,
    /// Frames measured and not decided about, oldest first; only where pixels are wanted.
    undecided: VecDeque<Frame>,
}

impl Session {
    fn open(spec: SessionSpec, decoders: &Decoders) -> Result<Session, Fault> {
        Ok(Session {
            decoder: open_decoder_by(decoders, spec.codec, LiveOptions { limits: LIMITS })?,
            window: SignalWindow::new(AHEAD).with_zones(ZoneMask::new(&spec.zones)),
            gate: Gate::new(spec.gate),
            clipper: spec.clip.map(Clipper::new),
            frames: 0,
            undecided: VecDeque::with_capacity(AHEAD + 1),
            spec,
        })
    }

    fn codec(&self) -> Codec {
        self.spec.codec
    }

    /// Decodes the next unit; where it `follows_gap`, units before it are missing. What comes out has
    /// to be measured, and then taken.
    fn decode(
        &mut self,
        unit: &AccessUnit,
        follows_gap: bool,
        events: &mut Vec<SessionEvent>,
    ) -> Result<Vec<Frame>, Fault> {
        if follows_gap {
            self.decoder.lose();
        }
        let pushed = self.decoder.push(unit);
        note_damage(pushed, events)?;
        self.complete(events)
    }

    /// Returns the frames that the decoder still has when no unit follows.
    fn drain(&mut self, events: &mut Vec<SessionEvent>) -> Result<Vec<Frame>, Fault> {
        let flushed = self.decoder.flush();
        note_damage(flushed, events)?;
        self.complete(events)
    }

    /// Returns the frames that the decoder has completed.
    fn complete(&mut self, events: &mut Vec<SessionEvent>) -> Result<Vec<Frame>, Fault> {
        let mut frames = Vec::new();
        loop {
            match self.decoder.poll() {
                Ok(Some(frame)) => frames.push(frame),
                Ok(None) => return Ok(frames),
                Err(error) => {
                    note_damage(Err(error), events)?;
                    return Ok(frames);
                }
            }
        }
    }

    /// The next frames with their measurements: decides what it can.
    fn take(
        &mut self,
        frames: Vec<Frame>,
        measured: &[Measurements],
        tools: &mut Tools,
        events: &mut Vec<SessionEvent>,
    ) -> Result<(), Fault> {
        for (frame, measured) in frames.into_iter().zip(measured) {
            let stamp = FrameStamp {
                frame_index: self.frames,
                source_frame_index: frame.source_index,
                pts_ms: frame.pts.as_millis(),
            };
            self.window.push(stamp, measured);
            self.frames += 1;
            if self.spec.wants_pixels() {
                self.undecided.push_back(frame);
            }
        }
        self.decide(tools, events)
    }

    /// All frames were taken.
    fn finish(mut self, tools: &mut Tools, events: &mut Vec<SessionEvent>) -> Result<(), Fault> {
        self.window.flush();
        self.decide(tools, events)?;
        let clip = self.clipper.as_mut().and_then(Clipper::finish);
        events.extend(clip.map(SessionEvent::Clip));
        let decoder = self.decoder.name().to_owned();
        events.push(SessionEvent::Closed { frames: self.frames, decoder });
        Ok(())
    }

    fn decide(&mut self, tools: &mut Tools, events: &mut Vec<SessionEvent>) -> Result<(), Fault> {
        let mut signals = Vec::new();
        while let Some(signal) = self.window.poll() {
            let decision = self.gate.offer(&signal);
            if let Some(frame) = self.undecided.pop_front() {
                let clipped = self.clip(&frame, &signal, &decision, tools, &mut |clip| {
                    say_signals(&mut signals, events);
                    events.push(SessionEvent::Clip(clip));
                });
                let shown = clipped.and_then(|()| match decision.selected {
                    true => self.select(&frame, &signal, decision, tools, events),
                    false => Ok(()),
                });
                note_lost(shown, events)?;
            }
            signals.push(signal);
        }
        say_signals(&mut signals, events);
        Ok(())
    }

    /// Offers the frame to the clips, and passes on a clip that it completes.
    fn clip(
        &mut self,
        frame: &Frame,
        signal: &Signal,
        decision: &Decision,
        tools: &mut Tools,
        say: &mut dyn FnMut(Chunk),
    ) -> Result<(), Fault> {
        let (Some(clipper), Some(spec)) = (&mut self.clipper, self.spec.clip) else {
            return Ok(());
        };
        let offered = clipper.offer(signal, frame.pts);
        if let Some(clip) = offered.complete {
            say(clip);
        }
        if offered.is_wanted {
            let cut = Cut::shrinking(frame.extent, self.spec.crop, spec.max_edge);
            let picture = tools.view(frame, &cut, CLIP_PICTURE_BYTES_MAX)?;
            let reason = decision.selected.then_some(decision.reason);
            clipper.take(View::new(signal, frame.pts, reason, picture));
        }
        Ok(())
    }

    /// Everything that is wanted of a selected frame.
    fn select(
        &self,
        frame: &Frame,
        signal: &Signal,
        decision: Decision,
        tools: &mut Tools,
        events: &mut Vec<SessionEvent>,
    ) -> Result<(), Fault> {
        let SessionSpec { stills, crop, view, .. } = self.spec;
        if stills {
            let still = Still::new(signal, decision, tools.still(frame)?);
            events.push(SessionEvent::Still(still));
        }
        if !self.spec.wants_selected() {
            return Ok(());
        }
        let view = match view {
            None => None,
            Some(view) => {
                let cut = Cut::shrinking(frame.extent, crop, view.edge_max());
                Some(if stills && cut.is_all() {
                    SelectedView::Still
                } else {
                    let Picture { extent, jpeg } = tools.view(frame, &cut, VIEW_BYTES_MAX)?;
                    SelectedView::Own { extent, jpeg }
                })
            }
        };
        let novelty = tools.novelty(frame, &self.spec)?;
        let (frame_index, pts) = (signal.frame_index, frame.pts);
        let selected = SelectedFrame { frame_index, pts, view, novelty };
        events.push(SessionEvent::Selected(selected));
        Ok(())
    }
}

fn say_signals(signals: &mut Vec<Signal>, events: &mut Vec<SessionEvent>) {
    if !signals.is_empty() {
        events.push(SessionEvent::Signals(std::mem::take(signals)));
    }
}

/// Pixels that went with their device are damage, and are said to be; any other fault ends the session.
fn note_lost(outcome: Result<(), Fault>, events: &mut Vec<SessionEvent>) -> Result<(), Fault> {
    match outcome {
        Err(Fault::PixelsLost(lost)) => {
            events.push(SessionEvent::Damaged { detail: lost.to_string() });
            Ok(())
        }
        other => other,
    }
}

/// Damage is said and passes; any other error ends the session.
fn note_damage(
    outcome: Result<(), DecodeError>,
    events: &mut Vec<SessionEvent>,
) -> Result<(), Fault> {
    match outcome {
        Ok(()) => Ok(()),
        Err(DecodeError::DamagedUnit { detail }) => {
            events.push(SessionEvent::Damaged { detail });
            Ok(())
        }
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use gate::{GateConfig, conformance::Picture};
    use media::{DevicePicture, DeviceSurface, HostPicture, Pixels, PixelsLost};

    use super::*;

    /// A picture that went with its device.
    struct Gone;

    impl DevicePicture for Gone {
        fn surface(&self) -> DeviceSurface {
            unreachable!("no device measures it")
        }

        fn host(&self) -> Result<&dyn HostPicture, PixelsLost> {
            Err(PixelsLost { reason: "unplugged".to_owned() })
        }

        fn fetched(&self) -> Result<Arc<dyn HostPicture>, PixelsLost> {
            unreachable!("no session keeps it")
        }
    }

    #[test]
    fn a_session_goes_on_without_pixels_that_went_with_their_device() {
        let spec =
            SessionSpec { stills: true, ..SessionSpec::new(Codec::H264, GateConfig::default()) };
        let mut session = Session::open(spec, &Decoders::software()).expect("opens");
        let (mut tools, mut events) = (Tools::new(), Vec::new());
        let picture = Picture::new(64, 48).frame().expect("has pixels");
        let measured = tools.measure(std::slice::from_ref(&picture)).expect("measured");
        for at in 0..9 {
            let pts = media::Timestamp::from_millis(40 * at);
            let pixels = match at {
                0..4 => Pixels::Device(Arc::new(Gone)),
                _ => picture.pixels.clone(),
            };
            let frame = Frame { pts, pixels, ..picture.clone() };
            session.take(vec![frame], &measured, &mut tools, &mut events).expect("goes on");
        }
        session.finish(&mut tools, &mut events).expect("finished");
        let mut signals = Vec::new();
        let mut damaged = 0;
        for event in &events {
            match event {
                SessionEvent::Signals(some) => signals.extend(some.iter().map(|s| s.frame_index)),
                SessionEvent::Damaged { detail } => {
                    assert!(detail.ends_with("from the device: unplugged"), "{detail}");
                    damaged += 1;
                }
                SessionEvent::Closed { frames, .. } => assert_eq!(*frames, 9),
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(signals, (0..9).collect::<Vec<_>>(), "the gate decided about all");
        assert_eq!(damaged, 1, "the first frame is selected, and has no picture");
    }
}
