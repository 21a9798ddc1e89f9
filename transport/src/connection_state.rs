//! State of a connection: its peer, the time since its last use, and whether its peer stalls a request.
//!
//! Shared by a connection's socket, its requests and the limiter. What changes are atomic numbers, so that
//! scanning thousands of connections takes no lock.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use tokio_util::sync::CancellationToken;

use crate::Peer;

#[derive(Debug)]
pub(crate) struct ConnectionState {
    pub peer: Peer,
    /// Cancelled when the connection is evicted.
    pub leave: CancellationToken,
    accepted: Instant,
    started: AtomicU64,
    in_flight: AtomicUsize,
    /// Number of request bodies being waited for, and of responses that the peer does not read.
    owed: AtomicUsize,
    /// Bytes of request bodies received.
    received: AtomicU64,
    /// Milliseconds after `accepted` at which a request last began or ended.
    changed_ms: AtomicU64,
    /// Milliseconds after `accepted` at which a part of a request or a response last moved.
    moved_ms: AtomicU64,
}

/// Eviction order of connections, the first variant first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum EvictionPriority {
    /// No request is in progress.
    Free,
    /// The peer owes bytes of a request, or does not read a response.
    Owing,
    /// The server works on a request.
    Working,
}

impl ConnectionState {
    pub(crate) fn new(peer: Peer) -> Arc<ConnectionState> {
        Arc::new(ConnectionState {
            peer,
            leave: CancellationToken::new(),
            accepted: Instant::now(),
            started: AtomicU64::new(0),
            in_flight: AtomicUsize::new(0),
            owed: AtomicUsize::new(0),
            received: AtomicU64::new(0),
            changed_ms: AtomicU64::new(0),
            moved_ms: AtomicU64::new(0),
        })
    }

    /// Counts a request until the guard is dropped; the response body holds the guard.
    pub(crate) fn begin(self: &Arc<ConnectionState>) -> RequestGuard {
        self.started.fetch_add(1, Relaxed);
        self.in_flight.fetch_add(1, Relaxed);
        self.changed_ms.store(self.now_ms(), Relaxed);
        self.moved();
        RequestGuard(Arc::clone(self))
    }

    /// Returns the number of requests begun.
    pub(crate) fn started(&self) -> u64 {
        self.started.load(Relaxed)
    }

    pub(crate) fn is_busy(&self) -> bool {
        self.in_flight.load(Relaxed) > 0
    }

    /// Adds received bytes of request bodies; returns the total.
    pub(crate) fn receive(&self, bytes: usize) -> u64 {
        self.received.fetch_add(bytes as u64, Relaxed) + bytes as u64
    }

    pub(crate) fn eviction_priority(&self) -> EvictionPriority {
        match (self.is_busy(), self.owed.load(Relaxed)) {
            (false, _) => EvictionPriority::Free,
            (true, 0) => EvictionPriority::Working,
            (true, _) => EvictionPriority::Owing,
        }
    }

    /// Returns the instant at which a request last began or ended.
    pub(crate) fn changed(&self) -> Instant {
        self.accepted + Duration::from_millis(self.changed_ms.load(Relaxed))
    }

    /// Returns the time since a request last began or ended; zero while one is in progress.
    pub(crate) fn unused(&self) -> Duration {
        if self.is_busy() {
            return Duration::ZERO;
        }
        Duration::from_millis(self.now_ms().saturating_sub(self.changed_ms.load(Relaxed)))
    }

    /// Returns the time since anything moved while the peer owes bytes; zero if it owes none.
    pub(crate) fn stalled(&self) -> Duration {
        if self.owed.load(Relaxed) == 0 {
            return Duration::ZERO;
        }
        Duration::from_millis(self.now_ms().saturating_sub(self.moved_ms.load(Relaxed)))
    }

    fn moved(&self) {
        self.moved_ms.store(self.now_ms(), Relaxed);
    }

    fn now_ms(&self) -> u64 {
        self.accepted.elapsed().as_millis() as u64
    }
}

#[derive(Debug)]
pub(crate) struct RequestGuard(pub Arc<ConnectionState>);

impl Drop for RequestGuard {
    fn drop(&mut self) {
        self.0.changed_ms.store(self.0.now_ms(), Relaxed);
        self.0.in_flight.fetch_sub(1, Relaxed);
    }
}

/// Marks a connection as stalled by its peer, which owes bytes or does not read, while set.
#[derive(Debug)]
pub(crate) struct PeerStallGuard {
    pub state: Arc<ConnectionState>,
    is_set: bool,
}

impl PeerStallGuard {
    pub(crate) fn new(state: &Arc<ConnectionState>) -> PeerStallGuard {
        PeerStallGuard { state: Arc::clone(state), is_set: false }
    }

    /// Sets whether the peer has to act next.
    pub(crate) fn set(&mut self, owes: bool) {
        if owes && !self.is_set {
            self.state.owed.fetch_add(1, Relaxed);
        } else if !owes && self.is_set {
            self.state.owed.fetch_sub(1, Relaxed);
        }
        self.is_set = owes;
        self.state.moved();
    }
}

impl Drop for PeerStallGuard {
    fn drop(&mut self) {
        self.set(false);
    }
}
