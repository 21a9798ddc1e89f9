//! Settings of live sessions.

use std::net::{IpAddr, SocketAddr};

use media::Score;

#[derive(Clone, Debug)]
pub struct LiveConfig {
    /// Address at which packets are received.
    pub udp: SocketAddr,
    /// Addresses announced to publishers; those of the interfaces when empty.
    pub public_ips: Vec<IpAddr>,
    /// STUN and TURN servers announced to publishers.
    pub ice_servers: Vec<IceServer>,
    /// Bytes that all sessions together may reserve.
    pub memory_budget: u64,
    /// Bytes that the sessions of one principal may reserve.
    pub memory_share: u64,
    /// True if sessions of different principals may share a media worker.
    pub shares_workers: bool,
    /// Model for sessions that name none; `None` selects the first backend's.
    pub model: Option<String>,
    /// Model for the second pass, asked when the first one is not confident enough.
    pub second_model: Option<String>,
    /// Lowest confidence of the first model that needs no second pass.
    pub threshold: Score,
}

#[derive(Clone, PartialEq, Eq)]
pub struct IceServer {
    /// URL such as `stun:stun.example:3478` (RFC 7064) or `turn:turn.example` (RFC 7065).
    pub url: String,
    /// User and password, for a TURN server.
    pub credential: Option<(String, String)>,
}

/// Leaves out the password, which must not appear in logs.
impl std::fmt::Debug for IceServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("IceServer").field("url", &self.url).finish_non_exhaustive()
    }
}
