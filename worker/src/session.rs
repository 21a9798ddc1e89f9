//! A live session inside a worker: access units go in, records of its frames come out.
//!
//! Records are sent with the unit that completes their signals, two frames later; pixels are kept until then,
//! and only if pictures are wanted. Jumps in time do not disturb the gate: it counts frames, and its signals
//! do not compare neighbours that are far apart or out of order.

mod device;
mod pool;
mod spec;

use std::{collections::VecDeque, iter};

use decode::{DecodeError, DecoderChain, DemuxLimits, LiveDecoder};
use gate::{AHEAD, FrameMeasurements, FrameMeta, Gate, SignalWindow, ZoneMask};
use media::{AccessUnit, Frame, Timestamp};

use crate::{
    FrameImages, FrameRecord, JobFault,
    assemble::{Album, Assembler},
    pictures::{ImageEncoder, PictureKinds, PictureSpec},
    plan::Plan,
    record::RECORDS_MAX,
    wire::list,
};

pub(crate) use pool::{SESSIONS_MAX, SessionPool, THREADS_MAX as SESSION_THREADS_MAX};
pub use spec::{ClipSpec, NoveltySpec, SessionSpec};

/// Pixels of DCI 4K, in either orientation.
const AREA_PX: u64 = 4096 * 2304;

/// Largest pictures of a live session: DCI 4K with ten bits of 4:2:0, or eight of 4:4:4.
pub(crate) const LIMITS: DemuxLimits =
    DemuxLimits { side_px: 4096, area_px: AREA_PX, picture_bytes: AREA_PX * 3, streams: 1 };

/// Estimate of the pictures that a session keeps: sixteen references, the one being decoded, those undecided.
const PICTURES_MAX: u64 = 16 + 1 + AHEAD as u64 + 1;

/// Estimate of the bytes of pictures that a session keeps. A decoder may keep references and pictures that
/// wait to be shown apart. An AV1 decoder checks their bytes only when it shows one; its eight references are
/// fewer than these even at twice the bytes.
pub(crate) const SESSION_BYTES_MAX: u64 = PICTURES_MAX * LIMITS.picture_bytes;

/// Event of a live session.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub enum WorkerSessionEvent {
    /// The next frames, in order and without gaps.
    Frames(#[serde(deserialize_with = "list::<_, _, RECORDS_MAX>")] Vec<FrameRecord>),
    /// An access unit could not be decoded; no frame comes until the next clean start.
    Damaged {
        /// Message of the decoder.
        detail: String,
    },
    /// The session was closed; the last event.
    Closed {
        /// Frames measured, those before a resume included.
        frames: u64,
        /// Name of the decoder in use at the end.
        decoder: String,
    },
    /// The session ended early for this reason.
    Failed(JobFault),
}

struct Session {
    spec: SessionSpec,
    decoder: LiveDecoder,
    assembler: Assembler,
    frames: u64,
    /// Frames measured but not decided, oldest first; only if pixels are wanted.
    undecided: VecDeque<Frame>,
}

/// Frames of a session without a decision; their pictures are encoded on the session's thread.
struct Undecided<'a> {
    frames: &'a mut VecDeque<Frame>,
    maker: &'a mut ImageEncoder,
    pictures: PictureSpec,
    /// True if clips are wanted, which are cut by the frames' times.
    is_timed: bool,
    damage: Vec<WorkerSessionEvent>,
}

impl<'a> Undecided<'a> {
    fn of(
        spec: &SessionSpec,
        frames: &'a mut VecDeque<Frame>,
        maker: &'a mut ImageEncoder,
    ) -> Undecided<'a> {
        let (pictures, is_timed) = (PictureSpec::of_session(spec), spec.clip.is_some());
        Undecided { frames, maker, pictures, is_timed, damage: Vec::new() }
    }
}

impl Album for Undecided<'_> {
    fn pts(&self) -> Option<Timestamp> {
        self.frames.front().filter(|_| self.is_timed).map(|frame| frame.pts)
    }

    fn settle(&mut self, _: u64, wanted: PictureKinds) -> Result<FrameImages, JobFault> {
        let Some(frame) = self.frames.pop_front().filter(|_| wanted.is_any()) else {
            return Ok(FrameImages::default());
        };
        match self.maker.make(&frame, &self.pictures, wanted) {
            Err(fault) => {
                note_damage(Err(fault), &mut self.damage).map(|()| FrameImages::default())
            }
            made => made,
        }
    }
}

impl Session {
    fn open(spec: SessionSpec, decoders: &DecoderChain) -> Result<Session, JobFault> {
        let window = SignalWindow::new(AHEAD).with_zones(ZoneMask::new(&spec.zones));
        let gate = match spec.resume {
            Some((last, state)) => Gate::after(spec.gate, 0, last, state),
            None => Gate::new(spec.gate),
        };
        Ok(Session {
            decoder: LiveDecoder::open(decoders, spec.codec, LIMITS)?,
            assembler: Assembler::new(window, gate, Plan::of_session(&spec)),
            frames: spec.first_frame(),
            undecided: VecDeque::with_capacity(AHEAD + 1),
            spec,
        })
    }

