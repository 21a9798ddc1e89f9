//! Circuit breaker of a backend, with a state per principal. Pure: callers pass `now`.
//!
//! The request itself may be the cause of a failure. Therefore five consecutive failures of one principal
//! open the breaker for that principal only; it opens for all if another principal's request fails too or no
//! request can be the cause. Each open period ends with one probe request: a failure doubles the period, a
//! success closes the breaker, and a probe without a result within the longest period is followed by another.
//! A probe of a principal that failed more than once says nothing about others.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

#[cfg(test)]
mod tests;

/// Consecutive failures that open the breaker.
const FAILURES_MAX: u32 = 5;
const OPEN_FIRST: Duration = Duration::from_secs(1);
const OPEN_MAX: Duration = Duration::from_secs(30);

/// Admission of one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BreakerTicket {
    pub principal: Arc<str>,
    /// Number of the half-open probe, if the request is one.
    probe: Option<u32>,
}

impl BreakerTicket {
    /// Returns true for a probe request, whose result others may wait for.
    pub fn is_probe(&self) -> bool {
        self.probe.is_some()
    }
}

/// State of a breaker that admits no request, in the order in which one outlasts another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum BreakerOpen {
    /// Half-open: a probe request is in flight and is given up at the instant.
    HalfOpen(Instant),
    /// Open until the instant.
    Open(Instant),
}

/// Signal about the backend from the end of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequestSignal {
    /// The backend works, even if the answer was unusable.
    Works,
    /// The backend failed, possibly because of this request.
    Fails,
    /// The backend failed independently of the request.
    IsAway,
    /// Unknown: the request was given up too early.
    Nothing,
}

/// Transition of the breaker after a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BreakerTransition {
    None,
    /// Opened for the principal of the request only.
    OpenForOne,
    OpenForAll,
    /// Closed for all.
    Closed,
}

#[derive(Clone, Copy, Debug)]
struct OpenPeriod {
    until: Instant,
    length: Duration,
    /// Number of the probe request in flight, and the instant at which it is given up.
    probe: Option<(u32, Instant)>,
}

impl OpenPeriod {
    fn new(now: Instant) -> OpenPeriod {
        OpenPeriod { until: now + OPEN_FIRST, length: OPEN_FIRST, probe: None }
    }

    /// Returns the state that blocks a probe request; `None` if one may begin.
    fn state(&self, now: Instant) -> Option<BreakerOpen> {
        match self.probe {
            Some((_, given_up)) if now < given_up => Some(BreakerOpen::HalfOpen(given_up)),
            None if now < self.until => Some(BreakerOpen::Open(self.until)),
            _ => None,
        }
    }

    fn is_probe(&self, ticket: &BreakerTicket) -> bool {
        self.probe.is_some_and(|(number, _)| ticket.probe == Some(number))
    }

    fn fail(&mut self, now: Instant) {
        self.length = OPEN_MAX.min(self.length * 2);
        (self.until, self.probe) = (now + self.length, None);
    }
}

/// Failures of one principal's requests since its last success.
#[derive(Clone, Copy, Debug, Default)]
struct PrincipalBreaker {
    failures: u32,
    period: Option<OpenPeriod>,
}

/// Consecutive failures over all principals.
#[derive(Clone, Debug, Default)]
struct FailureStreak {
    /// Failures per principal; below [`FAILURES_MAX`] in sum if several principals failed.
    failed: Vec<(Arc<str>, u32)>,
    is_away: bool,
}

impl FailureStreak {
    fn add(&mut self, principal: &Arc<str>) {
        match self.failed.iter_mut().find(|(known, _)| known == principal) {
            Some((_, failures)) => *failures = failures.saturating_add(1),
            None => self.failed.push((Arc::clone(principal), 1)),
        }
    }

    fn opens(&self) -> bool {
        let failures = self.failed.iter().fold(0, |sum: u32, (_, one)| sum.saturating_add(*one));
        failures >= FAILURES_MAX && (self.is_away || self.failed.len() > 1)
    }

    /// Returns the principals whose requests may be the cause: those with more than one failure, unless the
    /// backend is known to be away.
    fn suspects(&self) -> Vec<Arc<str>> {
        let failed = self.failed.iter().filter(|(_, failures)| *failures > 1 && !self.is_away);
        failed.map(|(principal, _)| Arc::clone(principal)).collect()
    }
}

