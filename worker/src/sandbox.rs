//! Sandbox of a worker, entered before it reads a byte of media.
//!
//! Drops the user's capabilities; applies landlock (no path; where the kernel supports it no TCP port, and no
//! socket or signal outside), a seccomp allow-list, which refuses all of that anyway, and resource limits.
//! Entered once, by the worker itself, while it has one thread; never left. Devices to decode or measure with
//! are opened in between, see `device_access`. Parts that the kernel lacks are named in the report, and the
//! caller decides.

mod device_access;
mod privileges;
mod program;
mod seccomp;

use std::{fmt, fs, io};

use decode::{DecodeBackend, HwDeviceSpec};
use landlock::{
    ABI, Access, AccessFs, AccessNet, LandlockStatus, Ruleset, RulesetAttr, RulesetCreated,
    RulesetError, RulesetStatus, Scope,
};
use media::Codec;
pub(crate) use program::{ProgramConfinement, become_program};
use rustix::process::{
    DumpableBehavior, Resource, Rlimit, Signal, getppid, set_dumpable_behavior,
    set_parent_process_death_signal, setrlimit,
};
use seccomp::Filter;

use crate::{
    EscapeAttempt, JobFault,
    gate_device::GateDevice,
    wire::{LIST_MAX, list},
};

/// Descriptor that a job's first received descriptor gets, such as its connection to an RTSP server.
pub(crate) const SOCKET_NUMBER: i32 = 3;

/// Most descriptors of a worker: its socket, stderr, the input, and room for the next input.
const DESCRIPTORS_MAX: u64 = 16;

/// Most descriptors of a worker with a device, whose driver opens some for each decoder.
const DEVICE_DESCRIPTORS_MAX: u64 = 1024;

/// Private memory beyond the limit that the supervisor checks: the kernel stops a burst between two checks,
/// and the supervisor the ordinary case, with a clear error.
const MEMORY_SLACK_BYTES: u64 = 256 << 20;

media::named! {
    /// Least sandbox in which media may be read.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub enum SandboxPolicy {
        /// landlock and the system call filter must be in force; otherwise no media is read.
        #[default]
        Require = "require",
        /// Any sandbox will do: as much of it as the kernel supports is applied.
        BestEffort = "best-effort",
    }
}

impl SandboxPolicy {
    /// Returns true if media may be read in a sandbox with this report.
    pub(crate) fn accepts(self, report: &SandboxReport) -> bool {
        match self {
            SandboxPolicy::Require => report.landlock_abi > 0 && report.seccomp,
            SandboxPolicy::BestEffort => true,
        }
    }
}

/// Report of a worker about its own sandbox.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct SandboxReport {
    /// landlock ABI in force for every thread; 0 for none.
    pub landlock_abi: u32,
    /// True if the system call filter is in force.
    pub seccomp: bool,
    /// True if every resource limit is in force.
    pub rlimits: bool,
    /// Parts that this kernel lacks, described for a log.
    #[serde(deserialize_with = "list::<_, _, LIST_MAX>")]
    pub missing: Vec<String>,
    /// Number of forbidden actions attempted and refused; 0 if none was attempted.
    #[serde(skip)]
    pub refused: usize,
}

impl SandboxReport {
    /// Returns true if nothing is missing.
    pub fn is_full(&self) -> bool {
        self.missing.is_empty()
    }

    /// Adds the results of attempts; the filter counts as in force only if all were refused.
    pub(crate) fn tried(mut self, attempts: &[EscapeAttempt]) -> SandboxReport {
        let allowed = attempts.iter().filter(|attempt| !attempt.is_refused());
        let allowed: Vec<String> = allowed.map(|it| format!("refusal to {}", it.what)).collect();
        self.refused = attempts.len() - allowed.len();
        self.seccomp &= allowed.is_empty();
        self.missing.extend(allowed);
        self
    }
}

impl fmt::Display for SandboxReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.is_full() {
            true => write!(f, "full (landlock ABI {})", self.landlock_abi),
            false => write!(f, "partial: no {}", self.missing.join(", no ")),
        }
    }
}

/// Resource limits of a worker, and the devices and programs that it may use.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) struct SandboxLimits {
    /// Limit of memory that the supervisor checks.
    pub memory_bytes: u64,
    /// Limit of CPU time of the process in seconds, if there is one.
    pub cpu_seconds: Option<u64>,
    /// Process id of the supervisor; 1 in many containers.
    pub parent: u32,
    /// Device to decode with besides libav's own decoders.
    pub device: Option<RequestedDevice>,
    /// Codecs that a program beside the worker decodes.
    pub program: Vec<Codec>,
    /// Device to measure with instead of the CPU.
    pub gate: Option<GateDevice>,
    /// Paths besides the system's in which drivers and their libraries are searched for.
    pub libraries: Vec<String>,
}

impl SandboxLimits {
    fn has_driver(&self) -> bool {
        self.device.is_some() || self.gate.is_some()
    }
}

/// Device that a worker should decode with.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) struct RequestedDevice {
    pub spec: HwDeviceSpec,
    pub codecs: Vec<Codec>,
    /// True if it decoded when the server started: if it cannot be opened later, the CPU is used.
    pub was_there: bool,
}

