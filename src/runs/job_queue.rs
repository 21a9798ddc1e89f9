//! Admission of jobs: a limited number of permits, a bounded queue before them, everything else refused.
//!
//! Permits are handed out round-robin over the waiting principals, in request order within each. One
//! principal may fill the queue; those with fewer waiters are let in beyond it, each to half of what is left
//! of as many places again. A waiter is never dropped, as its request may have been accepted. Long jobs leave
//! one permit to the rest.

use std::{
    collections::{HashMap, VecDeque},
    future::ready,
    pin::pin,
    sync::Arc,
};

use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::base::keys::Principal;

/// Permits for jobs, and a bounded queue before them.
#[derive(Clone)]
pub struct JobQueue(Arc<Shared>);

struct Shared {
    queue_max: usize,
    /// Maximum permits of one principal.
    own_max: usize,
    state: Mutex<State>,
}

struct State {
    /// Free permits; negative after jobs took back permits that they had lent.
    free: isize,
    /// Free permits for short jobs, and for long jobs.
    free_for: [isize; 2],
    held: HashMap<Principal, usize>,
    /// Number of reservations by owner, without zeros.
    reserved: HashMap<Principal, usize>,
    waiting: usize,
    next_id: u64,
    /// Waiters by owner, in the order of their turns; no queue is empty.
    queues: VecDeque<Queue>,
}

struct Queue {
    owner: Principal,
    waiters: VecDeque<Waiter>,
}

struct Waiter {
    id: u64,
    stay: JobLength,
    /// Takes the waiter's permit.
    tell: oneshot::Sender<JobPermit>,
}

/// Expected length of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobLength {
    /// Bounded by the server's own work.
    Short,
    /// Bounded by models that are waited for, possibly for hours. Never takes the last permit.
    Long,
}

/// Error of a full queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the queue of file jobs is full ({queue_max} waiting)")]
pub struct QueueFull {
    /// Maximum number of waiters.
    pub queue_max: usize,
}

impl JobQueue {
    /// Creates a queue of `places` permits and up to `queue_max` waiters. With a single permit,
    /// long jobs have one more of their own.
    pub fn new(places: usize, queue_max: usize) -> JobQueue {
        JobQueue::shared(places, usize::MAX, queue_max)
    }

    /// Creates a queue of which one principal may hold at most `own_max` permits.
    pub fn shared(places: usize, own_max: usize, queue_max: usize) -> JobQueue {
        let places = isize::try_from(places).unwrap_or(isize::MAX);
        let state = State {
            free: places.max(2),
            free_for: [places, (places - 1).max(1)],
            held: HashMap::new(),
            reserved: HashMap::new(),
            waiting: 0,
            next_id: 0,
            queues: VecDeque::new(),
        };
        JobQueue(Arc::new(Shared { queue_max, own_max, state: Mutex::new(state) }))
    }

    /// Number of waiters.
    pub fn waiting(&self) -> usize {
        self.0.state.lock().waiting
    }

    /// Reserves room for a short job before any work is done for it; fails if the job could neither
    /// begin nor wait. Until dropped, the reservation counts as a waiter.
    pub fn reserve(&self, owner: &Principal) -> Result<Reservation, QueueFull> {
        let mut state = self.0.state.lock();
        let reserved: usize = state.reserved.values().sum();
        let spare = state.spare(owner, JobLength::Short, self.0.own_max);
        if reserved >= spare && !state.has_room(owner, self.0.queue_max, spare) {
            return Err(self.full());
        }
        *state.reserved.entry(owner.clone()).or_default() += 1;
        Ok(Reservation { queue: self.clone(), owner: owner.clone() })
    }

    /// Waits for a permit for a short job; dropping the future leaves the queue.
    pub async fn enter(&self, owner: &Principal) -> Result<JobPermit, QueueFull> {
        self.enter_within(owner, JobLength::Short, self.0.queue_max).await
    }

