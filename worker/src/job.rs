//! A file or a live source to records of its frames: the work of a worker for one job.
//!
//! Segments are decoded and measured in parallel; `merge_segments` then joins their signals and runs the only
//! gate over them in order, so that the result equals that of one thread. Stills and views are encoded on the
//! segment's thread, where the pixels are, if `select_predictor` can predict them. If chunks are short, long
//! GOPs are split into pieces.

mod merge_segments;
mod progress;
mod select_predictor;
mod sink;

use std::{
    io::{Read, Seek},
    ops::ControlFlow,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use decode::{
    DecoderChain, Demuxer, Earlier, FileOptions, FileReport, Sampling, StreamInfo, decode_file,
};
use gate::{AHEAD, FrameMeasurements, Gate, GateConfig, GateState, SignalWindow, ZoneMask};
use media::{Rotation, Signal, Timestamp, Zones};

use crate::{
    ChunkBoundary, ChunkImageOptions, FrameRecord, GateBackendReport, JobFault,
    gate_device::GateMeasurement, pictures::PictureSpec, plan::Plan, record::RECORDS_MAX,
    wire::list,
};
use progress::{Clocks, Progress};
pub(crate) use select_predictor::bytes_to_send;

/// Options of the analysis of a source.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
#[allow(missing_docs, reason = "the names say it")]
pub struct JobOptions {
    pub sampling: Sampling,
    pub max_frames: u64,
    /// True to encode the selected frames as stills.
    pub stills: bool,
    /// Options of the chunks and their views; `None` makes no chunks.
    pub views: Option<ChunkImageOptions>,
    pub gate: GateConfig,
    pub zones: Zones,
    /// Decoding threads, at least 1.
    pub threads: usize,
    /// State to continue from, if the source was read by an earlier job.
    pub resume: Option<Resume>,
}

/// State from which a job continues another whose live source was lost.
///
/// Frame numbers and times continue, and the gate decides as it would have without the loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Resume {
    /// Last signal reported by the earlier job.
    pub last: Signal,
    /// State of the gate after that signal.
    pub gate: GateState,
    /// Presentation time of the first picture in milliseconds if it came as the job begins: that of the last
    /// signal plus the gap. The worker adds the time until media comes.
    pub begins_at_ms: i64,
    /// Number of the playlist segment that follows the last one read, if the source is a playlist.
    pub segment: Option<u64>,
}

impl Resume {
    /// Returns the index of the next frame.
    pub fn next_frame(&self) -> u64 {
        self.last.frame_index.saturating_add(1)
    }

    fn earlier(&self) -> Earlier {
        let index = self.last.source_frame_index.unwrap_or(self.last.frame_index);
        Earlier {
            frames: self.next_frame(),
            source_frames: index.saturating_add(1),
            latest: Timestamp::from_millis(self.last.pts_ms),
            begins_at: Timestamp::from_millis(self.begins_at_ms),
        }
    }
}

/// Every frame on one thread, without pictures.
impl Default for JobOptions {
    fn default() -> JobOptions {
        JobOptions {
            sampling: Sampling::Every,
            max_frames: u64::MAX,
            stills: false,
            views: None,
            gate: GateConfig::default(),
            zones: Zones::default(),
            threads: 1,
            resume: None,
        }
    }
}

impl JobOptions {
    /// Returns the options of a job whose source has sent media after `silence`.
    pub(crate) fn heard_after(&self, silence: Duration) -> JobOptions {
        let silent_ms = i64::try_from(silence.as_millis()).unwrap_or(i64::MAX);
        let resume = self.resume.map(|resume| Resume {
            begins_at_ms: resume.begins_at_ms.saturating_add(silent_ms),
            ..resume
        });
        JobOptions { resume, ..self.clone() }
    }

    /// Returns the number of packets within which the first chunk should be complete, as models wait for it.
    /// `None` when sampling: a chunk then spans many GOPs, and skipping packets needs whole GOPs.
    fn hurry(&self) -> Option<usize> {
        let views = self.views.filter(|_| self.sampling == Sampling::Every)?;
        Some(match views.chunks {
            ChunkBoundary::Frames(frames) => 2 * frames as usize,
            ChunkBoundary::Span { .. } => 0,
        })
    }
}

/// Event of a running job.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub enum JobEvent {
    /// The container is open; the first event.
    Opened(StreamInfo),
    /// Sign of life, sent several times a second while frames are decoded; not in order with other events.
    Progress {
        /// Frames measured so far.
        frames: u64,
        /// Latest presentation time measured so far, 0 before the first.
        pts_ms: i64,
    },
    /// The worker has begun to read another segment of a playlist.
    Segment {
        /// Number of the segment after it.
        next: u64,
    },
    /// The next frames, in order and without gaps.
    Frames(#[serde(deserialize_with = "list::<_, _, RECORDS_MAX>")] Vec<FrameRecord>),
    /// Report about the gate backend; comes before [`JobEvent::Spent`].
    Measured(GateBackendReport),
    /// Time spent on the frames; comes before the last event.
    Spent(StageTimings),
    /// The job is complete; the last event.
    Done(FileReport),
}

impl JobEvent {
    /// Returns true if the event shows that frames were measured.
    pub(crate) fn is_of_frames(&self) -> bool {
        matches!(self, JobEvent::Progress { frames: 1.., .. } | JobEvent::Frames(_))
    }
}