/// Enters the sandbox; `open` opens the devices when only their paths are left. The calling process must have
/// one thread.
pub(crate) fn enter<T>(
    confinement: &SandboxLimits,
    open: impl FnOnce(&SandboxLimits) -> Result<T, JobFault>,
) -> Result<(SandboxReport, T), JobFault> {
    let mut missing = Vec::new();
    let decodes = confinement.device.as_ref().map(|device| device.spec.backend.as_str());
    let measures = confinement.gate.map(|device| device.backend.as_str());
    for backend in decodes.into_iter().chain(measures) {
        missing.push(format!("closed file system ({backend} keeps its driver's files)"));
    }
    if !confinement.program.is_empty() {
        let backend = DecodeBackend::FfmpegCli.as_str();
        missing.push(format!("closed file system ({backend} reads its libraries)"));
    }
    let mut check = |what: &str, result: io::Result<()>| match result {
        Ok(()) => true,
        Err(error) => {
            missing.push(format!("{what} ({error})"));
            false
        }
    };

    let alone = check("single thread", be_alone());
    check("parent death signal", follow(confinement.parent));
    check("dropped capabilities", privileges::give_up());
    let mut rlimits = true;
    for (name, resource, limit) in limits(confinement) {
        rlimits &= check(name, set_limit(resource, limit));
    }
    let (landlock_abi, paths) = restrict_paths(confinement);
    let opened = open(confinement)?;
    // Applies to memory files too, which drivers create when they are opened.
    rlimits &= check("file size limit", set_limit(Resource::Fsize, 0));
    let closed = check("landlock", paths) && alone;
    check("dumpable off", set_dumpable_behavior(DumpableBehavior::NotDumpable).map_err(Into::into));
    let seccomp = check("seccomp", seccomp::of_worker(confinement).and_then(Filter::install));

    let landlock_abi = if closed { landlock_abi } else { 0 };
    Ok((SandboxReport { landlock_abi, seccomp, rlimits, missing, refused: 0 }, opened))
}

/// Checks that the process has one thread: landlock binds the calling thread and those that it starts, so a
/// thread started by a library while it was loaded would stay outside.
pub(crate) fn be_alone() -> io::Result<()> {
    match fs::read_dir("/proc/self/task")?.count() {
        1 => Ok(()),
        count => Err(io::Error::other(format!("{count} threads at start"))),
    }
}

/// Has the kernel kill this process with the thread that executed it, or with its adopter's first thread.
fn follow(parent: u32) -> io::Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    // If the parent died before the call above, no signal will come.
    still_child_of(parent)
}

fn still_child_of(parent: u32) -> io::Result<()> {
    match getppid() {
        Some(pid) if pid.as_raw_pid().cast_unsigned() == parent => Ok(()),
        _ => Err(io::Error::other("the parent is gone")),
    }
}

/// Returns the limits to set before devices are opened: a name for the report, the resource, and its limit.
fn limits(confinement: &SandboxLimits) -> Vec<(&'static str, Resource, u64)> {
    let memory = confinement.memory_bytes.saturating_add(MEMORY_SLACK_BYTES);
    let has_device = confinement.has_driver();
    let descriptors = if has_device { DEVICE_DESCRIPTORS_MAX } else { DESCRIPTORS_MAX };
    let mut limits = vec![
        ("descriptor limit", Resource::Nofile, descriptors),
        ("core limit", Resource::Core, 0),
        ("message queue limit", Resource::Msgqueue, 0),
    ];
    if !has_device {
        // DATA, not AS: glibc reserves 64 MiB of addresses per thread and uses little of it. Drivers map and
        // lock as much as the device has; their resident memory is checked by the supervisor.
        // ThreadSanitizer's shadow memory counts as data.
        if !cfg!(tsan) {
            limits.push(("memory limit", Resource::Data, memory));
        }
        limits.push(("memory lock limit", Resource::Memlock, 0));
    }
    if let Some(seconds) = confinement.cpu_seconds {
        limits.push(("CPU limit", Resource::Cpu, seconds));
    }
    limits
}

fn set_limit(resource: Resource, limit: u64) -> io::Result<()> {
    // Hard as well as soft: a worker cannot raise it again. The hard CPU limit sends SIGKILL; the soft one, a
    // second before, a signal that names the cause.
    let hard = limit + u64::from(resource == Resource::Cpu);
    Ok(setrlimit(resource, Rlimit { current: Some(limit), maximum: Some(hard) })?)
}

/// Applies landlock to a worker, with no path but a driver's.
fn restrict_paths(confinement: &SandboxLimits) -> (u32, io::Result<()>) {
    apply_landlock(|ruleset| match confinement.has_driver() {
        true => device_access::allow(ruleset, &confinement.libraries),
        false => Ok(ruleset),
    })
}

