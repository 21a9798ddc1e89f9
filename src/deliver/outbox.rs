//! The outbox: consumers that follow the log at their own pace, each at a durable cursor.
//!
//! Promises that an event is handed over at least once and in order: a cursor moves only after
//! the other side has what is before it. An outage delays its consumer, never the log, and
//! never a consumer that works. Does not know what a consumer does in its turn.

mod cursors;
mod schedule;

use std::{
    collections::HashMap,
    hash::Hash,
    sync::Arc,
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use tokio::{
    sync::Notify,
    task::{Id, JoinError, JoinSet},
};
use tokio_util::sync::CancellationToken;

pub use cursors::{Cursors, forget, move_to};
pub use schedule::{DeliveryResult, DeliverySlot, RetrySchedule, ScheduleLimits};

/// Receiver of what follows the cursors of its readers of the log.
pub trait LogConsumer: Send + Sync + 'static {
    /// Names one reader of the log.
    type Key: Copy + Eq + Hash + Ord + Send + Sync + std::fmt::Debug + 'static;

    /// Hands over what follows the reader's cursor, a bounded part of it, and moves the cursor.
    ///
    /// A turn that is dropped halfway is taken again from the cursor.
    fn turn(
        self: Arc<Self>,
        turn: DeliverySlot<Self::Key>,
    ) -> impl Future<Output = DeliveryResult> + Send + 'static;
}

/// A schedule that publishers share with the task that takes the turns.
pub struct DeliveryQueue<K> {
    schedule: Mutex<RetrySchedule<K>>,
    changed: Notify,
}

impl<K: Copy + Eq + Hash + Ord + std::fmt::Debug> DeliveryQueue<K> {
    /// An outbox without readers.
    pub fn new(places: ScheduleLimits) -> Arc<DeliveryQueue<K>> {
        let schedule = Mutex::new(RetrySchedule::new(places));
        Arc::new(DeliveryQueue { schedule, changed: Notify::new() })
    }

    /// Adds a reader, whose first turn is due and whose last `failures` turns failed.
    pub fn add(&self, key: K, failures: u32) {
        self.schedule.lock().add_after(key, failures);
        self.changed.notify_one();
    }

    /// Removes a reader; a turn under way comes to its end and is its last.
    pub fn remove(&self, key: K) {
        self.schedule.lock().remove(key);
    }

    /// Notes that there is something new for these readers; brief, and waits for nothing.
    pub fn wake(&self, keys: impl IntoIterator<Item = K>) {
        let mut schedule = self.schedule.lock();
        let mut any = false;
        for key in keys {
            any |= schedule.wake(key);
        }
        drop(schedule);
        if any {
            self.changed.notify_one();
        }
    }

    /// Has these readers, added where they are not there, take a turn at once, also when they
    /// wait after a failure.
    pub fn urge(&self, keys: impl IntoIterator<Item = K>) {
        let mut schedule = self.schedule.lock();
        keys.into_iter().for_each(|key| schedule.urge(key));
        drop(schedule);
        self.changed.notify_one();
    }

    /// Turns under way.
    pub fn busy(&self) -> usize {
        self.schedule.lock().busy()
    }

    /// Takes the turns as they come due, until `stop`, which drops those under way.
    pub async fn run<C: LogConsumer<Key = K>>(
        self: Arc<Self>,
        consumer: Arc<C>,
        stop: CancellationToken,
    ) where
        K: Send + Sync + 'static,
    {
        let mut turns = Turns { running: JoinSet::new(), keys: HashMap::new() };
        loop {
            let due = {
                let (mut schedule, now) = (self.schedule.lock(), Instant::now());
                while let Some(turn) = schedule.poll(now) {
                    turns.start(&consumer, turn);
                }
                schedule.deadline()
            };
            tokio::select! {
                () = stop.cancelled() => return,
                () = self.changed.notified() => {}
                () = until(due) => {}
                Some((key, outcome)) = turns.next() => {
                    let jitter = u32::from_ne_bytes(crate::base::random_bytes());
                    self.schedule.lock().finish(key, outcome, Instant::now(), jitter);
                }
            }
        }
    }
}

struct Turns<K> {
    running: JoinSet<DeliveryResult>,
    keys: HashMap<Id, K>,
}

impl<K: Copy + Eq + Hash + Ord + Send + Sync + std::fmt::Debug + 'static> Turns<K> {
    fn start<C: LogConsumer<Key = K>>(&mut self, consumer: &Arc<C>, turn: DeliverySlot<K>) {
        let key = turn.key;
        let task = self.running.spawn(Arc::clone(consumer).turn(turn));
        self.keys.insert(task.id(), key);
    }

    /// The next turn to end; `None` while there is none.
    async fn next(&mut self) -> Option<(K, DeliveryResult)> {
        let (id, outcome) = match self.running.join_next_with_id().await? {
            Ok(ended) => ended,
            Err(error) => (error.id(), panicked(&error)),
        };
        Some((self.keys.remove(&id)?, outcome))
    }
}

/// A turn that panics is our bug; it must not end the others, nor come again at once.
fn panicked(error: &JoinError) -> DeliveryResult {
    tracing::error!(%error, "delivery task panicked");
    DeliveryResult::Failed { at_least: Duration::ZERO, progressed: false }
}

async fn until(due: Option<Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due.into()).await,
        None => std::future::pending().await,
    }
}
