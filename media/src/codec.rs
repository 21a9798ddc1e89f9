//! The video codecs that the service decodes.

crate::named! {
    /// A video codec, named on the wire as FFmpeg names it.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
    #[allow(missing_docs, reason = "the names say it")]
    pub enum Codec {
        H264 = "h264",
        H265 = "hevc",
        Vp8 = "vp8",
        Vp9 = "vp9",
        Av1 = "av1",
        /// MPEG-4 part 2.
        Mpeg4 = "mpeg4",
        Mjpeg = "mjpeg",
    }
}
