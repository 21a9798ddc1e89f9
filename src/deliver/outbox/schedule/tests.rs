//! Tests of the schedule in virtual time.

use super::*;

const SECOND: Duration = Duration::from_secs(1);
/// Jitter in the middle of its range, for exact delays.
const MIDDLE: u32 = u32::MAX / 2;

fn schedule(turns: usize, retries: usize) -> (RetrySchedule<u32>, Instant) {
    let backoff = Backoff { first: SECOND, factor: 2, longest: 8 * SECOND };
    (RetrySchedule::new(ScheduleLimits { turns, retries, backoff }), Instant::now())
}

fn keys(schedule: &mut RetrySchedule<u32>, now: Instant) -> Vec<u32> {
    std::iter::from_fn(|| schedule.poll(now)).map(|turn| turn.key).collect()
}

const FAILED: DeliveryResult =
    DeliveryResult::Failed { at_least: Duration::ZERO, progressed: false };

#[test]
fn turns_go_round_and_news_during_a_turn_are_not_lost() {
    let (mut schedule, now) = schedule(1, 1);
    (1..=3).for_each(|key| schedule.add(key, 0));
    let mut order = Vec::new();
    for _ in 0..6 {
        let turn = schedule.poll(now).expect("due");
        assert_eq!(schedule.poll(now), None, "one place");
        order.push(turn.key);
        schedule.finish(turn.key, DeliveryResult::More, now, 0);
    }
    assert_eq!(order, [1, 2, 3, 1, 2, 3]);
    for key in 1..=3 {
        assert_eq!(keys(&mut schedule, now), [key]);
        schedule.finish(key, DeliveryResult::Drained, now, 0);
    }
    assert_eq!(schedule.poll(now), None);
    assert!(schedule.wake(2));
    assert!(!schedule.wake(2), "due already");
    assert_eq!(keys(&mut schedule, now), [2]);
    assert!(!schedule.wake(2), "noted");
    schedule.finish(2, DeliveryResult::Drained, now, 0);
    assert_eq!(keys(&mut schedule, now), [2], "something came during the turn");
    schedule.finish(2, DeliveryResult::Drained, now, 0);
    assert_eq!(schedule.poll(now), None);
    assert!(!schedule.wake(9), "no such reader");
}

#[test]
fn failures_wait_longer_each_time_and_start_over_after_a_success() {
    let (mut schedule, mut now) = schedule(1, 1);
    schedule.add(1, 0);
    for (failures, delay) in [1, 2, 4, 8, 8].into_iter().enumerate() {
        let turn = schedule.poll(now).expect("due");
        assert_eq!(turn.failures, failures as u32);
        schedule.finish(1, FAILED, now, MIDDLE);
        let due = schedule.deadline().expect("waiting");
        let off = due.duration_since(now).abs_diff(delay * SECOND);
        assert!(off < Duration::from_micros(10), "{failures}: {off:?}");
        assert!(!schedule.wake(1), "news do not shorten the wait");
        assert_eq!(schedule.poll(due - Duration::from_millis(1)), None);
        now = due;
    }
    assert!(schedule.poll(now).is_some());
    let asked = DeliveryResult::Failed { at_least: 60 * SECOND, progressed: false };
    schedule.finish(1, asked, now, MIDDLE);
    assert_eq!(schedule.deadline(), Some(now + 60 * SECOND));
    now += 60 * SECOND;
    assert!(schedule.poll(now).is_some());
    schedule.finish(1, DeliveryResult::More, now, 0);
    assert_eq!(schedule.poll(now), Some(DeliverySlot { key: 1, failures: 0 }));
}

#[test]
fn a_failure_after_progress_is_the_first_and_an_urged_reader_does_not_wait() {
    let (mut schedule, now) = schedule(1, 1);
    schedule.add(1, 0);
    let after_progress = DeliveryResult::Failed { at_least: Duration::ZERO, progressed: true };
    for (outcome, failures) in [(FAILED, 1), (FAILED, 2), (after_progress, 1)] {
        schedule.poll(now).expect("due");
        schedule.finish(1, outcome, now, MIDDLE);
        assert_eq!(schedule.poll(now), None, "it waits");
        schedule.urge(1);
        assert_eq!(schedule.deadline(), None);
        assert_eq!(schedule.poll(now), Some(DeliverySlot { key: 1, failures }));
        schedule.urge(1);
        schedule.finish(1, FAILED, now, MIDDLE);
        let again = Some(DeliverySlot { key: 1, failures: failures + 1 });
        assert_eq!(schedule.poll(now), again, "urged during its turn");
        schedule.finish(1, after_progress, now, MIDDLE);
        schedule.urge(1);
    }
    schedule.poll(now).expect("due");
    schedule.finish(1, DeliveryResult::Drained, now, 0);
    schedule.urge(1);
    schedule.urge(1);
    assert_eq!(keys(&mut schedule, now), [1]);
    schedule.urge(1);
    schedule.finish(1, DeliveryResult::Ended, now, 0);
    assert_eq!(keys(&mut schedule, now), [1], "urged before its end was known");
    schedule.finish(1, DeliveryResult::Ended, now, 0);
    assert!(!schedule.wake(1), "it is gone");
}

