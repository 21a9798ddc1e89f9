//! Admission of file jobs: so many at once, so many waiting, the rest refused.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Places for jobs and a bounded queue before them, first come first served.
#[derive(Clone)]
pub struct Admission {
    places: Arc<Semaphore>,
    waiting: Arc<AtomicUsize>,
    queue_max: usize,
}

/// The right to run, until dropped.
pub type Place = OwnedSemaphorePermit;

/// As many jobs wait as may.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{queue_max} file jobs are waiting already")]
pub struct QueueFull {
    /// The limit.
    pub queue_max: usize,
}

impl Admission {
    /// `places` jobs at once, `queue_max` waiting.
    pub fn new(places: usize, queue_max: usize) -> Admission {
        let places = Arc::new(Semaphore::new(places));
        Admission { places, waiting: Arc::default(), queue_max }
    }

    /// Jobs that wait for a place.
    pub fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Waits for a place; dropping the future leaves the queue.
    pub async fn enter(&self) -> Result<Place, QueueFull> {
        if let Ok(place) = Arc::clone(&self.places).try_acquire_owned() {
            return Ok(place);
        }
        let waiting = Waiting(Arc::clone(&self.waiting));
        if waiting.0.fetch_add(1, Ordering::Relaxed) >= self.queue_max {
            return Err(QueueFull { queue_max: self.queue_max });
        }
        let place = Arc::clone(&self.places).acquire_owned().await;
        Ok(place.expect("the semaphore is never closed"))
    }
}

struct Waiting(Arc<AtomicUsize>);

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn places_then_a_queue_then_a_refusal() {
        let admission = Admission::new(1, 2);
        let running = admission.enter().await.expect("free");
        let waiting: Vec<_> = (0..2)
            .map(|_| {
                let admission = admission.clone();
                tokio::spawn(async move { admission.enter().await.map(drop) })
            })
            .collect();
        while admission.waiting.load(Ordering::Relaxed) < 2 {
            tokio::task::yield_now().await;
        }
        assert_eq!(admission.enter().await.err(), Some(QueueFull { queue_max: 2 }));
        drop(running);
        for waiter in waiting {
            assert_eq!(waiter.await.expect("no panic"), Ok(()));
        }
        assert!(admission.enter().await.is_ok(), "places come back");
    }

    #[tokio::test]
    async fn whoever_stops_waiting_leaves_the_queue() {
        let admission = Admission::new(1, 1);
        let _running = admission.enter().await.expect("free");
        for _ in 0..3 {
            let soon = std::time::Duration::from_millis(5);
            assert!(tokio::time::timeout(soon, admission.enter()).await.is_err(), "no place");
        }
        assert_eq!(admission.waiting.load(Ordering::Relaxed), 0);
    }
}
