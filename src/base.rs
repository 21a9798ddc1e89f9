//! Base layer of the server: parts that every layer above uses and that depend on none of them.

pub(crate) mod arrow;
pub(crate) mod backoff;
pub(crate) mod blocking;
pub(crate) mod clock;
pub mod database;
pub(crate) mod disk_reserve;
pub(crate) mod fd_limit;
pub mod json;
pub mod keys;
pub(crate) mod labels;
pub mod meta_store;
pub mod metrics;
pub(crate) mod model_catalog;
pub(crate) mod owner_limit;
pub(crate) mod quota;
pub(crate) mod retry_while_full;
pub(crate) mod secret;
pub(crate) mod stats;
pub(crate) mod stepped_body;
pub mod telemetry;
pub mod tls;

pub(crate) use transport::percent;

use std::time::Duration;

use media::NodeTag;
use tokio::time::{Interval, MissedTickBehavior};

/// Creates a timer that does not make up for the ticks missed in a stall.
pub(crate) fn every(period: Duration) -> Interval {
    let mut tick = tokio::time::interval(period);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    tick
}

/// Returns `bytes` as lower-case hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns 16 random bytes for a new id; a node with a tag has it in the first two.
pub(crate) fn id_bytes(tag: Option<NodeTag>) -> [u8; 16] {
    let mut bytes = random_bytes();
    if let Some(tag) = tag {
        bytes[..2].copy_from_slice(tag.as_bytes());
    }
    bytes
}

/// Returns bytes of the operating system's random generator, for identifiers.
pub(crate) fn random_bytes<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).expect("the operating system has a random number generator");
    bytes
}
