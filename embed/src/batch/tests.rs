//! Tests of size, age and bounds in virtual time, and properties for any arrivals.

use proptest::prelude::*;

use super::*;

const LIMITS: BatchLimits = BatchLimits {
    size_max: 3,
    age_max: Duration::from_millis(5),
    waiting_max: 6,
    stream_waiting_max: 4,
};

const fn ms(count: u64) -> Duration {
    Duration::from_millis(count)
}

#[test]
fn a_batch_is_ready_by_number_or_by_age() {
    let zero = Instant::now();
    let mut batcher = Batcher::new(LIMITS);
    assert_eq!((batcher.due(), batcher.poll(zero)), (None, None));
    batcher.push(zero, 1, "a").expect("room");
    batcher.push(zero + ms(4), 2, "b").expect("room");
    assert_eq!(batcher.due(), Some(zero + ms(5)));
    assert_eq!(batcher.poll(zero + ms(5) - Duration::from_nanos(1)), None);
    assert_eq!(batcher.poll(zero + ms(5)), Some(vec!["a", "b"]), "by age, young ones with it");
    for (stream, item) in [(1, "c"), (2, "d"), (3, "e"), (1, "f")] {
        batcher.push(zero + ms(6), stream, item).expect("room");
    }
    assert_eq!(batcher.poll(zero + ms(6)), Some(vec!["c", "d", "e"]), "by number, at once");
    assert_eq!(batcher.poll(zero + ms(6)), None);
    assert_eq!(batcher.poll(zero + ms(11)), Some(vec!["f"]));
    assert_eq!(batcher.counts(), BatchCounts { batched: 6, batches: 3, refused: 0 });
}

#[test]
fn what_waits_is_bounded_for_each_stream_and_altogether() {
    let zero = Instant::now();
    let mut batcher = Batcher::new(LIMITS);
    let pushed: Vec<bool> = [1, 1, 1, 1, 1, 2, 2, 3]
        .into_iter()
        .enumerate()
        .map(|(item, stream)| batcher.push(zero, stream, item).is_ok())
        .collect();
    assert_eq!(pushed, [true, true, true, true, false, true, true, false]);
    assert_eq!((batcher.waiting(), batcher.counts().refused), (6, 2));
    assert_eq!(batcher.poll(zero), Some(vec![0, 1, 2]));
    assert_eq!(batcher.push(zero, 1, 8), Ok(()), "there is room again");
    batcher.clear();
    assert_eq!((batcher.waiting(), batcher.due()), (0, None));
    assert_eq!(batcher.push(zero, 1, 9), Ok(()));
}

proptest! {
    /// Polling whenever a batch is due lets no item wait longer than the age, loses none and keeps the order
    /// of each stream.
    #[test]
    fn nothing_waits_too_long_is_lost_or_overtaken(
        arrivals in proptest::collection::vec((0_u64..4000, 0_u8..5), 1..200),
    ) {
        let zero = Instant::now();
        let mut now = zero;
        let mut batcher = Batcher::new(LIMITS);
        let (mut accepted, mut seen) = (Vec::new(), Vec::new());
        for (number, (pause_us, stream)) in arrivals.into_iter().enumerate() {
            let next = now + Duration::from_micros(pause_us);
            while let Some(due) = batcher.due().filter(|due| *due <= next) {
                let batch = batcher.poll(due).expect("it is due");
                take(&mut seen, batch, due)?;
            }
            now = next;
            if batcher.push(now, stream, (number, stream, now)).is_ok() {
                accepted.push((number, stream));
            }
            if let Some(batch) = batcher.poll(now) {
                take(&mut seen, batch, now)?;
            }
            prop_assert!(batcher.waiting() < LIMITS.size_max);
        }
        while let Some(due) = batcher.due() {
            let batch = batcher.poll(due).expect("it is due");
            take(&mut seen, batch, due)?;
        }
        prop_assert_eq!(seen, accepted);
        prop_assert_eq!(batcher.by_stream.len(), 0);
    }
}

type Arrived = (usize, u8, Instant);

fn take(
    seen: &mut Vec<(usize, u8)>,
    batch: Vec<Arrived>,
    now: Instant,
) -> Result<(), TestCaseError> {
    prop_assert!((1..=LIMITS.size_max).contains(&batch.len()));
    for (number, stream, since) in batch {
        prop_assert!(now - since <= LIMITS.age_max);
        seen.push((number, stream));
    }
    Ok(())
}
