//! Selection of the backends that decode and measure here: those asked for, tried in a real worker.
//!
//! A backend that is asked for by name is used or is an error. What nobody names is tried in turn, and
//! what was passed over is told with its reason.

use std::path::PathBuf;

use decode::{BackendError, CodecProbeResult, DecodeBackend, HwDeviceSpec};
use media::{Codec, ErrorKind};

use crate::{
    Capabilities, GateBackend, JobFault, SandboxReport, Supervisor, WorkerError, WorkerLimits,
    WorkerProgram,
    gate_device::GateDevice,
    process::{WorkerLifetime, WorkerProcess},
};

/// Choice of the decoding backend.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DecodeBackendChoice {
    /// The first device that decodes, else libav's own decoders.
    #[default]
    Auto,
    /// This one.
    Named(DecodeBackend),
}

/// Choice of the measuring backend.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GateChoice {
    /// The first GPU beside a decoding device that measures as the CPU does, else the CPU.
    #[default]
    Auto,
    /// This one; a Vulkan adapter that is a CPU too.
    Named(GateBackend),
}

/// Backends and devices that are asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BackendRequest {
    /// The backend.
    pub choice: DecodeBackendChoice,
    /// Its device, see [`HwDeviceSpec::device`].
    pub device: Option<String>,
    /// See [`HwDeviceSpec::capabilities`].
    pub capabilities: Option<String>,
    /// The program of [`DecodeBackend::FfmpegCli`], where there is one.
    pub ffmpeg: Option<PathBuf>,
    /// Measuring backend. CUDA takes the device that decodes, where its number was given.
    pub gate: GateChoice,
}

/// Backends that were selected, and those that were passed over.
#[derive(Debug)]
pub struct DecodeSelection {
    /// Backend that is asked first.
    pub backend: DecodeBackend,
    /// Results of the test clips.
    pub capabilities: Capabilities,
    /// Confinement of its workers.
    pub sandbox: SandboxReport,
    /// Backends that were tried before, and why they were passed over.
    pub passed_over: Vec<(DecodeBackend, WorkerError)>,
    /// Selected measuring backend.
    pub gate: GateSelection,
}

/// Measuring backend that was selected, and those that were passed over.
#[derive(Debug)]
pub struct GateSelection {
    /// Backend that is asked first.
    pub backend: GateBackend,
    /// Backends that were tried before, and why they were passed over.
    pub passed_over: Vec<(GateBackend, WorkerError)>,
}

/// Reason that no workers can be had as they are asked for.
#[derive(Debug, thiserror::Error)]
pub enum BackendSelectError {
    /// The backend that is to measure does not.
    #[error("the gate backend {} failed its self-test: {source}", .backend.as_str())]
    Gate {
        /// Its name.
        backend: GateBackend,
        /// Reason that the backend cannot be used.
        source: WorkerError,
    },
    /// Nothing decodes, or not what was asked for by name.
    #[error(transparent)]
    Decode(#[from] WorkerError),
}

impl BackendRequest {
    /// Returns the backends to try, in order.
    fn candidates(&self) -> Vec<DecodeBackend> {
        match self.choice {
            DecodeBackendChoice::Auto => DecodeBackend::AUTOMATIC.into(),
            DecodeBackendChoice::Named(backend) => vec![backend],
        }
    }

    /// A backend that measures, of the device that decodes where that has a number.
    fn gate_device(&self, backend: GateBackend) -> GateDevice {
        let number = self.device.as_ref().and_then(|device| device.parse().ok()).unwrap_or(0);
        let is_named = self.gate == GateChoice::Named(backend);
        GateDevice { backend, number, is_named, was_there: false }
    }

