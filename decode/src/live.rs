//! The seam of live decoding: access units in, frames out, one thread a stream.
//!
//! Frame threads would delay every picture by one for each thread, so there are none. A picture
//! that a decoder made up, whole or in part, never comes out: after damage, and after a loss that the
//! caller or the decoder noticed, nothing does until the next clean start. VP8, VP9 and AV1 pictures do
//! not say what they refer to, so a loss among them must be told by the caller. A device that is lost
//! is damage, after which libav's own decoder goes on.

use std::collections::VecDeque;

use media::{AccessUnit, Codec, Frame};

use crate::{
    DecodeError, DecoderChain, DemuxLimits,
    decoder::{FrameDecoder, open_software},
    demux::check_extent,
    ffi::{AvError, AvFrame, DamagePolicy, DecodedFrame, Packet, Place, ReceiveOutcome},
    keyframe_gate::KeyframeGate,
    pts_pairing::PtsPairing,
};

/// Decodes one live stream: after each `push`, `poll` until it gives nothing.
///
/// After an error of `push` or `flush`, what was whole before it comes out, and then nothing until
/// the next clean start.
pub trait Decoder: Send {
    /// Takes the coded bytes of the next picture.
    ///
    /// Units before the first clean start are passed over without an error.
    fn push(&mut self, unit: &AccessUnit) -> Result<(), DecodeError>;

    /// Units are missing before the next one: nothing that refers to them comes out.
    fn lose(&mut self);

    /// The next picture in presentation order, if one is complete.
    fn poll(&mut self) -> Result<Option<Frame>, DecodeError>;

    /// The stream has ended: `poll` gives what is left; a later `push` starts anew.
    fn flush(&mut self) -> Result<(), DecodeError>;

    /// Returns the name of the decoder really used, such as `software:h264`.
    fn name(&self) -> &str;
}

/// Options of decoding a live stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LiveOptions {
    /// Limits of the resources that the stream may take.
    pub limits: DemuxLimits,
}

/// Opens libav's own decoder for `codec`.
pub fn open_decoder(codec: Codec, options: LiveOptions) -> Result<Box<dyn Decoder>, DecodeError> {
    open_decoder_by(&DecoderChain::software(), codec, options)
}

/// Opens the first of `decoders` that takes `codec`.
pub fn open_decoder_by(
    decoders: &DecoderChain,
    codec: Codec,
    options: LiveOptions,
) -> Result<Box<dyn Decoder>, DecodeError> {
    let LiveOptions { limits } = options;
    let first = decoders.first(codec);
    // libav's own decoder does as well. Why a device decodes none is told for all sessions at once, see
    // `DecoderChain::gone`; why it does not decode one more, by nobody.
    let opened =
        first.and_then(|first| first.open(codec, None, DamagePolicy::Discard, limits).ok());
    let engine = opened.map_or_else(|| open_discarding(codec, limits), Ok)?;
    Ok(Box::new(LiveDecoder {
        codec,
        limits,
        name: engine.name(),
        engine,
        gop: KeyframeGate::new(codec),
        pairing: PtsPairing::default(),
        ready: VecDeque::new(),
        frames: 0,
    }))
}

fn open_discarding(
    codec: Codec,
    limits: DemuxLimits,
) -> Result<Box<dyn FrameDecoder>, DecodeError> {
    open_software(codec, None, 1, DamagePolicy::Discard, limits)
}

struct LiveDecoder {
    codec: Codec,
    limits: DemuxLimits,
    name: String,
    engine: Box<dyn FrameDecoder>,
    gop: KeyframeGate,
    pairing: PtsPairing,
    /// Out of the decoder and not polled yet, each with the key of its unit.
    ready: VecDeque<(i64, Frame)>,
    /// Pictures polled.
    frames: u64,
}

