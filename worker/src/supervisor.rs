//! Runs jobs in workers and turns whatever happens to a worker into one clear error.
//!
//! Blocking, from any thread. The watchdog trusts nothing the worker says about itself but that it
//! says something: time, memory, threads and bytes are measured on this side.

use std::{
    fs::File,
    ops::ControlFlow,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use decode::{FileReport, Sampling, StreamInfo};
use gate::GateConfig;
use media::{Dimensions, Rotation, Zones};

use crate::{
    Capabilities, ChunkImageOptions, EncodedImage, EscapeAttempt, JobEvent, JobInput, JobOptions,
    Resume, SandboxReport, WorkerError, WorkerProgram,
    input_provider::InputProvider,
    jpeg,
    process::{SocketState, WorkerLifetime, WorkerProcess},
    protocol::{WorkerReply, WorkerRequest},
    said::JobCheck,
    still::CropScale,
    watchdog::Watchdog,
    wire::WireError,
};

/// Decoding threads of one job: libav's own decoders gain nothing beyond, and every thread holds
/// pictures.
pub const JOB_THREADS_MAX: usize = 16;

/// Memory of a worker that scales a still: its planes before and after, at the largest size.
const SHRINK_MEMORY_BYTES: u64 = 1 << 30;

/// More time than any job takes: a century and a third, which clocks can still add.
const ENDLESS: Duration = Duration::from_secs(1 << 32);

/// Limits of a worker's resources, past which it is ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerLimits {
    /// Resident memory.
    pub memory_bytes: u64,
    /// Time for a whole job.
    pub wall: Duration,
    /// Time until the first frame is measured.
    pub first_frame: Duration,
    /// Time between two signs of progress after that.
    pub stall: Duration,
    /// Bytes of signals, stills and views: of a job, or of any minute of a job with views or of a
    /// camera.
    pub output_bytes: u64,
    /// Threads at once; `None` is what the decoding threads that were asked for can need.
    pub threads: Option<u64>,
    /// Niceness above that of whoever starts the worker, as far as 19 in all (sched(7)).
    pub niceness: i32,
}

/// Niceness of what reads a file: with it a thread gets a third of what another gets that wants the same processor.
const FILE_NICENESS: i32 = 5;

impl Default for WorkerLimits {
    fn default() -> WorkerLimits {
        WorkerLimits {
            // 8192x8192 4:2:0 with sixteen reference pictures fits once.
            memory_bytes: 2 << 30,
            wall: Duration::from_secs(3600),
            first_frame: Duration::from_secs(10),
            stall: Duration::from_secs(5),
            output_bytes: 4 << 30,
            threads: None,
            niceness: 0,
        }
    }
}

impl WorkerLimits {
    /// For a file that is read beside live pictures and requests, which come first: it loses nothing by being late.
    pub fn file() -> WorkerLimits {
        WorkerLimits { niceness: FILE_NICENESS, ..WorkerLimits::default() }
    }

    /// For media that arrives over a network, which whoever fetches it times: pictures come at the
    /// pace of a camera or of a slow line.
    pub fn remote() -> WorkerLimits {
        WorkerLimits {
            first_frame: Duration::from_secs(30),
            stall: Duration::from_secs(60),
            ..WorkerLimits::default()
        }
    }

    /// For a camera or a playlist that grows, which is recorded until it ends, is stopped, or has shown as many frames as are
    /// wanted: no time for the whole, which those frames bound. Once its connection has ended, the
    /// worker has the time of a stall for what is left.
    pub fn camera() -> WorkerLimits {
        WorkerLimits { wall: ENDLESS, ..WorkerLimits::remote() }
    }
}

/// Media to analyse.
#[derive(Debug)]
pub struct JobSpec {
    /// Source of the media.
    pub input: JobInput,
    /// Selection of the frames that are analysed.
    pub sampling: Sampling,
    /// Most frames analysed.
    pub max_frames: u64,
    /// Encode the selected frames.
    pub stills: bool,
    /// Cut the frames into chunks and show some of each; numbers beyond their bounds are taken for
    /// the nearest within.
    pub views: Option<ChunkImageOptions>,
    /// Thresholds of the gate.
    pub gate: GateConfig,
    /// Zones of the picture that are watched, within their bounds.
    pub zones: Zones,
    /// Decoding threads, from 1 to [`JOB_THREADS_MAX`]; a number beyond is taken for the nearest.
    pub threads: usize,
    /// The source is a live one that goes on from an earlier job.
    pub resume: Option<Resume>,
    /// Limits of the worker's resources.
    pub limits: WorkerLimits,
}

