//! The binary that becomes a worker, and what it is started with.

use std::{
    env,
    ffi::{OsStr, OsString},
    io,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::Arc,
};

use decode::{BackendError, HwDeviceSpec};
use media::Codec;

use crate::{
    EscapeAttempt, WorkerError,
    child::Child,
    fork_server::{Ends, ForkServer, WorkerStart},
    gate_device::GateDevice,
    launcher::{self, ProgramRequest, ProgramStdio},
    sandbox::{RequestedDevice, SandboxPolicy, SandboxReport},
    worker_main::ARGUMENT,
};

/// Threads of a driver: some for the device and some for each decoder.
const DRIVER_THREADS_MAX: u64 = 64;

/// Threads that keep the ends of a program moving.
const PROGRAM_THREADS: u64 = 4;

/// Binary that becomes a worker when it is started with the worker's argument.
#[derive(Clone, Debug)]
pub struct WorkerProgram {
    path: PathBuf,
    /// Least sandbox that it must have.
    policy: SandboxPolicy,
    device: Option<RequestedDevice>,
    gate: Option<GateDevice>,
    /// A program to decode with, and what it is asked to decode.
    external: Option<(PathBuf, Vec<Codec>)>,
    /// Executed for each worker where there is none.
    fork_server: Option<Arc<ForkServer>>,
}

impl WorkerProgram {
    /// The binary that is running, even where its file has been replaced since.
    pub fn current() -> WorkerProgram {
        WorkerProgram::at("/proc/self/exe")
    }

    /// Another binary whose `main` calls [`crate::worker_main()`].
    pub fn at(path: impl Into<PathBuf>) -> WorkerProgram {
        let (path, policy) = (path.into(), SandboxPolicy::default());
        WorkerProgram { path, policy, device: None, gate: None, external: None, fork_server: None }
    }

    /// The same, its workers copies of a process that has loaded it, which all of its clones share.
    /// `on_start` hears where each is from, and why one could not be forked; it must not wait.
    pub fn with_fork_server(
        self,
        on_start: impl Fn(WorkerStart, Option<&io::Error>) + Send + Sync + 'static,
    ) -> WorkerProgram {
        let fork_server = Some(Arc::new(ForkServer::new(Box::new(on_start))));
        WorkerProgram { fork_server, ..self }
    }

    /// The same, reading media in a sandbox of this policy.
    pub fn with_sandbox(self, policy: SandboxPolicy) -> WorkerProgram {
        WorkerProgram { policy, ..self }
    }

    /// Judges what a worker says of its sandbox, before it is given anything.
    pub(crate) fn judge(&self, report: SandboxReport) -> Result<SandboxReport, WorkerError> {
        match self.policy.accepts(&report) {
            true => Ok(report),
            false => Err(WorkerError::Sandbox { report }),
        }
    }

    /// The same binary, its workers using no device and no other program.
    pub(crate) fn plain(&self) -> WorkerProgram {
        WorkerProgram { device: None, gate: None, external: None, ..self.clone() }
    }

    /// The same, its workers decoding these codecs with a device.
    pub(crate) fn with_device(self, spec: HwDeviceSpec, codecs: Vec<Codec>) -> WorkerProgram {
        let device = Some(RequestedDevice { spec, codecs, was_there: false });
        WorkerProgram { device, ..self }
    }

    /// The same, its workers measuring with a device.
    pub(crate) fn with_gate(self, gate: GateDevice) -> WorkerProgram {
        WorkerProgram { gate: Some(gate), ..self }
    }

    /// The same, its devices having decoded and measured at the start: one that is gone later is
    /// replaced.
    pub(crate) fn with_devices_found(self) -> WorkerProgram {
        let device = self.device.map(|device| RequestedDevice { was_there: true, ..device });
        let gate = self.gate.map(|gate| GateDevice { was_there: true, ..gate });
        WorkerProgram { device, gate, ..self }
    }

    pub(crate) fn gate(&self) -> Option<GateDevice> {
        self.gate
    }

    /// A worker keeps a driver, and what belongs to it.
    pub(crate) fn has_driver(&self) -> bool {
        self.device.is_some() || self.gate.is_some()
    }

    /// A worker has nothing but its socket, its stderr and what it is given.
    pub(crate) fn is_plain(&self) -> bool {
        !self.has_driver() && self.external.is_none()
    }

