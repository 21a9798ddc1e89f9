//! A worker that is started before a job wants one: loading the program is what a job waits for.
//!
//! Promises that at most one waits, that it is confined like any other before it is given anything,
//! and that a job that finds none starts its own. Decides nothing about how workers live.

use std::{
    fmt, io,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        mpsc::{Receiver, SyncSender, sync_channel},
    },
    thread,
    time::Duration,
};

use crate::{WorkerError, WorkerProgram, process::Started};

/// From when one is taken to the start of the next: the first moments of a job are when it has most
/// use for the processor.
const REFILL_AFTER: Duration = Duration::from_millis(500);

/// Origin of the worker of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// It waited.
    Spare,
    /// It was started for the job.
    Fresh,
}

/// Hears where each job's worker came from, and what ailed one that waited and was of no use; called
/// on the job's thread, and must not wait.
pub(crate) type OnStart = Box<dyn Fn(Start, Option<&WorkerError>) + Send + Sync>;

type Slot = Arc<Mutex<Option<Started>>>;

/// One spare worker and the thread that starts it.
///
/// The kernel ends a worker with the thread that started it, so the thread lives for as long as this:
/// whoever has a worker from here holds it too.
pub(crate) struct Spares {
    slot: Slot,
    /// Tells the thread that one was taken, or is missing.
    taken: SyncSender<()>,
    on_start: OnStart,
}

impl fmt::Debug for Spares {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Spares").field("waits", &lock(&self.slot).is_some()).finish()
    }
}

impl Spares {
    /// Starts workers of `program` ahead of jobs.
    pub fn start(program: WorkerProgram, on_start: OnStart) -> io::Result<Arc<Spares>> {
        let (taken, wanted) = sync_channel(1);
        let slot = Slot::default();
        let kept = Arc::clone(&slot);
        thread::Builder::new()
            .name("spare-worker".to_owned())
            .spawn(move || keep(&program, &kept, &wanted))?;
        Ok(Arc::new(Spares { slot, taken, on_start }))
    }

    /// The worker that waits, if one does.
    pub fn take(&self) -> Option<Started> {
        let started = lock(&self.slot).take();
        // Full means that the thread knows.
        self.taken.try_send(()).ok();
        started
    }

    /// Tells where the worker of a job is from, and what ailed the one that waited.
    pub fn tell(&self, start: Start, ailment: Option<&WorkerError>) {
        (self.on_start)(start, ailment);
    }
}

/// Starts a worker whenever there is none, until nobody can want one.
fn keep(program: &WorkerProgram, slot: &Slot, wanted: &Receiver<()>) {
    loop {
        if lock(slot).is_none() {
            // The reason of a failure is told to the job that then tries it itself.
            let started = Started::new(program).ok();
            *lock(slot) = started;
        }
        if wanted.recv().is_err() {
            return;
        }
        thread::sleep(REFILL_AFTER);
    }
}

fn lock(slot: &Slot) -> MutexGuard<'_, Option<Started>> {
    // Every change is one assignment.
    slot.lock().unwrap_or_else(PoisonError::into_inner)
}
