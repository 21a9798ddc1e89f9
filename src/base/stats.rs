//! Statistics of the last hour by minute: of the machine, and of each principal's own work.
//!
//! Kept in memory only. Pure except for [`Machine::look`]: callers pass snapshots.

use std::{
    collections::{HashMap, VecDeque},
    fs,
    time::{Duration, Instant},
};

use media::WallTime;
use parking_lot::Mutex;

use crate::base::{
    keys::Principal,
    metrics::{Metrics, RefusalReason, Tally},
};

pub const MINUTES_MAX: usize = 60;
/// Interval between snapshots.
pub const EVERY: Duration = Duration::from_secs(60);

/// Counters of the machine since the start, and its current state.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Machine {
    pub frames: u64,
    pub kept: u64,
    pub refused: u64,
    /// Waits of inferences for a slot: their number, and their sum in seconds.
    pub waits: (u64, f64),
    /// Syncs of the log: their number, and their sum in seconds.
    pub syncs: (u64, f64),
    /// CPU ticks of all processors: busy, and total.
    pub ticks: Option<(u64, u64)>,
    /// Fraction of the machine's memory in use, 0 to 1.
    pub memory_used: Option<f64>,
    /// Resident memory of the server without media workers, bytes.
    pub server_bytes: u64,
    pub live_sessions: u64,
    /// Jobs running or waiting.
    pub jobs: u64,
}

impl Machine {
    /// Samples `metrics` and the files in `/proc`; `busy_runs` is the number of runs with a job or live
    /// session.
    pub fn look(metrics: &Metrics, busy_runs: usize) -> Machine {
        let live_sessions = u64::try_from(metrics.live_sessions.get()).unwrap_or_default();
        let waits = &metrics.inference_wait_seconds;
        let syncs = &metrics.fsync_seconds;
        let refused = RefusalReason::ALL.iter().map(|refusal| metrics.refusals.of(*refusal).get());
        let read = |path| fs::read_to_string(path).unwrap_or_default();
        Machine {
            frames: metrics.frames_analyzed.get(),
            kept: metrics.keyframes_selected.get(),
            refused: refused.sum(),
            waits: (waits.get_sample_count(), waits.get_sample_sum()),
            syncs: (syncs.get_sample_count(), syncs.get_sample_sum()),
            ticks: ticks(&read("/proc/stat")),
            memory_used: memory_used(&read("/proc/meminfo")),
            server_bytes: server_bytes(&read("/proc/self/status")).unwrap_or_default(),
            live_sessions,
            jobs: (busy_runs as u64).saturating_sub(live_sessions),
        }
    }
}

/// Returns busy and total ticks from the first line of `/proc/stat`.
fn ticks(stat: &str) -> Option<(u64, u64)> {
    let line = stat.lines().next()?.strip_prefix("cpu ")?;
    // Fields: user, nice, system, idle, iowait, irq, softirq, steal; guest time is part of user.
    let ticks: Vec<u64> =
        line.split_ascii_whitespace().take(8).map(str::parse).collect::<Result<_, _>>().ok()?;
    let all = ticks.iter().sum();
    let idle = ticks.get(3)? + ticks.get(4)?;
    Some((all - idle, all))
}

/// Returns the number after `name` at the start of a line of a file in `/proc`.
pub fn field(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_ascii_whitespace().next()?.parse().ok()
}

fn memory_used(meminfo: &str) -> Option<f64> {
    let (all, left) = (field(meminfo, "MemTotal:")?, field(meminfo, "MemAvailable:")?);
    (all > 0).then(|| 1.0 - left as f64 / all as f64)
}

fn server_bytes(status: &str) -> Option<u64> {
    field(status, "VmRSS:").map(|kib| kib * 1024)
}

/// Statistics of a minute, or of the part of the current minute so far.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// End of the period.
    pub at: WallTime,
    pub span: Duration,
    /// State of the machine at the beginning and at the end of the period.
    pub machine: (Machine, Machine),
    pub own: Tally,
    /// Descriptions of all principals in the period.
    pub descriptions: u64,
}

