//! The seam of live decoding: access units in, frames out, one thread a stream.

use media::{AccessUnit, Codec, Frame};

use crate::{DecodeError, Limits};

/// Decodes one live stream.
///
/// After an error of `push`, nothing comes out until the next clean start.
pub trait Decoder: Send {
    /// Takes the coded bytes of the next picture.
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
    let (_, _) = (codec, options);
    Err(DecodeError::Empty)
}
