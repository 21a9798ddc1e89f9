//! One decoding thread: a segment's packets through a decoder to the sink.

use std::{
    ops::ControlFlow,
    sync::{Arc, atomic::Ordering, mpsc::SyncSender},
};

use media::{Extent, Frame, Pixels, Timestamp};

use super::{
    FrameSink,
    schedule::{Job, Schedule, Task},
};
use crate::{
    DecodeError,
    demux::check_extent,
    ffi::{AvError, Context, Output, RawFrame},
    plan::Plan,
    sampling::Position,
};

/// Most errors in a row that a decoder may give while its last pictures are taken out.
const DRAIN_ERRORS_MAX: u32 = 64;

/// A decoded segment.
pub(super) struct Finished<O> {
    pub(super) job: Job,
    /// Where the source stands after it.
    pub(super) end: Position,
    pub(super) decoder: String,
    pub(super) damaged_packets: u64,
    pub(super) first_extent: Option<Extent>,
    pub(super) output: O,
}

/// What a worker says about the segment of some ordinal.
pub(super) type Outcome<O> = (u64, Result<Finished<O>, DecodeError>);

/// Why a segment's decoding was given up.
enum Halt {
    SinkEnded,
    Error(DecodeError),
}

impl From<DecodeError> for Halt {
    fn from(error: DecodeError) -> Halt {
        Halt::Error(error)
    }
}

/// What a pass over a segment noticed beside its frames.
#[derive(Clone, Copy, Default)]
struct Tally {
    damaged_packets: u64,
    first_extent: Option<Extent>,
}

impl Tally {
    /// The decoder refused a packet; that is no more than damage unless the picture is too large.
    fn note_error(&mut self, context: &Context) -> Result<(), DecodeError> {
        self.damaged_packets += 1;
        context.too_large().map_or(Ok(()), Err)
    }
}

/// Whether a pass has all frames it is for.
type Flow = Result<ControlFlow<()>, Halt>;

pub(super) struct Worker<'a, S> {
    schedule: &'a Schedule,
    task: &'a Task,
    sink: S,
    /// A decoder on this thread alone, kept across segments.
    narrow: Option<Context>,
    /// A decoder on all threads.
    wide: Option<Context>,
}