/// Counters at the end of a minute.
#[derive(Clone, Debug)]
pub struct Snapshot {
    pub at: (Instant, WallTime),
    pub machine: Machine,
    pub owners: HashMap<Principal, Tally>,
}

/// Snapshots at the ends of the last minutes, and one before them.
#[derive(Debug, Default)]
pub struct Stats(Mutex<VecDeque<Snapshot>>);

impl Stats {
    /// Adds the snapshot at the end of a minute; the first one is only a starting point.
    pub fn add(&self, snapshot: Snapshot) {
        let mut kept = self.0.lock();
        if kept.len() > MINUTES_MAX {
            kept.pop_front();
        }
        kept.push_back(snapshot);
    }

    /// Returns the last `minutes` points, the oldest first, as `owner` may see them. The last is the
    /// current minute up to `now`.
    pub fn points(&self, minutes: usize, owner: &Principal, now: &Snapshot) -> Vec<Point> {
        let kept = self.0.lock();
        let ends: Vec<&Snapshot> = kept.iter().chain([now]).collect();
        let first = ends.len().saturating_sub(minutes + 1);
        ends[first..].windows(2).map(|pair| point(pair[0], pair[1], owner)).collect()
    }
}

fn point(before: &Snapshot, after: &Snapshot, owner: &Principal) -> Point {
    let since = |owner: &Principal| {
        let now = after.owners.get(owner).copied().unwrap_or_default();
        now.since(&before.owners.get(owner).copied().unwrap_or_default())
    };
    Point {
        at: after.at.1,
        span: after.at.0.saturating_duration_since(before.at.0),
        machine: (before.machine, after.machine),
        own: since(owner),
        descriptions: after.owners.keys().map(|owner| since(owner).descriptions).sum(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_are_of_the_last_hour_and_of_their_owner() {
        let [alice, bob] = ["alice", "bob"].map(Principal::named);
        let start = Instant::now();
        let tally = |frames, descriptions| Tally { frames, descriptions, ..Tally::default() };
        let at = |minute: u64| Snapshot {
            at: (start + EVERY * minute as u32, WallTime { epoch_ms: minute as i64 * 60_000 }),
            machine: Machine { frames: minute * 100, ..Machine::default() },
            owners: HashMap::from([
                (alice.clone(), tally(minute * 70, minute)),
                (bob.clone(), tally(minute * 30, 2 * minute)),
            ]),
        };
        let stats = Stats::default();
        assert_eq!(stats.points(60, &alice, &at(0)), []);
        for minute in 0..200 {
            stats.add(at(minute));
        }
        for (minutes, expected) in [(1, 1), (5, 5), (60, 60)] {
            let points = stats.points(minutes, &bob, &at(200));
            assert_eq!(points.len(), expected);
            for point in &points {
                assert_eq!(point.machine.1.frames - point.machine.0.frames, 100);
                assert_eq!((point.own.frames, point.descriptions), (30, 3));
                assert_eq!(point.span, EVERY);
            }
            assert_eq!(points.last().map(|point| point.at.epoch_ms), Some(200 * 60_000));
        }
        let stranger = Principal::named("carol");
        let points = stats.points(1, &stranger, &at(200));
        assert_eq!(points[0].own, Tally::default(), "nobody else's");
    }

    #[test]
    fn the_system_is_read_as_it_writes() {
        let stat = "cpu  10 1 5 70 4 1 2 0 3 0\ncpu0 1 1 1 1 1 1 1 0 0 0\n";
        assert_eq!(ticks(stat), Some((19, 93)));
        let meminfo = "MemTotal:       1000 kB\nMemFree: 1 kB\nMemAvailable:    250 kB\n";
        assert_eq!(memory_used(meminfo), Some(0.75));
        assert_eq!(server_bytes("Name:\tx\nVmRSS:\t     12 kB\n"), Some(12_288));
        for text in ["", "cpu 1 2 x", "nothing"] {
            assert_eq!((ticks(text), memory_used(text), server_bytes(text)), (None, None, None));
        }
        let found = Machine::look(&Metrics::new(), 3);
        assert!(found.ticks.is_some() && found.memory_used.is_some(), "{found:?}");
        assert!(found.server_bytes > 1 << 20 && found.jobs == 3, "{found:?}");
    }
}
