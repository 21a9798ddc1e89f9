//! Interarrival jitter as in receiver reports (RFC 3550 6.4.1, A.8), the playout delay derived from it, and
//! the time after which a packet counts as lost. Pure.

use std::time::{Duration, Instant};

/// Ticks per second of the media clock.
const CLOCK: u64 = 90_000;
/// Playout delay in mean deviations: evenly spread delays deviate from each other by a third of the longest
/// on average.
const DEVIATIONS: u32 = 3;
/// Shortest delay: a path without measured jitter may still delay a packet this much.
pub(super) const HOLD_MIN: Duration = Duration::from_millis(100);
/// Longest delay: the same as the wait for a missing packet.
pub(super) const HOLD_MAX: Duration = Duration::from_millis(500);
/// Time from being overtaken until a packet is requested on a path without reordering; covers swaps of
/// neighbours.
pub(super) const PATIENCE_MIN: Duration = Duration::from_millis(10);
/// Longest such time; leaves as much time for the retransmission before the packet is given up.
const PATIENCE_MAX: Duration = Duration::from_millis(250);
/// Time without need for the delay after which it is shortened.
const CALM: Duration = Duration::from_secs(2);

/// Mean deviation of transit times.
#[derive(Clone, Copy, Debug)]
pub(crate) struct JitterEstimator {
    /// A larger deviation is a pause or a clock change, which would dominate the mean for long.
    deviation_max: Duration,
    origin: Instant,
    /// Transit time of the last packet in clock ticks, from an arbitrary origin.
    transit: u32,
    /// Jitter in sixteenths of a tick.
    jitter: u32,
}

impl JitterEstimator {
    /// Creates the estimator at the first packet of a source.
    pub(crate) fn new(timestamp: u32, deviation_max: Duration, now: Instant) -> JitterEstimator {
        let transit = 0u32.wrapping_sub(timestamp);
        JitterEstimator { deviation_max, origin: now, transit, jitter: 0 }
    }

    /// Adds a packet in the order of arrival; returns the excess of its transit time over that of the
    /// previous packet, in ticks.
    pub(crate) fn packet(&mut self, timestamp: u32, now: Instant) -> i32 {
        let since = now.saturating_duration_since(self.origin);
        let arrival = (since.as_micros() as u64 * CLOCK / 1_000_000) as u32;
        let transit = arrival.wrapping_sub(timestamp);
        let longer = transit.wrapping_sub(self.transit) as i32;
        let deviation = longer.unsigned_abs();
        self.transit = transit;
        if u128::from(deviation) * 1_000 < self.deviation_max.as_millis() * u128::from(CLOCK) {
            self.jitter = self.jitter + deviation - ((self.jitter + 8) >> 4);
        }
        longer
    }

    pub(crate) fn ticks(&self) -> u32 {
        self.jitter >> 4
    }
}

/// Wait for packets that may only be late: lengthened at once, shortened slowly.
#[derive(Debug)]
pub(super) struct PlayoutDelay {
    arrivals: Option<JitterEstimator>,
    hold: Duration,
    /// Time at which about the current wait was last needed.
    needed_at: Option<Instant>,
    /// Excess of the last packet's transit time over that of the previous one.
    longer: Duration,
    overtaken: Option<Overtaken>,
}

/// Recent packets that were overtaken by others.
#[derive(Debug)]
struct Overtaken {
    last_at: Instant,
    /// Longest recent excess of an overtaken packet's transit time.
    longest: Duration,
    longest_at: Instant,
}

impl Default for PlayoutDelay {
    fn default() -> PlayoutDelay {
        let longer = Duration::ZERO;
        PlayoutDelay { arrivals: None, hold: HOLD_MIN, needed_at: None, longer, overtaken: None }
    }
}

impl PlayoutDelay {
    pub(super) fn get(&self) -> Duration {
        self.hold
    }

    /// Records that the last packet was overtaken by later ones and is no retransmission.
    pub(super) fn overtaken(&mut self, now: Instant) {
        let longer = self.longer;
        let first = Overtaken { last_at: now, longest: longer, longest_at: now };
        let overtaken = self.overtaken.get_or_insert(first);
        overtaken.last_at = now;
        if longer >= overtaken.longest || !is_recent(overtaken.longest_at, now) {
            (overtaken.longest, overtaken.longest_at) = (longer, now);
        }
    }

    /// Returns the time in which an overtaken packet may still arrive by itself; minimal on a path that
    /// delays packets but keeps their order.
    pub(super) fn reorder_wait(&self, now: Instant) -> Duration {
        let overtaken = self.overtaken.as_ref();
        let Some(overtaken) = overtaken.filter(|overtaken| is_recent(overtaken.last_at, now))
        else {
            return PATIENCE_MIN;
        };
        let late = self.late().unwrap_or_default().max(overtaken.longest);
        late.clamp(PATIENCE_MIN, PATIENCE_MAX)
    }

    /// Returns the delay that the measured jitter requires; `None` before a packet.
    fn late(&self) -> Option<Duration> {
        Some(duration(u64::from(self.arrivals.as_ref()?.ticks()) * u64::from(DEVIATIONS)))
    }

