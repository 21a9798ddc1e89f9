//! The binary that becomes a worker, and its configuration.

use std::{
    env,
    ffi::{OsStr, OsString},
    io,
    os::unix::process::CommandExt,
    path::PathBuf,
    process::{Command, Stdio},
    sync::Arc,
};

use decode::HwDeviceSpec;
use media::Codec;

use crate::{
    WorkerError,
    child::Child,
    fork_server::{Ends, ForkServer, WorkerStart},
    gate_device::GateDevice,
    launcher::{self, ProgramRequest},
    sandbox::{RequestedDevice, SandboxPolicy, SandboxReport},
    worker_main::ARGUMENT,
};

/// Threads of a driver: some for the device and some for each decoder.
const DRIVER_THREADS_MAX: u64 = 64;

/// Threads that feed and read a program's pipes.
const PROGRAM_THREADS: u64 = 4;

/// Binary that becomes a worker when it is started with the worker's argument.
#[derive(Clone, Debug)]
pub struct WorkerProgram {
    pub(crate) path: PathBuf,
    /// Least sandbox in which media may be read.
    policy: SandboxPolicy,
    pub(crate) device: Option<RequestedDevice>,
    pub(crate) gate: Option<GateDevice>,
    /// Program to decode with, and the codecs that it decodes.
    external: Option<(PathBuf, Vec<Codec>)>,
    /// Forks the workers; without it each is executed.
    fork_server: Option<Arc<ForkServer>>,
}

impl WorkerProgram {
    /// Uses the running binary, even if its file has been replaced since.
    pub fn current() -> WorkerProgram {
        WorkerProgram::at("/proc/self/exe")
    }

    /// Uses another binary, whose `main` must call [`crate::worker_main()`].
    pub fn at(path: impl Into<PathBuf>) -> WorkerProgram {
        let (path, policy) = (path.into(), SandboxPolicy::default());
        WorkerProgram { path, policy, device: None, gate: None, external: None, fork_server: None }
    }

    /// Has workers forked from a process that has loaded the binary, shared by all clones. `on_start` is told
    /// how each was started, and the error if it could not be forked; it must not block.
    pub fn with_fork_server(
        self,
        on_start: impl Fn(WorkerStart, Option<&io::Error>) + Send + Sync + 'static,
    ) -> WorkerProgram {
        let fork_server = Some(Arc::new(ForkServer::new(Box::new(on_start))));
        WorkerProgram { fork_server, ..self }
    }

    /// Requires a sandbox of this policy for reading media.
    pub fn with_sandbox(self, policy: SandboxPolicy) -> WorkerProgram {
        WorkerProgram { policy, ..self }
    }

    /// Checks a worker's sandbox report against the policy, before the worker is given anything.
    pub(crate) fn judge(&self, report: SandboxReport) -> Result<SandboxReport, WorkerError> {
        match self.policy.accepts(&report) {
            true => Ok(report),
            false => Err(WorkerError::Sandbox(report)),
        }
    }

    /// Returns the same binary without any device or decoding program.
    pub(crate) fn plain(&self) -> WorkerProgram {
        WorkerProgram { device: None, gate: None, external: None, ..self.clone() }
    }

    /// Has workers decode these codecs with a device.
    pub(crate) fn with_device(self, spec: HwDeviceSpec, codecs: Vec<Codec>) -> WorkerProgram {
        let device = Some(RequestedDevice { spec, codecs, was_there: false });
        WorkerProgram { device, ..self }
    }

    pub(crate) fn with_gate(self, gate: GateDevice) -> WorkerProgram {
        WorkerProgram { gate: Some(gate), ..self }
    }

    /// Marks the devices as working at the start: if one cannot be opened later, the CPU replaces it.
    pub(crate) fn with_devices_found(self) -> WorkerProgram {
        let device = self.device.map(|device| RequestedDevice { was_there: true, ..device });
        let gate = self.gate.map(|gate| GateDevice { was_there: true, ..gate });
        WorkerProgram { device, gate, ..self }
    }

    /// Returns true if workers keep a device driver.
    pub(crate) fn has_driver(&self) -> bool {
        self.device.is_some() || self.gate.is_some()
    }

    /// Returns true if workers have only their socket, their stderr and the descriptors that they are sent.
    pub(crate) fn is_plain(&self) -> bool {
        !self.has_driver() && self.external.is_none()
    }

