//! A worker process as held by its supervisor: starts it, talks to it, watches its limits, always reaps it.

mod helper_programs;

use std::{
    collections::VecDeque,
    fs::File,
    io::{self, Read},
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::process::ExitStatusExt,
    },
    time::{Duration, Instant},
};

use media::{Codec, escaped};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
    pipe::{PipeFlags, pipe_with},
};

use crate::{
    SandboxReport, WorkerError, WorkerLimits, WorkerProgram,
    channel::{ReceiveBuffer, SendQueue, pair, send_with},
    child::Child,
    fork_server::Ends,
    protocol::{WorkerReply, WorkerRequest},
    sandbox::SandboxLimits,
    session::SESSION_THREADS_MAX,
    wire::WireError,
};
use helper_programs::HelperPrograms;

/// Last bytes of stderr that are kept for an error.
const STDERR_BYTES_MAX: usize = 4 << 10;

/// Time between two checks of a worker's memory, and longest delay before a cancel is noticed.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Time span in which a worker without a set length may send its `output_bytes`.
const OUTPUT_SPAN: Duration = Duration::from_secs(60);

/// Handle to a running worker; dropping it kills and reaps the process.
///
/// The kernel kills an executed worker, unlike a forked one, with the thread that started it.
pub(crate) struct WorkerProcess {
    child: Child,
    program: WorkerProgram,
    externals: HelperPrograms,
    socket: OwnedFd,
    stderr: Option<File>,
    stderr_tail: VecDeque<u8>,
    incoming: ReceiveBuffer,
    backlog: SendQueue,
    limits: WorkerLimits,
    threads_max: u64,
    output: OutputBudget,
    looked: Instant,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WorkerLifetime {
    /// Lives for one job with this many decoding threads and this much CPU time. An endless job has no set
    /// length: it runs while models look at its views or a camera sends pictures.
    Job { threads: usize, cpu_seconds: u64, is_endless: bool },
    /// Lives until its owner ends it; decodes on one thread per core, [`SESSION_THREADS_MAX`] at most.
    Open,
}

impl WorkerLifetime {
    /// Returns the most threads of a well-behaved worker: each decoding thread's decoder may start another,
    /// one wide decoder has as many again plus one, and some feed and gather.
    fn threads_max(self) -> u64 {
        let decoding = match self {
            WorkerLifetime::Job { threads, .. } => threads as u64,
            WorkerLifetime::Open => SESSION_THREADS_MAX as u64,
        };
        4 * decoding + 32
    }
}

impl WorkerProcess {
    /// Starts a worker and waits until it is confined.
    pub fn spawn(
        program: &WorkerProgram,
        limits: &WorkerLimits,
        life: WorkerLifetime,
    ) -> Result<(WorkerProcess, SandboxReport), WorkerError> {
        let start = || -> io::Result<(Child, OwnedFd, File)> {
            let (socket, theirs) = pair()?;
            let (stderr, says) = pipe_with(PipeFlags::CLOEXEC)?;
            let child = program.start(Ends { socket: theirs, stderr: says })?;
            // The worker still has only one thread, so all of its threads inherit the priority.
            child.give_way(limits.niceness);
            Ok((child, socket, stderr.into()))
        };
        let (child, socket, stderr) = start().map_err(WorkerError::Spawn)?;
        let mut process = WorkerProcess {
            child,
            program: program.clone(),
            externals: HelperPrograms::new(limits, life),
            socket,
            stderr: Some(stderr),
            stderr_tail: VecDeque::new(),
            incoming: ReceiveBuffer::default(),
            backlog: SendQueue::default(),
            limits: limits.clone(),
            threads_max: limits.threads.unwrap_or(life.threads_max() + program.driver_threads()),
            output: OutputBudget::new(limits.output_bytes, life),
            looked: Instant::now(),
        };
        let confinement = SandboxLimits {
            memory_bytes: limits.memory_bytes,
            cpu_seconds: match life {
                WorkerLifetime::Job { cpu_seconds, .. } => Some(cpu_seconds),
                WorkerLifetime::Open => None,
            },
            parent: std::process::id(),
            device: program.device.clone(),
            program: program.external_codecs(),
            gate: program.gate,
            libraries: program.libraries(),
        };
        match process.ask(&WorkerRequest::Confine(confinement))? {
            WorkerReply::Confined(report) => Ok((process, program.judge(report)?)),
            WorkerReply::Failed(fault) => Err(fault.into()),
            _ => Err(WireError::Unexpected("first").into()),
        }
    }

