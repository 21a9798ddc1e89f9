//! Who is told that the job of a run has ended: no event says so.

use std::sync::{PoisonError, RwLock};

use media::RunId;

use super::Registry;

type Listener = Box<dyn Fn(RunId) + Send + Sync>;

/// Those who are told.
#[derive(Default)]
pub(super) struct JobEnds(RwLock<Vec<Listener>>);

impl JobEnds {
    /// The job of `run` has ended.
    pub(super) fn tell(&self, run: RunId) {
        // Listeners are only added: a panic leaves them whole.
        let listeners = self.0.read().unwrap_or_else(PoisonError::into_inner);
        listeners.iter().for_each(|listener| listener(run));
    }
}

impl Registry {
    /// Has `listener` called with each run whose job has ended, after the job's last event is
    /// readable. It must be brief.
    pub fn on_job_end(&self, listener: impl Fn(RunId) + Send + Sync + 'static) {
        let mut listeners = self.job_ends.0.write().unwrap_or_else(PoisonError::into_inner);
        listeners.push(Box::new(listener));
    }
}
