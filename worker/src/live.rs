//! A worker for live sessions: any thread pushes access units, one thread receives the events.
//!
//! Events of a session come in order; a slow callback delays those of all sessions. Queues are bounded per
//! session and in total; units beyond the bounds are refused, which the caller counts.

mod output_rate;
mod session_queues;

use std::{
    mem,
    os::fd::{AsFd, OwnedFd},
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc},
    thread::{self, JoinHandle},
    time::Instant,
};

use media::AccessUnit;
use rustix::event::{EventfdFlags, eventfd};

use crate::{
    SessionSpec, Supervisor, WorkerError, WorkerLimits, WorkerSessionEvent,
    process::{WorkerLifetime, WorkerProcess},
    protocol::WorkerReply,
    session::{SESSION_BYTES_MAX, SESSIONS_MAX},
    wire::WireError,
};
use session_queues::{EventCheck, SessionQueues};

/// Event of a live worker.
#[derive(Debug)]
pub enum LiveWorkerEvent {
    /// Event of one session.
    Session {
        /// Session number chosen by the caller.
        session: u32,
        /// Event of the session.
        event: WorkerSessionEvent,
    },
    /// The measuring device was given up for this reason; the CPU goes on with the same integers.
    GateLost(String),
    /// The measuring device was late with a batch, so the CPU measured it.
    GateLate,
    /// The decoding device cannot be opened, for this reason; the CPU decodes the same pictures.
    DecoderLost(String),
    /// The worker ended by itself, and all its sessions with it; the last event.
    Ended(WorkerError),
}

/// Handle to a running worker for live sessions; dropping it ends the worker.
pub struct LiveWorker {
    line: Arc<SharedLine>,
    thread: Option<JoinHandle<()>>,
}

/// State shared by callers and the supervising thread.
struct SharedLine {
    /// `None` once the caller or the worker has ended.
    lanes: Mutex<Option<SessionQueues>>,
    wake: OwnedFd,
}

impl SharedLine {
    fn lanes(&self) -> MutexGuard<'_, Option<SessionQueues>> {
        self.lanes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wake(&self) {
        // Fails only if the counter is at its maximum, and then the thread has been woken.
        rustix::io::write(&self.wake, &1u64.to_ne_bytes()).ok();
    }

    /// Runs `action` on the queues if the worker is open, and wakes the thread.
    fn send(
        &self,
        action: impl FnOnce(&mut SessionQueues) -> Result<(), WorkerError>,
    ) -> Result<(), WorkerError> {
        action(self.lanes().as_mut().ok_or(WorkerError::Ended)?)?;
        self.wake();
        Ok(())
    }
}

impl Supervisor {
    /// Starts a worker for live sessions. `on_event` is called on one thread of its own; an error from it,
    /// for a message that must not come, ends the worker. Each session has an output rate limit of its own
    /// instead of [`WorkerLimits::output_bytes`].
    pub fn start_live(
        &self,
        limits: WorkerLimits,
        on_event: impl FnMut(LiveWorkerEvent) -> Result<(), WireError> + Send + 'static,
    ) -> Result<LiveWorker, WorkerError> {
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|error| WorkerError::Spawn(error.into()))?;
        // Every message belongs to a session or ends a unit in progress: a total limit would end sessions for
        // the output of others.
        let limits = WorkerLimits { output_bytes: u64::MAX, ..limits };
        let lanes = Mutex::new(Some(SessionQueues::default()));
        let line = Arc::new(SharedLine { lanes, wake });
        let (tell, told) = mpsc::sync_channel(1);
        let (program, shared) = (self.program.clone(), Arc::clone(&line));
        // The kernel kills the worker with the thread that started it, so the same thread supervises it.
        let supervise = move || {
            let started = WorkerProcess::spawn(&program, &limits, WorkerLifetime::Open);
            let (started, process) = match started {
                Ok((process, _)) => (Ok(()), Some(process)),
                Err(error) => (Err(error), None),
            };
            // Fails only if the caller has stopped waiting, which never happens.
            tell.send(started).ok();
            if let Some(process) = process {
                supervise(process, &shared, &limits, on_event);
            }
        };
        let thread = thread::Builder::new()
            .name("live-worker".to_owned())
            .spawn(supervise)
            .map_err(WorkerError::Spawn)?;
        told.recv().map_err(|_| WorkerError::Ended)??;
        Ok(LiveWorker { line, thread: Some(thread) })
    }
}

