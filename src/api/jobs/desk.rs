//! Table of running jobs by run, with their waiters and outcomes.

use std::collections::{HashMap, hash_map::Entry as Place};

use media::JobId;
use parking_lot::Mutex;
use tokio::sync::watch;

use super::{JobToken, JobView};
use crate::{
    api::{error::ErrorExtension, idempotency::response, prelude::*},
    runs::{
        idempotency::{BodyDigest, StoredResponse},
        registry::{JobKind, JobOrder, RunError},
    },
};

#[derive(Clone)]
pub enum Outcome {
    Failed(Arc<ApiError>),
    /// The job succeeded, with an answer short enough to be stored.
    Answered(Arc<StoredResponse>),
    /// The job succeeded, with an answer too long to be sent twice: the first caller takes it.
    Long(Arc<Mutex<Option<Response>>>),
}

/// A running job.
pub struct Entry {
    pub token: JobToken,
    pub order: JobOrder,
    fingerprint: BodyDigest,
    /// Decision whether the answer is stored.
    is_kept: Mutex<Option<bool>>,
    outcome: watch::Sender<Option<Outcome>>,
}

impl Entry {
    /// Returns the state of the job; `None` until it is accepted.
    pub fn view(&self) -> Option<JobView> {
        self.token.view().filter(|_| self.token.is_accepted())
    }

    /// Requests that the answer be stored; returns false if the job has ended without storing it.
    pub fn keep(&self) -> bool {
        *self.is_kept.lock().get_or_insert(true)
    }

    /// Decides whether the answer is stored: a caller requested it, or no caller waits.
    pub fn decide_storage(&self) -> bool {
        *self.is_kept.lock().get_or_insert_with(|| self.outcome.receiver_count() == 0)
    }

    pub fn waits(&self) -> watch::Receiver<Option<Outcome>> {
        self.outcome.subscribe()
    }

    pub async fn ended(&self) {
        // Cannot fail: `self` owns the sender.
        drop(self.waits().wait_for(Option::is_some).await);
    }

    /// Waits for the outcome on `told` and returns it as a response.
    pub async fn answered(&self, mut told: watch::Receiver<Option<Outcome>>) -> ApiResult {
        let outcome = told.wait_for(Option::is_some).await.ok().and_then(|told| told.clone());
        match outcome {
            Some(Outcome::Failed(error)) => Ok(ErrorExtension(error).into_response()),
            Some(Outcome::Answered(answer)) => Ok(response(StoredResponse::clone(&answer))),
            Some(Outcome::Long(held)) => {
                let answer = held.lock().take();
                answer.ok_or(ApiError::AnswerLong(self.order.id))
            }
            None => Err(ApiError::Bug("a job ended without a word")),
        }
    }
}

/// Run, and true for its analysis or false for a job that records frames: one of each may run.
type Key = (RunId, bool);

#[derive(Default)]
pub struct Desk(Mutex<HashMap<Key, Arc<Entry>>>);

impl Desk {
    /// Joins the running job if the request is the same; else starts one if `may_begin`. Also returns true if
    /// the job is new, to be carried out.
    pub fn ask(
        &self,
        run: RunId,
        kind: JobKind,
        request: RequestId,
        fingerprint: BodyDigest,
        may_begin: bool,
    ) -> ApiResult<(Arc<Entry>, bool)> {
        match self.0.lock().entry((run, kind == JobKind::Analysis)) {
            Place::Occupied(entry) if entry.get().fingerprint == fingerprint => {
                Ok((Arc::clone(entry.get()), false))
            }
            Place::Occupied(entry) => {
                Err(RunError::Busy { job: Some(entry.get().order.id) }.into())
            }
            Place::Vacant(_) if !may_begin => Err(ApiError::UnderWay),
            Place::Vacant(place) => {
                let (token, order) = JobToken::asked(kind, run, request);
                let entry = Arc::new(Entry {
                    token,
                    order,
                    fingerprint,
                    is_kept: Mutex::default(),
                    outcome: watch::Sender::new(None),
                });
                place.insert(Arc::clone(&entry));
                Ok((entry, true))
            }
        }
    }

    pub fn find(&self, run: RunId, id: JobId) -> Option<Arc<Entry>> {
        self.of_run(run).into_iter().find(|entry| entry.order.id == id)
    }

    pub fn of_run(&self, run: RunId) -> Vec<Arc<Entry>> {
        let entries = self.0.lock();
        [false, true].iter().filter_map(|key| entries.get(&(run, *key)).cloned()).collect()
    }

    /// Ends a job: removes it from the table and sends the outcome to all waiters.
    pub fn end(&self, entry: &Entry, outcome: Outcome) {
        self.0.lock().remove(&(entry.order.run, entry.order.kind == JobKind::Analysis));
        entry.outcome.send_replace(Some(outcome));
    }
}
