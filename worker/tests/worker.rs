//! Workers as processes: the sandbox, the watchdog, jobs on real clips, mutated files, sessions.
#![allow(missing_docs)]

#[path = "worker/faults.rs"]
mod faults;
#[path = "worker/jobs.rs"]
mod jobs;
#[path = "worker/live.rs"]
mod live;
#[path = "worker/mutants.rs"]
mod mutants;
#[path = "worker/sandbox.rs"]
mod sandbox;
#[path = "worker/support.rs"]
mod support;
