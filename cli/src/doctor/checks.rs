//! Individual checks of `doctor`.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use decode::{CodecProbeResult, DecodeBackend};
use embed::{EmbeddingModel, OnnxConfig, OnnxModel};
use rustix::fs::{Access, access, statvfs};
use timeline::Timeline;
use worker::{BackendChoice, BackendRequest, GateBackend, Supervisor, WorkerProgram};

use super::{Check, CheckState};
use crate::{environment, output::bytes};

/// Free bytes below which to warn: a server writes some hundred bytes a frame, tens of kilobytes a still.
const ROOM_BYTES: u64 = 1 << 30;

/// Checks the sandbox of a worker started for this, and the actions that it refuses.
pub fn sandbox(supervisor: &Supervisor) -> Vec<Check> {
    let report = match supervisor.capabilities() {
        Ok((_, report)) => report,
        Err(error) => {
            return vec![Check::new("worker", "start", CheckState::Fail, error.to_string())];
        }
    };
    let state = if report.is_full() { CheckState::Ok } else { CheckState::Warn };
    let level = Check::new("worker", "sandbox", state, report.to_string());
    vec![level, attempts(supervisor)]
}

fn attempts(supervisor: &Supervisor) -> Check {
    let check = |state, detail| Check::new("worker", "refusals", state, detail);
    let attempts = match supervisor.probe_sandbox() {
        Ok(attempts) => attempts,
        Err(error) => return check(CheckState::Fail, error.to_string()),
    };
    let allowed: Vec<&str> =
        attempts.iter().filter(|a| !a.is_refused()).map(|a| a.what.as_str()).collect();
    if allowed.is_empty() {
        let count = attempts.len();
        return check(CheckState::Ok, format!("{count} of {count} forbidden actions refused"));
    }
    check(CheckState::Warn, format!("a worker is not refused to: {}", allowed.join(", ")))
}

/// Checks each decode backend in a worker of its own: the codecs that it decodes, and those that it does not.
pub fn decoders(program: &WorkerProgram, wanted: &BackendRequest) -> Vec<Check> {
    [DecodeBackend::Software, DecodeBackend::Nvdec, DecodeBackend::Vaapi, DecodeBackend::FfmpegCli]
        .into_iter()
        .flat_map(|backend| decoded_by(backend, program, wanted))
        .collect()
}

fn decoded_by(
    backend: DecodeBackend,
    program: &WorkerProgram,
    wanted: &BackendRequest,
) -> Vec<Check> {
    let is_software = backend == DecodeBackend::Software;
    let is_needed = is_software || wanted.choice == BackendChoice::Named(backend);
    let missing = if is_needed { CheckState::Fail } else { CheckState::Absent };
    let gate = BackendChoice::Named(GateBackend::Cpu);
    let alone = BackendRequest { choice: BackendChoice::Named(backend), gate, ..wanted.clone() };
    let tried = match Supervisor::select(program, &alone) {
        Ok((_, selection)) => selection.capabilities.codecs,
        Err(error) => {
            return vec![Check::new("decode", backend.as_str(), missing, error.to_string())];
        }
    };
    let row = |tried: CodecProbeResult| {
        let depth = if tried.bits == 8 { "" } else { " 10-bit" };
        let codec = format!("{}{depth}", tried.codec.as_str());
        let name = match backend {
            DecodeBackend::Software => codec,
            device => format!("{} {codec}", device.as_str()),
        };
        let decoder = tried.decoder.unwrap_or_else(|| "nothing decodes it".to_owned());
        let (state, detail) = match tried.reason {
            None if decoder.starts_with(backend.as_str()) => (CheckState::Ok, decoder),
            None => (CheckState::Absent, decoder),
            Some(reason) if is_software => (CheckState::Fail, format!("{decoder}: {reason}")),
            Some(reason) => (CheckState::Absent, format!("{decoder}: {reason}")),
        };
        Check::new("decode", &name, state, detail)
    };
    tried.into_iter().map(row).collect()
}

