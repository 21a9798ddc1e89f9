//! Token budget that requests to a model are charged to.

use std::sync::Arc;

/// Tokens that may be spent. Called from the requester's task: must not block.
pub trait TokenBudget: Send + Sync {
    /// The principal that is charged.
    fn principal(&self) -> Arc<str>;

    /// Sets aside what the next request is expected to take; `false` where there is not as much, and
    /// then it is not sent.
    fn reserve(&self, tokens: u64) -> bool;

    /// Charges what the request took that was reserved for.
    fn commit(&self, tokens: u64);
}

/// Unlimited, of no principal.
impl TokenBudget for () {
    fn principal(&self) -> Arc<str> {
        "".into()
    }

    fn reserve(&self, _: u64) -> bool {
        true
    }

    fn commit(&self, _: u64) {}
}
