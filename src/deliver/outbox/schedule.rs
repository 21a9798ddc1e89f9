//! Schedule of readers: a state machine of those that are idle, due, busy or waiting.
//!
//! Promises that one reader has one turn at a time, that turns are taken first come first
//! served, and that readers whose last turn failed never take all of the places. Reads no
//! clock: `now` is an argument.

use std::{
    collections::{BTreeSet, HashMap, VecDeque},
    hash::Hash,
    time::{Duration, Instant},
};

use crate::base::backoff::Backoff;

/// Limits of turns at once, and the delays after failures.
#[derive(Clone, Copy, Debug)]
pub struct ScheduleLimits {
    /// Turns at once.
    pub turns: usize,
    /// Turns at once of readers whose last turn failed: the rest is for those that work.
    pub retries: usize,
    /// Time between a failure and the next turn.
    pub backoff: Backoff,
}

/// A turn to take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeliverySlot<K> {
    /// The reader.
    pub key: K,
    /// Turns of this reader that failed in a row.
    pub failures: u32,
}

/// Outcome of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeliveryResult {
    /// Something was handed over, and there may be more.
    More,
    /// Nothing was left.
    Drained,
    /// The other side did not take it; it asked for this much time, or for none.
    Failed {
        /// No turn before this has passed.
        at_least: Duration,
        /// Something was handed over before: this is the first failure in a row.
        progressed: bool,
    },
    /// The reader has no further turns.
    Ended,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Idle,
    Due,
    /// Turn under way, with something new that came during it, or without.
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
    /// The next turn does not wait, whatever the last one came to.
    urged: bool,
}

/// The readers of one outbox.
pub struct RetrySchedule<K> {
    places: ScheduleLimits,
    readers: HashMap<K, Reader>,
    due: VecDeque<K>,
    /// Due readers whose last turn failed.
    due_again: VecDeque<K>,
    waiting: BTreeSet<(Instant, K)>,
    /// Readers with a turn under way, removed ones too, and whether it is a retry.
    busy: HashMap<K, bool>,
}

impl<K: Copy + Eq + Hash + Ord> RetrySchedule<K> {
    /// A schedule without readers.
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

    /// Adds a reader, whose first turn is due; one that is there already is woken.
    pub fn add(&mut self, key: K) {
        self.add_after(key, 0);
    }

    /// Adds a reader likewise, whose last turns failed, `failures` of them in a row.
    pub fn add_after(&mut self, key: K, failures: u32) {
        // A turn of before its removal may be under way still.
        let is_busy = self.busy.contains_key(&key);
        let state = if is_busy { State::Busy { woken: false } } else { State::Idle };
        self.readers.entry(key).or_insert(Reader { state, failures, urged: false });
        self.wake(key);
    }

    /// Removes a reader.
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

    /// Notes something new for a reader; true when that makes a turn due.
    ///
    /// One that waits after a failure goes on waiting: news do not mend the other side.
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

    /// Makes the next turn of a reader due, also when it waits after a failure; adds one that is
    /// not there.
    pub fn urge(&mut self, key: K) {
        self.add(key);
        let Some(reader) = self.readers.get_mut(&key) else { return };
        match reader.state {
            State::Idle => {
                reader.state = State::Due;
                self.due.push_back(key);
            }
            State::Waiting { until } => {
                self.waiting.remove(&(until, key));
                reader.state = State::Due;
                self.due_again.push_back(key);
            }
            State::Busy { .. } => reader.urged = true,
            State::Due => {}
        }
    }

    /// The next turn to take at `now`, which is then under way.
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

    /// Time at which [`RetrySchedule::poll`] may have something that it does not have now.
    pub fn deadline(&self) -> Option<Instant> {
        self.waiting.first().map(|(until, _)| *until)
    }

    /// Turns under way.
    pub fn busy(&self) -> usize {
        self.busy.len()
    }

    /// The turn of `key` ended; `jitter` is any random number.
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
            DeliveryResult::More | DeliveryResult::Drained => {
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
            DeliveryResult::Ended => drop(self.readers.remove(&key)),
        }
    }
}

#[cfg(test)]
mod tests;