/// Checks each gate backend in a worker of its own.
pub fn measurers(program: &WorkerProgram, wanted: &BackendRequest) -> Vec<Check> {
    let check = |backend: GateBackend| {
        let is_needed = wanted.gate == BackendChoice::Named(backend);
        let missing = if is_needed { CheckState::Fail } else { CheckState::Absent };
        let (choice, gate) =
            (BackendChoice::Named(DecodeBackend::Software), BackendChoice::Named(backend));
        let alone = BackendRequest { choice, gate, ..wanted.clone() };
        match Supervisor::select(program, &alone) {
            Ok((_, found)) => {
                let detail = format!("{}; sandbox {}", found.capabilities.measurer, found.sandbox);
                Check::new("gate", backend.as_str(), CheckState::Ok, detail)
            }
            Err(error) => Check::new("gate", backend.as_str(), missing, error.to_string()),
        }
    };
    [GateBackend::Cpu, GateBackend::Wgpu, GateBackend::Cuda].map(check).into()
}

/// Checks the embedding model: its execution provider, and the providers that failed.
pub fn embedder(config: &OnnxConfig, is_wanted: bool) -> Check {
    let check = |state, detail| Check::new("embed", "model", state, detail);
    match OnnxModel::load(config) {
        Ok(model) => {
            let (provider, dimensions) = (model.provider(), model.dimensions());
            let passed_over: String = model
                .passed_over()
                .iter()
                .map(|reason| format!("; passed over: {reason}"))
                .collect();
            check(CheckState::Ok, format!("on {provider}, {dimensions} dimensions{passed_over}"))
        }
        Err(error) if is_wanted => check(CheckState::Fail, error.to_string()),
        Err(error) => check(CheckState::Absent, error.to_string()),
    }
}

/// Reports the cores that decoding can use.
pub fn machine() -> Check {
    match std::thread::available_parallelism() {
        Ok(cores) => Check::new("machine", "cores", CheckState::Ok, cores.to_string()),
        Err(error) => Check::new("machine", "cores", CheckState::Warn, error.to_string()),
    }
}

/// Checks an executable that a deployment needs, and reports its version.
pub fn program(variable: &str, name: &str) -> Check {
    let Some(path) = environment::find_program(variable, name) else {
        let detail = format!("not found on PATH nor through {variable}");
        return Check::new("programs", name, CheckState::Warn, detail);
    };
    let output = match Command::new(&path).arg("-version").output() {
        Ok(output) if output.status.success() => output,
        Ok(output) => {
            let detail = format!("{} ends with {}", path.display(), output.status);
            return Check::new("programs", name, CheckState::Fail, detail);
        }
        Err(error) => {
            let detail = format!("{} does not start: {error}", path.display());
            return Check::new("programs", name, CheckState::Fail, detail);
        }
    };
    let text = String::from_utf8_lossy(&output.stdout);
    let mut words = text.split_whitespace();
    let version = words.nth(2).unwrap_or("unknown version");
    Check::new("programs", name, CheckState::Ok, format!("{version} at {}", path.display()))
}

/// Checks that a server can keep its data in `dir`, and open the log there as it does at its start. Changes
/// nothing; stored events, stills and columns are checked by `log verify`.
pub fn data_dir(dir: &Path) -> Check {
    let check = |state, detail: String| Check::new("data", "directory", state, detail);
    let absolute = std::path::absolute(dir).unwrap_or_else(|_| dir.to_owned());
    let shown = absolute.display();
    let Some(present) = nearest_existing(dir) else {
        return check(CheckState::Fail, format!("{shown} cannot be reached"));
    };
    if !present.is_dir() {
        return check(CheckState::Fail, format!("{} is not a directory", present.display()));
    }
    if let Err(error) = access(&present, Access::WRITE_OK | Access::EXEC_OK) {
        return check(CheckState::Fail, format!("{} is not writable: {error}", present.display()));
    }
    let free = match statvfs(&present) {
        Ok(stat) => stat.f_bavail.saturating_mul(stat.f_frsize),
        Err(error) => return check(CheckState::Fail, format!("{}: {error}", present.display())),
    };
    let log = dir.join("log");
    if log.join("journal").is_dir()
        && let Err(error) = Timeline::open_read_only(&log)
    {
        let detail = format!("{shown}: a server started here cannot open its log: {error}");
        return check(CheckState::Fail, detail);
    }
    let made = if present == dir { "" } else { ", will be made" };
    let state = if free < ROOM_BYTES { CheckState::Warn } else { CheckState::Ok };
    check(state, format!("{shown} of a server started here{made}, {} free", bytes(free)))
}

fn nearest_existing(dir: &Path) -> Option<PathBuf> {
    let absolute = std::path::absolute(dir).ok()?;
    let found = absolute.ancestors().find(|ancestor| ancestor.exists())?;
    Some(if found == absolute { dir.to_owned() } else { found.to_owned() })
}
