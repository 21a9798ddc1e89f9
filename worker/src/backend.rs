//! Selection of the decoding and measuring backends: the candidates are tried in a real worker.
//!
//! A backend asked for by name is used, or selecting fails. Otherwise the candidates are tried in turn, and
//! those passed over are reported with the reason.

use std::path::PathBuf;

use decode::{BackendError, CodecProbeResult, DecodeBackend, HwDeviceSpec};
use media::{Codec, ErrorKind};

use crate::{
    Capabilities, GateBackend, JobFault, SandboxReport, Supervisor, WorkerError, WorkerProgram,
    gate_device::GateDevice, launcher,
};

/// Choice of the decoding or of the measuring backend.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BackendChoice<B> {
    /// The first device that decodes, else libav's own decoders; the first GPU beside a decoding device that
    /// measures as the CPU does, else the CPU.
    #[default]
    Auto,
    /// This backend; for Vulkan an adapter that is a CPU too.
    Named(B),
}

impl<B> BackendChoice<B> {
    /// Returns the choice of a setting: `auto`, or a name that `from_name` knows.
    pub fn from_name(name: &str, from_name: fn(&str) -> Option<B>) -> Option<BackendChoice<B>> {
        match name {
            "auto" => Some(BackendChoice::Auto),
            name => from_name(name).map(BackendChoice::Named),
        }
    }
}

/// Backends and devices asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BackendRequest {
    /// Choice of the decoding backend.
    pub choice: BackendChoice<DecodeBackend>,
    /// Device of the decoding backend, see [`HwDeviceSpec::device`].
    pub device: Option<String>,
    /// See [`HwDeviceSpec::capabilities`].
    pub capabilities: Option<String>,
    /// Program of [`DecodeBackend::FfmpegCli`], if one was found.
    pub ffmpeg: Option<PathBuf>,
    /// Choice of the measuring backend. CUDA uses the decoding device if that was given by its number.
    pub gate: BackendChoice<GateBackend>,
}

/// Backends that were selected, and those passed over.
#[derive(Debug)]
pub struct DecodeSelection {
    /// Backend that workers try first.
    pub backend: DecodeBackend,
    /// Results of the test clips.
    pub capabilities: Capabilities,
    /// Sandbox of its workers.
    pub sandbox: SandboxReport,
    /// Backends that were tried before, each with the reason that it was passed over.
    pub passed_over: Vec<(DecodeBackend, WorkerError)>,
    /// Selected measuring backend.
    pub gate: GateSelection,
}

/// Measuring backend that was selected, and those passed over.
#[derive(Debug)]
pub struct GateSelection {
    /// Backend that workers try first.
    pub backend: GateBackend,
    /// Backends that were tried before, each with the reason that it was passed over.
    pub passed_over: Vec<(GateBackend, WorkerError)>,
}

/// Reason that no backends could be selected.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum BackendSelectError {
    #[error("the gate backend {} failed its self-test: {source}", .backend.as_str())]
    Gate { backend: GateBackend, source: WorkerError },
    /// No candidate decodes.
    #[error(transparent)]
    Decode(#[from] WorkerError),
}

impl BackendRequest {
    /// Returns the backends to try, in order.
    fn candidates(&self) -> Vec<DecodeBackend> {
        match self.choice {
            BackendChoice::Auto => DecodeBackend::AUTOMATIC.into(),
            BackendChoice::Named(backend) => vec![backend],
        }
    }

    /// Returns a measuring device of `backend`, with the decoding device's number if that has one.
    fn gate_device(&self, backend: GateBackend) -> GateDevice {
        let number = self.device.as_ref().and_then(|device| device.parse().ok()).unwrap_or(0);
        let is_named = self.gate == BackendChoice::Named(backend);
        GateDevice { backend, number, is_named, was_there: false }
    }

    /// Returns true if a device for decoding or measuring is asked for by name.
    pub fn names_device(&self) -> bool {
        use BackendChoice::Named;
        matches!(self.choice, Named(DecodeBackend::Nvdec | DecodeBackend::Vaapi))
            || matches!(self.gate, Named(GateBackend::Cuda | GateBackend::Wgpu))
    }

