//! ICE-lite agent (RFC 8445 2.5): answers checks, learns addresses, follows nominations.
//!
//! Promises that an address is learned only from an authenticated request, that at most eight are kept, and
//! that a restart keeps the old pair until the peer nominates a new one. Sends no checks, so the peer's
//! consent (RFC 7675) shows in its own checks and media.

use aws_lc_rs::hmac;

use super::{sdp_answer::IceCredentials, socket::CandidatePair, stun::BindingRequest};

/// Most addresses of one peer: hosts with four interfaces in both families.
pub(super) const ADDRESSES_MAX: usize = 8;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum CheckOutcome {
    /// Not signed with a known password: no reply, nothing learned.
    Unauthenticated,
    /// Authenticated, but rejected with an error response.
    Refused,
    /// Authenticated. `forgot`: the pair evicted for this one. `retired`: the user fragment that becomes invalid
    /// because the peer nominated a pair with the new credentials.
    Accepted { forgot: Option<CandidatePair>, retired: Option<String> },
}

/// One generation of the server's credentials.
struct Generation {
    ufrag: String,
    key: hmac::Key,
}

impl Generation {
    fn new(local: &IceCredentials) -> Generation {
        Generation {
            ufrag: local.ufrag.clone(),
            key: hmac::Key::new(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, local.pwd.as_bytes()),
        }
    }
}

pub(super) struct IceAgent {
    current: Generation,
    previous: Option<Generation>,
    /// Learned pairs, the least recently checked first.
    pairs: Vec<CandidatePair>,
    nominated: Option<CandidatePair>,
}

impl IceAgent {
    pub(super) fn new(local: &IceCredentials) -> IceAgent {
        IceAgent {
            current: Generation::new(local),
            previous: None,
            pairs: Vec::new(),
            nominated: None,
        }
    }

    /// Returns the user fragments that requests may name, the current one first.
    pub(super) fn ufrags(&self) -> impl Iterator<Item = &str> {
        std::iter::once(&self.current).chain(&self.previous).map(|one| one.ufrag.as_str())
    }

    /// Sets new credentials; returns the user fragment that requests may not name from here on.
    pub(super) fn restart(&mut self, local: &IceCredentials) -> Option<String> {
        let old = std::mem::replace(&mut self.current, Generation::new(local));
        self.previous.replace(old).map(|older| older.ufrag)
    }

    /// Returns the pair for the peer's media and feedback.
    pub(super) fn selected_pair(&self) -> Option<CandidatePair> {
        self.nominated.or_else(|| self.pairs.last().copied())
    }

    pub(super) fn pairs(&self) -> &[CandidatePair] {
        &self.pairs
    }

    /// Answers one request into `out`.
    pub(super) fn check(
        &mut self,
        request: &BindingRequest<'_>,
        pair: CandidatePair,
        out: &mut Vec<u8>,
    ) -> CheckOutcome {
        let Some((ours, _)) = request.users() else { return CheckOutcome::Unauthenticated };
        let mut generations = std::iter::once(&self.current).chain(&self.previous);
        let Some(generation) = generations.find(|generation| generation.ufrag == ours) else {
            return CheckOutcome::Unauthenticated;
        };
        if !request.is_signed_with(&generation.key) {
            return CheckOutcome::Unauthenticated;
        }
        if let Some(unknown) = request.unknown {
            request.refuse_attribute(unknown, &generation.key, out);
            return CheckOutcome::Refused;
        }
        // A lite agent is always the controlled one.
        if request.controlled {
            request.refuse_role(&generation.key, out);
            return CheckOutcome::Refused;
        }
        request.accept(pair.remote, &generation.key, out);
        let is_current = std::ptr::eq(generation, &self.current);
        let (forgot, mut retired) = (self.add_peer_reflexive(pair), None);
        if request.nominates && (is_current || self.nominated.is_none()) {
            self.nominated = Some(pair);
            if is_current {
                retired = self.previous.take().map(|previous| previous.ufrag);
            }
        }
        CheckOutcome::Accepted { forgot, retired }
    }

