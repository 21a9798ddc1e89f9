//! What the requests of an ask are paid from.

/// Tokens that may be spent. Called from the task that asks: must not block.
pub trait Purse: Send + Sync {
    /// Sets aside what the next request is expected to take; `false` where there is not as much, and
    /// then it is not sent.
    fn reserve(&self, tokens: u64) -> bool;

    /// Pays what the request took that was reserved for.
    fn spend(&self, tokens: u64);
}

/// Pays everything.
impl Purse for () {
    fn reserve(&self, _: u64) -> bool {
        true
    }

    fn spend(&self, _: u64) {}
}