impl Decoder for LiveDecoder {
    fn push(&mut self, unit: &AccessUnit) -> Result<(), DecodeError> {
        if unit.codec != self.codec {
            let (expected, got) = (self.codec, unit.codec);
            return Err(DecodeError::WrongCodec { expected, got });
        }
        if self.engine.lost().is_some() {
            // Found out when one of its pictures was to be fetched. The unit may be a clean start.
            self.lose();
            let told = self.replace_lost();
            let is_replaced = self.engine.lost().is_none();
            return if is_replaced { self.push(unit).and(told) } else { told };
        }
        if self.gop.misses(unit) {
            self.lose();
            let detail = "pictures before it are missing".to_owned();
            return Err(DecodeError::DamagedUnit { detail });
        }
        if !self.gop.admits(unit) {
            return Ok(());
        }
        let key = self.pairing.insert(unit.pts);
        let decoded = Packet::copied([&unit.data, &[]], key)
            .and_then(|packet| self.engine.send(&packet))
            .map_err(damaged)
            .and_then(|()| self.collect());
        decoded.map_err(|error| {
            let error = self.engine.too_large().unwrap_or(error);
            self.keep_before(key);
            self.start_anew();
            self.replace_lost().err().unwrap_or(error)
        })
    }

    fn lose(&mut self) {
        self.keep_before(i64::MAX);
        self.start_anew();
    }

    fn poll(&mut self) -> Result<Option<Frame>, DecodeError> {
        let Some((_, mut frame)) = self.ready.pop_front() else { return Ok(None) };
        frame.source_index = self.frames;
        self.frames += 1;
        Ok(Some(frame))
    }

    fn flush(&mut self) -> Result<(), DecodeError> {
        let drained = self.engine.send_end().map_err(damaged).and_then(|()| self.collect());
        let drained = drained.map_err(|error| self.engine.too_large().unwrap_or(error));
        self.start_anew();
        self.replace_lost()?;
        drained
    }

    fn name(&self) -> &str {
        &self.name
    }
}

impl LiveDecoder {
    /// Takes what the decoder has completed; an error is damage in the unit that was sent last.
    fn collect(&mut self) -> Result<(), DecodeError> {
        while let ReceiveOutcome::Frame(frame) = self.engine.receive().map_err(damaged)? {
            if frame.is_damaged() {
                return Err(DecodeError::DamagedUnit { detail: "parts are missing".to_owned() });
            }
            let frame = self.pair(frame)?;
            self.ready.extend(frame);
        }
        if self.engine.has_reported_damage() {
            let detail = "what it refers to is missing, or its data is".to_owned();
            return Err(DecodeError::DamagedUnit { detail });
        }
        Ok(())
    }

    /// The picture with the key of its unit and its time; `None` for one that no unit asked for.
    fn pair(&mut self, frame: AvFrame) -> Result<Option<(i64, Frame)>, DecodeError> {
        let Some(key) = frame.packet_pts() else { return Ok(None) };
        let Some(pts) = self.pairing.take(key) else { return Ok(None) };
        let DecodedFrame { extent, layout, pixels } = frame.into_shown(&mut Place::default())?;
        check_extent(extent, self.limits)?;
        Ok(Some((key, Frame { pts, source_index: 0, extent, layout, pixels })))
    }

    /// Of the pictures that wait, here or for reordering in the decoder, leaves those of units before
    /// the one with this key.
    fn keep_before(&mut self, key: i64) {
        if self.gop.is_open() && self.engine.send_end().is_ok() {
            // An error ends what there is to keep.
            while let Ok(ReceiveOutcome::Frame(frame)) = self.engine.receive() {
                let kept = if frame.is_damaged() { Ok(None) } else { self.pair(frame) };
                self.ready.extend(kept.ok().flatten());
            }
        }
        self.ready.retain(|(of_unit, _)| *of_unit < key);
    }

    /// libav's own decoder goes on for a device that is lost; the error says that it was.
    fn replace_lost(&mut self) -> Result<(), DecodeError> {
        let Some(reason) = self.engine.lost() else { return Ok(()) };
        let software = open_discarding(self.codec, self.limits)?;
        self.name = format!("{}+{}", self.name, software.name());
        self.engine = software;
        Err(DecodeError::DamagedUnit { detail: reason })
    }

    fn start_anew(&mut self) {
        self.engine.reset();
        self.pairing.clear();
        self.gop.lose();
    }
}

fn damaged(error: AvError) -> DecodeError {
    DecodeError::DamagedUnit { detail: error.to_string() }
}
