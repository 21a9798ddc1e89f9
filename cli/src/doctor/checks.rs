//! The single checks of `doctor`.

use std::{
    fs::File,
    io::{self, Write},
    ops::ControlFlow,
    path::{Path, PathBuf},
    process::Command,
};

use decode::{FileReport, Sampling};
use gate::{CpuMeasurer, GateConfig, Measurer};
use media::Codec;
use rustix::fs::{Access, MemfdFlags, access, memfd_create, statvfs};
use worker::{CancelToken, JobSpec, Limits, SandboxLevel, Supervisor, WorkerError};

use super::{Check, State};
use crate::{environment, output::bytes};

/// A server writes some hundred bytes a frame and tens of kilobytes a still.
const ROOM_BYTES: u64 = 1 << 30;

/// Two frames of 64x48 in this codec.
fn clip(codec: Codec) -> &'static [u8] {
    match codec {
        Codec::H264 => include_bytes!("clips/h264.264"),
        Codec::H265 => include_bytes!("clips/hevc.265"),
        Codec::Vp8 => include_bytes!("clips/vp8.webm"),
        Codec::Vp9 => include_bytes!("clips/vp9.webm"),
        Codec::Av1 => include_bytes!("clips/av1.webm"),
        Codec::Mpeg4 => include_bytes!("clips/mpeg4.mkv"),
        Codec::Mjpeg => include_bytes!("clips/mjpeg.mkv"),
    }
}

/// The sandbox of a worker that was really started, and what it refused when tried.
pub fn sandbox(supervisor: &Supervisor) -> Vec<Check> {
    let report = match supervisor.capabilities() {
        Ok((_, report)) => report,
        Err(error) => return vec![Check::new("worker", "start", State::Fail, error.to_string())],
    };
    let state = match report.level {
        SandboxLevel::Full => State::Ok,
        SandboxLevel::Partial { .. } => State::Warn,
    };
    let level = Check::new("worker", "sandbox", state, report.to_string());
    vec![level, attempts(supervisor)]
}

fn attempts(supervisor: &Supervisor) -> Check {
    let attempts = match supervisor.probe_sandbox() {
        Ok(attempts) => attempts,
        Err(error) => return Check::new("worker", "refusals", State::Fail, error.to_string()),
    };
    let allowed: Vec<&str> =
        attempts.iter().filter(|a| a.errno.is_none()).map(|a| a.what.as_str()).collect();
    match allowed.is_empty() {
        true => Check::new(
            "worker",
            "refusals",
            State::Ok,
            format!("{} of {} forbidden actions refused", attempts.len(), attempts.len()),
        ),
        false => {
            let detail = format!("a worker can: {}", allowed.join(", "));
            Check::new("worker", "refusals", State::Warn, detail)
        }
    }
}

/// Each codec decodes its clip in a worker of its own.
pub fn decoders(supervisor: &Supervisor, cancel: &CancelToken) -> Vec<Check> {
    Codec::ALL
        .into_iter()
        .map(|codec| {
            let (state, detail) = match decode(supervisor, cancel, clip(codec)) {
                Ok(report) if report.frames == 2 => (State::Ok, report.decoder),
                Ok(report) => {
                    let detail = format!("{}: {} of 2 frames", report.decoder, report.frames);
                    (State::Fail, detail)
                }
                Err(error) => (State::Fail, error.to_string()),
            };
            Check::new("decode", codec.name(), state, detail)
        })
        .collect()
}

fn decode(
    supervisor: &Supervisor,
    cancel: &CancelToken,
    clip: &[u8],
) -> Result<FileReport, WorkerError> {
    let spec = JobSpec {
        input: memory_file(clip).map_err(WorkerError::Spawn)?.into(),
        sampling: Sampling::Every,
        max_frames: 16,
        stills: true,
        views: None,
        gate: GateConfig::default(),
        threads: 1,
        limits: Limits::default(),
    };
    supervisor.run_job(spec, cancel, &mut |_| ControlFlow::Continue(()))
}

fn memory_file(content: &[u8]) -> io::Result<File> {
    let mut file = File::from(memfd_create("clip", MemfdFlags::CLOEXEC)?);
    file.write_all(content)?;
    Ok(file)
}

/// The kernel that measures frames.
pub fn measurer() -> Check {
    Check::new("gate", "measurer", State::Ok, CpuMeasurer::new().name())
}

/// Cores that decoding can use.
pub fn machine() -> Check {
    match std::thread::available_parallelism() {
        Ok(cores) => Check::new("machine", "cores", State::Ok, cores.to_string()),
        Err(error) => Check::new("machine", "cores", State::Warn, error.to_string()),
    }
}

/// An executable of the deployment, with the version it reports.
pub fn program(variable: &str, name: &str) -> Check {
    let Some(path) = environment::find_program(variable, name) else {
        let detail = format!("not found on PATH nor through {variable}");
        return Check::new("programs", name, State::Warn, detail);
    };
    let output = match Command::new(&path).arg("-version").output() {
        Ok(output) if output.status.success() => output,
        Ok(output) => {
            let detail = format!("{} ends with {}", path.display(), output.status);
            return Check::new("programs", name, State::Fail, detail);
        }
        Err(error) => {
            let detail = format!("{} does not start: {error}", path.display());
            return Check::new("programs", name, State::Fail, detail);
        }
    };
    let text = String::from_utf8_lossy(&output.stdout);
    let mut words = text.split_whitespace();
    let version = words.nth(2).unwrap_or("unknown version");
    Check::new("programs", name, State::Ok, format!("{version} at {}", path.display()))
}

/// Whether a server could keep its log here.
pub fn data_dir(dir: &Path) -> Check {
    let check = |state, detail: String| Check::new("data", "directory", state, detail);
    let shown = dir.display();
    let Some(present) = nearest_existing(dir) else {
        return check(State::Fail, format!("{shown} cannot be reached"));
    };
    if !present.is_dir() {
        return check(State::Fail, format!("{} is not a directory", present.display()));
    }
    if let Err(error) = access(&present, Access::WRITE_OK | Access::EXEC_OK) {
        return check(State::Fail, format!("{} is not writable: {error}", present.display()));
    }
    let free = match statvfs(&present) {
        Ok(stat) => stat.f_bavail.saturating_mul(stat.f_frsize),
        Err(error) => return check(State::Fail, format!("{}: {error}", present.display())),
    };
    let made = if present == dir { "" } else { ", will be made" };
    let state = if free < ROOM_BYTES { State::Warn } else { State::Ok };
    check(state, format!("{shown}{made}, {} free", bytes(free)))
}

fn nearest_existing(dir: &Path) -> Option<PathBuf> {
    let absolute = std::path::absolute(dir).ok()?;
    let found = absolute.ancestors().find(|ancestor| ancestor.exists())?;
    Some(if found == absolute { dir.to_owned() } else { found.to_owned() })
}