    /// Sends a request and waits for one reply, up to the limit for a first frame.
    pub fn ask(&mut self, request: &WorkerRequest) -> Result<WorkerReply, WorkerError> {
        self.backlog.push(request)?;
        let asked = Instant::now();
        loop {
            if let Some(reply) = self.next()? {
                return Ok(reply);
            }
            let after = self.limits.first_frame;
            if asked.elapsed() > after {
                return Err(WorkerError::FirstFrameTimeout(after));
            }
            self.wait(None)?;
        }
    }

    /// Returns the next reply. If there is none, checks the worker's limits, waits a short while or until
    /// `wake` is readable, and returns `None`.
    pub fn poll(
        &mut self,
        wake: Option<BorrowedFd<'_>>,
    ) -> Result<Option<WorkerReply>, WorkerError> {
        let reply = self.next()?;
        if reply.is_none() {
            self.check_limits()?;
            self.wait(wake)?;
        }
        Ok(reply)
    }

    pub fn backlog(&mut self) -> &mut SendQueue {
        &mut self.backlog
    }

    /// Sends a request with a descriptor, without queueing, to a worker that is reading.
    pub fn send_with(
        &mut self,
        request: &WorkerRequest,
        descriptor: BorrowedFd<'_>,
    ) -> Result<(), WorkerError> {
        match send_with(self.socket.as_fd(), request, descriptor) {
            Ok(()) => Ok(()),
            // The worker asks and does not read the answers.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                Err(WireError::Unexpected("open").into())
            }
            Err(_) => Err(self.exit_error()),
        }
    }

    fn next(&mut self) -> Result<Option<WorkerReply>, WorkerError> {
        loop {
            match self.incoming.next()? {
                Some(WorkerReply::Program { codec }) => self.start_external(codec)?,
                reply => return Ok(reply),
            }
        }
    }

    /// Starts the program that the worker asks for, and sends it the program's descriptors.
    fn start_external(&mut self, codec: Codec) -> Result<(), WorkerError> {
        let Ends { socket, stderr } = self.externals.start(&self.program, codec)?;
        self.send_with(&WorkerRequest::Program, socket.as_fd())?;
        self.send_with(&WorkerRequest::Program, stderr.as_fd())
    }

    pub fn last_reply(&self) -> u64 {
        self.incoming.last()
    }

    pub fn received(&self) -> u64 {
        self.incoming.total()
    }

    /// Sends and receives what is possible; if nothing is, waits a short while or until `wake` is readable. An
    /// error once the worker has closed its end and all that it sent was received.
    fn wait(&mut self, wake: Option<BorrowedFd<'_>>) -> Result<(), WorkerError> {
        if self.backlog.send(self.socket.as_fd()).is_err() {
            // The worker is gone; what it sent before is read first.
            return self.listen();
        }
        let interest =
            if self.backlog.len() > 0 { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN };
        let mut sources = vec![PollFd::new(&self.socket, interest)];
        sources.extend(self.stderr.as_ref().map(|stderr| PollFd::new(stderr, PollFlags::IN)));
        sources.extend(wake.map(|wake| PollFd::from_borrowed_fd(wake, PollFlags::IN)));
        let timeout = Timespec { tv_sec: 0, tv_nsec: LOOK_EVERY.as_nanos() as i64 };
        match poll(&mut sources, Some(&timeout)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(WorkerError::Io(error.into())),
        }
        let says = !sources[0].revents().difference(PollFlags::OUT).is_empty();
        let complains = self.stderr.is_some() && !sources[1].revents().is_empty();
        if complains {
            self.keep_stderr();
        }
        if says { self.listen() } else { Ok(()) }
    }

    fn listen(&mut self) -> Result<(), WorkerError> {
        match self.incoming.fill(self.socket.as_fd()).map_err(WorkerError::Io)? {
            Some(0) => Err(self.exit_error()),
            Some(_) | None => Ok(()),
        }
    }

