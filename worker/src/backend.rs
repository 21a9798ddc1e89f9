//! Which backends decode and measure here: what was asked for, tried in a real worker.
//!
//! A backend that is asked for by name is used or is an error. What nobody names is tried in turn, and
//! what was passed over is told with its reason.

use std::path::PathBuf;

use decode::{Backend, BackendError, DeviceSpec, Tried};
use media::{Codec, ErrorKind};

use crate::{
    Capabilities, Fault, GateBackend, GateError, Limits, SandboxReport, Supervisor, WorkerError,
    WorkerProgram,
    measuring::GateDevice,
    process::{Life, Process},
};

/// Which backend is to decode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Choice {
    /// The first device that decodes, else libav's own decoders.
    #[default]
    Auto,
    /// This one.
    Named(Backend),
}

/// Which backend is to measure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GateChoice {
    /// The first GPU that measures as the CPU does, else the CPU.
    #[default]
    Auto,
    /// This one; a Vulkan adapter that is a CPU too.
    Named(GateBackend),
}

/// What is asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// The backend.
    pub choice: Choice,
    /// Its device, see [`DeviceSpec::device`].
    pub device: Option<String>,
    /// See [`DeviceSpec::capabilities`].
    pub capabilities: Option<String>,
    /// The program of [`Backend::FfmpegCli`], where there is one.
    pub ffmpeg: Option<PathBuf>,
    /// What is to measure. CUDA takes the device that decodes, where its number was given.
    pub gate: GateChoice,
}

/// What decodes, and what does not.
#[derive(Debug)]
pub struct Selection {
    /// What is asked first.
    pub backend: Backend,
    /// What came of the clips.
    pub capabilities: Capabilities,
    /// How its workers are confined.
    pub sandbox: SandboxReport,
    /// Backends that were tried before, and why they were passed over.
    pub passed_over: Vec<(Backend, WorkerError)>,
    /// What measures.
    pub gate: GateSelection,
}

/// What measures, and what does not.
#[derive(Debug)]
pub struct GateSelection {
    /// What is asked first.
    pub backend: GateBackend,
    /// Backends that were tried before, and why they were passed over.
    pub passed_over: Vec<(GateBackend, WorkerError)>,
}

/// Why no workers can be had as they are asked for.
#[derive(Debug, thiserror::Error)]
pub enum SelectError {
    /// The backend that is to measure does not.
    #[error("the gate's backend {} does not measure: {source}", .backend.as_str())]
    Gate {
        /// Its name.
        backend: GateBackend,
        /// What is missing.
        source: WorkerError,
    },
    /// Nothing decodes, or not what was asked for by name.
    #[error(transparent)]
    Decode(#[from] WorkerError),
}

impl Wanted {
    /// What to try, in order.
    fn candidates(&self) -> Vec<Backend> {
        match self.choice {
            Choice::Auto => Backend::AUTOMATIC.into(),
            Choice::Named(backend) => vec![backend],
        }
    }

    /// What to measure with, in the order in which it is tried.
    fn gate_candidates(&self) -> Vec<GateDevice> {
        let number = self.device.as_ref().and_then(|device| device.parse().ok()).unwrap_or(0);
        let device =
            |is_named| move |backend| GateDevice { backend, number, is_named, was_there: false };
        match self.gate {
            GateChoice::Auto => GateBackend::ALL.map(device(false)).into(),
            GateChoice::Named(backend) => vec![device(true)(backend)],
        }
    }

