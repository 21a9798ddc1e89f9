//! Tests of packets that are missing, requested and given up.

use super::*;
use crate::rtp::jitter_estimate::PATIENCE_MIN;

fn came(at: Instant) -> Arrival {
    Arrival { at, patience: PATIENCE_MIN, is_answer: true }
}

fn packet(sequence: i64) -> RtpPacket<'static> {
    RtpPacket {
        payload_type: 96,
        ssrc: 1,
        sequence: sequence as u16,
        timestamp: 0,
        marker: false,
        payload: &[0; 100],
    }
}

/// Returns a buffer that has used the packet `first` and holds the packet `ahead`, both of which came at `now`.
fn after(first: i64, ahead: i64, now: Instant) -> JitterBuffer {
    let mut jitter = JitterBuffer::default();
    assert_eq!(jitter.arrive(first, 100), InsertOutcome::Next);
    assert!(!jitter.advance(came(now)), "not asked for");
    assert_eq!(jitter.arrive(ahead, 100), InsertOutcome::Held { is_repaired: false });
    jitter.hold(ahead, &packet(ahead), false, came(now));
    jitter.check();
    jitter
}

#[test]
fn what_is_missing_is_asked_for_with_growing_patience() {
    let zero = Instant::now();
    let mut jitter = after(5, 8, zero);
    let mut asked = Vec::new();
    let at = |ms| zero + Duration::from_millis(ms);
    for ms in 0..500 {
        if !jitter.collect_nacks(at(ms)).is_empty() {
            asked.push(ms);
        }
    }
    assert_eq!(asked, [10, 60, 110, 210, 410]);
    assert_eq!(jitter.next_nack_at(), None, "asked for often enough");
    assert_eq!(jitter.give_up_at(), Some(at(500)));
    assert_eq!(jitter.arrive(6, 100), InsertOutcome::Next);
    assert!(jitter.advance(came(at(450))), "was asked for");
    assert_eq!(jitter.arrive(8, 100), InsertOutcome::Useless);
    assert_eq!(jitter.skip_hole(), 1);
    assert!(jitter.pop().is_some());
    assert!(jitter.is_empty());
}

#[test]
fn packets_before_the_first_may_come_and_are_not_lost_if_not() {
    let zero = Instant::now();
    let mut jitter = JitterBuffer::default();
    assert!(jitter.is_new());
    jitter.expect_earlier(100, zero);
    let held = InsertOutcome::Held { is_repaired: false };
    for number in [100, 98] {
        assert_eq!(jitter.arrive(number, 100), held, "{number}");
        jitter.hold(number, &packet(number), number == 98, came(zero));
        jitter.check();
    }
    assert!(jitter.collect_nacks(zero + Duration::from_secs(1))[..] == [99], "it was between two");
    assert_eq!(jitter.give_up_at(), Some(zero + Duration::from_millis(500)));
    assert_eq!(jitter.first_start(), Some(98));
    assert_eq!(jitter.skip_to(98), 0, "nobody knows of those before");
    assert_eq!(jitter.pop().map(|held| held.begins_start), Some(true));
    assert_eq!(jitter.arrive(35, 100), InsertOutcome::Useless);
    let mut jitter = JitterBuffer::default();
    jitter.expect_earlier(100, zero);
    jitter.hold(100, &packet(100), false, came(zero));
    assert_eq!(jitter.skip_hole(), 0);
    assert!(jitter.pop().is_some() && jitter.is_empty());
}

#[test]
fn what_is_between_two_that_came_was_sent() {
    let zero = Instant::now();
    let at = |ms| zero + Duration::from_millis(ms);
    let first = 100 - LOOK_BACK as i64;
    // The second packet is the earliest that may arrive, or the one after it.
    for second in [first, first + 1] {
        let mut jitter = JitterBuffer::default();
        jitter.expect_earlier(100, zero);
        jitter.hold(100, &packet(100), false, came(zero));
        match jitter.arrive(second, 100) {
            InsertOutcome::Next => assert!(!jitter.advance(came(at(400))), "not asked for"),
            _ => jitter.hold(second, &packet(second), false, came(at(400))),
        }
        jitter.check();
        assert_eq!(jitter.collect_nacks(at(410)).len(), NACK_MAX, "{second}");
        if second > first {
            assert_eq!(jitter.skip_hole(), 0, "before it there may be nothing");
            assert!(jitter.pop().is_some());
        }
        assert_eq!(jitter.give_up_at(), Some(at(900)), "{second}");
        assert_eq!(jitter.skip_hole(), (99 - second) as u64, "{second}: they are lost");
    }
}

#[test]
fn no_more_is_asked_for_than_a_packet_holds() {
    let zero = Instant::now();
    let mut jitter = after(0, 300, zero);
    let later = zero + Duration::from_secs(1);
    let first = jitter.collect_nacks(later);
    assert_eq!(first, (1..129).collect::<Vec<u16>>());
    assert_eq!(jitter.next_nack_at(), Some(zero + Duration::from_millis(10)), "more is due");
    assert_eq!(jitter.collect_nacks(later)[0], 129);
}

#[test]
fn bytes_and_packets_are_bounded() {
    let mut jitter = JitterBuffer::default();
    let large = vec![0; 60_000];
    let now = Instant::now();
    jitter.arrive(0, 1);
    let mut held = 0;
    for number in 1..HELD_MAX as i64 {
        let packet = RtpPacket { payload: &large, ..packet(number) };
        if jitter.arrive(number, large.len()) == InsertOutcome::Full {
            break;
        }
        jitter.hold(number, &packet, false, came(now));
        jitter.check();
        held += 1;
    }
    assert_eq!(held, BYTES_MAX / large.len());
    assert_eq!(jitter.arrive(HELD_MAX as i64, 0), InsertOutcome::Full);
}