#[test]
fn a_reader_that_failed_before_a_restart_goes_on_counting() {
    let (mut schedule, now) = schedule(3, 1);
    schedule.add(1, 2);
    schedule.add(2, 9);
    schedule.add(3, 0);
    let first = schedule.poll(now);
    assert_eq!(first, Some(DeliverySlot { key: 1, failures: 2 }), "at once");
    assert_eq!(keys(&mut schedule, now), [3], "one place for retries");
    schedule.finish(1, FAILED, now, MIDDLE);
    assert_eq!(keys(&mut schedule, now), [2]);
    let due = schedule.deadline().expect("waiting").duration_since(now);
    assert!(due.abs_diff(4 * SECOND) < Duration::from_micros(10), "the third delay: {due:?}");
}

#[test]
fn readers_that_fail_never_take_all_places() {
    let (mut schedule, now) = schedule(4, 2);
    (1..=4).for_each(|key| schedule.add(key, 0));
    assert_eq!(keys(&mut schedule, now), [1, 2, 3, 4]);
    (1..=4).for_each(|key| schedule.finish(key, FAILED, now, MIDDLE));
    let later = now + 2 * SECOND;
    assert_eq!(keys(&mut schedule, later), [1, 2], "the others find no place for a retry");
    (5..=7).for_each(|key| schedule.add(key, 0));
    assert_eq!(keys(&mut schedule, later), [5, 6], "new ones have theirs");
    schedule.finish(5, DeliveryResult::Drained, later, 0);
    assert_eq!(keys(&mut schedule, later), [7]);
    schedule.finish(1, DeliveryResult::Drained, later, 0);
    assert_eq!(keys(&mut schedule, later), [3]);
    assert_eq!(schedule.busy.len(), 4);
}

#[test]
fn a_reader_that_is_removed_has_no_further_turn() {
    let (mut schedule, now) = schedule(3, 3);
    (1..=4).for_each(|key| schedule.add(key, 0));
    assert_eq!(keys(&mut schedule, now), [1, 2, 3]);
    schedule.finish(1, FAILED, now, MIDDLE);
    schedule.finish(2, DeliveryResult::Ended, now, 0);
    schedule.remove(1);
    schedule.remove(3);
    schedule.remove(4);
    assert_eq!(schedule.busy.len(), 1, "the turn of 3 is under way");
    schedule.finish(3, DeliveryResult::More, now, 0);
    let much_later = now + 100 * SECOND;
    assert_eq!((schedule.poll(much_later), schedule.deadline()), (None, None));
    assert_eq!(schedule.busy.len(), 0);
    schedule.add(3, 0);
    assert_eq!(keys(&mut schedule, much_later), [3]);
}

/// Random calls keep the promises of the schedule, and no due reader is forgotten.
#[test]
fn random_readers_are_all_served() {
    use proptest::prelude::*;
    proptest!(|(calls in proptest::collection::vec((0_u8..5, 0_u32..6, 0_u32..3), 1..200))| {
        let (mut schedule, mut now) = schedule(3, 1);
        let (mut under_way, mut fresh): (Vec<u32>, BTreeSet<u32>) = Default::default();
        for (call, key, wait) in calls {
            now += wait * SECOND;
            match call {
                0 => { schedule.add(key, 0); fresh.insert(key); }
                1 => { schedule.wake(key); if schedule.readers.contains_key(&key) { fresh.insert(key); } }
                2 => { schedule.remove(key); fresh.remove(&key); }
                3 => if let Some(turn) = schedule.poll(now) {
                    prop_assert!(!under_way.contains(&turn.key), "two turns at once");
                    under_way.push(turn.key);
                    fresh.remove(&turn.key);
                },
                _ => if let Some(key) = under_way.pop() {
                    let failed = wait == 0;
                    schedule.finish(key, if failed { FAILED } else { DeliveryResult::Drained }, now, 0);
                    if failed && schedule.readers.contains_key(&key) { fresh.insert(key); }
                },
            }
            prop_assert!(under_way.len() <= 3);
            prop_assert_eq!(under_way.len(), schedule.busy.len());
        }
        for _ in 0..100 {
            now += 10 * SECOND;
            while let Some(turn) = schedule.poll(now) {
                under_way.push(turn.key);
                fresh.remove(&turn.key);
            }
            under_way.drain(..).for_each(|key| schedule.finish(key, DeliveryResult::Drained, now, 0));
        }
        prop_assert!(fresh.is_empty(), "never served: {:?}", fresh);
    });
}
