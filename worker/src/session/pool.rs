//! Runs all sessions of a worker on a few threads.
//!
//! The server sends a session's next unit after it was told that the last one is done; so any thread may take
//! any unit, and each session's units are still decoded in order. A slow unit occupies one thread. Threads
//! start with the sessions, at most one per core. While a device measures a unit's frames, no thread waits.

use std::{
    collections::BTreeMap,
    io, mem, process,
    sync::{
        Arc, Mutex, PoisonError, Weak,
        mpsc::{Receiver, SyncSender, sync_channel},
    },
    thread,
};

use decode::DecoderChain;
use gate::{CpuBackend, FrameMeasurements, MeasureBackend};
use media::{AccessUnit, Codec, ErrorKind, Frame, Timestamp};

use super::{
    Session, WorkerSessionEvent,
    device::{DecodedUnit, DeviceQueue, InFlightBytes},
    note_damage,
    spec::SessionSpec,
};
use crate::{
    JobFault,
    control_socket::ControlSocket,
    gate_device::GateMeasurement,
    pictures::ImageEncoder,
    protocol::{WorkerReply, WorkerRequest},
};

pub(crate) const SESSIONS_MAX: usize = 64;

/// Most threads, however many cores there are: a worker's thread limit has room for them, each with the
/// thread that its decoder may start.
pub(crate) const THREADS_MAX: usize = 16;

/// All sessions of a worker, by the server's numbers.
pub(crate) struct SessionPool {
    line: Arc<ControlSocket>,
    decoders: Arc<DecoderChain>,
    sessions: BTreeMap<u32, SessionSlot>,
    /// Queue of the threads; at most one unit of each session waits.
    work: SyncSender<PoolItem>,
    waiting: Arc<Mutex<Receiver<PoolItem>>>,
    measuring: GateMeasurement,
    /// Queue of the measuring device; started with the first session, and ended with the pool.
    device: Option<Arc<DeviceQueue>>,
    /// True once the loss of the decoding device has been reported.
    is_decoder_gone_told: bool,
    threads: usize,
    threads_max: usize,
}

/// A session; `None` once it has failed or is closed.
pub(super) type SessionSlot = Arc<Mutex<Option<Session>>>;

pub(super) struct PoolItem {
    pub number: u32,
    pub slot: SessionSlot,
    pub task: PoolTask,
}

pub(super) enum PoolTask {
    Unit {
        pts: Timestamp,
        keyframe: bool,
        follows_gap: bool,
        data: Vec<u8>,
    },
    Close,
    /// A unit, or a closing, that comes back from the device.
    Measured {
        frames: Vec<Frame>,
        measured: Result<Vec<FrameMeasurements>, JobFault>,
        events: Vec<WorkerSessionEvent>,
        is_last: bool,
        /// Released when the session gets its frames back.
        held: InFlightBytes,
    },
}

impl SessionPool {
    pub fn new(
        line: Arc<ControlSocket>,
        decoders: Arc<DecoderChain>,
        measuring: GateMeasurement,
    ) -> SessionPool {
        let (work, waiting) = sync_channel(SESSIONS_MAX);
        let cores = thread::available_parallelism().map_or(1, usize::from);
        SessionPool {
            line,
            decoders,
            sessions: BTreeMap::new(),
            work,
            waiting: Arc::new(Mutex::new(waiting)),
            measuring,
            device: None,
            is_decoder_gone_told: false,
            threads: 0,
            threads_max: cores.min(THREADS_MAX),
        }
    }

    /// Handles a session request, or queues it; an error is fatal to the worker.
    pub fn take(&mut self, request: WorkerRequest) -> io::Result<()> {
        match request {
            WorkerRequest::OpenSession { session, spec } => self.open(session, spec),
            WorkerRequest::AccessUnit { session, pts, keyframe, follows_gap, data } => {
                let slot = self.sessions.get(&session).cloned();
                self.hand_over(session, slot, PoolTask::Unit { pts, keyframe, follows_gap, data })
            }
            WorkerRequest::CloseSession { session } => {
                let slot = self.sessions.remove(&session);
                self.hand_over(session, slot, PoolTask::Close)
            }
            _ => Ok(()),
        }
    }

    /// Opens a session, before any of its units is read.
    fn open(&mut self, session: u32, spec: SessionSpec) -> io::Result<()> {
        let codec = spec.codec;
        let opened = if self.sessions.len() < SESSIONS_MAX {
            Session::open(spec, &self.decoders)
        } else {
            let message = format!("a media worker holds at most {SESSIONS_MAX} sessions");
            Err(JobFault::Other { kind: ErrorKind::Exhausted, message })
        };
        match opened {
            Ok(opened) => {
                self.sessions.insert(session, Arc::new(Mutex::new(Some(opened))));
                self.tell_decoder_gone(codec)?;
                self.start_thread()
            }
            Err(fault) => self
                .line
                .send(&WorkerReply::Session { session, event: WorkerSessionEvent::Failed(fault) }),
        }
    }

    /// Starts another thread if there are more sessions, and the device's queue if there is none.
    fn start_thread(&mut self) -> io::Result<()> {
        if self.device.is_none() && self.measuring.is_on_device() {
            let device = DeviceQueue::start(self.measuring.clone(), self.work.clone())?;
            self.device = Some(Arc::new(device));
        }
        if self.threads >= self.sessions.len().min(self.threads_max) {
            return Ok(());
        }
        let (line, waiting) = (Arc::clone(&self.line), Arc::clone(&self.waiting));
        let device = self.device.as_ref().map_or_else(Weak::new, Arc::downgrade);
        let measuring = self.measuring.clone();
        thread::Builder::new()
            .name(format!("sessions-{}", self.threads))
            .spawn(move || run_pool_thread(&line, &waiting, &device, &measuring))?;
        self.threads += 1;
        Ok(())
    }

