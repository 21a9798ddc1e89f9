//! Schedule of readers: each is idle, due, busy or waiting after a failure.
//!
//! Promises that a reader has at most one turn at a time, that turns are first come, first served, and that
//! readers whose last turn failed never use all slots if `retries` is below `turns`. Pure: callers pass
//! `now`.

use std::{
    collections::{BTreeSet, HashMap, VecDeque},
    hash::Hash,
    time::{Duration, Instant},
};

use crate::base::backoff::Backoff;

/// Maximum concurrent turns, and the delays after failures.
#[derive(Clone, Copy, Debug)]
pub struct ScheduleLimits {
    pub turns: usize,
    /// Maximum concurrent turns of readers whose last turn failed.
    pub retries: usize,
    pub backoff: Backoff,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeliverySlot<K> {
    pub key: K,
    /// Number of consecutive failed turns of this reader.
    pub failures: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeliveryResult {
    /// Events were delivered, and more may follow.
    More,
    /// All events are delivered.
    Drained,
    /// The receiver failed to take an event, and asks for a minimum delay. If it `progressed`, as it took events
    /// before, the failure counts as the first in a row.
    Failed { at_least: Duration, progressed: bool },
    /// The reader is removed, unless it was woken during the turn.
    Ended,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Idle,
    Due,
    /// A turn is in progress; `woken` if new events arrived during it.
    Busy {
        woken: bool,
    },
    Waiting {
        until: Instant,
    },
}

struct Reader {
    state: State,
    failures: u32,
    /// The next turn is due at once, whatever the result of the current one.
    urged: bool,
}

/// Schedule of the readers of one outbox.
pub struct RetrySchedule<K> {
    places: ScheduleLimits,
    readers: HashMap<K, Reader>,
    due: VecDeque<K>,
    /// Due readers whose last turn failed.
    due_again: VecDeque<K>,
    waiting: BTreeSet<(Instant, K)>,
    /// Readers with a turn in progress, including removed ones, and true if it is a retry.
    busy: HashMap<K, bool>,
}

impl<K: Copy + Eq + Hash + Ord> RetrySchedule<K> {
    pub fn new(places: ScheduleLimits) -> RetrySchedule<K> {
        RetrySchedule {
            places,
            readers: HashMap::new(),
            due: VecDeque::new(),
            due_again: VecDeque::new(),
            waiting: BTreeSet::new(),
            busy: HashMap::new(),
        }
    }

    /// Adds a reader with a due first turn, after `failures` consecutive failed ones; wakes an existing one.
    pub fn add(&mut self, key: K, failures: u32) {
        // A turn from before the reader's removal may still be in progress.
        let is_busy = self.busy.contains_key(&key);
        let state = if is_busy { State::Busy { woken: false } } else { State::Idle };
        self.readers.entry(key).or_insert(Reader { state, failures, urged: false });
        self.wake(key);
    }

    pub fn remove(&mut self, key: K) {
        let Some(reader) = self.readers.remove(&key) else { return };
        match reader.state {
            State::Due => {
                self.due.retain(|due| *due != key);
                self.due_again.retain(|due| *due != key);
            }
            State::Waiting { until } => drop(self.waiting.remove(&(until, key))),
            State::Idle | State::Busy { .. } => {}
        }
    }

    /// Notes new events for a reader; returns true if a turn becomes due.
    ///
    /// A reader that waits after a failure keeps waiting: new events do not repair its receiver.
    pub fn wake(&mut self, key: K) -> bool {
        let Some(reader) = self.readers.get_mut(&key) else { return false };
        match &mut reader.state {
            State::Idle => {
                reader.state = State::Due;
                let queue = if reader.failures > 0 { &mut self.due_again } else { &mut self.due };
                queue.push_back(key);
                true
            }
            State::Busy { woken } => {
                *woken = true;
                false
            }
            State::Due | State::Waiting { .. } => false,
        }
    }

    /// Makes the next turn of a reader due, even after a failure; adds a missing reader.
    pub fn urge(&mut self, key: K) {
        self.add(key, 0);
        let Some(reader) = self.readers.get_mut(&key) else { return };
        match reader.state {
            State::Waiting { until } => {
                self.waiting.remove(&(until, key));
                reader.state = State::Due;
                self.due_again.push_back(key);
            }
            State::Busy { .. } => reader.urged = true,
            // An idle reader is due since it was added.
            State::Idle | State::Due => {}
        }
    }

    /// Returns the next turn to run at `now`, and marks it as in progress.
    pub fn poll(&mut self, now: Instant) -> Option<DeliverySlot<K>> {
        while let Some(&(until, key)) = self.waiting.first()
            && until <= now
        {
            self.waiting.pop_first();
            let reader = self.readers.get_mut(&key).expect("removed from everywhere at once");
            reader.state = State::Due;
            self.due_again.push_back(key);
        }
        if self.busy.len() >= self.places.turns {
            return None;
        }
        let retries = self.busy.values().filter(|is_retry| **is_retry).count();
        let again = (retries < self.places.retries).then(|| self.due_again.pop_front()).flatten();
        let key = match again {
            Some(key) => key,
            None => self.due.pop_front()?,
        };
        let reader = self.readers.get_mut(&key).expect("removed from everywhere at once");
        reader.state = State::Busy { woken: false };
        self.busy.insert(key, reader.failures > 0);
        Some(DeliverySlot { key, failures: reader.failures })
    }

    /// Time at which [`RetrySchedule::poll`] may return a further turn.
    pub fn deadline(&self) -> Option<Instant> {
        self.waiting.first().map(|(until, _)| *until)
    }

    /// Handles the result of a reader's turn; `jitter` is any random number.
    pub fn finish(&mut self, key: K, outcome: DeliveryResult, now: Instant, jitter: u32) {
        self.busy.remove(&key);
        let Some(reader) = self.readers.get_mut(&key) else { return };
        let State::Busy { woken } = reader.state else { return };
        let urged = std::mem::take(&mut reader.urged);
        match outcome {
            DeliveryResult::Drained if !woken && !urged => {
                reader.failures = 0;
                reader.state = State::Idle;
            }
            DeliveryResult::Ended if !woken && !urged => drop(self.readers.remove(&key)),
            // Whatever woke the reader since may have brought it back: a further turn finds out.
            DeliveryResult::More | DeliveryResult::Drained | DeliveryResult::Ended => {
                reader.failures = 0;
                reader.state = State::Due;
                self.due.push_back(key);
            }
            DeliveryResult::Failed { at_least, progressed } => {
                reader.failures = if progressed { 1 } else { reader.failures.saturating_add(1) };
                if urged {
                    reader.state = State::Due;
                    self.due_again.push_back(key);
                    return;
                }
                let delay = self.places.backoff.delay(reader.failures, jitter).max(at_least);
                let until = now + delay;
                reader.state = State::Waiting { until };
                self.waiting.insert((until, key));
            }
        }
    }
}

#[cfg(test)]
mod tests;
