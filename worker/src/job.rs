//! A whole file to records of its frames: what a worker does for one `ingest` or `reason`.
//!
//! Segments are decoded and measured in parallel; `merge_segments` then joins their signals and runs the
//! one gate over them in order, so that the result is that of a single thread. Stills and views are encoded
//! where the pixels are, on the segment's thread, wherever `select_predictor` can foresee them. Long GOPs are cut into
//! pieces where chunks are short.

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
    DecoderChain, Demuxer, Earlier, FileOptions, FileReport, Sampling, StreamInfo, decode_file_by,
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

/// Options of the analysis of a file.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct JobOptions {
    /// Selection of the frames that are analysed.
    pub sampling: Sampling,
    /// Most frames analysed.
    pub max_frames: u64,
    /// Encode the selected frames.
    pub stills: bool,
    /// Cut the frames into chunks and show some of each; `None` makes no chunks.
    pub views: Option<ChunkImageOptions>,
    /// Thresholds of the gate.
    pub gate: GateConfig,
    /// Zones of the picture that are watched.
    pub zones: Zones,
    /// Decoding threads, at least 1.
    pub threads: usize,
    /// The source goes on from an earlier job.
    pub resume: Option<Resume>,
}

/// Place at which a job goes on from one whose live source was lost.
///
/// Frames are numbered on, times lead on, and the gate decides as it would have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Resume {
    /// Signal that was said last.
    pub last: Signal,
    /// State of the gate behind it.
    pub gate: GateState,
    /// Presentation time of the first picture, in milliseconds: that of the last signal, and the time
    /// in which nothing came.
    pub begins_at_ms: i64,
    /// Number of the segment that follows the last one that was read, of a playlist.
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

impl JobOptions {
    /// Packets after which the first chunk is wanted: models wait for it. Where few frames are
    /// taken a chunk lasts for many GOPs, and to leave packets out whole GOPs must be known.
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
    /// The container is open; comes first.
    Opened(StreamInfo),
    /// A sign of life, several a second while frames are decoded; not in order with the rest.
    Progress {
        /// Frames measured so far.
        frames: u64,
        /// Latest presentation time measured so far, 0 before the first.
        pts_ms: i64,
    },
    /// Another segment of a playlist is being read.
    Segment {
        /// Number of the one behind it.
        next: u64,
    },
    /// The next frames, in order and without gaps.
    Frames(#[serde(deserialize_with = "list::<_, _, RECORDS_MAX>")] Vec<FrameRecord>),
    /// Gate backend of the frames; comes before [`JobEvent::Spent`].
    Measured(GateBackendReport),
    /// Resources spent on the frames; comes before the end.
    Spent(StageTimings),
    /// All has been said; comes last.
    Done(FileReport),
}

impl JobEvent {
    /// Frames were measured.
    pub(crate) fn is_of_frames(&self) -> bool {
        matches!(self, JobEvent::Progress { frames: 1.., .. } | JobEvent::Frames(_))
    }
}

/// Time of a job's threads by what they did, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct StageTimings {
    /// Decoding.
    pub decode_us: u64,
    /// Measuring, deciding and making pictures.
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

/// As [`analyze`], of a container that is open.
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
    let report = decode_file_by(decoders, demuxer, &file_options, make_sink, &mut deliver);
    // A failure of ours ends the decoding early, so it explains whatever the decoder reports.
    job.take_failure()?;
    let report = report?;
    sequencer.finish()?;
    job.say(JobEvent::Measured(measuring.told()))?;
    job.say(JobEvent::Spent(job.clocks.spent()))?;
    Ok(report)
}

/// State that all threads of one job share.
struct Job<'a> {
    options: &'a JobOptions,
    zones: ZoneMask,
    pictures: PictureSpec,
    measuring: &'a GateMeasurement,
    emit: EventCallback<'a>,
    failure: Mutex<Option<JobFault>>,
    progress: Progress,
    clocks: Clocks,
    /// Records of sequenced segments, empty, for segments to come: some megabytes each.
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

    /// A window before its first frame.
    fn window(&self) -> SignalWindow {
        SignalWindow::new(AHEAD).with_zones(self.zones.clone())
    }

    /// The gate before the job's first frame.
    fn first_gate(&self) -> Gate {
        let JobOptions { gate, resume, .. } = self.options;
        let Some(resume) = resume else { return Gate::new(*gate) };
        Gate::after(*gate, 0, resume.last, resume.gate)
    }

    /// The plan before the job's first frame.
    fn plan(&self) -> Plan {
        Plan::of_job(self.options)
    }

    fn say(&self, event: JobEvent) -> Result<(), JobFault> {
        match (self.emit)(event) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(JobFault::Stopped),
        }
    }

    /// Keeps the first failure and ends the decoding.
    fn unless_failed(&self, result: Result<(), JobFault>) -> ControlFlow<()> {
        match result {
            Ok(()) => ControlFlow::Continue(()),
            Err(fault) => {
                self.fail(fault);
                ControlFlow::Break(())
            }
        }
    }

    /// Keeps the first failure.
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
