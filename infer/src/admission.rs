//! Asynchronous front of the scheduler: tasks wait for a permit, which is released on drop.
//!
//! Promises that a task that stops waiting leaves the queue, that a permit is released however its holder
//! ends, and that a request without a response is charged its estimate, so that hanging up saves no tokens.

#[cfg(test)]
mod tests;

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use tokio::sync::oneshot;

use crate::{
    InferenceRequest,
    scheduler::{
        AdmissionError, AdmissionId, AdmissionLimits, AdmissionRequest, DailyUsage, Scheduler,
        SchedulerLoad,
    },
};

/// Tokens estimated for an answer if the request sets no `max_tokens`.
const ANSWER_TOKENS: u64 = 1024;
/// Tokens estimated per picture: about the count of common models for 1000 x 1000 pixels.
const IMAGE_TOKENS: u64 = 1536;
/// Bytes of text estimated per token; most text has more bytes per token.
const BYTES_A_TOKEN: u64 = 3;

/// Returns the estimated tokens of a request; too many rather than too few.
fn estimate(prompt_bytes: usize, images: usize, max_tokens: Option<u32>) -> u64 {
    let answer = max_tokens.map_or(ANSWER_TOKENS, u64::from);
    (prompt_bytes as u64).div_ceil(BYTES_A_TOKEN) + images as u64 * IMAGE_TOKENS + answer
}

impl InferenceRequest {
    /// Returns the estimated tokens of the request.
    pub fn tokens_estimate(&self) -> u64 {
        self.tokens_estimate_again(self.max_tokens, 0)
    }

    /// Returns the estimated tokens with `images` pictures and `caption_bytes` bytes of captions.
    pub fn tokens_estimate_with(&self, images: usize, caption_bytes: usize) -> u64 {
        estimate(self.text_bytes() + caption_bytes, images, self.max_tokens)
    }

    /// Returns the estimated tokens of a further attempt with `max_tokens` and `more_bytes` more text.
    pub(crate) fn tokens_estimate_again(&self, max_tokens: Option<u32>, more_bytes: usize) -> u64 {
        let captions: usize = self.images.iter().map(|image| image.caption.len()).sum();
        estimate(self.text_bytes() + captions + more_bytes, self.images.len(), max_tokens)
    }

    fn text_bytes(&self) -> usize {
        // Backends put the schema into the prompt, or compile it at a similar cost.
        self.prompt.len() + self.schema.as_ref().map_or(0, |schema| schema.bytes())
    }

    /// Returns the bytes of all pictures.
    pub fn image_bytes(&self) -> u64 {
        self.images.iter().map(|image| image.jpeg.len() as u64).sum()
    }
}

/// Clock that returns the number of the UTC day.
pub type UtcDayFn = Box<dyn Fn() -> u64 + Send + Sync>;
/// Receives a principal's token usage of a day; called without a lock held, must not block.
pub type UsageCallback = Box<dyn Fn(DailyUsage) + Send + Sync>;

/// Admission to the models; clones share the state.
#[derive(Clone)]
pub struct InferenceAdmission(Arc<Shared>);

struct Shared {
    state: Mutex<AdmissionState>,
    today: UtcDayFn,
    on_use: UsageCallback,
}

struct AdmissionState {
    scheduler: Scheduler,
    senders: HashMap<AdmissionId, oneshot::Sender<Result<(), AdmissionError>>>,
}

impl InferenceAdmission {
    /// Creates an admission with these limits.
    pub fn new(
        limits: AdmissionLimits,
        today: UtcDayFn,
        on_use: UsageCallback,
    ) -> InferenceAdmission {
        let state = AdmissionState { scheduler: Scheduler::new(limits), senders: HashMap::new() };
        InferenceAdmission(Arc::new(Shared { state: Mutex::new(state), today, on_use }))
    }

    /// Restores a principal's usage of a day, as recorded before the restart.
    pub fn restore(&self, principal: Arc<str>, day: u64, used: u64) {
        self.0.state().scheduler.restore(principal, day, used);
    }

    /// Returns the counts of waiting requests and of those in flight.
    pub fn load(&self) -> SchedulerLoad {
        self.0.state().scheduler.load()
    }

    /// Returns the tokens that a principal has used today; `None` without a daily budget.
    pub fn used(&self, principal: &Arc<str>) -> Option<DailyUsage> {
        self.0.state().scheduler.used(principal, (self.0.today)())
    }

