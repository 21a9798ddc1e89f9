//! Main function of a worker: enters the sandbox, then serves the control socket until it closes.

use std::{ffi::OsString, io, ops::ControlFlow, process::ExitCode, sync::Arc, time::Instant};

use decode::{BackendError, DecoderChain, HwDevice, try_clips};
use media::Codec;
use rustix::stdio::stdin;

use crate::{
    Capabilities, JobEvent, JobFault, JobOptions,
    control_socket::ControlSocket,
    excerpt, fork, fork_server,
    gate_device::GateMeasurement,
    job, launcher,
    protocol::{InputSource, WorkerReply, WorkerRequest},
    sandbox::{self, RequestedDevice, SandboxLimits},
    sandbox_probe,
    session::SessionPool,
    source::{self, Place, SourceErrorCell},
    still::JpegEncoder,
    wire::WireError,
};

/// First argument of a process that becomes a worker.
pub(crate) const ARGUMENT: &str = "media-worker";

/// Returns true if this process was started as a worker or as one of its helpers; its `main` must then call
/// [`worker_main`] and nothing else.
pub fn is_worker_invocation() -> bool {
    let ours = [ARGUMENT, fork_server::ARGUMENT, launcher::ARGUMENT, sandbox_probe::ARGUMENT];
    first_argument().is_some_and(|argument| ours.iter().any(|ours| argument == *ours))
}

fn first_argument() -> Option<OsString> {
    std::env::args_os().nth(1)
}

/// Runs a worker or helper. The process must have one thread, and its descriptor 0 must be the socket.
pub fn worker_main() -> ExitCode {
    let served = match first_argument() {
        Some(argument) if argument == launcher::ARGUMENT => return launcher::launch(),
        Some(argument) if argument == sandbox_probe::ARGUMENT => sandbox_probe::say(),
        Some(argument) if argument == fork_server::ARGUMENT => {
            fork::close_inherited().and_then(|()| fork_server::serve(serve))
        }
        _ => serve(),
    };
    match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("media worker: {error}");
            ExitCode::FAILURE
        }
    }
}

fn serve() -> io::Result<()> {
    fork::close_inherited()?;
    let line = Arc::new(ControlSocket::new(stdin()));
    let confinement = match line.next()? {
        Some(WorkerRequest::Confine(confinement)) => confinement,
        Some(_) => return Err(io::Error::other("the first message must confine the worker")),
        // The server has dropped the worker before using it.
        None => return Ok(()),
    };
    let (report, (decoders, measuring)) =
        match sandbox::enter(&confinement, |given| open_devices(given, &line)) {
            Ok(entered) => entered,
            Err(fault) => return line.send(&WorkerReply::Failed(fault)),
        };
    line.send(&WorkerReply::Confined(report))?;

    let decoders = Arc::new(decoders);
    let mut sessions =
        SessionPool::new(Arc::clone(&line), Arc::clone(&decoders), measuring.clone());
    while let Some(request) = line.next()? {
        match request {
            WorkerRequest::Job { source, options } => {
                run_job(source, &options, (&decoders, &measuring), &line)?;
            }
            WorkerRequest::Look => {
                let (codecs, measurer) = (try_clips(&decoders), measuring.name());
                line.send(&WorkerReply::Capabilities(Capabilities { codecs, measurer }))?;
            }
            WorkerRequest::Excerpt { len, from_ms, to_ms } => {
                excerpt::cut(len, from_ms..to_ms, &line)?
            }
            WorkerRequest::Shrink { jpeg, edge_max } => line.send(&shrink(&jpeg, edge_max))?,
            WorkerRequest::Probe => line.send(&WorkerReply::Probed(sandbox_probe::attempts()))?,
            WorkerRequest::Confine(_) => {
                return Err(io::Error::other(WireError::Unexpected("confine")));
            }
            live => sessions.take(live)?,
        }
    }
    Ok(())
}

