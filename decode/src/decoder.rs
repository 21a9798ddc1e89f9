//! Trait of all decoders, whatever backend they use.
//!
//! A decoder other than libav's own may fail for reasons outside the media: it then returns a reason from
//! [`FrameDecoder::lost`], and the media is decoded by software.

use std::sync::Arc;

use media::Codec;

use crate::{
    BackendError, DecodeBackend, DecodeError, HwDevice,
    ffi::{AvError, AvFrame, CodecContext, DecoderSetup, Packet, decoder_name},
    ffmpeg_cli::{FfmpegFactory, SpawnFn},
};

pub(crate) trait FrameDecoder: Send {
    /// Takes a packet; `None` signals that none follows, so that the remaining pictures come out. An error is
    /// the packet's fault unless the decoder is [`FrameDecoder::lost`].
    ///
    /// The caller must take every picture before it sends the next packet.
    fn send(&mut self, packet: Option<&Packet>) -> Result<(), AvError>;

    /// Returns the next picture in presentation order; `None` if it needs more packets or has ended.
    fn receive(&mut self) -> Result<Option<AvFrame>, AvError>;

    /// Forgets all pictures and reported damage; the next packet must be a clean start.
    fn reset(&mut self);

    /// Returns true after damage that may show in no error and no frame.
    fn has_reported_damage(&self) -> bool;

    /// Returns the error of a picture that was refused for its size.
    fn too_large(&self) -> Option<DecodeError>;

    /// Returns the reason that the decoder is unusable; `None` while it works. The media is not at fault.
    fn lost(&self) -> Option<String>;

    /// Returns the backend's name and libav's name of the decoder, such as `software:h264`.
    fn name(&self) -> String;
}

/// Opens decoders of one backend.
pub(crate) trait DecoderFactory: Send + Sync {
    /// Opens a single-threaded decoder.
    fn open(&self, setup: DecoderSetup<'_>) -> Result<Box<dyn FrameDecoder>, BackendError>;

    /// Returns true if one decoder takes the whole stream, which must not be cut.
    fn is_continuous(&self) -> bool {
        false
    }
}

/// Decoders to use: a preferred backend for some codecs, then libav's own.
#[derive(Default)]
pub struct DecoderChain {
    /// Preferred backend, or the reason that it is lost, and the codecs that it decodes.
    first: Option<(PreferredBackend, Vec<Codec>)>,
}

type PreferredBackend = Result<Box<dyn DecoderFactory>, BackendError>;

impl DecoderChain {
    /// Returns a chain of libav's own decoders alone.
    pub fn software() -> DecoderChain {
        DecoderChain::default()
    }

    /// Returns a chain that prefers `device` for these codecs.
    pub fn with_device(device: HwDevice, codecs: Vec<Codec>) -> DecoderChain {
        DecoderChain::with_engines(Box::new(device), codecs)
    }

    /// Returns a chain for a lost device: libav's own decoders decode these codecs, and files and live
    /// sessions report `error` as the loss.
    pub fn without_device(error: BackendError, codecs: Vec<Codec>) -> DecoderChain {
        DecoderChain { first: Some((Err(error), codecs)) }
    }

    /// Returns a chain that prefers the program started by `start` for these codecs.
    pub fn with_program(start: Arc<SpawnFn>, codecs: Vec<Codec>) -> DecoderChain {
        DecoderChain::with_engines(Box::new(FfmpegFactory { start }), codecs)
    }

    pub(crate) fn with_engines(
        engines: Box<dyn DecoderFactory>,
        codecs: Vec<Codec>,
    ) -> DecoderChain {
        DecoderChain { first: Some((Ok(engines), codecs)) }
    }

    /// Returns the reason that the device for `codec` opens no decoder.
    pub fn gone(&self, codec: Codec) -> Option<&BackendError> {
        self.first(codec)?.err()
    }

    /// Returns the preferred backend for `codec`, or the reason that it is lost.
    pub(crate) fn first(&self, codec: Codec) -> Option<Result<&dyn DecoderFactory, &BackendError>> {
        let (engines, codecs) = self.first.as_ref()?;
        codecs.contains(&codec).then_some(engines.as_deref())
    }
}

/// Returns the name of libav's own decoder of `codec`, such as `software:h264`: no other decodes an input that
/// can be read only once.
pub fn software_decoder(codec: Codec) -> String {
    format!("{}:{}", DecodeBackend::Software.as_str(), decoder_name(codec).to_string_lossy())
}

/// Opens libav's own decoder.
pub(crate) fn open_software(
    setup: DecoderSetup<'_>,
    threads: usize,
) -> Result<Box<dyn FrameDecoder>, DecodeError> {
    Ok(Box::new(CodecContext::open(setup, threads)?))
}
