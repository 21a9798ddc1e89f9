//! Byte accounts of stored data, per principal and in total, checked against two quotas.
//!
//! Counted are uploads, stills, signal columns, log records and stored answers; deleted ones until they
//! are removed from the disk. Bytes shared by two runs with the same content count for both, so that no
//! account reveals the data of others and a release is a subtraction. In memory, rebuilt at the start.
//! Records that end a run are counted but never refused.

use std::{collections::HashMap, num::NonZeroU64, sync::Arc, time::Instant};

use media::ErrorKind;
use parking_lot::Mutex;

use crate::base::{disk_reserve::DiskReserve, keys::Principal};

/// Maximum number of stored bytes; `None` means no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QuotaLimits {
    pub global: Option<NonZeroU64>,
    pub principal: Option<NonZeroU64>,
}

/// Divisor of a principal's share: of the sum of its stored bytes and the free bytes above the reserve.
pub const SHARE: u64 = 2;
/// Divisor of a limit: deleted records may take at most this fraction of it.
const DELETED_SHARE: u64 = 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QuotaError {
    #[error("{used} of {quota} bytes are used and {asked} more are needed: delete runs or uploads")]
    Principal { quota: u64, used: u64, asked: u64 },
    #[error("the service has used all of its storage quota: delete runs or uploads, or try later")]
    Global { quota: u64, used: u64, asked: u64 },
    #[error("the disk has no room above its reserve: delete runs or uploads, or try later")]
    Disk,
}

impl QuotaError {
    pub fn kind(&self) -> ErrorKind {
        match self {
            QuotaError::Principal { .. } => ErrorKind::Conflict,
            QuotaError::Global { .. } | QuotaError::Disk => ErrorKind::Exhausted,
        }
    }

    /// Returns the error with `held` bytes moved from `used` to `asked`: they belong to the same item.
    fn beside(mut self, held: u64) -> QuotaError {
        if let QuotaError::Principal { used, asked, .. } | QuotaError::Global { used, asked, .. } =
            &mut self
        {
            *used = used.saturating_sub(held);
            *asked = asked.saturating_add(held);
        }
        self
    }
}

#[derive(Debug, Default)]
pub struct Quota {
    limits: QuotaLimits,
    /// Disk that the principals share; limits each of them if there is no quota of principals.
    shared: Option<Arc<DiskReserve>>,
    accounts: Mutex<Accounts>,
}

#[derive(Debug, Default)]
struct Accounts {
    total: u64,
    /// Bytes of each principal that uses any.
    principals: HashMap<Principal, u64>,
    /// Time of the last measurement of the disk, and the total at that time.
    looked: Option<Seen>,
}

/// A time, and a number of bytes at that time.
type Seen = (Instant, u64);

impl Quota {
    /// Creates empty accounts under `limits`, of principals that share the disk of `shared` if it is given.
    pub fn new(limits: QuotaLimits, shared: Option<Arc<DiskReserve>>) -> Arc<Quota> {
        Arc::new(Quota { limits, shared, accounts: Mutex::default() })
    }

    /// Charges `owner` for `bytes` that are about to be stored, all or none.
    pub fn charge(&self, owner: &Principal, bytes: u64) -> Result<(), QuotaError> {
        self.charge_beside(owner, bytes, 0)
    }

    /// Charges `owner` for `bytes` more of an item of which `held` bytes are charged. The error counts
    /// `held` as requested, not as used.
    fn charge_beside(&self, owner: &Principal, bytes: u64, held: u64) -> Result<(), QuotaError> {
        let seen = self.seen();
        let mut accounts = self.accounts.lock();
        accounts.check(&self.limits, seen, owner, bytes).map_err(|error| error.beside(held))?;
        accounts.add(owner, bytes);
        Ok(())
    }

    /// Returns the free bytes above the reserve that principals share, and when they were measured.
    fn seen(&self) -> Option<Seen> {
        let reserve = self.shared.as_ref().filter(|_| self.limits.principal.is_none())?;
        // A disk that cannot be measured limits nothing here; the write will fail.
        reserve.room().ok()
    }

    /// Returns the limit of `owner`'s stored bytes; `None` if there is none.
    pub fn most(&self, owner: &Principal) -> Option<u64> {
        let seen = self.seen();
        self.accounts.lock().most(&self.limits, seen, owner)
    }

    /// Returns true if `bytes` of deleted data exceed the fraction of a limit that `owner` may keep.
    pub fn is_in_the_way(&self, owner: &Principal, bytes: u64) -> bool {
        let limits = [self.most(owner), self.limits.global.map(NonZeroU64::get)];
        limits.into_iter().flatten().any(|limit| bytes > limit / DELETED_SHARE)
    }