    /// Resets the jitter after a restart of the sender's clock.
    pub(super) fn restart(&mut self) {
        self.arrivals = None;
    }

    /// Adds a packet that is no retransmission.
    pub(super) fn packet(&mut self, timestamp: u32, now: Instant) {
        let Some(arrivals) = &mut self.arrivals else {
            self.arrivals = Some(JitterEstimator::new(timestamp, HOLD_MAX, now));
            return;
        };
        let longer = arrivals.packet(timestamp, now);
        self.longer = duration(u64::try_from(longer).unwrap_or(0));
        let wanted = self.late().unwrap_or_default().clamp(HOLD_MIN, HOLD_MAX);
        let is_near = 4 * wanted > 3 * self.hold;
        let needed_at = *self.needed_at.get_or_insert(now);
        if is_near || now.saturating_duration_since(needed_at) >= CALM {
            let shortens = !is_near;
            self.hold = if shortens { wanted } else { self.hold.max(wanted) };
            self.needed_at = Some(now);
        }
    }
}

fn is_recent(at: Instant, now: Instant) -> bool {
    now.saturating_duration_since(at) < CALM
}

fn duration(ticks: u64) -> Duration {
    Duration::from_micros(ticks * 1_000_000 / CLOCK)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the delays on a path where packet `n`, sent 5 ms apart, is `delay(n)` ms late.
    fn waits(packets: u32, delay: impl Fn(u32) -> u32) -> Vec<u128> {
        let start = Instant::now();
        let mut hold = PlayoutDelay::default();
        let mut arrivals: Vec<(u32, u32)> =
            (0..packets).map(|packet| (5 * packet + delay(packet), 450 * packet)).collect();
        arrivals.sort_unstable();
        let waits = arrivals.into_iter().map(|(ms, timestamp)| {
            hold.packet(timestamp, start + Duration::from_millis(ms.into()));
            hold.get().as_millis()
        });
        waits.collect()
    }

    /// Returns a pseudo-random delay, spread evenly over 0 to `most`.
    fn spread(packet: u32, most: u32) -> u32 {
        // Finaliser of splitmix64.
        let mut mixed = u64::from(packet).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ mixed >> 31) % u64::from(most + 1)) as u32
    }

    #[test]
    fn a_wait_is_shortened_once_the_path_is_calm() {
        // A second of jitter in packets 400 to 600, then none.
        let jittery =
            |packet: u32| if (400..600).contains(&packet) { spread(packet, 200) } else { 0 };
        let waits = waits(2000, jittery);
        assert_eq!(waits[399], 100);
        // All jittered packets have arrived by then.
        let during = waits[640];
        assert!(during >= 200, "{during}");
        assert_eq!(waits[900], during, "a second and a half of calm is not enough");
        assert_eq!(waits[1100], 100);
        let steps = waits.windows(2).filter(|pair| pair[1] < pair[0]).count();
        assert!(steps <= 2, "{steps} times shortened");
    }

    #[test]
    fn only_a_path_that_reorders_makes_one_wait_to_ask() {
        let start = Instant::now();
        let mut hold = PlayoutDelay::default();
        let after = |hold: &mut PlayoutDelay, most: u32| {
            for packet in 0..500 {
                let ms = 5 * packet + spread(packet, most);
                hold.packet(450 * packet, start + Duration::from_millis(ms.into()));
            }
            start + Duration::from_millis(2500)
        };
        let now = after(&mut hold, 200);
        assert_eq!(hold.reorder_wait(now), PATIENCE_MIN);
        hold.overtaken(now);
        let patience = hold.reorder_wait(now).as_millis();
        assert!((150..=250).contains(&patience), "{patience}");
        assert_eq!(hold.reorder_wait(now + CALM), PATIENCE_MIN, "long ago");
        let now = after(&mut hold, 3000);
        hold.overtaken(now);
        assert_eq!(hold.reorder_wait(now), PATIENCE_MAX);
        let now = after(&mut hold, 0);
        hold.packet(450 * 500, now + Duration::from_millis(80));
        hold.overtaken(now);
        assert_eq!(hold.reorder_wait(now).as_millis(), 80, "longer than three mean deviations");
        let later = now + CALM;
        hold.packet(450 * 500, later);
        hold.packet(450 * 500, later);
        after(&mut hold, 0);
        hold.overtaken(later);
        assert_eq!(hold.reorder_wait(later), PATIENCE_MIN, "it is forgotten");
    }

    #[test]
    fn a_clock_that_begins_anew_is_no_jitter() {
        let start = Instant::now();
        let mut hold = PlayoutDelay::default();
        for step in 0..100 {
            let at = start + Duration::from_millis(5) * step;
            if step == 50 {
                hold.restart();
            }
            hold.packet(450 * step + if step < 50 { 0 } else { 20_000 }, at);
        }
        assert_eq!(hold.get(), HOLD_MIN);
        // A pause of a second during which the sender's clock stood still.
        hold.packet(450 * 100, start + Duration::from_millis(1500));
        assert_eq!(hold.get(), HOLD_MIN);
    }
}
