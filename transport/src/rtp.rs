//! RTP receiver of one video source: reordering, retransmission, depacketizing and timestamps.
//!
//! Promises that every access unit is complete and decodable after those before it: no unit precedes a start,
//! and after a loss none follows until the next start. A complete unit is returned at once; only missing
//! packets cause a wait. Every buffer has a bound; what exceeds it is dropped like a lost packet. Opens no
//! socket and reads no clock: packets and instants are arguments.

mod clock;
mod depacketize;
mod frame_assembler;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod jitter_buffer;
mod jitter_estimate;
mod packet;
mod receiver;
mod sequence;
#[cfg(test)]
pub(crate) mod tests;

use std::time::Instant;

use media::{AccessUnit, WallTime};

pub(crate) use depacketize::parameter_sets;
pub(crate) use jitter_estimate::JitterEstimator;
pub use packet::RtpPacket;
pub(crate) use packet::{extension, split};
pub use receiver::{ReceiverStats, RtpReceiver};

/// Largest access unit, in bytes.
pub const UNIT_BYTES_MAX: usize = 4 << 20;

/// Access unit with its arrival times.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReceivedUnit {
    /// The coded picture. Its timestamp counts 90 kHz ticks from the first unit of the source.
    pub access_unit: AccessUnit,
    /// Arrival of the latest packet of the unit.
    pub last_packet_at: Instant,
    /// Capture time by the sender's clock (RFC 3550 6.4.1); `None` before a sender report.
    pub captured_at: Option<WallTime>,
}

/// Output of the receiver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReceiverOutput {
    /// Next picture in decode order.
    Unit(ReceivedUnit),
    /// Sequence numbers to request again (RFC 4585 6.2.1), at most 128.
    Nack(Vec<u16>),
    /// Request for a keyframe (RFC 4585 6.3.1); nothing can be decoded until it arrives.
    NeedKeyframe,
}
