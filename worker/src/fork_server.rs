//! Starts workers as forks of a process that has loaded the program, so that no job waits for the loader.
//!
//! Promises that a forked worker is the server's child, like an executed one; that a failing fork server
//! costs no job; and that workers started after one was killed have another memory layout. The fork server is
//! not sandboxed, and reads nothing but the server's messages.

use std::{
    fmt,
    fs::File,
    io::{self, Read, Write},
    os::fd::{AsFd, OwnedFd},
    sync::{Mutex, MutexGuard, PoisonError},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::retry_on_intr,
    net::{RecvFlags, SendFlags, recv, send},
    pipe::{PipeFlags, pipe_with},
    process::{Pid, WaitOptions, getpid, set_child_subreaper, setpgid, waitpid},
    stdio::{dup2_stderr, dup2_stdin, stdin},
};

use crate::{
    channel::{ReceiveBuffer, pair, send_descriptors},
    child::Child,
    fork::{end_copy, fork},
    worker_main,
};

/// First argument of a process that becomes the fork server.
pub(crate) const ARGUMENT: &str = "media-fork-server";

/// Longest wait for the fork of a worker.
const FORKED_WITHIN: Timespec = Timespec { tv_sec: 10, tv_nsec: 0 };

media::named! {
    /// Way in which a worker was started.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum WorkerStart {
        /// Forked from the fork server.
        Forked = "forked",
        /// Executed, so that it loaded its program first.
        Executed = "executed",
    }
}

/// Is told how each worker was started, and the fork server's error if it failed; called on the thread that
/// starts the worker, and must not block.
pub(crate) type StartCallback = Box<dyn Fn(WorkerStart, Option<&io::Error>) + Send + Sync>;

/// Descriptors of a new worker or program, or their peers.
pub(crate) struct Ends {
    /// A worker's stdin, a program's stdin and stdout.
    pub socket: OwnedFd,
    pub stderr: OwnedFd,
}

/// The server's side: starts the fork server with the first worker, and again after a failure.
pub(crate) struct ForkServer {
    running: Mutex<Option<Running>>,
    on_start: StartCallback,
}

struct Running {
    socket: OwnedFd,
    _child: Child,
}

impl fmt::Debug for ForkServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ForkServer").field("runs", &self.running().is_some()).finish()
    }
}

impl ForkServer {
    pub fn new(on_start: StartCallback) -> ForkServer {
        ForkServer { running: Mutex::default(), on_start }
    }

    /// Forks a worker, or executes one if that fails. `execute` starts this binary with an argument and
    /// descriptors.
    pub fn start(
        &self,
        ends: Ends,
        execute: impl Fn(&str, Ends) -> io::Result<Child>,
    ) -> io::Result<Child> {
        let begin = |socket| {
            let stderr = File::options().write(true).open("/dev/null")?.into();
            execute(ARGUMENT, Ends { socket, stderr })
        };
        match self.fork(&ends, begin) {
            Ok(child) => {
                (self.on_start)(WorkerStart::Forked, None);
                Ok(child)
            }
            Err(error) => {
                (self.on_start)(WorkerStart::Executed, Some(&error));
                execute(worker_main::ARGUMENT, ends)
            }
        }
    }

    /// Ends the fork server; the next worker starts another.
    pub fn renew(&self) {
        *self.running() = None;
    }

    fn fork(
        &self,
        ends: &Ends,
        begin: impl FnOnce(OwnedFd) -> io::Result<Child>,
    ) -> io::Result<Child> {
        let mut running = self.running();
        // A fork server that fails is not put back: dropping it ends it.
        let server = running.take().map_or_else(|| Running::begin(begin), Ok)?;
        let child = server.ask(ends)?;
        *running = Some(server);
        Ok(child)
    }

    fn running(&self) -> MutexGuard<'_, Option<Running>> {
        // Every change is a single assignment, so a poisoned lock holds a valid value.
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Running {
    fn begin(begin: impl FnOnce(OwnedFd) -> io::Result<Child>) -> io::Result<Running> {
        // A worker's own parent ends at once; as subreaper this process adopts the worker.
        set_child_subreaper(Some(getpid()))?;
        let (socket, theirs) = pair()?;
        Ok(Running { socket, _child: begin(theirs)? })
    }

    fn ask(&self, ends: &Ends) -> io::Result<Child> {
        let both = [ends.socket.as_fd(), ends.stderr.as_fd()];
        send_descriptors(self.socket.as_fd(), &[0], &both)?;
        let mut answers = [PollFd::new(&self.socket, PollFlags::IN)];
        if retry_on_intr(|| poll(&mut answers, Some(&FORKED_WITHIN)))? == 0 {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let mut pid = [0; 4];
        let (_, len) = retry_on_intr(|| recv(&self.socket, &mut pid, RecvFlags::WAITALL))?;
        let pid = Pid::from_raw(i32::from_ne_bytes(pid)).filter(|_| len == pid.len());
        Child::of(pid.ok_or_else(|| io::Error::other("the fork server has ended"))?)
    }
}

/// Main loop of the fork server. In a forked worker, runs `worker` instead.
pub(crate) fn serve(worker: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
    while let Some(ends) = asked()? {
        let Some(pid) = fork_worker()? else {
            dup2_stdin(&ends.socket)?;
            dup2_stderr(&ends.stderr)?;
            setpgid(None, None)?;
            drop(ends);
            return worker();
        };
        let pid = pid.as_raw_pid().to_ne_bytes();
        retry_on_intr(|| send(stdin(), &pid, SendFlags::NOSIGNAL))?;
    }
    Ok(())
}

/// Receives the descriptors of the next worker; `None` once the server has closed its end.
fn asked() -> io::Result<Option<Ends>> {
    let mut incoming = ReceiveBuffer::default();
    if incoming.wait(stdin())? == 0 {
        return Ok(None);
    }
    match (incoming.descriptor(), incoming.descriptor()) {
        (Ok(socket), Ok(stderr)) => Ok(Some(Ends { socket, stderr })),
        _ => Err(io::Error::other("a worker without its ends is asked for")),
    }
}

/// Forks a worker twice, so that the server adopts it; `None` in the worker.
fn fork_worker() -> io::Result<Option<Pid>> {
    let (told, tells) = pipe_with(PipeFlags::CLOEXEC)?;
    let Some(between) = fork()? else {
        return match fork() {
            Ok(None) => Ok(None),
            Ok(Some(worker)) => {
                let told = File::from(tells).write_all(&worker.as_raw_pid().to_ne_bytes());
                end_copy(told.is_err().into())
            }
            Err(_) => end_copy(1),
        };
    };
    drop(tells);
    let mut worker = [0; 4];
    let read = File::from(told).read_exact(&mut worker);
    retry_on_intr(|| waitpid(Some(between), WaitOptions::empty()))?;
    read?;
    Ok(Pid::from_raw(i32::from_ne_bytes(worker)))
}
