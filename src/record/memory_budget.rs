//! Memory budget of live sessions and live sources: reserved before a session begins and once a source is open,
//! released when it ends.

use crate::base::{
    keys::Principal,
    owner_limit::{LimitScope, OwnerLimiter},
};

pub use crate::base::owner_limit::OwnerPermit as MemoryReservation;

/// Memory reserved for each: decoder, pictures in flight and queues at 1080p.
pub const SESSION_BYTES: u64 = 25 << 20;

/// Memory budget in bytes of all live sessions and sources together, and of those of one principal; clones share it.
#[derive(Clone, Debug)]
pub struct MemoryBudget {
    limit: u64,
    share: u64,
    sessions: OwnerLimiter,
}

/// The memory left is too small for another session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "no media capacity: of {limit} bytes for live sessions and cameras{} too few are left, and another takes \
     {SESSION_BYTES}: end one, or raise SERVICE_MEDIA_MEMORY_BUDGET_BYTES",
    words(*.whose)
)]
pub struct MemoryExhausted {
    whose: LimitScope,
    limit: u64,
}

fn words(whose: LimitScope) -> &'static str {
    match whose {
        LimitScope::All => "",
        LimitScope::Own => " of one principal",
    }
}

impl MemoryBudget {
    /// Creates a budget of `limit` bytes, of which one principal may reserve `share`.
    pub fn new(limit: u64, share: u64) -> MemoryBudget {
        MemoryBudget { limit, share, sessions: OwnerLimiter::default() }
    }

    /// Reserves the memory of one session of `owner`.
    pub fn reserve(&self, owner: &Principal) -> Result<MemoryReservation, MemoryExhausted> {
        let most = |bytes: u64| usize::try_from(bytes / SESSION_BYTES).unwrap_or(usize::MAX);
        let entered = self.sessions.enter(owner, most(self.limit), most(self.share));
        entered.map_err(|whose| {
            let limit = if whose == LimitScope::All { self.limit } else { self.share };
            MemoryExhausted { whose, limit }
        })
    }

    /// Returns the bytes reserved.
    pub fn used(&self) -> u64 {
        self.sessions.all() as u64 * SESSION_BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_is_reserved_than_there_is_and_all_comes_back() {
        let [alice, bob] = ["alice", "bob"].map(Principal::named);
        let budget = MemoryBudget::new(3 * SESSION_BYTES + 1, 2 * SESSION_BYTES);
        let held: Vec<_> =
            [&alice, &alice, &bob].map(|owner| budget.reserve(owner).expect("room")).into();
        let refused = budget.reserve(&bob).expect_err("full").to_string();
        assert!(refused.contains("SERVICE_MEDIA_MEMORY_BUDGET_BYTES"), "{refused}");
        assert_eq!(budget.used(), 3 * SESSION_BYTES);
        drop(held);
        assert_eq!(budget.used(), 0);
        budget.reserve(&alice).expect("room again");
    }
}