impl<'a, S: FrameSink> Worker<'a, S> {
    pub(super) fn new(schedule: &'a Schedule, sink: S) -> Worker<'a, S> {
        Worker { schedule, task: &schedule.task, sink, narrow: None, wide: None }
    }

    /// Decodes until there is nothing left to do.
    pub(super) fn run(mut self, results: &SyncSender<Outcome<S::Output>>) {
        while let Some(job) = self.schedule.next() {
            let ordinal = job.ordinal;
            let flow = if job.segment.is_continued {
                self.decode_pieces(job, results)
            } else {
                let outcome = self.decode_closed(job);
                self.report(ordinal, outcome, results)
            };
            if flow.is_break() {
                return;
            }
        }
    }

    fn report(
        &self,
        ordinal: u64,
        outcome: Result<Finished<S::Output>, Halt>,
        results: &SyncSender<Outcome<S::Output>>,
    ) -> ControlFlow<()> {
        let result = match outcome {
            Ok(finished) => Ok(finished),
            Err(Halt::Error(error)) => Err(error),
            Err(Halt::SinkEnded) => {
                self.schedule.stop();
                return ControlFlow::Break(());
            }
        };
        let is_last = result.is_err();
        // Nobody receives any more once the collector has given up.
        if results.send((ordinal, result)).is_err() || is_last {
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    }

    /// A segment that begins and ends at clean starts.
    fn decode_closed(&mut self, job: Job) -> Result<Finished<S::Output>, Halt> {
        if job.is_again {
            (self.narrow, self.wide) = (None, None);
        }
        let kept = if job.is_wide { self.wide.take() } else { self.narrow.take() };
        let mut context = match kept {
            Some(context) => context,
            None => self.open(if job.is_wide { self.task.wide_threads() } else { 1 })?,
        };
        let finished = match self.plan(&job) {
            Some(planned) => self.planned_pass(job, planned, &mut context)?,
            None => self.full_pass(job, &mut context, &mut None)?,
        };
        context.reset();
        let keep = if finished.job.is_wide { &mut self.wide } else { &mut self.narrow };
        *keep = Some(context);
        Ok(finished)
    }

    /// Segments that continue one decoder, until one ends clean.
    fn decode_pieces(
        &mut self,
        first: Job,
        results: &SyncSender<Outcome<S::Output>>,
    ) -> ControlFlow<()> {
        let mut context =
            match self.wide.take().map_or_else(|| self.open(self.task.wide_threads()), Ok) {
                Ok(context) => context,
                Err(error) => return self.report(first.ordinal, Err(Halt::Error(error)), results),
            };
        let (mut job, mut last_ticks) = (first, None);
        let end = loop {
            let (ordinal, is_continued) = (job.ordinal, job.segment.is_continued);
            let outcome = self.full_pass(job, &mut context, &mut last_ticks);
            let end = outcome.as_ref().map_or_else(|_| Position::default(), |piece| piece.end);
            self.report(ordinal, outcome, results)?;
            if !is_continued {
                break end;
            }
            match self.schedule.next_piece(end) {
                Some(next) => job = next,
                None => break end,
            }
        };
        context.reset();
        self.wide = Some(context);
        self.schedule.end_pieces(end);
        ControlFlow::Continue(())
    }

    fn open(&self, threads: usize) -> Result<Context, DecodeError> {
        let Task { codec, parameters, limits, .. } = self.task;
        Context::open(*codec, Some(parameters), threads, limits.side_px)
    }

    /// What to leave out of `job`; `None` when everything has to be decoded.
    fn plan(&self, job: &Job) -> Option<PlannedJob> {
        if !self.task.may_plan {
            return None;
        }
        let times = job.segment.shown_times()?;
        let mut sampler = self.task.sampler(job.start);
        let sampled = |&ticks: &i64| sampler.offer(self.task.at(ticks)).is_some();
        let targets = times.iter().copied().filter(sampled).collect();
        let plan = Plan::new(&job.segment, targets);
        Some(PlannedJob { plan, times, end: sampler.position })
    }

    /// Decodes what `planned` asks for; in full when something else comes out.
    fn planned_pass(
        &mut self,
        job: Job,
        planned: PlannedJob,
        context: &mut Context,
    ) -> Result<Finished<S::Output>, Halt> {
        let PlannedJob { plan, times, end } = planned;
        self.sink.begin(job.info());
        let mut tally = Tally::default();
        let (sink, task, start) = (&mut self.sink, self.task, job.start);
        let mut taken = 0;
        let mut is_as_planned = true;
        let mut on_frame = |frame: RawFrame| -> Flow {
            let place =
                frame.pts().and_then(|ticks| Some((ticks, times.binary_search(&ticks).ok()?)));
            match (place, plan.targets.get(taken)) {
                (Some((ticks, place)), Some(&target)) if ticks == target => {
                    let source_index = start.source_frames + place as u64;
                    let index = start.sampled + taken as u64;
                    emit(sink, index, frame, task.at(ticks), source_index)?;
                    taken += 1;
                }
                (Some((ticks, _)), Some(&target)) if ticks < target => sink.passed_over(),
                _ => is_as_planned = false,
            }
            let is_done = taken == plan.targets.len() || !is_as_planned;
            Ok(if is_done { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        };
        if !plan.targets.is_empty() {
            let is_needed = |index: usize| plan.needed[index];
            feed(context, task, &job, is_needed, &mut tally, &mut on_frame)?;
        }
        if taken < plan.targets.len() {
            context.reset();
            return self.full_pass(job, context, &mut None);
        }
        Ok(self.finish(job, end, tally, context))
    }

    /// Decodes everything and samples what comes out.
    ///
    /// `last_ticks` is the time of the frame before, carried from piece to piece.
    fn full_pass(
        &mut self,
        job: Job,
        context: &mut Context,
        last_ticks: &mut Option<i64>,
    ) -> Result<Finished<S::Output>, Halt> {
        self.sink.begin(job.info());
        let mut tally = Tally::default();
        let (sink, task) = (&mut self.sink, self.task);
        let mut sampler = task.sampler(job.start);
        let mut on_frame = |frame: RawFrame| -> Flow {
            let source_index = sampler.position.source_frames;
            let ticks = frame.pts().unwrap_or_else(|| match *last_ticks {
                Some(last) => last.saturating_add(task.frame_ticks),
                None => task.untimed_ticks(source_index),
            });
            *last_ticks = Some(ticks);
            if let Some(index) = sampler.offer(task.at(ticks)) {
                emit(sink, index, frame, task.at(ticks), source_index)?;
            } else {
                sink.passed_over();
            }
            Ok(if sampler.is_full() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        };
        feed(context, task, &job, |_| true, &mut tally, &mut on_frame)?;
        let end = sampler.position;
        Ok(self.finish(job, end, tally, context))
    }

    fn finish(
        &mut self,
        job: Job,
        end: Position,
        tally: Tally,
        context: &Context,
    ) -> Finished<S::Output> {
        Finished {
            job,
            end,
            decoder: context.name(),
            damaged_packets: tally.damaged_packets,
            first_extent: tally.first_extent,
            output: self.sink.end(),
        }
    }
}

struct PlannedJob {
    plan: Plan,
    /// Of all shown pictures of the segment, in order.
    times: Vec<i64>,
    /// Where the source stands after the segment.
    end: Position,
}

fn emit(
    sink: &mut impl FrameSink,
    index: u64,
    frame: RawFrame,
    pts: Timestamp,
    source_index: u64,
) -> Result<(), Halt> {
    let picture = frame.into_picture()?;
    let (extent, layout) = (picture.extent(), picture.layout());
    let pixels = Pixels::Host(Arc::new(picture));
    match sink.frame(index, Frame { pts, source_index, extent, layout, pixels }) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(()) => Err(Halt::SinkEnded),
    }
}

/// Sends the needed packets and takes every picture, until `on_frame` has enough.
fn feed(
    context: &mut Context,
    task: &Task,
    job: &Job,
    is_needed: impl Fn(usize) -> bool,
    tally: &mut Tally,
    on_frame: &mut impl FnMut(RawFrame) -> Flow,
) -> Result<(), Halt> {
    let units = &job.segment.units;
    for (index, unit) in units.iter().enumerate().filter(|(index, _)| is_needed(*index)) {
        job.packets_left.store(units.len() - index, Ordering::Relaxed);
        // Later starts of the segment were not cut at: their decoder has seen it all.
        let prefixed = match &unit.coded.prelude {
            Some(prelude) if index == 0 => Some(unit.payload.with_prefix(prelude).map_err(libav)?),
            _ => None,
        };
        let sent = context.send(prefixed.as_ref().unwrap_or(&unit.payload));
        if sent.is_err() {
            tally.note_error(context)?;
        }
        if drain(context, task, tally, on_frame)?.is_break() {
            return Ok(());
        }
    }
    job.packets_left.store(0, Ordering::Relaxed);
    if !job.segment.is_continued {
        // With frame threads this is where the errors of the last packets come to light.
        if context.send_end().is_err() {
            tally.note_error(context)?;
        }
        // Whether it had enough no longer matters: there is no more.
        drain(context, task, tally, on_frame).map(|_: ControlFlow<()>| ())?;
    }
    Ok(())
}

fn drain(
    context: &mut Context,
    task: &Task,
    tally: &mut Tally,
    on_frame: &mut impl FnMut(RawFrame) -> Flow,
) -> Flow {
    let mut errors = 0;
    loop {
        match context.receive() {
            Ok(Output::Frame(frame)) => {
                tally.damaged_packets += u64::from(frame.is_damaged());
                if let Some(extent) = frame.extent() {
                    check_extent(extent, task.limits)?;
                    tally.first_extent = tally.first_extent.or(Some(extent));
                }
                if on_frame(frame)?.is_break() {
                    return Ok(ControlFlow::Break(()));
                }
            }
            Ok(Output::Hungry | Output::End) => return Ok(ControlFlow::Continue(())),
            Err(_) if errors < DRAIN_ERRORS_MAX => {
                errors += 1;
                tally.note_error(context)?;
            }
            Err(error) => return Err(libav(error).into()),
        }
    }
}

fn libav(error: AvError) -> DecodeError {
    DecodeError::Libav { call: "avcodec", detail: error.to_string() }
}
