//! The binary that becomes a worker, and what it is started with.

use std::{
    env,
    ffi::OsString,
    io,
    os::{fd::OwnedFd, unix::process::CommandExt},
    path::PathBuf,
    process::{Child, Command, Stdio},
};

use decode::DeviceSpec;
use media::Codec;

use crate::{entry::ARGUMENT, measuring::GateDevice, sandbox::Asked};

/// Threads of a driver: some for the device and some for each decoder.
const DRIVER_THREADS_MAX: u64 = 64;

/// Which binary becomes a worker when it is started with the worker's argument.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerProgram {
    path: PathBuf,
    device: Option<Asked>,
    gate: Option<GateDevice>,
}

impl WorkerProgram {
    /// The binary that is running, even where its file has been replaced since.
    pub fn current() -> WorkerProgram {
        WorkerProgram::at("/proc/self/exe")
    }

    /// Another binary whose `main` calls [`crate::worker_main`].
    pub fn at(path: impl Into<PathBuf>) -> WorkerProgram {
        WorkerProgram { path: path.into(), device: None, gate: None }
    }

    /// The same, its workers decoding these codecs with a device.
    pub(crate) fn with_device(self, spec: DeviceSpec, codecs: Vec<Codec>) -> WorkerProgram {
        WorkerProgram { device: Some(Asked { spec, codecs }), ..self }
    }

    /// The same, its workers measuring with a device.
    pub(crate) fn with_gate(self, gate: GateDevice) -> WorkerProgram {
        WorkerProgram { gate: Some(gate), ..self }
    }

    pub(crate) fn gate(&self) -> Option<GateDevice> {
        self.gate
    }

    /// A worker keeps a driver, and what belongs to it.
    pub(crate) fn has_driver(&self) -> bool {
        self.device.is_some() || self.gate.is_some()
    }

    /// Directories besides the system's in which the loader looks for a driver's libraries.
    pub(crate) fn libraries(&self) -> Vec<String> {
        if !self.has_driver() {
            return Vec::new();
        }
        let directories = loader_path().unwrap_or_default();
        let libraries = env::split_paths(&directories).map(|path| path.display().to_string());
        libraries.filter(|path| path.starts_with('/')).collect()
    }

    pub(crate) fn device(&self) -> Option<&Asked> {
        self.device.as_ref()
    }

    /// Threads that the drivers of devices start by themselves.
    pub(crate) fn driver_threads(&self) -> u64 {
        if self.has_driver() { DRIVER_THREADS_MAX } else { 0 }
    }

    /// Starts it with `theirs` as its only descriptor besides stderr.
    pub(crate) fn start(&self, theirs: OwnedFd) -> io::Result<Child> {
        let mut command = Command::new(&self.path);
        command.arg(ARGUMENT).stdin(theirs).stdout(Stdio::null()).stderr(Stdio::piped());
        // The server's environment holds secrets; the loader needs no more than its path.
        command.env_clear();
        command.envs(loader_path().map(|path| ("LD_LIBRARY_PATH", path)));
        if self.has_driver() {
            command.envs(driver_settings());
            // A driver keeps compiled code in files, which a worker has none to keep it in.
            command.env("MESA_SHADER_CACHE_DISABLE", "true").env("CUDA_CACHE_DISABLE", "1");
        }
        // A terminal's Ctrl-C goes to the whole foreground group; ending a job is for the supervisor.
        command.process_group(0);
        command.spawn()
    }
}

#[expect(clippy::disallowed_methods, reason = "the dynamic loader's setting, not ours")]
fn loader_path() -> Option<OsString> {
    env::var_os("LD_LIBRARY_PATH")
}

/// Which devices a driver shows, and which of the drivers of libva and Vulkan is taken.
#[expect(clippy::disallowed_methods, reason = "the drivers' settings, not ours")]
fn driver_settings() -> impl Iterator<Item = (&'static str, OsString)> {
    let names = [
        "CUDA_VISIBLE_DEVICES",
        "LIBVA_DRIVER_NAME",
        "LIBVA_DRIVERS_PATH",
        "VK_DRIVER_FILES",
        "VK_ICD_FILENAMES",
    ];
    names.into_iter().filter_map(|name| Some((name, env::var_os(name)?)))
}
