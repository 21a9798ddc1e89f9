//! Which backend decodes here: what was asked for, tried in a real worker.
//!
//! A backend that is asked for by name is used or is an error. What nobody names is tried in turn, and
//! what was passed over is told with its reason.

use decode::{Backend, BackendError, DeviceSpec, Tried};
use media::Codec;

use crate::{Capabilities, Fault, SandboxReport, Supervisor, WorkerError, WorkerProgram};

/// Which backend is to decode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Choice {
    /// The first device that decodes, else libav's own decoders.
    #[default]
    Auto,
    /// This one.
    Named(Backend),
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
}

impl Wanted {
    /// What to try, in order.
    fn candidates(&self) -> Vec<Backend> {
        match self.choice {
            Choice::Auto => Backend::ALL.into(),
            Choice::Named(backend) => vec![backend],
        }
    }

    fn spec(&self, backend: Backend) -> DeviceSpec {
        DeviceSpec { backend, device: self.device.clone(), capabilities: self.capabilities.clone() }
    }
}

impl Supervisor {
    /// Starts workers of `program` with the first backend of those wanted that decodes.
    pub fn select(
        program: &WorkerProgram,
        wanted: &Wanted,
    ) -> Result<(Supervisor, Selection), WorkerError> {
        first_that_decodes(&wanted.candidates(), |backend| try_backend(program, wanted, backend))
    }
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
    let with = |codecs| {
        let program = program.clone().with_device(wanted.spec(backend), codecs);
        Supervisor::new(program)
    };
    let (capabilities, report) = with(Codec::ALL.into()).capabilities()?;
    let codecs = decoded_by(backend, &capabilities.codecs)?;
    Ok((with(codecs), capabilities, report))
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
) -> Result<(Supervisor, Selection), WorkerError> {
    let mut passed_over: Vec<(Backend, WorkerError)> = Vec::new();
    for &backend in candidates {
        match attempt(backend) {
            Ok((supervisor, capabilities, sandbox)) => {
                let selection = Selection { backend, capabilities, sandbox, passed_over };
                return Ok((supervisor, selection));
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
}
