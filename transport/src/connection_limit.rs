//! Connection limiter: caps open connections in total and per address, and evicts idle or stalled
//! ones when full.
//!
//! Promises that a server full of connections that wait for their peers admits new ones: the longest-unused
//! without a request are evicted first, then those whose peers owe bytes. A connection with a request in
//! progress is never evicted; if there is no other, the new connection is refused.

use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Instant,
};

use tokio::sync::Semaphore;

use crate::connection_state::{ConnectionState, EvictionPriority};

/// Limits of the number of open connections.
#[derive(Clone, Copy, Debug)]
pub struct ConnectionLimits {
    /// Most connections in total.
    pub total: usize,
    /// Most connections of one address, or of one /64 in IPv6.
    pub per_address: usize,
}

/// Source address of a request, stored in its extensions; the /64 in IPv6.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Peer(pub IpAddr);

/// Limiter of open connections, shared by all listeners of a server.
#[derive(Debug)]
pub struct ConnectionLimiter {
    limits: ConnectionLimits,
    members: Mutex<Members>,
    /// Permits for connections that are being sent a refusal.
    pub(crate) refusing: Arc<Semaphore>,
}

/// Most connections that are sent a refusal at once; further ones are closed silently.
const REFUSING_MAX: usize = 64;

#[derive(Debug, Default)]
struct Members {
    /// Open connections by their numbers, counted from 1.
    open: HashMap<u64, Arc<ConnectionState>>,
    by_address: HashMap<IpAddr, usize>,
    accepted: u64,
    evicted: u64,
    refused: u64,
}

/// Permit of one connection, released on drop.
#[derive(Debug)]
pub(crate) struct ConnectionPermit {
    limiter: Arc<ConnectionLimiter>,
    number: u64,
    pub state: Arc<ConnectionState>,
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        self.limiter.members().remove(self.number);
    }
}

impl ConnectionLimiter {
    /// Creates a limiter with no connections.
    pub fn new(limits: ConnectionLimits) -> Arc<ConnectionLimiter> {
        let refusing = Arc::new(Semaphore::new(REFUSING_MAX));
        Arc::new(ConnectionLimiter { limits, members: Mutex::default(), refusing })
    }

    /// Returns the limits of the number of connections.
    pub fn limits(&self) -> ConnectionLimits {
        self.limits
    }

    /// Returns the number of open connections.
    pub fn open(&self) -> usize {
        self.members().open.len()
    }

    /// Returns the number of connections admitted.
    pub fn accepted(&self) -> u64 {
        self.members().accepted
    }

    /// Returns the number of connections evicted to make room.
    pub fn evicted_total(&self) -> u64 {
        self.members().evicted
    }

    /// Returns the number of connections refused.
    pub fn refused(&self) -> u64 {
        self.members().refused
    }

    /// Tries to admit a connection from `address`, evicting the least useful one if a limit is
    /// reached. Returns `None` if no connection can be evicted.
    pub(crate) fn try_acquire(
        self: &Arc<ConnectionLimiter>,
        address: IpAddr,
    ) -> Option<ConnectionPermit> {
        let address = network(address);
        let mut members = self.members();
        let of_address = members.by_address.get(&address).copied().unwrap_or_default();
        let fits = (of_address < self.limits.per_address || members.make_room(Some(address)))
            && (members.open.len() < self.limits.total || members.make_room(None));
        if !fits {
            members.refused += 1;
            return None;
        }
        let state = ConnectionState::new(Peer(address));
        let number = members.add(Arc::clone(&state));
        Some(ConnectionPermit { limiter: Arc::clone(self), number, state })
    }

    /// Evicts the least useful connections, for example when the system is out of descriptors.
    pub(crate) fn evict(&self) -> bool {
        self.members().make_room(None)
    }

