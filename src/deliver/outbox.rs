//! Outbox: consumers that read the log at their own pace, each from a durable cursor.
//!
//! Promises at-least-once delivery in order: a cursor moves only after the receiver has taken everything
//! before it. An outage delays its own consumer, never the log and no other consumer. Does not know what a
//! consumer does in its turn.

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

use crate::base::backoff::jitter;

pub use cursors::Cursors;
pub(crate) use cursors::{forget, move_to};
use schedule::RetrySchedule;
pub(crate) use schedule::{DeliveryResult, DeliverySlot, ScheduleLimits};

/// Consumer with several readers of the log, each at its own cursor.
pub trait LogConsumer: Send + Sync + 'static {
    /// Identifies one reader of the log.
    type Key: Copy + Eq + Hash + Ord + Send + Sync + std::fmt::Debug + 'static;

    /// Delivers a bounded number of events after the reader's cursor, and moves the cursor.
    ///
    /// A dropped turn is repeated from the cursor.
    fn turn(
        self: Arc<Self>,
        turn: DeliverySlot<Self::Key>,
    ) -> impl Future<Output = DeliveryResult> + Send + 'static;
}

/// Schedule shared by publishers and the task that runs the turns.
pub struct DeliveryQueue<K> {
    schedule: Mutex<RetrySchedule<K>>,
    changed: Notify,
}

impl<K: Copy + Eq + Hash + Ord + Send + Sync + std::fmt::Debug + 'static> DeliveryQueue<K> {
    /// Creates a queue without readers.
    pub fn new(places: ScheduleLimits) -> Arc<DeliveryQueue<K>> {
        let schedule = Mutex::new(RetrySchedule::new(places));
        Arc::new(DeliveryQueue { schedule, changed: Notify::new() })
    }

    /// Adds a reader with a due first turn; its last `failures` turns failed.
    pub fn add(&self, key: K, failures: u32) {
        self.schedule.lock().add(key, failures);
        self.changed.notify_one();
    }

    /// Removes a reader; a turn in progress finishes and is the last.
    pub fn remove(&self, key: K) {
        self.schedule.lock().remove(key);
    }

    /// Notes new events for these readers; short and non-blocking.
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

    /// Makes turns of these readers due at once, even after a failure; adds missing readers.
    pub fn urge(&self, keys: impl IntoIterator<Item = K>) {
        let mut schedule = self.schedule.lock();
        keys.into_iter().for_each(|key| schedule.urge(key));
        drop(schedule);
        self.changed.notify_one();
    }

    /// Runs turns as they become due, until `stop`, which drops those in progress.
    pub async fn run<C: LogConsumer<Key = K>>(
        self: Arc<Self>,
        consumer: Arc<C>,
        stop: CancellationToken,
    ) {
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
                    let jitter = jitter();
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

    /// Waits for the next turn to end; `None` if none is in progress.
    async fn next(&mut self) -> Option<(K, DeliveryResult)> {
        let (id, outcome) = match self.running.join_next_with_id().await? {
            Ok(ended) => ended,
            Err(error) => (error.id(), panicked(&error)),
        };
        Some((self.keys.remove(&id)?, outcome))
    }
}

/// Handles a panicked turn, a bug: it must not end other turns, nor be repeated at once.
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
