//! Tests of workers as processes: sandbox, watchdog, jobs on real clips, views, mutated files, sessions,
//! remote media.
#![allow(missing_docs)]

#[path = "worker/backends.rs"]
mod backends;
#[path = "worker/confinement.rs"]
mod confinement;
#[path = "../../tests/support/cuda_shim.rs"]
mod cuda_shim;
#[path = "../../tests/support/damaged.rs"]
mod damaged;
#[path = "worker/excerpts.rs"]
mod excerpts;
#[path = "worker/faults.rs"]
mod faults;
#[path = "worker/fork_server.rs"]
mod fork_server;
#[path = "worker/gates.rs"]
mod gates;
#[path = "worker/hls.rs"]
mod hls;
#[path = "worker/jobs.rs"]
mod jobs;
#[path = "worker/live.rs"]
mod live;
#[path = "worker/live_faults.rs"]
mod live_faults;
#[path = "worker/live_shown.rs"]
mod live_shown;
#[path = "worker/mutants.rs"]
mod mutants;
#[path = "../../tests/support/no_landlock.rs"]
mod no_landlock;
#[path = "../../tests/support/nvdec_shim.rs"]
mod nvdec_shim;
#[path = "worker/nvidia.rs"]
mod nvidia;
#[path = "worker/programs.rs"]
mod programs;
#[path = "worker/remote.rs"]
mod remote;
#[path = "worker/remote_mutants.rs"]
mod remote_mutants;
#[path = "worker/rtsp.rs"]
mod rtsp;
#[path = "../../tests/support/sandbox.rs"]
mod sandbox_here;
#[path = "worker/shelf.rs"]
mod shelf;
#[path = "worker/shrink.rs"]
mod shrink;
#[path = "../../tests/support/skip.rs"]
mod skip;
#[path = "worker/support.rs"]
mod support;
#[path = "worker/views.rs"]
mod views;
