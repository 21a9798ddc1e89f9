//! Limits of concurrent uploads, in total and per owner; further ones are refused.

use super::UploadError;
use crate::base::{
    keys::Principal,
    owner_limit::{LimitScope, OwnerLimiter, OwnerPermit},
};

pub const OWN_MAX: usize = 4;
pub const ALL_MAX: usize = 16;

/// Scope of the limit, for the error message.
pub(super) fn told(whose: LimitScope) -> &'static str {
    match whose {
        LimitScope::All => "of all callers",
        LimitScope::Own => "of yours",
    }
}

pub(super) fn enter(open: &OwnerLimiter, owner: &Principal) -> Result<OwnerPermit, UploadError> {
    open.enter(owner, ALL_MAX, OWN_MAX).map_err(|whose| {
        let limit = if whose == LimitScope::All { ALL_MAX } else { OWN_MAX };
        UploadError::Busy { limit, whose }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_bounded_and_come_back() {
        let under_way = OwnerLimiter::default();
        let enter = |owner: &Principal| enter(&under_way, owner);
        let owner = |at: usize| Principal::named(&format!("owner-{at}"));
        let mut places: Vec<_> =
            (0..ALL_MAX).map(|at| enter(&owner(at / OWN_MAX)).expect("free")).collect();
        let told =
            |outcome: Result<OwnerPermit, UploadError>| outcome.expect_err("full").to_string();
        assert!(told(enter(&owner(99))).starts_with("the limit of 16 uploads of all callers"));
        places.truncate(OWN_MAX);
        assert!(told(enter(&owner(0))).starts_with("the limit of 4 uploads of yours"));
        assert!(enter(&owner(1)).is_ok());
        places.clear();
        assert_eq!(under_way.all(), 0);
    }
}
