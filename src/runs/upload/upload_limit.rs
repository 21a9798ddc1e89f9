//! Limits of concurrent uploads, in total and per owner; further ones are refused.

use std::sync::Arc;

use super::UploadError;
use crate::base::{
    keys::Principal,
    owner_limit::{LimitScope, OwnerLimiter},
};
use parking_lot::Mutex;

/// Maximum concurrent uploads of one owner.
pub const OWN_MAX: usize = 4;
/// Maximum concurrent uploads of all owners.
pub const ALL_MAX: usize = 16;

/// Scope of the limit, for the error message.
pub(super) fn told(whose: LimitScope) -> &'static str {
    match whose {
        LimitScope::All => "of all callers",
        LimitScope::Own => "of yours",
    }
}

/// Counter of concurrent uploads.
#[derive(Debug, Default)]
pub struct UploadLimiter(Mutex<OwnerLimiter>);

/// Permit to upload, until dropped.
#[derive(Debug)]
pub struct UploadPermit {
    under_way: Arc<UploadLimiter>,
    owner: Principal,
}

impl UploadLimiter {
    /// Takes a permit for `owner`.
    pub(super) fn enter(self: &Arc<Self>, owner: &Principal) -> Result<UploadPermit, UploadError> {
        self.0.lock().enter(owner, ALL_MAX, OWN_MAX).map_err(|whose| {
            let limit = if whose == LimitScope::All { ALL_MAX } else { OWN_MAX };
            UploadError::Busy { limit, whose }
        })?;
        Ok(UploadPermit { under_way: Arc::clone(self), owner: owner.clone() })
    }
}

impl Drop for UploadPermit {
    fn drop(&mut self) {
        self.under_way.0.lock().leave(&self.owner);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_bounded_and_come_back() {
        let under_way = Arc::new(UploadLimiter::default());
        let owner = |at: usize| Principal::named(&format!("owner-{at}"));
        let mut places: Vec<_> =
            (0..ALL_MAX).map(|at| under_way.enter(&owner(at / OWN_MAX)).expect("free")).collect();
        let told =
            |outcome: Result<UploadPermit, UploadError>| outcome.expect_err("full").to_string();
        assert!(
            told(under_way.enter(&owner(99))).starts_with("the limit of 16 uploads of all callers")
        );
        places.truncate(OWN_MAX);
        assert!(told(under_way.enter(&owner(0))).starts_with("the limit of 4 uploads of yours"));
        assert!(under_way.enter(&owner(1)).is_ok());
        places.clear();
        assert_eq!(under_way.0.lock().all(), 0);
    }
}