impl JobSpec {
    /// Every frame of `input`, on one thread and without pictures, within the limits of a file.
    pub fn new(input: impl Into<JobInput>) -> JobSpec {
        JobSpec {
            input: input.into(),
            sampling: Sampling::Every,
            max_frames: u64::MAX,
            stills: false,
            views: None,
            gate: GateConfig::default(),
            zones: Zones::default(),
            threads: 1,
            resume: None,
            limits: WorkerLimits::default(),
        }
    }
}

/// Ends a job from another thread; clones share one state.
#[derive(Clone, Debug, Default)]
pub struct CancelToken(Arc<AtomicBool>);

impl CancelToken {
    /// A token that is not cancelled.
    pub fn new() -> CancelToken {
        CancelToken::default()
    }

    /// Ends every job that has this token, within some tens of milliseconds.
    pub fn cancel(&self) {
        self.0.store(true, Relaxed);
    }

    /// Returns true where it was cancelled.
    pub fn is_cancelled(&self) -> bool {
        self.0.load(Relaxed)
    }
}

/// Starts workers of one program; cheap to clone and to share.
#[derive(Clone, Debug)]
pub struct Supervisor {
    pub(crate) program: WorkerProgram,
}

impl Supervisor {
    /// Workers will be `program`.
    pub fn new(program: WorkerProgram) -> Supervisor {
        Supervisor { program }
    }

    /// Its workers decode or measure with a device.
    pub fn has_device(&self) -> bool {
        self.program.has_driver()
    }

    /// Returns the capabilities and the confinement of a worker that was really started. One that uses no device and no other
    /// program has attempted what it must not do as well.
    pub fn capabilities(&self) -> Result<(Capabilities, SandboxReport), WorkerError> {
        let (mut process, report) =
            WorkerProcess::spawn(&self.program, &WorkerLimits::default(), WorkerLifetime::Open)?;
        process.backlog().push(&WorkerRequest::Look)?;
        let WorkerReply::Capabilities(capabilities) = process.answer()? else {
            return Err(WireError::Unexpected("look").into());
        };
        // Where nothing refuses it would become another program.
        if !self.program.is_plain() || !report.seccomp {
            return Ok((capabilities, report));
        }
        let report = report.tried(&attempts(process)?);
        Ok((capabilities, self.program.judge(report)?))
    }

    /// Returns the confinement of a worker that was really started.
    pub fn sandbox(&self) -> Result<SandboxReport, WorkerError> {
        Ok(WorkerProcess::spawn(&self.program, &WorkerLimits::default(), WorkerLifetime::Open)?.1)
    }

    /// Has a real worker attempt what it must not do.
    pub fn probe_sandbox(&self) -> Result<Vec<EscapeAttempt>, WorkerError> {
        attempts(
            WorkerProcess::spawn(&self.program, &WorkerLimits::default(), WorkerLifetime::Open)?.0,
        )
    }

    /// The same of a program that decodes beside a worker; it may stat any path.
    pub fn probe_program_sandbox(&self) -> Result<Vec<EscapeAttempt>, WorkerError> {
        self.program.probe_external().map_err(WorkerError::Spawn)
    }

    /// The size in pixels of a still, by its header.
    pub fn still_extent(jpeg: &[u8]) -> Option<Dimensions> {
        jpeg::extent_of(jpeg)
    }

    /// Scales a still down in a worker of its own, its longer edge to `edge_max`; never up.
    ///
    /// The picture is one of a worker's before, and what made it may have been told what to make.
    pub fn shrink(&self, still: Vec<u8>, edge_max: u32) -> Result<Vec<u8>, WorkerError> {
        let extent = jpeg::extent_of(&still).ok_or(WireError::Invalid("still"))?;
        let expected = CropScale::new(extent, Rotation::None, None, edge_max).extent();
        let limits = WorkerLimits { memory_bytes: SHRINK_MEMORY_BYTES, ..WorkerLimits::default() };
        let cpu_seconds = limits.first_frame.as_secs();
        let life = WorkerLifetime::Job { threads: 1, cpu_seconds, is_endless: false };
        let (mut process, _) = WorkerProcess::spawn(&self.program.plain(), &limits, life)?;
        process.backlog().push(&WorkerRequest::Shrink { jpeg: still, edge_max })?;
        match process.answer()? {
            WorkerReply::Shrunk(EncodedImage { extent, jpeg })
                if extent == expected && jpeg::is_baseline(&jpeg, extent) =>
            {
                Ok(jpeg)
            }
            WorkerReply::Shrunk(_) => Err(WireError::Invalid("still").into()),
            WorkerReply::Failed(fault) => Err(fault.into()),
            _ => Err(WireError::Unexpected("shrunk").into()),
        }
    }