    /// A device that decodes or measures is asked for by name.
    pub fn names_device(&self) -> bool {
        use GateChoice::Named;
        matches!(
            self.choice,
            DecodeBackendChoice::Named(DecodeBackend::Nvdec | DecodeBackend::Vaapi)
        ) || matches!(self.gate, Named(GateBackend::Cuda | GateBackend::Wgpu))
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
    /// Starts workers of `program` with the first backends of those wanted that measure and decode.
    pub fn select(
        program: &WorkerProgram,
        wanted: &BackendRequest,
    ) -> Result<(Supervisor, DecodeSelection), BackendSelectError> {
        select_by(
            wanted,
            |gate| try_gate(program, gate),
            |decoder, gate| {
                let program = program.clone();
                let program = match gate {
                    Some(gate) => program.with_gate(gate),
                    None => program,
                };
                try_backend(&program, wanted, decoder)
            },
        )
    }
}

/// Selects by what `measures` alone and what `decodes` beside it. To fail there is an error for a
/// device as long as nothing is selected, and no more afterwards.
fn select_by(
    wanted: &BackendRequest,
    mut measures: impl FnMut(GateDevice) -> Result<(), WorkerError>,
    mut decodes: impl FnMut(DecodeBackend, Option<GateDevice>) -> Result<Found, WorkerError>,
) -> Result<(Supervisor, DecodeSelection), BackendSelectError> {
    let ((supervisor, found), gate) = match wanted.gate {
        GateChoice::Named(backend) => {
            let refused = |source| BackendSelectError::Gate { backend, source };
            let device = wanted.gate_device(backend);
            measures(device).map_err(refused)?;
            let device = Some(device).filter(|_| backend != GateBackend::Cpu);
            let found =
                first_that_decodes(&wanted.candidates(), |decoder| decodes(decoder, device))
                    .map_err(|error| match error {
                        WorkerError::Fault(JobFault::Gate(_)) => refused(error),
                        other => BackendSelectError::Decode(other),
                    })?;
            (found, GateSelection { backend, passed_over: Vec::new() })
        }
        GateChoice::Auto => {
            let plain = first_that_decodes(&wanted.candidates(), |decoder| decodes(decoder, None))?;
            beside(plain, |decoder, gate| {
                let device = wanted.gate_device(gate);
                measures(device)?;
                first_that_decodes(&[decoder], |decoder| decodes(decoder, Some(device)))
            })
        }
    };
    let supervisor = Supervisor::new(supervisor.program.with_devices_found());
    let Decodes { backend, capabilities, sandbox, passed_over } = found;
    Ok((supervisor, DecodeSelection { backend, capabilities, sandbox, passed_over, gate }))
}

/// Devices that measure without being named where `decoder` decodes, in the order in which they are
/// tried: its driver is in the worker already. Elsewhere the CPU measures: frames that are in host memory
/// cost a device more than they cost the CPU, and a driver widens the sandbox.
fn gates_beside(decoder: DecodeBackend) -> &'static [GateBackend] {
    match decoder {
        DecodeBackend::Nvdec => &[GateBackend::Cuda, GateBackend::Wgpu],
        DecodeBackend::Vaapi => &[GateBackend::Wgpu],
        DecodeBackend::Software | DecodeBackend::FfmpegCli => &[],
    }
}

/// Workers that decode, as they were found or with the first gate beside the decoder that `attempt`
/// finds measuring.
fn beside(
    plain: (Supervisor, Decodes),
    mut attempt: impl FnMut(DecodeBackend, GateBackend) -> Result<(Supervisor, Decodes), WorkerError>,
) -> ((Supervisor, Decodes), GateSelection) {
    let mut passed_over = Vec::new();
    for &backend in gates_beside(plain.1.backend) {
        match attempt(plain.1.backend, backend) {
            Ok((supervisor, both)) => {
                let decodes = Decodes { passed_over: plain.1.passed_over, ..both };
                return ((supervisor, decodes), GateSelection { backend, passed_over });
            }
            Err(error) => passed_over.push((backend, error)),
        }
    }
    (plain, GateSelection { backend: GateBackend::Cpu, passed_over })
}

impl BackendSelectError {
    /// The closed kind that decides what the caller is told.
    pub fn kind(&self) -> ErrorKind {
        match self {
            BackendSelectError::Gate { source, .. } | BackendSelectError::Decode(source) => {
                source.kind()
            }
        }
    }
}

/// Decoding part of a [`DecodeSelection`].
struct Decodes {
    backend: DecodeBackend,
    capabilities: Capabilities,
    sandbox: SandboxReport,
    passed_over: Vec<(DecodeBackend, WorkerError)>,
}

/// Has a worker open `device`; the CPU needs no trying.
fn try_gate(program: &WorkerProgram, device: GateDevice) -> Result<(), WorkerError> {
    if device.backend == GateBackend::Cpu {
        return Ok(());
    }
    WorkerProcess::spawn(
        &program.clone().with_gate(device),
        &WorkerLimits::default(),
        WorkerLifetime::Open,
    )?;
    Ok(())
}

/// Result of trying a backend: workers that use it, their capabilities and their confinement.
type Found = (Supervisor, Capabilities, SandboxReport);

/// Workers that decode with `backend` what it really decodes.
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

/// The program to decode with, which has said its version.
fn usable(program: &WorkerProgram, ffmpeg: Option<&PathBuf>) -> Result<PathBuf, JobFault> {
    let searched = || "SERVICE_FFMPEG_PATH and PATH".to_owned();
    let found = ffmpeg.ok_or_else(|| BackendError::Program { searched: searched() });
    let found = found.map_err(JobFault::Backend)?;
    program.check_external(found).map_err(JobFault::Backend)?;
    Ok(found.clone())
}

/// The codecs of which every clip was decoded by `backend` alone.
fn decoded_by(backend: DecodeBackend, tried: &[CodecProbeResult]) -> Result<Vec<Codec>, JobFault> {
    let is_right = |tried: &&CodecProbeResult| tried.reason.is_none() && is_of(backend, tried);
    let codecs: Vec<Codec> = tried
        .iter()
        .filter(is_right)
        .filter(|tried| tried.bits == 8)
        .map(|tried| tried.codec)
        .collect();
    if !codecs.is_empty() {
        return Ok(codecs);
    }
    let reason = tried.iter().find_map(|tried| tried.reason.clone());
    let reason = reason.unwrap_or_else(|| "nothing was tried".to_owned());
    Err(JobFault::Backend(BackendError::DecodesNothing { reason }))
}

fn is_of(backend: DecodeBackend, tried: &CodecProbeResult) -> bool {
    let decoder = tried.decoder.as_deref().and_then(|name| name.split_once(':'));
    decoder.is_some_and(|(name, _)| name == backend.as_str())
}

/// The last candidate's failure is an error; those before it are told.
fn first_that_decodes(
    candidates: &[DecodeBackend],
    mut attempt: impl FnMut(DecodeBackend) -> Result<Found, WorkerError>,
) -> Result<(Supervisor, Decodes), WorkerError> {
    let mut passed_over: Vec<(DecodeBackend, WorkerError)> = Vec::new();
    for &backend in candidates {
        match attempt(backend) {
            Ok((supervisor, capabilities, sandbox)) => {
                return Ok((supervisor, Decodes { backend, capabilities, sandbox, passed_over }));
            }
            Err(error) => passed_over.push((backend, error)),
        }
    }
    let last = passed_over.pop().map(|(_, error)| error);
    Err(last.unwrap_or(WorkerError::Ended))
}

#[cfg(test)]
mod tests;
