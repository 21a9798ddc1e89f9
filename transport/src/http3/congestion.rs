//! Congestion control for paths that lose packets without congestion.
//!
//! CUBIC (RFC 9438) that ignores losses within noise: up to a twentieth of the bytes of the last two round
//! trips, plus one standard deviation. ECN marks and persistent congestion (RFC 9002 7.6) always count.
//! Measures no bandwidth and paces nothing. The price: next to CUBIC on a congested path it takes more than
//! its share, as every loss-tolerant control does.

use std::{any::Any, sync::Arc, time::Instant};

use quinn::congestion::{Controller, ControllerFactory, ControllerMetrics, Cubic, CubicConfig};
use quinn_proto::RttEstimator;

/// One byte in this many may be lost as noise; links in real use lose one in fifty.
const ONE_IN: u64 = 20;
/// Packets that may be lost as noise however few were sent: in the first round trip, and in others.
const LEAST_FIRST: u64 = 3;
const LEAST: u64 = 2;

/// Creates a controller for each path.
#[derive(Debug, Default)]
pub(super) struct LossTolerantCubicConfig(Arc<CubicConfig>);

impl ControllerFactory for LossTolerantCubicConfig {
    fn build(self: Arc<Self>, now: Instant, mtu: u16) -> Box<dyn Controller> {
        let cubic = Cubic::new(Arc::clone(&self.0), now, mtu);
        Box::new(Forgiving { cubic, noise: Noise::new(mtu) })
    }
}

#[derive(Clone, Debug)]
struct Forgiving {
    cubic: Cubic,
    noise: Noise,
}

impl Controller for Forgiving {
    fn on_sent(&mut self, now: Instant, bytes: u64, last_packet_number: u64) {
        self.noise.sent = last_packet_number;
        self.cubic.on_sent(now, bytes, last_packet_number);
    }

    fn on_ack(
        &mut self,
        now: Instant,
        sent: Instant,
        bytes: u64,
        app_limited: bool,
        rtt: &RttEstimator,
    ) {
        self.noise.rounds[1].acked += bytes;
        self.cubic.on_ack(now, sent, bytes, app_limited, rtt);
    }

    fn on_end_acks(&mut self, now: Instant, in_flight: u64, app_limited: bool, last: Option<u64>) {
        self.noise.acknowledged(last);
        self.cubic.on_end_acks(now, in_flight, app_limited, last);
    }

    fn on_congestion_event(&mut self, now: Instant, sent: Instant, persists: bool, lost: u64) {
        // An ECN mark reports no lost bytes.
        let is_noise = lost > 0 && self.noise.covers(lost);
        if persists || !is_noise {
            self.cubic.on_congestion_event(now, sent, persists, lost);
        }
    }

    fn on_mtu_update(&mut self, mtu: u16) {
        self.noise.mtu = u64::from(mtu);
        self.cubic.on_mtu_update(mtu);
    }

    fn window(&self) -> u64 {
        self.cubic.window()
    }

    fn metrics(&self) -> ControllerMetrics {
        self.cubic.metrics()
    }

    fn clone_box(&self) -> Box<dyn Controller> {
        Box::new(self.clone())
    }

