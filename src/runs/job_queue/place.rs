//! Permit of a job, which the job may lend to others while it waits.

use std::{future::ready, pin::pin, sync::Arc};

use super::{JobLength, JobQueue};
use crate::base::keys::Principal;
use parking_lot::Mutex;

/// Permit to run, until dropped.
pub struct JobPermit(Lender);

impl JobPermit {
    pub(super) fn new(admission: JobQueue, owner: Principal, stay: JobLength) -> JobPermit {
        let state = Mutex::new(State::Held);
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
        let before = std::mem::replace(&mut *seat.state.lock(), State::Left);
        if before == State::Held {
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
    state: Mutex<State>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
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
        if *state == State::Held {
            *state = State::Lent;
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
        if *state == State::Lent {
            *state = State::Held;
            seat.admission.0.state.lock().take(&seat.owner, seat.stay);
        }
    }
}