    /// Decodes the next unit; with `follows_gap`, units before it are missing. Returns the completed frames,
    /// which the caller has to measure and pass to `take`.
    fn decode(
        &mut self,
        unit: &AccessUnit,
        follows_gap: bool,
        events: &mut Vec<WorkerSessionEvent>,
    ) -> Result<Vec<Frame>, JobFault> {
        if follows_gap {
            self.decoder.lose();
        }
        let pushed = self.decoder.push(unit).map_err(JobFault::from);
        note_damage(pushed, events)?;
        Ok(self.completed())
    }

    /// Flushes the decoder, as no unit follows, and returns its remaining frames.
    fn drain(&mut self, events: &mut Vec<WorkerSessionEvent>) -> Result<Vec<Frame>, JobFault> {
        let flushed = self.decoder.flush().map_err(JobFault::from);
        note_damage(flushed, events)?;
        Ok(self.completed())
    }

    fn completed(&mut self) -> Vec<Frame> {
        iter::from_fn(|| self.decoder.poll()).collect()
    }

    /// Adds measured frames, and emits the records of those that can be decided.
    fn take(
        &mut self,
        frames: Vec<Frame>,
        measured: &[FrameMeasurements],
        maker: &mut ImageEncoder,
        events: &mut Vec<WorkerSessionEvent>,
    ) -> Result<(), JobFault> {
        let mut album = Undecided::of(&self.spec, &mut self.undecided, maker);
        let taken = frames.into_iter().zip(measured).try_for_each(|(frame, measured)| {
            let stamp = FrameMeta {
                frame_index: self.frames,
                source_frame_index: frame.source_index,
                pts_ms: frame.pts.as_millis(),
            };
            self.frames += 1;
            if self.spec.wants_pixels() {
                album.frames.push_back(frame);
            }
            self.assembler.push(stamp, measured, &mut album)
        });
        // A fault must not lose the records before it.
        events.extend(self.assembler.take().into_iter().map(WorkerSessionEvent::Frames));
        events.append(&mut album.damage);
        taken
    }

    fn finish(
        mut self,
        maker: &mut ImageEncoder,
        events: &mut Vec<WorkerSessionEvent>,
    ) -> Result<(), JobFault> {
        let mut album = Undecided::of(&self.spec, &mut self.undecided, maker);
        let finished = self.assembler.finish(&mut album);
        events.extend(self.assembler.take().into_iter().map(WorkerSessionEvent::Frames));
        events.append(&mut album.damage);
        finished?;
        let decoder = self.decoder.name().to_owned();
        events.push(WorkerSessionEvent::Closed { frames: self.frames, decoder });
        Ok(())
    }
}

/// Reports damage, and pixels lost with their device, as an event; any other fault ends the session.
fn note_damage(
    outcome: Result<(), JobFault>,
    events: &mut Vec<WorkerSessionEvent>,
) -> Result<(), JobFault> {
    let detail = match outcome {
        Err(JobFault::Decode(DecodeError::DamagedUnit(detail))) => detail,
        Err(JobFault::PixelsLost(lost)) => lost.to_string(),
        other => return other,
    };
    events.push(WorkerSessionEvent::Damaged { detail });
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use gate::{GateConfig, conformance::TestPicture};
    use media::{
        Codec, DeviceFrameBuffer, DeviceMemoryLost, DeviceSurface, HostFrameBuffer, Pixels,
    };

    use super::*;

    /// Picture that was lost with its device.
    struct Gone;

    impl DeviceFrameBuffer for Gone {
        fn surface(&self) -> DeviceSurface {
            unreachable!("no device measures it")
        }

        fn host(&self) -> Result<&Arc<dyn HostFrameBuffer>, DeviceMemoryLost> {
            Err(DeviceMemoryLost { reason: "unplugged".to_owned() })
        }
    }

    #[test]
    fn a_session_goes_on_without_pixels_that_went_with_their_device() {
        let spec =
            SessionSpec { stills: true, ..SessionSpec::new(Codec::H264, GateConfig::default()) };
        let mut session = Session::open(spec, &DecoderChain::software()).expect("opens");
        let (mut tools, mut events) = (pool::ThreadScratch::default(), Vec::new());
        let picture = TestPicture::new(64, 48).frame();
        tools.measure(std::slice::from_ref(&picture)).expect("measured");
        for at in 0..9 {
            let pts = media::Timestamp::from_millis(40 * at);
            let pixels = match at {
                0..4 => Pixels::Device(Arc::new(Gone)),
                _ => picture.pixels.clone(),
            };
            let frame = Frame { pts, pixels, ..picture.clone() };
            let taken = session.take(vec![frame], &tools.measured, &mut tools.maker, &mut events);
            taken.expect("goes on");
        }
        session.finish(&mut tools.maker, &mut events).expect("finished");
        let mut signals = Vec::new();
        let mut damaged = 0;
        for event in &events {
            match event {
                WorkerSessionEvent::Frames(some) => {
                    signals.extend(some.iter().map(|record| record.signal.frame_index));
                    assert!(some.iter().all(|record| record.pictures.still.is_none()));
                }
                WorkerSessionEvent::Damaged { detail } => {
                    assert!(detail.ends_with("from the device: unplugged"), "{detail}");
                    damaged += 1;
                }
                WorkerSessionEvent::Closed { frames, .. } => assert_eq!(*frames, 9),
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(signals, (0..9).collect::<Vec<_>>(), "the gate decided about all");
        assert_eq!(damaged, 1, "the first frame is selected, and has no picture");
    }
}
