//! Tests of reports as a sender parses them.

use proptest::prelude::*;

use super::*;
use crate::webrtc::fuzz::{self, read};

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

#[test]
fn what_came_and_what_did_not_is_told_with_its_time() {
    let start = Instant::now();
    let mut arrivals = TwccRecorder::new(start);
    assert_eq!((arrivals.deadline(), arrivals.report(start)), (None, None));
    for (number, at) in [(65_534, 100), (65_535, 101), (1, 200), (0, 205), (3, 205)] {
        arrivals.packet(number, start + ms(at));
    }
    assert!(arrivals.deadline().is_some_and(|at| at <= start + ms(205)), "the first at once");
    let report = arrivals.report(start + ms(205)).expect("due");
    let expected = [
        (65_534, Some(400)),
        (65_535, Some(404)),
        (0, Some(820)),
        (1, Some(800)),
        (2, None),
        (3, Some(820)),
    ];
    assert_eq!(read(&report), expected);
    assert_eq!(arrivals.deadline(), None, "nothing new");
    arrivals.packet(4, start + ms(210));
    assert_eq!(arrivals.deadline(), Some(start + ms(305)));
    assert_eq!(arrivals.report(start + ms(304)), None);
    arrivals.packet(2, start + ms(250));
    let report = arrivals.report(start + ms(305)).expect("due");
    assert_eq!(read(&report), [(2, Some(1000)), (3, Some(820)), (4, Some(840))], "2 was overtaken");
    assert_eq!(report[7], 2, "reports are counted");
}

#[test]
fn many_are_told_in_more_than_one_report_and_old_ones_not_at_all() {
    let start = Instant::now();
    let mut arrivals = TwccRecorder::new(start);
    (0..1000).for_each(|number| arrivals.packet(number, start));
    let counts: Vec<usize> =
        std::iter::from_fn(|| arrivals.report(start)).map(|report| read(&report).len()).collect();
    assert_eq!(counts, [400, 400, 200]);
    arrivals.packet(1000, start + ms(10));
    assert_eq!(arrivals.report(start + ms(1000)), None, "nobody asked in time");
    assert_eq!(arrivals.deadline(), None);
    (0..10_000).for_each(|number| arrivals.packet(number, start + ms(1000)));
    assert!(arrivals.came.len() <= KEPT_MAX);
}

#[test]
fn times_are_told_when_the_reference_has_wrapped() {
    let start = Instant::now();
    let mut arrivals = TwccRecorder::new(start);
    // 24 bits of 64 ms are twelve days and ten hours.
    let days = Duration::from_secs(13 * 86_400) + Duration::from_micros(12_345_678);
    arrivals.packet(7, start + days);
    arrivals.packet(8, start + days + ms(3));
    let report = arrivals.report(start + days + ms(3)).expect("due");
    let quarters = (days.as_micros() / 250) as i64 % (256 << 24);
    assert_eq!(read(&report), [(7, Some(quarters)), (8, Some(quarters + 12))]);
}

proptest! {
    #[test]
    fn every_arrival_is_told_to_a_quarter_of_a_millisecond(
        steps in proptest::collection::vec((1u16..40, 0u16..300), 1..600),
    ) {
        let bytes = steps.iter().flat_map(|(number, tens)| [number.to_be_bytes(), tens.to_be_bytes()]);
        let bytes: Vec<u8> = bytes.flatten().collect();
        prop_assert_eq!(fuzz::arrivals(&bytes), steps.len());
    }
}