    fn spec(&self, backend: DecodeBackend) -> HwDeviceSpec {
        HwDeviceSpec {
            backend,
            device: self.device.clone(),
            capabilities: self.capabilities.clone(),
        }
    }
}

impl Supervisor {
    /// Selects the first backends wanted that work; returns a supervisor of `program` with them.
    pub fn select(
        program: &WorkerProgram,
        wanted: &BackendRequest,
    ) -> Result<(Supervisor, DecodeSelection), BackendSelectError> {
        select_by(
            wanted,
            |gate| try_gate(program, gate),
            |decoder, gate| {
                let program = match gate {
                    Some(gate) => program.clone().with_gate(gate),
                    None => program.clone(),
                };
                try_backend(&program, wanted, decoder)
            },
        )
    }
}

/// Selects with `measures`, which tries a measuring device, and `decodes`, which tries a decoder beside it. A
/// device that cannot be opened is an error only until the selection is made.
fn select_by(
    wanted: &BackendRequest,
    mut measures: impl FnMut(GateDevice) -> Result<(), WorkerError>,
    mut decodes: impl FnMut(DecodeBackend, Option<GateDevice>) -> Result<Found, WorkerError>,
) -> Result<Selected, BackendSelectError> {
    let (supervisor, found) = match wanted.gate {
        BackendChoice::Named(backend) => {
            let refused = |source| BackendSelectError::Gate { backend, source };
            let device = wanted.gate_device(backend);
            measures(device).map_err(refused)?;
            let device = Some(device).filter(|_| backend != GateBackend::Cpu);
            let (supervisor, mut found) =
                first_that_decodes(&wanted.candidates(), |decoder| decodes(decoder, device))
                    .map_err(|error| match error {
                        WorkerError::Fault(JobFault::Gate(_)) => refused(error),
                        other => BackendSelectError::Decode(other),
                    })?;
            found.gate.backend = backend;
            (supervisor, found)
        }
        BackendChoice::Auto => {
            let plain = first_that_decodes(&wanted.candidates(), |decoder| decodes(decoder, None))?;
            beside(plain, |decoder, gate| {
                let device = wanted.gate_device(gate);
                measures(device)?;
                first_that_decodes(&[decoder], |decoder| decodes(decoder, Some(device)))
            })
        }
    };
    Ok((Supervisor::new(supervisor.program.with_devices_found()), found))
}

/// Returns the measuring devices to try without being asked for, in order: those whose driver the worker has
/// loaded to decode. With other decoders the CPU measures: for frames in host memory a device is slower than
/// the CPU, and its driver widens the sandbox.
fn gates_beside(decoder: DecodeBackend) -> &'static [GateBackend] {
    match decoder {
        DecodeBackend::Nvdec => &[GateBackend::Cuda, GateBackend::Wgpu],
        DecodeBackend::Vaapi => &[GateBackend::Wgpu],
        DecodeBackend::Software | DecodeBackend::FfmpegCli => &[],
    }
}

/// Supervisor of workers with the selected backends, and the report about them.
type Selected = (Supervisor, DecodeSelection);

/// Replaces the CPU by the first measuring device that works beside the decoder found, according to `attempt`.
fn beside(
    (supervisor, mut found): Selected,
    mut attempt: impl FnMut(DecodeBackend, GateBackend) -> Result<Selected, WorkerError>,
) -> Selected {
    for &backend in gates_beside(found.backend) {
        match attempt(found.backend, backend) {
            Ok((supervisor, both)) => {
                let gate = GateSelection { backend, ..found.gate };
                let passed_over = found.passed_over;
                return (supervisor, DecodeSelection { passed_over, gate, ..both });
            }
            Err(error) => found.gate.passed_over.push((backend, error)),
        }
    }
    (supervisor, found)
}

impl BackendSelectError {
    /// Returns the error kind reported to the caller.
    pub fn kind(&self) -> ErrorKind {
        let (BackendSelectError::Gate { source, .. } | BackendSelectError::Decode(source)) = self;
        source.kind()
    }
}

