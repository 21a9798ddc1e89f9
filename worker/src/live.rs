//! A worker for live sessions: access units go in from any thread, events come out on one.
//!
//! Events of a session come in its order; a callback that takes long delays those of all. Whatever
//! waits has a bound for each session and one for all, and what is over it is refused and counted.

mod output_rate;
mod session_queues;

use std::{
    io, mem,
    os::fd::{AsFd, OwnedFd},
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc},
    thread::{self, JoinHandle},
    time::Instant,
};

use media::AccessUnit;
use rustix::event::{EventfdFlags, eventfd};

use crate::{
    SandboxReport, SessionSpec, Supervisor, WorkerError, WorkerLimits, WorkerSessionEvent,
    process::{SocketState, WorkerLifetime, WorkerProcess},
    protocol::WorkerReply,
    session::{SESSION_BYTES_MAX, SESSIONS_MAX},
    wire::WireError,
};
use session_queues::{EventCheck, SessionQueues};

/// Message of a live worker.
#[derive(Debug)]
pub enum LiveWorkerEvent {
    /// About one of its sessions.
    Session {
        /// The caller's number of the session.
        session: u32,
        /// Event of the session.
        event: WorkerSessionEvent,
    },
    /// The device that measured was given up, for this reason; the CPU goes on with the same integers.
    GateLost(String),
    /// The device that measures was late with a batch, which the CPU measured.
    GateLate,
    /// The device that was to decode opens no more, for this reason; the CPU decodes the same pictures.
    DecoderLost(String),
    /// The worker ended by itself, and all its sessions with it; comes last.
    Ended(WorkerError),
}

/// A running worker for live sessions; dropping it ends it.
pub struct LiveWorker {
    line: Arc<SharedLine>,
    thread: Option<JoinHandle<()>>,
    report: SandboxReport,
}

/// State that callers and the supervising thread share.
struct SharedLine {
    state: Mutex<LineState>,
    wake: OwnedFd,
}

struct LineState {
    lanes: SessionQueues,
    closed: bool,
}

/// Load of a session that waits for the worker, the unit in progress included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SessionBacklog {
    /// Access units.
    pub units: usize,
    /// Their bytes.
    pub bytes: usize,
    /// Units refused since the session was opened.
    pub refused_units: u64,
}

impl SharedLine {
    fn state(&self) -> MutexGuard<'_, LineState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wake(&self) {
        // Fails only when the count is at its end, and then the thread is awake already.
        rustix::io::write(&self.wake, &1u64.to_ne_bytes()).ok();
    }

    /// Has `action` add to what waits on a line that is open.
    fn send(
        &self,
        action: impl FnOnce(&mut SessionQueues) -> Result<(), WorkerError>,
    ) -> Result<(), WorkerError> {
        let mut state = self.state();
        if state.closed {
            return Err(WorkerError::Ended);
        }
        action(&mut state.lanes)?;
        drop(state);
        self.wake();
        Ok(())
    }
}

