//! Budget that pays the requests to a model, and its owner.

use std::sync::Arc;

/// Tokens that may be spent. Called from the task that asks: must not block.
pub trait Purse: Send + Sync {
    /// The principal that pays: its asks may be what a backend fails on.
    fn payer(&self) -> Arc<str>;

    /// Sets aside what the next request is expected to take; `false` where there is not as much, and
    /// then it is not sent.
    fn reserve(&self, tokens: u64) -> bool;

    /// Pays what the request took that was reserved for.
    fn spend(&self, tokens: u64);
}

/// Pays everything, for nobody in particular.
impl Purse for () {
    fn payer(&self) -> Arc<str> {
        "".into()
    }

    fn reserve(&self, _: u64) -> bool {
        true
    }

    fn spend(&self, _: u64) {}
}
