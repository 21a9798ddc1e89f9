//! Simulates the network for a session's media: loss and jitter. Pure: datagrams and instants go in,
//! datagrams come out. ICE, DTLS and RTCP are not affected.

use std::{
    cmp::Reverse,
    collections::BinaryHeap,
    net::SocketAddr,
    time::{Duration, Instant},
};

/// Most datagrams delayed at a time; any more are dropped.
const DELAYED_MAX: usize = 8192;

/// Departure time of a datagram, its sequence number, destination and bytes.
type Delayed = (Instant, u64, SocketAddr, Vec<u8>);

/// Simulated network; the same seed drops and delays the same packets.
#[derive(Debug)]
pub struct NetworkSim {
    loss: f64,
    jitter: Duration,
    random: fastrand::Rng,
    order: u64,
    delayed: BinaryHeap<Reverse<Delayed>>,
    /// Number of dropped datagrams.
    pub lost: u64,
}

impl NetworkSim {
    /// Creates a network that drops `loss` percent of packets and delays them by up to `jitter`.
    pub fn new(loss: f64, jitter: Duration, seed: u64) -> NetworkSim {
        let (loss, random) = (loss / 100.0, fastrand::Rng::with_seed(seed));
        NetworkSim { loss, jitter, random, order: 0, delayed: BinaryHeap::new(), lost: 0 }
    }

    /// Takes a datagram for `to`; returns it if it is to be sent at once.
    pub fn take(&mut self, to: SocketAddr, datagram: Vec<u8>, now: Instant) -> Option<Vec<u8>> {
        if !is_media(&datagram) {
            return Some(datagram);
        }
        if self.random.f64() < self.loss {
            self.lost += 1;
            return None;
        }
        if self.jitter.is_zero() {
            return Some(datagram);
        }
        if self.delayed.len() >= DELAYED_MAX {
            self.lost += 1;
            return None;
        }
        let at = now + self.jitter.mul_f64(self.random.f64());
        self.order += 1;
        self.delayed.push(Reverse((at, self.order, to, datagram)));
        None
    }

    /// Takes the next delayed datagram, if it is due.
    pub fn due(&mut self, now: Instant) -> Option<(SocketAddr, Vec<u8>)> {
        self.next_at().filter(|&at| at <= now)?;
        self.delayed.pop().map(|Reverse((_, _, to, datagram))| (to, datagram))
    }

    /// Returns the departure time of the next delayed datagram.
    pub fn next_at(&self) -> Option<Instant> {
        self.delayed.peek().map(|Reverse((at, ..))| *at)
    }
}

/// Returns true for RTP, by the first bytes that tell it from STUN, DTLS and RTCP (RFC 7983 7, RFC 5761 4).
pub fn is_media(datagram: &[u8]) -> bool {
    matches!(datagram, [128..=191, kind, ..] if !(64..96).contains(&(kind & 0x7f)))
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use super::*;

    const TO: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 9);

    #[test]
    fn only_media_is_told_apart() {
        let cases: [(&str, &[u8], bool); 6] = [
            ("RTP", &[0x80, 96], true),
            ("RTP with the marker", &[0x80, 96 | 0x80], true),
            ("a sender report", &[0x80, 200], false),
            ("STUN", &[0, 1], false),
            ("DTLS", &[22, 254], false),
            ("nothing", &[], false),
        ];
        for (name, datagram, expected) in cases {
            assert_eq!(is_media(datagram), expected, "{name}");
        }
    }

    #[test]
    fn packets_are_lost_and_delayed_as_asked() {
        let now = Instant::now();
        let mut path = NetworkSim::new(5.0, Duration::from_millis(200), 1);
        for number in 0..4000_u16 {
            let [high, low] = number.to_be_bytes();
            assert_eq!(path.take(TO, vec![0x80, 96, high, low], now), None);
        }
        assert!((150..250).contains(&path.lost), "{} of 4000", path.lost);
        let sent = 4000 - path.lost;
        let middle = now + Duration::from_millis(100);
        let early = std::iter::from_fn(|| path.due(middle)).count() as u64;
        assert!((sent * 2 / 5..sent * 3 / 5).contains(&early), "{early} of {sent}");
        assert!(path.next_at().is_some_and(|at| at > middle));
        let late = std::iter::from_fn(|| path.due(now + Duration::from_millis(200))).count();
        assert_eq!(early + late as u64, sent);
        assert_eq!(path.take(TO, vec![22, 254], now), Some(vec![22, 254]));
        let mut clean = NetworkSim::new(0.0, Duration::ZERO, 1);
        assert_eq!(clean.take(TO, vec![0x80, 96], now), Some(vec![0x80, 96]));
        let mut dead = NetworkSim::new(100.0, Duration::ZERO, 1);
        assert_eq!((dead.take(TO, vec![0x80, 96], now), dead.lost), (None, 1));
    }

    #[test]
    fn what_is_delayed_has_a_bound() {
        let mut path = NetworkSim::new(0.0, Duration::from_secs(5), 1);
        (0..=DELAYED_MAX).for_each(|_| drop(path.take(TO, vec![0x80, 96], Instant::now())));
        assert_eq!((path.delayed.len(), path.lost), (DELAYED_MAX, 1));
    }
}
