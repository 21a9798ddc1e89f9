//! Errors of an endpoint, an offer, a fragment or a session.

use media::ErrorKind;

/// Error of opening the endpoint.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the message of each says it")]
pub enum EndpointError {
    #[error("UDP socket for WebRTC: {0}")]
    Socket(#[from] std::io::Error),
    #[error("certificate for DTLS: {0}")]
    Certificate(#[from] rtc_shared::error::Error),
}

/// Reason that an offer is not answered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the message of each says it")]
pub enum OfferError {
    #[error("the offer has more than {0} bytes")]
    TooLong(usize),
    /// A line, counted from 1, violates the grammar of RFC 8866.
    #[error("line {line} of the offer: {problem}")]
    Malformed { line: usize, problem: &'static str },
    #[error("the offer has more than {0} sections")]
    TooMany(usize),
    #[error("the offer sends no video")]
    NoVideo,
    #[error("the offer has no {0}")]
    Missing(&'static str),
    #[error("the offer asks for {0}, which is not supported")]
    Unserved(&'static str),
    #[error("no servable video codec: offered {offered}; served {served}")]
    NoCodec { offered: String, served: &'static str },
    #[error("{0} sessions are open")]
    Full(usize),
    #[error("the receiver is busy")]
    Busy,
    #[error("the WebRTC endpoint has stopped")]
    Ended,
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
#[allow(missing_docs, reason = "the message of each says it")]
pub enum SdpFragError {
    #[error("the fragment has more than {0} bytes")]
    TooLong(usize),
    /// A line, counted from 1, violates RFC 8840.
    #[error("line {line} of the fragment: {problem}")]
    Malformed { line: usize, problem: &'static str },
    #[error("the fragment has more than {0} candidates")]
    TooMany(usize),
    /// An ICE restart without the entity tag of the ICE session that it ends.
    #[error("an ICE restart needs If-Match: the ETag of the session, or *")]
    TagMissing,
    /// The entity tag is of another ICE session.
    #[error("precondition failed: the condition does not match the current state")]
    TagOther,
    /// The credentials of a restart are not both new.
    #[error("the fragment is of another ICE session")]
    OtherSession,
    #[error("the fragment has no {0}")]
    Missing(&'static str),
    #[error("the session has ended")]
    Ended,
    #[error("the receiver is busy")]
    Busy,
    #[error("the system random number generator failed")]
    Random,
}

impl SdpFragError {
    /// Returns the kind of the failure.
    pub fn kind(&self) -> ErrorKind {
        match self {
            SdpFragError::TagMissing | SdpFragError::TagOther | SdpFragError::OtherSession => {
                ErrorKind::Conflict
            }
            SdpFragError::Ended => ErrorKind::NotFound,
            SdpFragError::Busy => ErrorKind::Exhausted,
            SdpFragError::Random => ErrorKind::Unavailable,
            _ => ErrorKind::InvalidInput,
        }
    }
}

/// Reason that a session has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[allow(missing_docs, reason = "the message of each says it")]
pub enum SessionFailure {
    /// The DTLS handshake was rejected by either side or did not finish.
    #[error("DTLS handshake failed")]
    Handshake,
    #[error("certificate is not the offered one")]
    Fingerprint,
    #[error("no SRTP profile in common")]
    Protection,
    #[error("the peer sent a fatal DTLS alert")]
    Alert,
    #[error("internal error in the session handler")]
    Sink,
    #[error("the WebRTC endpoint restarted and closed all sessions; reconnect")]
    PortEnded,
}