    /// Fails if `owner` could not store even one byte.
    pub fn check(&self, owner: &Principal) -> Result<(), QuotaError> {
        let seen = self.seen();
        self.accounts.lock().check(&self.limits, seen, owner, 1)
    }

    /// Counts `bytes` that `owner` has already stored, regardless of the quotas.
    pub fn record(&self, owner: &Principal, bytes: u64) {
        self.accounts.lock().add(owner, bytes);
    }

    /// Subtracts `bytes` that `owner` was charged for.
    pub fn release(&self, owner: &Principal, bytes: u64) {
        self.accounts.lock().subtract(owner, bytes);
    }

    /// Returns an empty reservation of `owner`, which grows during a write and is released on drop.
    pub fn hold(self: &Arc<Quota>, owner: &Principal) -> QuotaReservation {
        QuotaReservation { quota: Arc::clone(self), owner: owner.clone(), bytes: 0 }
    }

    pub fn used(&self, owner: &Principal) -> u64 {
        self.accounts.lock().used(owner)
    }

    pub fn total(&self) -> u64 {
        self.accounts.lock().total
    }
}

impl Accounts {
    fn used(&self, owner: &Principal) -> u64 {
        self.principals.get(owner).copied().unwrap_or(0)
    }

    /// Returns the free bytes of the measurement, less the bytes charged since.
    fn room(&mut self, (at, room): Seen) -> u64 {
        let (_, before) = *self.looked.insert(match self.looked {
            // A caller may come late with an older one, which must not forget what was charged since the newer.
            Some(looked) if looked.0 >= at => looked,
            _ => (at, self.total),
        });
        room.saturating_sub(self.total.saturating_sub(before))
    }

    fn most(&mut self, limits: &QuotaLimits, seen: Option<Seen>, owner: &Principal) -> Option<u64> {
        if let Some(quota) = limits.principal {
            return Some(quota.get());
        }
        let room = self.room(seen?);
        Some(self.used(owner).saturating_add(room) / SHARE)
    }

    fn check(
        &mut self,
        limits: &QuotaLimits,
        seen: Option<Seen>,
        owner: &Principal,
        asked: u64,
    ) -> Result<(), QuotaError> {
        let passed = |limit: Option<u64>, used: u64| {
            limit.filter(|quota| used.saturating_add(asked) > *quota)
        };
        if seen.is_some_and(|seen| self.room(seen) == 0) {
            return Err(QuotaError::Disk);
        }
        let used = self.used(owner);
        // The principal's quota first, because the principal can free that space itself.
        if let Some(quota) = passed(self.most(limits, seen, owner), used) {
            return Err(QuotaError::Principal { quota, used, asked });
        }
        let used = self.total;
        passed(limits.global.map(NonZeroU64::get), used)
            .map_or(Ok(()), |quota| Err(QuotaError::Global { quota, used, asked }))
    }

    fn add(&mut self, owner: &Principal, bytes: u64) {
        if bytes == 0 {
            return;
        }
        self.total += bytes;
        match self.principals.get_mut(owner) {
            Some(used) => *used += bytes,
            None => drop(self.principals.insert(owner.clone(), bytes)),
        }
    }

    fn subtract(&mut self, owner: &Principal, bytes: u64) {
        let Some(used) = self.principals.get_mut(owner) else { return };
        debug_assert!(bytes <= *used, "only what was charged is given back");
        let bytes = bytes.min(*used);
        *used -= bytes;
        self.total -= bytes;
        if *used == 0 {
            self.principals.remove(owner);
        }
    }
}

/// Bytes charged for an unfinished write; released on drop.
#[derive(Debug)]
pub struct QuotaReservation {
    quota: Arc<Quota>,
    owner: Principal,
    bytes: u64,
}

impl QuotaReservation {
    pub fn grow(&mut self, bytes: u64) -> Result<(), QuotaError> {
        self.quota.charge_beside(&self.owner, bytes, self.bytes)?;
        self.bytes += bytes;
        Ok(())
    }

    /// Returns an empty reservation of the same owner.
    pub fn beside(&self) -> QuotaReservation {
        self.quota.hold(&self.owner)
    }

    /// Charges `bytes` more, regardless of the quotas.
    pub fn record(&mut self, bytes: u64) {
        self.quota.record(&self.owner, bytes);
        self.bytes += bytes;
    }

    /// Releases the bytes reserved beyond `bytes`.
    pub fn shrink_to(&mut self, bytes: u64) {
        let surplus = self.bytes.saturating_sub(bytes);
        self.quota.release(&self.owner, surplus);
        self.bytes -= surplus;
    }

