//! Limiter of open items, per owner and in total.

use std::{collections::HashMap, sync::Arc};

use parking_lot::Mutex;

use crate::base::keys::Principal;

/// Limit that was reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitScope {
    All,
    Own,
}

/// Counts of open items, in total and by owner; clones share them.
#[derive(Clone, Debug, Default)]
pub struct OwnerLimiter(Arc<Mutex<Open>>);

#[derive(Debug, Default)]
struct Open {
    all: usize,
    own: HashMap<Principal, usize>,
}

/// Open item of an owner, counted until dropped.
#[derive(Debug)]
pub struct OwnerPermit {
    limiter: OwnerLimiter,
    /// Principal whose place this is.
    pub owner: Principal,
}

impl OwnerLimiter {
    /// Adds one item of `owner`, or returns the limit that is reached.
    pub fn enter(
        &self,
        owner: &Principal,
        all_max: usize,
        own_max: usize,
    ) -> Result<OwnerPermit, LimitScope> {
        let mut open = self.0.lock();
        if open.all >= all_max {
            return Err(LimitScope::All);
        }
        if open.own.get(owner).is_some_and(|open| *open >= own_max) {
            return Err(LimitScope::Own);
        }
        open.all += 1;
        *open.own.entry(owner.clone()).or_default() += 1;
        Ok(OwnerPermit { limiter: self.clone(), owner: owner.clone() })
    }

    pub fn all(&self) -> usize {
        self.0.lock().all
    }
}

impl Drop for OwnerPermit {
    fn drop(&mut self) {
        let mut open = self.limiter.0.lock();
        open.all -= 1;
        if let Some(own) = open.own.get_mut(&self.owner) {
            *own -= 1;
            if *own == 0 {
                open.own.remove(&self.owner);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_owner_and_all_together_are_bounded_and_nothing_is_left_behind() {
        let [alice, bob] = ["alice", "bob"].map(Principal::named);
        let (open, mut held) = (OwnerLimiter::default(), Vec::new());
        let rows = [
            (&alice, Ok(()), 1),
            (&alice, Ok(()), 2),
            (&alice, Err(LimitScope::Own), 2),
            (&bob, Ok(()), 3),
            (&bob, Err(LimitScope::All), 3),
        ];
        for (owner, expected, all) in rows {
            let entered = open.enter(owner, 3, 2).map(|permit| held.push(permit));
            assert_eq!((entered, open.all()), (expected, all), "{owner:?}");
        }
        drop(held);
        assert_eq!((open.all(), open.0.lock().own.len()), (0, 0));
    }
}
