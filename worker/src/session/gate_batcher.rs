//! Gathers pictures of all sessions into batches for the device, by size or age. Pure.
//!
//! The queue in `device` bounds the total. A batch is due when it is full or its oldest picture has waited
//! long enough, so a session that sends none delays no other. First in, first out: no picture starves or is
//! lost, and those of a session keep their order.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

/// Condition for sending a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FlushPolicy {
    /// Size of a full batch; a larger unit is a batch of its own.
    pub full: BatchSize,
    /// Longest time that a picture waits for others.
    pub age: Duration,
}

/// Amount of work for a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct BatchSize {
    pub pictures: usize,
    /// Bytes of the pictures' samples.
    pub bytes: u64,
}

/// Queue of pictures for the device.
pub(super) struct GateBatcher<T> {
    rule: FlushPolicy,
    waiting: VecDeque<Waiting<T>>,
    size: BatchSize,
}

struct Waiting<T> {
    item: T,
    size: BatchSize,
    since: Instant,
}

impl BatchSize {
    fn with(self, other: BatchSize) -> BatchSize {
        BatchSize { pictures: self.pictures + other.pictures, bytes: self.bytes + other.bytes }
    }

    /// Returns true if neither number exceeds that of `other`.
    fn is_within(self, other: BatchSize) -> bool {
        self.pictures <= other.pictures && self.bytes <= other.bytes
    }

    /// Returns true if either number is at least that of `full`.
    fn reaches(self, full: BatchSize) -> bool {
        self.pictures >= full.pictures || self.bytes >= full.bytes
    }
}

impl<T> GateBatcher<T> {
    pub fn new(rule: FlushPolicy) -> GateBatcher<T> {
        GateBatcher { rule, waiting: VecDeque::new(), size: BatchSize::default() }
    }

    /// Adds an item of this size.
    pub fn push(&mut self, item: T, size: BatchSize, now: Instant) {
        self.size = self.size.with(size);
        self.waiting.push_back(Waiting { item, size, since: now });
    }

    /// Returns the time at which the next batch is due; `None` while none waits.
    pub fn due(&self) -> Option<Instant> {
        let oldest = self.waiting.front()?.since;
        Some(if self.size.reaches(self.rule.full) { oldest } else { oldest + self.rule.age })
    }

