//! Tickets: each opens the media of one run, for ten minutes, to a reader that cannot send an API key.
//!
//! Kept in memory as digests, with limits per principal and in total; a restart forgets them. The caller must
//! check that the run still exists.

use std::{
    collections::{HashMap, VecDeque},
    time::{Duration, Instant},
};

use media::RunId;
use parking_lot::Mutex;
use sha2::{Digest, Sha256};

use crate::base::{
    keys::Principal,
    owner_limit::{LimitScope, OwnerLimiter, OwnerPermit},
};

/// Lifetime of a ticket.
pub const LIFE: Duration = Duration::from_secs(600);
/// Maximum tickets in total: about 4 MiB.
pub const ALL_MAX: usize = 16_384;
/// Maximum tickets of one principal.
pub const OWN_MAX: usize = 1024;

#[derive(Default)]
pub struct Tickets(Mutex<Issued>);

type Hash = [u8; 32];

#[derive(Default)]
struct Issued {
    by_digest: HashMap<Hash, Ticket>,
    /// Digests of the tickets in order of expiry.
    order: VecDeque<Hash>,
    open: OwnerLimiter,
}

struct Ticket {
    run: RunId,
    permit: OwnerPermit,
    until: Instant,
}

impl Tickets {
    /// Issues a ticket for `run` of `owner`; fails with the limit that is reached.
    pub fn issue(&self, owner: &Principal, run: RunId, now: Instant) -> Result<String, LimitScope> {
        let mut issued = self.0.lock();
        issued.drop_ended(now);
        let permit = issued.open.enter(owner, ALL_MAX, OWN_MAX)?;
        let secret: [u8; 32] = crate::base::random_bytes();
        let ticket = format!("tk-{}", crate::base::hex(&secret));
        let digest = digest(&ticket);
        issued.order.push_back(digest);
        issued.by_digest.insert(digest, Ticket { run, permit, until: now + LIFE });
        Ok(ticket)
    }

    /// Returns the owner of `run` if `ticket` opens the run.
    pub fn owner(&self, ticket: &str, run: RunId, now: Instant) -> Option<Principal> {
        let issued = self.0.lock();
        // Looked up by digest, so that the timing reveals nothing about a ticket.
        let found = issued.by_digest.get(&digest(ticket))?;
        (found.run == run && found.until > now).then(|| found.permit.owner.clone())
    }
}

impl Issued {
    fn drop_ended(&mut self, now: Instant) {
        while let Some(digest) = self.order.front() {
            if self.by_digest.get(digest).is_some_and(|ticket| ticket.until > now) {
                return;
            }
            self.by_digest.remove(digest);
            self.order.pop_front();
        }
    }
}

fn digest(ticket: &str) -> Hash {
    Sha256::digest(ticket).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ticket_opens_its_run_until_it_ends() {
        let (tickets, start) = (Tickets::default(), Instant::now());
        let (alice, run) = (Principal::named("alice"), RunId::from_bytes([1; 16]));
        let ticket = tickets.issue(&alice, run, start).expect("room");
        let last = start + LIFE - Duration::from_nanos(1);
        let is_open = |ticket: &str, now| tickets.owner(ticket, run, now).as_ref() == Some(&alice);
        let open = [start, last, start + LIFE].map(|now| is_open(&ticket, now));
        assert_eq!(open, [true, true, false]);
        assert_eq!([is_open("", start), is_open(&ticket[..66], start)], [false; 2]);
    }

    #[test]
    fn tickets_are_bounded_and_ended_ones_leave_nothing() {
        let (tickets, start) = (Tickets::default(), Instant::now());
        let run = RunId::from_bytes([1; 16]);
        let mut made = 0;
        let owners = (0..).map(|number| Principal::named(&format!("owner-{number}")));
        for owner in owners.take(ALL_MAX / OWN_MAX + 1) {
            let issued = (0..OWN_MAX).filter(|_| tickets.issue(&owner, run, start).is_ok()).count();
            made += issued;
            let refused = tickets.issue(&owner, run, start).expect_err("no room");
            assert_eq!(refused, if made == ALL_MAX { LimitScope::All } else { LimitScope::Own });
        }
        assert_eq!(made, ALL_MAX);
        let later = start + LIFE;
        assert!(tickets.issue(&Principal::named("late"), run, later).is_ok());
        let issued = tickets.0.lock();
        assert_eq!((issued.by_digest.len(), issued.order.len(), issued.open.all()), (1, 1, 1));
    }
}
