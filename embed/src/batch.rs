//! Gathers pictures of many streams into batches, by number or age.
//!
//! Pure: items go in with the time, batches come out. Each stream keeps its order. The number of waiting
//! items is bounded, in total and per stream; refused items are counted.

use std::{
    collections::{HashMap, VecDeque},
    hash::Hash,
    time::{Duration, Instant},
};

#[cfg(test)]
mod tests;

/// Size of a batch, and limits of the items that wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchLimits {
    /// Most items of a batch; as soon as this many wait, a batch is ready. At least 1.
    pub size_max: usize,
    /// Longest time that an item waits for others.
    pub age_max: Duration,
    /// Most items that wait, of all streams together.
    pub waiting_max: usize,
    /// Most items of one stream that wait, so that none fills the queue alone.
    pub stream_waiting_max: usize,
}

impl Default for BatchLimits {
    /// A batch gains nothing on a CPU, and little on a GPU below 16 items; 5 ms are a sixth of a frame.
    fn default() -> BatchLimits {
        BatchLimits {
            size_max: 16,
            age_max: Duration::from_millis(5),
            waiting_max: 256,
            stream_waiting_max: 8,
        }
    }
}

/// Counts of the items pushed so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BatchCounts {
    /// Items that went out in a batch.
    pub batched: u64,
    /// Batches that went out.
    pub batches: u64,
    /// Items that were refused because too many waited.
    pub refused: u64,
}

/// Queue of items to be batched; `S` identifies an item's stream.
#[derive(Debug)]
pub struct Batcher<S, T> {
    limits: BatchLimits,
    waiting: VecDeque<QueuedItem<S, T>>,
    by_stream: HashMap<S, usize>,
    counts: BatchCounts,
}

#[derive(Debug)]
struct QueuedItem<S, T> {
    since: Instant,
    stream: S,
    item: T,
}

impl<S: Clone + Eq + Hash, T> Batcher<S, T> {
    /// Creates an empty queue.
    pub fn new(limits: BatchLimits) -> Batcher<S, T> {
        let limits = BatchLimits { size_max: limits.size_max.max(1), ..limits };
        Batcher {
            limits,
            waiting: VecDeque::new(),
            by_stream: HashMap::new(),
            counts: BatchCounts::default(),
        }
    }

    /// Queues `item`; returns it as the error if too many items wait.
    pub fn push(&mut self, now: Instant, stream: S, item: T) -> Result<(), T> {
        let of_stream = self.by_stream.get(&stream).copied().unwrap_or(0);
        if self.waiting.len() >= self.limits.waiting_max
            || of_stream >= self.limits.stream_waiting_max
        {
            self.counts.refused += 1;
            return Err(item);
        }
        self.by_stream.insert(stream.clone(), of_stream + 1);
        self.waiting.push_back(QueuedItem { since: now, stream, item });
        Ok(())
    }

    /// Returns the oldest items as a batch if `size_max` wait or the oldest has waited for `age_max`.
    pub fn poll(&mut self, now: Instant) -> Option<Vec<T>> {
        let full = self.waiting.len() >= self.limits.size_max;
        if !full && self.due().is_none_or(|due| now < due) {
            return None;
        }
        let size = self.waiting.len().min(self.limits.size_max);
        let mut batch = Vec::with_capacity(size);
        for waiting in self.waiting.drain(..size) {
            if let Some(count) = self.by_stream.get_mut(&waiting.stream) {
                *count -= 1;
                if *count == 0 {
                    self.by_stream.remove(&waiting.stream);
                }
            }
            batch.push(waiting.item);
        }
        self.counts.batched += size as u64;
        self.counts.batches += 1;
        Some(batch)
    }

    /// Returns the time at which the oldest item has waited for `age_max`; `None` if none waits.
    pub fn due(&self) -> Option<Instant> {
        self.waiting.front().map(|first| first.since + self.limits.age_max)
    }

    /// Returns the number of items that wait.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Returns the counts of all items so far.
    pub fn counts(&self) -> BatchCounts {
        self.counts
    }

    /// Drops all items that wait.
    pub fn clear(&mut self) {
        self.waiting.clear();
        self.by_stream.clear();
    }
}
