//! Circuit breaker of a backend, with a state per principal: a value, time comes in.
//!
//! A question may be what a backend fails on. So five failures on end of one principal's asks have
//! that one leave it alone, and everybody only where another's ask fails too or nothing that was
//! asked can be the cause. After each pause there is one trial: one that fails doubles the pause,
//! one that succeeds ends it, and one that says nothing for as long as the longest pause is followed
//! by another. A trial of whoever failed more than once says nothing about the asks of others.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

#[cfg(test)]
mod tests;

/// Failures on end that open it.
const FAILURES_MAX: u32 = 5;
const PAUSE_FIRST: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(30);

/// A request that may go out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Admitted {
    payer: Arc<str>,
    /// It is the one that shows whether the backend is back; trials are numbered.
    trial: Option<u32>,
}

impl Admitted {
    /// Others may wait for what it shows.
    pub fn is_trial(&self) -> bool {
        self.trial.is_some()
    }
}

/// Reason that a request may not go out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shut {
    /// The backend is left alone until then.
    Paused(Instant),
    /// A trial is under way, and given up then.
    Tried(Instant),
}

/// Conclusion about the backend from a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shown {
    /// It works, whether or not the answer was of use.
    Works,
    /// It does not, at least for this question.
    Fails,
    /// It does not, whatever is asked.
    IsAway,
    /// Nothing: the request was given up too early to tell.
    Nothing,
}

/// Transition of the breaker after a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// State unchanged.
    None,
    /// The principal that asked leaves the backend alone; whether the others should is not known.
    Own,
    /// The backend is left alone by all.
    All,
    /// The backend may be asked by all again.
    Closed,
}

#[derive(Clone, Copy, Debug)]
struct Pause {
    until: Instant,
    length: Duration,
    /// The trial under way, and when it is given up.
    trial: Option<(u32, Instant)>,
}

impl Pause {
    fn new(now: Instant) -> Pause {
        Pause { until: now + PAUSE_FIRST, length: PAUSE_FIRST, trial: None }
    }

    /// Reason that no probe request may begin.
    fn shut(&self, now: Instant) -> Option<Shut> {
        match self.trial {
            Some((_, given_up)) if now < given_up => Some(Shut::Tried(given_up)),
            None if now < self.until => Some(Shut::Paused(self.until)),
            _ => None,
        }
    }

    fn is_trial(&self, admitted: &Admitted) -> bool {
        self.trial.is_some_and(|(number, _)| admitted.trial == Some(number))
    }

    fn fail(&mut self, now: Instant) {
        self.length = PAUSE_MAX.min(self.length * 2);
        (self.until, self.trial) = (now + self.length, None);
    }
}

/// Failures of one principal's requests since the last of them that was answered.
#[derive(Clone, Copy, Debug, Default)]
struct Own {
    failures: u32,
    pause: Option<Pause>,
}

/// Failures on end of everybody's asks.
#[derive(Clone, Debug, Default)]
struct Streak {
    /// Fewer than [`FAILURES_MAX`] where they are of several.
    failed: Vec<(Arc<str>, u32)>,
    is_away: bool,
}

impl Streak {
    fn add(&mut self, payer: &Arc<str>) {
        match self.failed.iter_mut().find(|(known, _)| known == payer) {
            Some((_, failures)) => *failures = failures.saturating_add(1),
            None => self.failed.push((Arc::clone(payer), 1)),
        }
    }

    fn opens(&self) -> bool {
        let failures = self.failed.iter().fold(0, |sum: u32, (_, one)| sum.saturating_add(*one));
        failures >= FAILURES_MAX && (self.is_away || self.failed.len() > 1)
    }

    /// Principals whose questions it may fail on, where nothing shows that it is away: one failure
    /// may be of the kind that others met.
    fn suspects(&self) -> Vec<Arc<str>> {
        let failed = self.failed.iter().filter(|(_, failures)| *failures > 1 && !self.is_away);
        failed.map(|(payer, _)| Arc::clone(payer)).collect()
    }
}

/// A pause for everybody.
#[derive(Clone, Debug)]
struct Open {
    pause: Pause,
    /// Principals whose probe requests say nothing about those of others.
    suspects: Vec<Arc<str>>,
}

/// Circuit breaker of one backend.
#[derive(Clone, Debug, Default)]
pub(crate) struct Breaker {
    /// No more than there are principals.
    own: BTreeMap<Arc<str>, Own>,
    streak: Streak,
    open: Option<Open>,
    trials: u32,
}

