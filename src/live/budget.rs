//! The memory that live sessions may take: reserved before a session begins, given back with it.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::Relaxed},
};

/// What a session is reserved: decoder, pictures in flight and queues at 1080p.
const SESSION_BYTES: u64 = 25 << 20;

/// Bytes of all live sessions together.
#[derive(Debug)]
pub struct Budget {
    limit: u64,
    used: AtomicU64,
}

/// There is no room for another session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "no media capacity: {used} of {limit} bytes are reserved by live sessions, and another takes \
     {SESSION_BYTES}: end one, or raise SERVICE_MEDIA_MEMORY_BUDGET_BYTES"
)]
pub struct NoRoom {
    used: u64,
    limit: u64,
}

/// The bytes of one session, until dropped.
#[derive(Debug)]
pub struct Reservation(Arc<Budget>);

impl Budget {
    /// Nothing reserved of `limit` bytes.
    pub fn new(limit: u64) -> Arc<Budget> {
        Arc::new(Budget { limit, used: AtomicU64::new(0) })
    }

    /// Reserves the memory of one session.
    pub fn reserve(self: &Arc<Budget>) -> Result<Reservation, NoRoom> {
        let room = |used: u64| {
            let after = used.saturating_add(SESSION_BYTES);
            (after <= self.limit).then_some(after)
        };
        match self.used.fetch_update(Relaxed, Relaxed, room) {
            Ok(_) => Ok(Reservation(Arc::clone(self))),
            Err(used) => Err(NoRoom { used, limit: self.limit }),
        }
    }

    /// Bytes reserved.
    pub fn used(&self) -> u64 {
        self.used.load(Relaxed)
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.0.used.fetch_sub(SESSION_BYTES, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_is_reserved_than_there_is_and_all_comes_back() {
        let budget = Budget::new(3 * SESSION_BYTES + 1);
        let held: Vec<_> = (0..3).map(|_| budget.reserve().expect("room")).collect();
        let refused = budget.reserve().expect_err("full").to_string();
        assert!(refused.contains("SERVICE_MEDIA_MEMORY_BUDGET_BYTES"), "{refused}");
        assert_eq!(budget.used(), 3 * SESSION_BYTES);
        drop(held);
        assert_eq!(budget.used(), 0);
        budget.reserve().expect("room again");
    }
}
