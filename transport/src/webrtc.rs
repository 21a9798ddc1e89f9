//! WebRTC receiving: an SDP offer in, access units of one video stream out.
//!
//! One UDP socket and one thread serve all sessions. The parts (`ice`, `dtls`, `srtp`, `rtcp`, `session`) are
//! pure: bytes and `now` go in, replies and units come out; only `event_loop` reads a clock and a socket.
//! Promises that an address is learned only from an authenticated STUN request, that nothing a peer sends
//! grows without a bound, and that a session ends exactly once. Deliberately sends no media, opens no data
//! channel and gathers no candidates of a peer.

mod codecs;
mod command_queue;
mod dtls;
mod endpoint;
mod error;
mod event_loop;
mod fingerprint;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod ice;
#[cfg(test)]
#[path = "webrtc/tests/oracles.rs"]
mod oracles;
mod random;
mod receiver_report;
mod rtcp;
mod rtcp_feedback;
mod sdp;
mod sdp_answer;
mod sdpfrag;
mod session;
mod session_table;
mod socket;
mod srtp;
mod stats;
mod stun;
#[cfg(test)]
#[path = "webrtc/tests/publisher.rs"]
mod test_publisher;
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

/// Settings of the endpoint, and limits of each session.
#[derive(Clone, Debug)]
pub struct EndpointConfig {
    /// Address of the UDP socket; port 0 takes any. An unspecified IPv6 address serves IPv4 too.
    pub bind: SocketAddr,
    /// Addresses announced to peers as candidates; if empty, the bound address, or the source addresses of
    /// the default routes if bound to all.
    pub public_ips: Vec<IpAddr>,
    /// Most sessions at a time, including offers that have not connected.
    pub sessions_max: usize,
    /// Time limit from an offer until its peer has keys.
    pub connect_within: Duration,
    /// Silence without any authenticated datagram after which a peer counts as lost (RFC 7675 5.1).
    pub lost_after: Duration,
}

/// Answer to the client's offer.
#[derive(Clone, Debug)]
pub struct SdpAnswer {
    /// SDP of the answer, `application/sdp`.
    pub sdp: String,
    /// Entity tag of the ICE session, quotes included (RFC 9725 4.3.1).
    pub etag: String,
    /// First choice of the peer among the codecs that may arrive.
    pub codec: media::Codec,
}

/// Answer to an ICE restart.
#[derive(Clone, Debug)]
pub struct IceRestartAnswer {
    /// New credentials and candidates, `application/trickle-ice-sdpfrag` (RFC 8840).
    pub sdpfrag: String,
    /// New entity tag, quotes included.
    pub etag: String,
}

/// Receiver of a session's media and events. Called on the endpoint's thread: must not block.
pub trait SessionHandler: Send {
    /// Called at the first authenticated check: the peer has the answer, but no keys yet and maybe never. The
    /// time until the handshake ends can be used to prepare.
    fn on_first_check(&mut self) {}
    /// Takes an access unit, which is decodable after those before it.
    fn on_access_unit(&mut self, unit: ReceivedUnit);
    /// Takes an event. After any event but [`SessionEvent::Connected`] the handler is dropped.
    fn on_event(&mut self, what: SessionEvent);
}

/// Event of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionEvent {
    /// The keys are established: media can arrive.
    Connected,
    /// A connected peer has fallen silent.
    Lost,
    /// No keys were established within the time limit of an offer.
    NeverConnected,
    /// The peer ended the session by DTLS `close_notify`.
    Closed,
    /// The session cannot continue.
    Failed(SessionFailure),
}
