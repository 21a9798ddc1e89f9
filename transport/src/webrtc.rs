//! WebRTC receiving: an SDP offer in, access units of one video stream out.
//!
//! One UDP socket and one thread serve every session. The parts are values (`ice`, `dtls`, `srtp`,
//! `rtcp`, `peer`): bytes and `now` go in, replies and units come out; only `driver` reads a clock
//! and a socket. Promises that an address is learned only from an authenticated STUN request, that
//! nothing a peer sends grows without a bound, and that a session ends exactly once.
//! Deliberately sends no media, opens no data channel and gathers no candidates of a peer.

mod answer;
mod arrivals;
mod bucket;
#[cfg(test)]
mod client;
mod codecs;
mod counts;
mod driver;
mod dtls;
mod error;
mod feedback;
mod fingerprint;
pub mod fuzz;
mod guarded;
mod ice;
mod intake;
mod interfaces;
mod outbox;
mod peer;
mod port;
mod random;
mod reception;
mod rtcp;
mod sdp;
mod sdpfrag;
mod sessions;
mod shared;
mod socket;
mod sources;
mod srtp;
mod stun;
mod timers;

use std::{
    net::{IpAddr, SocketAddr},
    time::Duration,
};

pub use counts::{PortCounts, Refused, SessionCounts};
pub use error::{Failure, FragmentError, OfferError, PortError};
pub use peer::PEER_BYTES_A_SECOND;
pub use port::{Port, Session};

use crate::rtp::Unit;

/// Settings of the port of all sessions, and limits of each session.
#[derive(Clone, Debug)]
pub struct PortSettings {
    /// Address of the UDP socket; port 0 takes any. An unspecified IPv6 address serves IPv4 too.
    pub bind: SocketAddr,
    /// Addresses that peers are told to send to; empty: the bound address, or those that the
    /// default routes leave from when it is bound to all.
    pub public_ips: Vec<IpAddr>,
    /// Sessions at a time, offers that have not connected included.
    pub sessions_max: usize,
    /// An offer whose peer has no keys after this long has come to nothing.
    pub connect_within: Duration,
    /// A peer that sent nothing authenticated for this long is lost (RFC 7675 5.1).
    pub lost_after: Duration,
}

/// Response to the client that offered.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The answer, `application/sdp`.
    pub sdp: String,
    /// Entity tag of the ICE session, quotes included (RFC 9725 4.3.1).
    pub etag: String,
    /// Codecs that may arrive, the peer's first choice first.
    pub codecs: Vec<media::Codec>,
}

/// The server's side of an ICE restart.
#[derive(Clone, Debug)]
pub struct Restarted {
    /// New credentials and candidates, `application/trickle-ice-sdpfrag` (RFC 8840).
    pub sdpfrag: String,
    /// The new entity tag, quotes included.
    pub etag: String,
}

/// Receiver of a session's media and events. Called on the port's thread: must not block.
pub trait Sink: Send {
    /// The peer has the answer: its first authentic check came. It has no keys yet, and may never
    /// have; a handshake is what there is time for to get ready.
    fn reached(&mut self) {}
    /// An access unit that can be decoded after those before it.
    fn unit(&mut self, unit: Unit);
    /// Takes an event of the session. After anything but [`Told::Connected`] the sink is dropped.
    fn told(&mut self, what: Told);
}

/// Event of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    /// The keys are there: media can arrive.
    Connected,
    /// A connected peer fell silent.
    Lost,
    /// No keys within the time an offer has.
    NeverConnected,
    /// The peer ended it, by DTLS `close_notify`.
    Closed,
    /// It cannot go on.
    Failed(Failure),
}