/// Time spent by a job's threads, by activity, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct StageTimings {
    /// Decoding.
    pub decode_us: u64,
    /// Measuring, deciding and encoding pictures.
    pub gate_us: u64,
}

/// Receives events from any thread of the job; `Break` ends the job.
pub(crate) type EventCallback<'a> = &'a (dyn Fn(JobEvent) -> ControlFlow<()> + Sync);

/// Analyses `input` in this process, without a sandbox; workers and benches call it.
pub fn analyze(
    input: impl Read + Seek + Send + 'static,
    options: &JobOptions,
    emit: &(dyn Fn(JobEvent) -> ControlFlow<()> + Sync),
) -> Result<FileReport, JobFault> {
    let demuxer = Demuxer::open(Box::new(input), decode::DemuxLimits::default())?;
    analyze_opened(demuxer, options, (&DecoderChain::software(), &GateMeasurement::default()), emit)
}

/// Like [`analyze`], for an open container.
pub(crate) fn analyze_opened(
    demuxer: Demuxer,
    options: &JobOptions,
    (decoders, measuring): (&DecoderChain, &GateMeasurement),
    emit: EventCallback<'_>,
) -> Result<FileReport, JobFault> {
    let demuxer = match options.hurry() {
        Some(packets) => demuxer.in_hurry(packets),
        None => demuxer,
    };
    let demuxer = match &options.resume {
        Some(resume) => demuxer.after(resume.earlier()),
        None => demuxer,
    };
    let rotation = demuxer.stream().rotation;
    let job = Job::new(options, rotation, measuring, emit);
    if emit(JobEvent::Opened(demuxer.stream().clone())).is_break() {
        return Err(JobFault::Stopped);
    }
    let file_options = FileOptions {
        sampling: options.sampling,
        max_frames: options.max_frames,
        threads: options.threads,
        plan: true,
    };
    let mut sequencer = merge_segments::SegmentMerger::new(&job);
    let mut deliver = |segment| {
        let started = Instant::now();
        let delivered = sequencer.deliver(segment);
        job.clocks.add(Duration::ZERO, started.elapsed());
        job.unless_failed(delivered)
    };
    let make_sink = || sink::SegmentSink::new(&job);
    let report = decode_file(decoders, demuxer, &file_options, make_sink, &mut deliver);
    // A failure in here ends the decoding early, so it takes precedence over the decoder's error.
    job.take_failure()?;
    let report = report?;
    sequencer.finish()?;
    job.say(JobEvent::Measured(measuring.told()))?;
    job.say(JobEvent::Spent(job.clocks.spent()))?;
    Ok(report)
}

/// State shared by all threads of one job.
struct Job<'a> {
    options: &'a JobOptions,
    zones: ZoneMask,
    pictures: PictureSpec,
    measuring: &'a GateMeasurement,
    emit: EventCallback<'a>,
    failure: Mutex<Option<JobFault>>,
    progress: Progress,
    clocks: Clocks,
    /// Emptied buffers of merged segments, reused by later segments: some megabytes each.
    spare_records: Mutex<Vec<Vec<FrameMeasurements>>>,
}

impl<'a> Job<'a> {
    fn new(
        options: &'a JobOptions,
        rotation: Rotation,
        measuring: &'a GateMeasurement,
        emit: EventCallback<'a>,
    ) -> Job<'a> {
        Job {
            options,
            zones: ZoneMask::new(&options.zones),
            pictures: PictureSpec::of_job(options, rotation),
            measuring,
            emit,
            failure: Mutex::new(None),
            progress: Progress::new(options.resume.map_or(0, |resume| resume.next_frame())),
            clocks: Clocks::default(),
            spare_records: Mutex::default(),
        }
    }

    /// Creates the signal window of a sequence of frames.
    fn window(&self) -> SignalWindow {
        SignalWindow::new(AHEAD).with_zones(self.zones.clone())
    }

    /// Creates the gate, in its state before the job's first frame.
    fn first_gate(&self) -> Gate {
        let JobOptions { gate, resume, .. } = self.options;
        let Some(resume) = resume else { return Gate::new(*gate) };
        Gate::after(*gate, 0, resume.last, resume.gate)
    }

    /// Creates the plan, in its state before the job's first frame.
    fn plan(&self) -> Plan {
        Plan::of_job(self.options)
    }

    fn say(&self, event: JobEvent) -> Result<(), JobFault> {
        match (self.emit)(event) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(JobFault::Stopped),
        }
    }

    /// Breaks off the decoding on a failure, and keeps the first one.
    fn unless_failed(&self, result: Result<(), JobFault>) -> ControlFlow<()> {
        match result {
            Ok(()) => ControlFlow::Continue(()),
            Err(fault) => {
                self.fail(fault);
                ControlFlow::Break(())
            }
        }
    }

    /// Keeps `fault` if it is the first.
    fn fail(&self, fault: JobFault) {
        let mut failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
        failure.get_or_insert(fault);
    }

    fn take_failure(&self) -> Result<(), JobFault> {
        let mut failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
        failure.take().map_or(Ok(()), Err)
    }

    fn spare_records(&self) -> MutexGuard<'_, Vec<Vec<FrameMeasurements>>> {
        self.spare_records.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
