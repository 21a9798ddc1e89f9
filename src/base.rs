//! Ground of the server: what every layer above needs, and what knows none of them.

pub(crate) mod arrow;
pub mod backoff;
pub(crate) mod blocking;
pub mod clock;
pub mod database;
pub mod disk_reserve;
pub mod fd_limit;
pub mod json;
pub mod keys;
pub mod labels;
pub mod meta_store;
pub mod metrics;
pub mod model_catalog;
pub mod owner_limit;
pub mod quota;
pub mod retry_while_full;
pub(crate) mod secret;
pub mod stats;
pub mod telemetry;
pub mod tls;

pub(crate) use transport::percent;

use media::NodeTag;

/// `bytes` as lower-case hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Bytes of a new id, which begin with the tag of the node where it has one.
pub(crate) fn id_bytes(tag: Option<NodeTag>) -> [u8; 16] {
    let mut bytes = random_bytes();
    if let Some(tag) = tag {
        bytes[..2].copy_from_slice(tag.as_bytes());
    }
    bytes
}

/// Bytes from the operating system's generator, for identifiers.
pub(crate) fn random_bytes<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).expect("the operating system has a random number generator");
    bytes
}
