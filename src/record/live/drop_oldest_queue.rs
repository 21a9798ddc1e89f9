//! Bounded queue that drops its oldest item when full. `put` returns the dropped item so that
//! callers can count it.

use std::collections::VecDeque;

use parking_lot::Mutex;
use tokio::sync::Notify;

#[derive(Debug)]
pub struct DropOldestQueue<T> {
    places: usize,
    waiting: Mutex<VecDeque<T>>,
    put: Notify,
}

impl<T> DropOldestQueue<T> {
    pub fn new(places: usize) -> DropOldestQueue<T> {
        DropOldestQueue { places, waiting: Mutex::default(), put: Notify::new() }
    }

    /// Appends `item`. Returns the item dropped to make room, if any.
    pub fn put(&self, item: T) -> Option<T> {
        let mut waiting = self.waiting.lock();
        let shed = if waiting.len() >= self.places { waiting.pop_front() } else { None };
        waiting.push_back(item);
        drop(waiting);
        self.put.notify_one();
        shed
    }

    pub async fn take(&self) -> T {
        loop {
            if let Some(item) = self.try_take() {
                return item;
            }
            self.put.notified().await;
        }
    }

    pub fn try_take(&self) -> Option<T> {
        self.waiting.lock().pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_oldest_makes_room_for_the_newest() {
        let shelf = DropOldestQueue::new(2);
        assert_eq!([1, 2, 3, 4].map(|item| shelf.put(item)), [None, None, Some(1), Some(2)]);
        assert_eq!((shelf.take().await, shelf.take().await, shelf.try_take()), (3, 4, None));
        let (taken, ()) = tokio::join!(shelf.take(), async { assert_eq!(shelf.put(5), None) });
        assert_eq!(taken, 5);
    }
}
