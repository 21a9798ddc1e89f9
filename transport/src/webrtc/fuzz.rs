//! Invariants of TWCC feedback for arbitrary arrival times; those of parsers of outside bytes are in
//! `hostile`.
//!
//! Called by fuzzers with generated input, and by tests with a stable compiler. Feedback is parsed as the
//! draft requires of a sender, independently of the writer.

pub mod hostile;

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use super::twcc::{EVERY, NAMED_MAX, REPORT_BYTES_MAX, TwccRecorder};

/// Quarter milliseconds per unit of a report's reference time.
const REFERENCE: i64 = 256;

/// Every four bytes are a packet: a signed 16-bit increment of its number, and the time passed in tens of
/// microseconds, both big endian.
///
/// Reports are taken when due. Asserts that each received packet is reported within the rounding of its time,
/// and no other packet. Returns the number reported.
pub fn arrivals(bytes: &[u8]) -> usize {
    let start = Instant::now();
    let (mut arrivals, mut now, mut number) = (TwccRecorder::new(start), start, 0_u16);
    let mut came: BTreeMap<u16, Vec<Duration>> = BTreeMap::new();
    let mut told = 0;
    for packet in bytes.chunks_exact(4) {
        number = number.wrapping_add(u16::from_be_bytes([packet[0], packet[1]]));
        now += Duration::from_micros(10) * u32::from(u16::from_be_bytes([packet[2], packet[3]]));
        arrivals.packet(number, now);
        came.entry(number).or_default().push(now - start);
        told += reported(&mut arrivals, now, start, &came);
    }
    told += reported(&mut arrivals, now + EVERY, start, &came);
    assert_eq!(arrivals.deadline(), None, "all is told");
    told
}

fn reported(
    arrivals: &mut TwccRecorder,
    now: Instant,
    start: Instant,
    came: &BTreeMap<u16, Vec<Duration>>,
) -> usize {
    let mut told = 0;
    while let Some(report) = arrivals.report(now) {
        assert!(report.len() <= REPORT_BYTES_MAX, "{} bytes", report.len());
        let read = read(&report);
        assert!((1..=NAMED_MAX).contains(&read.len()), "{} packets", read.len());
        for (number, at) in read {
            let Some(quarters) = at else { continue };
            let at = |came: &Duration| (came.as_micros() as i64 - quarters * 250).abs() <= 250;
            let is_true = came.get(&number).is_some_and(|came| came.iter().any(at));
            assert!(is_true, "{number} did not come at {quarters}");
            told += 1;
        }
    }
    let due = arrivals.deadline();
    assert!(due.is_none_or(|at| at > now && at >= start), "something is due for ever");
    told
}

/// Returns the numbers of a report with their times since the origin in quarter milliseconds; `None` for a
/// lost packet (draft-holmer-rmcat-transport-wide-cc-extensions-01 3.1).
pub(super) fn read(report: &[u8]) -> Vec<(u16, Option<i64>)> {
    let word = |at: usize| u16::from_be_bytes([report[at], report[at + 1]]);
    let (first, count) = (word(0), usize::from(word(2)));
    let reference = u32::from_be_bytes([0, report[4], report[5], report[6]]);
    let (mut at, mut statuses) = (8, Vec::new());
    while statuses.len() < count {
        let chunk = word(at);
        at += 2;
        match chunk >> 14 {
            0 | 1 => {
                let run = usize::from(chunk & 0x1fff);
                assert!(run > 0, "a run of nothing");
                statuses.extend(std::iter::repeat_n(chunk >> 13 & 3, run));
            }
            2 => statuses.extend((0..14).map(|bit| chunk >> (13 - bit) & 1)),
            _ => statuses.extend((0..7).map(|symbol| chunk >> (12 - 2 * symbol) & 3)),
        }
    }
    statuses.truncate(count);
    let mut time = i64::from(reference) * REFERENCE;
    let mut told = Vec::with_capacity(count);
    for (status, place) in statuses.into_iter().zip(0u16..) {
        let delta = match status {
            0 => None,
            1 => Some(i64::from(report[at])),
            2 => Some(i64::from(word(at) as i16)),
            other => panic!("status {other}"),
        };
        at += usize::from(status);
        time += delta.unwrap_or(0);
        told.push((first.wrapping_add(place), delta.map(|_| time)));
    }
    assert_eq!(at, report.len(), "nothing is left over");
    told
}
