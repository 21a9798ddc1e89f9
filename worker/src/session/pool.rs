//! All sessions of a worker on a few threads.
//!
//! The server sends a session's next unit when it has been told that the one before is worked off, so
//! any thread may take any unit, and a session's units are still decoded in order. A unit that takes
//! long occupies one thread. Threads start with the sessions, no more than there are cores.

use std::{
    collections::BTreeMap,
    io,
    os::fd::AsFd,
    process,
    sync::{
        Arc, Mutex, PoisonError,
        mpsc::{Receiver, SyncSender, sync_channel},
    },
    thread,
};

use decode::Decoders;
use media::{AccessUnit, ErrorKind, Timestamp};

use super::{Session, SessionEvent, spec::SessionSpec, tools::Tools};
use crate::{
    Fault,
    line::Line,
    protocol::{Reply, Request},
};

/// Sessions in one worker.
const SESSIONS_MAX: usize = 64;

/// Threads at most, however many cores there are: a worker's thread limit has room for them, each with
/// the thread that a decoder may start.
pub(crate) const THREADS_MAX: usize = 16;

/// All sessions of a worker by the server's numbers.
pub(crate) struct Sessions<S> {
    line: Arc<Line<S>>,
    decoders: Arc<Decoders>,
    sessions: BTreeMap<u32, Slot>,
    /// One unit of each session waits at most.
    work: SyncSender<Work>,
    waiting: Arc<Mutex<Receiver<Work>>>,
    threads: usize,
    threads_max: usize,
}

/// `None` once the session has failed or is closed.
type Slot = Arc<Mutex<Option<Session>>>;

struct Work {
    number: u32,
    slot: Slot,
    task: Task,
}

enum Task {
    Unit { pts: Timestamp, keyframe: bool, follows_gap: bool, data: Vec<u8> },
    Close,
}

impl<S: AsFd + Send + Sync + 'static> Sessions<S> {
    pub fn new(line: Arc<Line<S>>, decoders: Arc<Decoders>) -> Sessions<S> {
        let (work, waiting) = sync_channel(SESSIONS_MAX);
        let cores = thread::available_parallelism().map_or(1, usize::from);
        Sessions {
            line,
            decoders,
            sessions: BTreeMap::new(),
            work,
            waiting: Arc::new(Mutex::new(waiting)),
            threads: 0,
            threads_max: cores.min(THREADS_MAX),
        }
    }

    /// Does what a session request asks, or has it done; an error is one of the worker itself.
    pub fn take(&mut self, request: Request) -> io::Result<()> {
        match request {
            Request::OpenSession { session, spec } => self.open(session, spec),
            Request::AccessUnit { session, pts, keyframe, follows_gap, data } => {
                let slot = self.sessions.get(&session).cloned();
                self.hand_over(session, slot, Task::Unit { pts, keyframe, follows_gap, data })
            }
            Request::CloseSession { session } => {
                let slot = self.sessions.remove(&session);
                self.hand_over(session, slot, Task::Close)
            }
            Request::Confine(_)
            | Request::Job { .. }
            | Request::Resource { .. }
            | Request::Probe
            | Request::Look => Ok(()),
        }
    }

    /// Before any unit of the session is read.
    fn open(&mut self, session: u32, spec: SessionSpec) -> io::Result<()> {
        let opened = if self.sessions.len() < SESSIONS_MAX {
            Session::open(spec, &self.decoders)
        } else {
            let message = format!("a media worker holds at most {SESSIONS_MAX} sessions");
            Err(Fault::Other { kind: ErrorKind::Exhausted, message })
        };
        match opened {
            Ok(opened) => {
                self.sessions.insert(session, Arc::new(Mutex::new(Some(opened))));
                self.start_thread()
            }
            Err(fault) => {
                self.line.send(&Reply::Session { session, event: SessionEvent::Failed(fault) })
            }
        }
    }

    fn start_thread(&mut self) -> io::Result<()> {
        if self.threads >= self.sessions.len().min(self.threads_max) {
            return Ok(());
        }
        let (line, waiting) = (Arc::clone(&self.line), Arc::clone(&self.waiting));
        thread::Builder::new()
            .name(format!("sessions-{}", self.threads))
            .spawn(move || work_off(&line, &waiting))?;
        self.threads += 1;
        Ok(())
    }

    fn hand_over(&self, number: u32, slot: Option<Slot>, task: Task) -> io::Result<()> {
        let Some(slot) = slot else {
            return self.line.send(&Reply::Taken { session: number });
        };
        // The receiver lives as long as the sender.
        self.work.send(Work { number, slot, task }).map_err(io::Error::other)
    }
}

/// One thread's life: ends with the socket.
fn work_off<S: AsFd>(line: &Line<S>, waiting: &Mutex<Receiver<Work>>) {
    let _mourner = Mourner;
    let mut tools = Tools::new();
    loop {
        let next = waiting.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(Work { number, slot, task }) = next else { return };
        let events = slot_events(&slot, task, &mut tools);
        let about = |event| Reply::Session { session: number, event };
        let taken = Reply::Taken { session: number };
        let replies: Vec<Reply> = events.into_iter().map(about).chain([taken]).collect();
        if line.send_all(&replies).is_err() {
            // The server is gone, and whoever reads its requests sees that too.
            return;
        }
    }
}

fn slot_events(slot: &Slot, task: Task, tools: &mut Tools) -> Vec<SessionEvent> {
    let mut slot = slot.lock().unwrap_or_else(PoisonError::into_inner);
    let mut events = Vec::new();
    let outcome = match task {
        Task::Unit { pts, keyframe, follows_gap, data } => {
            // Units on their way to a session that has failed are of no interest.
            let Some(session) = slot.as_mut() else { return events };
            let unit = AccessUnit { codec: session.codec(), pts, keyframe, data };
            session.push(&unit, follows_gap, tools, &mut events)
        }
        Task::Close => {
            let Some(session) = slot.take() else { return events };
            session.close(tools, &mut events)
        }
    };
    if let Err(fault) = outcome {
        *slot = None;
        events.push(SessionEvent::Failed(fault));
    }
    events
}

/// A thread that panics takes the worker with it: its unit would never be worked off.
struct Mourner;

impl Drop for Mourner {
    fn drop(&mut self) {
        if thread::panicking() {
            process::exit(101);
        }
    }
}
