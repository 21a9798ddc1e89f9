//! The server as a whole: real processes on free ports, seen from outside, and what is published of them.
//!
//! One program, so that the support is compiled and linked once; each module needs nothing of the others.
#![allow(missing_docs)]
#![forbid(unsafe_code)]

mod support;

mod api;
mod book;
mod crash;
mod cuts;
mod drills;
mod fuzz;
mod live;
mod overload;
#[allow(clippy::unwrap_used, reason = "shared with a test binary that unwraps")]
#[path = "../timeline/tests/timeline/replay.rs"]
mod replay;
mod schema;
#[cfg(feature = "h3-experimental")]
mod serving;
mod soak;
#[path = "../timeline/tests/timeline/survivor.rs"]
mod survivor;