/// Applies landlock: no path but those that `allow` adds, no TCP port, no abstract socket or signal outside.
/// Returns the ABI in force.
fn apply_landlock(
    allow: impl FnOnce(RulesetCreated) -> Result<RulesetCreated, RulesetError>,
) -> (u32, io::Result<()>) {
    let status = Ruleset::default()
        .handle_access(AccessFs::from_all(ABI::V7))
        .and_then(|ruleset| ruleset.handle_access(AccessNet::from_all(ABI::V7)))
        .and_then(|ruleset| ruleset.scope(Scope::from_all(ABI::V7)))
        .and_then(Ruleset::create)
        .and_then(allow)
        .and_then(|ruleset| ruleset.restrict_self());
    match status {
        Ok(status) => landlock_outcome(status.landlock, status.ruleset),
        Err(error) => (0, Err(io::Error::other(error))),
    }
}

/// Accepts every ABI: each closes the file system, and seccomp refuses what later ABIs add.
fn landlock_outcome(landlock: LandlockStatus, ruleset: RulesetStatus) -> (u32, io::Result<()>) {
    match (landlock, ruleset) {
        (
            LandlockStatus::Available { effective_abi, .. },
            RulesetStatus::FullyEnforced | RulesetStatus::PartiallyEnforced,
        ) => (effective_abi as i32 as u32, Ok(())),
        _ => (0, Err(io::Error::other("not in this kernel"))),
    }
}

#[cfg(test)]
mod tests {
    mod signals;

    use super::*;

    #[test]
    fn any_landlock_closes_the_file_system() {
        let available =
            |effective_abi| LandlockStatus::Available { effective_abi, kernel_abi: None };
        for (name, abi, ruleset) in [
            ("Debian 12", ABI::V2, RulesetStatus::PartiallyEnforced),
            ("Ubuntu 24.04", ABI::V4, RulesetStatus::PartiallyEnforced),
            ("the newest", ABI::V7, RulesetStatus::FullyEnforced),
        ] {
            let (reported, outcome) = landlock_outcome(available(abi), ruleset);
            assert_eq!((reported, outcome.is_ok()), (abi as u32, true), "{name}");
        }
        for (name, landlock) in [
            ("not built in", LandlockStatus::NotImplemented),
            ("switched off", LandlockStatus::NotEnabled),
        ] {
            let (reported, outcome) = landlock_outcome(landlock, RulesetStatus::NotEnforced);
            assert_eq!((reported, outcome.is_ok()), (0, false), "{name}");
        }
    }

    #[test]
    fn an_attempt_that_is_not_refused_is_told_and_reads_no_media() {
        let full = || SandboxReport {
            landlock_abi: 7,
            seccomp: true,
            rlimits: true,
            missing: Vec::new(),
            refused: 0,
        };
        // Errors that are no refusal: nothing listens, the path does not exist, the library made the error.
        let others = [None, Some(libc::ECONNREFUSED), Some(libc::ENOENT), Some(0)];
        for (errno, is_refused) in [Some(libc::EPERM), Some(libc::EACCES)]
            .map(|errno| (errno, true))
            .into_iter()
            .chain(others.map(|errno| (errno, false)))
        {
            let attempts = [Some(libc::EPERM), errno];
            let attempts =
                attempts.map(|errno| EscapeAttempt { what: "connect".to_owned(), errno });
            let report = full().tried(&attempts);
            assert_eq!(report.is_full(), is_refused, "{errno:?}");
            assert_eq!(SandboxPolicy::Require.accepts(&report), is_refused, "{errno:?}");
            assert_eq!(report.refused, 1 + usize::from(is_refused), "{errno:?}");
            let said = "partial: no refusal to connect";
            assert_eq!(report.to_string() == said, !is_refused, "{report}");
        }
    }

    /// NVIDIA's driver writes the name of each thread that it starts, and fails if that is refused.
    #[test]
    fn with_a_driver_the_names_of_its_own_threads_are_written_and_nothing_else() {
        let write = |path: &str| {
            fs::OpenOptions::new().write(true).create(true).truncate(true).open(path).is_ok()
        };
        let attempt = move |has_driver: bool| {
            let (abi, _) = restrict_paths(&seccomp::tests::confinement(has_driver, false));
            let own = format!("/proc/self/task/{}/comm", rustix::thread::gettid());
            (abi > 0).then(|| [own.as_str(), "/proc/self/comm", "/tmp/sandbox-probe"].map(write))
        };
        for (has_driver, expected) in [(true, [true, false, false]), (false, [false; 3])] {
            // landlock binds the thread that applies it.
            let bound = std::thread::Builder::new().name("confined".to_owned());
            let bound = bound.spawn(move || attempt(has_driver)).expect("a thread");
            match bound.join().expect("no panic") {
                Some(outcome) => assert_eq!(outcome, expected, "driver: {has_driver}"),
                None => eprintln!("SKIPPED: this kernel has no landlock"),
            }
        }
    }

    #[test]
    fn the_parent_is_known_by_its_number() {
        let parent = getppid().map_or(0, |pid| pid.as_raw_pid().cast_unsigned());
        assert!(still_child_of(parent).is_ok(), "whatever its number is");
        assert!(still_child_of(parent + 1).is_err(), "a worker that was adopted");
    }
}