impl LiveWorker {
    /// Most sessions of one worker.
    pub const SESSIONS_MAX: usize = SESSIONS_MAX;
    /// Estimate of the bytes of pictures that a session keeps. The decoder of an unusual stream may keep
    /// more, see the constant of that name.
    pub const SESSION_BYTES_MAX: u64 = SESSION_BYTES_MAX;

    /// Opens a session under a number that the caller chooses. The number is in use until it is closed, even
    /// if the session has failed. Numbers in `spec` are clamped to their bounds.
    pub fn open(&self, session: u32, spec: SessionSpec) -> Result<(), WorkerError> {
        self.line.send(|lanes| lanes.open(session, spec.within_bounds()))
    }

    /// Queues the session's next access unit. On [`WorkerError::Backlog`] the unit is refused, and so are all
    /// that follow up to the next keyframe. The caller need not react, but requesting a keyframe shortens the
    /// gap.
    pub fn push(&self, session: u32, unit: AccessUnit) -> Result<(), WorkerError> {
        self.line.send(|lanes| lanes.push(session, unit))
    }

    /// Returns the number of the session's queued units, the one in progress included; `None` if the session
    /// is not open.
    pub fn load(&self, session: u32) -> Option<usize> {
        self.line.lanes().as_ref()?.load(session)
    }

    /// Closes the session after its queued units; it answers with [`WorkerSessionEvent::Closed`].
    pub fn close(&self, session: u32) -> Result<(), WorkerError> {
        self.line.send(|lanes| lanes.close(session))
    }
}

impl Drop for LiveWorker {
    fn drop(&mut self) {
        *self.line.lanes() = None;
        self.line.wake();
        if let Some(thread) = self.thread.take() {
            // The thread has reported a panic of the event callback itself.
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
    let by_caller = line.lanes().take().is_none();
    if let Err(error) = ended
        && !by_caller
    {
        // A callback that panics here has had every event; the panic is reported. Its error can end nothing.
        catch_unwind(AssertUnwindSafe(|| on_event(LiveWorkerEvent::Ended(error)).ok())).ok();
    }
}

/// Runs until the caller closes the handle or the worker ends.
fn listen(
    process: &mut WorkerProcess,
    line: &SharedLine,
    limits: &WorkerLimits,
    on_event: &mut dyn FnMut(LiveWorkerEvent) -> Result<(), WireError>,
) -> Result<(), WorkerError> {
    let (mut is_gate_lost, mut is_decoder_lost) = (false, false);
    loop {
        let is_overdue = {
            let mut lanes = line.lanes();
            let Some(lanes) = lanes.as_mut() else { return Ok(()) };
            let now = Instant::now();
            while let Some(request) = lanes.next(now) {
                process.backlog().push(&request)?;
            }
            lanes.is_stalled(limits.stall, now)
        };
        let received = process.received();
        match process.poll(Some(line.wake.as_fd()))? {
            Some(WorkerReply::Session { session, event }) => {
                let (bytes, now) = (process.last_reply(), Instant::now());
                let mut lanes = line.lanes();
                let Some(open) = lanes.as_mut() else { return Ok(()) };
                let looked = open.check_event(session, &event, bytes, now)?;
                drop(lanes);
                let event = match looked {
                    EventCheck::Wanted => event,
                    EventCheck::Cut(fault) => WorkerSessionEvent::Failed(fault),
                    EventCheck::Unwanted => continue,
                };
                on_event(LiveWorkerEvent::Session { session, event })?;
            }
            Some(WorkerReply::UnitDone { session }) => {
                let mut lanes = line.lanes();
                let Some(open) = lanes.as_mut() else { return Ok(()) };
                open.taken(session, Instant::now())?;
            }
            // A device is lost only once.
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
                // Empty if the counter was not raised.
                rustix::io::read(&line.wake, &mut [0_u8; 8]).ok();
                // Bytes that have just arrived may be the message that was overdue.
                if is_overdue && process.received() == received {
                    return Err(WorkerError::Stalled(limits.stall));
                }
            }
        }
    }
}
