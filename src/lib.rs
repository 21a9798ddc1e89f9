//! The server: joins worker, timeline and transport behind the HTTP API.
#![forbid(unsafe_code)]

pub mod analysis;
pub mod api;
pub mod app;
mod arrow;
pub mod backend;
pub mod backoff;
mod blocking;
pub mod catalog;
pub mod clock;
pub mod config;
pub mod database;
pub mod delivery;
pub mod descriptors;
pub mod disk;
pub mod doctor;
pub mod eyes;
pub mod idempotency;
pub mod inference;
pub mod json;
pub mod labels;
pub mod ledger;
pub mod live;
pub mod metrics;
pub mod per_owner;
pub mod quota;
pub mod record;
pub mod retention;
pub mod search;
mod secret;
pub mod server;
pub mod session;
pub mod small_stills;
pub mod source;
pub mod stats;
pub mod summary;
pub mod telemetry;
pub mod tickets;
pub mod tls;
pub mod upload;

use transport::percent;

/// `bytes` as lower-case hexadecimal digits.
fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Bytes from the operating system's generator, for identifiers.
fn random_bytes<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).expect("the operating system has a random number generator");
    bytes
}
