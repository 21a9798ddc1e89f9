//! Admission to work that is bounded: so many at once, so many waiting, the rest refused.
//!
//! Places go round the principals that wait, each principal's in the order it asked. One may fill
//! the queue while nobody else waits; in a full queue whoever waits for most loses its newest
//! place in the queue to one that would still wait for less than it does after that. Work whose
//! length others decide leaves one place to the rest.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::sync::oneshot;

use crate::config::Principal;

/// Places for work and a bounded queue before them.
#[derive(Clone)]
pub struct Admission(Arc<Shared>);

struct Shared {
    queue_max: usize,
    state: Mutex<State>,
}

struct State {
    free: usize,
    /// Of the free places those that short work may take, and long work.
    free_for: [usize; 2],
    waiting: usize,
    next_id: u64,
    /// Whoever waits, in the order in which they get a place; none is empty.
    queues: VecDeque<Queue>,
}

struct Queue {
    owner: Principal,
    waiters: VecDeque<Waiter>,
}

struct Waiter {
    id: u64,
    stay: Stay,
    /// Told that the place is its own; dropped when it has to leave.
    tell: oneshot::Sender<()>,
}

/// Who decides how long work takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stay {
    /// It does.
    Short,
    /// Others, for hours maybe: it never holds the last place.
    Long,
}

/// The right to run, until dropped.
pub struct Place {
    admission: Admission,
    stay: Stay,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.admission.release(self.stay);
    }
}

/// As much waits as may.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{queue_max} file jobs are waiting already")]
pub struct QueueFull {
    /// The limit.
    pub queue_max: usize,
}

impl Admission {
    /// `places` at once, `queue_max` waiting. Where there is one place, long work has one of its own
    /// beside it.
    pub fn new(places: usize, queue_max: usize) -> Admission {
        let state = State {
            free: places.max(2),
            free_for: [places, places.saturating_sub(1).max(1)],
            waiting: 0,
            next_id: 0,
            queues: VecDeque::new(),
        };
        Admission(Arc::new(Shared { queue_max, state: Mutex::new(state) }))
    }

    /// How many wait for a place.
    pub fn waiting(&self) -> usize {
        self.state().waiting
    }

    /// Waits for a place for short work; dropping the future leaves the queue.
    pub async fn enter(&self, owner: &Principal) -> Result<Place, QueueFull> {
        self.enter_for(owner, Stay::Short).await
    }

    /// Waits for a place; dropping the future leaves the queue.
    pub async fn enter_for(&self, owner: &Principal, stay: Stay) -> Result<Place, QueueFull> {
        if let Some(mut waiting) = self.take_or_wait(owner, stay)? {
            let told = (&mut waiting.told).await;
            waiting.is_over = true;
            // Without a word it had to make room for another principal's.
            told.map_err(|_| self.full())?;
        }
        Ok(Place { admission: self.clone(), stay })
    }

    /// A place in the queue; `None` where none is needed.
    fn take_or_wait(&self, owner: &Principal, stay: Stay) -> Result<Option<Waiting>, QueueFull> {
        let mut state = self.state();
        // Whoever waits although a place is free waits for one of another kind.
        if state.has_place(stay) {
            state.take(stay);
            return Ok(None);
        }
        if state.waiting >= self.0.queue_max && !state.make_room(owner) {
            return Err(self.full());
        }
        let (tell, told) = oneshot::channel();
        let id = state.push(owner, stay, tell);
        Ok(Some(Waiting {
            admission: self.clone(),
            owner: owner.clone(),
            stay,
            id,
            told,
            is_over: false,
        }))
    }

    fn full(&self) -> QueueFull {
        QueueFull { queue_max: self.0.queue_max }
    }

