//! The worker's side: enter the sandbox, then do what the control socket says until it closes.

use std::{
    io::{self, Stdin},
    ops::ControlFlow,
    process::ExitCode,
    sync::Arc,
};

use decode::{BackendError, Decoders, Device};

use crate::{
    Fault, JobEvent, JobOptions, capabilities, descriptors, job,
    line::Line,
    probe,
    protocol::{Reply, Request, Source},
    sandbox::{self, Asked},
    session::Sessions,
    source::{self, Trouble},
    wire::ProtocolError,
};

/// First argument of a process that is to be a worker.
pub(crate) const ARGUMENT: &str = "media-worker";

/// This process was started to be a worker; its `main` must call [`worker_main`] and nothing else.
pub fn is_worker_invocation() -> bool {
    std::env::args_os().nth(1).is_some_and(|argument| argument == ARGUMENT)
}

/// The whole life of a worker. The process must have one thread and descriptor 0 be its socket.
pub fn worker_main() -> ExitCode {
    match serve() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("media worker: {error}");
            ExitCode::FAILURE
        }
    }
}

fn serve() -> io::Result<()> {
    descriptors::close_inherited()?;
    let line = Arc::new(Line::new(io::stdin(), io::stdin()));
    let confinement = match line.next()? {
        Some(Request::Confine(confinement)) => confinement,
        Some(_) => return Err(io::Error::other("the first message must confine the worker")),
        // Nobody wants it any more.
        None => return Ok(()),
    };
    let (report, decoders) = match sandbox::enter(&confinement, open_device) {
        Ok(entered) => entered,
        Err(error) => return line.send(&Reply::Failed(Fault::Backend(error))),
    };
    line.send(&Reply::Confined(report))?;

    let decoders = Arc::new(decoders);
    let mut sessions = Sessions::new(Arc::clone(&line), Arc::clone(&decoders));
    while let Some(request) = line.next()? {
        match request {
            Request::Job { source, options } => run_job(source, &options, &decoders, &line)?,
            Request::Look => line.send(&Reply::Able(capabilities::look(&decoders)))?,
            Request::Probe => line.send(&Reply::Probed(probe::attempts()))?,
            Request::Confine(_) => {
                return Err(io::Error::other(ProtocolError::Unexpected("confine")));
            }
            live => sessions.take(live)?,
        }
    }
    Ok(())
}

fn open_device(asked: Option<&Asked>) -> Result<Decoders, BackendError> {
    let Some(Asked { spec, codecs, .. }) = asked else { return Ok(Decoders::software()) };
    Ok(Decoders::with_device(Device::open(spec)?, codecs.clone()))
}

fn run_job(
    source: Source,
    options: &JobOptions,
    decoders: &Decoders,
    line: &Arc<Line<Stdin>>,
) -> io::Result<()> {
    let emit = |event: JobEvent| match line.send(&Reply::Job(event)) {
        Ok(()) => ControlFlow::Continue(()),
        // The supervisor is gone, or will see what is wrong with the socket itself.
        Err(_) => ControlFlow::Break(()),
    };
    let trouble = Trouble::default();
    let outcome = source::open(source, line, &trouble)
        .and_then(|demuxer| job::analyze_opened(demuxer, options, decoders, &emit));
    match trouble.explain(outcome) {
        Ok(report) => line.send(&Reply::Job(JobEvent::Done(report))),
        Err(Fault::Stopped) => Ok(()),
        Err(fault) => line.send(&Reply::Failed(fault)),
    }
}
