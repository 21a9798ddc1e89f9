//! Passes a segment's packets to a decoder and its pictures on, and records damage.

use std::{ops::ControlFlow, sync::atomic::Ordering};

use media::Dimensions;

use super::{
    FrameSink,
    schedule::{FileTask, SegmentJob},
    worker::SegmentAbort,
};
use crate::{
    decoder::FrameDecoder,
    demux::check_extent,
    ffi::{AvFrame, DamagePolicy, Place, failed},
};

/// Most errors in a row of a decoder while its pictures are taken.
const DRAIN_ERRORS_MAX: u32 = 64;

/// Observations of a pass over a segment, beside its frames.
#[derive(Clone, Copy)]
pub(super) struct PassStats {
    on_damage: DamagePolicy,
    pub(super) damaged_packets: u64,
    pub(super) first_extent: Option<Dimensions>,
    repeat: Repeat,
}

/// Repeated start of the next segment, which shows its picture and reports its damage.
#[derive(Clone, Copy, Default)]
struct Repeat {
    /// Time of the packet, if its picture is shown.
    pts: Option<i64>,
    is_last_sent: bool,
}

impl Repeat {
    fn of(job: &SegmentJob) -> Repeat {
        let repeat = job.segment.units.iter().find(|unit| unit.is_repeat && !unit.is_discarded);
        Repeat { pts: repeat.and_then(|unit| unit.payload.pts()), is_last_sent: false }
    }

    fn gave(self, frame: &AvFrame) -> bool {
        self.pts.is_some() && self.pts == frame.packet_pts()
    }
}

impl PassStats {
    /// Begins a pass of a decoder with this policy.
    pub(super) fn new(on_damage: DamagePolicy) -> PassStats {
        let repeat = Repeat::default();
        PassStats { on_damage, damaged_packets: 0, first_extent: None, repeat }
    }

    /// Records a packet that the decoder flagged or refused. If damage is concealed, it is only counted,
    /// unless the picture is too large; that of a repeated packet is not counted.
    fn note_damage(
        &mut self,
        context: &dyn FrameDecoder,
        is_repeat: bool,
    ) -> Result<(), SegmentAbort> {
        if let Some(reason) = context.lost() {
            return Err(SegmentAbort::Lost(reason));
        }
        if let Some(error) = context.too_large() {
            return Err(error.into());
        }
        if self.on_damage == DamagePolicy::Refuse {
            return Err(SegmentAbort::Damaged);
        }
        self.damaged_packets += u64::from(!is_repeat);
        Ok(())
    }
}

/// Result of a step: `Break` once the pass has all its frames.
pub(super) type PassFlow = Result<ControlFlow<()>, SegmentAbort>;

/// Gives the sampled frame `index` to the sink, unless an earlier round did.
pub(super) fn emit(
    sink: &mut impl FrameSink,
    place: &mut Place,
    task: &FileTask,
    index: u64,
    frame: AvFrame,
    ticks: i64,
    source_index: u64,
) -> Result<(), SegmentAbort> {
    if index < task.given {
        sink.skipped_frames();
        return Ok(());
    }
    let taken = sink.frame(index, frame.into_shown(place, task.at(ticks), source_index)?);
    place.take_back();
    match taken {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(stop) => Err(stop.into()),
    }
}

/// Sends the needed packets and takes every picture, until `on_frame` breaks.
pub(super) fn feed(
    context: &mut dyn FrameDecoder,
    task: &FileTask,
    job: &SegmentJob,
    is_needed: impl Fn(usize) -> bool,
    tally: &mut PassStats,
    on_frame: &mut impl FnMut(AvFrame) -> PassFlow,
) -> Result<(), SegmentAbort> {
    let units = &job.segment.units;
    tally.repeat = Repeat::of(job);
    for (index, unit) in units.iter().enumerate().filter(|(index, _)| is_needed(*index)) {
        job.packets_left.store(units.len() - index, Ordering::Relaxed);
        // Other starts were not cut at: the decoder has seen their parameter sets.
        let is_cut_at = index == 0 && !job.segment.continues_previous;
        let prefixed = match &unit.coded.prelude {
            Some(prelude) if is_cut_at => {
                Some(unit.payload.with_prefix(prelude).map_err(failed("avcodec"))?)
            }
            _ => None,
        };
        tally.repeat.is_last_sent = unit.is_repeat;
        let sent = context.send(Some(prefixed.as_ref().unwrap_or(&unit.payload)));
        if sent.is_err() {
            tally.note_damage(context, unit.is_repeat)?;
        }
        if drain(context, task, tally, on_frame)?.is_break() {
            return Ok(());
        }
    }
    job.packets_left.store(0, Ordering::Relaxed);
    tally.repeat.is_last_sent = false;
    if !job.segment.is_continued {
        // With frame threads, errors of the last packets appear only here.
        if context.send(None).is_err() {
            tally.note_damage(context, false)?;
        }
        // `Break` is irrelevant here: no packet is left.
        drain(context, task, tally, on_frame).map(|_: ControlFlow<()>| ())?;
    }
    if context.has_reported_damage() {
        tally.note_damage(context, false)?;
    }
    Ok(())
}

fn drain(
    context: &mut dyn FrameDecoder,
    task: &FileTask,
    tally: &mut PassStats,
    on_frame: &mut impl FnMut(AvFrame) -> PassFlow,
) -> PassFlow {
    let mut errors = 0;
    loop {
        match context.receive() {
            Ok(Some(frame)) => {
                let is_repeat = tally.repeat.gave(&frame);
                if frame.is_damaged() || context.has_reported_damage() {
                    tally.note_damage(context, is_repeat)?;
                }
                if let Some(extent) = frame.extent() {
                    check_extent(extent, task.limits)?;
                    tally.first_extent = tally.first_extent.or(Some(extent));
                }
                if !is_repeat && on_frame(frame)?.is_break() {
                    return Ok(ControlFlow::Break(()));
                }
            }
            Ok(None) => return Ok(ControlFlow::Continue(())),
            Err(_) if errors < DRAIN_ERRORS_MAX => {
                errors += 1;
                tally.note_damage(context, tally.repeat.is_last_sent)?;
            }
            Err(error) => return Err(failed("avcodec")(error).into()),
        }
    }
}
