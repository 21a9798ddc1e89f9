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
    task::{JoinError, JoinSet},
};
use tokio_util::sync::CancellationToken;

use crate::base::backoff::jitter;

pub use cursors::Cursors;
pub(crate) use cursors::{forget, move_to};
pub(crate) use schedule::{DeliveryResult, ScheduleLimits};
use schedule::{DeliverySlot, RetrySchedule};

/// Schedule shared by publishers and the task that runs the turns.
pub struct DeliveryQueue<K> {
    schedule: Mutex<RetrySchedule<K>>,
    changed: Notify,
}

impl<K: Copy + Eq + Hash + Ord> DeliveryQueue<K> {
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
    ///
    /// `turn` delivers a bounded number of events after a reader's cursor, and moves the cursor. A dropped turn is
    /// repeated from the cursor.
    pub async fn run<Turn: Future<Output = DeliveryResult> + Send + 'static>(
        self: Arc<Self>,
        turn: impl Fn(DeliverySlot<K>) -> Turn,
        stop: CancellationToken,
    ) {
        let (mut running, mut keys) = (JoinSet::new(), HashMap::new());
        loop {
            let due = {
                let (mut schedule, now) = (self.schedule.lock(), Instant::now());
                while let Some(slot) = schedule.poll(now) {
                    let key = slot.key;
                    keys.insert(running.spawn(turn(slot)).id(), key);
                }
                schedule.deadline()
            };
            tokio::select! {
                () = stop.cancelled() => return,
                () = self.changed.notified() => {}
                () = until(due) => {}
                Some(ended) = running.join_next_with_id() => {
                    let (id, outcome) = ended.unwrap_or_else(|error| (error.id(), panicked(&error)));
                    if let Some(key) = keys.remove(&id) {
                        let jitter = jitter();
                        self.schedule.lock().finish(key, outcome, Instant::now(), jitter);
                    }
                }
            }
        }
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
