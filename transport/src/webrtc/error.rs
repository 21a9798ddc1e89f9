//! Errors of an endpoint, an offer, a fragment or a session.

use media::ErrorKind;

/// Error of opening the endpoint.
#[derive(Debug, thiserror::Error)]
pub enum EndpointError {
    /// The socket could not be created, bound or configured.
    #[error("UDP socket for WebRTC: {0}")]
    Socket(#[from] std::io::Error),
    /// The certificate could not be generated.
    #[error("certificate for DTLS: {0}")]
    Certificate(#[from] rtc_shared::error::Error),
}

/// Reason that an offer is not answered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the name of a field says it")]
pub enum OfferError {
    /// The offer is longer than any browser's.
    #[error("the offer has more than {0} bytes")]
    TooLong(usize),
    /// A line, counted from 1, violates the grammar of RFC 8866.
    #[error("line {line} of the offer: {problem}")]
    Malformed { line: usize, problem: &'static str },
    /// The offer has more sections than any publisher's.
    #[error("the offer has more than {0} sections")]
    TooMany(usize),
    /// No section sends video.
    #[error("the offer sends no video")]
    NoVideo,
    /// A mandatory part of a WebRTC offer is missing.
    #[error("the offer has no {0}")]
    Missing(&'static str),
    /// A part of the offer is not supported.
    #[error("the offer asks for {0}, which is not supported")]
    Unserved(&'static str),
    /// No codec of the video section is supported.
    #[error("no servable video codec: offered {offered}; served {served}")]
    NoCodec { offered: String, served: &'static str },
    /// The limit of open sessions is reached.
    #[error("{0} sessions are open")]
    Full(usize),
    /// Too many commands wait for the endpoint's thread.
    #[error("the receiver is busy")]
    Busy,
    /// The endpoint has ended.
    #[error("the WebRTC endpoint has stopped")]
    Ended,
    /// The system's source of random numbers failed.
    #[error("the system random number generator failed")]
    Random,
}

impl OfferError {
    /// Returns the kind of the failure.
    pub fn kind(&self) -> ErrorKind {
        match self {
            OfferError::NoCodec { .. } => ErrorKind::Unsupported,
            OfferError::Full(_) | OfferError::Busy => ErrorKind::Exhausted,
            OfferError::Ended | OfferError::Random => ErrorKind::Unavailable,
            _ => ErrorKind::InvalidInput,
        }
    }
}

/// Reason that a trickle or restart fragment is not accepted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the name of a field says it")]
pub enum SdpFragError {
    /// The fragment is longer than any client's.
    #[error("the fragment has more than {0} bytes")]
    TooLong(usize),
    /// A line, counted from 1, violates RFC 8840.
    #[error("line {line} of the fragment: {problem}")]
    Malformed { line: usize, problem: &'static str },
    /// The fragment has more candidates than any peer.
    #[error("the fragment has more than {0} candidates")]
    TooMany(usize),
    /// The credentials are neither the current ones nor, in a restart, both new.
    #[error("the fragment is of another ICE session")]
    OtherSession,
    /// A restart lacks the user fragment or the password.
    #[error("the fragment has no {0}")]
    Missing(&'static str),
    /// The session has ended.
    #[error("the session has ended")]
    Ended,
    /// Too many commands wait for the endpoint's thread.
    #[error("the receiver is busy")]
    Busy,
    /// The system's source of random numbers failed.
    #[error("the system random number generator failed")]
    Random,
}

impl SdpFragError {
    /// Returns the kind of the failure.
    pub fn kind(&self) -> ErrorKind {
        match self {
            SdpFragError::OtherSession => ErrorKind::Conflict,
            SdpFragError::Ended => ErrorKind::NotFound,
            SdpFragError::Busy => ErrorKind::Exhausted,
            SdpFragError::Random => ErrorKind::Unavailable,
            _ => ErrorKind::InvalidInput,
        }
    }
}

/// Reason that a session has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum SessionFailure {
    /// The DTLS handshake was rejected by either side or did not finish.
    #[error("DTLS handshake failed")]
    Handshake,
    /// The peer's certificate does not match its offer.
    #[error("certificate is not the offered one")]
    Fingerprint,
    /// The peers have no SRTP protection profile in common.
    #[error("no SRTP profile in common")]
    Protection,
    /// The peer ended the DTLS association with a fatal alert.
    #[error("the peer sent a fatal DTLS alert")]
    Alert,
    /// The session's handler panicked.
    #[error("internal error in the session handler")]
    Sink,
    /// The endpoint ended while the session was open.
    #[error("the WebRTC endpoint restarted and closed all sessions; reconnect")]
    PortEnded,
}
