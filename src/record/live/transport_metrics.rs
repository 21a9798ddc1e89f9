//! Adds the counts of the endpoint and its sessions to the metrics.

use parking_lot::Mutex;
use prometheus::IntCounter;
use transport::webrtc::{DropReason, EndpointStats, SessionStats};

use crate::base::metrics::Metrics;

/// Packet counts of one session that are already in the metrics.
#[derive(Debug, Default)]
pub struct PacketCounters(Mutex<SessionStats>);

/// Counts of dropped datagrams that are already in the metrics.
#[derive(Debug, Default)]
pub struct DroppedCounters(Mutex<[u64; DropReason::ALL.len()]>);

impl PacketCounters {
    /// Adds the counts since the last call to `metrics`.
    pub fn tell(&self, now: SessionStats, metrics: &Metrics) {
        // Every change is one assignment: the counts stay usable after a panic.
        let mut known = self.0.lock();
        let known = &mut *known;
        for (series, known, now) in [
            (&metrics.live_packets, &mut known.packets, now.packets),
            (&metrics.live_packets_asked, &mut known.nacks, now.nacks),
            (&metrics.live_keyframes_asked, &mut known.keyframes_asked, now.keyframes_asked),
            (&metrics.live_packets_lost, &mut known.lost, now.lost),
        ] {
            grow(series, known, now);
        }
    }
}

impl DroppedCounters {
    /// Adds the counts since the last call to `metrics`.
    pub fn tell(&self, now: &EndpointStats, metrics: &Metrics) {
        for (known, why) in self.0.lock().iter_mut().zip(DropReason::ALL) {
            grow(metrics.live_refused.of(why), known, now.refused(why));
        }
    }

    /// Resets the known counts, as those of a new endpoint start at zero.
    pub fn begin_anew(&self) {
        *self.0.lock() = Default::default();
    }
}

/// Adds the growth since `known` to the series, which never decreases.
fn grow(series: &IntCounter, known: &mut u64, now: u64) {
    series.inc_by(now.saturating_sub(*known));
    *known = now.max(*known);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_told_is_not_told_again() {
        let (metrics, packets) = (Metrics::new(), PacketCounters::default());
        for (lost, told) in [(3, 3), (3, 3), (1, 3), (4, 4)] {
            packets.tell(
                SessionStats { lost, packets: 10 * lost, ..SessionStats::default() },
                &metrics,
            );
            assert_eq!(metrics.live_packets_lost.get(), told);
            assert_eq!(metrics.live_packets.get(), 10 * told);
        }
    }
}
