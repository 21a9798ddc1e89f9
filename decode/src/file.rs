//! A whole file to frames: segments in parallel, outputs in order.

use std::ops::ControlFlow;

use media::{Extent, Frame, Rate};

use crate::{DecodeError, Demuxer, Sampling};

/// How to decode a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileOptions {
    /// Which frames go to the sinks.
    pub sampling: Sampling,
    /// Most frames that go to the sinks.
    pub max_frames: u64,
    /// Decoding threads, at least 1.
    pub threads: usize,
    /// Skip packets that no sampled frame needs; `false` decodes everything for the same result.
    pub plan: bool,
}

/// Which piece of the file a sink is about to receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentInfo {
    /// Position among the file's segments, from 0.
    pub ordinal: u64,
    /// Index of the segment's first sampled frame, were there one.
    pub first_frame_index: u64,
    /// The same sink has just ended segment `ordinal - 1`; its state may carry over.
    pub continues_previous: bool,
}

/// Receives the sampled frames of one segment after the other; one sink lives on each thread.
pub trait FrameSink: Send {
    /// What a segment amounts to.
    type Output: Send;

    /// A segment starts, or starts over: frames since the last `end` are void.
    fn begin(&mut self, segment: SegmentInfo);

    /// The next sampled frame in presentation order; `index` counts sampled frames of the file.
    ///
    /// `Break` ends the decoding of the whole file.
    fn frame(&mut self, index: u64, frame: Frame) -> ControlFlow<()>;

    /// The segment is complete.
    fn end(&mut self) -> Self::Output;
}

/// What the decoding of a file came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileReport {
    /// The libav decoder really used, such as `software:h264`.
    pub decoder: String,
    /// Frames given to the sinks.
    pub frames: u64,
    /// Pictures of the source up to the last one looked at, sampled or not.
    pub source_frames: u64,
    /// Average frame rate of the source.
    pub source_rate: Option<Rate>,
    /// The source ended before it should have, or reading it failed.
    pub truncated: bool,
    /// Packets that the demuxer or the decoder flagged or refused.
    pub damaged_packets: u64,
    /// Size of the first frame.
    pub first_extent: Option<Extent>,
}

/// Decodes `demuxer`'s stream on `options.threads` threads, each with a sink of its own.
///
/// `deliver` gets the segments' outputs on the calling thread, in order; `Break` ends the work.
pub fn decode_file<S: FrameSink>(
    demuxer: Demuxer,
    options: &FileOptions,
    make_sink: impl Fn() -> S + Sync,
    deliver: impl FnMut(S::Output) -> ControlFlow<()>,
) -> Result<FileReport, DecodeError> {
    let (_, _, _, _) = (demuxer, options, make_sink, deliver);
    Err(DecodeError::Empty)
}
