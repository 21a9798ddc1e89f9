//! Output of a media worker that the session's task handles.

use bytes::Bytes;

use crate::record::live::description_worker::DescribeJob;

#[derive(Debug)]
pub enum SessionOutput {
    View(DescribeJob),
    Clip(DescribeJob),
    /// The worker has sent all output; the name of the decoder.
    Closed(String),
    /// Too many signals wait to be recorded.
    Behind,
    /// The worker gave the session up, or its process ended; the reason, for the owner.
    Failed(String),
}

/// Presentation time and JPEG of a clip's picture.
pub type Shot = (i64, Bytes);

impl SessionOutput {
    pub(super) fn bytes(&self) -> usize {
        let (SessionOutput::View(look) | SessionOutput::Clip(look)) = self else { return 0 };
        let novelty = look.novelty.as_ref().map_or(0, |novelty| novelty.picture.rgb.len());
        look.pictures.iter().map(|(_, jpeg)| jpeg.len()).sum::<usize>() + novelty
    }
}
