//! Settings of the backends that decode and measure, and of the programs of FFmpeg.

use decode::DecodeBackend;
use worker::{BackendChoice, BackendRequest, GateBackend};

use super::*;

/// Maximum length of a device name, which may be a path.
const DEVICE_BYTES_MAX: usize = 4096;

/// Reads the choice of backends; `ffmpeg` is the path of the program, if it was found.
pub(super) fn decoding(vars: &mut EnvReader, ffmpeg: Option<PathBuf>) -> BackendRequest {
    let choice = |text: &str| BackendChoice::from_name(text, DecodeBackend::from_name);
    let choice = named(choice, "one of auto, software, nvdec, vaapi, ffmpeg-cli");
    let gate = |text: &str| BackendChoice::from_name(text, GateBackend::from_name);
    let gate = named(gate, "one of auto, cpu, wgpu, cuda");
    BackendRequest {
        choice: vars.read("SERVICE_DECODE_BACKEND", "auto", choice),
        device: vars.read("SERVICE_DECODE_DEVICE", "", optional(device)),
        gate: vars.read("SERVICE_GATE_BACKEND", "auto", gate),
        capabilities: vars.raw("NVIDIA_DRIVER_CAPABILITIES").map(str::to_owned),
        ffmpeg,
    }
}

/// Parses the number of an NVIDIA device or the path of a render node.
fn device(text: &str) -> Result<String, ValueError> {
    let is_path = text.starts_with('/') && text.len() <= DEVICE_BYTES_MAX;
    match text.parse::<u32>().is_ok() || is_path {
        true => Ok(text.to_owned()),
        false => Err("must be the number of an NVIDIA device or the path of a render node".into()),
    }
}

/// Looks for ffmpeg and ffprobe.
pub(super) fn tools(vars: &mut EnvReader) -> [Tool; 2] {
    let search = vars.raw("PATH").unwrap_or_default().to_owned();
    let mut tool = |name: &'static str, variable| {
        let text = vars.read(variable, name, |text| Ok(text.to_owned()));
        let searched = if text.contains('/') { text.clone() } else { search.clone() };
        Tool { name, variable, searched, path: find(&text, &search) }
    };
    [tool("ffmpeg", "SERVICE_FFMPEG_PATH"), tool("ffprobe", "SERVICE_FFPROBE_PATH")]
}

/// Finds a program by its path, or by its name in the directories of `search`.
fn find(program: &str, search: &str) -> Option<PathBuf> {
    let is_program = |path: &PathBuf| {
        rustix::fs::access(path, rustix::fs::Access::EXEC_OK).is_ok() && path.is_file()
    };
    if program.contains('/') {
        return Some(PathBuf::from(program)).filter(is_program);
    }
    env::split_paths(search).map(|dir| dir.join(program)).find(is_program)
}
