//! Counts of an endpoint and of a session, for metrics and for the end of a session.
//!
//! Written by the endpoint's thread, read by any; the counts of an endpoint are independent of each other.

use std::{
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

media::named! {
    /// Reason for dropping a datagram or its content.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    #[repr(usize)]
    #[allow(missing_docs, reason = "the text of each says it")]
    pub enum DropReason {
        /// The first byte belongs to no protocol of RFC 7983.
        Unrecognised = "unrecognised",
        /// Not STUN, and from an address that no session has learned.
        UnknownSource = "unknown_source",
        StunMalformed = "stun_malformed",
        StunUnknownUser = "stun_unknown_user",
        StunUnauthenticated = "stun_unauthenticated",
        /// STUN from a source that exceeded its limit of unauthenticated requests.
        StunLimited = "stun_limited",
        /// DTLS beyond the rate limit of a handshake.
        DtlsLimited = "dtls_limited",
        DtlsMalformed = "dtls_malformed",
        /// SRTP or SRTCP before the keys are established.
        MediaEarly = "media_early",
        /// SRTP or SRTCP beyond the rate limit of a session.
        MediaLimited = "media_limited",
        MediaMalformed = "media_malformed",
        MediaUnauthenticated = "media_unauthenticated",
        /// SRTP or SRTCP that is a replay or too old.
        MediaReplayed = "media_replayed",
        /// SRTP or SRTCP of too many sources.
        MediaSources = "media_sources",
        MediaPayload = "media_payload",
        /// Reply that the socket did not accept.
        ReplyUnsent = "reply_unsent",
    }
}

/// Live counts of an endpoint.
#[derive(Debug, Default)]
pub struct EndpointStats {
    pub(super) sessions: AtomicUsize,
    refused: [AtomicU64; DropReason::ALL.len()],
}

impl EndpointStats {
    pub(super) fn refuse(&self, why: DropReason) {
        self.refused[why as usize].fetch_add(1, Relaxed);
    }

    /// Returns the number of open sessions.
    pub fn sessions(&self) -> usize {
        self.sessions.load(Relaxed)
    }

    /// Returns the number of drops for `why` since the endpoint was opened.
    pub fn refused(&self, why: DropReason) -> u64 {
        self.refused[why as usize].load(Relaxed)
    }
}

/// State of one session, shared by its handle and the endpoint's thread.
#[derive(Debug, Default)]
pub(super) struct SharedSessionStats {
    pub(super) ended: AtomicBool,
    counts: Mutex<SessionStats>,
}

impl SharedSessionStats {
    pub(super) fn publish(&self, counts: SessionStats) {
        *self.counts.lock().unwrap_or_else(PoisonError::into_inner) = counts;
    }

    pub(super) fn snapshot(&self) -> SessionStats {
        *self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Counts of a session since its offer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SessionStats {
    /// Authenticated packets of video, retransmissions included.
    pub packets: u64,
    /// Bytes of those packets on the wire.
    pub bytes: u64,
    /// Access units passed to the handler.
    pub units: u64,
    /// Packets requested again by NACK.
    pub nacks: u64,
    /// Keyframe requests sent.
    pub keyframes_asked: u64,
    /// Video packets given up: neither the packet nor its retransmission arrived in time.
    pub lost: u64,
    /// Video packets received after a NACK.
    pub repaired: u64,
    /// Interarrival jitter as in receiver reports (RFC 3550 6.4.1).
    pub jitter: Duration,
    /// Arrival of the last video packet.
    pub packet_at: Option<Instant>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_has_its_own_word() {
        let mut words = DropReason::ALL.map(DropReason::as_str);
        words.sort_unstable();
        assert!(words.is_sorted_by(|one, next| one < next), "{words:?}");
    }
}
