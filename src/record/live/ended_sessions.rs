//! Sessions that ended a short time ago, so that deleting one again succeeds. Reads no clock.

use std::{
    collections::{HashMap, VecDeque},
    time::{Duration, Instant},
};

use media::SessionId;

use crate::base::keys::Principal;

const REMEMBERED_FOR: Duration = Duration::from_secs(600);
const REMEMBERED_MAX: usize = 65_536;

#[derive(Default)]
pub struct EndedSessions {
    sessions: HashMap<SessionId, (Instant, Principal)>,
    /// Ends of those sessions, oldest first.
    ends: VecDeque<(Instant, SessionId)>,
}

impl EndedSessions {
    /// Adds the session `id` of `owner`, which ended at `now`; forgets old ones.
    pub fn add(&mut self, id: SessionId, owner: Principal, now: Instant) {
        while let Some(&(at, oldest)) = self.ends.front()
            && (self.ends.len() >= REMEMBERED_MAX || is_old(at, now))
        {
            self.ends.pop_front();
            self.sessions.remove(&oldest);
        }
        self.ends.push_back((now, id));
        self.sessions.insert(id, (now, owner));
    }

    pub fn has(&self, id: SessionId, owner: &Principal, now: Instant) -> bool {
        self.sessions.get(&id).is_some_and(|(at, whose)| whose == owner && !is_old(*at, now))
    }
}

fn is_old(at: Instant, now: Instant) -> bool {
    now.saturating_duration_since(at) >= REMEMBERED_FOR
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session(number: u64) -> SessionId {
        let mut id = [0; 16];
        id[..8].copy_from_slice(&number.to_le_bytes());
        SessionId::from_bytes(id)
    }

    #[test]
    fn an_ended_session_is_its_owners_for_ten_minutes() {
        let [alice, bob] = ["alice", "bob"].map(Principal::named);
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut ended = EndedSessions::default();
        ended.add(session(1), alice.clone(), start);
        for (id, owner, seconds, expected) in [
            (1, &alice, 599, true),
            (1, &bob, 0, false),
            (2, &alice, 0, false),
            (1, &alice, 600, false),
        ] {
            assert_eq!(ended.has(session(id), owner, at(seconds)), expected, "{id} at {seconds}");
        }
        ended.add(session(2), bob, at(600));
        assert_eq!((ended.sessions.len(), ended.ends.len()), (1, 1), "the first is forgotten");
    }

    #[test]
    fn beyond_the_limit_the_oldest_is_forgotten() {
        let (alice, now) = (Principal::named("alice"), Instant::now());
        let mut ended = EndedSessions::default();
        let most = REMEMBERED_MAX as u64;
        (0..=most).for_each(|number| ended.add(session(number), alice.clone(), now));
        assert_eq!((ended.sessions.len(), ended.ends.len()), (REMEMBERED_MAX, REMEMBERED_MAX));
        let found = [0, 1, most].map(|number| ended.has(session(number), &alice, now));
        assert_eq!(found, [false, true, true]);
    }
}
