//! Counts of a port and of a session, for metrics and for the end of a session.
//!
//! Written by the port's thread, read by anyone; no count depends on another.

use std::{
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

media::named! {
    /// Reason for dropping a datagram, or what was in it.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    #[repr(usize)]
    pub enum DropReason {
        /// No protocol of RFC 7983 starts like this.
        Unrecognised = "unrecognised",
        /// Not STUN, and from an address that no session learned.
        UnknownSource = "unknown_source",
        /// STUN that breaks RFC 8489.
        StunMalformed = "stun_malformed",
        /// A STUN request for a user that is not there.
        StunUnknownUser = "stun_unknown_user",
        /// A STUN request that is not signed with the session's password.
        StunUnauthenticated = "stun_unauthenticated",
        /// The source used up its unauthenticated requests.
        StunLimited = "stun_limited",
        /// DTLS past what a handshake needs.
        DtlsLimited = "dtls_limited",
        /// DTLS that the association does not take.
        DtlsMalformed = "dtls_malformed",
        /// SRTP or SRTCP before there are keys.
        MediaEarly = "media_early",
        /// SRTP or SRTCP past what a session may send.
        MediaLimited = "media_limited",
        /// SRTP or SRTCP that breaks its format.
        MediaMalformed = "media_malformed",
        /// SRTP or SRTCP whose tag is wrong.
        MediaUnauthenticated = "media_unauthenticated",
        /// SRTP or SRTCP that came before, or is too old to tell.
        MediaReplayed = "media_replayed",
        /// More sources of media than a session has.
        MediaSources = "media_sources",
        /// A payload type that was not negotiated.
        MediaPayload = "media_payload",
        /// A reply that the socket did not take.
        ReplyUnsent = "reply_unsent",
    }
}

/// The live counts of a port.
#[derive(Debug, Default)]
pub(super) struct EndpointCounters {
    pub(super) datagrams: AtomicU64,
    pub(super) bytes: AtomicU64,
    pub(super) replies: AtomicU64,
    pub(super) wakeups: AtomicU64,
    pub(super) sessions: AtomicUsize,
    pub(super) connected: AtomicUsize,
    refused: [AtomicU64; DropReason::ALL.len()],
}

impl EndpointCounters {
    /// One more of a reason.
    pub(super) fn refuse(&self, why: DropReason) {
        self.refused[why as usize].fetch_add(1, Relaxed);
    }

    /// Returns the present counts.
    pub(super) fn snapshot(&self) -> EndpointStats {
        let sessions = self.sessions.load(Relaxed);
        EndpointStats {
            datagrams: self.datagrams.load(Relaxed),
            bytes: self.bytes.load(Relaxed),
            replies: self.replies.load(Relaxed),
            wakeups: self.wakeups.load(Relaxed),
            sessions,
            half_open: sessions.saturating_sub(self.connected.load(Relaxed)),
            refused: std::array::from_fn(|at| self.refused[at].load(Relaxed)),
        }
    }
}

/// Counts of a port since it was opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndpointStats {
    /// Datagrams received.
    pub datagrams: u64,
    /// Bytes of them.
    pub bytes: u64,
    /// Datagrams sent.
    pub replies: u64,
    /// Times that the thread woke.
    pub wakeups: u64,
    /// Sessions open now.
    pub sessions: usize,
    /// Those of them that have no keys yet.
    pub half_open: usize,
    refused: [u64; DropReason::ALL.len()],
}

impl EndpointStats {
    /// Returns the number of drops for `why`.
    pub fn refused(&self, why: DropReason) -> u64 {
        self.refused[why as usize]
    }
}

/// State of one session that a handle and the port's thread share.
#[derive(Debug, Default)]
pub(super) struct SharedSessionStats {
    pub(super) ended: AtomicBool,
    pub(super) packets: AtomicU64,
    pub(super) bytes: AtomicU64,
    pub(super) units: AtomicU64,
    pub(super) nacks: AtomicU64,
    pub(super) keyframes_asked: AtomicU64,
    pub(super) lost: AtomicU64,
    pub(super) repaired: AtomicU64,
    pub(super) jitter_us: AtomicU64,
    packet_at: Mutex<Option<Instant>>,
}

impl SharedSessionStats {
    /// Packets of video came at `now`.
    pub(super) fn came(&self, now: Instant) {
        *self.packet_at.lock().unwrap_or_else(PoisonError::into_inner) = Some(now);
    }

    /// Returns the present counts.
    pub(super) fn snapshot(&self) -> SessionStats {
        SessionStats {
            packets: self.packets.load(Relaxed),
            bytes: self.bytes.load(Relaxed),
            units: self.units.load(Relaxed),
            nacks: self.nacks.load(Relaxed),
            keyframes_asked: self.keyframes_asked.load(Relaxed),
            lost: self.lost.load(Relaxed),
            repaired: self.repaired.load(Relaxed),
            jitter: Duration::from_micros(self.jitter_us.load(Relaxed)),
            packet_at: *self.packet_at.lock().unwrap_or_else(PoisonError::into_inner),
        }
    }
}

/// Counts of a session since its offer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SessionStats {
    /// Authenticated packets of video, retransmissions included.
    pub packets: u64,
    /// Bytes of them on the wire.
    pub bytes: u64,
    /// Access units given to the sink.
    pub units: u64,
    /// Packets asked for again.
    pub nacks: u64,
    /// Requests for a keyframe that were sent.
    pub keyframes_asked: u64,
    /// Packets of video given up: neither they nor what repeats them came in time.
    pub lost: u64,
    /// Packets of video that came once they were asked for again.
    pub repaired: u64,
    /// Interarrival jitter, as receiver reports say it (RFC 3550 6.4.1).
    pub jitter: Duration,
    /// Arrival of the last packet of video.
    pub packet_at: Option<Instant>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_has_its_own_place_and_word() {
        let counts = EndpointCounters::default();
        for (at, why) in DropReason::ALL.into_iter().enumerate() {
            assert_eq!(why as usize, at, "{why:?}");
            (0..=at).for_each(|_| counts.refuse(why));
        }
        let snapshot = counts.snapshot();
        let mut words = std::collections::HashSet::new();
        for (at, why) in DropReason::ALL.into_iter().enumerate() {
            assert_eq!(snapshot.refused(why), at as u64 + 1);
            assert!(words.insert(why.as_str()));
        }
    }
}
