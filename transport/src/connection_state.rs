//! Activity of a connection: time since it was last of use, and bytes that its peer owes it.
//!
//! Shared by a connection's socket, its requests and the limiter; every field is a number, so that
//! looking at thousands of connections takes no lock.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

/// Counters of the activity of one connection.
#[derive(Debug)]
pub(crate) struct ConnectionActivity {
    accepted: Instant,
    started: AtomicU64,
    in_flight: AtomicUsize,
    /// Requests whose bodies are being waited for, and answers that the peer does not take.
    owed: AtomicUsize,
    /// Bytes of the bodies of requests.
    received: AtomicU64,
    /// Milliseconds after `accepted` at which a request last began or ended.
    changed_ms: AtomicU64,
    /// Milliseconds after `accepted` at which a part of a request or an answer last moved.
    moved_ms: AtomicU64,
}

/// Order in which connections are closed to make room, the first first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum EvictionPriority {
    /// No request is being answered.
    Free,
    /// The peer owes bytes of a request, or does not take those of an answer.
    Owing,
    /// The server is at work for it.
    Working,
}

impl ConnectionActivity {
    pub(crate) fn new() -> Arc<ConnectionActivity> {
        Arc::new(ConnectionActivity {
            accepted: Instant::now(),
            started: AtomicU64::new(0),
            in_flight: AtomicUsize::new(0),
            owed: AtomicUsize::new(0),
            received: AtomicU64::new(0),
            changed_ms: AtomicU64::new(0),
            moved_ms: AtomicU64::new(0),
        })
    }

    /// Counts a request until the guard is dropped, which its response body holds.
    pub(crate) fn begin(self: &Arc<ConnectionActivity>) -> RequestGuard {
        self.started.fetch_add(1, Relaxed);
        self.in_flight.fetch_add(1, Relaxed);
        self.changed_ms.store(self.now_ms(), Relaxed);
        self.moved();
        RequestGuard(Arc::clone(self))
    }

    /// Requests begun so far.
    pub(crate) fn started(&self) -> u64 {
        self.started.load(Relaxed)
    }

    /// A request is being answered.
    pub(crate) fn is_busy(&self) -> bool {
        self.in_flight.load(Relaxed) > 0
    }

    /// Counts bytes of bodies that came; gives all of them so far.
    pub(crate) fn receive(&self, bytes: usize) -> u64 {
        self.received.fetch_add(bytes as u64, Relaxed) + bytes as u64
    }

    /// Returns its use, and since when: milliseconds after `epoch`.
    pub(crate) fn state(&self, epoch: Instant) -> (EvictionPriority, u64) {
        let accepted_ms = self.accepted.saturating_duration_since(epoch).as_millis() as u64;
        let used = match (self.is_busy(), self.owed.load(Relaxed)) {
            (false, _) => EvictionPriority::Free,
            (true, 0) => EvictionPriority::Working,
            (true, _) => EvictionPriority::Owing,
        };
        (used, accepted_ms + self.changed_ms.load(Relaxed))
    }

    /// Returns the instant at which a request last began or ended.
    pub(crate) fn changed(&self) -> Instant {
        self.accepted + Duration::from_millis(self.changed_ms.load(Relaxed))
    }

    /// Returns the time since a request began, ended or was answered; zero while one is.
    pub(crate) fn unused(&self) -> Duration {
        if self.is_busy() {
            return Duration::ZERO;
        }
        Duration::from_millis(self.now_ms().saturating_sub(self.changed_ms.load(Relaxed)))
    }

    /// Returns the time since anything moved although the peer owes; zero where it owes nothing.
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

/// One request being answered.
#[derive(Debug)]
pub(crate) struct RequestGuard(Arc<ConnectionActivity>);

impl RequestGuard {
    /// The connection's activity.
    pub(crate) fn activity(&self) -> &Arc<ConnectionActivity> {
        &self.0
    }
}

impl Drop for RequestGuard {
    fn drop(&mut self) {
        self.0.changed_ms.store(self.0.now_ms(), Relaxed);
        self.0.in_flight.fetch_sub(1, Relaxed);
    }
}

/// Bytes that the peer owes, or owes to take, while set.
#[derive(Debug)]
pub(crate) struct PeerStallGuard {
    activity: Arc<ConnectionActivity>,
    is_set: bool,
}

impl PeerStallGuard {
    pub(crate) fn new(activity: &Arc<ConnectionActivity>) -> PeerStallGuard {
        PeerStallGuard { activity: Arc::clone(activity), is_set: false }
    }

    /// It is the peer's turn, or no longer.
    pub(crate) fn set(&mut self, owes: bool) {
        if owes && !self.is_set {
            self.activity.owed.fetch_add(1, Relaxed);
        } else if !owes && self.is_set {
            self.activity.owed.fetch_sub(1, Relaxed);
        }
        self.is_set = owes;
        self.activity.moved();
    }
}

impl Drop for PeerStallGuard {
    fn drop(&mut self) {
        self.set(false);
    }
}