/// Has a worker open `device`; the CPU is not tried.
fn try_gate(program: &WorkerProgram, device: GateDevice) -> Result<(), WorkerError> {
    if device.backend == GateBackend::Cpu {
        return Ok(());
    }
    Supervisor::new(program.clone().with_gate(device)).sandbox().map(drop)
}

/// Result of trying a backend: workers that use it, their capabilities and their confinement.
type Found = (Supervisor, Capabilities, SandboxReport);

/// Returns a supervisor whose workers decode with `backend` those codecs that it was found to decode.
fn try_backend(
    program: &WorkerProgram,
    wanted: &BackendRequest,
    backend: DecodeBackend,
) -> Result<Found, WorkerError> {
    if backend == DecodeBackend::Software {
        let supervisor = Supervisor::new(program.clone());
        let (capabilities, report) = supervisor.capabilities()?;
        return Ok((supervisor, capabilities, report));
    }
    let ffmpeg = match backend {
        DecodeBackend::FfmpegCli => Some(usable(program, wanted.ffmpeg.as_ref())?),
        _ => None,
    };
    let with = |codecs| {
        let program = program.clone();
        Supervisor::new(match &ffmpeg {
            Some(ffmpeg) => program.with_program(ffmpeg.clone(), codecs),
            None => program.with_device(wanted.spec(backend), codecs),
        })
    };
    let (capabilities, report) = with(Codec::ALL.into()).capabilities()?;
    let codecs = decoded_by(backend, &capabilities.codecs)?;
    Ok((with(codecs), capabilities, report))
}

/// Returns the program to decode with, after its version has been checked.
fn usable(program: &WorkerProgram, ffmpeg: Option<&PathBuf>) -> Result<PathBuf, JobFault> {
    let none = "no program to run, looked for at SERVICE_FFMPEG_PATH and PATH";
    let searched = || JobFault::Backend(BackendError::unavailable(none));
    let found = ffmpeg.ok_or_else(searched)?;
    launcher::check(&program.path, found).map_err(JobFault::Backend)?;
    Ok(found.clone())
}

/// Returns the codecs whose 8-bit clips `backend` decoded correctly, without another decoder.
fn decoded_by(backend: DecodeBackend, tried: &[CodecProbeResult]) -> Result<Vec<Codec>, JobFault> {
    let is_right = |tried: &&CodecProbeResult| {
        tried.bits == 8 && tried.reason.is_none() && is_of(backend, tried)
    };
    let codecs: Vec<Codec> = tried.iter().filter(is_right).map(|tried| tried.codec).collect();
    if !codecs.is_empty() {
        return Ok(codecs);
    }
    let reason = tried.iter().find_map(|tried| tried.reason.clone());
    let reason = reason.unwrap_or_else(|| "nothing was tried".to_owned());
    let reason = format!("it failed to decode every probe clip: {reason}");
    Err(JobFault::Backend(BackendError::unsupported(reason)))
}

fn is_of(backend: DecodeBackend, tried: &CodecProbeResult) -> bool {
    let decoder = tried.decoder.as_deref().and_then(|name| name.split_once(':'));
    decoder.is_some_and(|(name, _)| name == backend.as_str())
}

/// Tries the candidates in order; the CPU measures. The last one's failure is the error; earlier ones are
/// reported.
fn first_that_decodes(
    candidates: &[DecodeBackend],
    mut attempt: impl FnMut(DecodeBackend) -> Result<Found, WorkerError>,
) -> Result<Selected, WorkerError> {
    let mut passed_over: Vec<(DecodeBackend, WorkerError)> = Vec::new();
    for &backend in candidates {
        match attempt(backend) {
            Ok((supervisor, capabilities, sandbox)) => {
                let gate = GateSelection { backend: GateBackend::Cpu, passed_over: Vec::new() };
                let found = DecodeSelection { backend, capabilities, sandbox, passed_over, gate };
                return Ok((supervisor, found));
            }
            Err(error) => passed_over.push((backend, error)),
        }
    }
    let last = passed_over.pop().map(|(_, error)| error);
    Err(last.unwrap_or(WorkerError::Ended))
}

#[cfg(test)]
mod tests;
