//! Pool of media workers of live sessions. A worker serves a few sessions, of one principal unless the
//! operator allows sharing. With sharing and a device, one worker has as many as it holds: the device is
//! opened once, and pictures of all sessions are measured together.
//!
//! A worker starts with its first session and ends with its last. A worker that fails ends its own sessions
//! only.

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

/// Maximum sessions of one worker: all of them end if it fails.
const PER_WORKER: usize = 8;
/// Maximum sessions of a worker whose principals share a device.
const PER_DEVICE_WORKER: usize = LiveWorker::SESSIONS_MAX;
/// Memory of a worker that serves one principal: two sessions of the largest pictures at their
/// worst, beside six of 1080p. A principal that exceeds it ends only its own sessions.
const WORKER_BYTES: u64 = 2 << 30;
/// Memory beside the sessions' pictures: encoders of the threads, uploads to a device, and the
/// excess of a few decoders over [`LiveWorker::SESSION_BYTES_MAX`].
const BESIDE_BYTES: u64 = 1 << 30;
/// Resident memory of a device driver: its code and its mappings.
const DRIVER_BYTES: u64 = 1 << 30;

pub struct LiveWorkerPool {
    supervisor: Supervisor,
    is_shared: bool,
    per_worker: usize,
    metrics: Arc<Metrics>,
    /// Workers that serve at least one session.
    running: Mutex<Vec<Arc<Hosted>>>,
    /// Held while a worker starts.
    starting: Mutex<()>,
}

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

/// Slot of a session in a worker, until dropped; the drop may wait for a worker to end.
pub struct WorkerSlot {
    pool: Arc<LiveWorkerPool>,
    hosted: Arc<Hosted>,
    session: u32,
}

impl LiveWorkerPool {
    pub fn new(
        supervisor: Supervisor,
        is_shared: bool,
        metrics: Arc<Metrics>,
    ) -> Arc<LiveWorkerPool> {
        let per_worker = per_worker(is_shared, supervisor.has_device());
        let (running, starting) = (Mutex::default(), Mutex::default());
        Arc::new(LiveWorkerPool { supervisor, is_shared, per_worker, metrics, running, starting })
    }

    fn limits(&self) -> WorkerLimits {
        let has_device = self.supervisor.has_device();
        let memory_bytes = memory_bytes(self.is_shared, has_device, self.per_worker);
        WorkerLimits { memory_bytes, ..WorkerLimits::default() }
    }

    pub fn count(&self) -> usize {
        self.running.lock().len()
    }

    /// Opens a session of `owner` that sends its output to `inbox`; blocks while a worker starts.
    pub fn open(
        self: &Arc<LiveWorkerPool>,
        owner: &Principal,
        spec: SessionSpec,
        inbox: &SessionOutputSender,
    ) -> Result<WorkerSlot, WorkerError> {
        let opened = self.enter(owner, inbox)?.opened(spec.clone());
        match opened {
            // The worker ended before the session was opened in it: one retry.
            Err(WorkerError::Ended) => self.enter(owner, inbox)?.opened(spec),
            opened => opened,
        }
    }

    /// Takes a slot in a worker with room; starts a worker if there is none.
    fn enter(
        self: &Arc<LiveWorkerPool>,
        owner: &Principal,
        inbox: &SessionOutputSender,
    ) -> Result<WorkerSlot, WorkerError> {
        if let Some(seat) = self.enter_running(owner, inbox) {
            return Ok(seat);
        }
        let _one = self.starting.lock();
        // Another thread may have started a worker meanwhile.
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

/// Maximum sessions of one worker.
fn per_worker(is_shared: bool, has_device: bool) -> usize {
    if is_shared && has_device { PER_DEVICE_WORKER } else { PER_WORKER }
}

/// Limit of a worker's resident memory; not a reservation.
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
                    // Output of a closed session is discarded.
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
        // A worker does not live long enough to wrap around 2^32 sessions.
        table.next = session.wrapping_add(1);
        table.of.insert(session, inbox);
        session
    }
}

impl WorkerSlot {
    fn opened(self, spec: SessionSpec) -> Result<WorkerSlot, WorkerError> {
        let opened = self.hosted.worker.open(self.session, spec);
        if matches!(opened, Err(WorkerError::Ended)) {
            self.hosted.has_ended.store(true, Relaxed);
        }
        opened.map(|()| self)
    }

    /// Sends the next access unit to the worker; never blocks.
    pub fn push(&self, unit: AccessUnit) -> Result<(), WorkerError> {
        self.hosted.worker.push(self.session, unit)
    }

    /// Tells the worker that no access unit follows; it reports `Closed` after the session's last output.
    pub fn close(&self) -> Result<(), WorkerError> {
        self.hosted.worker.close(self.session)
    }
}

impl Drop for WorkerSlot {
    fn drop(&mut self) {
        // Fails if the session is closed already, or if the worker has ended.
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