    fn tell_decoder_gone(&mut self, codec: Codec) -> io::Result<()> {
        match self.decoders.gone(codec) {
            Some(error) if !mem::replace(&mut self.is_decoder_gone_told, true) => {
                self.line.send(&WorkerReply::DecoderLost { reason: error.to_string() })
            }
            _ => Ok(()),
        }
    }

    fn hand_over(&self, number: u32, slot: Option<SessionSlot>, task: PoolTask) -> io::Result<()> {
        let Some(slot) = slot else {
            return self.line.send(&WorkerReply::UnitDone { session: number });
        };
        // Never fails: the receiver lives as long as the sender.
        self.work.send(PoolItem { number, slot, task }).map_err(io::Error::other)
    }
}

/// Buffers and encoders of a pool thread, reused for all sessions; they keep no session's state.
#[derive(Default)]
pub(super) struct ThreadScratch {
    measurer: CpuBackend,
    pub measured: Vec<FrameMeasurements>,
    pub maker: ImageEncoder,
}

impl ThreadScratch {
    /// Measures the frames on the CPU, into `measured`.
    pub fn measure(&mut self, frames: &[Frame]) -> Result<(), JobFault> {
        self.measured.clear();
        Ok(self.measurer.measure(frames, &mut self.measured)?)
    }
}

/// Main loop of a pool thread; ends when the queue or the socket closes.
fn run_pool_thread(
    line: &ControlSocket,
    waiting: &Mutex<Receiver<PoolItem>>,
    device: &Weak<DeviceQueue>,
    measuring: &GateMeasurement,
) {
    let _mourner = ExitOnPanic;
    let mut tools = ThreadScratch::default();
    loop {
        let next = waiting.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(PoolItem { number, slot, task }) = next else { return };
        let Some(events) = slot_events(number, &slot, task, device, &mut tools) else { continue };
        let about = |event| WorkerReply::Session { session: number, event };
        let taken = WorkerReply::UnitDone { session: number };
        let mut replies = device_news(measuring);
        replies.extend(events.into_iter().map(about).chain([taken]));
        if line.send_all(&replies).is_err() {
            // The server is gone, which the thread that reads its requests notices too.
            return;
        }
    }
}

/// Returns the reports about the measuring device that are due: each late batch, and the loss, once.
fn device_news(measuring: &GateMeasurement) -> Vec<WorkerReply> {
    let late = (0..measuring.take_late()).map(|_| WorkerReply::GateLate);
    let lost = measuring.take_loss().map(|reason| WorkerReply::GateLost { reason });
    late.chain(lost).collect()
}

/// Runs a task and returns its events; `None` if the device continues it.
fn slot_events(
    number: u32,
    slot: &SessionSlot,
    task: PoolTask,
    device: &Weak<DeviceQueue>,
    tools: &mut ThreadScratch,
) -> Option<Vec<WorkerSessionEvent>> {
    let mut place = slot.lock().unwrap_or_else(PoisonError::into_inner);
    let mut events = Vec::new();
    // Units for a session that has failed are dropped.
    let Some(session) = place.as_mut() else { return Some(events) };
    let is_close = matches!(task, PoolTask::Close);
    let decoded = match task {
        PoolTask::Unit { pts, keyframe, follows_gap, data } => {
            let unit = AccessUnit { codec: session.spec.codec, pts, keyframe, data };
            session.decode(&unit, follows_gap, &mut events)
        }
        PoolTask::Close => session.drain(&mut events),
        PoolTask::Measured { frames, measured, events: said, is_last, held } => {
            drop(held);
            events = said;
            let taken = measured.and_then(|measured| {
                session.take(frames, &measured, &mut tools.maker, &mut events)
            });
            return Some(settled(&mut place, taken, is_last, tools, events));
        }
    };
    let frames = match decoded {
        Ok(frames) => frames,
        Err(fault) => return Some(settled(&mut place, Err(fault), is_close, tools, events)),
    };
    let mut decoded =
        DecodedUnit { number, slot: Arc::clone(slot), frames, events, is_last: is_close };
    if !decoded.frames.is_empty()
        && let Some(device) = device.upgrade()
    {
        match device.offer(decoded) {
            Ok(()) => return None,
            Err(back) => decoded = back,
        }
    }
    let DecodedUnit { frames, mut events, .. } = decoded;
    let taken = tools
        .measure(&frames)
        .and_then(|()| session.take(frames, &tools.measured, &mut tools.maker, &mut events));
    Some(settled(&mut place, taken, is_close, tools, events))
}

/// Completes a task: closes the session if it was the last one, ends it on a fault, returns the events.
fn settled(
    place: &mut Option<Session>,
    taken: Result<(), JobFault>,
    is_last: bool,
    tools: &mut ThreadScratch,
    mut events: Vec<WorkerSessionEvent>,
) -> Vec<WorkerSessionEvent> {
    let finished =
        note_damage(taken, &mut events).and_then(|()| match place.take_if(|_| is_last) {
            Some(session) => session.finish(&mut tools.maker, &mut events),
            None => Ok(()),
        });
    if let Err(fault) = finished {
        *place = None;
        events.push(WorkerSessionEvent::Failed(fault));
    }
    events
}

/// Exits the process if the current thread is panicking: its unit would never be worked off.
pub(super) struct ExitOnPanic;

impl Drop for ExitOnPanic {
    fn drop(&mut self) {
        if thread::panicking() {
            process::exit(101);
        }
    }
}

#[cfg(test)]
mod tests;
