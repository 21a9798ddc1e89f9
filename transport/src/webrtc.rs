//! WebRTC receiving: an SDP offer in, access units of one video stream out.
//!
//! One UDP socket and one thread serve every session. The parts are values (`ice`, `dtls`, `srtp`,
//! `rtcp`, `session`): bytes and `now` go in, replies and units come out; only `event_loop` reads a clock
//! and a socket. Promises that an address is learned only from an authenticated STUN request, that
//! nothing a peer sends grows without a bound, and that a session ends exactly once.
//! Deliberately sends no media, opens no data channel and gathers no candidates of a peer.

mod auth_failure_limiter;
mod codecs;
mod command_queue;
mod dtls;
mod endpoint;
mod error;
mod event_loop;
mod fingerprint;
pub mod fuzz;
#[cfg(test)]
#[path = "webrtc/tests/hostile.rs"]
mod hostile;
mod ice;
mod interfaces;
#[cfg(test)]
#[path = "webrtc/tests/oracles.rs"]
mod oracles;
mod panic_guard;
mod random;
mod receiver_report;
mod rtcp;
mod rtcp_feedback;
mod sdp;
mod sdp_answer;
mod sdpfrag;
mod send_buffer;
mod session;
mod session_table;
mod socket;
mod srtp;
mod stats;
mod stun;
#[cfg(test)]
mod test_publisher;
mod timers;
mod token_bucket;
mod twcc;
mod video_track;

use std::{
    net::{IpAddr, SocketAddr},
    time::Duration,
};

pub use endpoint::{SessionHandle, WebRtcEndpoint};
pub use error::{EndpointError, OfferError, SdpFragError, SessionFailure};
pub use session::PEER_BYTES_A_SECOND;
pub use stats::{DropReason, EndpointStats, SessionStats};

use crate::rtp::ReceivedUnit;

/// Settings of the port of all sessions, and limits of each session.
#[derive(Clone, Debug)]
pub struct EndpointConfig {
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
pub struct SdpAnswer {
    /// The answer, `application/sdp`.
    pub sdp: String,
    /// Entity tag of the ICE session, quotes included (RFC 9725 4.3.1).
    pub etag: String,
    /// Codecs that may arrive, the peer's first choice first.
    pub codecs: Vec<media::Codec>,
}

/// The server's side of an ICE restart.
#[derive(Clone, Debug)]
pub struct IceRestartAnswer {
    /// New credentials and candidates, `application/trickle-ice-sdpfrag` (RFC 8840).
    pub sdpfrag: String,
    /// The new entity tag, quotes included.
    pub etag: String,
}

/// Receiver of a session's media and events. Called on the port's thread: must not block.
pub trait SessionHandler: Send {
    /// The peer has the answer: its first authentic check came. It has no keys yet, and may never
    /// have; a handshake is what there is time for to get ready.
    fn on_first_check(&mut self) {}
    /// An access unit that can be decoded after those before it.
    fn on_access_unit(&mut self, unit: ReceivedUnit);
    /// Takes an event of the session. After anything but [`SessionEvent::Connected`] the sink is dropped.
    fn on_event(&mut self, what: SessionEvent);
}

/// Event of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionEvent {
    /// The keys are there: media can arrive.
    Connected,
    /// A connected peer fell silent.
    Lost,
    /// No keys within the time an offer has.
    NeverConnected,
    /// The peer ended it, by DTLS `close_notify`.
    Closed,
    /// It cannot go on.
    Failed(SessionFailure),
}
