//! Media workers: decode, gate and stills in a sandboxed process that sees descriptors only.
//!
//! [`Supervisor`] executes or forks a binary of ours whose `main` calls [`worker_main()`], and talks to it
//! over one socket. Integers, stills, views and coded bytes cross it, and of selected frames the small
//! pictures that an embedding model takes; other pixels never do. Promises: whatever the media does to a
//! worker becomes one [`WorkerError`] here, and no worker outlives its job. Knows no run, no event and no
//! wall time.
#![deny(unsafe_code)]

mod arenas;
mod assemble;
mod backend;
mod channel;
mod child;
mod chunk_images;
mod control_socket;
#[cfg(test)]
#[path = "../../tests/support/corpus.rs"]
mod corpus;
mod ending;
mod error;
mod excerpt;
mod fork;
mod fork_server;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod gate_device;
mod input;
mod input_provider;
mod job;
mod jpeg;
mod launcher;
mod live;
mod pictures;
mod plan;
mod process;
mod program;
mod protocol;
mod record;
mod said;
mod sandbox;
mod sandbox_probe;
mod session;
mod source;
mod still;
mod supervisor;
mod watchdog;
mod wire;
mod worker_main;

pub use arenas::{limit_arenas, release_free_memory};
pub use backend::{
    BackendChoice, BackendRequest, BackendSelectError, DecodeSelection, GateSelection,
};
pub use chunk_images::{ChunkBoundary, ChunkImageOptions, Crop, FrameChunk, ModelImage, Region};
pub use ending::LiveEnd;
pub use error::{JobFault, WorkerError};
pub use excerpt::{ExcerptEvent, ExcerptSpec};
pub use fork_server::WorkerStart;
pub use gate_device::{GateBackend, GateBackendReport};
pub use input::{JobInput, RemoteMedia, Resource, ResourceError, ResourceOpener, RtspMedia};
pub use job::{JobEvent, JobOptions, Resume, StageTimings, analyze};
pub use live::{LiveWorker, LiveWorkerEvent};
pub use plan::{
    chunks::ChunkBuilder,
    clips::{ClipDecision, ClipSampler},
};
pub use program::WorkerProgram;
pub use protocol::{Capabilities, EscapeAttempt};
pub use record::{EmbeddingInput, EncodedImage, FrameImages, FrameRecord, FrameView, NoveltyInput};
pub use sandbox::{SandboxPolicy, SandboxReport};
pub use session::{ClipSpec, NoveltySpec, SessionSpec, WorkerSessionEvent};
pub use source::{PLAYLIST_BYTES_MAX, PLAYLISTS_MAX, SEGMENTS_MAX};
pub use supervisor::{CancelToken, JOB_THREADS_MAX, JobSpec, Supervisor, WorkerLimits};
pub use wire::WireError;
pub use worker_main::{is_worker_invocation, worker_main};
