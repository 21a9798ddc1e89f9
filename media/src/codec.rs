//! The video codecs that the service decodes.

/// A video codec, named on the wire as FFmpeg names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub enum Codec {
    /// ITU-T H.264 / AVC.
    H264,
    /// ITU-T H.265 / HEVC.
    H265,
    /// VP8 (RFC 6386).
    Vp8,
    /// VP9.
    Vp9,
    /// AV1.
    Av1,
    /// MPEG-4 part 2.
    Mpeg4,
    /// Motion JPEG.
    Mjpeg,
}

impl Codec {
    /// Every codec, in the order of the documentation.
    pub const ALL: [Codec; 7] =
        [Codec::H264, Codec::H265, Codec::Vp8, Codec::Vp9, Codec::Av1, Codec::Mpeg4, Codec::Mjpeg];

    /// Name on the wire and in logs.
    pub fn name(self) -> &'static str {
        match self {
            Codec::H264 => "h264",
            Codec::H265 => "hevc",
            Codec::Vp8 => "vp8",
            Codec::Vp9 => "vp9",
            Codec::Av1 => "av1",
            Codec::Mpeg4 => "mpeg4",
            Codec::Mjpeg => "mjpeg",
        }
    }
}
