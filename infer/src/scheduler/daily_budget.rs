//! Token budget of each principal for a UTC day: used, reserved and left.
//!
//! Every attempt is reserved for before it is sent. An attempt is admitted alone if its estimate fits into
//! the rest of the day; beside others only if all of them fit at [`COST_MAX`] times their estimates. So the
//! daily limit is exceeded by one attempt at most, by its cost over its estimate.

use std::{collections::HashMap, sync::Arc};

use super::AdmissionError;

/// Highest cost of a request, as a multiple of its estimate: a token may be one byte of text where three are
/// estimated, and a picture several times the usual.
pub(super) const COST_MAX: u64 = 4;

/// Token usage of a principal on one day.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DailyUsage {
    /// The principal.
    pub principal: Arc<str>,
    /// Number of the UTC day.
    pub day: u64,
    /// Tokens used.
    pub used: u64,
    /// Tokens reserved for requests in flight.
    pub reserved: u64,
    /// Daily limit.
    pub limit: u64,
}

impl DailyUsage {
    /// Returns true if nine tenths are used or reserved.
    pub fn is_low(&self) -> bool {
        let taken = u128::from(self.used) + u128::from(self.reserved);
        taken * 10 >= u128::from(self.limit) * 9
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct PrincipalBudget {
    day: u64,
    used: u64,
}

impl PrincipalBudget {
    fn used_of(&self, day: u64) -> u64 {
        // A clock that is set back does not begin a new day.
        if self.day >= day { self.used } else { 0 }
    }
}

/// Budgets of all principals. A principal is a key of the configuration, so there are few.
#[derive(Debug)]
pub(super) struct DailyBudgets {
    /// Daily limit; 0 means none.
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

    /// Rejects a request that the day cannot hold, even if everything in flight cost nothing.
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

    /// Returns true if `asked` fits beside `reserved`, the estimates of the principal's requests in flight.
    pub(super) fn has_room(&self, principal: &str, day: u64, asked: u64, reserved: u64) -> bool {
        let together = reserved.saturating_add(asked).saturating_mul(COST_MAX);
        let used = self.budget(principal).used_of(day);
        let fits_beside = reserved == 0 || used.saturating_add(together) <= self.limit;
        self.is_off() || (self.check(principal, day, asked).is_ok() && fits_beside)
    }

    /// Charges `spent` tokens, which count for the day on which the cost is known.
    pub(super) fn commit(&mut self, principal: &Arc<str>, day: u64, spent: u64) {
        if self.is_off() {
            return;
        }
        let budget = self.budgets.entry(Arc::clone(principal)).or_default();
        if budget.day < day {
            (budget.day, budget.used) = (day, 0);
        }
        budget.used = budget.used.saturating_add(spent);
    }

    /// Returns the usage of `day`, or of a later day if the clock was set back; `None` without a limit.
    pub(super) fn used(&self, principal: &Arc<str>, day: u64, reserved: u64) -> Option<DailyUsage> {
        let (budget, limit) = (self.budget(principal), self.limit);
        (!self.is_off()).then(|| DailyUsage {
            principal: Arc::clone(principal),
            day: budget.day.max(day),
            used: budget.used_of(day),
            reserved,
            limit,
        })
    }

    pub(super) fn restore(&mut self, principal: Arc<str>, day: u64, used: u64) {
        if !self.is_off() {
            self.budgets.insert(principal, PrincipalBudget { day, used });
        }
    }
}
