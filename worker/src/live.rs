//! A worker for live sessions: access units go in from any thread, events come out on one.

use std::{
    collections::BTreeMap,
    io,
    os::fd::{AsFd, OwnedFd},
    sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc},
    thread::{self, JoinHandle},
    time::Instant,
};

use decode::DecodeError;
use gate::GateConfig;
use media::{AccessUnit, Codec};
use rustix::event::{EventfdFlags, eventfd};

use crate::{
    Fault, Limits, SandboxReport, SessionEvent, Supervisor, WorkerError,
    channel::Backlog,
    process::{Life, Line, Process},
    protocol::{Reply, Request},
    wire::ProtocolError,
};

/// Bytes that may wait for a worker: seconds of a dozen streams. Beyond it units are refused.
const BACKLOG_BYTES_MAX: usize = 8 << 20;

/// What a live worker says.
#[derive(Debug)]
pub enum LiveEvent {
    /// About one of its sessions.
    Session {
        /// The caller's number of the session.
        session: u32,
        /// What there is to say.
        event: SessionEvent,
    },
    /// The worker ended by itself, and all its sessions with it; comes last.
    Ended(WorkerError),
}

/// A running worker for live sessions; dropping it ends it.
pub struct LiveWorker {
    line: Arc<SharedLine>,
    thread: Option<JoinHandle<()>>,
    report: SandboxReport,
}

/// What callers and the supervising thread share.
struct SharedLine {
    state: Mutex<LineState>,
    wake: OwnedFd,
}

#[derive(Default)]
struct LineState {
    backlog: Backlog,
    /// Bytes that the supervising thread has taken and not sent when it last looked.
    unsent_bytes: usize,
    units_sent: u64,
    /// What callers have opened and not closed.
    sessions: BTreeMap<u32, Codec>,
    closed: bool,
}

impl LineState {
    fn queued_bytes(&self) -> usize {
        self.unsent_bytes + self.backlog.len()
    }
}

impl SharedLine {
    fn state(&self) -> MutexGuard<'_, LineState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wake(&self) {
        // Fails only when the count is at its end, and then the thread is awake already.
        rustix::io::write(&self.wake, &1u64.to_ne_bytes()).ok();
    }

    /// Has `action` add to the backlog of a line that is open.
    fn send(
        &self,
        action: impl FnOnce(&mut LineState) -> Result<(), WorkerError>,
    ) -> Result<(), WorkerError> {
        let mut state = self.state();
        if state.closed {
            return Err(WorkerError::Ended);
        }
        action(&mut state)?;
        drop(state);
        self.wake();
        Ok(())
    }
}

impl Supervisor {
    /// Starts a worker for live sessions; `on_event` is called on a thread of its own.
    pub fn start_live(
        &self,
        limits: Limits,
        on_event: impl FnMut(LiveEvent) + Send + 'static,
    ) -> Result<LiveWorker, WorkerError> {
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|error| WorkerError::Spawn(error.into()))?;
        let line = Arc::new(SharedLine { state: Mutex::default(), wake });
        let (tell, told) = mpsc::sync_channel(1);
        let (program, shared) = (self.program.clone(), Arc::clone(&line));
        // The worker dies with the thread that starts it, so that thread stays with it.
        let supervise = move || {
            let started = Process::spawn(&program, &limits, Life::Open);
            let (started, process) = match started {
                Ok((process, report)) => (Ok(report), Some(process)),
                Err(error) => (Err(error), None),
            };
            // Fails when the caller has given up waiting, which it never does.
            tell.send(started).ok();
            if let Some(process) = process {
                supervise(process, &shared, &limits, on_event);
            }
        };
        let thread = thread::Builder::new()
            .name("live-worker".to_owned())
            .spawn(supervise)
            .map_err(WorkerError::Spawn)?;
        let report = told.recv().map_err(|_| WorkerError::Ended)??;
        Ok(LiveWorker { line, thread: Some(thread), report })
    }
}

impl LiveWorker {
    /// The sandbox it runs in.
    pub fn sandbox_report(&self) -> &SandboxReport {
        &self.report
    }

