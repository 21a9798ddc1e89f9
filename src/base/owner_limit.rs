//! Limiter of open items, per owner and in total.

use std::collections::HashMap;

use crate::base::keys::Principal;

/// Limit that was reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitScope {
    All,
    Own,
}

/// Counts of open items, in total and by owner.
#[derive(Debug, Default)]
pub struct OwnerLimiter {
    all: usize,
    own: HashMap<Principal, usize>,
}

impl OwnerLimiter {
    /// Adds one item of `owner`, or returns the limit that is reached.
    pub fn enter(
        &mut self,
        owner: &Principal,
        all_max: usize,
        own_max: usize,
    ) -> Result<(), LimitScope> {
        if self.all >= all_max {
            return Err(LimitScope::All);
        }
        if self.own.get(owner).is_some_and(|open| *open >= own_max) {
            return Err(LimitScope::Own);
        }
        self.all += 1;
        *self.own.entry(owner.clone()).or_default() += 1;
        Ok(())
    }

    /// Removes one item of `owner`, which must have entered.
    pub fn leave(&mut self, owner: &Principal) {
        let Some(open) = self.own.get_mut(owner) else { return };
        self.all -= 1;
        *open -= 1;
        if *open == 0 {
            self.own.remove(owner);
        }
    }

    /// Returns the number of items of all owners.
    pub fn all(&self) -> usize {
        self.all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_owner_and_all_together_are_bounded_and_nothing_is_left_behind() {
        let [alice, bob] = ["alice", "bob"].map(Principal::named);
        let mut open = OwnerLimiter::default();
        let rows = [
            (&alice, Ok(()), 1),
            (&alice, Ok(()), 2),
            (&alice, Err(LimitScope::Own), 2),
            (&bob, Ok(()), 3),
            (&bob, Err(LimitScope::All), 3),
        ];
        for (owner, expected, all) in rows {
            assert_eq!((open.enter(owner, 3, 2), open.all()), (expected, all), "{owner:?}");
        }
        for owner in [&alice, &bob, &alice, &alice] {
            open.leave(owner);
        }
        assert_eq!((open.all(), open.own.len()), (0, 0));
    }
}
