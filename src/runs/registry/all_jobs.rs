//! Runs with a job, and listeners for the end of jobs, which no event announces.

use std::collections::{HashMap, HashSet};

use media::RunId;
use parking_lot::{Mutex, RwLock};

use super::RunRegistry;
use crate::base::keys::Principal;

type Listener = Box<dyn Fn(RunId) + Send + Sync>;

#[derive(Default)]
pub(super) struct AllJobs {
    busy: Mutex<HashMap<Principal, HashSet<RunId>>>,
    listeners: RwLock<Vec<Listener>>,
}

impl AllJobs {
    pub(super) fn began(&self, owner: &Principal, run: RunId) {
        self.busy.lock().entry(owner.clone()).or_default().insert(run);
    }

    pub(super) fn rests(&self, owner: &Principal, run: RunId) {
        let mut busy = self.busy.lock();
        let Some(runs) = busy.get_mut(owner) else { return };
        runs.remove(&run);
        if runs.is_empty() {
            busy.remove(owner);
        }
    }

    pub(super) fn count(&self, owner: &Principal, counts: impl Fn(&RunId) -> bool) -> usize {
        let busy = self.busy.lock();
        busy.get(owner).map_or(0, |runs| runs.iter().filter(|run| counts(run)).count())
    }

    pub(super) fn tell(&self, run: RunId) {
        // Listeners are only added: the list stays whole after a panic.
        let listeners = self.listeners.read();
        listeners.iter().for_each(|listener| listener(run));
    }
}

impl RunRegistry {
    /// Number of runs with a job, including live sessions.
    pub fn busy_runs(&self) -> usize {
        self.jobs.busy.lock().values().map(HashSet::len).sum()
    }

    /// Adds a listener, called with the run of each job that ends, after the job's last event is
    /// readable. `listener` must be short.
    pub fn on_job_end(&self, listener: impl Fn(RunId) + Send + Sync + 'static) {
        let mut listeners = self.jobs.listeners.write();
        listeners.push(Box::new(listener));
    }
}
