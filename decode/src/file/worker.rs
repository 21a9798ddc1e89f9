//! Decoding thread: passes a segment's packets through a decoder to the sink.

use std::ops::ControlFlow;

use media::Dimensions;

use super::{
    FrameSink, SinkStop,
    decode_pass::{PassFlow, PassStats, emit, feed},
    preferred_decoder::PreferredDecoderState,
    schedule::{FileTask, SegmentJob, SegmentScheduler},
};
use crate::{
    DecodeError,
    decoder::{FrameDecoder, open_software},
    ffi::{AvFrame, DamagePolicy, DecoderSetup, Place},
    sampling::SamplerState,
    skip_plan::needed_packets,
};

pub(super) struct DecodedSegment<O> {
    /// Position of the source after the segment.
    pub(super) end: SamplerState,
    pub(super) decoder: String,
    /// Packets that the decoder flagged or refused.
    pub(super) damaged_packets: u64,
    pub(super) first_extent: Option<Dimensions>,
    pub(super) output: O,
}

/// Outcome of a segment, used only if its job's start was right.
pub(super) struct SegmentOutcome<O> {
    pub(super) job: SegmentJob,
    pub(super) result: Result<DecodedSegment<O>, SegmentAbort>,
}

/// Receives outcomes as they come.
pub(super) type Results<'a, O> = &'a mut dyn FnMut(SegmentOutcome<O>) -> ControlFlow<()>;

/// Reason for giving up a segment's decoding.
pub(super) enum SegmentAbort {
    SinkEnded,
    /// A decoder that refuses damage met some.
    Damaged,
    /// The preferred decoder was lost for this reason; the media is not at fault.
    Lost(String),
    Error(DecodeError),
}

impl From<SinkStop> for SegmentAbort {
    fn from(stop: SinkStop) -> SegmentAbort {
        match stop {
            SinkStop::Ended => SegmentAbort::SinkEnded,
            SinkStop::PixelsLost(lost) => SegmentAbort::Lost(lost.to_string()),
        }
    }
}

impl From<DecodeError> for SegmentAbort {
    fn from(error: DecodeError) -> SegmentAbort {
        SegmentAbort::Error(error)
    }
}

pub(super) struct DecodeThread<'a, S> {
    schedule: &'a SegmentScheduler,
    task: &'a FileTask,
    first: &'a PreferredDecoderState<'a>,
    sink: S,
    /// Allocation of the frame that the sink gets.
    place: Place,
    /// Single-threaded decoder, kept across segments until it meets damage.
    narrow: Option<Box<dyn FrameDecoder>>,
}

