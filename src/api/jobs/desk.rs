//! The jobs under way, by run: who waits for each, and what became of it.

use std::{
    collections::{HashMap, hash_map::Entry as Place},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use axum::response::{IntoResponse, Response};
use media::{JobId, RequestId, RunId};
use parking_lot::Mutex;
use tokio::sync::watch;

use super::{JobToken, JobView};
use crate::{
    api::{
        ApiResult,
        error::{ApiError, ErrorExtension},
        idempotency::response,
    },
    runs::{
        idempotency::{BodyDigest, StoredResponse},
        registry::{JobKind, JobOrder, RunError},
    },
};

/// Outcome of a job.
#[derive(Clone)]
pub enum Outcome {
    /// Failure.
    Failed(Arc<ApiError>),
    /// Answer that fits the table.
    Answered(Arc<StoredResponse>),
    /// An answer that is too long to be given twice.
    Long,
}

/// A job under way.
pub struct Entry {
    pub token: JobToken,
    pub order: JobOrder,
    fingerprint: BodyDigest,
    is_kept: AtomicBool,
    outcome: watch::Sender<Option<Outcome>>,
    /// A long answer, for the first who takes it.
    long: Mutex<Option<Response>>,
}

impl Entry {
    /// The job as it stands, once it is accepted.
    pub fn view(&self) -> Option<JobView> {
        self.token.view().filter(|_| self.token.is_accepted())
    }

    /// Ends the job, and not its run.
    pub fn call_off(&self) {
        self.token.call_off();
    }

    /// Has the job's answer kept.
    pub fn keep(&self) {
        self.is_kept.store(true, Ordering::Relaxed);
    }

    /// Returns true where the answer is to be kept: it was asked for, or no caller waits for it.
    pub fn is_kept(&self) -> bool {
        self.is_kept.load(Ordering::Relaxed) || self.outcome.receiver_count() == 0
    }

    /// Receiver of the outcome.
    pub fn waits(&self) -> watch::Receiver<Option<Outcome>> {
        self.outcome.subscribe()
    }

    /// Resolves once the job is over.
    pub async fn ended(&self) {
        // Its sender is in `self`.
        drop(self.waits().wait_for(Option::is_some).await);
    }

    /// Response to the outcome that `told` brings.
    pub async fn answered(&self, mut told: watch::Receiver<Option<Outcome>>) -> ApiResult {
        let outcome = told.wait_for(Option::is_some).await.ok().and_then(|told| told.clone());
        match outcome {
            Some(Outcome::Failed(error)) => Ok(ErrorExtension(error).into_response()),
            Some(Outcome::Answered(answer)) => Ok(response(StoredResponse::clone(&answer))),
            Some(Outcome::Long) => self.take_long().ok_or(ApiError::AnswerLong(self.order.id)),
            None => Err(ApiError::Bug("a job ended without a word")),
        }
    }

    /// Holds an answer that is too long for the table.
    pub fn hold(&self, response: Response) -> Outcome {
        *self.long.lock() = Some(response);
        Outcome::Long
    }

    /// The answer that is too long for the table, where no caller has taken it.
    pub fn take_long(&self) -> Option<Response> {
        // One assignment each: a panic leaves it whole.
        self.long.lock().take()
    }

    fn key(&self) -> Key {
        (self.order.run, self.order.kind == JobKind::Analysis)
    }
}

/// Run and what is kept busy in it: its frames, or an analysis of them.
type Key = (RunId, bool);

/// The jobs under way.
#[derive(Default)]
pub struct Desk(Mutex<HashMap<Key, Arc<Entry>>>);

/// A request's job.
pub enum Found {
    /// Job that the same request asked for before.
    Joined(Arc<Entry>),
    /// New job, to be done.
    Begun(Arc<Entry>),
}

impl Desk {
    /// The job of a request, under way or new; `is_new` is false of one that must be under way.
    pub fn ask(
        &self,
        run: RunId,
        kind: JobKind,
        request: RequestId,
        fingerprint: BodyDigest,
        may_begin: bool,
    ) -> Result<Found, ApiError> {
        match self.0.lock().entry((run, kind == JobKind::Analysis)) {
            Place::Occupied(entry) if entry.get().fingerprint == fingerprint => {
                Ok(Found::Joined(Arc::clone(entry.get())))
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
                    is_kept: AtomicBool::new(false),
                    outcome: watch::Sender::new(None),
                    long: Mutex::default(),
                });
                place.insert(Arc::clone(&entry));
                Ok(Found::Begun(entry))
            }
        }
    }

    /// The job `id` of `run`.
    pub fn find(&self, run: RunId, id: JobId) -> Option<Arc<Entry>> {
        self.of_run(run).into_iter().find(|entry| entry.order.id == id)
    }

    /// The jobs of `run`.
    pub fn of_run(&self, run: RunId) -> Vec<Arc<Entry>> {
        let entries = self.0.lock();
        [false, true].iter().filter_map(|key| entries.get(&(run, *key)).cloned()).collect()
    }

    /// Ends a job: sends the outcome to all that wait, and frees its slot.
    pub fn end(&self, entry: &Entry, outcome: Outcome) {
        self.0.lock().remove(&entry.key());
        entry.outcome.send_replace(Some(outcome));
    }
}
