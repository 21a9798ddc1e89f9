//! Runs jobs in workers, and turns whatever happens to a worker into one clear error.
//!
//! Blocking, callable from any thread. Of the worker's own messages the watchdog uses only their arrival:
//! time, memory, threads and bytes are measured in the supervisor.

use std::{
    fs::File,
    ops::ControlFlow,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use decode::{FileReport, StreamInfo};
use media::{Dimensions, Rotation};

use crate::{
    Capabilities, ChunkImageOptions, EncodedImage, EscapeAttempt, JobEvent, JobInput, JobOptions,
    SandboxReport, WorkerError, WorkerProgram,
    input_provider::InputProvider,
    jpeg, launcher,
    process::{WorkerLifetime, WorkerProcess},
    protocol::{WorkerReply, WorkerRequest},
    said::JobCheck,
    still::CropScale,
    watchdog::Watchdog,
    wire::WireError,
};

/// Most decoding threads of one job: libav's own decoders gain nothing from more, and every thread holds
/// pictures.
pub const JOB_THREADS_MAX: usize = 16;

/// Memory limit of a worker that scales a still: its planes before and after, at the largest size.
const SHRINK_MEMORY_BYTES: u64 = 1 << 30;

/// Longer than any job, about 136 years, and still safe to add to a clock.
const ENDLESS: Duration = Duration::from_secs(1 << 32);

/// Resource limits of a worker; exceeding one ends it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerLimits {
    /// Resident memory in bytes.
    pub memory_bytes: u64,
    /// Time for a whole job.
    pub wall: Duration,
    /// Time until the first frame is measured.
    pub first_frame: Duration,
    /// Longest time without progress after the first frame.
    pub stall: Duration,
    /// Bytes of signals, stills and views: in total, or in any minute of a job with views or a live source.
    pub output_bytes: u64,
    /// Most threads at once; `None` derives it from the number of decoding threads.
    pub threads: Option<u64>,
    /// Niceness added to that of the process which starts the worker, up to 19 in all (sched(7)).
    pub niceness: i32,
}

/// Niceness for reading a file: such a thread gets a third of the time of a normal one on the same processor.
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
    /// Limits for a file that is read beside live sessions and requests, which have priority.
    pub fn file() -> WorkerLimits {
        WorkerLimits { niceness: FILE_NICENESS, ..WorkerLimits::default() }
    }

    /// Limits for media from a network, timed by the fetcher: frames come at the pace of a camera or a slow
    /// line.
    pub fn remote() -> WorkerLimits {
        WorkerLimits {
            first_frame: Duration::from_secs(30),
            stall: Duration::from_secs(60),
            ..WorkerLimits::default()
        }
    }

    /// Limits for a camera or live playlist, which is read until it ends, is stopped or has given enough
    /// frames: no limit for the whole. After its connection has ended, the worker has the stall limit for the
    /// rest.
    pub fn camera() -> WorkerLimits {
        WorkerLimits { wall: ENDLESS, ..WorkerLimits::remote() }
    }
}

/// Media to analyse, and the options.
pub struct JobSpec {
    /// Source of the media.
    pub input: JobInput,
    /// Options of the analysis; the threads, at most [`JOB_THREADS_MAX`], and the numbers of the views are
    /// clamped to their bounds.
    pub options: JobOptions,
    /// Limits of the worker's resources.
    pub limits: WorkerLimits,
}

impl JobSpec {
    /// Analyses `input` with the default limits.
    pub fn new(input: impl Into<JobInput>, options: JobOptions) -> JobSpec {
        JobSpec { input: input.into(), options, limits: WorkerLimits::default() }
    }
}

/// Cancels jobs from another thread; clones share one state.
#[derive(Clone, Debug, Default)]
pub struct CancelToken(Arc<AtomicBool>);

impl CancelToken {
    /// Creates a token that is not cancelled.
    pub fn new() -> CancelToken {
        CancelToken::default()
    }

    /// Cancels every job that has this token, within some tens of milliseconds.
    pub fn cancel(&self) {
        self.0.store(true, Relaxed);
    }

    /// Returns true if the token was cancelled.
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
    /// Creates a supervisor whose workers are of `program`.
    pub fn new(program: WorkerProgram) -> Supervisor {
        Supervisor { program }
    }

    /// Returns true if workers decode or measure with a device.
    pub fn has_device(&self) -> bool {
        self.program.has_driver()
    }

    /// Returns the capabilities and the sandbox report of a worker started for this. A worker without device
    /// and decoding program has also attempted forbidden actions.
    pub fn capabilities(&self) -> Result<(Capabilities, SandboxReport), WorkerError> {
        let (mut process, report) = self.open()?;
        let WorkerReply::Capabilities(capabilities) = process.ask(&WorkerRequest::Look)? else {
            return Err(WireError::Unexpected("look").into());
        };
        // Without a filter the last attempt would succeed and replace the worker's program.
        if !self.program.is_plain() || !report.seccomp {
            return Ok((capabilities, report));
        }
        let report = report.tried(&attempts(process)?);
        Ok((capabilities, self.program.judge(report)?))
    }