impl<'a, S: FrameSink> DecodeThread<'a, S> {
    pub(super) fn new(
        schedule: &'a SegmentScheduler,
        first: &'a PreferredDecoderState<'a>,
        sink: S,
    ) -> DecodeThread<'a, S> {
        let (task, place) = (&schedule.task, Place::default());
        DecodeThread { schedule, task, first, sink, place, narrow: None }
    }

    /// Decodes until no segment is left or `results` breaks.
    pub(super) fn run(mut self, results: Results<'_, S::Output>) {
        while let Some(job) = self.schedule.next() {
            let flow = if job.segment.is_continued {
                self.decode_pieces(job, results)
            } else {
                let result = self.decode_closed(&job);
                self.report(SegmentOutcome { job, result }, results)
            };
            if flow.is_break() {
                return;
            }
        }
    }

    fn report(
        &self,
        outcome: SegmentOutcome<S::Output>,
        results: Results<'_, S::Output>,
    ) -> ControlFlow<()> {
        if matches!(outcome.result, Err(SegmentAbort::SinkEnded)) {
            self.schedule.stop();
            return ControlFlow::Break(());
        }
        results(outcome)
    }

    /// Decodes a segment that begins and ends at clean starts.
    ///
    /// Damage is handled by one new decoder on one thread, so that neither the threads nor their timing nor
    /// earlier segments affect its pictures.
    fn decode_closed(
        &mut self,
        job: &SegmentJob,
    ) -> Result<DecodedSegment<S::Output>, SegmentAbort> {
        loop {
            match self.undamaged_pass(job) {
                // Starts over with the next decoder; an uncut stream must be cut first, in another round.
                Err(SegmentAbort::Lost(reason)) => {
                    self.first.lose(reason.clone());
                    if self.first.is_continuous() {
                        return Err(SegmentAbort::Lost(reason));
                    }
                }
                Err(SegmentAbort::Damaged | SegmentAbort::Error(_)) => {
                    let on_damage = DamagePolicy::Conceal;
                    let mut context = self.open(1, on_damage)?;
                    let context = context.as_mut();
                    return self.full_pass(job, context, on_damage, &mut LastTicks::default());
                }
                done => return done,
            }
        }
    }

    /// Decodes a segment fast and ends at the first sign of damage.
    fn undamaged_pass(
        &mut self,
        job: &SegmentJob,
    ) -> Result<DecodedSegment<S::Output>, SegmentAbort> {
        let kept = self.narrow.take().filter(|_| !job.is_again && !job.is_wide);
        let on_damage = DamagePolicy::Refuse;
        let mut context = match kept {
            Some(context) => context,
            None => {
                let threads = if job.is_wide { self.task.wide_threads() } else { 1 };
                self.open(threads, on_damage)?
            }
        };
        let used = context.as_mut();
        let decoded = match self.plan(job) {
            Some(planned) => self.planned_pass(job, planned, used)?,
            None => self.full_pass(job, used, on_damage, &mut LastTicks::default())?,
        };
        if !job.is_wide {
            context.reset();
            self.narrow = Some(context);
        }
        Ok(decoded)
    }

    /// Decodes segments that share one decoder, until one ends at a clean start.
    fn decode_pieces(
        &mut self,
        first: SegmentJob,
        results: Results<'_, S::Output>,
    ) -> ControlFlow<()> {
        let (threads, on_damage) = match self.task.conceals {
            true => (1, DamagePolicy::Conceal),
            false => (self.task.wide_threads(), DamagePolicy::Refuse),
        };
        let mut context = match self.open(threads, on_damage) {
            Ok(context) => context,
            Err(error) => {
                return self
                    .report(SegmentOutcome { job: first, result: Err(error.into()) }, results);
            }
        };
        let (mut job, mut last_ticks) = (first, LastTicks::default());
        let end = loop {
            let is_continued = job.segment.is_continued;
            let mut result = self.full_pass(&job, context.as_mut(), on_damage, &mut last_ticks);
            if !self.task.conceals && matches!(result, Err(SegmentAbort::Error(_))) {
                // The order of errors depends on the timing of threads too.
                result = Err(SegmentAbort::Damaged);
            }
            if let Err(SegmentAbort::Lost(reason)) = &result {
                self.first.lose(reason.clone());
            }
            let end = result.as_ref().map(|piece| piece.end).ok();
            self.report(SegmentOutcome { job, result }, results)?;
            // No piece follows one that failed.
            let Some(end) = end else { return ControlFlow::Break(()) };
            if !is_continued {
                break end;
            }
            match self.schedule.next_piece(end) {
                Some(next) => job = next,
                None => break end,
            }
        };
        self.schedule.end_pieces(end);
        ControlFlow::Continue(())
    }

    /// Opens a decoder. Only libav's own decoders conceal damage.
    fn open(
        &self,
        threads: usize,
        on_damage: DamagePolicy,
    ) -> Result<Box<dyn FrameDecoder>, DecodeError> {
        let &FileTask { codec, ref parameters, limits, .. } = self.task;
        let setup = DecoderSetup { codec, parameters: Some(parameters), on_damage, limits };
        if on_damage == DamagePolicy::Refuse
            && let Some(engines) = self.first.engines()
        {
            match engines.open(setup) {
                Ok(engine) => return Ok(engine),
                Err(error) => self.first.lose(error.to_string()),
            }
        }
        open_software(setup, threads)
    }

    /// Plans the packets to leave out of `job`; `None` if everything has to be decoded.
    fn plan(&self, job: &SegmentJob) -> Option<PlannedJob> {
        if !self.task.may_plan {
            return None;
        }
        let times = job.segment.shown_times()?;
        let mut sampler = self.task.sampler(job.start);
        let sampled = |&ticks: &i64| sampler.offer(self.task.at(ticks)).is_some();
        let targets: Vec<i64> = times.iter().copied().filter(sampled).collect();
        let needed = needed_packets(&job.segment, &targets);
        Some(PlannedJob { needed, targets, times, end: sampler.position })
    }

    /// Decodes the packets of `planned`, or all of them if other pictures come out.
    fn planned_pass(
        &mut self,
        job: &SegmentJob,
        planned: PlannedJob,
        context: &mut dyn FrameDecoder,
    ) -> Result<DecodedSegment<S::Output>, SegmentAbort> {
        let PlannedJob { needed, targets, times, end } = planned;
        self.sink.begin(job.info(self.task.given));
        let on_damage = DamagePolicy::Refuse;
        let mut tally = PassStats::new(on_damage);
        let (sink, place, task, start) = (&mut self.sink, &mut self.place, self.task, job.start);
        let mut taken = 0;
        let mut is_as_planned = true;
        let mut on_frame = |frame: AvFrame| -> PassFlow {
            let found =
                frame.pts().and_then(|ticks| Some((ticks, times.binary_search(&ticks).ok()?)));
            match (found, targets.get(taken)) {
                (Some((ticks, at)), Some(&target)) if ticks == target => {
                    let source_index = start.source_frames + at as u64;
                    let index = start.sampled + taken as u64;
                    emit(sink, place, task, index, frame, ticks, source_index)?;
                    taken += 1;
                }
                (Some((ticks, _)), Some(&target)) if ticks < target => sink.skipped_frames(),
                _ => is_as_planned = false,
            }
            let is_done = taken == targets.len() || !is_as_planned;
            Ok(if is_done { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        };
        if !targets.is_empty() {
            let is_needed = |index: usize| needed[index];
            feed(context, task, job, is_needed, &mut tally, &mut on_frame)?;
        }
        if taken < targets.len() {
            context.reset();
            return self.full_pass(job, context, on_damage, &mut LastTicks::default());
        }
        self.finish(end, tally, context)
    }

    /// Decodes everything and samples the pictures.
    ///
    /// `last` is carried from piece to piece.
    fn full_pass(
        &mut self,
        job: &SegmentJob,
        context: &mut dyn FrameDecoder,
        on_damage: DamagePolicy,
        last: &mut LastTicks,
    ) -> Result<DecodedSegment<S::Output>, SegmentAbort> {
        self.sink.begin(job.info(self.task.given));
        let mut tally = PassStats::new(on_damage);
        let (sink, place, task) = (&mut self.sink, &mut self.place, self.task);
        let mut sampler = task.sampler(job.start);
        let mut on_frame = |frame: AvFrame| -> PassFlow {
            let source_index = sampler.position.source_frames;
            let own = frame.packet_pts().filter(|_| frame.packet_pts() == frame.pts());
            let ticks = match (frame.pts(), last.frame) {
                // Some cameras repeat a time. Half a frame's step, so that their own times soon apply again.
                (Some(ticks), Some(last)) if task.flows && ticks <= last => {
                    last.saturating_add((task.frame_ticks / 2).max(1))
                }
                // A guess of libav from decode times, or behind one.
                (Some(ticks), Some(last_frame)) if own.or(last.own) >= last.own => {
                    ticks.max(last_frame)
                }
                (Some(ticks), _) => ticks,
                (None, Some(last)) => last.saturating_add(task.frame_ticks),
                (None, None) => task.untimed_ticks(source_index),
            };
            *last = LastTicks { frame: Some(ticks), own: own.or(last.own) };
            if let Some(index) = sampler.offer(task.at(ticks)) {
                emit(sink, place, task, index, frame, ticks, source_index)?;
            } else {
                sink.skipped_frames();
            }
            Ok(if sampler.is_full() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        };
        feed(context, task, job, |_| true, &mut tally, &mut on_frame)?;
        let end = sampler.position;
        self.finish(end, tally, context)
    }

    fn finish(
        &mut self,
        end: SamplerState,
        tally: PassStats,
        context: &dyn FrameDecoder,
    ) -> Result<DecodedSegment<S::Output>, SegmentAbort> {
        Ok(DecodedSegment {
            end,
            decoder: context.name(),
            damaged_packets: tally.damaged_packets,
            first_extent: tally.first_extent,
            output: self.sink.end().map_err(SinkStop::PixelsLost)?,
        })
    }
}

/// Time of the last frame, and the last one that was not made up.
#[derive(Clone, Copy, Default)]
struct LastTicks {
    frame: Option<i64>,
    own: Option<i64>,
}

struct PlannedJob {
    /// For each packet of the segment, true if it is needed.
    needed: Vec<bool>,
    /// Presentation times of the samples, in order.
    targets: Vec<i64>,
    /// Times of all shown pictures of the segment, in order.
    times: Vec<i64>,
    /// Position of the source after the segment.
    end: SamplerState,
}