    /// Returns paths besides the system's in which a driver and its libraries are searched for.
    pub(crate) fn libraries(&self) -> Vec<String> {
        match self.has_driver() {
            true => library_directories().into_iter().chain(driver_paths()).collect(),
            false => Vec::new(),
        }
    }

    /// Has workers decode these codecs with a program beside them.
    pub(crate) fn with_program(self, program: PathBuf, codecs: Vec<Codec>) -> WorkerProgram {
        WorkerProgram { external: Some((program, codecs)), ..self }
    }

    pub(crate) fn external_codecs(&self) -> Vec<Codec> {
        self.external.as_ref().map(|(_, codecs)| codecs.clone()).unwrap_or_default()
    }

    /// Starts the decoding program with these descriptors.
    pub(crate) fn start_external(&self, errand: &ProgramRequest, ends: Ends) -> io::Result<Child> {
        match &self.external {
            Some((program, codecs)) if codecs.contains(&errand.codec) => {
                launcher::start(&self.path, program, errand, ends)
            }
            _ => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    /// Returns the threads besides those that decode: of drivers, or of a program's pipes.
    pub(crate) fn driver_threads(&self) -> u64 {
        let of_driver = if self.has_driver() { DRIVER_THREADS_MAX } else { 0 };
        of_driver + if self.external.is_some() { PROGRAM_THREADS } else { 0 }
    }

    /// Starts a worker that has these descriptors and no others.
    pub(crate) fn start(&self, ends: Ends) -> io::Result<Child> {
        match &self.fork_server {
            Some(server) => server.start(ends, |argument, ends| self.execute(argument, ends)),
            None => self.execute(ARGUMENT, ends),
        }
    }

    /// Gives later workers another memory layout than earlier ones.
    pub(crate) fn forget_layout(&self) {
        if let Some(server) = &self.fork_server {
            server.renew();
        }
    }

    fn execute(&self, argument: &str, ends: Ends) -> io::Result<Child> {
        let mut command = Command::new(&self.path);
        command.arg(argument).stdin(ends.socket).stdout(Stdio::null()).stderr(ends.stderr);
        // The server's environment holds secrets; the loader needs no more than its path.
        command.env_clear();
        command.envs(loader_path().map(|path| ("LD_LIBRARY_PATH", path)));
        command.envs(driver_settings());
        // Drivers cache compiled code in files, which a worker cannot have.
        command.env("MESA_SHADER_CACHE_DISABLE", "true").env("CUDA_CACHE_DISABLE", "1");
        // A worker can write no report to a file: a race ends it, and so the job.
        if cfg!(tsan) {
            command.env("TSAN_OPTIONS", "halt_on_error=1");
        }
        // A terminal's Ctrl-C goes to the whole foreground group; ending a job is for the supervisor.
        command.process_group(0);
        Child::spawn(&mut command)
    }
}

#[expect(clippy::disallowed_methods, reason = "the dynamic loader's setting, not ours")]
pub(crate) fn loader_path() -> Option<OsString> {
    env::var_os("LD_LIBRARY_PATH")
}

/// Returns the directories in that path. A relative one would depend on the server's working directory.
pub(crate) fn library_directories() -> Vec<String> {
    absolute(&loader_path().unwrap_or_default())
}

/// Returns the paths of libva's driver and of Vulkan's manifests, from the drivers' environment variables.
fn driver_paths() -> Vec<String> {
    let told = driver_settings().filter(|(name, _)| NAMING_PATHS.contains(name));
    told.flat_map(|(_, paths)| absolute(&paths)).collect()
}

fn absolute(paths: &OsStr) -> Vec<String> {
    let paths = env::split_paths(paths).map(|path| path.display().to_string());
    paths.filter(|path| path.starts_with('/')).collect()
}

/// Variables that hold paths, separated by colons.
const NAMING_PATHS: [&str; 3] = ["LIBVA_DRIVERS_PATH", "VK_DRIVER_FILES", "VK_ICD_FILENAMES"];

/// Returns the environment variables that select devices and the drivers of libva and Vulkan.
#[expect(clippy::disallowed_methods, reason = "the drivers' settings, not ours")]
fn driver_settings() -> impl Iterator<Item = (&'static str, OsString)> {
    let names = ["CUDA_VISIBLE_DEVICES", "LIBVA_DRIVER_NAME"].into_iter().chain(NAMING_PATHS);
    names.filter_map(|name| Some((name, env::var_os(name)?)))
}
