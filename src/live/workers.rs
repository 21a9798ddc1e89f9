//! The media workers of live sessions: shared by a few sessions each, and by one principal's
//! unless the operator says otherwise. Where a device decodes or measures, one worker has as many as it
//! holds: a device is opened once, and pictures of all sessions are measured together.
//!
//! A worker starts with its first session and ends with its last. One that ends by itself takes
//! its own sessions with it and no other.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use media::AccessUnit;
use worker::{Limits, LiveEvent, LiveWorker, SessionSpec, Supervisor, WorkerError};

use super::{budget::SESSION_BYTES, inbox::Inbox};
use crate::{config::Principal, metrics::Metrics};

/// Sessions of one worker: one that ends takes them all with it.
const PER_WORKER: usize = 8;
/// The same where all share a device.
const PER_DEVICE_WORKER: usize = LiveWorker::SESSIONS_MAX;
/// Memory of one worker of [`PER_WORKER`] sessions: what they reserve, and room for the largest
/// picture.
const WORKER_BYTES: u64 = 2 << 30;

/// The workers that run.
pub struct Workers {
    supervisor: Supervisor,
    is_shared: bool,
    /// Sessions of one worker.
    per_worker: usize,
    metrics: Arc<Metrics>,
    /// Only those with a session.
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
    of: HashMap<u32, Inbox>,
}

/// A session's place in a worker, until dropped; dropping it may wait for a worker to end.
pub struct Seat {
    pool: Arc<Workers>,
    hosted: Arc<Hosted>,
    session: u32,
}

impl Workers {
    /// No worker yet; where nobody says whether principals share one, they do on a device.
    pub fn new(
        supervisor: Supervisor,
        is_shared: Option<bool>,
        metrics: Arc<Metrics>,
    ) -> Arc<Workers> {
        let (is_shared, per_worker) = seating(supervisor.has_device(), is_shared);
        let (running, starting) = (Mutex::default(), Mutex::default());
        Arc::new(Workers { supervisor, is_shared, per_worker, metrics, running, starting })
    }

    /// What a worker may use: its sessions' reservations beyond those of a small one.
    fn limits(&self) -> Limits {
        let further = (self.per_worker - PER_WORKER) as u64 * SESSION_BYTES;
        Limits { memory_bytes: WORKER_BYTES + further, ..Limits::default() }
    }

    /// Workers that run.
    pub fn count(&self) -> usize {
        lock(&self.running).len()
    }

    /// Opens a session of `owner` that speaks to `inbox`; waits while a worker starts.
    pub fn open(
        self: &Arc<Workers>,
        owner: &Principal,
        spec: SessionSpec,
        inbox: &Inbox,
    ) -> Result<Seat, WorkerError> {
        let opened = self.enter(owner, inbox)?.opened(spec);
        match opened {
            // It died between two looks at it, and this session never was in it.
            Err(WorkerError::Ended) => self.enter(owner, inbox)?.opened(spec),
            opened => opened,
        }
    }

    /// A place in a worker with room, which is started where there is none.
    fn enter(self: &Arc<Workers>, owner: &Principal, inbox: &Inbox) -> Result<Seat, WorkerError> {
        if let Some(seat) = self.enter_running(owner, inbox) {
            return Ok(seat);
        }
        let _one = lock(&self.starting);
        // Somebody else may have started one meanwhile.
        if let Some(seat) = self.enter_running(owner, inbox) {
            return Ok(seat);
        }
        let hosted = Arc::new(Hosted::start(self, owner.clone())?);
        let session = hosted.enter(inbox.clone());
        lock(&self.running).push(Arc::clone(&hosted));
        Ok(Seat { pool: Arc::clone(self), hosted, session })
    }

    fn enter_running(self: &Arc<Workers>, owner: &Principal, inbox: &Inbox) -> Option<Seat> {
        let running = lock(&self.running);
        let has_room = |hosted: &&Arc<Hosted>| {
            (self.is_shared || hosted.owner == *owner)
                && !hosted.has_ended.load(Relaxed)
                && lock(&hosted.inboxes).of.len() < self.per_worker
        };
        let hosted = Arc::clone(running.iter().find(has_room)?);
        let session = hosted.enter(inbox.clone());
        Some(Seat { pool: Arc::clone(self), hosted, session })
    }
}

/// Whether principals share a worker, and how many sessions one has.
fn seating(has_device: bool, is_shared: Option<bool>) -> (bool, usize) {
    match (has_device, is_shared) {
        (true, None | Some(true)) => (true, PER_DEVICE_WORKER),
        (_, is_shared) => (is_shared == Some(true), PER_WORKER),
    }
}

impl Hosted {
    fn start(pool: &Workers, owner: Principal) -> Result<Hosted, WorkerError> {
        let (inboxes, has_ended): (Inboxes, Arc<AtomicBool>) = Default::default();
        let (told, ended) = (Arc::clone(&inboxes), Arc::clone(&has_ended));
        let counted = Arc::clone(&pool.metrics);
        let on_event = move |event| match event {
            LiveEvent::Session { session, event } => {
                let inbox = lock(&told).of.get(&session).cloned();
                // Nobody waits for what a closed session still has to say.
                if let Some(inbox) = inbox {
                    inbox.take(event);
                }
            }
            LiveEvent::GateLost(reason) => {
                counted.gate_devices_lost.inc();
                tracing::warn!(reason, "the gate's device was given up: the CPU measures");
            }
            LiveEvent::Ended(error) => {
                ended.store(true, Relaxed);
                tracing::warn!(%error, "a media worker of live sessions ended");
                lock(&told).of.values().for_each(|inbox| inbox.worker_ended(&error));
            }
        };
        let worker = pool.supervisor.start_live(pool.limits(), on_event)?;
        Ok(Hosted { owner, worker, inboxes, has_ended })
    }

    fn enter(&self, inbox: Inbox) -> u32 {
        let mut table = lock(&self.inboxes);
        let session = table.next;
        // A worker does not live through four thousand million sessions.
        table.next = session.wrapping_add(1);
        table.of.insert(session, inbox);
        session
    }
}

impl Seat {
    fn opened(self, spec: SessionSpec) -> Result<Seat, WorkerError> {
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

    /// Says that no picture follows; the session answers when it has said everything.
    pub fn close(&self) -> Result<(), WorkerError> {
        self.hosted.worker.close(self.session)
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        // Fails where it is closed, or where the worker has ended.
        self.close().ok();
        let mut running = lock(&self.pool.running);
        let mut table = lock(&self.hosted.inboxes);
        table.of.remove(&self.session);
        if table.of.is_empty() {
            running.retain(|hosted| !Arc::ptr_eq(hosted, &self.hosted));
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Every change is one insert or remove: a panic leaves the table usable.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_worker_serves_a_device_unless_principals_are_kept_apart() {
        let rows = [
            (false, None, (false, 8)),
            (false, Some(false), (false, 8)),
            (false, Some(true), (true, 8)),
            (true, None, (true, 64)),
            (true, Some(true), (true, 64)),
            (true, Some(false), (false, 8)),
        ];
        for (has_device, is_shared, expected) in rows {
            assert_eq!(seating(has_device, is_shared), expected, "{has_device} {is_shared:?}");
        }
    }
}
