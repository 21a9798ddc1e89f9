//! The vocabulary of Sightline: identifiers, exact time, frames, signals, thresholds and markers.
//!
//! Shared by every other crate. Promises that every value of these types is valid.
//! Does no I/O, knows no wire format, reads no clock.
#![deny(unsafe_code)]

mod access_unit;
mod activity;
mod bits;
mod checked;
mod codec;
mod error;
mod frame;
mod gate_config;
mod geometry;
mod id;
mod marker;
mod named;
mod pixels;
mod score;
mod signal;
mod surface;
mod text;
mod time;

pub use access_unit::AccessUnit;
pub use activity::{Activity, CellBox, Cells, Zone, Zones};
pub use bits::{Bits, Obu, leb128, to_leb128};
pub use codec::Codec;
pub use error::{ErrorKind, ParseError};
pub use frame::{DeviceFrameBuffer, DeviceMemoryLost, Frame, HostFrameBuffer, Pixels};
pub use gate_config::GateConfig;
pub use geometry::{Dimensions, Rotation};
pub use id::{
    AnalysisId, BlobHash, FeedbackId, JobId, LABEL_BYTES, Label, MarkerId, NodeTag, RequestId,
    RunId, Seq, SessionId, StreamId, WebhookId,
};
pub use marker::{EventType, Marker, MarkerOrigin, MarkerStatus};
pub use pixels::{PixelLayout, Plane, SampleFormat, SampleRange, Subsampling};
pub use score::Score;
pub use signal::Signal;
pub use surface::DeviceSurface;
pub use text::{escaped, has_hidden, is_hidden};
pub use time::{FrameRate, Timebase, Timestamp, WallTime};
