//! Errors of a port, an offer, a fragment or a session.

use media::ErrorKind;

/// The port could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum EndpointError {
    /// The socket could not be made, bound or set up.
    #[error("UDP socket for WebRTC: {0}")]
    Socket(#[from] std::io::Error),
    /// The certificate of this start could not be made.
    #[error("certificate for DTLS: {0}")]
    Certificate(#[from] rtc_shared::error::Error),
    /// The system's source of random numbers failed.
    #[error("the system random number generator failed")]
    Random,
}

impl EndpointError {
    /// Returns the kind of the failure.
    pub fn kind(&self) -> ErrorKind {
        ErrorKind::Unavailable
    }
}

/// An offer that is not answered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OfferError {
    /// Longer than any browser's offer.
    #[error("the offer has more than {0} bytes")]
    TooLong(usize),
    /// A line breaks the grammar of RFC 8866; lines count from one.
    #[error("line {line} of the offer: {problem}")]
    Malformed {
        /// Number of the line.
        line: usize,
        /// Problem with it.
        problem: &'static str,
    },
    /// More than the receiver keeps of something.
    #[error("the offer has more than {max} {what}")]
    TooMany {
        /// Things that there are too many of.
        what: &'static str,
        /// Most that are taken.
        max: usize,
    },
    /// No section sends video.
    #[error("the offer sends no video")]
    NoVideo,
    /// Something that every WebRTC offer has is missing.
    #[error("the offer has no {0}")]
    Missing(&'static str),
    /// Something is there that cannot be served.
    #[error("the offer requires unsupported {0}")]
    Unserved(&'static str),
    /// No codec of the video section is served.
    #[error("no servable video codec: offered {offered}; served {served}")]
    NoCodec {
        /// Names and parameters as offered.
        offered: String,
        /// Codecs that would have been taken.
        served: &'static str,
    },
    /// As many sessions as the port takes.
    #[error("{0} sessions are open")]
    Full(usize),
    /// Too many requests wait for the port's thread.
    #[error("the receiver is busy")]
    Busy,
    /// The port is closing.
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

/// A trickle or restart fragment that is not taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SdpFragError {
    /// Longer than any client's fragment.
    #[error("the fragment has more than {0} bytes")]
    TooLong(usize),
    /// A line is not what RFC 8840 has there; lines count from one.
    #[error("line {line} of the fragment: {problem}")]
    Malformed {
        /// Number of the line.
        line: usize,
        /// Problem with it.
        problem: &'static str,
    },
    /// More candidates than one peer has.
    #[error("the fragment has more than {0} candidates")]
    TooMany(usize),
    /// Credentials that are neither the current ones nor, in a restart, new ones.
    #[error("the fragment is of another ICE session")]
    OtherSession,
    /// A restart needs a user fragment and a password.
    #[error("the fragment has no {0}")]
    Missing(&'static str),
    /// The session is over.
    #[error("the session has ended")]
    Ended,
    /// Too many requests wait for the port's thread.
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

/// Reason that a session cannot go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum SessionFailure {
    /// The DTLS handshake was refused by one side or not finished.
    #[error("DTLS handshake failed")]
    Handshake,
    /// The peer's certificate is not the one that its offer named.
    #[error("certificate is not the offered one")]
    Fingerprint,
    /// No SRTP protection profile in common.
    #[error("no SRTP profile in common")]
    Protection,
    /// The peer tore down the DTLS association with an alert.
    #[error("the peer sent a fatal DTLS alert")]
    Alert,
    /// The sink of its media panicked.
    #[error("internal error in the session handler")]
    Sink,
    /// The port ended while the session was open.
    #[error("the WebRTC endpoint restarted and closed all sessions; reconnect")]
    PortEnded,
}