    /// Gives a place to whoever is next, or back.
    fn release(&self, stay: Stay) {
        let mut stay = stay;
        loop {
            let next = {
                let mut state = self.state();
                state.give(stay);
                state.pop()
            };
            let Some(Waiter { stay: next, tell, .. }) = next else { return };
            if tell.send(()).is_ok() {
                return;
            }
            // One that leaves at this moment does not take it.
            stay = next;
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing that changes the state panics halfway.
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn queue(&mut self, owner: &Principal) -> Option<&mut Queue> {
        self.queues.iter_mut().find(|queue| queue.owner == *owner)
    }

    fn has_place(&self, stay: Stay) -> bool {
        self.free > 0 && self.free_for[stay as usize] > 0
    }

    fn take(&mut self, stay: Stay) {
        self.free -= 1;
        self.free_for[stay as usize] -= 1;
    }

    fn give(&mut self, stay: Stay) {
        self.free += 1;
        self.free_for[stay as usize] += 1;
    }

    fn push(&mut self, owner: &Principal, stay: Stay, tell: oneshot::Sender<()>) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        self.waiting += 1;
        let waiter = Waiter { id, stay, tell };
        match self.queue(owner) {
            Some(queue) => queue.waiters.push_back(waiter),
            None => {
                let (owner, waiters) = (owner.clone(), VecDeque::from([waiter]));
                self.queues.push_back(Queue { owner, waiters });
            }
        }
        id
    }

    /// The next to get a place that is free for it; its principal's next one waits for all others'
    /// turns.
    fn pop(&mut self) -> Option<Waiter> {
        let (at, place) = self.queues.iter().enumerate().find_map(|(at, queue)| {
            let place = queue.waiters.iter().position(|waiter| self.has_place(waiter.stay));
            place.map(|place| (at, place))
        })?;
        let mut queue = self.queues.remove(at)?;
        let waiter = queue.waiters.remove(place)?;
        self.take(waiter.stay);
        self.waiting -= 1;
        if !queue.waiters.is_empty() {
            self.queues.push_back(queue);
        }
        Some(waiter)
    }

    /// Has the one that waits for most give up its newest, where `owner` stays below it.
    fn make_room(&mut self, owner: &Principal) -> bool {
        let own = self.queue(owner).map_or(0, |queue| queue.waiters.len());
        let most = self.queues.iter_mut().max_by_key(|queue| queue.waiters.len());
        let Some(most) = most.filter(|most| most.waiters.len() > own + 1) else { return false };
        self.waiting -= usize::from(most.waiters.pop_back().is_some());
        true
    }

    fn leave(&mut self, owner: &Principal, id: u64) {
        let Some(queue) = self.queue(owner) else { return };
        let before = queue.waiters.len();
        queue.waiters.retain(|waiter| waiter.id != id);
        self.waiting -= before - queue.waiters.len();
        self.queues.retain(|queue| !queue.waiters.is_empty());
    }
}

/// A place in the queue, left when dropped.
struct Waiting {
    admission: Admission,
    owner: Principal,
    stay: Stay,
    id: u64,
    told: oneshot::Receiver<()>,
    is_over: bool,
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if self.is_over {
            return;
        }
        self.told.close();
        if self.told.try_recv().is_ok() {
            // The place came when nobody waited for it any more.
            self.admission.release(self.stay);
        } else {
            self.admission.state().leave(&self.owner, self.id);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{pin::Pin, task::Poll};

    use super::*;

    type Entering = Pin<Box<dyn Future<Output = Result<Place, QueueFull>> + Send>>;

    /// Asks for a place, so far as to stand in the queue.
    fn ask(admission: &Admission, owner: &str) -> Entering {
        let (admission, owner) = (admission.clone(), Principal::named(owner));
        let mut entering: Entering = Box::pin(async move { admission.enter(&owner).await });
        assert!(poll(&mut entering).is_pending(), "it waits");
        entering
    }

    async fn long(admission: &Admission) -> Place {
        let owner = Principal::named("long");
        admission.enter_for(&owner, Stay::Long).await.expect("not refused")
    }

    #[tokio::test]
    async fn long_work_leaves_a_place_to_the_rest_however_many_there_are() {
        let owner = Principal::named("a");
        for (places, long_ones, short_ones) in [(1, 1, 1), (2, 1, 1), (3, 2, 1), (8, 7, 1)] {
            let admission = Admission::new(places, 9);
            let mut held = Vec::new();
            for _ in 0..long_ones {
                held.push(long(&admission).await);
            }
            let waiting = admission.clone();
            let mut next: Entering =
                Box::pin(
                    async move { waiting.enter_for(&Principal::named("long"), Stay::Long).await },
                );
            assert!(poll(&mut next).is_pending(), "{places}: no more of them");
            for _ in 0..short_ones {
                held.push(admission.enter(&owner).await.expect("a place is left"));
            }
            let mut short = ask(&admission, "a");
            drop(held.pop());
            assert!(matches!(poll(&mut short), Poll::Ready(Ok(_))), "{places}: who can goes");
            assert!(poll(&mut next).is_pending(), "{places}");
            drop(held.remove(0));
            let place = next.await.expect("not refused");
            drop((place, held));
            assert_eq!((admission.waiting(), free(&admission)), (0, places.max(2)), "{places}");
        }
    }

    fn poll(entering: &mut Entering) -> Poll<Result<Place, QueueFull>> {
        let waker = std::task::Waker::noop();
        entering.as_mut().poll(&mut std::task::Context::from_waker(waker))
    }

    fn free(admission: &Admission) -> usize {
        admission.state().free
    }

    #[tokio::test]
    async fn places_then_a_queue_then_a_refusal() {
        let (admission, alice) = (Admission::new(1, 2), Principal::named("alice"));
        let running = admission.enter(&alice).await.expect("free");
        let waiting: Vec<_> = (0..2).map(|_| ask(&admission, "alice")).collect();
        assert_eq!(admission.waiting(), 2);
        let refused = admission.enter(&alice).await.err();
        assert_eq!(refused, Some(QueueFull { queue_max: 2 }));
        drop(running);
        for waiter in waiting {
            assert!(waiter.await.is_ok(), "each in its turn");
        }
        assert_eq!((admission.waiting(), free(&admission)), (0, 2), "places come back");
    }

    #[tokio::test]
    async fn places_go_round_the_principals() {
        let (admission, alice) = (Admission::new(1, 9), Principal::named("alice"));
        let mut running = admission.enter(&alice).await.expect("free");
        let names = ["alice", "alice", "alice", "bob", "bob", "carol"];
        let mut waiting: Vec<_> = names.iter().map(|name| (*name, ask(&admission, name))).collect();
        let mut order = Vec::new();
        while !waiting.is_empty() {
            drop(running);
            let next = waiting.iter_mut().enumerate().find_map(|(at, (_, entering))| {
                match poll(entering) {
                    Poll::Ready(place) => Some((at, place.expect("not refused"))),
                    Poll::Pending => None,
                }
            });
            let (at, place) = next.expect("one gets the place");
            order.push(waiting.remove(at).0);
            running = place;
        }
        assert_eq!(order, ["alice", "bob", "carol", "alice", "bob", "alice"]);
    }

    #[tokio::test]
    async fn a_full_queue_makes_room_for_those_who_wait_for_less() {
        let (admission, alice) = (Admission::new(1, 4), Principal::named("alice"));
        let _running = admission.enter(&alice).await.expect("free");
        let mut alices: Vec<_> = (0..4).map(|_| ask(&admission, "alice")).collect();
        let bobs = [ask(&admission, "bob"), ask(&admission, "bob")];
        let refused = alices.iter_mut().map(poll).map(|polled| match polled {
            Poll::Ready(outcome) => outcome.err().is_some(),
            Poll::Pending => false,
        });
        assert_eq!(refused.collect::<Vec<_>>(), [false, false, true, true], "the newest leave");
        for name in ["alice", "bob"] {
            let third = admission.enter(&Principal::named(name)).await;
            assert!(third.is_err(), "{name} has its half of the queue");
        }
        assert_eq!(admission.waiting(), 4);
        drop(bobs);
        assert_eq!(admission.waiting(), 2);
    }

    #[tokio::test]
    async fn whoever_stops_waiting_leaves_the_queue_and_takes_no_place() {
        let (admission, alice) = (Admission::new(1, 2), Principal::named("alice"));
        let running = admission.enter(&alice).await.expect("free");
        for _ in 0..3 {
            drop([ask(&admission, "alice"), ask(&admission, "bob")]);
        }
        assert_eq!(admission.waiting(), 0);
        // Given the place, and gone before it looks.
        let late = ask(&admission, "bob");
        drop(running);
        assert_eq!((admission.waiting(), free(&admission)), (0, 1));
        drop(late);
        assert_eq!(free(&admission), 2);
    }
}