    /// Moves a pair to the end or adds it; if full, evicts the least recently checked but the nominated.
    fn add_peer_reflexive(&mut self, pair: CandidatePair) -> Option<CandidatePair> {
        let mut forgot = None;
        if let Some(at) = self.pairs.iter().position(|known| known.remote == pair.remote) {
            self.pairs.remove(at);
        } else if self.pairs.len() == ADDRESSES_MAX {
            let nominated = self.nominated.map(|pair| pair.remote);
            let stale = self.pairs.iter().position(|pair| Some(pair.remote) != nominated);
            forgot = stale.map(|at| self.pairs.remove(at));
        }
        self.pairs.push(pair);
        forgot
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::webrtc::stun::tests::{CONTROLLED, CONTROLLING, NOMINATE, check, response};

    fn pair(port: u16) -> CandidatePair {
        CandidatePair { remote: ([192, 0, 2, 1], port).into(), local: None }
    }

    fn credentials(ufrag: &str) -> IceCredentials {
        IceCredentials { ufrag: ufrag.to_owned(), pwd: format!("{ufrag} password") }
    }

    fn offer(agent: &mut IceAgent, bytes: &[u8], port: u16) -> (CheckOutcome, Vec<u8>) {
        let mut out = Vec::new();
        let request = BindingRequest::parse(bytes).expect("a check");
        (agent.check(&request, pair(port), &mut out), out)
    }

    const ACCEPTED: CheckOutcome = CheckOutcome::Accepted { forgot: None, retired: None };

    #[test]
    fn checks_are_answered_and_the_nominated_pair_is_used() {
        let mut agent = IceAgent::new(&credentials("ours"));
        assert_eq!(agent.selected_pair(), None);
        let plain = check("ours:theirs", "ours password", &[CONTROLLING]);
        let nominating = check("ours:theirs", "ours password", &[CONTROLLING, NOMINATE]);
        let (checked, out) = offer(&mut agent, &plain, 1);
        assert_eq!(checked, ACCEPTED);
        let seen = response(&out, "ours password");
        assert_eq!(seen.0, Some(pair(1).remote));
        assert_eq!(agent.selected_pair(), Some(pair(1)), "media may come before a nomination");
        assert_eq!(offer(&mut agent, &nominating, 2).0, ACCEPTED);
        assert_eq!(offer(&mut agent, &plain, 1).0, ACCEPTED);
        assert_eq!(agent.selected_pair(), Some(pair(2)));
        assert_eq!(offer(&mut agent, &nominating, 1).0, ACCEPTED, "a peer may nominate again");
        assert_eq!(agent.selected_pair(), Some(pair(1)));
        assert_eq!(agent.pairs(), [pair(2), pair(1)], "each is learned once");
    }

    #[test]
    fn what_is_not_authentic_teaches_nothing() {
        let mut agent = IceAgent::new(&credentials("ours"));
        for (name, bytes) in [
            ("another password", check("ours:theirs", "guess", &[CONTROLLING])),
            ("another user", check("other:theirs", "ours password", &[CONTROLLING])),
            ("no colon", check("ours", "ours password", &[CONTROLLING])),
        ] {
            let (checked, out) = offer(&mut agent, &bytes, 1);
            assert_eq!((checked, out.len()), (CheckOutcome::Unauthenticated, 0), "{name}");
        }
        let conflict = check("ours:theirs", "ours password", &[CONTROLLED]);
        let (checked, out) = offer(&mut agent, &conflict, 1);
        assert_eq!((checked, response(&out, "ours password").1), (CheckOutcome::Refused, 487));
        let strange = check("ours:theirs", "ours password", &[(0x0033, b"x")]);
        let (checked, out) = offer(&mut agent, &strange, 1);
        assert_eq!((checked, response(&out, "ours password").1), (CheckOutcome::Refused, 420));
        assert_eq!(agent.pairs(), []);
    }

    #[test]
    fn the_old_pair_lives_until_the_restart_nominates() {
        let mut agent = IceAgent::new(&credentials("one"));
        let old = check("one:theirs", "one password", &[NOMINATE]);
        offer(&mut agent, &old, 1);
        assert_eq!(agent.restart(&credentials("two")), None);
        assert_eq!(agent.ufrags().collect::<Vec<_>>(), ["two", "one"]);
        assert_eq!(offer(&mut agent, &old, 1).0, ACCEPTED, "consent goes on for the old pair");
        let plain = check("two:new", "two password", &[]);
        assert_eq!(offer(&mut agent, &plain, 2).0, ACCEPTED);
        assert_eq!(agent.selected_pair(), Some(pair(1)));
        let nominating = check("two:new", "two password", &[NOMINATE]);
        let retired = Some("one".to_owned());
        let expected = CheckOutcome::Accepted { forgot: None, retired };
        assert_eq!(offer(&mut agent, &nominating, 2).0, expected);
        assert_eq!(agent.selected_pair(), Some(pair(2)));
        assert_eq!(offer(&mut agent, &old, 1).0, CheckOutcome::Unauthenticated);

        assert_eq!(agent.restart(&credentials("three")), None);
        let retired = agent.restart(&credentials("four"));
        assert_eq!(retired.as_deref(), Some("two"), "one old generation is kept, not more");
    }

    #[test]
    fn the_ninth_address_takes_the_place_of_the_one_checked_longest_ago() {
        let mut agent = IceAgent::new(&credentials("ours"));
        let plain = check("ours:theirs", "ours password", &[]);
        offer(&mut agent, &check("ours:theirs", "ours password", &[NOMINATE]), 1);
        for port in 2..=8 {
            assert_eq!(offer(&mut agent, &plain, port).0, ACCEPTED);
        }
        let (checked, ..) = offer(&mut agent, &plain, 9);
        let expected = CheckOutcome::Accepted { forgot: Some(pair(2)), retired: None };
        assert_eq!(checked, expected, "the nominated one stays");
        assert_eq!(agent.pairs().len(), ADDRESSES_MAX);
    }

    proptest! {
        #[test]
        fn an_agent_keeps_its_bounds(steps in proptest::collection::vec((0u16..20, 0u8..6), 0..80)) {
            let mut agent = IceAgent::new(&credentials("u0"));
            let mut generation = 0;
            for (port, step) in steps {
                let user = format!("u{generation}");
                let password = format!("{user} password");
                let bytes = match step {
                    0 => check(&format!("{user}:x"), "wrong", &[NOMINATE]),
                    1 => check(&format!("{user}:x"), &password, &[NOMINATE]),
                    2 => check(&format!("{user}:x"), &password, &[CONTROLLED]),
                    3 => {
                        generation += 1;
                        agent.restart(&credentials(&format!("u{generation}")));
                        continue;
                    }
                    _ => check(&format!("{user}:x"), &password, &[CONTROLLING]),
                };
                let before = agent.pairs().to_vec();
                let (checked, ..) = offer(&mut agent, &bytes, port);
                prop_assert!(agent.pairs().len() <= ADDRESSES_MAX);
                match checked {
                    CheckOutcome::Accepted { .. } => {
                        prop_assert_eq!(agent.pairs().last(), Some(&pair(port)));
                    }
                    _ => prop_assert_eq!(agent.pairs(), &before[..]),
                }
                if let Some(selected) = agent.selected_pair() {
                    prop_assert!(agent.pairs().contains(&selected));
                }
            }
        }
    }
}
