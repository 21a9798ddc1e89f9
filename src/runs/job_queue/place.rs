//! A place that work has, and may lend to others while it waits for what is not here.

use std::{future::ready, pin::pin, sync::Arc};

use super::{JobLength, JobQueue};
use crate::base::keys::Principal;
use parking_lot::Mutex;

/// The right to run, until dropped.
pub struct JobPermit(Lender);

impl JobPermit {
    pub(super) fn new(admission: JobQueue, owner: Principal, stay: JobLength) -> JobPermit {
        let state = Mutex::new(State::Held);
        JobPermit(Lender(Arc::new(Seat { admission, owner, stay, state })))
    }

    /// Handle that lends the place while its work waits.
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

/// Lends a place; clones lend the same one, and none that was left.
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

impl Seat {}

impl Lender {
    /// Awaits `wait` and returns its output; others have the place while it is not ready.
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

    /// Lets others use the slot until [`Lender::lend_while`] takes it back.
    pub fn lend(&self) {
        let seat = &self.0;
        let mut state = seat.state.lock();
        if *state == State::Held {
            *state = State::Lent;
            seat.admission.release(&seat.owner, seat.stay);
        }
    }
}

/// Takes a lent place back when dropped, at once: who has it meanwhile keeps it, and the next who
/// waits does so for longer.
struct Back<'a>(&'a Lender);

impl Drop for Back<'_> {
    fn drop(&mut self) {
        let seat = &self.0.0;
        let mut state = seat.state.lock();
        if *state == State::Lent {
            *state = State::Held;
            seat.admission.take_back(&seat.owner, seat.stay);
        }
    }
}
