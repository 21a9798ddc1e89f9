//! Transport-wide congestion control (TWCC) receiver: records arrival times of packets and writes the
//! feedback that a sender uses to estimate bandwidth (draft-holmer-rmcat-transport-wide-cc-extensions-01).
//!
//! Promises that feedback reports every packet received, late ones too if they arrive within half a second,
//! and that memory is bounded. Reads no clock.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    time::{Duration, Instant},
};

/// Interval of reports; a sender's estimate follows the path within a few of them.
pub(super) const EVERY: Duration = Duration::from_millis(100);
/// Time for which arrivals are kept, so that an overtaken packet is reported with its neighbours.
const KEPT: Duration = Duration::from_millis(500);
/// Most packets covered by one report, lost ones included.
pub(super) const NAMED_MAX: usize = 400;
/// Most arrivals kept: as many as a session may send in half a second.
const KEPT_MAX: usize = 4096;
/// Step from the highest number beyond which the count has restarted.
const FAR: i64 = 0x4000;
/// Units of arrival deltas, and of the reference time (3.1).
const DELTA: Duration = Duration::from_micros(250);
const REFERENCE: Duration = Duration::from_millis(64);

/// Status of a packet in a report (3.1.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
enum Status {
    Missing = 0,
    Small = 1,
    Large = 2,
}

/// Recorder of arrival times by packet number.
#[derive(Debug)]
pub(super) struct TwccRecorder {
    origin: Instant,
    came: BTreeMap<i64, Instant>,
    highest: Option<i64>,
    /// First number that is not yet reported.
    next: i64,
    told_at: Option<Instant>,
    is_new: bool,
    reports: u8,
}

impl TwccRecorder {
    pub(super) fn new(now: Instant) -> TwccRecorder {
        TwccRecorder {
            origin: now,
            came: BTreeMap::new(),
            highest: None,
            next: 0,
            told_at: None,
            is_new: false,
            reports: 0,
        }
    }

    pub(super) fn packet(&mut self, number: u16, now: Instant) {
        let number = match self.highest {
            None => i64::from(number),
            Some(highest) => highest + i64::from(number.wrapping_sub(highest as u16) as i16),
        };
        let highest = self.highest.filter(|highest| number.abs_diff(*highest) < FAR as u64);
        if highest.is_none() {
            self.came.clear();
            self.next = number;
        }
        self.highest = Some(highest.map_or(number, |highest| number.max(highest)));
        if self.came.len() >= KEPT_MAX {
            self.came.pop_first();
        }
        // Of a duplicate, the first arrival counts.
        if let Entry::Vacant(place) = self.came.entry(number) {
            place.insert(now);
            self.next = self.next.min(number);
            self.is_new = true;
        }
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        self.is_new.then(|| self.told_at.map_or(self.origin, |at| at + EVERY))
    }

    /// Writes the report due at `now`, from the base sequence number on; `None` if none is due.
    pub(super) fn report(&mut self, now: Instant) -> Option<Vec<u8>> {
        if !self.is_new || self.told_at.is_some_and(|at| at + EVERY > now) {
            return None;
        }
        // Expired by time, not by number: with decreasing numbers, the lowest arrived last.
        self.came.retain(|_, at| *at + KEPT >= now);
        let first = self.came.range(self.next..).next().map(|(number, _)| *number);
        let Some(first) = first else {
            self.is_new = false;
            return None;
        };
        let told: Vec<(i64, Instant)> = self
            .came
            .range(first..first + NAMED_MAX as i64)
            .map(|(number, at)| (*number, *at))
            .collect();
        let last = told.last().map_or(first, |(number, _)| *number);
        self.next = last + 1;
        self.is_new = self.came.range(self.next..).next().is_some();
        // If packets are left over, another report is due at once.
        self.told_at = (!self.is_new).then_some(now).or(self.told_at);
        self.reports = self.reports.wrapping_add(1);
        Some(self.write(&told))
    }

    fn write(&self, told: &[(i64, Instant)]) -> Vec<u8> {
        let Some(&(first, at)) = told.first() else { return Vec::new() };
        let since = at.saturating_duration_since(self.origin);
        let reference = units(since, REFERENCE);
        // Measured from the start of the reference unit, however often its 24 bits have wrapped.
        let mut before = at - since.saturating_sub(REFERENCE.saturating_mul(reference as u32));
        let (mut statuses, mut deltas) = (Vec::new(), Vec::new());
        for &(number, at) in told {
            let gap = (number - first) as usize - statuses.len();
            statuses.extend(std::iter::repeat_n(Status::Missing, gap));
            let delta = match at.checked_duration_since(before) {
                Some(later) => units(later, DELTA) as i64,
                None => -(units(before.saturating_duration_since(at), DELTA) as i64),
            };
            // The rounding error is carried over to the next delta.
            before = match delta {
                0.. => before + DELTA * delta as u32,
                _ => before - DELTA * delta.unsigned_abs() as u32,
            };
            match u8::try_from(delta) {
                Ok(delta) => {
                    statuses.push(Status::Small);
                    deltas.push(delta);
                }
                Err(_) => {
                    statuses.push(Status::Large);
                    let delta = delta.clamp(i64::from(i16::MIN), i64::from(i16::MAX)) as i16;
                    deltas.extend(delta.to_be_bytes());
                }
            }
        }
        let mut out = Vec::with_capacity(8 + statuses.len() / 3 + deltas.len());
        out.extend((first as u16).to_be_bytes());
        out.extend((statuses.len() as u16).to_be_bytes());
        out.extend(&(reference as u32 & 0xff_ffff).to_be_bytes()[1..]);
        out.push(self.reports);
        write_statuses(&mut out, &statuses);
        out.extend(deltas);
        out
    }
}

fn units(duration: Duration, unit: Duration) -> u64 {
    u64::try_from(duration.as_nanos() / unit.as_nanos()).unwrap_or(0)
}

/// Writes run-length chunks, and vectors of seven where statuses differ (3.1.3, 3.1.4).
fn write_statuses(out: &mut Vec<u8>, mut statuses: &[Status]) {
    const RUN_MAX: usize = 0x1fff;
    while let Some(&first) = statuses.first() {
        let run = statuses.iter().take_while(|status| **status == first).count();
        let (chunk, count) = if run >= 7 || run == statuses.len() {
            let run = run.min(RUN_MAX);
            ((first as u16) << 13 | run as u16, run)
        } else {
            let seven = statuses.iter().take(7);
            let symbols = seven.enumerate().map(|(at, status)| (*status as u16) << (12 - 2 * at));
            (0xc000 | symbols.sum::<u16>(), statuses.len().min(7))
        };
        out.extend(chunk.to_be_bytes());
        statuses = &statuses[count..];
    }
}

#[cfg(test)]
#[path = "twcc/tests.rs"]
mod tests;
