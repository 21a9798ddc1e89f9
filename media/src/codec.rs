//! The video codecs that the service decodes.

crate::named! {
    /// A video codec, named on the wire as FFmpeg names it.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
    pub enum Codec {
        /// ITU-T H.264 / AVC.
        H264 = "h264",
        /// ITU-T H.265 / HEVC.
        H265 = "hevc",
        /// VP8 (RFC 6386).
        Vp8 = "vp8",
        /// VP9.
        Vp9 = "vp9",
        /// AV1.
        Av1 = "av1",
        /// MPEG-4 part 2.
        Mpeg4 = "mpeg4",
        /// Motion JPEG.
        Mjpeg = "mjpeg",
    }
}