/// Open period for all principals.
#[derive(Clone, Debug)]
struct OpenForAll {
    period: OpenPeriod,
    /// Principals whose probe requests say nothing about those of others.
    suspects: Vec<Arc<str>>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct CircuitBreaker {
    /// States of the principals that failed since their last success.
    own: BTreeMap<Arc<str>, PrincipalBreaker>,
    streak: FailureStreak,
    open: Option<OpenForAll>,
    probes: u32,
}

impl CircuitBreaker {
    /// Returns the state that blocks a request of `principal`; `None` if it would be admitted.
    pub fn state(&self, principal: &str, now: Instant) -> Option<BreakerOpen> {
        let own = self.own.get(principal).and_then(|own| own.period?.state(now));
        let all = self.open.as_ref().and_then(|open| open.period.state(now));
        // A probe result of one is useless before the open period of the other ends.
        own.max(all)
    }

    /// Admits a request of `principal`. Each admission must be followed by one `record`.
    pub fn admit(
        &mut self,
        principal: &Arc<str>,
        now: Instant,
    ) -> Result<BreakerTicket, BreakerOpen> {
        if let Some(open) = self.state(principal, now) {
            return Err(open);
        }
        let (number, mut probe) = (self.probes.wrapping_add(1), None);
        for period in self.periods(principal) {
            // The request's own timeout may be minutes, and the backend may recover long before.
            period.probe = Some((number, now + OPEN_MAX));
            probe = Some(number);
        }
        self.probes = probe.unwrap_or(self.probes);
        Ok(BreakerTicket { principal: Arc::clone(principal), probe })
    }

    /// Returns the open periods that concern a request of `principal`: its own, and that for all.
    fn periods(&mut self, principal: &str) -> impl Iterator<Item = &mut OpenPeriod> {
        let own = self.own.get_mut(principal).and_then(|own| own.period.as_mut());
        own.into_iter().chain(self.open.as_mut().map(|open| &mut open.period))
    }

    /// Records the signal of an admitted request.
    pub fn record(
        &mut self,
        ticket: &BreakerTicket,
        signal: RequestSignal,
        now: Instant,
    ) -> BreakerTransition {
        match signal {
            RequestSignal::Works => {
                self.own.remove(&ticket.principal);
                self.streak = FailureStreak::default();
                if self.open.take().is_some() {
                    BreakerTransition::Closed
                } else {
                    BreakerTransition::None
                }
            }
            RequestSignal::Nothing => {
                for period in self.periods(&ticket.principal) {
                    period.probe.take_if(|(number, _)| ticket.probe == Some(*number));
                }
                BreakerTransition::None
            }
            RequestSignal::Fails | RequestSignal::IsAway => {
                let own = self.fail_own(ticket, now);
                let all = self.fail_all(ticket, signal == RequestSignal::IsAway, now);
                if all == BreakerTransition::None { own } else { all }
            }
        }
    }

    /// Records that the backend failed to list its models; ignored if a request has succeeded since.
    pub fn mark_away(&mut self, now: Instant) -> BreakerTransition {
        if self.streak.failed.is_empty() {
            return BreakerTransition::None;
        }
        self.streak.is_away = true;
        if self.open.is_none() { self.open_to_all(now) } else { BreakerTransition::None }
    }

    fn fail_own(&mut self, ticket: &BreakerTicket, now: Instant) -> BreakerTransition {
        let own = self.own.entry(Arc::clone(&ticket.principal)).or_default();
        match &mut own.period {
            None => {
                own.failures = own.failures.saturating_add(1);
                if own.failures >= FAILURES_MAX {
                    own.period = Some(OpenPeriod::new(now));
                    return BreakerTransition::OpenForOne;
                }
            }
            Some(period) if period.is_probe(ticket) => period.fail(now),
            // The request was sent before the open period or was given up; it shows nothing new.
            Some(_) => {}
        }
        BreakerTransition::None
    }

    fn fail_all(
        &mut self,
        ticket: &BreakerTicket,
        is_away: bool,
        now: Instant,
    ) -> BreakerTransition {
        match &mut self.open {
            None => {
                self.streak.add(&ticket.principal);
                self.streak.is_away |= is_away;
                return self.open_to_all(now);
            }
            Some(OpenForAll { period, suspects }) if period.is_probe(ticket) => {
                if suspects.contains(&ticket.principal) && !is_away {
                    period.probe = None;
                } else {
                    period.fail(now);
                }
            }
            Some(_) => {}
        }
        BreakerTransition::None
    }

    fn open_to_all(&mut self, now: Instant) -> BreakerTransition {
        if !self.streak.opens() {
            return BreakerTransition::None;
        }
        let suspects = self.streak.suspects();
        for suspect in &suspects {
            let own = self.own.entry(Arc::clone(suspect)).or_default();
            let period = own.period.get_or_insert_with(|| OpenPeriod::new(now));
            // The probe requests of other principals go first.
            period.until = period.until.max(now + OPEN_FIRST * 2);
        }
        self.streak = FailureStreak::default();
        self.open = Some(OpenForAll { period: OpenPeriod::new(now), suspects });
        BreakerTransition::OpenForAll
    }
}
