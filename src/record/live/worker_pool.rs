//! The media workers of live sessions: shared by a few sessions each, and by one principal's
//! unless the operator says otherwise. Where principals share a device, one worker has as many as it
//! holds: a device is opened once, and pictures of all sessions are measured together.
//!
//! A worker starts with its first session and ends with its last. One that ends by itself takes
//! its own sessions with it and no other.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use media::AccessUnit;
use parking_lot::Mutex;
use worker::{LiveWorker, LiveWorkerEvent, SessionSpec, Supervisor, WorkerError, WorkerLimits};

use super::session_events::SessionOutputSender;
use crate::base::{keys::Principal, metrics::Metrics};

/// Sessions of one worker: one that ends takes them all with it.
const PER_WORKER: usize = 8;
/// The same where all share a device.
const PER_DEVICE_WORKER: usize = LiveWorker::SESSIONS_MAX;
/// Memory of a worker of one principal's sessions: two of the largest pictures at their worst, beside
/// six of 1080p. Who sends more ends sessions of its own.
const WORKER_BYTES: u64 = 2 << 30;
/// Memory beside the sessions' pictures: encoders of its threads, what is on its way to a device, and
/// what a few decoders keep over [`LiveWorker::SESSION_BYTES_MAX`].
const BESIDE_BYTES: u64 = 1 << 30;
/// Resident memory of a driver: its code, and what it maps of a device.
const DRIVER_BYTES: u64 = 1 << 30;

/// The workers that run.
pub struct LiveWorkerPool {
    supervisor: Supervisor,
    is_shared: bool,
    /// Sessions of one worker.
    per_worker: usize,
    metrics: Arc<Metrics>,
    /// Workers with a session, and no others.
    running: Mutex<Vec<Arc<Hosted>>>,
    /// Held while one is started.
    starting: Mutex<()>,
}

/// A worker and its sessions.
struct Hosted {
    owner: Principal,
    worker: LiveWorker,
    inboxes: Inboxes,
    has_ended: Arc<AtomicBool>,
}

type Inboxes = Arc<Mutex<Table>>;

#[derive(Default)]
struct Table {
    next: u32,
    of: HashMap<u32, SessionOutputSender>,
}

/// A session's place in a worker, until dropped; dropping it may wait for a worker to end.
pub struct WorkerSlot {
    pool: Arc<LiveWorkerPool>,
    hosted: Arc<Hosted>,
    session: u32,
}

impl LiveWorkerPool {
    /// No worker yet; `is_shared` says whether principals share one.
    pub fn new(
        supervisor: Supervisor,
        is_shared: bool,
        metrics: Arc<Metrics>,
    ) -> Arc<LiveWorkerPool> {
        let per_worker = per_worker(is_shared, supervisor.has_device());
        let (running, starting) = (Mutex::default(), Mutex::default());
        Arc::new(LiveWorkerPool { supervisor, is_shared, per_worker, metrics, running, starting })
    }

    /// Resource limits of a worker.
    fn limits(&self) -> WorkerLimits {
        let has_device = self.supervisor.has_device();
        let memory_bytes = memory_bytes(self.is_shared, has_device, self.per_worker);
        WorkerLimits { memory_bytes, ..WorkerLimits::default() }
    }

    /// Workers that run.
    pub fn count(&self) -> usize {
        self.running.lock().len()
    }

    /// Opens a session of `owner` that speaks to `inbox`; waits while a worker starts.
    pub fn open(
        self: &Arc<LiveWorkerPool>,
        owner: &Principal,
        spec: SessionSpec,
        inbox: &SessionOutputSender,
    ) -> Result<WorkerSlot, WorkerError> {
        let opened = self.enter(owner, inbox)?.opened(spec.clone());
        match opened {
            // It died between two looks at it, and this session never was in it.
            Err(WorkerError::Ended) => self.enter(owner, inbox)?.opened(spec),
            opened => opened,
        }
    }

    /// A place in a worker with room, which is started where there is none.
    fn enter(
        self: &Arc<LiveWorkerPool>,
        owner: &Principal,
        inbox: &SessionOutputSender,
    ) -> Result<WorkerSlot, WorkerError> {
        if let Some(seat) = self.enter_running(owner, inbox) {
            return Ok(seat);
        }
        let _one = self.starting.lock();
        // Somebody else may have started one meanwhile.
        if let Some(seat) = self.enter_running(owner, inbox) {
            return Ok(seat);
        }
        let hosted = Arc::new(Hosted::start(self, owner.clone())?);
        let session = hosted.enter(inbox.clone());
        self.running.lock().push(Arc::clone(&hosted));
        Ok(WorkerSlot { pool: Arc::clone(self), hosted, session })
    }