    /// Inspects a regular file: its container is opened in a worker of its own, its first pictures
    /// are looked at, and nothing more.
    pub fn probe(&self, file: File, cancel: &CancelToken) -> Result<StreamInfo, WorkerError> {
        let spec = JobSpec { max_frames: 1, ..JobSpec::new(file) };
        let mut found = None;
        let ended = self.run_job(spec, cancel, &mut |event| match event {
            JobEvent::Opened(stream) => {
                found = Some(stream);
                ControlFlow::Break(())
            }
            _ => ControlFlow::Continue(()),
        });
        match (found, ended) {
            (Some(stream), _) => Ok(stream),
            (None, Err(error)) => Err(error),
            (None, Ok(_)) => Err(WireError::Unexpected("last").into()),
        }
    }

    /// Runs a job in a worker of its own; returns when it is done, dead or ended.
    ///
    /// Time spent in `on_event` and in opening resources is not the worker's; `Break` means
    /// cancelled. The cancel token is looked at between them.
    pub fn run_job(
        &self,
        spec: JobSpec,
        cancel: &CancelToken,
        on_event: &mut dyn FnMut(JobEvent) -> ControlFlow<()>,
    ) -> Result<FileReport, WorkerError> {
        let JobSpec { input, sampling, max_frames, stills, views, gate, zones, .. } = spec;
        let JobSpec { threads, resume, limits, .. } = spec;
        let threads = threads.clamp(1, JOB_THREADS_MAX);
        let views = views.map(ChunkImageOptions::within_bounds);
        let mut feed = InputProvider::new(input)?;
        let cpu_seconds = (limits.wall.as_secs() + 1).saturating_mul(threads as u64 + 1);
        let is_endless = views.is_some() || feed.is_endless();
        let life = WorkerLifetime::Job { threads, cpu_seconds, is_endless };
        let mut process = WorkerProcess::spawn(&self.program, &limits, life)?.0;
        let options =
            JobOptions { sampling, max_frames, stills, views, gate, zones, threads, resume };
        let mut check = JobCheck::new(&options, &limits);
        feed.start(&mut process, options)?;
        let mut watchdog = Watchdog::new(&limits);
        loop {
            if cancel.is_cancelled() {
                return Err(WorkerError::Cancelled);
            }
            match process.next()? {
                Some(WorkerReply::Job(event)) => {
                    let report = match &event {
                        JobEvent::Done(report) => Some(report.clone()),
                        _ => None,
                    };
                    watchdog.heard(event.is_of_frames());
                    check.look(&event)?;
                    let told = Instant::now();
                    let flow = on_event(event);
                    watchdog.resume(told);
                    if let Some(report) = report {
                        return Ok(report);
                    }
                    if flow.is_break() {
                        return Err(WorkerError::Cancelled);
                    }
                }
                Some(WorkerReply::Open { url, from }) => {
                    let asked = Instant::now();
                    feed.open(&mut process, &url, from)?;
                    watchdog.resume(asked);
                }
                Some(WorkerReply::Failed(fault)) => return Err(fault.into()),
                Some(_) => return Err(WireError::Unexpected("reply").into()),
                None => {
                    process.sample_usage()?;
                    if feed.has_ended() {
                        watchdog.source_ended();
                    }
                    if process.wait(None)? == SocketState::Closed {
                        return Err(process.exit_error());
                    }
                }
            }
            watchdog.check()?;
        }
    }
}

/// Has a worker attempt what it must not do, as the last that is asked of it.
fn attempts(mut worker: WorkerProcess) -> Result<Vec<EscapeAttempt>, WorkerError> {
    worker.backlog().push(&WorkerRequest::Probe)?;
    match worker.answer()? {
        WorkerReply::Probed(attempts) => Ok(attempts),
        _ => Err(WireError::Unexpected("probe").into()),
    }
}