    /// Checks the worker's limits, not more often than every `LOOK_EVERY`.
    fn check_limits(&mut self) -> Result<(), WorkerError> {
        self.output.check(self.incoming.total(), Instant::now())?;
        if self.looked.elapsed() < LOOK_EVERY {
            return Ok(());
        }
        self.looked = Instant::now();
        // A worker that has just died has no status; its closed socket is noticed soon.
        let Some(used) = self.child.usage() else { return Ok(()) };
        let (limit_bytes, limit) = (self.limits.memory_bytes, self.threads_max);
        if used.memory_bytes > limit_bytes {
            return Err(WorkerError::MemoryLimit { limit_bytes });
        }
        if used.threads > limit {
            return Err(WorkerError::ThreadLimit(limit));
        }
        // If a program takes too much of the memory they share, it is ended and the worker goes on.
        self.externals.keep_within(limit_bytes - used.memory_bytes, limit);
        Ok(())
    }

    /// Returns the reason that the worker closed its end; kills it if it lives.
    fn exit_error(&mut self) -> WorkerError {
        // An exiting process keeps its exit status: the kill affects only one that lives on.
        let ended = self.child.end();
        while self.stderr.is_some() {
            self.keep_stderr();
        }
        let stderr = String::from_utf8_lossy(self.stderr_tail.make_contiguous());
        let stderr = escaped(stderr.trim()).into_owned();
        let status = match ended {
            Ok(status) => status,
            Err(error) => return WorkerError::Io(error),
        };
        match status.signal() {
            Some(libc::SIGXCPU) => WorkerError::ProcessorTime,
            Some(libc::SIGABRT) if stderr.contains("memory allocation of") => {
                WorkerError::MemoryLimit { limit_bytes: self.limits.memory_bytes }
            }
            Some(signal) => {
                self.program.forget_layout();
                match signal {
                    libc::SIGKILL => WorkerError::KilledOutside,
                    signal => WorkerError::Killed { signal, stderr },
                }
            }
            None => WorkerError::Exited { code: status.code().unwrap_or(-1), stderr },
        }
    }

    /// Reads stderr once, which must be readable or closed; keeps its last bytes.
    fn keep_stderr(&mut self) {
        let Some(stderr) = &mut self.stderr else { return };
        let mut text = [0; STDERR_BYTES_MAX];
        match stderr.read(&mut text) {
            Ok(0) | Err(_) => self.stderr = None,
            Ok(len) => {
                self.stderr_tail.extend(&text[..len]);
                let excess = self.stderr_tail.len().saturating_sub(STDERR_BYTES_MAX);
                self.stderr_tail.drain(..excess);
            }
        }
    }
}

/// Byte budget of a worker: one for a whole job, or one for every [`OUTPUT_SPAN`] if its length is not set.
struct OutputBudget {
    limit_bytes: u64,
    life: WorkerLifetime,
    /// Start of the current span, and the bytes sent before it.
    since: Instant,
    before: u64,
}

impl OutputBudget {
    fn new(limit_bytes: u64, life: WorkerLifetime) -> OutputBudget {
        OutputBudget { limit_bytes, life, since: Instant::now(), before: 0 }
    }

    /// Checks `total`, all bytes sent so far, against the budget.
    fn check(&mut self, total: u64, now: Instant) -> Result<(), WorkerError> {
        let limit_bytes = self.limit_bytes;
        if total - self.before > limit_bytes {
            return Err(WorkerError::OutputBudget { limit_bytes });
        }
        let has_length = matches!(self.life, WorkerLifetime::Job { is_endless: false, .. });
        if !has_length && now.duration_since(self.since) > OUTPUT_SPAN {
            (self.since, self.before) = (now, total);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_has_one_output_budget_and_a_paced_life_one_for_every_span() {
        let job = |is_endless| WorkerLifetime::Job { threads: 1, cpu_seconds: 1, is_endless };
        // Rows: life, bytes sent per second, and the second in which they exceed the budget of 600.
        for (name, life, rate, over) in [
            ("job", job(false), 6, Some(101)),
            ("modest endless job", job(true), 6, None),
            ("flooding endless job", job(true), 60, Some(11)),
            ("modest live worker", WorkerLifetime::Open, 6, None),
            ("flooding live worker", WorkerLifetime::Open, 60, Some(11)),
        ] {
            let mut budget = OutputBudget::new(600, life);
            let start = budget.since;
            let second_over = (1..100_000).find(|&second| {
                budget.check(second * rate, start + Duration::from_secs(second)).is_err()
            });
            assert_eq!(second_over, over, "{name}");
        }
    }
}
