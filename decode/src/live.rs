//! The seam of live decoding: access units in, frames out, one thread a stream.
//!
//! Frame threads would delay every picture by one for each thread, so there are none.

use std::{collections::VecDeque, sync::Arc};

use media::{AccessUnit, Codec, Frame, Pixels};

use crate::{
    DecodeError, Limits,
    demux::check_extent,
    ffi::{AvError, Context, OnDamage, Output, Packet, RawFrame},
    gop::Gop,
    pts_pairing::PtsPairing,
};

/// Decodes one live stream: after each `push`, `poll` until it gives nothing.
///
/// After an error of `push`, nothing comes out until the next clean start.
pub trait Decoder: Send {
    /// Takes the coded bytes of the next picture.
    ///
    /// Units before the first clean start are passed over without an error.
    fn push(&mut self, unit: &AccessUnit) -> Result<(), DecodeError>;

    /// The next picture in presentation order, if one is complete.
    fn poll(&mut self) -> Result<Option<Frame>, DecodeError>;

    /// The stream has ended: `poll` gives what is left; a later `push` starts anew.
    fn flush(&mut self) -> Result<(), DecodeError>;

    /// Which decoder it really is, such as `software:h264`.
    fn name(&self) -> &str;
}

/// How to decode a live stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LiveOptions {
    /// What the stream may ask for at most.
    pub limits: Limits,
}

/// Opens the decoder for `codec`.
pub fn open_decoder(codec: Codec, options: LiveOptions) -> Result<Box<dyn Decoder>, DecodeError> {
    let context = Context::open(codec, None, 1, OnDamage::Conceal, options.limits.side_px)?;
    Ok(Box::new(SoftwareDecoder {
        codec,
        limits: options.limits,
        name: context.name(),
        context,
        gop: Gop::new(codec),
        pairing: PtsPairing::default(),
        ready: VecDeque::new(),
        frames: 0,
    }))
}

struct SoftwareDecoder {
    codec: Codec,
    limits: Limits,
    name: String,
    context: Context,
    gop: Gop,
    pairing: PtsPairing,
    /// Out of the decoder and not polled yet: what one access unit completed.
    ready: VecDeque<Frame>,
    frames: u64,
}

impl Decoder for SoftwareDecoder {
    fn push(&mut self, unit: &AccessUnit) -> Result<(), DecodeError> {
        if unit.codec != self.codec {
            let (expected, got) = (self.codec.name(), unit.codec.name());
            return Err(DecodeError::WrongCodec { expected, got });
        }
        if !self.gop.admits(unit) {
            return Ok(());
        }
        let key = self.pairing.insert(unit.pts);
        let decoded = Packet::copied([&unit.data, &[]], key)
            .and_then(|packet| self.context.send(&packet))
            .map_err(damaged)
            .and_then(|()| self.collect());
        decoded.map_err(|error| {
            self.start_anew();
            self.context.too_large().unwrap_or(error)
        })
    }

    fn poll(&mut self) -> Result<Option<Frame>, DecodeError> {
        Ok(self.ready.pop_front())
    }

    fn flush(&mut self) -> Result<(), DecodeError> {
        let drained = self.context.send_end().map_err(damaged).and_then(|()| self.collect());
        self.start_anew();
        drained
    }

    fn name(&self) -> &str {
        &self.name
    }
}

impl SoftwareDecoder {
    fn collect(&mut self) -> Result<(), DecodeError> {
        while let Output::Frame(frame) = self.context.receive().map_err(damaged)? {
            let frame = self.pair(frame)?;
            self.ready.extend(frame);
        }
        Ok(())
    }

    /// The picture with its time; `None` for one that no unit asked for.
    fn pair(&mut self, frame: RawFrame) -> Result<Option<Frame>, DecodeError> {
        let Some(pts) = frame.packet_pts().and_then(|key| self.pairing.take(key)) else {
            return Ok(None);
        };
        let picture = frame.into_picture()?;
        let (extent, layout) = (picture.extent(), picture.layout());
        check_extent(extent, self.limits)?;
        let source_index = self.frames;
        self.frames += 1;
        let pixels = Pixels::Host(Arc::new(picture));
        Ok(Some(Frame { pts, source_index, extent, layout, pixels }))
    }

    fn start_anew(&mut self) {
        self.context.reset();
        self.pairing.clear();
        self.gop.lose();
    }
}

fn damaged(error: AvError) -> DecodeError {
    DecodeError::DamagedUnit { detail: error.to_string() }
}
