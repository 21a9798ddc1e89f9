//! Idempotency keys: the request made under a key, and its stored response.
//!
//! A record is durable before its request begins, and again with the response, so that a crash between leaves
//! a "begun" record; the log then tells its effect. Records are bounded per owner in number and bytes, and
//! charged: they are kept for their full time, and an owner whose table is full can begin no new key. Knows
//! no HTTP.

mod attempt;
mod records;

use std::{
    collections::{HashMap, HashSet, hash_map::Entry},
    sync::Arc,
    time::{Duration, Instant},
};

use media::{RequestId, Seq, WallTime};
use parking_lot::Mutex;
use sha2::{Digest, Sha256};
use timeline::{Timeline, TimelineError};
use tokio_util::sync::CancellationToken;

use crate::base::{
    blocking::blocking,
    clock::{DatedInstant, RetentionClock},
    every,
    keys::Principal,
    meta_store::{MetaStore, MetaStoreError},
    quota::Quota,
};
pub use attempt::{KeyedRequest, RecoveredOutcome};
use records::KeyState;

/// Retention time of a response.
pub const KEPT: Duration = Duration::from_secs(24 * 3600);
/// Maximum records of one owner; at the maximum, no new key begins.
pub const RECORDS_MAX: usize = 4096;
/// Maximum bytes of the responses of one owner; at the maximum no new key begins, and only
/// responses of requests in progress are still stored.
pub const BYTES_MAX: u64 = 64 << 20;
/// Maximum bytes of one stored response; a longer one is sent but not stored.
pub const ANSWER_BYTES_MAX: usize = 8 << 20;
/// Event heads read in one step.
const STEP: usize = 4096;
/// Maximum events read to trace the effect of one request.
pub const TRACED_MAX: usize = 1 << 16;
const EXPIRE_EVERY: Duration = Duration::from_secs(600);
const EXPIRED_AT_ONCE: usize = 1000;
/// Minimum interval of traces for one owner that look for removable records: each reads up to
/// [`TRACED_MAX`] events.
const LOOK_EVERY: Duration = Duration::from_secs(60);