    /// Ends the reservation without a release and returns its bytes, which stay charged until
    /// [`Quota::release`], when the stored item is removed.
    #[must_use = "whoever keeps the bytes must be able to release them"]
    pub fn keep(mut self) -> u64 {
        std::mem::take(&mut self.bytes)
    }
}

impl Drop for QuotaReservation {
    fn drop(&mut self) {
        self.quota.release(&self.owner, self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quota(global: u64, principal: u64) -> Arc<Quota> {
        let (global, principal) = (NonZeroU64::new(global), NonZeroU64::new(principal));
        Quota::new(QuotaLimits { global, principal }, None)
    }

    #[test]
    fn a_quota_holds_to_the_byte() {
        let (alice, bob) = (Principal::named("alice"), Principal::named("bob"));
        let quota = quota(150, 100);
        assert_eq!(quota.charge(&alice, 100), Ok(()), "up to the quota");
        let over = QuotaError::Principal { quota: 100, used: 100, asked: 1 };
        assert_eq!(quota.charge(&alice, 1), Err(over));
        assert_eq!(quota.check(&alice), Err(over));
        assert_eq!(quota.charge(&bob, 50), Ok(()));
        let all = QuotaError::Global { quota: 150, used: 150, asked: 1 };
        assert_eq!(quota.charge(&bob, 1), Err(all));
        assert_eq!((over.kind(), all.kind()), (ErrorKind::Conflict, ErrorKind::Exhausted));
        quota.release(&alice, 1);
        assert_eq!(
            quota.charge(&bob, 2),
            Err(QuotaError::Global { quota: 150, used: 149, asked: 2 })
        );
        assert_eq!(quota.charge(&bob, 1), Ok(()));
        assert_eq!(quota.used(&bob), 51);
        assert_eq!(quota.total(), 150);
    }

    #[test]
    fn without_a_quota_of_its_own_a_principal_has_half_of_the_room() {
        let [alice, bob, carol] = ["alice", "bob", "carol"].map(Principal::named);
        let (limits, mut accounts) = (QuotaLimits::default(), Accounts::default());
        let at = Instant::now();
        let mut take = |seen, owner, bytes| {
            let taken = accounts.check(&limits, seen, owner, bytes);
            taken.map(|()| accounts.add(owner, bytes))
        };
        let seen = Some((at, 100));
        assert_eq!(take(seen, &alice, 50), Ok(()));
        let over = QuotaError::Principal { quota: 50, used: 50, asked: 1 };
        assert_eq!(take(seen, &alice, 1), Err(over), "what came since the look counts");
        assert_eq!(take(seen, &bob, 25), Ok(()));
        assert!(take(seen, &bob, 1).is_err());
        let later = Some((at + std::time::Duration::from_secs(1), 25));
        assert!(take(later, &alice, 1).is_err(), "and what others took is not hers");
        assert!(take(later, &bob, 1).is_err());
        assert_eq!(take(later, &carol, 12), Ok(()));
        assert!(take(seen, &carol, 100).is_err(), "of an older look");
        assert!(take(later, &carol, 6).is_err(), "what came since the newer one counts still");
        let full = Some((at + std::time::Duration::from_secs(2), 0));
        assert_eq!(take(full, &carol, 1), Err(QuotaError::Disk), "no share is to blame");
        assert_eq!(take(None, &alice, 1000), Ok(()), "where the disk cannot be examined");
    }

    #[test]
    fn what_is_stored_already_counts_past_the_quota() {
        let (alice, quota) = (Principal::named("alice"), quota(0, 10));
        quota.record(&alice, 15);
        let over = QuotaError::Principal { quota: 10, used: 15, asked: 1 };
        assert_eq!(quota.check(&alice), Err(over));
        quota.release(&alice, 15);
        assert_eq!((quota.check(&alice), quota.total()), (Ok(()), 0));
    }

    #[test]
    fn a_hold_is_given_back_unless_it_is_kept() {
        let (alice, quota) = (Principal::named("alice"), quota(0, 10));
        let mut lost = quota.hold(&alice);
        assert_eq!(lost.grow(6), Ok(()));
        let over = QuotaError::Principal { quota: 10, used: 0, asked: 11 };
        assert_eq!(lost.grow(5), Err(over), "told as a whole, and the first six stay held");
        assert_eq!(quota.total(), 6);
        drop(lost);
        assert_eq!(quota.total(), 0);
        let mut kept = quota.hold(&alice);
        assert_eq!(kept.grow(10), Ok(()));
        assert_eq!((kept.keep(), quota.total()), (10, 10));
    }
}
