//! Timer queue of the sessions: one entry per session, ordered by time.

use std::{
    collections::{BTreeSet, HashMap},
    time::Instant,
};

/// Entries by time and by session.
#[derive(Debug, Default)]
pub(super) struct TimerQueue {
    order: BTreeSet<(Instant, u64)>,
    armed: HashMap<u64, Instant>,
}

impl TimerQueue {
    /// Ensures that `id` is due no later than `at`. An earlier entry stays: an early poll costs less than
    /// moving the entry with every packet.
    pub(super) fn arm(&mut self, id: u64, at: Instant) {
        if self.armed.get(&id).is_some_and(|armed| *armed <= at) {
            return;
        }
        self.disarm(id);
        self.order.insert((at, id));
        self.armed.insert(id, at);
    }

    pub(super) fn disarm(&mut self, id: u64) {
        if let Some(at) = self.armed.remove(&id) {
            self.order.remove(&(at, id));
        }
    }

    pub(super) fn next(&self) -> Option<Instant> {
        self.order.first().map(|(at, _)| *at)
    }

    /// Removes and returns a session that is due.
    pub(super) fn due(&mut self, now: Instant) -> Option<u64> {
        let (at, id) = *self.order.first()?;
        if at > now {
            return None;
        }
        self.disarm(id);
        Some(id)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn sessions_come_due_in_order_and_once() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut timers = TimerQueue::default();
        timers.arm(1, at(30));
        timers.arm(2, at(20));
        timers.arm(1, at(10));
        timers.arm(2, at(40));
        timers.arm(3, at(5));
        timers.disarm(3);
        assert_eq!(timers.next(), Some(at(10)));
        assert_eq!(timers.due(at(9)), None);
        assert_eq!(
            (timers.due(at(25)), timers.due(at(25)), timers.due(at(25))),
            (Some(1), Some(2), None)
        );
        assert_eq!(timers.next(), None);
    }
}