    /// Waits for a permit for a job with a reservation, or one that holds other permits; never refused.
    pub async fn pass(&self, owner: &Principal, stay: JobLength) -> JobPermit {
        self.enter_within(owner, stay, usize::MAX).await.expect("a queue without a bound has room")
    }

    async fn enter_within(
        &self,
        owner: &Principal,
        stay: JobLength,
        queue_max: usize,
    ) -> Result<JobPermit, QueueFull> {
        let (id, told) = {
            let mut state = self.0.state.lock();
            // Waiters that exist beside a free permit cannot use it: it is for another job length or owner.
            if state.spare(owner, stay, self.0.own_max) > 0 {
                state.take(owner, stay);
                return Ok(JobPermit::new(self.clone(), owner.clone(), stay));
            }
            if !state.has_room(owner, queue_max, 0) {
                return Err(self.full());
            }
            let (tell, told) = oneshot::channel();
            (state.push(owner, stay, tell), told)
        };
        let _place = QueuePlace { queue: self, owner, id };
        Ok(told.await.expect("the sender stays in the queue until it gives the permit"))
    }

    fn full(&self) -> QueueFull {
        QueueFull { queue_max: self.0.queue_max }
    }

    /// Releases a permit, to the next waiter if there is one.
    fn release(&self, owner: &Principal, stay: JobLength) {
        let next = {
            let mut state = self.0.state.lock();
            state.give(owner, stay);
            state.pop(self.0.own_max)
        };
        let Some((owner, Waiter { stay, tell, .. })) = next else { return };
        // A waiter that is just leaving drops the permit, which goes to the next one.
        drop(tell.send(JobPermit::new(self.clone(), owner, stay)));
    }
}

impl State {
    fn queue(&mut self, owner: &Principal) -> Option<&mut Queue> {
        self.queues.iter_mut().find(|queue| queue.owner == *owner)
    }

    /// Number of free permits that `owner` may take.
    fn spare(&self, owner: &Principal, stay: JobLength, own_max: usize) -> usize {
        let held = self.held.get(owner).copied().unwrap_or(0);
        let free = usize::try_from(self.free.min(self.free_for[stay as usize])).unwrap_or(0);
        free.min(own_max.saturating_sub(held))
    }

    fn take(&mut self, owner: &Principal, stay: JobLength) {
        self.free -= 1;
        self.free_for[stay as usize] -= 1;
        *self.held.entry(owner.clone()).or_default() += 1;
    }

    fn give(&mut self, owner: &Principal, stay: JobLength) {
        self.free += 1;
        self.free_for[stay as usize] += 1;
        let Some(held) = self.held.get_mut(owner) else { return };
        *held -= 1;
        if *held == 0 {
            self.held.remove(owner);
        }
    }