    fn enter_running(
        self: &Arc<LiveWorkerPool>,
        owner: &Principal,
        inbox: &SessionOutputSender,
    ) -> Option<WorkerSlot> {
        let running = self.running.lock();
        let has_room = |hosted: &&Arc<Hosted>| {
            (self.is_shared || hosted.owner == *owner)
                && !hosted.has_ended.load(Relaxed)
                && hosted.inboxes.lock().of.len() < self.per_worker
        };
        let hosted = Arc::clone(running.iter().find(has_room)?);
        let session = hosted.enter(inbox.clone());
        Some(WorkerSlot { pool: Arc::clone(self), hosted, session })
    }
}

/// Sessions of one worker.
fn per_worker(is_shared: bool, has_device: bool) -> usize {
    if is_shared && has_device { PER_DEVICE_WORKER } else { PER_WORKER }
}

/// Resident memory that a worker of so many sessions may have. A bound and not a reservation.
fn memory_bytes(is_shared: bool, has_device: bool, sessions: usize) -> u64 {
    let driver = if has_device { DRIVER_BYTES } else { 0 };
    let own = if is_shared {
        sessions as u64 * LiveWorker::SESSION_BYTES_MAX + BESIDE_BYTES
    } else {
        WORKER_BYTES
    };
    own + driver
}

impl Hosted {
    fn start(pool: &LiveWorkerPool, owner: Principal) -> Result<Hosted, WorkerError> {
        let (inboxes, has_ended): (Inboxes, Arc<AtomicBool>) = Default::default();
        let (told, ended) = (Arc::clone(&inboxes), Arc::clone(&has_ended));
        let counted = Arc::clone(&pool.metrics);
        let on_event = move |event| {
            match event {
                LiveWorkerEvent::Session { session, event } => {
                    let inbox = told.lock().of.get(&session).cloned();
                    // Nobody waits for what a closed session still has to say.
                    return inbox.map_or(Ok(()), |inbox| inbox.take(event));
                }
                LiveWorkerEvent::GateLost(reason) => {
                    counted.gate_devices_lost.inc();
                    tracing::warn!(reason, "gate device disabled; using the CPU");
                }
                LiveWorkerEvent::GateLate => {
                    counted.gate_batches_late.inc();
                    tracing::debug!("the gate's device was late with a batch: the CPU measured it");
                }
                LiveWorkerEvent::DecoderLost(reason) => {
                    counted.decode_fallbacks.inc();
                    tracing::warn!(reason, "decode device unavailable; using software decoding");
                }
                LiveWorkerEvent::Ended(error) => {
                    ended.store(true, Relaxed);
                    tracing::warn!(%error, "a media worker of live sessions ended");
                    told.lock().of.values().for_each(|inbox| inbox.worker_ended(&error));
                }
            }
            Ok(())
        };
        let worker = pool.supervisor.start_live(pool.limits(), on_event)?;
        Ok(Hosted { owner, worker, inboxes, has_ended })
    }

    fn enter(&self, inbox: SessionOutputSender) -> u32 {
        let mut table = self.inboxes.lock();
        let session = table.next;
        // A worker does not live through four thousand million sessions.
        table.next = session.wrapping_add(1);
        table.of.insert(session, inbox);
        session
    }
}

impl WorkerSlot {
    fn opened(self, spec: SessionSpec) -> Result<WorkerSlot, WorkerError> {
        match self.hosted.worker.open(self.session, spec) {
            Ok(()) => Ok(self),
            Err(error) => {
                if matches!(error, WorkerError::Ended) {
                    self.hosted.has_ended.store(true, Relaxed);
                }
                Err(error)
            }
        }
    }

    /// Gives the worker the next picture; never waits.
    pub fn push(&self, unit: AccessUnit) -> Result<(), WorkerError> {
        self.hosted.worker.push(self.session, unit)
    }

    /// Tells the worker that no picture follows; the session answers when all its output is sent.
    pub fn close(&self) -> Result<(), WorkerError> {
        self.hosted.worker.close(self.session)
    }
}

impl Drop for WorkerSlot {
    fn drop(&mut self) {
        // Fails where it is closed, or where the worker has ended.
        self.close().ok();
        let mut running = self.pool.running.lock();
        let mut table = self.hosted.inboxes.lock();
        table.of.remove(&self.session);
        if table.of.is_empty() {
            running.retain(|hosted| !Arc::ptr_eq(hosted, &self.hosted));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_worker_serves_a_device_where_principals_share_it() {
        let rows = [
            (false, false, 8, 2 << 30),
            (false, true, 8, 3 << 30),
            (true, false, 8, 8 * LiveWorker::SESSION_BYTES_MAX + (1 << 30)),
            (true, true, 64, 64 * LiveWorker::SESSION_BYTES_MAX + (2 << 30)),
        ];
        for (is_shared, has_device, sessions, bytes) in rows {
            let case = format!("shared: {is_shared}, device: {has_device}");
            assert_eq!(per_worker(is_shared, has_device), sessions, "{case}");
            assert_eq!(memory_bytes(is_shared, has_device, sessions), bytes, "{case}");
        }
    }
}
