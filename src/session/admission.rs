//! Admission to work that is bounded: so many at once, so many waiting, the rest refused.
//!
//! Places go round the principals that wait, each principal's in the order it asked. One may fill
//! the queue while nobody else waits; in a full queue whoever waits for most loses its newest
//! place in the queue to one that would still wait for less than it does after that.

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
    /// Told that the place is its own; dropped when it has to leave.
    tell: oneshot::Sender<()>,
}

/// The right to run, until dropped.
pub struct Place(Admission);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.release();
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
    /// `places` at once, `queue_max` waiting.
    pub fn new(places: usize, queue_max: usize) -> Admission {
        let state = State { free: places, waiting: 0, next_id: 0, queues: VecDeque::new() };
        Admission(Arc::new(Shared { queue_max, state: Mutex::new(state) }))
    }

    /// How many wait for a place.
    pub fn waiting(&self) -> usize {
        self.state().waiting
    }

    /// Waits for a place; dropping the future leaves the queue.
    pub async fn enter(&self, owner: &Principal) -> Result<Place, QueueFull> {
        let Some(mut waiting) = self.take_or_wait(owner)? else { return Ok(Place(self.clone())) };
        let told = (&mut waiting.told).await;
        waiting.is_over = true;
        // Without a word it had to make room for another principal's.
        told.map(|()| Place(self.clone())).map_err(|_| self.full())
    }

    /// A place in the queue; `None` where none is needed.
    fn take_or_wait(&self, owner: &Principal) -> Result<Option<Waiting>, QueueFull> {
        let mut state = self.state();
        if state.free > 0 {
            state.free -= 1;
            return Ok(None);
        }
        if state.waiting >= self.0.queue_max && !state.make_room(owner) {
            return Err(self.full());
        }
        let (tell, told) = oneshot::channel();
        let id = state.push(owner, tell);
        Ok(Some(Waiting {
            admission: self.clone(),
            owner: owner.clone(),
            id,
            told,
            is_over: false,
        }))
    }

    fn full(&self) -> QueueFull {
        QueueFull { queue_max: self.0.queue_max }
    }

    /// Gives a place to whoever is next, or back.
    fn release(&self) {
        loop {
            let next = {
                let mut state = self.state();
                let next = state.pop();
                state.free += usize::from(next.is_none());
                next
            };
            // One that leaves at this moment does not take it.
            if next.is_none_or(|waiter| waiter.tell.send(()).is_ok()) {
                return;
            }
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

    fn push(&mut self, owner: &Principal, tell: oneshot::Sender<()>) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        self.waiting += 1;
        let waiter = Waiter { id, tell };
        match self.queue(owner) {
            Some(queue) => queue.waiters.push_back(waiter),
            None => {
                let (owner, waiters) = (owner.clone(), VecDeque::from([waiter]));
                self.queues.push_back(Queue { owner, waiters });
            }
        }
        id
    }

    /// The next to get a place; its principal's next one waits for all others' turns.
    fn pop(&mut self) -> Option<Waiter> {
        let mut queue = self.queues.pop_front()?;
        let waiter = queue.waiters.pop_front();
        self.waiting -= usize::from(waiter.is_some());
        if !queue.waiters.is_empty() {
            self.queues.push_back(queue);
        }
        waiter
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
            self.admission.release();
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
        assert_eq!((admission.waiting(), free(&admission)), (0, 1), "places come back");
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
        assert_eq!((admission.waiting(), free(&admission)), (0, 0));
        drop(late);
        assert_eq!(free(&admission), 1);
    }
}