    /// Paths besides the system's at which a driver and its libraries are looked for.
    pub(crate) fn libraries(&self) -> Vec<String> {
        match self.has_driver() {
            true => library_directories().into_iter().chain(driver_paths()).collect(),
            false => Vec::new(),
        }
    }

    /// The same, its workers decoding these codecs with a program beside them.
    pub(crate) fn with_program(self, program: PathBuf, codecs: Vec<Codec>) -> WorkerProgram {
        WorkerProgram { external: Some((program, codecs)), ..self }
    }

    /// Checks that `external` can be used so.
    pub(crate) fn check_external(&self, external: &Path) -> Result<(), BackendError> {
        launcher::check(&self.path, external)
    }

    /// Returns the codecs that a program beside its workers is asked to decode.
    pub(crate) fn external_codecs(&self) -> Vec<Codec> {
        self.external.as_ref().map(|(_, codecs)| codecs.clone()).unwrap_or_default()
    }

    /// Starts the program that decodes, with these ends.
    pub(crate) fn start_external(
        &self,
        errand: &ProgramRequest,
        ends: ProgramStdio,
    ) -> io::Result<Child> {
        match &self.external {
            Some((program, codecs)) if codecs.contains(&errand.codec) => {
                launcher::start(&self.path, program, errand, ends)
            }
            _ => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    /// Attempts what a program beside a worker must not do, by this binary as one.
    pub(crate) fn probe_external(&self) -> io::Result<Vec<EscapeAttempt>> {
        launcher::probe(&self.path)
    }

    pub(crate) fn device(&self) -> Option<&RequestedDevice> {
        self.device.as_ref()
    }

    /// Threads beside those that decode: those of drivers, or those that speak to a program.
    pub(crate) fn driver_threads(&self) -> u64 {
        let of_driver = if self.has_driver() { DRIVER_THREADS_MAX } else { 0 };
        of_driver + if self.external.is_some() { PROGRAM_THREADS } else { 0 }
    }

    /// Starts a worker that has these ends and no others.
    pub(crate) fn start(&self, ends: Ends) -> io::Result<Child> {
        match &self.fork_server {
            Some(server) => server.start(ends, |argument, ends| self.execute(argument, ends)),
            None => self.execute(ARGUMENT, ends),
        }
    }

    /// Gives the next workers another layout of memory than those before.
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
        // A driver keeps compiled code in files, which a worker has none to keep it in.
        command.env("MESA_SHADER_CACHE_DISABLE", "true").env("CUDA_CACHE_DISABLE", "1");
        // A terminal's Ctrl-C goes to the whole foreground group; ending a job is for the supervisor.
        command.process_group(0);
        Ok(command.spawn()?.into())
    }
}

#[expect(clippy::disallowed_methods, reason = "the dynamic loader's setting, not ours")]
pub(crate) fn loader_path() -> Option<OsString> {
    env::var_os("LD_LIBRARY_PATH")
}

/// The directories of that path. One that is not absolute would be that of whoever starts the server.
pub(crate) fn library_directories() -> Vec<String> {
    absolute(&loader_path().unwrap_or_default())
}

/// Returns the paths of libva's driver and of the manifests for Vulkan's loader, by their settings.
fn driver_paths() -> Vec<String> {
    let told = driver_settings().filter(|(name, _)| NAMING_PATHS.contains(name));
    told.flat_map(|(_, paths)| absolute(&paths)).collect()
}

fn absolute(paths: &OsStr) -> Vec<String> {
    let paths = env::split_paths(paths).map(|path| path.display().to_string());
    paths.filter(|path| path.starts_with('/')).collect()
}

/// Settings that are paths, separated by colons.
const NAMING_PATHS: [&str; 3] = ["LIBVA_DRIVERS_PATH", "VK_DRIVER_FILES", "VK_ICD_FILENAMES"];

/// Returns the settings of the devices that a driver shows, and of the drivers of libva and Vulkan.
#[expect(clippy::disallowed_methods, reason = "the drivers' settings, not ours")]
fn driver_settings() -> impl Iterator<Item = (&'static str, OsString)> {
    let names = ["CUDA_VISIBLE_DEVICES", "LIBVA_DRIVER_NAME"].into_iter().chain(NAMING_PATHS);
    names.filter_map(|name| Some((name, env::var_os(name)?)))
}
