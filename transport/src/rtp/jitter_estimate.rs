//! Interarrival jitter of packets, as reports tell it (RFC 3550 6.4.1, A.8), the wait for one on
//! such a path, and the time after which it is taken for lost. Pure.

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
/// Until a packet that others overtook is asked for where none was only late: it bridges what
/// neighbours on the way do to each other.
pub(super) const PATIENCE_MIN: Duration = Duration::from_millis(10);
/// Longest such time, which leaves as much for what is sent again before the packet is given up.
const PATIENCE_MAX: Duration = Duration::from_millis(250);
/// A wait is shortened once so long nothing near it was needed.
const CALM: Duration = Duration::from_secs(2);

/// The mean deviation of transit times.
#[derive(Clone, Copy, Debug)]
pub(crate) struct JitterEstimator {
    /// A deviation beyond is a pause or another clock, which would drown every later one.
    deviation_max: Duration,
    origin: Instant,
    /// Transit time of the last packet in clock ticks, by an origin of our own.
    transit: u32,
    /// Sixteenths of a tick.
    jitter: u32,
}

impl JitterEstimator {
    /// After the first packet of a source.
    pub(crate) fn new(timestamp: u32, deviation_max: Duration, now: Instant) -> JitterEstimator {
        let transit = 0u32.wrapping_sub(timestamp);
        JitterEstimator { deviation_max, origin: now, transit, jitter: 0 }
    }

    /// One more packet, in the order of arrival; how many ticks longer than the one before it was on
    /// its way.
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

    /// In clock ticks.
    pub(crate) fn ticks(&self) -> u32 {
        self.jitter >> 4
    }
}

/// Wait for a packet that may only be late: lengthened at once, shortened slowly.
#[derive(Debug)]
pub(super) struct PlayoutDelay {
    arrivals: Option<JitterEstimator>,
    hold: Duration,
    /// Time at which so long a wait was last needed.
    needed_at: Option<Instant>,
    /// Excess of the last packet's time on the way over that of the one before it.
    longer: Duration,
    overtaken: Option<Overtaken>,
}

/// Packets that others overtook.
#[derive(Debug)]
struct Overtaken {
    last_at: Instant,
    /// The longest that one of them was on its way beyond those before it, of late.
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
    /// Returns the current wait.
    pub(super) fn get(&self) -> Duration {
        self.hold
    }

    /// The last packet came after others that were sent later, and was not sent again.
    pub(super) fn overtaken(&mut self, now: Instant) {
        let longer = self.longer;
        let first = Overtaken { last_at: now, longest: longer, longest_at: now };
        let overtaken = self.overtaken.get_or_insert(first);
        overtaken.last_at = now;
        if longer >= overtaken.longest || !is_recent(overtaken.longest_at, now) {
            (overtaken.longest, overtaken.longest_at) = (longer, now);
        }
    }

    /// Returns the time in which a packet that others overtook may still come by itself. A path
    /// that delays packets and keeps their order makes nobody wait.
    pub(super) fn reorder_wait(&self, now: Instant) -> Duration {
        let overtaken = self.overtaken.as_ref();
        let Some(overtaken) = overtaken.filter(|overtaken| is_recent(overtaken.last_at, now))
        else {
            return PATIENCE_MIN;
        };
        let late = self.late().unwrap_or_default().max(overtaken.longest);
        late.clamp(PATIENCE_MIN, PATIENCE_MAX)
    }

    /// Returns the mean lateness of a packet behind others.
    fn late(&self) -> Option<Duration> {
        Some(duration(u64::from(self.arrivals.as_ref()?.ticks()) * u64::from(DEVIATIONS)))
    }

    /// The sender's clock begins anew.
    pub(super) fn restart(&mut self) {
        self.arrivals = None;
    }

    /// One more packet that was not sent again.
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

    /// The waits of a path on which packet `n` of 5 ms distance comes `delay(n)` ms late.
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
        // A second's pause in which the sender's clock stood still.
        hold.packet(450 * 100, start + Duration::from_millis(1500));
        assert_eq!(hold.get(), HOLD_MIN);
    }
}
