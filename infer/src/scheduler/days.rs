//! What each principal has spent of a UTC day, and what it may still spend.
//!
//! A day ends when its tokens are spent. What is under way counts as its estimate: asks that could
//! pass the limit together wait for each other, and go one at a time when little is left. So the
//! last one of a day may pass the limit, by what it takes, and no estimate ends a day early.

use std::{collections::HashMap, sync::Arc};

use super::Refused;

/// What a principal has used of a day.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Use {
    /// Who.
    pub principal: Arc<str>,
    /// The day.
    pub day: u64,
    /// Tokens spent.
    pub used: u64,
    /// Tokens that may be.
    pub limit: u64,
}

impl Use {
    /// Nine tenths are spent.
    pub fn is_low(&self) -> bool {
        u128::from(self.used) * 10 >= u128::from(self.limit) * 9
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Account {
    day: u64,
    used: u64,
    /// Estimates of what is under way, on whatever day it began.
    reserved: u64,
}

/// The accounts of all principals. A principal is a key of the configuration: there are few.
#[derive(Debug)]
pub(super) struct Days {
    /// 0 is no limit.
    limit: u64,
    accounts: HashMap<Arc<str>, Account>,
}

impl Days {
    pub(super) fn new(limit: u64) -> Days {
        Days { limit, accounts: HashMap::new() }
    }

    fn is_off(&self) -> bool {
        self.limit == 0
    }

    /// Spent on `day`, and under way.
    fn used(&self, principal: &str, day: u64) -> (u64, u64) {
        let account = self.accounts.get(principal).copied().unwrap_or_default();
        (if account.day >= day { account.used } else { 0 }, account.reserved)
    }

    /// Refuses what comes when the day's tokens are spent.
    pub(super) fn check(&self, principal: &str, day: u64) -> Result<(), Refused> {
        let (used, limit) = (self.used(principal, day).0, self.limit);
        if self.is_off() || used < limit { Ok(()) } else { Err(Refused::DaySpent { used, limit }) }
    }

    /// It fits beside what the principal has under way, or there is nothing that it could stand
    /// beside.
    pub(super) fn has_room(&self, principal: &str, day: u64, asked: u64) -> bool {
        let (used, reserved) = self.used(principal, day);
        let together = used.saturating_add(reserved).saturating_add(asked);
        self.is_off() || together <= self.limit || (reserved == 0 && used < self.limit)
    }

    pub(super) fn reserve(&mut self, principal: &Arc<str>, asked: u64) {
        if !self.is_off() {
            self.accounts.entry(Arc::clone(principal)).or_default().reserved += asked;
        }
    }

    /// Turns an estimate into what was spent; it counts on the day on which it is known.
    pub(super) fn settle(
        &mut self,
        principal: &Arc<str>,
        day: u64,
        reserved: u64,
        spent: u64,
    ) -> Option<Use> {
        if self.is_off() {
            return None;
        }
        let account = self.accounts.entry(Arc::clone(principal)).or_default();
        account.reserved -= reserved;
        // A clock that is set back begins no new day.
        if account.day < day {
            (account.day, account.used) = (day, 0);
        }
        account.used = account.used.saturating_add(spent);
        let (principal, used, limit) = (Arc::clone(principal), account.used, self.limit);
        let day = account.day;
        Some(Use { principal, day, used, limit })
    }

    pub(super) fn restore(&mut self, principal: Arc<str>, day: u64, used: u64) {
        if !self.is_off() {
            self.accounts.insert(principal, Account { day, used, reserved: 0 });
        }
    }
}
