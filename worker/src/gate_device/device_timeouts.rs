//! Timeouts and watchdog of a measuring device. Pure: callers pass the time.

use std::time::{Duration, Instant};

/// Consecutive late batches after which a device is given up as no help.
const LATE_MAX: u32 = 10;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DeviceTimeouts {
    /// Timeout of a batch; after it the CPU measures the batch, and all others until the device is done.
    pub late: Duration,
    /// Time without an answer after which the device is lost.
    pub gone: Duration,
}

impl DeviceTimeouts {
    /// Timeouts of a GPU. A full batch takes a GPU some twenty milliseconds, and the CPU as many; a worker
    /// without progress for five seconds is ended.
    pub const GPU: DeviceTimeouts =
        DeviceTimeouts { late: Duration::from_millis(100), gone: Duration::from_secs(2) };
    /// Timeouts of an adapter that is a CPU, which has other work to do.
    #[cfg(feature = "wgpu")]
    pub const CPU: DeviceTimeouts =
        DeviceTimeouts { late: Duration::from_secs(300), gone: Duration::from_secs(300) };
}

pub(super) struct DeviceWatchdog {
    patience: DeviceTimeouts,
    /// Start of the batch in progress.
    at_since: Option<Instant>,
    /// Consecutive batches that were late.
    late: u32,
}

impl DeviceWatchdog {
    pub fn new(patience: DeviceTimeouts) -> DeviceWatchdog {
        DeviceWatchdog { patience, at_since: None, late: 0 }
    }

    pub fn patience(&self) -> DeviceTimeouts {
        self.patience
    }

    pub fn begin(&mut self, now: Instant) {
        self.at_since = Some(now);
    }

    pub fn end(&mut self, now: Instant) {
        self.late = if self.is_behind(now) { self.late + 1 } else { 0 };
        self.at_since = None;
    }

    /// Returns true if the batch in progress is late, so that no other should wait for the device.
    pub fn is_behind(&self, now: Instant) -> bool {
        self.at_for(now) > self.patience.late
    }

    /// Returns the reason to give the device up, if there is one.
    pub fn verdict(&self, now: Instant) -> Option<String> {
        let at_for = self.at_for(now);
        if at_for > self.patience.gone {
            return Some(format!("it has not answered for {} ms", at_for.as_millis()));
        }
        (self.late >= LATE_MAX).then(|| format!("it was late with {LATE_MAX} batches in a row"))
    }

    fn at_for(&self, now: Instant) -> Duration {
        self.at_since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: DeviceTimeouts =
        DeviceTimeouts { late: Duration::from_millis(100), gone: Duration::from_millis(2000) };

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn a_device_that_is_late_is_passed_over_and_one_that_hangs_is_given_up() {
        let start = Instant::now();
        let mut watch = DeviceWatchdog::new(PATIENCE);
        let at = |watch: &DeviceWatchdog, after| {
            let now = start + ms(after);
            (watch.is_behind(now), watch.verdict(now).is_some())
        };
        assert_eq!(at(&watch, 100_000), (false, false), "nothing was asked of it");
        watch.begin(start);
        let rows = [
            (0, (false, false)),
            (100, (false, false)),
            (101, (true, false)),
            (2000, (true, false)),
            (2001, (true, true)),
        ];
        for (after, expected) in rows {
            assert_eq!(at(&watch, after), expected, "{after} ms at its batch");
        }
        watch.end(start + ms(1999));
        assert_eq!(at(&watch, 100_000), (false, false), "it answered after all");
    }

    #[test]
    fn a_device_that_is_always_late_is_given_up_and_one_that_is_now_and_then_is_not() {
        let mut now = Instant::now();
        let mut play = |took: &[u64]| {
            let mut watch = DeviceWatchdog::new(PATIENCE);
            for took in took {
                watch.begin(now);
                now += ms(*took);
                watch.end(now);
            }
            watch.verdict(now)
        };
        assert_eq!(play(&[150; 9]), None);
        assert!(play(&[150; 10]).is_some_and(|why| why.contains("10 batches in a row")));
        assert_eq!(play(&[[150; 9].as_slice(), &[100], &[150; 9]].concat()), None);
        assert_eq!(play(&[100; 50]), None, "slow, and in time");
    }
}
