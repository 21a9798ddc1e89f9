//! Scheduling of segments: state shared by the workers and the collector.

mod limit;

use std::{
    collections::VecDeque,
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};

use media::{Codec, Timebase, Timestamp};

use crate::{
    DemuxLimits, Demuxer, FileOptions, Sampling, StreamInfo,
    ffi::{Packet, Parameters},
    file::SegmentInfo,
    sampling::{Sampler, SamplerState},
    segment::PacketSegment,
};

/// Segments in flight per thread: one being decoded, one queued.
const SEGMENTS_PER_THREAD: usize = 2;
/// Coded bytes in flight above which no further segment is handed out.
const IN_FLIGHT_BYTES_MAX: usize = 128 << 20;
/// Wrong predictions after which segments are handed out one at a time, because the container and the codec
/// count pictures differently.
const CORRECTIONS_MAX: u32 = 3;
/// Most threads of one libav decoder; more bring no gain.
const WIDE_THREADS_MAX: usize = 16;

/// One segment to decode.
pub(super) struct SegmentJob {
    pub(super) ordinal: u64,
    /// Position of the source before the segment, predicted or known.
    pub(super) start: SamplerState,
    pub(super) segment: Arc<PacketSegment<Packet>>,
    /// True if other threads would run out of work first, so that it is decoded with all of them.
    pub(super) is_wide: bool,
    /// Packets not decoded yet; read when `is_wide` of later jobs is decided.
    pub(super) packets_left: Arc<AtomicUsize>,
    /// True if it was decoded before; a decoder that has seen later packets cannot be reused.
    pub(super) is_again: bool,
}

impl SegmentJob {
    /// Describes the segment for sinks, which get no frame before index `given`.
    pub(super) fn info(&self, given: u64) -> SegmentInfo {
        SegmentInfo {
            ordinal: self.ordinal,
            first_frame_index: self.start.sampled.max(given),
            continues_previous: self.segment.continues_previous && self.start.sampled > given,
        }
    }
}

/// Constants of the stream and the task.
pub(super) struct FileTask {
    pub(super) options: FileOptions,
    pub(super) threads: usize,
    /// True if pieces are decoded with damage concealed: because some was found, or because a single thread
    /// gains nothing from refusing it first.
    pub(super) conceals: bool,
    pub(super) codec: Codec,
    pub(super) parameters: Arc<Parameters>,
    pub(super) limits: DemuxLimits,
    /// True if a plan may leave packets out.
    pub(super) may_plan: bool,
    timebase: Timebase,
    /// Ticks per frame if the container gives no times.
    pub(super) frame_ticks: i64,
    /// See [`Demuxer::untimed_start`].
    untimed_start: (u64, i64),
    /// True for a live source: its times must increase whatever it says, and its pictures come at once.
    pub(super) flows: bool,
    /// See [`DecodeRound::given`].
    pub(super) given: u64,
}

/// Settings that differ between rounds over a file.
#[derive(Clone, Copy, Debug)]
pub(super) struct DecodeRound {
    /// True if damage is concealed from the start.
    pub(super) conceals: bool,
    /// True if a preferred decoder is available, faster than one thread.
    pub(super) is_accelerated: bool,
    /// Number of first sampled frames that sinks do not get again.
    pub(super) given: u64,
}

impl FileTask {
    fn new(demuxer: &Demuxer, options: &FileOptions, round: DecodeRound) -> FileTask {
        let DecodeRound { conceals, is_accelerated, given } = round;
        let stream = demuxer.stream();
        let (threads, frame_ticks) = (options.threads.max(1), frame_ticks(stream));
        FileTask {
            options: options.clone(),
            threads,
            // These two decoders do not report all damage.
            conceals: conceals
                || (threads == 1 && !is_accelerated)
                || matches!(stream.codec, Codec::Mpeg4 | Codec::Mjpeg),
            codec: stream.codec,
            parameters: Arc::clone(&demuxer.parameters),
            limits: demuxer.limits,
            may_plan: may_plan(demuxer, options),
            timebase: stream.timebase,
            frame_ticks,
            untimed_start: demuxer.untimed_start(frame_ticks),
            flows: demuxer.flows,
            given,
        }
    }

    /// Returns one thread more than there are cores, since frame threads wait for rows of their reference
    /// frames: 0.38 s instead of 0.43 s wall on two cores for a 10 s 720p stream of two GOPs.
    pub(super) fn wide_threads(&self) -> usize {
        if self.threads == 1 { 1 } else { (self.threads + 1).min(WIDE_THREADS_MAX) }
    }

    pub(super) fn at(&self, ticks: i64) -> Timestamp {
        Timestamp::new(ticks, self.timebase)
    }

