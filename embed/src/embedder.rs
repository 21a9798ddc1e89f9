//! One model on its own thread, shared by all streams of the process; pictures that arrive close together are
//! embedded as one batch.
//!
//! A request always ends within the deadline. Pictures whose requesters gave up are not embedded.

use std::{
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use tokio::sync::oneshot;

use crate::{
    batch::{BatchCounts, BatchLimits, Batcher},
    embedding::{EmbedError, Embedding, ModelInputImage},
};

#[cfg(test)]
mod tests;

/// Model that turns pictures into embeddings.
pub trait EmbeddingModel: Send {
    /// Returns the side of the square pictures that the model takes, in pixels.
    fn side(&self) -> u32;

    /// Returns the execution provider that the model runs on, for logs and `/v1/models`.
    fn provider(&self) -> &'static str;

    /// Returns one embedding for each picture, in order.
    fn embed(&mut self, pictures: &[ModelInputImage]) -> Result<Vec<Embedding>, EmbedError>;
}

/// Counts of the requests so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EmbedderCounts {
    /// Pictures that waited, and batches made of them.
    pub batch: BatchCounts,
    /// Pictures that were embedded.
    pub embedded: u64,
    /// Pictures that were not embedded because the model failed.
    pub failed: u64,
    /// Pictures that were not embedded because their requesters gave up.
    pub abandoned: u64,
    /// Total time for which the model ran.
    pub busy: Duration,
}

type Reply = oneshot::Sender<Result<Embedding, EmbedError>>;

struct EmbedJob {
    picture: ModelInputImage,
    reply: Reply,
}

struct State {
    batcher: Batcher<u64, EmbedJob>,
    counts: EmbedderCounts,
    stopped: bool,
}

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

impl Shared {
    /// A poisoned lock is used on: counts and queue are consistent between any two statements.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn stop(&self) {
        let mut state = self.lock();
        state.stopped = true;
        state.batcher.clear();
        self.changed.notify_all();
    }
}

/// Handle to the model's thread. Dropping it ends the thread after its current batch.
pub struct Embedder {
    shared: Arc<Shared>,
    side: u32,
    provider: &'static str,
    deadline: Duration,
}

impl Embedder {
    /// Starts the thread; fails if the system cannot create one.
    pub fn start(
        model: impl EmbeddingModel + 'static,
        limits: BatchLimits,
        deadline: Duration,
    ) -> std::io::Result<Embedder> {
        let (side, provider) = (model.side(), model.provider());
        let counts = EmbedderCounts::default();
        let state = State { batcher: Batcher::new(limits), counts, stopped: false };
        let shared = Arc::new(Shared { state: Mutex::new(state), changed: Condvar::new() });
        let of_thread = Arc::clone(&shared);
        std::thread::Builder::new().name("embed".to_owned()).spawn(move || {
            // Stops also when the model panics: waiting requests fail, later ones are refused.
            let ended = StopOnDrop(of_thread);
            run(&ended.0, model);
        })?;
        Ok(Embedder { shared, side, provider, deadline })
    }

    /// Returns the side of the pictures that the model takes, in pixels.
    pub fn side(&self) -> u32 {
        self.side
    }

    /// Returns the execution provider that the model runs on.
    pub fn provider(&self) -> &'static str {
        self.provider
    }

    /// Returns the counts of the requests so far.
    pub fn counts(&self) -> EmbedderCounts {
        let state = self.shared.lock();
        EmbedderCounts { batch: state.batcher.counts(), ..state.counts }
    }

    /// Returns the embedding of `picture`, which belongs to `stream`.
    pub async fn embed(
        &self,
        stream: u64,
        picture: ModelInputImage,
    ) -> Result<Embedding, EmbedError> {
        if picture.side() != self.side {
            return Err(EmbedError::Side { side: self.side, got: picture.side() });
        }
        let (reply, answer) = oneshot::channel();
        {
            let mut state = self.shared.lock();
            if state.stopped {
                return Err(EmbedError::Stopped);
            }
            let pushed = state.batcher.push(Instant::now(), stream, EmbedJob { picture, reply });
            pushed.map_err(|_| EmbedError::Full)?;
            self.shared.changed.notify_one();
        }
        match tokio::time::timeout(self.deadline, answer).await {
            Ok(Ok(result)) => result,
            Ok(Err(_)) => Err(EmbedError::Stopped),
            Err(_) => Err(EmbedError::Late(self.deadline.as_millis() as u64)),
        }
    }
}

impl Drop for Embedder {
    fn drop(&mut self) {
        self.shared.stop();
    }
}

struct StopOnDrop(Arc<Shared>);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.stop();
    }
}

fn run(shared: &Shared, mut model: impl EmbeddingModel) {
    while let Some(mut batch) = next_batch(shared) {
        let pushed = batch.len();
        batch.retain(|ask| !ask.reply.is_closed());
        let abandoned = pushed - batch.len();
        let (pictures, replies): (Vec<ModelInputImage>, Vec<Reply>) =
            batch.into_iter().map(|ask| (ask.picture, ask.reply)).unzip();
        let started = Instant::now();
        let result = if pictures.is_empty() { Ok(Vec::new()) } else { model.embed(&pictures) };
        let busy = started.elapsed();

        let result = result.and_then(|embeddings| {
            if embeddings.len() == replies.len() {
                return Ok(embeddings);
            }
            let (got, asked) = (embeddings.len(), replies.len());
            Err(EmbedError::Model(format!("{got} embeddings for {asked} pictures")))
        });
        {
            let counts = &mut shared.lock().counts;
            counts.abandoned += abandoned as u64;
            counts.busy += busy;
            let count = if result.is_ok() { &mut counts.embedded } else { &mut counts.failed };
            *count += replies.len() as u64;
        }
        let answers: Vec<Result<Embedding, EmbedError>> = match result {
            Ok(embeddings) => embeddings.into_iter().map(Ok).collect(),
            Err(error) => vec![Err(error); replies.len()],
        };
        for (reply, answer) in replies.into_iter().zip(answers) {
            // The caller may have given up while the model ran; its picture still counts as embedded.
            reply.send(answer).ok();
        }
    }
}

/// Waits for the next batch; `None` once the embedder has stopped.
fn next_batch(shared: &Shared) -> Option<Vec<EmbedJob>> {
    let mut state = shared.lock();
    loop {
        if state.stopped {
            return None;
        }
        let now = Instant::now();
        if let Some(batch) = state.batcher.poll(now) {
            return Some(batch);
        }
        state = match state.batcher.due() {
            Some(due) => {
                let wait = shared.changed.wait_timeout(state, due.saturating_duration_since(now));
                wait.unwrap_or_else(PoisonError::into_inner).0
            }
            None => shared.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
        };
    }
}
