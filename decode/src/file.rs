//! A whole file to frames: segments in parallel, outputs in order.
//!
//! Promises that sinks see the frames, times and indices of one sequential decode. Indices of a
//! segment are predicted from its packets; where decoding proves the prediction wrong, later
//! segments are decoded again, and where it keeps being wrong the file is decoded in one piece.

mod schedule;
mod worker;

use std::{collections::BTreeMap, ops::ControlFlow, sync::mpsc, thread};

use media::{Extent, Frame, Rate};

use crate::{DecodeError, Demuxer, Sampling, sampling::Position};
use schedule::{Schedule, StopOnPanic};
use worker::{Finished, Outcome, Worker};

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

    /// A picture was decoded that is not sampled: a sign of life between sparse samples.
    fn passed_over(&mut self) {}

    /// The segment is complete.
    fn end(&mut self) -> Self::Output;
}

/// What the decoding of a file came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileReport {
    /// The libav decoder really used, such as `software:h264`.
    pub decoder: String,
    /// Frames given to the sinks whose outputs were delivered.
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
    mut deliver: impl FnMut(S::Output) -> ControlFlow<()>,
) -> Result<FileReport, DecodeError> {
    let threads = options.threads.max(1);
    let stream = demuxer.stream().clone();
    let schedule = Schedule::new(demuxer, options, threads);
    let mut collector = Collector::default();
    let (schedule_ref, make_sink) = (&schedule, &make_sink);
    thread::scope(|scope| {
        // As many results as segments may be in flight, so no worker waits to send one.
        let (sender, results) = mpsc::sync_channel(schedule.window());
        for index in 0..threads {
            let sender = sender.clone();
            let spawned = thread::Builder::new().name(format!("decode-{index}")).spawn_scoped(
                scope,
                move || {
                    let _stop = StopOnPanic(schedule_ref);
                    Worker::new(schedule_ref, make_sink()).run(&sender);
                },
            );
            if let Err(error) = spawned {
                schedule.stop();
                return Err(DecodeError::Thread { detail: error.to_string() });
            }
        }
        drop(sender);
        let outcome = collector.run(&schedule, &results, &mut deliver);
        schedule.stop();
        outcome
    })?;
    let facts = schedule.into_facts();
    if collector.position.source_frames == 0 && facts.is_complete {
        let damaged_packets = collector.damaged_packets + facts.damaged_packets;
        return Err(DecodeError::NothingDecoded { damaged_packets });
    }
    Ok(FileReport {
        decoder: collector.decoder,
        frames: collector.position.sampled,
        source_frames: collector.position.source_frames,
        source_rate: stream.source_rate,
        truncated: facts.truncated,
        damaged_packets: collector.damaged_packets + facts.damaged_packets,
        first_extent: collector.first_extent,
    })
}

/// Puts results back in order and checks that each began where the one before ended.
#[derive(Default)]
struct Collector {
    position: Position,
    next: u64,
    decoder: String,
    damaged_packets: u64,
    first_extent: Option<Extent>,
}

impl Collector {
    fn run<O>(
        &mut self,
        schedule: &Schedule,
        results: &mpsc::Receiver<Outcome<O>>,
        deliver: &mut impl FnMut(O) -> ControlFlow<()>,
    ) -> Result<(), DecodeError> {
        let mut early = BTreeMap::new();
        // Ends when every worker has returned.
        for (ordinal, result) in results {
            early.insert(ordinal, result);
            while let Some(result) = early.remove(&self.next) {
                let finished = result?;
                if finished.job.start != self.position {
                    schedule.again(finished.job, self.position);
                    break;
                }
                if self.accept(schedule, finished, deliver).is_break() {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    fn accept<O>(
        &mut self,
        schedule: &Schedule,
        finished: Finished<O>,
        deliver: &mut impl FnMut(O) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        self.next += 1;
        self.position = finished.end;
        self.damaged_packets += finished.damaged_packets;
        self.first_extent = self.first_extent.or(finished.first_extent);
        self.decoder = finished.decoder;
        schedule.delivered(self.position);
        deliver(finished.output)
    }
}
