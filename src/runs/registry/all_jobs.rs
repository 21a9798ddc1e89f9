//! Runs that have a job, and the listeners for its end: no event says so.

use std::collections::{HashMap, HashSet};

use media::RunId;
use parking_lot::{Mutex, RwLock};

use super::RunRegistry;
use crate::base::keys::Principal;

type Listener = Box<dyn Fn(RunId) + Send + Sync>;

/// The jobs of every run.
#[derive(Default)]
pub(super) struct AllJobs {
    /// Runs with a job, by owner.
    busy: Mutex<HashMap<Principal, HashSet<RunId>>>,
    /// Listeners for the end of a job.
    listeners: RwLock<Vec<Listener>>,
}

impl AllJobs {
    /// A job of `run` has begun.
    pub(super) fn began(&self, owner: &Principal, run: RunId) {
        self.busy.lock().entry(owner.clone()).or_default().insert(run);
    }

    /// The last job of `run` has ended.
    pub(super) fn rests(&self, owner: &Principal, run: RunId) {
        let mut busy = self.busy.lock();
        let Some(runs) = busy.get_mut(owner) else { return };
        runs.remove(&run);
        if runs.is_empty() {
            busy.remove(owner);
        }
    }

    /// Number of the runs of `owner` that have a job and satisfy `counts`.
    pub(super) fn count(&self, owner: &Principal, counts: impl Fn(&RunId) -> bool) -> usize {
        let busy = self.busy.lock();
        busy.get(owner).map_or(0, |runs| runs.iter().filter(|run| counts(run)).count())
    }

    /// The job of `run` has ended.
    pub(super) fn tell(&self, run: RunId) {
        // Listeners are only added: a panic leaves them whole.
        let listeners = self.listeners.read();
        listeners.iter().for_each(|listener| listener(run));
    }
}

impl RunRegistry {
    /// Number of runs that have a job, live sessions among them.
    pub fn busy_runs(&self) -> usize {
        self.jobs.busy.lock().values().map(HashSet::len).sum()
    }

    /// Has `listener` called with each run whose job has ended, after the job's last event is
    /// readable. It must be brief.
    pub fn on_job_end(&self, listener: impl Fn(RunId) + Send + Sync + 'static) {
        let mut listeners = self.jobs.listeners.write();
        listeners.push(Box::new(listener));
    }
}
