//! RTP packets of one video source to access units: reordering, repair, depacketizing, times.
//!
//! Promises that a unit is whole and decodable from what was given out before it: nothing comes
//! before a start, and after a loss nothing until the next one. A unit that is complete is given
//! out at once; only what is missing is waited for. Every buffer has a bound, and what happens at
//! it is counted. Opens no socket and reads no clock: packets and instants come in.

mod clock;
mod depacketize;
mod frame_assembler;
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

pub use depacketize::parameter_sets;
pub(crate) use jitter_estimate::JitterEstimator;
pub use packet::{RtpPacket, RtpParseError, extension};
pub use receiver::{ReceiverSettings, ReceiverStats, RtpReceiver};

/// Most bytes of one access unit.
pub const UNIT_BYTES_MAX: usize = 4 << 20;

/// An access unit, and when it was whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReceivedUnit {
    /// The coded picture. Its time counts 90 kHz ticks from the first unit of the source.
    pub access_unit: AccessUnit,
    /// Arrival of the packet of the unit that came last.
    pub last_packet_at: Instant,
    /// Instant of capture by the sender's clock (RFC 3550 6.4.1).
    pub captured_at: Option<WallTime>,
}

/// Output of the receiver to its owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReceiverOutput {
    /// The next picture in decode order.
    Unit(ReceivedUnit),
    /// Packets to ask for again (RFC 4585 6.2.1), by sequence number, at most 128.
    Nack(Vec<u16>),
    /// Nothing can be decoded until the sender codes a picture on its own (RFC 4585 6.3.1).
    NeedKeyframe,
}