    /// Returns the sandbox report of a worker started for this.
    pub fn sandbox(&self) -> Result<SandboxReport, WorkerError> {
        Ok(self.open()?.1)
    }

    /// Has a worker attempt actions that its sandbox must refuse.
    pub fn probe_sandbox(&self) -> Result<Vec<EscapeAttempt>, WorkerError> {
        attempts(self.open()?.0)
    }

    fn open(&self) -> Result<(WorkerProcess, SandboxReport), WorkerError> {
        WorkerProcess::spawn(&self.program, &WorkerLimits::default(), WorkerLifetime::Open)
    }

    /// Like [`Supervisor::probe_sandbox`], for a decoding program beside a worker; it may stat any path.
    pub fn probe_program_sandbox(&self) -> Result<Vec<EscapeAttempt>, WorkerError> {
        launcher::probe(&self.program.path).map_err(WorkerError::Spawn)
    }

    /// Returns the size of a still in pixels, from its header.
    pub fn still_extent(jpeg: &[u8]) -> Option<Dimensions> {
        jpeg::extent_of(jpeg)
    }

    /// Scales a still down in a worker of its own until its longer edge is at most `edge_max`; never up.
    ///
    /// The still came from a worker, which hostile media may have controlled, so it is decoded in a sandbox.
    pub fn shrink(&self, still: Vec<u8>, edge_max: u32) -> Result<Vec<u8>, WorkerError> {
        let extent = jpeg::extent_of(&still).ok_or(WireError::Invalid("still"))?;
        let expected = CropScale::new(extent, Rotation::None, None, edge_max).extent;
        let limits = WorkerLimits { memory_bytes: SHRINK_MEMORY_BYTES, ..WorkerLimits::default() };
        let cpu_seconds = limits.first_frame.as_secs();
        let life = WorkerLifetime::Job { threads: 1, cpu_seconds, is_endless: false };
        let (mut process, _) = WorkerProcess::spawn(&self.program.plain(), &limits, life)?;
        match process.ask(&WorkerRequest::Shrink { jpeg: still, edge_max })? {
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

    /// Inspects a regular file: a worker of its own opens the container and looks at its first pictures.
    pub fn probe(&self, file: File, cancel: &CancelToken) -> Result<StreamInfo, WorkerError> {
        let spec = JobSpec::new(file, JobOptions { max_frames: 1, ..JobOptions::default() });
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

    /// Runs a job in a worker of its own; returns when it is done, has failed or was cancelled.
    ///
    /// Time spent in `on_event` and in opening resources does not count as the worker's; `Break` cancels. The
    /// cancel token is checked between events.
    pub fn run_job(
        &self,
        spec: JobSpec,
        cancel: &CancelToken,
        on_event: &mut dyn FnMut(JobEvent) -> ControlFlow<()>,
    ) -> Result<FileReport, WorkerError> {
        let JobSpec { input, mut options, limits } = spec;
        options.threads = options.threads.clamp(1, JOB_THREADS_MAX);
        options.views = options.views.map(ChunkImageOptions::within_bounds);
        let threads = options.threads;
        let mut feed = InputProvider::new(input)?;
        let cpu_seconds = (limits.wall.as_secs() + 1).saturating_mul(threads as u64 + 1);
        let is_endless = options.views.is_some() || feed.is_endless();
        let life = WorkerLifetime::Job { threads, cpu_seconds, is_endless };
        let mut process = WorkerProcess::spawn(&self.program, &limits, life)?.0;
        let mut check = JobCheck::new(&options, &limits);
        feed.start(&mut process, options)?;
        let mut watchdog = Watchdog::new(&limits);
        loop {
            if cancel.is_cancelled() {
                return Err(WorkerError::Cancelled);
            }
            match process.poll(None)? {
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
                    if feed.is_endless() {
                        watchdog.excuse(asked);
                    } else {
                        watchdog.resume(asked);
                    }
                }
                Some(WorkerReply::Failed(fault)) => return Err(fault.into()),
                Some(_) => return Err(WireError::Unexpected("reply").into()),
                None if feed.has_ended() => watchdog.source_ended(),
                None => {}
            }
            watchdog.check()?;
        }
    }
}

/// Has a worker attempt what its sandbox must refuse; the worker is not used afterwards.
fn attempts(mut worker: WorkerProcess) -> Result<Vec<EscapeAttempt>, WorkerError> {
    match worker.ask(&WorkerRequest::Probe)? {
        WorkerReply::Probed(attempts) => Ok(attempts),
        _ => Err(WireError::Unexpected("probe").into()),
    }
}
