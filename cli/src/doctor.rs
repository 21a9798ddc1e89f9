//! `sightline doctor`: checks if this machine can decode, measure and embed, runs its server's self-check,
//! and gives the reasons of failures.
//!
//! Tries everything that can be tried: each backend decodes a small clip of every codec in a real, sandboxed
//! worker, compared bit by bit; the worker attempts actions that its sandbox must refuse; the embedding model
//! embeds a picture.

mod checks;
mod server;

use std::path::{Path, PathBuf};

use decode::DecodeBackend;
use embed::{ExecutionProvider, OnnxConfig};
use serde::Serialize;
use serde_json::json;
use worker::{BackendChoice, BackendRequest, GateBackend, Supervisor};

use crate::{
    client::ServerArgs,
    environment,
    error::CliError,
    interrupt,
    output::{StdoutWriter, TextTable},
};

#[derive(clap::Args)]
pub struct DoctorArgs {
    /// Print one JSON object: version, healthy, checks[{area, name, state, detail}]
    #[arg(long)]
    json: bool,
    /// Data directory of the server [default: where a server started here keeps it]
    #[arg(long, value_name = "DIR", env = "SERVICE_DATA_DIR")]
    data_dir: Option<PathBuf>,
    #[command(flatten)]
    decode: DecodeArgs,
    #[command(flatten)]
    server: ServerArgs,
    /// Image encoder of novelty in ONNX form; without it the built-in one is tried
    #[arg(long, value_name = "PATH", env = "SERVICE_NOVELTY_MODEL_PATH")]
    model: Option<PathBuf>,
    /// ONNX Runtime's library; without it the loader looks for libonnxruntime.so
    #[arg(long, value_name = "PATH", env = "SERVICE_ONNXRUNTIME_PATH")]
    onnxruntime: Option<PathBuf>,
    /// Provider to run it: cpu, cuda or tensorrt; auto for the first of tensorrt, cuda and cpu that does
    #[arg(long, value_name = "PROVIDER", env = "SERVICE_NOVELTY_EMBEDDING_PROVIDER",
        default_value = "auto", value_parser = provider)]
    embedding_provider: ExecutionProvider,
}

impl DoctorArgs {
    /// Returns the embedding settings, as the server reads them.
    fn embedding(&self) -> OnnxConfig {
        // The server's name for its built-in model.
        let model = self.model.clone().filter(|model| *model != Path::new("built-in"));
        let (runtime, provider) = (self.onnxruntime.clone(), self.embedding_provider);
        OnnxConfig { runtime, model, provider, ..OnnxConfig::default() }
    }

    /// Returns true if a model or an execution provider is asked for.
    fn wants_embedding(&self) -> bool {
        self.model.is_some() || self.embedding_provider != ExecutionProvider::Auto
    }
}

/// Decoding settings, as the server has them.
#[derive(clap::Args)]
pub struct DecodeArgs {
    /// Backend that must decode here: software, nvdec, vaapi or ffmpeg-cli; auto for the first that does
    #[arg(long, value_name = "NAME", env = "SERVICE_DECODE_BACKEND", default_value = "auto",
        value_parser = choice)]
    backend: BackendChoice<DecodeBackend>,
    /// Backend that must measure here: cpu, wgpu or cuda; auto for the first device that does, else cpu
    #[arg(long = "gate-backend", value_name = "NAME", env = "SERVICE_GATE_BACKEND",
        default_value = "auto", value_parser = gate_choice)]
    gate: BackendChoice<GateBackend>,
    /// Number of an NVIDIA device, or path of a render node [default: the first]
    #[arg(long, value_name = "DEVICE", env = "SERVICE_DECODE_DEVICE")]
    device: Option<String>,
}

impl DecodeArgs {
    /// Returns true if a backend or a device is named.
    pub fn names_any(&self) -> bool {
        self.backend != BackendChoice::Auto
            || self.gate != BackendChoice::Auto
            || self.device.is_some()
    }

    pub fn wanted(&self) -> BackendRequest {
        BackendRequest {
            choice: self.backend,
            device: self.device.clone().filter(|device| !device.is_empty()),
            gate: self.gate,
            capabilities: environment::driver_capabilities(),
            ffmpeg: environment::find_program("SERVICE_FFMPEG_PATH", "ffmpeg"),
        }
    }
}

fn choice(text: &str) -> Result<BackendChoice<DecodeBackend>, String> {
    BackendChoice::from_name(text, DecodeBackend::from_name)
        .ok_or_else(|| "must be one of auto, software, nvdec, vaapi, ffmpeg-cli".to_owned())
}

fn gate_choice(text: &str) -> Result<BackendChoice<GateBackend>, String> {
    BackendChoice::from_name(text, GateBackend::from_name)
        .ok_or_else(|| "must be one of auto, cpu, wgpu, cuda".to_owned())
}

pub fn provider(text: &str) -> Result<ExecutionProvider, String> {
    ExecutionProvider::from_name(text)
        .ok_or_else(|| "must be one of auto, cpu, cuda, tensorrt".to_owned())
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum CheckState {
    /// The part works.
    Ok,
    /// The part works, but lacks something that the detail names.
    Warn,
    /// The part does not work.
    Fail,
    /// The part is missing, and nothing requires it.
    Absent,
}

#[derive(Debug, Serialize)]
struct Check {
    area: &'static str,
    name: String,
    state: CheckState,
    detail: String,
}

impl Check {
    fn new(area: &'static str, name: &str, state: CheckState, detail: impl Into<String>) -> Check {
        Check { area, name: name.to_owned(), state, detail: detail.into() }
    }
}

pub fn run(args: &DoctorArgs) -> Result<(), CliError> {
    let cancel = interrupt::token()?;
    let program = environment::worker_program()?;
    let mut checks = checks::sandbox(&Supervisor::new(program.clone()));
    checks.extend(checks::decoders(&program, &args.decode.wanted()));
    let server = environment::server_as_worker()?;
    checks.extend(checks::measurers(&server, &args.decode.wanted()));
    checks.push(checks::embedder(&args.embedding(), args.wants_embedding()));
    checks.push(checks::machine());
    checks.push(checks::program("SERVICE_FFMPEG_PATH", "ffmpeg"));
    checks.push(checks::program("SERVICE_FFPROBE_PATH", "ffprobe"));
    checks.push(checks::data_dir(&environment::data_dir(args.data_dir.as_deref())));
    checks.extend(server::checks(&args.server));
    if cancel.is_cancelled() {
        return Err(CliError::Interrupted);
    }
    let failed: Vec<&Check> =
        checks.iter().filter(|check| check.state == CheckState::Fail).collect();

    let mut out = StdoutWriter::stdout();
    if args.json {
        let version = env!("CARGO_PKG_VERSION");
        out.json(&json!({ "version": version, "healthy": failed.is_empty(), "checks": checks }))?;
    } else {
        let row = |check: &Check| {
            let state = match check.state {
                CheckState::Ok => "ok",
                CheckState::Warn => "warn",
                CheckState::Fail => "FAIL",
                CheckState::Absent => "no",
            };
            [check.area, &check.name, state, &check.detail].map(str::to_owned)
        };
        let columns = ["AREA", "CHECK", "STATE", "DETAIL"];
        out.table(&TextTable::of(columns, checks.iter().map(row)))?;
    }
    out.finish()?;
    match failed.as_slice() {
        [] => Ok(()),
        [one] => Err(CliError::Check(format!("{} {}: {}", one.area, one.name, one.detail))),
        many => Err(CliError::Check(format!("{} checks failed", many.len()))),
    }
}