    pub(super) fn sampler(&self, start: SamplerState) -> Sampler {
        Sampler::new(self.options.sampling, self.options.max_frames, start)
    }

    /// Returns the time of picture `index` of a stream without times.
    pub(super) fn untimed_ticks(&self, index: u64) -> i64 {
        let (first, start) = self.untimed_start;
        let count = i64::try_from(index.saturating_sub(first)).unwrap_or(i64::MAX);
        start.saturating_add(count.saturating_mul(self.frame_ticks))
    }
}

fn may_plan(demuxer: &Demuxer, options: &FileOptions) -> bool {
    let is_sparse = matches!(options.sampling, Sampling::Fixed(_));
    // A packet may hold one field of a picture; then its own time tells nothing.
    let is_whole = demuxer.stream().codec != Codec::H264 || demuxer.parameters.is_progressive();
    options.plan && is_sparse && is_whole
}

/// Returns the ticks per picture for a container without times.
pub(crate) fn frame_ticks(stream: &StreamInfo) -> i64 {
    let Some(rate) = stream.source_rate else { return 1 };
    let second = u64::from(stream.timebase.den()) * u64::from(rate.den());
    let ticks = second / (u64::from(stream.timebase.num()) * u64::from(rate.num()));
    i64::try_from(ticks.max(1)).unwrap_or(i64::MAX)
}

struct InFlight {
    segment: Arc<PacketSegment<Packet>>,
    packets_left: Arc<AtomicUsize>,
    bytes: usize,
    is_wide: bool,
    predicted_end: SamplerState,
}

struct State {
    demuxer: Demuxer,
    /// Position of the source before the next segment, as predicted from packets.
    predicted: SamplerState,
    /// Position of the source after the last delivered segment.
    position: SamplerState,
    next_ordinal: u64,
    /// Segments handed out and not delivered, in order.
    in_flight: VecDeque<InFlight>,
    again: VecDeque<SegmentJob>,
    /// First of several pieces; starts once everything before it is delivered.
    held: Option<SegmentJob>,
    /// True while a worker decodes such pieces and takes all further ones.
    in_pieces: bool,
    corrections: u32,
    exhausted: bool,
    stopped: bool,
}

impl State {
    fn is_complete(&self, task: &FileTask) -> bool {
        self.exhausted || self.predicted.sampled >= task.options.max_frames
    }

    fn has_room(&self, window: usize) -> bool {
        let window = if self.is_one_at_a_time() { 1 } else { window };
        let bytes: usize = self.in_flight.iter().map(|segment| segment.bytes).sum();
        self.in_flight.len() < window && bytes < IN_FLIGHT_BYTES_MAX
    }

    fn is_one_at_a_time(&self) -> bool {
        self.corrections >= CORRECTIONS_MAX
    }

    fn pull(&mut self, task: &FileTask) -> Option<SegmentJob> {
        let Some(segment) = self.demuxer.next_segment() else {
            self.exhausted = true;
            return None;
        };
        let bytes = segment.units.iter().map(|unit| unit.bytes).sum();
        let segment = Arc::new(segment);
        let packets_left = Arc::new(AtomicUsize::new(segment.units.len()));
        // Only one decoder at a time uses many threads, to keep their number in proportion.
        let is_wide = !self.in_flight.iter().any(|other| other.is_wide)
            && (self.is_one_at_a_time()
                || self.outlasts_all_other_work(segment.units.len(), task.threads));
        let job = SegmentJob {
            ordinal: self.next_ordinal,
            start: self.predicted,
            is_wide,
            is_again: false,
            packets_left: Arc::clone(&packets_left),
            segment: Arc::clone(&segment),
        };
        self.next_ordinal += 1;
        self.predicted = task.predict(&segment, self.predicted, task.options.max_frames);
        self.in_flight.push_back(InFlight {
            segment,
            packets_left,
            bytes,
            is_wide,
            predicted_end: self.predicted,
        });
        Some(job)
    }

    /// Returns true if the other threads have less to do than one thread has with `packets`.
    fn outlasts_all_other_work(&self, packets: usize, threads: usize) -> bool {
        let Some(to_come) = self.demuxer.packets_left() else { return false };
        let left = |other: &InFlight| other.packets_left.load(Ordering::Relaxed);
        let being_done: usize = self.in_flight.iter().map(left).sum();
        packets * (threads - 1) > to_come + being_done
    }

    fn delivered(&mut self, task: &FileTask, end: SamplerState) {
        self.position = end;
        let front = self.in_flight.pop_front().expect("only what is in flight is delivered");
        let is_piece = front.segment.is_continued || front.segment.continues_previous;
        if is_piece || front.predicted_end == end {
            return;
        }
        self.corrections += 1;
        self.predicted = end;
        for later in &mut self.in_flight {
            later.predicted_end =
                task.predict(&later.segment, self.predicted, task.options.max_frames);
            self.predicted = later.predicted_end;
        }
    }
}

