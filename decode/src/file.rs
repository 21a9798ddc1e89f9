//! Decodes a whole file: segments in parallel, outputs in order.
//!
//! Sinks see the frames, times and indices of one sequential decode. Indices of a segment are predicted from
//! its packets; if decoding disproves a prediction, later segments are decoded again. Damaged segments are
//! decoded again too, by one new decoder on one thread, because only that gives the same pictures on every
//! run. A live camera's pictures are decoded one at a time on the calling thread, and each is delivered
//! before the next is awaited.

mod decode_pass;
mod frame_collector;
mod preferred_decoder;
mod schedule;
mod worker;

use std::{collections::BTreeMap, ops::ControlFlow, sync::mpsc, thread};

use media::{DeviceMemoryLost, Dimensions, Frame, FrameRate};

use crate::{
    DecodeError, DecoderChain, Demuxer, Sampling, decoder::DecoderFactory, sampling::SamplerState,
};
pub use frame_collector::FrameCollector;
use preferred_decoder::PreferredDecoderState;
pub(crate) use schedule::frame_ticks;
use schedule::{DecodeRound, SegmentJob, SegmentScheduler, StopOnPanic};
use worker::{DecodeThread, DecodedSegment, SegmentAbort, SegmentOutcome};

/// Options of decoding a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileOptions {
    /// Selection of the frames for the sinks.
    pub sampling: Sampling,
    /// Most frames for the sinks.
    pub max_frames: u64,
    /// Decoding threads, at least 1.
    pub threads: usize,
    /// Skip packets that no sampled frame needs; `false` decodes everything for the same result.
    ///
    /// Damage in skipped packets alone is neither counted nor changes any frame's source index;
    /// a segment that shows damage is decoded in full.
    pub plan: bool,
}

/// Segment whose frames a sink is about to receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentInfo {
    /// Position among the file's segments, from 0.
    pub ordinal: u64,
    /// Index of the segment's first sampled frame, or that of the next one if it has none.
    pub first_frame_index: u64,
    /// True if the same sink has just ended segment `ordinal - 1`, so that its state may carry over.
    pub continues_previous: bool,
}

/// Receives the sampled frames of one segment after the other; each thread has its own sink.
pub trait FrameSink: Send {
    /// Result of a segment.
    type Output: Send;

    /// Starts a segment, or starts it over: frames since the last `end` are void.
    fn begin(&mut self, segment: SegmentInfo);

    /// Takes the next sampled frame in presentation order; `index` counts the sampled frames of the file.
    fn frame(&mut self, index: u64, frame: Frame) -> ControlFlow<SinkStop>;

    /// Signals progress: a picture was decoded that is not sampled.
    fn skipped_frames(&mut self) {}

    /// Ends the segment and returns its result, which must not hold frames in device memory only: after a
    /// loss of the device they are not decoded again.
    fn end(&mut self) -> Result<Self::Output, DeviceMemoryLost>;
}

/// Reason that a sink takes no more frames.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SinkStop {
    /// The whole file's decoding ends.
    Ended,
    /// A frame lost its pixels with the device: the segment is decoded again without the device.
    PixelsLost(DeviceMemoryLost),
}

/// Report on the decoding of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct FileReport {
    /// Decoder used, such as `software:h264`; several are joined by `+` in the order of their first frames.
    pub decoder: String,
    /// Reason that the preferred backend did not decode the whole file.
    pub fallback: Option<String>,
    /// Number of frames given to sinks whose outputs were delivered.
    pub frames: u64,
    /// Number of pictures of the source up to the last one decoded, sampled or not.
    pub source_frames: u64,
    /// Average frame rate of the source.
    pub source_rate: Option<FrameRate>,
    /// True if the source ended before its declared end, or reading it failed.
    pub truncated: bool,
    /// True if the source has more frames after the last wanted one, as far as its packets tell.
    pub more_frames: bool,
    /// Number of packets that the demuxer or the decoder flagged or refused.
    pub damaged_packets: u64,
    /// Size of the first frame.
    pub first_extent: Option<Dimensions>,
}

/// Decodes `demuxer`'s stream on `options.threads` threads, each with its own sink.
///
/// `deliver` gets the segments' outputs on the calling thread, in order; `Break` ends the work. An input that
/// can be read only once is decoded by libav's own decoders, since a lost device would lose pictures. A live
/// input is decoded on the calling thread alone.
pub fn decode_file<S: FrameSink>(
    decoders: &DecoderChain,
    mut demuxer: Demuxer,
    options: &FileOptions,
    make_sink: impl Fn() -> S + Sync,
    mut deliver: impl FnMut(S::Output) -> ControlFlow<()>,
) -> Result<FileReport, DecodeError> {
    let source_rate = demuxer.stream().source_rate;
    let begin = demuxer.begin(options.sampling);
    let mut collector = Collector { position: begin, ..Collector::default() };
    let mut conceals = demuxer.heard_at().is_some();
    let asked = decoders.first(demuxer.stream().codec).filter(|_| !conceals);
    let first = PreferredDecoderState::new(asked);
    let facts = loop {
        // The reference decoder cuts as usual: its output for damaged media depends on the cuts.
        if first.engines().is_some_and(DecoderFactory::is_continuous) {
            demuxer = demuxer.uncut();
        }
        let round = DecodeRound {
            conceals,
            is_accelerated: first.engines().is_some(),
            given: collector.given,
        };
        let schedule = SegmentScheduler::new(demuxer, options, round);
        match decode_once(&schedule, &first, &mut collector, &make_sink, &mut deliver) {
            Ok(()) | Err(SegmentAbort::SinkEnded) => break schedule.into_parts().0,
            // Pieces decoded on several threads are damaged: another round is needed.
            Err(SegmentAbort::Damaged) => conceals = true,
            // The preferred decoder of the pieces was lost: another round without it is needed.
            Err(SegmentAbort::Lost(_)) => {}
            Err(SegmentAbort::Error(error)) => return Err(error),
        }
        demuxer = schedule.into_parts().1.reopened()?;
        collector = collector.starting_over();
    };
    let damaged_packets = collector.damaged_packets;
    if collector.position.source_frames == begin.source_frames && facts.is_complete {
        return Err(DecodeError::NothingDecoded(damaged_packets));
    }
    Ok(FileReport {
        decoder: collector.decoders.join("+"),
        fallback: first.into_reason(),
        frames: collector.position.sampled,
        source_frames: collector.position.source_frames,
        source_rate,
        truncated: facts.truncated,
        more_frames: collector.has_more || facts.has_more,
        damaged_packets,
        first_extent: collector.first_extent,
    })
}