    fn initial_window(&self) -> u64 {
        self.cubic.initial_window()
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

/// Bytes of one round trip.
#[derive(Clone, Copy, Debug, Default)]
struct Round {
    acked: u64,
    lost: u64,
}

/// Share of lost bytes over the previous and the current round trip.
#[derive(Clone, Debug)]
struct Noise {
    rounds: [Round; 2],
    /// Number of the packet sent last.
    sent: u64,
    /// Number of the packet whose acknowledgement ends this round trip.
    ends_at: u64,
    /// True until the first round trip has ended.
    is_first: bool,
    mtu: u64,
}

impl Noise {
    fn new(mtu: u16) -> Noise {
        Noise {
            rounds: [Round::default(); 2],
            sent: 0,
            ends_at: 0,
            is_first: true,
            mtu: u64::from(mtu),
        }
    }

    /// Records that packets up to `last` are acknowledged; starts a new round trip when due.
    fn acknowledged(&mut self, last: Option<u64>) {
        if last.is_some_and(|last| last >= self.ends_at) {
            self.rounds = [self.rounds[1], Round::default()];
            self.is_first = self.ends_at == 0;
            self.ends_at = self.sent + 1;
        }
    }

    /// Adds `lost` bytes and returns true if all losses are still within noise.
    fn covers(&mut self, lost: u64) -> bool {
        self.rounds[1].lost += lost;
        let [before, now] = self.rounds;
        let (lost, acked) = (before.lost + now.lost, before.acked + now.acked);
        let expected = (lost + acked) / ONE_IN;
        // Independent losses are Poisson-distributed, so the variance equals the mean. Without the deviation,
        // chance would halve a small window in one of thirty round trips and end its slow start.
        let deviation = (expected * self.mtu).isqrt();
        let least = if self.is_first { LEAST_FIRST } else { LEAST };
        lost <= (expected + deviation).max(least * self.mtu)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MTU: u16 = 1200;

    /// Returns how often losing every `each`th packet counts as congestion in `rounds` of 100 packets.
    fn congestion(rounds: u64, each: u64) -> u64 {
        let (mut noise, mut events) = (Noise::new(MTU), 0);
        for number in 1..=rounds * 100 {
            noise.sent = number;
            if number % each == 0 {
                events += u64::from(!noise.covers(u64::from(MTU)));
            } else {
                noise.rounds[1].acked += u64::from(MTU);
            }
            // Acknowledged one round trip later.
            noise.acknowledged(number.checked_sub(100));
        }
        events
    }

    #[test]
    fn little_loss_is_noise_and_much_is_congestion() {
        for (each, is_noise) in [(100, true), (50, true), (25, true), (15, false), (4, false)] {
            let events = congestion(20, each);
            assert_eq!(events == 0, is_noise, "one in {each}: {events}");
        }
    }

    /// Returns how many of 4,000 round trips of `window` packets count as congestion, with 2 % random loss.
    fn by_chance(window: u64) -> usize {
        let (mut noise, mut state) = (Noise::new(MTU), 7_u64);
        let mut round = |at: u64| {
            let mut counts = false;
            for number in at * window..(at + 1) * window {
                noise.sent = number;
                // Constants of Knuth's MMIX generator.
                state = state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1_442_695_040_888_963_407);
                match (state >> 33) % 50 {
                    0 => counts |= !noise.covers(u64::from(MTU)),
                    _ => noise.rounds[1].acked += u64::from(MTU),
                }
                noise.acknowledged(number.checked_sub(window));
            }
            counts
        };
        (0..4000).filter(|at| round(*at)).count()
    }

    #[test]
    fn chance_alone_is_seldom_congestion() {
        for (window, most) in [(10, 60), (20, 120), (30, 120), (60, 60), (200, 8)] {
            let counted = by_chance(window);
            assert!(counted <= most, "{window} packets: {counted} of 4000");
        }
    }

    #[test]
    fn the_first_packets_of_a_connection_may_be_lost() {
        let mut noise = Noise::new(MTU);
        assert!(noise.covers(3 * u64::from(MTU)), "three");
        assert!(!noise.covers(u64::from(MTU)), "a fourth");
    }

    #[test]
    fn old_loss_is_forgotten() {
        let mut noise = Noise::new(MTU);
        assert!(!noise.covers(10 * u64::from(MTU)));
        for last in 0..3 {
            noise.sent = last;
            noise.acknowledged(Some(last));
        }
        assert!(noise.covers(u64::from(MTU)));
    }

    #[test]
    fn marks_and_persistent_congestion_always_count() {
        let now = Instant::now();
        let make = || Arc::new(LossTolerantCubicConfig::default()).build(now, MTU);
        let rows = [(false, 1, false), (false, 0, true), (true, 1, true), (false, 1 << 20, true)];
        for (persists, lost, counts) in rows {
            let mut controller = make();
            let before = controller.window();
            controller.on_congestion_event(now, now, persists, lost);
            assert_eq!(controller.window() < before, counts, "{persists} {lost}");
        }
    }
}
