//! The worker's side: enter the sandbox, then do what the control socket says until it closes.

use std::{
    fs::File,
    io::{self, Read, Seek, SeekFrom},
    ops::ControlFlow,
    os::{
        fd::{AsFd, BorrowedFd},
        unix::fs::FileExt,
    },
    process::ExitCode,
};

use crate::{
    Fault, JobEvent, JobOptions,
    channel::{Incoming, Outbox},
    descriptors, job, probe,
    protocol::{Reply, Request},
    sandbox,
    session::Sessions,
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
    let socket = io::stdin();
    let mut inbox = Inbox { socket: socket.as_fd(), incoming: Incoming::default() };
    let Some(Request::Confine(confinement)) = inbox.next(|| Ok(()))? else {
        return Err(io::Error::other("the first message must confine the worker"));
    };
    let report = sandbox::enter(&confinement);
    let outbox = Outbox::new(socket.as_fd());
    outbox.send(&Reply::Confined(report))?;

    let mut sessions = Sessions::default();
    let (mut consumed, mut acknowledged) = (0, 0);
    loop {
        let acknowledge = || {
            if acknowledged < consumed {
                acknowledged = consumed;
                outbox.send(&Reply::Consumed { units: consumed })?;
            }
            Ok(())
        };
        let Some(request) = inbox.next(acknowledge)? else {
            return Ok(());
        };
        consumed += u64::from(matches!(request, Request::AccessUnit { .. }));
        match request {
            Request::Job { len, options } => {
                let file = File::from(inbox.incoming.descriptor().map_err(io::Error::other)?);
                run_job(InputFile { file, len, at: 0 }, &options, &outbox)?;
            }
            Request::Probe => outbox.send(&Reply::Probed(probe::attempts()))?,
            Request::Confine(_) => {
                return Err(io::Error::other(ProtocolError::Unexpected("confine")));
            }
            live => sessions.take(live, &mut |session, event| {
                outbox.send(&Reply::Session { session, event })
            })?,
        }
    }
}

fn run_job<S: AsFd + Sync>(
    input: InputFile,
    options: &JobOptions,
    outbox: &Outbox<S>,
) -> io::Result<()> {
    let emit = |event: JobEvent| match outbox.send(&Reply::Job(event)) {
        Ok(()) => ControlFlow::Continue(()),
        // The supervisor is gone, or will see what is wrong with the socket itself.
        Err(_) => ControlFlow::Break(()),
    };
    match job::analyze(input, options, &emit) {
        Ok(report) => outbox.send(&Reply::Job(JobEvent::Done(report))),
        Err(Fault::Stopped) => Ok(()),
        Err(fault) => outbox.send(&Reply::Failed(fault)),
    }
}

struct Inbox<'a> {
    socket: BorrowedFd<'a>,
    incoming: Incoming,
}

impl Inbox<'_> {
    /// The next request; `None` when the server has closed its end. Calls `idle` before waiting.
    fn next(&mut self, mut idle: impl FnMut() -> io::Result<()>) -> io::Result<Option<Request>> {
        loop {
            if let Some(request) = self.incoming.next().map_err(io::Error::other)? {
                return Ok(Some(request));
            }
            idle()?;
            if self.incoming.wait(self.socket)? == 0 {
                return Ok(None);
            }
        }
    }
}

/// A file by its descriptor, with a position of its own: the server's is the same open file.
struct InputFile {
    file: File,
    len: u64,
    at: u64,
}

impl Read for InputFile {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        // What is appended while the job runs is not part of the input.
        let left = self.len.saturating_sub(self.at);
        let want = out.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        let len = self.file.read_at(&mut out[..want], self.at)?;
        self.at += len as u64;
        Ok(len)
    }
}

impl Seek for InputFile {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let target = match to {
            SeekFrom::Start(at) => Some(at),
            SeekFrom::Current(by) => self.at.checked_add_signed(by),
            SeekFrom::End(by) => self.len.checked_add_signed(by),
        };
        self.at = target.ok_or(io::ErrorKind::InvalidInput)?;
        Ok(self.at)
    }
}
