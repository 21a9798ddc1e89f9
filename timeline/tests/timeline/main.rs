//! The log through its public API, on the real disk and on one that loses power.
#![allow(missing_docs, clippy::unwrap_used, reason = "a test binary")]

mod api;
mod backed;
mod bucket;
mod check;
mod compact;
mod concurrency;
mod crash;
mod damage;
mod disk;
#[path = "../../../tests/support/disk_shim.rs"]
mod disk_shim;
mod faults;
#[path = "../../../tests/support/files.rs"]
mod files;
mod folder;
mod format;
mod full;
mod kill;
mod model;
mod open_column;
mod replay;
mod sealed;
#[path = "../../../tests/support/skip.rs"]
mod skip;
mod slips;
mod support;
mod survivor;
