//! How unevenly packets come, as reports tell it (RFC 3550 6.4.1, A.8), and how long one is waited for
//! on such a path. Pure.

use std::time::{Duration, Instant};

/// Ticks a second of the media clock of video.
const CLOCK: u64 = 90_000;
/// Mean deviations that are waited for: delays that are spread evenly deviate from each other by a
/// third of the longest on average.
const DEVIATIONS: u32 = 3;
/// Least wait: what a path without jitter may hold a packet back at once.
pub(super) const HOLD_MIN: Duration = Duration::from_millis(100);
/// Longest wait: as long as for a packet that is missing.
pub(super) const HOLD_MAX: Duration = Duration::from_millis(500);
/// A wait is shortened once so long nothing near it was needed.
const CALM: Duration = Duration::from_secs(2);

/// The mean deviation of transit times.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Interarrival {
    /// A deviation beyond is a pause or another clock, which would drown every later one.
    deviation_max: Duration,
    origin: Instant,
    /// Transit time of the last packet in clock ticks, by an origin of our own.
    transit: u32,
    /// Sixteenths of a tick.
    jitter: u32,
}

impl Interarrival {
    /// After the first packet of a source.
    pub(crate) fn new(timestamp: u32, deviation_max: Duration, now: Instant) -> Interarrival {
        let transit = 0u32.wrapping_sub(timestamp);
        Interarrival { deviation_max, origin: now, transit, jitter: 0 }
    }

    /// One more packet, in the order of arrival.
    pub(crate) fn packet(&mut self, timestamp: u32, now: Instant) {
        let since = now.saturating_duration_since(self.origin);
        let arrival = (since.as_micros() as u64 * CLOCK / 1_000_000) as u32;
        let transit = arrival.wrapping_sub(timestamp);
        let deviation = (transit.wrapping_sub(self.transit) as i32).unsigned_abs();
        self.transit = transit;
        if u128::from(deviation) * 1_000 < self.deviation_max.as_millis() * u128::from(CLOCK) {
            self.jitter = self.jitter + deviation - ((self.jitter + 8) >> 4);
        }
    }

    /// In clock ticks.
    pub(crate) fn ticks(&self) -> u32 {
        self.jitter >> 4
    }
}

/// How long a packet is waited for that may only be late: lengthened at once, shortened slowly.
#[derive(Debug)]
pub(super) struct Hold {
    arrivals: Option<Interarrival>,
    hold: Duration,
    /// When so long a wait was last needed.
    needed_at: Option<Instant>,
}

impl Default for Hold {
    fn default() -> Hold {
        Hold { arrivals: None, hold: HOLD_MIN, needed_at: None }
    }
}

impl Hold {
    /// What is waited now.
    pub(super) fn get(&self) -> Duration {
        self.hold
    }

    /// The sender's clock begins anew.
    pub(super) fn restart(&mut self) {
        self.arrivals = None;
    }

    /// One more packet that was not sent again.
    pub(super) fn packet(&mut self, timestamp: u32, now: Instant) {
        let Some(arrivals) = &mut self.arrivals else {
            self.arrivals = Some(Interarrival::new(timestamp, HOLD_MAX, now));
            return;
        };
        arrivals.packet(timestamp, now);
        let deviations = u64::from(arrivals.ticks()) * u64::from(DEVIATIONS);
        let wanted = Duration::from_micros(deviations * 1_000_000 / CLOCK);
        let wanted = wanted.clamp(HOLD_MIN, HOLD_MAX);
        let is_near = 4 * wanted > 3 * self.hold;
        let needed_at = *self.needed_at.get_or_insert(now);
        if is_near || now.saturating_duration_since(needed_at) >= CALM {
            let shortens = !is_near;
            self.hold = if shortens { wanted } else { self.hold.max(wanted) };
            self.needed_at = Some(now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The waits of a path on which packet `n` of 5 ms distance comes `delay(n)` ms late.
    fn waits(packets: u32, delay: impl Fn(u32) -> u32) -> Vec<u128> {
        let start = Instant::now();
        let mut hold = Hold::default();
        let mut arrivals: Vec<(u32, u32)> =
            (0..packets).map(|packet| (5 * packet + delay(packet), 450 * packet)).collect();
        arrivals.sort_unstable();
        let waits = arrivals.into_iter().map(|(ms, timestamp)| {
            hold.packet(timestamp, start + Duration::from_millis(ms.into()));
            hold.get().as_millis()
        });
        waits.collect()
    }

    /// Spread evenly over 0 to `most`, in no order.
    fn spread(packet: u32, most: u32) -> u32 {
        // The finaliser of splitmix64.
        let mut mixed = u64::from(packet).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ mixed >> 31) % u64::from(most + 1)) as u32
    }

    #[test]
    fn a_wait_follows_the_jitter_within_its_bounds() {
        let last = |most: u32| *waits(2000, |packet| spread(packet, most)).last().expect("some");
        assert_eq!(last(0), 100);
        assert_eq!(last(30), 100, "what a clean path waits is enough");
        let at_200 = last(200);
        assert!((200..=400).contains(&at_200), "{at_200}");
        assert_eq!(last(2000), 500);
        let soon = waits(80, |packet| spread(packet, 200))[79];
        assert!(soon >= 200, "after eighty packets: {soon}");
    }

    #[test]
    fn a_wait_is_shortened_once_the_path_is_calm() {
        // A second of jitter in packets 400 to 600, then none.
        let jittery =
            |packet: u32| if (400..600).contains(&packet) { spread(packet, 200) } else { 0 };
        let waits = waits(2000, jittery);
        assert_eq!(waits[399], 100);
        // Those of the jitter have come by then.
        let during = waits[640];
        assert!(during >= 200, "{during}");
        assert_eq!(waits[900], during, "a second and a half of calm is not enough");
        assert_eq!(waits[1100], 100);
        let steps = waits.windows(2).filter(|pair| pair[1] < pair[0]).count();
        assert!(steps <= 2, "{steps} times shortened");
    }

    #[test]
    fn a_clock_that_begins_anew_is_no_jitter() {
        let start = Instant::now();
        let mut hold = Hold::default();
        for step in 0..100 {
            let at = start + Duration::from_millis(5) * step;
            if step == 50 {
                hold.restart();
            }
            hold.packet(450 * step + if step < 50 { 0 } else { 20_000 }, at);
        }
        assert_eq!(hold.get(), HOLD_MIN);
        // A second's pause in which the sender's clock stood still.
        hold.packet(450 * 100, start + Duration::from_millis(1500));
        assert_eq!(hold.get(), HOLD_MIN);
    }
}
