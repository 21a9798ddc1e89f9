//! Events: each kind of the wire contract is a variant with its payload.
//!
//! The module `record` converts payloads to JSON and back.

mod declare;
mod kind;
mod payloads;

pub use declare::{HasShape, Member, MemberSink, PayloadShape};
pub use kind::EventKind;
pub use payloads::*;

use crate::signal_column;
use media::{BlobHash, RequestId, RunId, Signal, StreamId, Zones};

/// Failure reason of work that ended because its server was killed or its machine stopped.
pub const INTERRUPTED: &str = "interrupted";

/// Event to append, with its run.
#[derive(Clone, Debug, PartialEq)]
pub struct NewEvent {
    /// Run of the event.
    pub run: RunId,
    /// Kind and payload.
    pub event: Event,
}

/// JSON text that is known to be one valid value; reproduced byte for byte.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JsonText(pub(crate) Box<str>);

impl JsonText {
    /// Returns the text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

media::named! {
    /// Policy that selects the frames of a source.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub enum SamplingPolicy {
        /// Every source frame, or the requested rate.
        SourceFpsAdaptive = "source_fps_adaptive",
        /// The first frame at or after each multiple of the period.
        Fixed = "fixed",
    }
}

/// Per-frame signals of a decode pass, inline or in a column file.
#[derive(Clone, Debug, PartialEq)]
pub enum Signals {
    /// Small arrays are in the event.
    Inline(Vec<Signal>),
    /// Large arrays are in a durable column file, see [`crate::ColumnWriter`].
    Column {
        /// SHA-256 of the column file.
        hash: BlobHash,
        /// Number of signals in it.
        count: u64,
    },
}

impl Signals {
    /// Returns the number of signals.
    pub fn count(&self) -> u64 {
        match self {
            Signals::Inline(signals) => signals.len() as u64,
            Signals::Column { count, .. } => *count,
        }
    }

    /// Returns the bytes of the column file; 0 for inline signals.
    pub fn column_bytes(&self) -> u64 {
        match self {
            Signals::Inline(_) => 0,
            Signals::Column { count, .. } => signal_column::file_bytes(*count).unwrap_or_default(),
        }
    }
}

impl FramesDecoded {
    /// Creates the event of a source, without frames and with nothing known of its pictures.
    pub fn new(
        request_id: RequestId,
        source_uri: String,
        stream_id: StreamId,
        sampling_policy: SamplingPolicy,
    ) -> FramesDecoded {
        FramesDecoded {
            request_id,
            source_uri,
            stream_id,
            sampling_policy,
            source_fps: None,
            sample_fps: None,
            decoded_frames: 0,
            width: 0,
            height: 0,
            pixel_format: "unknown".to_owned(),
            decoder: None,
            decoder_fallback: None,
            truncated: false,
            reason: None,
            gate: None,
            zones: Zones::default(),
            wall_start_ms: None,
            signals: Signals::Inline(Vec::new()),
        }
    }
}

media::named! {
    /// Model pass that answered.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub enum Pass {
        /// The pass that is asked about everything.
        First = "first",
        /// The pass that is asked if the first is unsure.
        Second = "second",
    }
}