impl Breaker {
    /// Reason that a request of `payer` would not be admitted.
    pub fn shut(&self, payer: &str, now: Instant) -> Option<Shut> {
        let own = self.own.get(payer).and_then(|own| own.pause?.shut(now));
        let all = self.open.as_ref().and_then(|open| open.pause.shut(now));
        match (own, all) {
            // What a trial shows is of no use before its pause is over.
            (Some(Shut::Paused(own)), Some(Shut::Paused(all))) => Some(Shut::Paused(own.max(all))),
            (Some(Shut::Tried(own)), Some(Shut::Tried(all))) => Some(Shut::Tried(own.max(all))),
            (Some(paused @ Shut::Paused(_)), _) | (_, Some(paused @ Shut::Paused(_))) => {
                Some(paused)
            }
            (tried, None) | (None, tried) => tried,
        }
    }

    /// Admits a request of `payer`. Each admission is followed by one `record`.
    pub fn admit(&mut self, payer: &Arc<str>, now: Instant) -> Result<Admitted, Shut> {
        if let Some(shut) = self.shut(payer, now) {
            return Err(shut);
        }
        let own = self.own.get_mut(payer).and_then(|own| own.pause.as_mut());
        let mut pauses = [own, self.open.as_mut().map(|open| &mut open.pause)];
        let is_trial = pauses.iter().any(Option::is_some);
        if is_trial {
            self.trials = self.trials.wrapping_add(1);
        }
        for pause in pauses.iter_mut().flatten() {
            // Its own time may be minutes, and the backend may be back long before.
            pause.trial = Some((self.trials, now + PAUSE_MAX));
        }
        Ok(Admitted { payer: Arc::clone(payer), trial: is_trial.then_some(self.trials) })
    }

    /// Takes in what an admitted request showed.
    pub fn record(&mut self, admitted: &Admitted, shown: Shown, now: Instant) -> Turn {
        match shown {
            Shown::Works => {
                self.own.remove(&admitted.payer);
                self.streak = Streak::default();
                if self.open.take().is_some() { Turn::Closed } else { Turn::None }
            }
            Shown::Nothing => {
                let own = self.own.get_mut(&admitted.payer).and_then(|own| own.pause.as_mut());
                let all = self.open.as_mut().map(|open| &mut open.pause);
                for pause in [own, all].into_iter().flatten() {
                    pause.trial.take_if(|(number, _)| admitted.trial == Some(*number));
                }
                Turn::None
            }
            Shown::Fails | Shown::IsAway => {
                let own = self.fail_own(admitted, now);
                let all = self.fail_all(admitted, shown == Shown::IsAway, now);
                if all == Turn::None { own } else { all }
            }
        }
    }

    /// The backend does not work, whatever is asked: so says a probe. Where an ask has shown since that
    /// it does, that stands.
    pub fn is_away(&mut self, now: Instant) -> Turn {
        if self.streak.failed.is_empty() {
            return Turn::None;
        }
        self.streak.is_away = true;
        if self.open.is_none() { self.open_to_all(now) } else { Turn::None }
    }

    fn fail_own(&mut self, admitted: &Admitted, now: Instant) -> Turn {
        let own = self.own.entry(Arc::clone(&admitted.payer)).or_default();
        match &mut own.pause {
            None => {
                own.failures = own.failures.saturating_add(1);
                if own.failures >= FAILURES_MAX {
                    own.pause = Some(Pause::new(now));
                    return Turn::Own;
                }
            }
            Some(pause) if pause.is_trial(admitted) => pause.fail(now),
            // It was under way when the pause began, or was given up, and says nothing new.
            Some(_) => {}
        }
        Turn::None
    }

    fn fail_all(&mut self, admitted: &Admitted, is_away: bool, now: Instant) -> Turn {
        match &mut self.open {
            None => {
                self.streak.add(&admitted.payer);
                self.streak.is_away |= is_away;
                return self.open_to_all(now);
            }
            Some(Open { pause, suspects }) if pause.is_trial(admitted) => {
                if suspects.contains(&admitted.payer) && !is_away {
                    pause.trial = None;
                } else {
                    pause.fail(now);
                }
            }
            Some(_) => {}
        }
        Turn::None
    }

    fn open_to_all(&mut self, now: Instant) -> Turn {
        if !self.streak.opens() {
            return Turn::None;
        }
        let suspects = self.streak.suspects();
        for suspect in &suspects {
            let own = self.own.entry(Arc::clone(suspect)).or_default();
            let pause = own.pause.get_or_insert_with(|| Pause::new(now));
            // Others go first.
            pause.until = pause.until.max(now + PAUSE_FIRST * 2);
        }
        self.streak = Streak::default();
        self.open = Some(Open { pause: Pause::new(now), suspects });
        Turn::All
    }
}