#[derive(Debug, thiserror::Error)]
pub enum IdempotencyError {
    #[error(transparent)]
    Ledger(#[from] MetaStoreError),
    #[error(transparent)]
    Log(#[from] TimelineError),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct KeyScope {
    pub owner: Principal,
    digest: [u8; 32],
}

impl KeyScope {
    /// Creates the scope of `key` of `owner` on `route`, which is a method and a path.
    pub fn new(owner: &Principal, route: &str, key: &str) -> KeyScope {
        KeyScope { owner: owner.clone(), digest: digest(&[route.as_bytes(), key.as_bytes()]) }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BodyDigest([u8; 32]);

impl BodyDigest {
    /// Digest of a request, over the parts that determine its effect.
    pub fn of(parts: &[&[u8]]) -> BodyDigest {
        BodyDigest(digest(parts))
    }
}

/// Digest of `parts` with their lengths, so that no other division gives the same.
fn digest(parts: &[&[u8]]) -> [u8; 32] {
    let mut digest = Sha256::new();
    for part in parts {
        digest.update((part.len() as u64).to_le_bytes());
        digest.update(part);
    }
    digest.finalize().into()
}

/// Response as it was sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredResponse {
    pub status: u16,
    /// Headers to repeat, by lower-case name.
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

pub enum KeyLookup {
    /// The key is new: carry the request out.
    Fresh(KeyedRequest),
    /// Stored response to the earlier request.
    Answered(BodyDigest, StoredResponse),
    /// The earlier request began and has no response; it is not in progress.
    Interrupted(KeyedRequest, Interrupted),
    UnderWay,
    /// The key is new, and its owner has the maximum number or bytes of records.
    Full {
        /// Time until the owner's oldest record expires.
        frees_in: Duration,
    },
}

/// Request that began and has no stored response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interrupted {
    /// Digest of the body; `None` if it was not known when the request began.
    pub fingerprint: Option<BodyDigest>,
    pub request_id: String,
    /// Last event of the log when the request began; its events come later.
    pub after: Seq,
}

pub struct IdempotencyStore {
    ledger: MetaStore,
    clock: RetentionClock,
    quota: Arc<Quota>,
    /// Bytes charged so far, by owner.
    charged: Mutex<HashMap<Principal, u64>>,
    under_way: Mutex<HashSet<KeyScope>>,
    /// Time of the last search for room, by owner.
    looked: Mutex<HashMap<Principal, Instant>>,
}

impl IdempotencyStore {
    /// Opens the records in `ledger`, removes expired ones by `clock`, and charges the others to
    /// their owners.
    pub fn open(
        ledger: MetaStore,
        clock: RetentionClock,
        quota: Arc<Quota>,
    ) -> Result<Arc<IdempotencyStore>, MetaStoreError> {
        let (charged, under_way, looked) = Default::default();
        let keys = IdempotencyStore { ledger, clock, quota, charged, under_way, looked };
        keys.expire(keys.clock.now())?;
        records::owners(&keys.ledger)?.iter().try_for_each(|owner| keys.settle(owner))?;
        Ok(Arc::new(keys))
    }

    /// Current time for dating records and for counting their ages.
    pub fn now(&self) -> DatedInstant {
        self.clock.moment()
    }

    /// Removes expired records periodically, until `stop`.
    pub async fn run(self: Arc<Self>, stop: CancellationToken) {
        let mut tick = every(EXPIRE_EVERY);
        while stop.run_until_cancelled(tick.tick()).await.is_some() {
            let keys = Arc::clone(&self);
            let expired = blocking(move || keys.expire(keys.clock.now())).await;
            let expired = expired.map_err(Box::<dyn std::error::Error>::from);
            if let Err(error) = expired.and_then(|expired| Ok(expired?)) {
                tracing::error!(%error, "could not expire idempotency records; retrying on the next sweep");
            }
        }
    }

    fn expire(&self, now: WallTime) -> Result<(), MetaStoreError> {
        loop {
            let oldest = oldest_kept(now);
            let over = records::before(&self.ledger, oldest, EXPIRED_AT_ONCE)?;
            if over.is_empty() {
                return Ok(());
            }
            self.ledger.write(|change| records::forget(change, &over))?;
            let owners: HashSet<&str> = over.iter().map(|(owner, ..)| owner.as_str()).collect();
            owners.iter().try_for_each(|owner| self.settle(&Principal::named(owner)))?;
        }
    }

    /// Charges `owner` for the current size of its records, even beyond its quota.
    fn settle(&self, owner: &Principal) -> Result<(), MetaStoreError> {
        // Held while reading, so that the latest size is charged last. Every change is one insert
        // or remove: the map stays usable after a panic.
        let mut charged = self.charged.lock();
        let now = records::bytes_of(&self.ledger, owner)?;
        let before = charged.remove(owner).unwrap_or(0);
        if now > 0 {
            charged.insert(owner.clone(), now);
        }
        self.quota.record(owner, now.saturating_sub(before));
        self.quota.release(owner, before.saturating_sub(now));
        Ok(())
    }

    /// Begins the use of a key; blocks on the disk.
    pub fn begin(
        self: &Arc<Self>,
        scope: KeyScope,
        fingerprint: Option<BodyDigest>,
        request_id: RequestId,
        head: Seq,
        now: DatedInstant,
    ) -> Result<KeyLookup, MetaStoreError> {
        // Taken before the look-up: of two concurrent requests, only one may find the key new.
        if !self.under_way.lock().insert(scope.clone()) {
            return Ok(KeyLookup::UnderWay);
        }
        let held = KeyInUse { keys: Arc::clone(self), scope };
        let attempt = KeyedRequest { held, request_id, at: now.dated, after: head };
        let oldest = oldest_kept(now.counted);
        let known = records::find(&self.ledger, &attempt.held.scope)?;
        if let Some(record) = known.filter(|record| record.at >= oldest) {
            return Ok(match record.state {
                KeyState::Answered(fingerprint, answer) => KeyLookup::Answered(fingerprint, answer),
                KeyState::Begun(past) => KeyLookup::Interrupted(attempt, past),
            });
        }
        let owner = &attempt.held.scope.owner;
        let mut full = records::oldest_of_full(&self.ledger, owner, oldest)?;
        if full.is_none() {
            // Counted again where it is written: other requests may have begun meanwhile.
            full = attempt.write_new(fingerprint, oldest)?;
        }
        Ok(match full {
            Some(at) => KeyLookup::Full { frees_in: until_over(at, oldest) },
            None => KeyLookup::Fresh(attempt),
        })
    }

    /// Time until room for a further response of `owner` frees; `None` if there is room.
    pub fn frees_in(&self, owner: &Principal) -> Result<Option<Duration>, MetaStoreError> {
        let oldest = oldest_kept(self.now().counted);
        let full = records::oldest_of_full(&self.ledger, owner, oldest)?;
        Ok(full.map(|at| until_over(at, oldest)))
    }

    /// Stores the response to a request under `scope`; replaces an earlier record.
    pub fn keep(
        &self,
        scope: &KeyScope,
        fingerprint: BodyDigest,
        answer: StoredResponse,
    ) -> Result<(), MetaStoreError> {
        let answered = KeyState::Answered(fingerprint, answer);
        self.ledger.write(|change| records::put(change, scope, self.now().dated, &answered))?;
        self.settle(&scope.owner)
    }

    pub fn kept(&self, scope: &KeyScope) -> Result<Option<StoredResponse>, MetaStoreError> {
        let oldest = oldest_kept(self.now().counted);
        let found = records::find(&self.ledger, scope)?;
        Ok(found.filter(|record| record.at >= oldest).and_then(|record| match record.state {
            KeyState::Answered(_, answer) => Some(answer),
            KeyState::Begun(_) => None,
        }))
    }

    /// Removes records of interrupted requests of `owner` that had no effect by the log: a
    /// repetition does not need them. Searches at most once a minute.
    pub fn make_room(
        self: &Arc<Self>,
        owner: &Principal,
        timeline: &Timeline,
    ) -> Result<bool, IdempotencyError> {
        if !self.looks_now(owner) {
            return Ok(false);
        }
        let begun = records::begun_of(&self.ledger, owner)?;
        // Held keys: no other request can begin one meanwhile.
        let held = begun.into_iter().filter_map(|(scope, past)| {
            let is_idle = self.under_way.lock().insert(scope.clone());
            is_idle.then(|| (KeyInUse { keys: Arc::clone(self), scope }, past))
        });
        let idle = attempt::idle(held.collect(), timeline, TRACED_MAX)?;
        let made = self.ledger.write(|change| {
            // A request may have been answered since it was listed.
            idle.iter().try_fold(false, |made, (held, past)| {
                Ok(records::remove_begun(change, &held.scope, &past.request_id)? || made)
            })
        })?;
        self.settle(owner)?;
        Ok(made)
    }

    /// Returns true, and notes the time, if a search for room of `owner` is due.
    fn looks_now(&self, owner: &Principal) -> bool {
        // Every change is one insert or retain: the map stays usable after a panic.
        let mut looked = self.looked.lock();
        looked.retain(|_, at| at.elapsed() < LOOK_EVERY);
        match looked.entry(owner.clone()) {
            Entry::Occupied(_) => false,
            Entry::Vacant(never) => {
                never.insert(Instant::now());
                true
            }
        }
    }
}

/// Key in use, until dropped.
struct KeyInUse {
    keys: Arc<IdempotencyStore>,
    scope: KeyScope,
}

impl Drop for KeyInUse {
    fn drop(&mut self) {
        self.keys.under_way.lock().remove(&self.scope);
    }
}

/// Time of the oldest record that is not expired at `now`.
pub fn oldest_kept(now: WallTime) -> WallTime {
    WallTime { epoch_ms: now.epoch_ms.saturating_sub(KEPT.as_millis() as i64) }
}

/// Time until a record of `at` is older than `oldest`.
fn until_over(at: WallTime, oldest: WallTime) -> Duration {
    let left_ms = at.epoch_ms.saturating_sub(oldest.epoch_ms);
    Duration::from_millis(u64::try_from(left_ms).unwrap_or(0))
}

#[cfg(test)]
mod tests;
