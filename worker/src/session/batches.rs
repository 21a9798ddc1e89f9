//! When pictures of all sessions go to the device, by size or by age. Pure.
//!
//! A batch goes when it is full or when its oldest picture is of age, whoever else may still send: a
//! session that sends none delays nobody. Pictures leave in the order in which they came, so none
//! starves, none is lost and those of a session keep their order.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

/// When a batch goes, and how much may wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rule {
    /// Pictures that make a batch full; a unit of more of them goes whole.
    pub pictures: usize,
    /// Longest time for which a picture waits for others.
    pub age: Duration,
    /// Pictures that may wait, while the device is at a batch.
    pub waiting: usize,
}

/// What waits for the device.
pub(super) struct Batches<T> {
    rule: Rule,
    waiting: VecDeque<Waiting<T>>,
    pictures: usize,
}

struct Waiting<T> {
    item: T,
    pictures: usize,
    since: Instant,
}

impl<T> Batches<T> {
    pub fn new(rule: Rule) -> Batches<T> {
        Batches { rule, waiting: VecDeque::new(), pictures: 0 }
    }

    /// Adds an item of so many pictures, or gives it back where too many wait.
    pub fn push(&mut self, item: T, pictures: usize, now: Instant) -> Result<(), T> {
        if self.pictures + pictures > self.rule.waiting {
            return Err(item);
        }
        self.pictures += pictures;
        self.waiting.push_back(Waiting { item, pictures, since: now });
        Ok(())
    }

    /// From when on the next batch goes; `None` while nothing waits.
    pub fn due(&self) -> Option<Instant> {
        let oldest = self.waiting.front()?.since;
        Some(if self.pictures >= self.rule.pictures { oldest } else { oldest + self.rule.age })
    }

    /// The next batch, if it is due.
    pub fn take(&mut self, now: Instant) -> Option<Vec<T>> {
        self.due().filter(|due| *due <= now)?;
        let (mut batch, mut pictures) = (Vec::new(), 0);
        while let Some(next) = self.waiting.front()
            && (batch.is_empty() || pictures + next.pictures <= self.rule.pictures)
        {
            pictures += next.pictures;
            batch.extend(self.waiting.pop_front().map(|waiting| waiting.item));
        }
        self.pictures -= pictures;
        Some(batch)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::{collection::vec, prelude::*};

    use super::*;

    const RULE: Rule = Rule { pictures: 4, age: Duration::from_millis(5), waiting: 12 };

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn a_batch_goes_when_it_is_full_or_of_age() {
        let start = Instant::now();
        let mut batches = Batches::new(RULE);
        assert_eq!((batches.due(), batches.take(start)), (None, None));
        batches.push("a", 1, start).expect("room");
        batches.push("b", 1, start + ms(3)).expect("room");
        assert_eq!(batches.take(start + ms(4)), None, "neither full nor of age");
        assert_eq!(batches.due(), Some(start + ms(5)));
        assert_eq!(batches.take(start + ms(5)), Some(vec!["a", "b"]), "the younger goes with it");
        batches.push("c", 3, start + ms(6)).expect("room");
        batches.push("d", 2, start + ms(6)).expect("room");
        assert_eq!(batches.take(start + ms(6)), Some(vec!["c"]), "full at once");
        assert_eq!(batches.take(start + ms(6)), None);
        assert_eq!(batches.take(start + ms(11)), Some(vec!["d"]));
        batches.push("wide", 9, start).expect("room");
        assert_eq!(batches.push("too many", 4, start), Err("too many"));
        assert_eq!(batches.take(start), Some(vec!["wide"]), "more than a batch goes whole");
    }

    /// One unit of a session at most is under way, as the server sends the next when it is told so.
    #[derive(Clone, Copy, Debug)]
    struct Arrival {
        session: u32,
        at_ms: u64,
        pictures: usize,
    }

    fn arrivals() -> impl Strategy<Value = Vec<Arrival>> {
        let arrival = (0..6_u32, 0..40_u64, 1..4_usize);
        vec(arrival, 0..120).prop_map(|steps| {
            let mut at_ms = 0;
            let mut arrivals = Vec::new();
            for (session, step, pictures) in steps {
                // Bursts, and silence now and then.
                at_ms += if step < 30 { step / 8 } else { step };
                arrivals.push(Arrival { session, at_ms, pictures });
            }
            arrivals
        })
    }

    /// Plays arrivals against a device that takes `busy` milliseconds a batch; (item, when it came,
    /// when it went, when the device was free before).
    fn play(arrivals: &[Arrival], busy: u64) -> (Vec<(usize, Duration, Duration)>, usize) {
        let start = Instant::now();
        let mut batches = Batches::new(RULE);
        let (mut gone, mut refused) = (Vec::new(), 0);
        let (mut free_at, mut now) = (start, start);
        let mut next = arrivals.iter().enumerate().peekable();
        loop {
            let goes = batches.due().map(|due: Instant| due.max(free_at).max(now));
            let comes = next.peek().map(|(_, arrival)| start + ms(arrival.at_ms));
            match (goes, comes) {
                (None, None) => return (gone, refused),
                (Some(goes), comes) if comes.is_none_or(|comes| goes < comes) => {
                    let batch: Vec<usize> = batches.take(goes).expect("due");
                    let came = |item: usize| ms(arrivals[item].at_ms);
                    gone.extend(batch.into_iter().map(|item| (item, came(item), goes - start)));
                    (now, free_at) = (goes, goes + ms(busy));
                }
                _ => {
                    let Some((item, arrival)) = next.next() else { continue };
                    now = start + ms(arrival.at_ms);
                    refused += usize::from(batches.push(item, arrival.pictures, now).is_err());
                }
            }
        }
    }

    proptest! {
        #[test]
        fn nothing_is_lost_reordered_or_kept_waiting(arrivals in arrivals(), busy in 0..20_u64) {
            let (gone, refused) = play(&arrivals, busy);
            prop_assert_eq!(gone.len() + refused, arrivals.len());
            // Whatever the sessions: in the order of arrival, so in that of each session too.
            prop_assert!(gone.windows(2).all(|pair| pair[0].0 < pair[1].0));
            let mut latest = BTreeMap::new();
            for (item, came, went) in &gone {
                let before = latest.insert(arrivals[*item].session, *item);
                prop_assert!(before.is_none_or(|before| before < *item));
                // At worst all that may wait is before it, in batches of which none but the last may be
                // less than half full.
                let batches = (RULE.waiting / (RULE.pictures / 2)) as u64;
                prop_assert!(*went - *came <= RULE.age + ms(busy * (batches + 1)));
                if busy == 0 {
                    prop_assert!(*went - *came <= RULE.age, "a free device takes what is of age");
                }
            }
        }

        #[test]
        fn a_silent_session_delays_nobody(at in vec(0..500_u64, 1..40), busy in 0..4_u64) {
            // One session alone, which no other fills a batch for.
            let mut at = at;
            at.sort_unstable();
            at.dedup_by_key(|at| *at / 10);
            let lone = |at_ms: &u64| Arrival { session: 0, at_ms: at_ms / 10 * 10, pictures: 1 };
            let (gone, refused) = play(&at.iter().map(lone).collect::<Vec<_>>(), busy);
            prop_assert_eq!((gone.len(), refused), (at.len(), 0));
            for (_, came, went) in gone {
                prop_assert_eq!(went - came, RULE.age);
            }
        }
    }
}