fn open_devices(
    given: &SandboxLimits,
    line: &Arc<ControlSocket>,
) -> Result<(DecoderChain, GateMeasurement), JobFault> {
    // The decoding device first: its libav sets the flags of the context that both share.
    let device = given.device.as_ref().map(open_device).transpose().map_err(JobFault::Backend)?;
    let measuring = GateMeasurement::open(given.gate.as_ref()).map_err(JobFault::Gate)?;
    let decoders = match (device, &given.device) {
        (Some(opened), Some(asked)) => decoders_on(opened, &asked.codecs, measuring.nvidia()),
        _ if given.program.is_empty() => DecoderChain::software(),
        _ => {
            let line = Arc::clone(line);
            let start = move |codec| Ok(launcher::conversation(line.program(codec)?));
            DecoderChain::with_program(Arc::new(start), given.program.clone())
        }
    };
    Ok((decoders, measuring))
}

/// Decodes on the device; pictures stay in its memory if the NVIDIA device that measures reads them there.
fn decoders_on(
    opened: Result<HwDevice, BackendError>,
    codecs: &[Codec],
    nvidia: Option<u32>,
) -> DecoderChain {
    let codecs = codecs.to_vec();
    match (opened, nvidia) {
        (Ok(device), Some(number)) => {
            DecoderChain::with_device(device.keeping_pictures_on(number), codecs)
        }
        (Ok(device), None) => DecoderChain::with_device(device, codecs),
        (Err(error), _) => DecoderChain::without_device(error, codecs),
    }
}

/// Opens a device; the inner error is of one that worked at the server's start.
fn open_device(asked: &RequestedDevice) -> Result<Result<HwDevice, BackendError>, BackendError> {
    match HwDevice::open(&asked.spec) {
        Err(error) if !asked.was_there => Err(error),
        opened => Ok(opened),
    }
}

fn shrink(jpeg: &[u8], edge_max: u32) -> WorkerReply {
    let shrunk = JpegEncoder::new().and_then(|mut encoder| encoder.shrink(jpeg, edge_max));
    shrunk.map_or_else(WorkerReply::Failed, WorkerReply::Shrunk)
}

fn run_job(
    source: InputSource,
    options: &JobOptions,
    tools: (&DecoderChain, &GateMeasurement),
    line: &Arc<ControlSocket>,
) -> io::Result<()> {
    let begun = Instant::now();
    let place = Place::of(options.resume.as_ref());
    let say = |event: JobEvent| {
        if let Some(next) = place.news() {
            line.send(&WorkerReply::Job(JobEvent::Segment { next }))?;
        }
        line.send(&WorkerReply::Job(event))
    };
    let emit = |event: JobEvent| match say(event) {
        Ok(()) => ControlFlow::Continue(()),
        // The supervisor is gone, or will notice the broken socket itself.
        Err(_) => ControlFlow::Break(()),
    };
    let trouble = SourceErrorCell::default();
    let outcome = source::open(source, line, &trouble, &place).and_then(|demuxer| {
        let silence = demuxer.heard_at().unwrap_or(begun).saturating_duration_since(begun);
        job::analyze_opened(demuxer, &options.heard_after(silence), tools, &emit)
    });
    match trouble.explain(outcome) {
        Ok(report) => say(JobEvent::Done(report)),
        Err(JobFault::Stopped) => Ok(()),
        Err(fault) => {
            if let Some(next) = place.passed() {
                line.send(&WorkerReply::Job(JobEvent::Segment { next }))?;
            }
            line.send(&WorkerReply::Failed(fault))
        }
    }
}

#[cfg(test)]
mod tests {
    use decode::{DecodeBackend, HwDeviceSpec};

    use super::*;

    /// No machine has a device of this number, and one without a driver has no device at all.
    #[test]
    fn a_device_that_was_there_and_opens_no_more_is_replaced_by_software() {
        let asked = |was_there| RequestedDevice {
            spec: HwDeviceSpec {
                backend: DecodeBackend::Nvdec,
                device: Some("4000".to_owned()),
                capabilities: None,
            },
            codecs: vec![Codec::H264],
            was_there,
        };
        let error = open_device(&asked(false)).err().expect("at the start that is an error");
        let opened = open_device(&asked(true)).expect("later it is not");
        let decoders = decoders_on(opened, &[Codec::H264], None);
        assert_eq!(decoders.gone(Codec::H264), Some(&error));
        for tried in try_clips(&decoders) {
            let decoder = tried.decoder.as_deref().unwrap_or_default();
            assert!(decoder.starts_with("software:"), "{tried:?}");
            let fallback = (tried.codec == Codec::H264).then(|| error.to_string());
            assert_eq!(tried.reason, fallback, "{:?}", tried.codec);
        }
    }
}