    fn members(&self) -> MutexGuard<'_, Members> {
        // No holder of the lock leaves the tables half changed.
        self.members.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Members {
    /// Evicts several connections at once, as scanning all of them for each newcomer would be too slow.
    fn make_room(&mut self, address: Option<IpAddr>) -> bool {
        let mut waiting: Vec<(EvictionPriority, Instant, u64)> = self
            .open
            .iter()
            .filter(|(_, state)| address.is_none_or(|of| state.peer.0 == of))
            .map(|(number, state)| (state.eviction_priority(), state.changed(), *number))
            .filter(|(priority, ..)| *priority != EvictionPriority::Working)
            .collect();
        let count = (waiting.len() / 64).max(1);
        if waiting.len() > count {
            waiting.select_nth_unstable(count);
        }
        let leaving = waiting.iter().take(count).filter_map(|(.., number)| self.remove(*number));
        let left = leaving.map(|state| state.leave.cancel()).count();
        self.evicted += left as u64;
        left > 0
    }

    fn add(&mut self, state: Arc<ConnectionState>) -> u64 {
        *self.by_address.entry(state.peer.0).or_default() += 1;
        self.accepted += 1;
        self.open.insert(self.accepted, state);
        self.accepted
    }

    fn remove(&mut self, number: u64) -> Option<Arc<ConnectionState>> {
        let state = self.open.remove(&number)?;
        if let Some(count) = self.by_address.get_mut(&state.peer.0) {
            *count -= 1;
            if *count == 0 {
                self.by_address.remove(&state.peer.0);
            }
        }
        Some(state)
    }
}

/// Returns the network that an address counts for: an IPv6 host can use any address of its /64.
pub(crate) fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) => IpAddr::V6((u128::from(v6) & !u128::from(u64::MAX)).into()),
        v4 => v4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limiter(total: usize, per_address: usize) -> Arc<ConnectionLimiter> {
        ConnectionLimiter::new(ConnectionLimits { total, per_address })
    }

    fn host(last: u8) -> IpAddr {
        [10, 0, 0, last].into()
    }

    #[test]
    fn the_unused_give_way_before_the_owing_and_the_working_never() {
        let limiter = limiter(3, 3);
        let mut places: Vec<ConnectionPermit> =
            (0..3).map(|_| limiter.try_acquire(host(1)).expect("room")).collect();
        let working = places[0].state.begin();
        let owing = places[1].state.begin();
        let mut debt = crate::connection_state::PeerStallGuard::new(&owing.0);
        debt.set(true);
        let left = |places: &[ConnectionPermit]| -> Vec<bool> {
            places.iter().map(|place| place.state.leave.is_cancelled()).collect()
        };
        places.push(limiter.try_acquire(host(2)).expect("the unused one gives way"));
        assert_eq!(left(&places), [false, false, true, false]);
        let newest = places[3].state.begin();
        places.push(limiter.try_acquire(host(3)).expect("the owing one gives way"));
        assert_eq!(left(&places), [false, true, true, false, false]);
        let last = places[4].state.begin();
        assert!(limiter.try_acquire(host(4)).is_none(), "the server works for all of them");
        assert_eq!(
            (limiter.open(), limiter.accepted(), limiter.evicted_total(), limiter.refused()),
            (3, 5, 2, 1)
        );
        drop((working, newest, last));
        assert!(limiter.try_acquire(host(4)).is_some());
        drop((places, debt, owing));
        assert_eq!(limiter.open(), 0);
    }

    #[test]
    fn the_longest_unused_gives_way_and_of_one_address_only_its_own() {
        let limiter = limiter(64, 2);
        let other = limiter.try_acquire(host(1)).expect("room");
        let first = limiter.try_acquire(host(2)).expect("room");
        std::thread::sleep(std::time::Duration::from_millis(5));
        let second = limiter.try_acquire(host(2)).expect("room");
        let third = limiter.try_acquire(host(2)).expect("its own gives way");
        let left = [&other, &first, &second, &third].map(|place| place.state.leave.is_cancelled());
        assert_eq!(left, [false, true, false, false]);
    }

    #[test]
    fn a_host_of_ipv6_is_its_network() {
        let of = |text: &str| network(text.parse().expect("an address"));
        assert_eq!(of("2001:db8::1"), of("2001:db8::ffff:1:2:3"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
        assert_eq!(of("::ffff:10.0.0.1"), host(1));
    }
}
