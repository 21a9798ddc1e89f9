//! Tickets: each opens the media of one run, for ten minutes, to a reader that cannot send an API key.
//!
//! Kept in memory as digests, with limits per principal and in total; a restart forgets them. The caller must
//! check that the run still exists.

use std::{
    collections::HashMap,
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
pub struct Tickets {
    /// Tickets by digest; ended ones make room once a limit is reached.
    issued: Mutex<HashMap<Hash, Ticket>>,
    open: OwnerLimiter,
}

type Hash = [u8; 32];

struct Ticket {
    run: RunId,
    permit: OwnerPermit,
    until: Instant,
}

impl Tickets {
    /// Issues a ticket for `run` of `owner`; fails with the limit that is reached.
    pub fn issue(&self, owner: &Principal, run: RunId, now: Instant) -> Result<String, LimitScope> {
        let mut issued = self.issued.lock();
        let enter = || self.open.enter(owner, ALL_MAX, OWN_MAX);
        let permit = enter().or_else(|_| {
            issued.retain(|_, ticket| ticket.until > now);
            enter()
        })?;
        let secret: [u8; 32] = crate::base::random_bytes();
        let ticket = format!("tk-{}", crate::base::hex(&secret));
        issued.insert(digest(&ticket), Ticket { run, permit, until: now + LIFE });
        Ok(ticket)
    }

    /// Returns the owner of `run` if `ticket` opens the run.
    pub fn owner(&self, ticket: &str, run: RunId, now: Instant) -> Option<Principal> {
        let issued = self.issued.lock();
        // Looked up by digest, so that the timing reveals nothing about a ticket.
        let found = issued.get(&digest(ticket))?;
        (found.run == run && found.until > now).then(|| found.permit.owner.clone())
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
            let is_issued = |_: &usize| tickets.issue(&owner, run, start).is_ok();
            let issued = (0..OWN_MAX).take_while(is_issued).count();
            made += issued;
            let refused = tickets.issue(&owner, run, start).expect_err("no room");
            assert_eq!(refused, if made == ALL_MAX { LimitScope::All } else { LimitScope::Own });
        }
        assert_eq!(made, ALL_MAX);
        let later = start + LIFE;
        assert!(tickets.issue(&Principal::named("late"), run, later).is_ok());
        assert_eq!((tickets.issued.lock().len(), tickets.open.all()), (1, 1));
    }
}