    /// Opens a session under a number of the caller's choice. A number is in use until it is
    /// closed, even where its session has failed.
    pub fn open(
        &self,
        session: u32,
        codec: Codec,
        stills: bool,
        gate: GateConfig,
    ) -> Result<(), WorkerError> {
        self.line.send(|state| {
            if state.sessions.contains_key(&session) {
                return Err(WorkerError::SessionInUse { session });
            }
            state.backlog.push(&Request::OpenSession { session, codec, stills, gate })?;
            state.sessions.insert(session, codec);
            Ok(())
        })
    }

    /// Gives a session its next picture. On [`WorkerError::Backlog`] the unit was not taken: the
    /// caller drops up to the next keyframe.
    pub fn push(&self, session: u32, unit: AccessUnit) -> Result<(), WorkerError> {
        let AccessUnit { codec, pts, keyframe, data } = unit;
        self.line.send(|state| {
            let expected =
                *state.sessions.get(&session).ok_or(WorkerError::NoSession { session })?;
            if codec != expected {
                let (expected, got) = (expected.name(), codec.name());
                return Err(Fault::Decode(DecodeError::WrongCodec { expected, got }).into());
            }
            let queued_bytes = state.queued_bytes();
            // One unit of any size is always taken.
            if queued_bytes > 0 && queued_bytes + data.len() > BACKLOG_BYTES_MAX {
                return Err(WorkerError::Backlog { queued_bytes });
            }
            state.backlog.push(&Request::AccessUnit { session, pts, keyframe, data })?;
            state.units_sent += 1;
            Ok(())
        })
    }

    /// Says that no picture follows; the session answers with [`SessionEvent::Closed`].
    pub fn close(&self, session: u32) -> Result<(), WorkerError> {
        self.line.send(|state| {
            state.sessions.remove(&session).ok_or(WorkerError::NoSession { session })?;
            Ok(state.backlog.push(&Request::CloseSession { session })?)
        })
    }
}

impl Drop for LiveWorker {
    fn drop(&mut self) {
        self.line.state().closed = true;
        self.line.wake();
        if let Some(thread) = self.thread.take() {
            // A panic of the event callback has been reported by the thread itself.
            thread.join().ok();
        }
    }
}

fn supervise(
    mut process: Process,
    line: &SharedLine,
    limits: &Limits,
    mut on_event: impl FnMut(LiveEvent),
) {
    let ended = listen(&mut process, line, limits, &mut on_event);
    drop(process);
    let by_caller = {
        let mut state = line.state();
        std::mem::replace(&mut state.closed, true)
    };
    if let Err(error) = ended
        && !by_caller
    {
        on_event(LiveEvent::Ended(error));
    }
}

/// Until the caller closes the line, or the worker ends.
fn listen(
    process: &mut Process,
    line: &SharedLine,
    limits: &Limits,
    on_event: &mut dyn FnMut(LiveEvent),
) -> Result<(), WorkerError> {
    let (mut units_done, mut heard) = (0, Instant::now());
    loop {
        let units_sent = {
            let mut state = line.state();
            if state.closed {
                return Ok(());
            }
            process.backlog().append(&mut state.backlog);
            state.unsent_bytes = process.backlog().len();
            state.units_sent
        };
        match process.next()? {
            Some(Reply::Session { session, event }) => {
                on_event(LiveEvent::Session { session, event });
                heard = Instant::now();
            }
            Some(Reply::Consumed { units }) if units <= units_sent => {
                (units_done, heard) = (units, Instant::now());
            }
            Some(_) => return Err(ProtocolError::Unexpected("reply").into()),
            None => {
                process.look()?;
                if process.wait(Some(line.wake.as_fd()))? == Line::Closed {
                    return Err(process.death());
                }
                clear(&line.wake);
                if units_done >= units_sent {
                    heard = Instant::now();
                } else if heard.elapsed() > limits.stall {
                    return Err(WorkerError::Stalled { after: limits.stall });
                }
            }
        }
    }
}

fn clear(wake: &OwnedFd) {
    let mut count = [0; 8];
    // Empty means that nobody woke us.
    let read: io::Result<usize> = rustix::io::read(wake, &mut count).map_err(io::Error::from);
    read.ok();
}