impl Supervisor {
    /// Starts a worker for live sessions; `on_event` is called on a thread of its own, and an error of it, a message
    /// that should not have come, ends the worker. Of what it says, each session has a share of its own instead of
    /// [`WorkerLimits::output_bytes`].
    pub fn start_live(
        &self,
        limits: WorkerLimits,
        on_event: impl FnMut(LiveWorkerEvent) -> Result<(), WireError> + Send + 'static,
    ) -> Result<LiveWorker, WorkerError> {
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|error| WorkerError::Spawn(error.into()))?;
        // Every message is a session's, or the one that ends a unit under way: a total limit would
        // end sessions for what others say.
        let limits = WorkerLimits { output_bytes: u64::MAX, ..limits };
        let state = LineState { lanes: SessionQueues::default(), closed: false };
        let line = Arc::new(SharedLine { state: Mutex::new(state), wake });
        let (tell, told) = mpsc::sync_channel(1);
        let (program, shared) = (self.program.clone(), Arc::clone(&line));
        // The worker dies with the thread that starts it, so that thread stays with it.
        let supervise = move || {
            let started = WorkerProcess::spawn(&program, &limits, WorkerLifetime::Open);
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
    /// Sessions that one worker holds at most.
    pub const SESSIONS_MAX: usize = SESSIONS_MAX;
    /// Bytes of pictures that a session is taken to keep. A stream made for it may have its decoder keep
    /// more, see the constant of that name.
    pub const SESSION_BYTES_MAX: u64 = SESSION_BYTES_MAX;

    /// The sandbox it runs in.
    pub fn sandbox_report(&self) -> &SandboxReport {
        &self.report
    }

    /// Opens a session under a number of the caller's choice. A number is in use until it is
    /// closed, even where its session has failed. Numbers of `spec` that lie beyond their bounds are
    /// taken for the nearest within.
    pub fn open(&self, session: u32, spec: SessionSpec) -> Result<(), WorkerError> {
        self.line.send(|lanes| lanes.open(session, spec.within_bounds()))
    }

    /// Gives a session its next picture. [`WorkerError::Backlog`] says that the unit was not taken;
    /// nor is any that follows, up to the next keyframe. Nothing needs to be done about it, but a
    /// keyframe that is asked for ends it sooner.
    pub fn push(&self, session: u32, unit: AccessUnit) -> Result<(), WorkerError> {
        self.line.send(|lanes| lanes.push(session, unit))
    }

    /// Says that pictures are missing before the next one of the session, so that nothing that refers
    /// to them is shown; they are those that never came, not those that `push` refused.
    pub fn mark_loss(&self, session: u32) -> Result<(), WorkerError> {
        self.line.send(|lanes| lanes.lose(session))
    }

    /// Returns the load of the session; `None` where it is not open.
    pub fn load(&self, session: u32) -> Option<SessionBacklog> {
        self.line.state().lanes.load(session)
    }

    /// Says that no picture follows; the session answers with [`WorkerSessionEvent::Closed`].
    pub fn close(&self, session: u32) -> Result<(), WorkerError> {
        self.line.send(|lanes| lanes.close(session))
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
    mut process: WorkerProcess,
    line: &SharedLine,
    limits: &WorkerLimits,
    mut on_event: impl FnMut(LiveWorkerEvent) -> Result<(), WireError>,
) {
    let listened =
        catch_unwind(AssertUnwindSafe(|| listen(&mut process, line, limits, &mut on_event)));
    let ended = listened.unwrap_or(Err(WorkerError::Listener));
    drop(process);
    let by_caller = {
        let mut state = line.state();
        std::mem::replace(&mut state.closed, true)
    };
    if let Err(error) = ended
        && !by_caller
    {
        // The listener has had every event where it panics at this one too; the panic was reported. An error of it has no worker left to end.
        catch_unwind(AssertUnwindSafe(|| on_event(LiveWorkerEvent::Ended(error)).ok())).ok();
    }
}

/// Until the caller closes the line, or the worker ends.
fn listen(
    process: &mut WorkerProcess,
    line: &SharedLine,
    limits: &WorkerLimits,
    on_event: &mut dyn FnMut(LiveWorkerEvent) -> Result<(), WireError>,
) -> Result<(), WorkerError> {
    let (mut is_gate_lost, mut is_decoder_lost) = (false, false);
    loop {
        let is_overdue = {
            let mut state = line.state();
            if state.closed {
                return Ok(());
            }
            let now = Instant::now();
            while let Some(request) = state.lanes.next(now) {
                process.backlog().push(&request)?;
            }
            state.lanes.is_stalled(limits.stall, now)
        };
        match process.next()? {
            Some(WorkerReply::Session { session, event }) => {
                let (bytes, now) = (process.last_reply(), Instant::now());
                let looked = line.state().lanes.check_event(session, &event, bytes, now)?;
                let event = match looked {
                    EventCheck::Wanted => event,
                    EventCheck::Cut(fault) => WorkerSessionEvent::Failed(fault),
                    EventCheck::Unwanted => continue,
                };
                on_event(LiveWorkerEvent::Session { session, event })?;
            }
            Some(WorkerReply::UnitDone { session }) => {
                line.state().lanes.taken(session, Instant::now())?
            }
            // A device is lost once.
            Some(WorkerReply::GateLost { reason }) if !mem::replace(&mut is_gate_lost, true) => {
                on_event(LiveWorkerEvent::GateLost(reason))?;
            }
            Some(WorkerReply::GateLate) => on_event(LiveWorkerEvent::GateLate)?,
            Some(WorkerReply::DecoderLost { reason })
                if !mem::replace(&mut is_decoder_lost, true) =>
            {
                on_event(LiveWorkerEvent::DecoderLost(reason))?;
            }
            Some(_) => return Err(WireError::Unexpected("reply").into()),
            None => {
                process.sample_usage()?;
                let received = process.received();
                if process.wait(Some(line.wake.as_fd()))? == SocketState::Closed {
                    return Err(process.exit_error());
                }
                clear(&line.wake);
                // Bytes that have just arrived may be those that it is waited for.
                if is_overdue && process.received() == received {
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
