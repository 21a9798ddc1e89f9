//! Token budget of each principal for a UTC day: spent, reserved and left.
//!
//! Every request is reserved for before it is sent. It goes where its estimate fits in what is left
//! of the day; beside others only where all of them fit that cost [`COST_MAX`] times as estimated.
//! So a day's limit is passed by one request at most, by what that one costs over its estimate.

use std::{collections::HashMap, sync::Arc};

use super::AdmissionError;

/// Most that a request can cost, as a multiple of its estimate: a token of text may be one byte
/// where three are expected, and a picture several times the usual.
pub(super) const COST_MAX: u64 = 4;

/// Use of a day's token budget by a principal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DailyUsage {
    /// The principal.
    pub principal: Arc<str>,
    /// The day.
    pub day: u64,
    /// Tokens spent.
    pub used: u64,
    /// Tokens set aside for requests in flight.
    pub reserved: u64,
    /// Tokens that may be spent.
    pub limit: u64,
}

impl DailyUsage {
    /// Nine tenths are spent or in flight.
    pub fn is_low(&self) -> bool {
        let taken = u128::from(self.used) + u128::from(self.reserved);
        taken * 10 >= u128::from(self.limit) * 9
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct PrincipalBudget {
    day: u64,
    used: u64,
    /// Estimates of what is in flight, on whatever day it began.
    reserved: u64,
}

impl PrincipalBudget {
    fn used_of(&self, day: u64) -> u64 {
        // A clock that is set back begins no new day.
        if self.day >= day { self.used } else { 0 }
    }
}

/// The budgets of all principals. A principal is a key of the configuration: there are few.
#[derive(Debug)]
pub(super) struct DailyBudgets {
    /// 0 is no limit.
    limit: u64,
    budgets: HashMap<Arc<str>, PrincipalBudget>,
}

impl DailyBudgets {
    pub(super) fn new(limit: u64) -> DailyBudgets {
        DailyBudgets { limit, budgets: HashMap::new() }
    }

    fn is_off(&self) -> bool {
        self.limit == 0
    }

    fn budget(&self, principal: &str) -> PrincipalBudget {
        self.budgets.get(principal).copied().unwrap_or_default()
    }

    /// Refuses what the day has no room for, whatever becomes of that in flight.
    pub(super) fn check(
        &self,
        principal: &str,
        day: u64,
        asked: u64,
    ) -> Result<(), AdmissionError> {
        let (used, limit) = (self.budget(principal).used_of(day), self.limit);
        let fits = self.is_off() || (used < limit && used.saturating_add(asked) <= limit);
        if fits { Ok(()) } else { Err(AdmissionError::DaySpent { used, asked, limit }) }
    }

    /// It fits beside what the principal has in flight.
    pub(super) fn has_room(&self, principal: &str, day: u64, asked: u64) -> bool {
        let budget = self.budget(principal);
        let together = budget.reserved.saturating_add(asked).saturating_mul(COST_MAX);
        let fits_beside = budget.used_of(day).saturating_add(together) <= self.limit;
        let is_alone = budget.reserved == 0;
        self.is_off() || (self.check(principal, day, asked).is_ok() && (is_alone || fits_beside))
    }

    /// Sets `asked` aside in place of `before`.
    pub(super) fn reserve(&mut self, principal: &Arc<str>, before: u64, asked: u64) {
        if !self.is_off() {
            let budget = self.budgets.entry(Arc::clone(principal)).or_default();
            budget.reserved = budget.reserved - before + asked;
        }
    }

    /// Turns what was reserved into what was spent; it counts on the day on which it is known.
    pub(super) fn commit(&mut self, principal: &Arc<str>, day: u64, reserved: u64, spent: u64) {
        if self.is_off() {
            return;
        }
        let budget = self.budgets.entry(Arc::clone(principal)).or_default();
        budget.reserved -= reserved;
        if budget.day < day {
            (budget.day, budget.used) = (day, 0);
        }
        budget.used = budget.used.saturating_add(spent);
    }

    /// Use of the budget of `day`, or of a later one where the clock was set back; `None` without a
    /// limit.
    pub(super) fn used(&self, principal: &Arc<str>, day: u64) -> Option<DailyUsage> {
        let (budget, limit) = (self.budget(principal), self.limit);
        (!self.is_off()).then(|| DailyUsage {
            principal: Arc::clone(principal),
            day: budget.day.max(day),
            used: budget.used_of(day),
            reserved: budget.reserved,
            limit,
        })
    }

    pub(super) fn restore(&mut self, principal: Arc<str>, day: u64, used: u64) {
        if !self.is_off() {
            self.budgets.insert(principal, PrincipalBudget { day, used, reserved: 0 });
        }
    }
}
