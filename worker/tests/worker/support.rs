//! Clips, job specifications and an event collector, shared by the tests.

use std::{
    fs::File,
    ops::ControlFlow,
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, PoisonError},
};

use decode::{FileReport, StreamInfo};
use media::Signal;
use worker::{
    CancelToken, EncodedImage, GateBackendReport, JobEvent, JobInput, JobOptions, JobSpec,
    ModelImage, SandboxPolicy, Supervisor, WorkerError, WorkerProgram,
};

use crate::sandbox_here;

pub use crate::skip::skip;

/// Returns a supervisor of the test's own worker.
pub fn supervisor() -> Supervisor {
    Supervisor::new(program())
}

/// Returns the test's own worker, with the strictest sandbox policy that this machine meets.
pub fn program() -> WorkerProgram {
    WorkerProgram::at(path()).with_sandbox(sandbox_here::policy(path()))
}

/// Returns true if this machine's kernel has every part of the sandbox.
pub fn has_landlock() -> bool {
    sandbox_here::policy(path()) == SandboxPolicy::Require
}

/// Path of the worker, an example, so that no release build contains it.
fn path() -> PathBuf {
    let test = std::env::current_exe().expect("a test knows its binary");
    let profile = test.parent().and_then(Path::parent).expect("tests lie in <profile>/deps");
    let program = profile.join("examples/media-worker-test");
    assert!(program.exists(), "no {}: cargo build -p worker --examples", program.display());
    program
}

/// Renders a clip from an ffmpeg source, as H.264 unless `options` change that.
pub fn rendered(name: &str, source: &str, options: &str) -> PathBuf {
    let x264 = "-c:v libx264 -preset ultrafast -pix_fmt yuv420p -g 25";
    clips::rendered(name, &format!("-f lavfi -i {source} {x264} {options}"))
}

/// Renders a minute of H.264 in one-second GOPs, long enough for a fault in its middle.
pub fn long_clip() -> PathBuf {
    rendered("long-h264.mp4", "testsrc2=s=960x540:r=25:d=60", "")
}

/// Renders four seconds of H.264 in Annex B form without reordering.
pub fn annex_b(source: &str) -> PathBuf {
    let input = format!("{source}=s=352x288:r=25,trim=duration=4");
    rendered(&format!("live-{source}.264"), &input, "-bf 0")
}

/// Makes a job of every frame of a file, with stills, on two threads.
pub fn spec(path: &Path) -> JobSpec {
    whole(File::open(path).expect("the file opens"))
}

/// Makes the same job of any input.
pub fn whole(input: impl Into<JobInput>) -> JobSpec {
    JobSpec::new(input, options())
}

/// Returns the options of [`spec`].
pub fn options() -> JobOptions {
    JobOptions { max_frames: 500_000, stills: true, threads: 2, ..JobOptions::default() }
}

/// Changes a job's options.
pub fn with(mut spec: JobSpec, change: impl FnOnce(&mut JobOptions)) -> JobSpec {
    change(&mut spec.options);
    spec
}

/// Events of a job; progress events are only counted.
#[derive(Debug, Default, PartialEq)]
pub struct Heard {
    pub opened: Option<StreamInfo>,
    pub signals: Vec<Signal>,
    /// Stills, each with its frame index.
    pub stills: Vec<(u64, EncodedImage)>,
    pub views: Vec<ModelImage>,
    pub done: Option<FileReport>,
    pub measured_by: Option<GateBackendReport>,
    pub progress: usize,
}

impl Heard {
    pub fn take(&mut self, event: JobEvent) -> ControlFlow<()> {
        match event {
            JobEvent::Opened(stream) => self.opened = Some(stream),
            JobEvent::Progress { .. } => self.progress += 1,
            JobEvent::Frames(records) => {
                for mut record in records {
                    let frame_index = record.signal.frame_index;
                    self.signals.push(record.signal);
                    self.views.extend(ModelImage::take(&mut record));
                    self.stills.extend(record.pictures.still.map(|still| (frame_index, still)));
                }
            }
            JobEvent::Measured(by) => self.measured_by = Some(by),
            JobEvent::Segment { .. } | JobEvent::Spent(_) => {}
            JobEvent::Done(report) => self.done = Some(report),
        }
        ControlFlow::Continue(())
    }

    /// Clears what depends on timing.
    pub fn settled(mut self) -> Heard {
        self.progress = 0;
        self
    }
}

/// Runs a job in a worker and collects its events.
pub fn run(spec: JobSpec) -> Result<Heard, WorkerError> {
    run_by(&supervisor(), spec)
}

/// As [`run`], in a worker of this supervisor.
pub fn run_by(supervisor: &Supervisor, spec: JobSpec) -> Result<Heard, WorkerError> {
    let mut heard = Heard::default();
    supervisor.run_job(spec, &CancelToken::new(), &mut |event| heard.take(event))?;
    Ok(heard)
}

/// Checks that a source gave the hundred pictures of a file, and all of them sound.
pub fn assert_same_media(found: &Heard, expected: &Heard, name: &str) {
    assert_eq!(expected.signals.len(), 100, "{name}");
    assert_eq!(found.signals, expected.signals, "{name}: {:?}", found.done);
    assert!(found.stills == expected.stills && !found.stills.is_empty(), "{name}");
    let report = found.done.as_ref().expect("a report");
    assert!(!report.truncated && report.damaged_packets == 0, "{name}: {report:?}");
}

/// Serializes the tests of one process, as workers and descriptors are the process's.
pub fn alone() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}