    fn spec(&self, backend: Backend) -> DeviceSpec {
        DeviceSpec { backend, device: self.device.clone(), capabilities: self.capabilities.clone() }
    }
}

impl Supervisor {
    /// Starts workers of `program` with the first backends of those wanted that measure and decode.
    pub fn select(
        program: &WorkerProgram,
        wanted: &Wanted,
    ) -> Result<(Supervisor, Selection), SelectError> {
        let (program, gate) =
            first_that_measures(&wanted.gate_candidates(), |device| try_gate(program, device))?;
        let tried = |backend| try_backend(&program, wanted, backend);
        let (supervisor, found) = first_that_decodes(&wanted.candidates(), tried)?;
        let Decodes { backend, capabilities, sandbox, passed_over } = found;
        Ok((supervisor, Selection { backend, capabilities, sandbox, passed_over, gate }))
    }
}

impl SelectError {
    /// The closed kind that decides what the caller is told.
    pub fn kind(&self) -> ErrorKind {
        match self {
            SelectError::Gate { source, .. } | SelectError::Decode(source) => source.kind(),
        }
    }
}

/// What decodes, of a [`Selection`].
struct Decodes {
    backend: Backend,
    capabilities: Capabilities,
    sandbox: SandboxReport,
    passed_over: Vec<(Backend, WorkerError)>,
}

/// Workers that measure with `device`, which one of them has opened; the CPU needs no trying.
fn try_gate(program: &WorkerProgram, device: GateDevice) -> Result<WorkerProgram, WorkerError> {
    let backend = device.backend;
    if backend == GateBackend::Cpu {
        return Ok(program.clone());
    }
    if !backend.is_built() {
        return Err(Fault::Gate(GateError::NotBuilt { backend }).into());
    }
    Process::spawn(&program.clone().with_gate(device), &Limits::default(), Life::Open)?;
    Ok(program.clone().with_gate(GateDevice { was_there: true, ..device }))
}

/// The last candidate's failure is an error; those before it are told.
fn first_that_measures(
    candidates: &[GateDevice],
    mut attempt: impl FnMut(GateDevice) -> Result<WorkerProgram, WorkerError>,
) -> Result<(WorkerProgram, GateSelection), SelectError> {
    let mut passed_over: Vec<(GateBackend, WorkerError)> = Vec::new();
    for &device in candidates {
        let backend = device.backend;
        match attempt(device) {
            Ok(program) => return Ok((program, GateSelection { backend, passed_over })),
            Err(error) => passed_over.push((backend, error)),
        }
    }
    let last = passed_over.pop();
    let (backend, source) = last.unwrap_or((GateBackend::Cpu, WorkerError::Ended));
    Err(SelectError::Gate { backend, source })
}

/// What a backend comes to: workers that use it, what they decode and how they are confined.
type Found = (Supervisor, Capabilities, SandboxReport);

/// Workers that decode with `backend` what it really decodes.
fn try_backend(
    program: &WorkerProgram,
    wanted: &Wanted,
    backend: Backend,
) -> Result<Found, WorkerError> {
    if backend == Backend::Software {
        let supervisor = Supervisor::new(program.clone());
        let (capabilities, report) = supervisor.capabilities()?;
        return Ok((supervisor, capabilities, report));
    }
    let ffmpeg = match backend {
        Backend::FfmpegCli => Some(usable(program, wanted.ffmpeg.as_ref())?),
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
fn usable(program: &WorkerProgram, ffmpeg: Option<&PathBuf>) -> Result<PathBuf, Fault> {
    let searched = || "SERVICE_FFMPEG_PATH and PATH".to_owned();
    let found = ffmpeg.ok_or_else(|| BackendError::Program { searched: searched() });
    let found = found.map_err(Fault::Backend)?;
    program.check_external(found).map_err(Fault::Backend)?;
    Ok(found.clone())
}

/// The codecs of which every clip was decoded by `backend` alone.
fn decoded_by(backend: Backend, tried: &[Tried]) -> Result<Vec<Codec>, Fault> {
    let is_right = |tried: &&Tried| tried.reason.is_none() && is_of(backend, tried);
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
    Err(Fault::Backend(BackendError::DecodesNothing { reason }))
}

fn is_of(backend: Backend, tried: &Tried) -> bool {
    let decoder = tried.decoder.as_deref().and_then(|name| name.split_once(':'));
    decoder.is_some_and(|(name, _)| name == backend.as_str())
}

/// The last candidate's failure is an error; those before it are told.
fn first_that_decodes(
    candidates: &[Backend],
    mut attempt: impl FnMut(Backend) -> Result<Found, WorkerError>,
) -> Result<(Supervisor, Decodes), WorkerError> {
    let mut passed_over: Vec<(Backend, WorkerError)> = Vec::new();
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
mod tests {
    use super::*;
    use crate::SandboxLevel;

    fn tried(codec: Codec, bits: u8, decoder: &str, reason: Option<&str>) -> Tried {
        let (decoder, reason) = (Some(decoder.to_owned()), reason.map(str::to_owned));
        Tried { codec, bits, decoder, reason }
    }

    #[test]
    fn a_device_is_asked_for_what_it_decoded_alone() {
        let nvdec = |tried: &[Tried]| decoded_by(Backend::Nvdec, tried);
        let all = [
            tried(Codec::H264, 8, "nvdec:h264", None),
            tried(Codec::H265, 8, "nvdec:hevc+software:hevc", Some("unplugged")),
            tried(Codec::H265, 10, "nvdec:hevc", None),
            tried(Codec::Vp9, 8, "nvdec:vp9", None),
            tried(Codec::Vp9, 10, "software:vp9", Some("not on this device")),
            tried(Codec::Av1, 8, "software:libdav1d", Some("other pictures")),
            tried(Codec::Mpeg4, 8, "software:mpeg4", None),
        ];
        assert_eq!(nvdec(&all), Ok(vec![Codec::H264, Codec::Vp9]));
        let error = nvdec(&all[5..]).expect_err("nothing of it");
        assert_eq!(
            error.to_string(),
            "it decodes none of the clips that are tried: other pictures"
        );
        assert!(nvdec(&[]).is_err());
    }

    fn found() -> Found {
        let codecs = vec![tried(Codec::H264, 8, "software:h264", None)];
        let report = SandboxReport {
            landlock_abi: 7,
            seccomp: true,
            rlimits: true,
            level: SandboxLevel::Full,
        };
        let capabilities = Capabilities { codecs, measurer: "cpu".to_owned() };
        (Supervisor::new(WorkerProgram::at("/none")), capabilities, report)
    }

    #[test]
    fn what_nobody_names_is_tried_in_turn_and_a_name_is_binding() {
        use Backend::{Nvdec, Software, Vaapi};
        /// What is asked for, what decodes, what is selected and what is passed over.
        type Case = (Choice, &'static [Backend], Option<Backend>, &'static [Backend]);
        let rows: [Case; 6] = [
            (Choice::Auto, &[Nvdec, Vaapi, Software], Some(Nvdec), &[]),
            (Choice::Auto, &[Vaapi, Software], Some(Vaapi), &[Nvdec]),
            (Choice::Auto, &[Software], Some(Software), &[Nvdec, Vaapi]),
            (Choice::Auto, &[], None, &[]),
            (Choice::Named(Nvdec), &[Vaapi, Software], None, &[]),
            (Choice::Named(Software), &[Nvdec, Vaapi, Software], Some(Software), &[]),
        ];
        for (choice, there, expected, passed_over) in rows {
            let wanted = Wanted { choice, ..Wanted::default() };
            let selected = first_that_decodes(&wanted.candidates(), |backend| {
                if there.contains(&backend) { Ok(found()) } else { Err(WorkerError::Ended) }
            });
            let selected = selected.ok().map(|(_, selection)| selection);
            let case = format!("{choice:?} of {there:?}");
            assert_eq!(selected.as_ref().map(|found| found.backend), expected, "{case}");
            if let Some(found) = selected {
                let names: Vec<Backend> = found.passed_over.iter().map(|over| over.0).collect();
                assert_eq!(names, passed_over, "{case}");
            }
        }
    }

    #[test]
    fn gates_are_tried_in_turn_and_only_a_name_takes_an_adapter_that_is_a_cpu() {
        use GateBackend::{Cpu, Cuda, Wgpu};
        /// What is asked for, what measures, what is selected and what is passed over.
        type Case =
            (GateChoice, &'static [GateBackend], Option<GateBackend>, &'static [GateBackend]);
        let rows: [Case; 5] = [
            (GateChoice::Auto, &[Cuda, Wgpu, Cpu], Some(Cuda), &[]),
            (GateChoice::Auto, &[Wgpu, Cpu], Some(Wgpu), &[Cuda]),
            (GateChoice::Auto, &[Cpu], Some(Cpu), &[Cuda, Wgpu]),
            (GateChoice::Named(Wgpu), &[Cuda, Cpu], None, &[]),
            (GateChoice::Named(Cpu), &[Cuda, Wgpu, Cpu], Some(Cpu), &[]),
        ];
        for (gate, there, expected, passed_over) in rows {
            let wanted = Wanted { gate, device: Some("3".to_owned()), ..Wanted::default() };
            let candidates = wanted.gate_candidates();
            let is_named = gate != GateChoice::Auto;
            for candidate in &candidates {
                assert_eq!((candidate.number, candidate.is_named), (3, is_named), "{gate:?}");
            }
            let selected = first_that_measures(&candidates, |device| {
                let found = there.contains(&device.backend);
                found.then(|| WorkerProgram::at("/none")).ok_or(WorkerError::Ended)
            });
            let case = format!("{gate:?} of {there:?}");
            match selected {
                Ok((_, found)) => {
                    let names: Vec<_> = found.passed_over.iter().map(|over| over.0).collect();
                    assert_eq!(
                        (Some(found.backend), &names[..]),
                        (expected, passed_over),
                        "{case}"
                    );
                }
                Err(SelectError::Gate { backend, .. }) => {
                    assert_eq!((expected, gate), (None, GateChoice::Named(backend)), "{case}");
                }
                Err(error) => panic!("{case}: {error}"),
            }
        }
    }
}