    /// Takes the next batch, if it is due.
    pub fn take(&mut self, now: Instant) -> Option<Vec<T>> {
        self.due().filter(|due| *due <= now)?;
        let (mut batch, mut size) = (Vec::new(), BatchSize::default());
        while let Some(next) = self.waiting.front()
            && (batch.is_empty() || size.with(next.size).is_within(self.rule.full))
        {
            size = size.with(next.size);
            batch.extend(self.waiting.pop_front().map(|waiting| waiting.item));
        }
        self.size.pictures -= size.pictures;
        self.size.bytes -= size.bytes;
        Some(batch)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::{collection::vec, prelude::*};

    use super::*;

    const RULE: FlushPolicy =
        FlushPolicy { full: BatchSize { pictures: 4, bytes: 1000 }, age: Duration::from_millis(5) };

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    /// Returns a size of which only the number of pictures matters.
    fn small(pictures: usize) -> BatchSize {
        BatchSize { pictures, bytes: pictures as u64 }
    }

    #[test]
    fn a_batch_goes_when_it_is_full_or_of_age() {
        let start = Instant::now();
        let mut batches = GateBatcher::new(RULE);
        assert_eq!((batches.due(), batches.take(start)), (None, None));
        batches.push("a", small(1), start);
        batches.push("b", small(1), start + ms(3));
        assert_eq!(batches.take(start + ms(4)), None, "neither full nor of age");
        assert_eq!(batches.due(), Some(start + ms(5)));
        assert_eq!(batches.take(start + ms(5)), Some(vec!["a", "b"]), "the younger goes with it");
        batches.push("c", small(3), start + ms(6));
        batches.push("d", small(2), start + ms(6));
        assert_eq!(batches.take(start + ms(6)), Some(vec!["c"]), "full at once");
        assert_eq!(batches.take(start + ms(6)), None);
        assert_eq!(batches.take(start + ms(11)), Some(vec!["d"]));
        batches.push("wide", small(9), start);
        assert_eq!(batches.take(start), Some(vec!["wide"]), "more than a batch goes whole");
    }

    #[test]
    fn a_batch_of_few_large_pictures_is_full_too() {
        let start = Instant::now();
        let mut batches = GateBatcher::new(RULE);
        let large = |bytes| BatchSize { pictures: 1, bytes };
        batches.push("a", large(600), start);
        assert_eq!(batches.take(start), None);
        batches.push("b", large(600), start);
        batches.push("c", large(300), start);
        assert_eq!(batches.take(start), Some(vec!["a"]), "with the next it would be too much");
        assert_eq!(batches.take(start), None, "not full any more");
        batches.push("vast", large(5000), start);
        assert_eq!(batches.take(start), Some(vec!["b", "c"]));
        assert_eq!(batches.take(start), Some(vec!["vast"]), "more than a batch goes alone");
        assert_eq!(batches.size, BatchSize::default());
    }

    /// A unit of a session, which sends its next one only after this one is done.
    #[derive(Clone, Copy, Debug)]
    struct Arrival {
        session: u32,
        at_ms: u64,
        pictures: usize,
    }

    const SESSIONS: u32 = 6;
    const PICTURES_MAX: usize = 3;

    fn arrivals() -> impl Strategy<Value = Vec<Arrival>> {
        let arrival = (0..SESSIONS, 0..40_u64, 1..=PICTURES_MAX);
        vec(arrival, 0..120).prop_map(|steps| {
            let mut at_ms = 0;
            let mut arrivals = Vec::new();
            for (session, step, pictures) in steps {
                // Bursts, with pauses between.
                at_ms += if step < 30 { step / 8 } else { step };
                arrivals.push(Arrival { session, at_ms, pictures });
            }
            arrivals
        })
    }

    /// Result of arrivals: (item, time of arrival, time of sending), and the number of arrivals left out
    /// because their session had a unit in progress.
    type Played = (Vec<(usize, Duration, Duration)>, usize);

    /// Plays arrivals against a device that takes `busy` milliseconds per batch.
    fn play(arrivals: &[Arrival], busy: u64) -> Played {
        let start = Instant::now();
        let mut batches = GateBatcher::new(RULE);
        let (mut gone, mut skipped) = (Vec::new(), 0);
        let (mut free_at, mut now) = (start, start);
        // Per session, the time until which its unit is in progress; `None` while the unit waits.
        let mut under_way: BTreeMap<u32, Option<Instant>> = BTreeMap::new();
        let mut next = arrivals.iter().enumerate().peekable();
        loop {
            let goes = batches.due().map(|due: Instant| due.max(free_at).max(now));
            let comes = next.peek().map(|(_, arrival)| start + ms(arrival.at_ms));
            match (goes, comes) {
                (None, None) => return (gone, skipped),
                (Some(goes), comes) if comes.is_none_or(|comes| goes < comes) => {
                    let batch: Vec<usize> = batches.take(goes).expect("due");
                    (now, free_at) = (goes, goes + ms(busy));
                    for item in batch {
                        under_way.insert(arrivals[item].session, Some(free_at));
                        gone.push((item, ms(arrivals[item].at_ms), goes - start));
                    }
                }
                _ => {
                    let Some((item, arrival)) = next.next() else { continue };
                    now = start + ms(arrival.at_ms);
                    let before = under_way.get(&arrival.session);
                    if before.is_some_and(|until| until.is_none_or(|until| now < until)) {
                        skipped += 1;
                        continue;
                    }
                    under_way.insert(arrival.session, None);
                    batches.push(item, small(arrival.pictures), now);
                }
            }
        }
    }

    proptest! {
        #[test]
        fn nothing_is_lost_reordered_or_kept_waiting(arrivals in arrivals(), busy in 0..20_u64) {
            let (gone, skipped) = play(&arrivals, busy);
            prop_assert_eq!(gone.len() + skipped, arrivals.len());
            // Holds for any sessions: batches keep the order of arrival, and so that of each session.
            prop_assert!(gone.windows(2).all(|pair| pair[0].0 < pair[1].0));
            for (_, came, went) in &gone {
                // In the worst case a unit of every session precedes it, each a batch of its own, and one is
                // on the device.
                let batches = u64::from(SESSIONS) + 1;
                prop_assert!(*went - *came <= RULE.age + ms(busy * batches));
                if busy == 0 {
                    prop_assert!(*went - *came <= RULE.age, "a free device takes what is of age");
                }
            }
        }

        #[test]
        fn a_silent_session_delays_nobody(at in vec(0..500_u64, 1..40), busy in 0..4_u64) {
            // A single session, whose batches no other fills.
            let mut at = at;
            at.sort_unstable();
            at.dedup_by_key(|at| *at / 10);
            let lone = |at_ms: &u64| Arrival { session: 0, at_ms: at_ms / 10 * 10, pictures: 1 };
            let (gone, skipped) = play(&at.iter().map(lone).collect::<Vec<_>>(), busy);
            prop_assert_eq!((gone.len(), skipped), (at.len(), 0));
            for (_, came, went) in gone {
                prop_assert_eq!(went - came, RULE.age);
            }
        }
    }
}
