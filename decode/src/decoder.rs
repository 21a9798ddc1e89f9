//! The seam behind which a decoder sits, whatever it decodes with.
//!
//! An engine that is not libav's own decoder may fail for reasons that are not the media's: it says so
//! by [`FrameDecoder::lost`], and the media is then decoded by software.

use std::sync::Arc;

use media::Codec;

use crate::{
    BackendError, DecodeError, DemuxLimits, HwDevice,
    ffi::{AvError, CodecContext, DamagePolicy, Packet, Parameters, ReceiveOutcome},
    ffmpeg_cli::{FfmpegFactory, SpawnFn},
};

/// A decoder of one stream.
pub(crate) trait FrameDecoder: Send {
    /// Takes a packet; an error is the packet's fault unless the engine is [`FrameDecoder::lost`].
    ///
    /// The caller takes every output before it sends the next packet.
    fn send(&mut self, packet: &Packet) -> Result<(), AvError>;

    /// No packet follows; the pictures still inside come out.
    fn send_end(&mut self) -> Result<(), AvError>;

    /// The next picture in presentation order.
    fn receive(&mut self) -> Result<ReceiveOutcome, AvError>;

    /// Forgets every picture and complaint; the next packet must be a clean start.
    fn reset(&mut self);

    /// Returns its way of dealing with damage.
    fn on_damage(&self) -> DamagePolicy;

    /// It met damage that no error and no frame need tell of.
    fn has_reported_damage(&self) -> bool;

    /// The error to report when a picture was refused for its size.
    fn too_large(&self) -> Option<DecodeError>;

    /// Returns the reason that it is of no use any more, where the media is not at fault.
    fn lost(&self) -> Option<String>;

    /// The backend's name and libav's of the decoder, such as `software:h264`.
    fn name(&self) -> String;
}

/// Opens engines of one backend.
pub(crate) trait DecoderFactory: Send + Sync {
    /// Opens a decoder on one thread.
    fn open(
        &self,
        codec: Codec,
        parameters: Option<&Parameters>,
        on_damage: DamagePolicy,
        limits: DemuxLimits,
    ) -> Result<Box<dyn FrameDecoder>, BackendError>;

    /// One decoder takes the whole stream, which is not cut for it.
    fn is_continuous(&self) -> bool {
        false
    }

    /// Returns the reason that nothing opens here, where that is known.
    fn loss_reason(&self) -> Option<&BackendError> {
        None
    }
}

/// A device that was there and opens no more, with the reason.
struct Gone(BackendError);

impl DecoderFactory for Gone {
    fn open(
        &self,
        _: Codec,
        _: Option<&Parameters>,
        _: DamagePolicy,
        _: DemuxLimits,
    ) -> Result<Box<dyn FrameDecoder>, BackendError> {
        Err(self.0.clone())
    }

    fn loss_reason(&self) -> Option<&BackendError> {
        Some(&self.0)
    }
}

/// Decoders: libav's own, and a device that is asked first.
#[derive(Default)]
pub struct DecoderChain {
    first: Option<PreferredDecoderState>,
}

struct PreferredDecoderState {
    engines: Box<dyn DecoderFactory>,
    codecs: Vec<Codec>,
}

impl DecoderChain {
    /// libav's own decoders alone.
    pub fn software() -> DecoderChain {
        DecoderChain::default()
    }

    /// `device` for these codecs, and libav's own decoders for all else.
    pub fn with_device(device: HwDevice, codecs: Vec<Codec>) -> DecoderChain {
        DecoderChain::with_engines(Box::new(device), codecs)
    }

    /// libav's own decoders, in place of a device for these codecs that opens no more: files and live
    /// sessions are told of `error` as of any loss.
    pub fn without_device(error: BackendError, codecs: Vec<Codec>) -> DecoderChain {
        DecoderChain::with_engines(Box::new(Gone(error)), codecs)
    }

    /// The program that `start` starts for these codecs, and libav's own decoders for all else.
    pub fn with_program(start: Arc<SpawnFn>, codecs: Vec<Codec>) -> DecoderChain {
        DecoderChain::with_engines(Box::new(FfmpegFactory { start }), codecs)
    }

    pub(crate) fn with_engines(
        engines: Box<dyn DecoderFactory>,
        codecs: Vec<Codec>,
    ) -> DecoderChain {
        DecoderChain { first: Some(PreferredDecoderState { engines, codecs }) }
    }

    /// Returns the reason that the device that was to decode `codec` opens no more.
    pub fn gone(&self, codec: Codec) -> Option<&BackendError> {
        self.first(codec)?.loss_reason()
    }

    /// Returns the engine that is asked before libav's own decoder of `codec`.
    pub(crate) fn first(&self, codec: Codec) -> Option<&dyn DecoderFactory> {
        let first = self.first.as_ref().filter(|first| first.codecs.contains(&codec))?;
        Some(first.engines.as_ref())
    }
}

/// libav's own decoder of `codec`.
pub(crate) fn open_software(
    codec: Codec,
    parameters: Option<&Parameters>,
    threads: usize,
    on_damage: DamagePolicy,
    limits: DemuxLimits,
) -> Result<Box<dyn FrameDecoder>, DecodeError> {
    let context = CodecContext::open(codec, parameters, threads, on_damage, limits)?;
    Ok(Box::new(context))
}