    fn push(
        &mut self,
        owner: &Principal,
        stay: JobLength,
        tell: oneshot::Sender<JobPermit>,
    ) -> u64 {
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

    /// Removes the next waiter that a free permit fits, and takes the permit for it. Its owner's
    /// next waiter queues behind all other owners.
    fn pop(&mut self, own_max: usize) -> Option<(Principal, Waiter)> {
        let (at, place) = self.queues.iter().enumerate().find_map(|(at, queue)| {
            let goes = |waiter: &Waiter| self.spare(&queue.owner, waiter.stay, own_max) > 0;
            queue.waiters.iter().position(goes).map(|place| (at, place))
        })?;
        let mut queue = self.queues.remove(at)?;
        let waiter = queue.waiters.remove(place)?;
        let owner = queue.owner.clone();
        self.take(&owner, waiter.stay);
        self.waiting -= 1;
        if !queue.waiters.is_empty() {
            self.queues.push_back(queue);
        }
        Some((owner, waiter))
    }

    /// Returns true if `owner` may wait. In a full queue, it may with fewer waiters than what is left of
    /// `queue_max` further places. Reservations that the `spare` permits suffice for do not count as waiters.
    fn has_room(&mut self, owner: &Principal, queue_max: usize, spare: usize) -> bool {
        let own = self.queue(owner).map_or(0, |queue| queue.waiters.len());
        let own = own + self.reserved.get(owner).copied().unwrap_or(0).saturating_sub(spare);
        let all = self.waiting + self.reserved.values().sum::<usize>().saturating_sub(spare);
        all < queue_max || own < (2 * queue_max).saturating_sub(all)
    }

    fn leave(&mut self, owner: &Principal, id: u64) {
        let Some(queue) = self.queue(owner) else { return };
        let before = queue.waiters.len();
        queue.waiters.retain(|waiter| waiter.id != id);
        self.waiting -= before - queue.waiters.len();
        self.queues.retain(|queue| !queue.waiters.is_empty());
    }
}

/// Reserved room in the queue, until dropped.
#[must_use]
pub struct Reservation {
    queue: JobQueue,
    owner: Principal,
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let mut state = self.queue.0.state.lock();
        let count = state.reserved.remove(&self.owner).unwrap_or(0);
        if count > 1 {
            state.reserved.insert(self.owner.clone(), count - 1);
        }
    }
}

/// Place in the queue, left when dropped; a permit that arrived meanwhile is dropped too.
struct QueuePlace<'a> {
    queue: &'a JobQueue,
    owner: &'a Principal,
    id: u64,
}

impl Drop for QueuePlace<'_> {
    fn drop(&mut self) {
        self.queue.0.state.lock().leave(self.owner, self.id);
    }
}

/// Permit to run, until dropped.
pub struct JobPermit(Lender);

impl JobPermit {
    fn new(admission: JobQueue, owner: Principal, stay: JobLength) -> JobPermit {
        let state = Mutex::new(Use::Held);
        JobPermit(Lender(Arc::new(Seat { admission, owner, stay, state })))
    }

    /// Returns a handle that lends the permit while the job waits.
    pub fn lender(&self) -> Lender {
        self.0.clone()
    }
}

impl Drop for JobPermit {
    fn drop(&mut self) {
        let seat = &self.0.0;
        let before = std::mem::replace(&mut *seat.state.lock(), Use::Left);
        if before == Use::Held {
            seat.admission.release(&seat.owner, seat.stay);
        }
    }
}

/// Lends a permit; clones lend the same one. A dropped permit cannot be lent.
#[derive(Clone)]
pub struct Lender(Arc<Seat>);

struct Seat {
    admission: JobQueue,
    owner: Principal,
    stay: JobLength,
    state: Mutex<Use>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    Held,
    Lent,
    Left,
}

impl Lender {
    /// Awaits `wait` and returns its output; lends the permit while `wait` is pending.
    pub async fn lend_while<T>(&self, wait: impl Future<Output = T>) -> T {
        let _back = Back(self);
        let mut wait = pin!(wait);
        tokio::select! {
            biased;
            at_once = &mut wait => return at_once,
            () = ready(()) => {}
        }
        self.lend();
        wait.await
    }

    /// Lends the permit until the end of the next [`Lender::lend_while`].
    pub fn lend(&self) {
        let seat = &self.0;
        let mut state = seat.state.lock();
        if *state == Use::Held {
            *state = Use::Lent;
            seat.admission.release(&seat.owner, seat.stay);
        }
    }
}

/// Takes a lent permit back at once when dropped, even if none is free: another holder keeps its
/// permit, and the next waiter waits longer.
struct Back<'a>(&'a Lender);

impl Drop for Back<'_> {
    fn drop(&mut self) {
        let seat = &self.0.0;
        let mut state = seat.state.lock();
        if *state == Use::Lent {
            *state = Use::Held;
            seat.admission.0.state.lock().take(&seat.owner, seat.stay);
        }
    }
}

#[cfg(test)]
mod tests;
