//! Token budget that requests to a model are charged to.

use std::sync::Arc;

/// Budget of tokens. Called from the requester's task: must not block.
pub trait TokenBudget: Send + Sync {
    /// Returns the principal that is charged.
    fn principal(&self) -> Arc<str>;

    /// Reserves `tokens`, an estimate, for the next request. Returns `false` if the budget is too
    /// small; the request must then not be sent.
    fn reserve(&self, tokens: u64) -> bool;

    /// Charges the `tokens` that the request took, in place of what was reserved for it.
    fn commit(&self, tokens: u64);
}

/// Unlimited budget without a principal.
impl TokenBudget for () {
    fn principal(&self) -> Arc<str> {
        "".into()
    }

    fn reserve(&self, _: u64) -> bool {
        true
    }

    fn commit(&self, _: u64) {}
}
