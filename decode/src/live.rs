//! Live decoding: access units in, frames out, one thread per stream.
//!
//! No frame threads: each would delay every picture by one. A picture that a decoder concealed, in whole or
//! in part, is never output: after damage, and after a loss that the caller or the decoder noticed, nothing
//! is until the next clean start. VP8, VP9 and AV1 pictures do not name their references, so the caller must
//! report a loss among them. A lost device counts as damage, after which libav's own decoder continues.

use std::collections::VecDeque;

use media::{AccessUnit, Codec, Frame};

use crate::{
    DecodeError, DecoderChain, DemuxLimits,
    decoder::{FrameDecoder, open_software},
    demux::check_extent,
    ffi::{AvError, AvFrame, DamagePolicy, DecoderSetup, Packet, Place},
    keyframe_gate::KeyframeGate,
    pts_pairing::PtsPairing,
};

/// Decodes one live stream: after each `push`, `poll` until it returns `None`.
///
/// After an error of `push` or `flush`, the intact pictures before it come out, and then none until the next
/// clean start.
pub struct LiveDecoder {
    /// Setup without parameters, so that it borrows nothing.
    setup: DecoderSetup<'static>,
    name: String,
    engine: Box<dyn FrameDecoder>,
    gop: KeyframeGate,
    pairing: PtsPairing,
    /// Decoded pictures not polled yet, each with the key of its unit.
    ready: VecDeque<(i64, Frame)>,
    /// Number of pictures polled.
    frames: u64,
}

impl LiveDecoder {
    /// Opens the preferred decoder for `codec`, or libav's own.
    pub fn open(
        decoders: &DecoderChain,
        codec: Codec,
        limits: DemuxLimits,
    ) -> Result<LiveDecoder, DecodeError> {
        let on_damage = DamagePolicy::Discard;
        let setup = DecoderSetup { codec, parameters: None, on_damage, limits };
        let first = decoders.first(codec);
        // libav's own decoder is as good. The reason that a device decodes nothing is reported once for all
        // sessions, see `DecoderChain::gone`; the reason that it refuses one more session is not reported.
        let opened = first.and_then(|first| first.ok()?.open(setup).ok());
        let engine = opened.map_or_else(|| open_software(setup, 1), Ok)?;
        Ok(LiveDecoder {
            setup,
            name: engine.name(),
            engine,
            gop: KeyframeGate::new(codec),
            pairing: PtsPairing::default(),
            ready: VecDeque::new(),
            frames: 0,
        })
    }

    /// Takes the coded bytes of the next picture.
    ///
    /// Units before the first clean start are dropped without an error.
    pub fn push(&mut self, unit: &AccessUnit) -> Result<(), DecodeError> {
        if unit.codec != self.setup.codec {
            let (expected, got) = (self.setup.codec, unit.codec);
            return Err(DecodeError::WrongCodec { expected, got });
        }
        if self.engine.lost().is_some() {
            // The loss was found when a picture was downloaded. The unit may be a clean start.
            self.lose();
            let told = self.replace_lost();
            let is_replaced = self.engine.lost().is_none();
            return if is_replaced { self.push(unit).and(told) } else { told };
        }
        if self.gop.misses(unit) {
            self.lose();
            return Err(DecodeError::DamagedUnit("pictures before it are missing".to_owned()));
        }
        if !self.gop.admits(unit) {
            return Ok(());
        }
        let key = self.pairing.insert(unit.pts);
        let decoded = Packet::copied([&unit.data, &[]], key)
            .and_then(|packet| self.engine.send(Some(&packet)))
            .map_err(damaged)
            .and_then(|()| self.collect());
        decoded.map_err(|error| {
            let error = self.engine.too_large().unwrap_or(error);
            self.keep_before(key);
            self.start_anew();
            self.replace_lost().err().unwrap_or(error)
        })
    }

    /// Reports that units are missing before the next one: no picture that refers to them comes out.
    pub fn lose(&mut self) {
        self.keep_before(i64::MAX);
        self.start_anew();
    }

    /// Returns the next picture in presentation order, if one is complete.
    pub fn poll(&mut self) -> Option<Frame> {
        let (_, mut frame) = self.ready.pop_front()?;
        frame.source_index = self.frames;
        self.frames += 1;
        Some(frame)
    }

    /// Ends the stream: `poll` returns the remaining pictures; a later `push` starts a new stream.
    pub fn flush(&mut self) -> Result<(), DecodeError> {
        let drained = self.engine.send(None).map_err(damaged).and_then(|()| self.collect());
        let drained = drained.map_err(|error| self.engine.too_large().unwrap_or(error));
        self.start_anew();
        self.replace_lost()?;
        drained
    }

    /// Returns the name of the decoder used, such as `software:h264`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Takes the pictures that are complete; an error is damage in the unit sent last.
    fn collect(&mut self) -> Result<(), DecodeError> {
        while let Some(frame) = self.engine.receive().map_err(damaged)? {
            if frame.is_damaged() {
                return Err(DecodeError::DamagedUnit("parts are missing".to_owned()));
            }
            let frame = self.pair(frame)?;
            self.ready.extend(frame);
        }
        if self.engine.has_reported_damage() {
            let detail = "what it refers to is missing, or its data is";
            return Err(DecodeError::DamagedUnit(detail.to_owned()));
        }
        Ok(())
    }

    /// Returns the picture with its unit's key and time; `None` if no unit has this key.
    fn pair(&mut self, frame: AvFrame) -> Result<Option<(i64, Frame)>, DecodeError> {
        let Some(key) = frame.packet_pts() else { return Ok(None) };
        let Some(pts) = self.pairing.take(key) else { return Ok(None) };
        let frame = frame.into_shown(&mut Place::default(), pts, 0)?;
        check_extent(frame.extent, self.setup.limits)?;
        Ok(Some((key, frame)))
    }

    /// Drops the pictures, queued here or held for reordering in the decoder, of units from `key` on, and
    /// keeps the earlier ones.
    fn keep_before(&mut self, key: i64) {
        if self.gop.is_open && self.engine.send(None).is_ok() {
            // An error means that no further picture can be kept.
            while let Ok(Some(frame)) = self.engine.receive() {
                let kept = if frame.is_damaged() { Ok(None) } else { self.pair(frame) };
                self.ready.extend(kept.ok().flatten());
            }
        }
        self.ready.retain(|(of_unit, _)| *of_unit < key);
    }

    /// Replaces a lost device by libav's own decoder; the error reports the loss.
    fn replace_lost(&mut self) -> Result<(), DecodeError> {
        let Some(reason) = self.engine.lost() else { return Ok(()) };
        let software = open_software(self.setup, 1)?;
        self.name = format!("{}+{}", self.name, software.name());
        self.engine = software;
        Err(DecodeError::DamagedUnit(reason))
    }

    fn start_anew(&mut self) {
        self.engine.reset();
        self.pairing.clear();
        self.gop.lose();
    }
}

fn damaged(error: AvError) -> DecodeError {
    DecodeError::DamagedUnit(error.to_string())
}
