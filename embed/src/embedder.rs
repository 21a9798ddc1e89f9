//! One model on its own thread, shared by all streams of the process; pictures that arrive close together are
//! embedded as one batch.
//!
//! A request always ends within the deadline. Pictures whose requesters gave up are not embedded.

use std::{
    collections::{HashMap, hash_map::Entry},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        mpsc::{Receiver, SyncSender, sync_channel},
    },
    time::{Duration, Instant},
};

use tokio::sync::oneshot;

use crate::embedding::{EmbedError, Embedding, ModelInputImage};

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

/// Size of a batch, and limits of the pictures that wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchLimits {
    /// Most pictures of a batch; as soon as this many wait, a batch is ready. At least 1.
    pub size_max: usize,
    /// Longest time that a picture waits for others.
    pub age_max: Duration,
    /// Most pictures that wait, of all streams together.
    pub waiting_max: usize,
    /// Most pictures of one stream that wait, so that none fills the queue alone.
    pub stream_waiting_max: usize,
}

impl Default for BatchLimits {
    /// A batch gains nothing on a CPU, and little on a GPU below 16 pictures; 5 ms are a sixth of a frame.
    fn default() -> BatchLimits {
        BatchLimits {
            size_max: 16,
            age_max: Duration::from_millis(5),
            waiting_max: 256,
            stream_waiting_max: 8,
        }
    }
}

/// Counts of the work done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EmbedderCounts {
    /// Pictures that were embedded.
    pub embedded: u64,
    /// Batches of pictures.
    pub batches: u64,
    /// Total time for which the model ran.
    pub busy: Duration,
}

struct EmbedJob {
    since: Instant,
    picture: ModelInputImage,
    _waiting: Waiting,
    reply: oneshot::Sender<Result<Embedding, EmbedError>>,
}

#[derive(Default)]
struct State {
    /// Number of waiting pictures by stream, without zeros.
    waiting: HashMap<u64, usize>,
    counts: EmbedderCounts,
}

/// Counts a picture of `stream` as waiting, until dropped: by a batch, or with the queue.
struct Waiting {
    state: Arc<Mutex<State>>,
    stream: u64,
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if let Entry::Occupied(mut own) = locked(&self.state).waiting.entry(self.stream) {
            *own.get_mut() -= 1;
            if *own.get() == 0 {
                own.remove();
            }
        }
    }
}

/// A poisoned lock is used on: the state is consistent between any two statements.
fn locked(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Handle to the model's thread. Dropping it ends the thread after its current batch.
pub struct Embedder {
    /// Queue with room for all pictures that may wait; without a receiver once the model has panicked.
    jobs: SyncSender<EmbedJob>,
    state: Arc<Mutex<State>>,
    limits: BatchLimits,
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
        let (jobs, queue) = sync_channel(limits.waiting_max);
        let state = Arc::<Mutex<State>>::default();
        let of_thread = Arc::clone(&state);
        std::thread::Builder::new()
            .name("embed".to_owned())
            .spawn(move || run(model, limits, queue, &of_thread))?;
        Ok(Embedder { jobs, state, limits, side, provider, deadline })
    }

    /// Returns the side of the pictures that the model takes, in pixels.
    pub fn side(&self) -> u32 {
        self.side
    }

    /// Returns the execution provider that the model runs on.
    pub fn provider(&self) -> &'static str {
        self.provider
    }

    /// Returns the counts of the work done so far.
    pub fn counts(&self) -> EmbedderCounts {
        locked(&self.state).counts
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
        let _waiting = self.enter(stream)?;
        let (reply, answer) = oneshot::channel();
        let job = EmbedJob { since: Instant::now(), picture, _waiting, reply };
        self.jobs.try_send(job).map_err(|_| EmbedError::Stopped)?;
        match tokio::time::timeout(self.deadline, answer).await {
            Ok(Ok(result)) => result,
            Ok(Err(_)) => Err(EmbedError::Stopped),
            Err(_) => Err(EmbedError::Late(self.deadline.as_millis() as u64)),
        }
    }

    /// Counts a further picture of `stream` as waiting; fails if too many wait.
    fn enter(&self, stream: u64) -> Result<Waiting, EmbedError> {
        let waiting = &mut locked(&self.state).waiting;
        let own = waiting.get(&stream).copied().unwrap_or(0);
        let all: usize = waiting.values().sum();
        if own >= self.limits.stream_waiting_max || all >= self.limits.waiting_max {
            return Err(EmbedError::Full);
        }
        waiting.insert(stream, own + 1);
        Ok(Waiting { state: Arc::clone(&self.state), stream })
    }
}

/// Embeds the pictures of `queue` until the handle is dropped. If the model panics, the waiting requests fail and
/// later ones are refused, as the queue ends.
fn run(
    mut model: impl EmbeddingModel,
    limits: BatchLimits,
    queue: Receiver<EmbedJob>,
    state: &Mutex<State>,
) {
    while let Ok(first) = queue.recv() {
        let due = first.since + limits.age_max;
        let mut batch = vec![first];
        while batch.len() < limits.size_max
            && let Ok(next) = queue.recv_timeout(due.saturating_duration_since(Instant::now()))
        {
            batch.push(next);
        }
        locked(state).counts.batches += 1;
        batch.retain(|job| !job.reply.is_closed());
        // The pictures wait no more.
        let (pictures, replies): (Vec<ModelInputImage>, Vec<_>) =
            batch.into_iter().map(|job| (job.picture, job.reply)).unzip();
        if pictures.is_empty() {
            continue;
        }
        let started = Instant::now();
        let embedded = model.embed(&pictures);
        let busy = started.elapsed();
        let (got, asked) = (embedded.as_ref().map_or(0, Vec::len), replies.len());
        let embedded = match embedded {
            Ok(_) if got != asked => {
                Err(EmbedError::Model(format!("{got} embeddings for {asked} pictures")))
            }
            embedded => embedded,
        };
        {
            let counts = &mut locked(state).counts;
            counts.busy += busy;
            counts.embedded += if embedded.is_ok() { asked as u64 } else { 0 };
        }
        let answers: Vec<Result<Embedding, EmbedError>> = match embedded {
            Ok(embeddings) => embeddings.into_iter().map(Ok).collect(),
            Err(error) => vec![Err(error); asked],
        };
        for (reply, answer) in replies.into_iter().zip(answers) {
            // The caller may have given up while the model ran; its picture still counts as embedded.
            reply.send(answer).ok();
        }
    }
}
