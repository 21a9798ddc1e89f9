//! Events: every kind of the wire contract is a variant with its payload.
//!
//! Knows of bytes that `record` turns a payload into JSON and back.

mod declare;
mod kind;
mod payloads;

pub use declare::{HasShape, Member, MemberSink, PayloadShape};
pub use kind::EventKind;
pub use payloads::*;

use crate::signal_column;
use media::{BlobHash, RunId, Signal};

/// Reason of what ended because its server did, without a word: it was killed, or the machine was.
pub const INTERRUPTED: &str = "interrupted";

/// An event and the run it belongs to, ready to append.
#[derive(Clone, Debug, PartialEq)]
pub struct NewEvent {
    /// The run.
    pub run: RunId,
    /// The fact.
    pub event: Event,
}

/// JSON text known to be one valid value, echoed byte for byte.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JsonText(pub(crate) Box<str>);

impl JsonText {
    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

media::named! {
    /// Policy by which frames of a source are chosen.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub enum SamplingPolicy {
        /// Every source frame, or the rate the caller asked for.
        SourceFpsAdaptive = "source_fps_adaptive",
        /// The first frame at or after each multiple of the period.
        Fixed = "fixed",
    }
}

/// The per-frame signals of a decode pass, inline or in a column file.
#[derive(Clone, Debug, PartialEq)]
pub enum Signals {
    /// Small arrays travel in the event.
    Inline(Vec<Signal>),
    /// Large ones are a durable column file, see [`crate::ColumnWriter`].
    Column {
        /// SHA-256 of the column file.
        hash: BlobHash,
        /// Number of signals in it.
        count: u64,
    },
}

impl Signals {
    /// Number of signals.
    pub fn count(&self) -> u64 {
        match self {
            Signals::Inline(signals) => signals.len() as u64,
            Signals::Column { count, .. } => *count,
        }
    }

    /// Bytes of their column file; 0 where they are in the event.
    pub fn column_bytes(&self) -> u64 {
        match self {
            Signals::Inline(_) => 0,
            Signals::Column { count, .. } => signal_column::file_bytes(*count).unwrap_or_default(),
        }
    }
}

media::named! {
    /// Pass that answered, of the two models'.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub enum Pass {
        /// The one that is asked of everything.
        First = "first",
        /// The one that is asked where the first is not sure.
        Second = "second",
    }
}