/// Decodes until nothing is left or wanted; an error ends the round.
fn decode_once<S: FrameSink>(
    schedule: &SegmentScheduler,
    first: &PreferredDecoderState<'_>,
    collector: &mut Collector,
    make_sink: &(impl Fn() -> S + Sync),
    deliver: &mut impl FnMut(S::Output) -> ControlFlow<()>,
) -> Result<(), SegmentAbort> {
    if schedule.task.flows {
        // On the calling thread: no output is held up by a blocking read.
        let mut ended = Ok(());
        DecodeThread::new(schedule, first, make_sink()).run(&mut |outcome| {
            collector.settle(schedule, outcome, deliver).map_break(|result| ended = result)
        });
        return ended;
    }
    thread::scope(|scope| {
        let _stop = StopOnPanic(schedule);
        // Capacity for all segments in flight, so that no worker blocks on sending.
        let (sender, results) = mpsc::sync_channel(schedule.window());
        for index in 0..schedule.task.threads {
            let sender = sender.clone();
            let spawned = thread::Builder::new().name(format!("decode-{index}")).spawn_scoped(
                scope,
                move || {
                    let _stop = StopOnPanic(schedule);
                    let worker = DecodeThread::new(schedule, first, make_sink());
                    // The receiver is dropped when the collector has given up.
                    worker.run(&mut |outcome| match sender.send(outcome) {
                        Ok(()) => ControlFlow::Continue(()),
                        Err(_) => ControlFlow::Break(()),
                    });
                },
            );
            if let Err(error) = spawned {
                schedule.stop();
                return Err(SegmentAbort::Error(DecodeError::Thread(error.to_string())));
            }
        }
        drop(sender);
        let ended = collector.run(schedule, &results, deliver);
        schedule.stop();
        ended
    })
}

/// Reorders results and checks that each began where the previous one ended.
#[derive(Default)]
struct Collector {
    position: SamplerState,
    next: u64,
    /// Number of frames whose outputs an earlier round delivered; other decoders' pieces end elsewhere.
    given: u64,
    /// Names of the decoders whose frames were delivered, without duplicates.
    decoders: Vec<String>,
    damaged_packets: u64,
    first_extent: Option<Dimensions>,
    /// True if the last segment has more frames than wanted.
    has_more: bool,
}

impl Collector {
    /// Returns the collector for another round over the same file.
    fn starting_over(self) -> Collector {
        let given = self.given.max(self.position.sampled);
        Collector { given, decoders: self.decoders, ..Collector::default() }
    }

    fn run<O>(
        &mut self,
        schedule: &SegmentScheduler,
        results: &mpsc::Receiver<SegmentOutcome<O>>,
        deliver: &mut impl FnMut(O) -> ControlFlow<()>,
    ) -> Result<(), SegmentAbort> {
        let mut early = BTreeMap::new();
        // The channel closes when every worker has returned.
        for outcome in results {
            early.insert(outcome.job.ordinal, outcome);
            while let Some(outcome) = early.remove(&self.next) {
                if outcome.job.start != self.position {
                    schedule.again(outcome.job, self.position);
                    break;
                }
                if let ControlFlow::Break(ended) = self.settle(schedule, outcome, deliver) {
                    return ended;
                }
            }
        }
        Ok(())
    }

    /// Takes the next outcome in order; `Break` ends the round.
    fn settle<O>(
        &mut self,
        schedule: &SegmentScheduler,
        SegmentOutcome { job, result }: SegmentOutcome<O>,
        deliver: &mut impl FnMut(O) -> ControlFlow<()>,
    ) -> ControlFlow<Result<(), SegmentAbort>> {
        match result {
            Ok(decoded) => self.accept(schedule, &job, decoded, deliver).map_break(Ok),
            Err(abort) => ControlFlow::Break(Err(abort)),
        }
    }

    fn accept<O>(
        &mut self,
        schedule: &SegmentScheduler,
        job: &SegmentJob,
        decoded: DecodedSegment<O>,
        deliver: &mut impl FnMut(O) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let is_new = job.start.sampled >= self.given || decoded.end.sampled > self.given;
        self.next += 1;
        self.position = decoded.end;
        let flagged = job.segment.units.iter().filter(|unit| unit.payload.is_corrupt()).count();
        self.damaged_packets += decoded.damaged_packets + flagged as u64;
        self.first_extent = self.first_extent.or(decoded.first_extent);
        let is_full = self.position.sampled >= schedule.task.options.max_frames;
        self.has_more |= is_full && schedule.task.exceeds(&job.segment, job.start);
        if is_new && !self.decoders.contains(&decoded.decoder) {
            self.decoders.push(decoded.decoder);
        }
        schedule.delivered(self.position);
        if is_new { deliver(decoded.output) } else { ControlFlow::Continue(()) }
    }
}

#[cfg(test)]
mod tests;