/// Facts about the source after a round.
pub(super) struct SourceFacts {
    /// True if the source was read to its end and all of it was delivered.
    pub(super) is_complete: bool,
    pub(super) truncated: bool,
    /// True if segments that were not handed out have more frames than wanted.
    pub(super) has_more: bool,
}

/// Hands out segments, with bounded memory and in an order in which every prediction can be checked.
pub(super) struct SegmentScheduler {
    pub(super) task: FileTask,
    state: Mutex<State>,
    changed: Condvar,
}

impl SegmentScheduler {
    pub(super) fn new(
        demuxer: Demuxer,
        options: &FileOptions,
        round: DecodeRound,
    ) -> SegmentScheduler {
        let task = FileTask::new(&demuxer, options, round);
        let begin = demuxer.begin(options.sampling);
        let state = State {
            demuxer,
            predicted: begin,
            position: begin,
            next_ordinal: 0,
            in_flight: VecDeque::new(),
            again: VecDeque::new(),
            held: None,
            in_pieces: false,
            corrections: 0,
            exhausted: false,
            stopped: false,
        };
        SegmentScheduler { task, state: Mutex::new(state), changed: Condvar::new() }
    }

    /// Returns the most segments in flight.
    pub(super) fn window(&self) -> usize {
        self.task.threads * SEGMENTS_PER_THREAD
    }

    /// Returns the next segment for an idle worker; `None` if none will follow.
    pub(super) fn next(&self) -> Option<SegmentJob> {
        let mut state = self.lock();
        loop {
            if state.stopped {
                return None;
            }
            if let Some(job) = state.again.pop_front() {
                return Some(job);
            }
            if state.in_flight.len() == 1
                && let Some(job) = state.held.take()
            {
                state.in_pieces = true;
                return Some(SegmentJob { start: state.position, ..job });
            }
            let may_pull = state.held.is_none() && !state.in_pieces;
            if may_pull && state.is_complete(&self.task) {
                if state.in_flight.is_empty() {
                    return None;
                }
            } else if may_pull && state.has_room(self.window()) {
                match state.pull(&self.task) {
                    Some(job) if job.segment.is_continued => state.held = Some(job),
                    Some(job) => return Some(job),
                    None => {}
                }
                // Wakes other workers: their conditions may have changed.
                self.changed.notify_all();
                continue;
            }
            state = self.wait(state);
        }
    }

    /// Returns the piece after one that ended at `end`, for the worker that decoded that one.
    ///
    /// Returns `None` if there is no further piece or none is needed; the decoder is then done.
    pub(super) fn next_piece(&self, end: SamplerState) -> Option<SegmentJob> {
        let mut state = self.lock();
        while !state.has_room(self.window()) && !state.stopped {
            state = self.wait(state);
        }
        state.predicted = end;
        if state.stopped || state.is_complete(&self.task) {
            return None;
        }
        state.pull(&self.task)
    }

    /// Ends the pieces at `end`, so that segments are handed out again.
    pub(super) fn end_pieces(&self, end: SamplerState) {
        let mut state = self.lock();
        state.predicted = end;
        state.in_pieces = false;
        self.changed.notify_all();
    }

    /// Records that the front segment was delivered and ended at `end`.
    pub(super) fn delivered(&self, end: SamplerState) {
        self.lock().delivered(&self.task, end);
        self.changed.notify_all();
    }

    /// Queues `job` again: it was decoded from a wrong start instead of `start`.
    pub(super) fn again(&self, job: SegmentJob, start: SamplerState) {
        self.lock().again.push_back(SegmentJob { start, is_again: true, ..job });
        self.changed.notify_all();
    }

    /// Stops handing out segments.
    pub(super) fn stop(&self) {
        self.lock().stopped = true;
        self.changed.notify_all();
    }

    /// Returns the facts about the source, and the demuxer for another round.
    pub(super) fn into_parts(self) -> (SourceFacts, Demuxer) {
        let mut state = self.state.into_inner().unwrap_or_else(PoisonError::into_inner);
        let is_complete = state.exhausted && state.in_flight.is_empty();
        let truncated = is_complete && state.demuxer.is_truncated();
        let has_more = state.has_more(&self.task);
        (SourceFacts { is_complete, truncated, has_more }, state.demuxer)
    }

    fn wait<'a>(&self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        self.changed.wait(state).unwrap_or_else(PoisonError::into_inner)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Stops the schedule when its thread panics, so that the other threads end.
pub(super) struct StopOnPanic<'a>(pub(super) &'a SegmentScheduler);

impl Drop for StopOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.stop();
        }
    }
}