    /// Waits for a permit; dropping the future removes the request from the queue.
    pub async fn enter(
        &self,
        request: AdmissionRequest,
    ) -> Result<InferencePermit, AdmissionError> {
        let (since, principal) = (Instant::now(), Arc::clone(&request.principal));
        let (sender, mut outcome) = oneshot::channel();
        let id = {
            let mut state = self.0.state();
            let id = state.scheduler.push(since, (self.0.today)(), request)?;
            state.senders.insert(id, sender);
            id
        };
        // The scheduler holds the request from here on; `QueueEntry` removes it on drop.
        let entry = QueueEntry { shared: Arc::clone(&self.0), id };
        self.0.dispatch();
        loop {
            let next = self.0.state().scheduler.deadline(id, Instant::now());
            let overdue = async {
                match next {
                    Some(until) => tokio::time::sleep_until(until.into()).await,
                    // The request left the queue: its outcome is about to arrive.
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                outcome = &mut outcome => {
                    // The sender is dropped only after it has sent an outcome.
                    outcome.unwrap_or(Err(AdmissionError::TimedOut { waited: since.elapsed() }))?;
                    return Ok(InferencePermit { entry, principal, waited: since.elapsed() });
                }
                () = overdue => self.0.dispatch(),
            }
        }
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, AdmissionState> {
        // Every change of the state completes before anything can panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends every outcome that the scheduler has ready.
    fn dispatch(&self) {
        let (now, day) = (Instant::now(), (self.today)());
        let mut state = self.state();
        while let Some((id, outcome)) = state.scheduler.poll(now, day) {
            if let Some(sender) = state.senders.remove(&id) {
                // If the requester has just stopped waiting, its `QueueEntry` releases the permit.
                sender.send(outcome).ok();
            }
        }
    }
}

/// Entry of one request in the scheduler, waiting or in flight; removed or released on drop.
struct QueueEntry {
    shared: Arc<Shared>,
    id: AdmissionId,
}

impl Drop for QueueEntry {
    fn drop(&mut self) {
        let QueueEntry { shared, id } = self;
        let used = {
            let mut state = shared.state();
            state.senders.remove(id);
            // A request that does not wait any more was admitted, perhaps before it could learn of it;
            // a refused one is gone already.
            if state.scheduler.cancel(*id) {
                None
            } else {
                state.scheduler.release(*id, (shared.today)())
            }
        };
        if let Some(used) = used {
            (shared.on_use)(used);
        }
        // The next request in the queue may be admissible.
        shared.dispatch();
    }
}

/// Budget of tokens. Called from the requester's task: must not block.
pub trait TokenBudget: Send + Sync {
    /// Returns the principal that is charged.
    fn principal(&self) -> Arc<str>;

    /// Reserves `tokens`, an estimate, for the next request. Returns `false` if the budget is too
    /// small; the request must then not be sent.
    fn reserve(&self, tokens: u64) -> bool;

    /// Charges the `tokens` that the request took, in place of what was reserved for it.
    fn commit(&self, tokens: u64);
}

/// Unlimited budget without a principal.
impl TokenBudget for () {
    fn principal(&self) -> Arc<str> {
        "".into()
    }

    fn reserve(&self, _: u64) -> bool {
        true
    }

    fn commit(&self, _: u64) {}
}

/// Permit to call a model, released on drop, and the budget that its requests are charged to.
#[must_use]
pub struct InferencePermit {
    entry: QueueEntry,
    principal: Arc<str>,
    waited: Duration,
}

impl InferencePermit {
    /// Returns the time that the request waited in the queue.
    pub fn waited(&self) -> Duration {
        self.waited
    }
}

impl TokenBudget for InferencePermit {
    fn principal(&self) -> Arc<str> {
        Arc::clone(&self.principal)
    }

    fn reserve(&self, tokens: u64) -> bool {
        let QueueEntry { shared, id } = &self.entry;
        shared.state().scheduler.reserve(*id, (shared.today)(), tokens)
    }

    fn commit(&self, tokens: u64) {
        let QueueEntry { shared, id } = &self.entry;
        shared.state().scheduler.commit(*id, (shared.today)(), tokens);
    }
}

impl fmt::Debug for InferencePermit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InferencePermit").field("id", &self.entry.id).finish_non_exhaustive()
    }
}
