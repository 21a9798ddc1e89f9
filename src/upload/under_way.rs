//! How many uploads are under way: so many of one owner, so many in all, the rest refused.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use super::UploadError;
use crate::config::Principal;

/// Uploads of one owner at once.
pub const OWN_MAX: usize = 4;
/// Uploads at once.
pub const ALL_MAX: usize = 16;

/// Whose uploads a limit counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whose {
    /// Those of all callers together.
    All,
    /// Those of the caller.
    Own,
}

impl Whose {
    /// As the caller is told.
    pub(super) fn told(self) -> &'static str {
        match self {
            Whose::All => "of all callers",
            Whose::Own => "of yours",
        }
    }
}

/// Counts uploads.
#[derive(Debug, Default)]
pub struct UnderWay(Mutex<HashMap<Principal, usize>>);

/// The right to upload, until dropped.
#[derive(Debug)]
pub struct Place {
    under_way: Arc<UnderWay>,
    owner: Principal,
}

impl UnderWay {
    /// Takes a place for an upload of `owner`.
    pub(super) fn enter(self: &Arc<Self>, owner: &Principal) -> Result<Place, UploadError> {
        let mut counts = self.counts();
        if counts.values().sum::<usize>() >= ALL_MAX {
            return Err(UploadError::Busy { limit: ALL_MAX, whose: Whose::All });
        }
        let own = counts.entry(owner.clone()).or_default();
        if *own >= OWN_MAX {
            return Err(UploadError::Busy { limit: OWN_MAX, whose: Whose::Own });
        }
        *own += 1;
        Ok(Place { under_way: Arc::clone(self), owner: owner.clone() })
    }

    fn counts(&self) -> MutexGuard<'_, HashMap<Principal, usize>> {
        // Every change is one number: a panic leaves them usable.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut counts = self.under_way.counts();
        if let Some(own) = counts.get_mut(&self.owner) {
            *own -= 1;
            if *own == 0 {
                counts.remove(&self.owner);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_bounded_and_come_back() {
        let under_way = Arc::new(UnderWay::default());
        let owner = |at: usize| Principal::named(&format!("owner-{at}"));
        let mut places: Vec<_> =
            (0..ALL_MAX).map(|at| under_way.enter(&owner(at / OWN_MAX)).expect("free")).collect();
        let told = |outcome: Result<Place, UploadError>| outcome.expect_err("full").to_string();
        assert!(told(under_way.enter(&owner(99))).starts_with("16 uploads of all callers"));
        places.truncate(OWN_MAX);
        assert!(told(under_way.enter(&owner(0))).starts_with("4 uploads of yours"));
        assert!(under_way.enter(&owner(1)).is_ok());
        places.clear();
        assert!(under_way.counts().is_empty());
    }
}
