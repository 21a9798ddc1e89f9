//! Requests that must not be carried out twice: what was asked under a key and what was answered.
//!
//! A record is durable before its request begins and again with its answer, so that a crash
//! between leaves one that says "begun": the log then tells whether anything came of it.
//! Bounded for each owner in records and bytes, and charged to it: what is kept is kept for its time,
//! and an owner whose table is full begins nothing new under a key. Knows no HTTP.

mod attempt;
mod charges;
mod records;
mod recovery;

use std::{
    collections::{HashMap, HashSet, hash_map::Entry},
    sync::Arc,
    time::{Duration, Instant},
};

use media::{RequestId, Seq, WallTime};
use parking_lot::Mutex;
use sha2::{Digest, Sha256};
use timeline::{Timeline, TimelineError};
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

use crate::base::{
    blocking::blocking,
    clock::{DatedInstant, RetentionClock},
    keys::Principal,
    meta_store::{MetaStore, MetaStoreError},
    quota::Quota,
};
pub use attempt::KeyedRequest;
use charges::Charges;
use records::KeyState;
pub use recovery::RecoveredOutcome;

/// Time for which an answer is kept.
pub const KEPT: Duration = Duration::from_secs(24 * 3600);
/// Records of one owner; with so many it begins nothing new.
pub const RECORDS_MAX: usize = 4096;
/// Bytes of the answers of one owner; with so many it begins nothing new, and only what was
/// under way then is kept beside them.
pub const BYTES_MAX: u64 = 64 << 20;
/// Bytes of one answer; a longer one is sent and not kept.
pub const ANSWER_BYTES_MAX: usize = 8 << 20;
/// Heads of events looked at in one step.
const STEP: usize = 4096;
/// Events read to find out what became of a request.
pub const TRACED_MAX: usize = 1 << 16;
/// Time from one look for records that are over to the next.
const EXPIRE_EVERY: Duration = Duration::from_secs(600);
/// Records forgotten in one step.
const EXPIRED_AT_ONCE: usize = 1000;
/// Time from one look for requests that were cut off to the next of the same owner: a look reads
/// [`TRACED_MAX`] events.
const LOOK_EVERY: Duration = Duration::from_secs(60);

/// Reason that room cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum IdempotencyError {
    /// The ledger failed.
    #[error(transparent)]
    Ledger(#[from] MetaStoreError),
    /// The log failed.
    #[error(transparent)]
    Log(#[from] TimelineError),
}

/// Scope of one key: an owner, a route and the key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct KeyScope {
    owner: Principal,
    digest: [u8; 32],
}

impl KeyScope {
    /// Owner of the key.
    pub fn owner(&self) -> &Principal {
        &self.owner
    }

    /// The key `key` of `owner` on `route`, which is a method and a path.
    pub fn new(owner: &Principal, route: &str, key: &str) -> KeyScope {
        KeyScope { owner: owner.clone(), digest: digest(&[route.as_bytes(), key.as_bytes()]) }
    }
}

/// Digest that tells one body from another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BodyDigest([u8; 32]);

impl BodyDigest {
    /// Digest of a request whose effect depends on these parts.
    pub fn of(parts: &[&[u8]]) -> BodyDigest {
        BodyDigest(digest(parts))
    }
}

/// A digest of `parts` that no other division of the same bytes has.
fn digest(parts: &[&[u8]]) -> [u8; 32] {
    let mut digest = Sha256::new();
    for part in parts {
        digest.update((part.len() as u64).to_le_bytes());
        digest.update(part);
    }
    digest.finalize().into()
}

/// An answer as it was sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredResponse {
    /// Its status.
    pub status: u16,
    /// The headers that are repeated, by lower-case name.
    pub headers: Vec<(String, String)>,
    /// Its body.
    pub body: Vec<u8>,
}

/// Earlier use of a key.
pub enum KeyLookup {
    /// Nothing: carry the request out.
    Fresh(KeyedRequest),
    /// Answer that was given.
    Answered(BodyDigest, StoredResponse),
    /// A request that was begun and never answered; nothing of it is under way.
    Interrupted(KeyedRequest, Interrupted),
    /// The same, and it is under way.
    UnderWay,
    /// Nothing, and its owner has as many records as may be.
    Full {
        /// Time until the oldest of them is over.
        frees_in: Duration,
    },
}

/// A request that was begun and has no answer that was kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interrupted {
    /// Its body; `None` where that was not known before its end.
    pub fingerprint: Option<BodyDigest>,
    /// The request.
    pub request_id: String,
    /// Its events, if there are any, come after this one.
    pub after: Seq,
}

/// The use of keys.
pub struct IdempotencyStore {
    ledger: MetaStore,
    clock: RetentionClock,
    charges: Charges,
    under_way: Mutex<HashSet<KeyScope>>,
    /// Time of the last look for room, by owner.
    looked: Mutex<HashMap<Principal, Instant>>,
}

impl IdempotencyStore {
    /// The records in `ledger`, without those whose time is over by `clock`; what they take is
    /// charged to their owners.
    pub fn open(
        ledger: MetaStore,
        clock: RetentionClock,
        quota: Arc<Quota>,
    ) -> Result<Arc<IdempotencyStore>, MetaStoreError> {
        let charges = Charges::new(ledger.clone(), quota);
        let (under_way, looked) = (Mutex::default(), Mutex::default());
        let keys = IdempotencyStore { ledger, clock, charges, under_way, looked };
        keys.expire(keys.clock.now())?;
        keys.ledger.read(records::owners)?.iter().try_for_each(|owner| keys.settle(owner))?;
        Ok(Arc::new(keys))
    }

    /// Moment with which records are dated, and to which their ages are counted.
    pub fn now(&self) -> DatedInstant {
        self.clock.moment()
    }

    /// Forgets what is over now and then, until `stop`.
    pub async fn run(self: Arc<Self>, stop: CancellationToken) {
        let mut tick = tokio::time::interval(EXPIRE_EVERY);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while stop.run_until_cancelled(tick.tick()).await.is_some() {
            let keys = Arc::clone(&self);
            match blocking(move || keys.expire(keys.clock.now())).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => {
                    tracing::error!(%error, "could not expire idempotency records; retrying on the next sweep")
                }
                Err(died) => {
                    tracing::error!(%died, "could not expire idempotency records; retrying on the next sweep")
                }
            }
        }
    }

    /// Forgets every record whose time is over at `now`.
    fn expire(&self, now: WallTime) -> Result<(), MetaStoreError> {
        loop {
            let oldest = oldest_kept(now);
            let over = self.ledger.read(|view| records::before(view, oldest, EXPIRED_AT_ONCE))?;
            if over.is_empty() {
                return Ok(());
            }
            self.ledger.write(|change| records::forget(change, &over))?;
            let owners: HashSet<&str> = over.iter().map(|(owner, ..)| owner.as_str()).collect();
            owners.iter().try_for_each(|owner| self.settle(&Principal::named(owner)))?;
        }
    }

    /// Charges `owner` for what is kept of its requests now.
    fn settle(&self, owner: &Principal) -> Result<(), MetaStoreError> {
        self.charges.settle(owner)
    }

    /// Begins the use of a key; waits for the disk.
    pub fn begin(
        self: &Arc<Self>,
        scope: KeyScope,
        fingerprint: Option<BodyDigest>,
        request_id: RequestId,
        head: Seq,
        now: DatedInstant,
    ) -> Result<KeyLookup, MetaStoreError> {
        // Taken before looking: of two at once, only one may find nothing.
        if !self.under_way.lock().insert(scope.clone()) {
            return Ok(KeyLookup::UnderWay);
        }
        let mut attempt =
            KeyedRequest { keys: Arc::clone(self), scope, request_id, at: now.dated, after: head };
        let oldest = oldest_kept(now.counted);
        let known = self.ledger.read(|view| records::find(view, &attempt.scope))?;
        if let Some(record) = known.filter(|record| record.at >= oldest) {
            return Ok(match record.state {
                KeyState::Answered(fingerprint, answer) => KeyLookup::Answered(fingerprint, answer),
                KeyState::Begun(past) => KeyLookup::Interrupted(attempt, past),
            });
        }
        let owner = &attempt.scope.owner;
        let full = self.ledger.read(|view| records::oldest_of_full(view, owner, oldest))?;
        if let Some(at) = full {
            return Ok(KeyLookup::Full { frees_in: until_over(at, oldest) });
        }
        attempt.write(fingerprint, head)?;
        Ok(KeyLookup::Fresh(attempt))
    }

    /// Time until room for a further answer of `owner` frees, where there is none now.
    pub fn frees_in(&self, owner: &Principal) -> Result<Option<Duration>, MetaStoreError> {
        let oldest = oldest_kept(self.now().counted);
        let full = self.ledger.read(|view| records::oldest_of_full(view, owner, oldest))?;
        Ok(full.map(|at| until_over(at, oldest)))
    }

    /// Keeps the answer to a request under `scope`, in place of any record before.
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

    /// The answer that is kept under `scope`.
    pub fn kept(&self, scope: &KeyScope) -> Result<Option<StoredResponse>, MetaStoreError> {
        let oldest = oldest_kept(self.now().counted);
        let found = self.ledger.read(|view| records::find(view, scope))?;
        Ok(found.filter(|record| record.at >= oldest).and_then(|record| match record.state {
            KeyState::Answered(_, answer) => Some(answer),
            KeyState::Begun(_) => None,
        }))
    }

    /// Forgets requests of `owner` that were cut off before they did anything, as the log tells:
    /// they keep nothing that a repetition needs. Looks once a minute.
    pub fn make_room(
        &self,
        owner: &Principal,
        timeline: &Timeline,
    ) -> Result<bool, IdempotencyError> {
        if !self.looks_now(owner) {
            return Ok(false);
        }
        let begun = self.ledger.read(|view| records::begun_of(view, owner))?;
        // No other request begins one while it is looked at.
        let held = begun.into_iter().filter_map(|(scope, past)| {
            let is_idle = self.under_way.lock().insert(scope.clone());
            is_idle.then(|| (UnderWay { keys: self, scope }, past))
        });
        let idle = recovery::idle(held.collect(), timeline, TRACED_MAX)?;
        let made = self.ledger.write(|change| {
            // One may have been answered since it was listed.
            idle.iter().try_fold(false, |made, (held, past)| {
                Ok(records::remove_begun(change, &held.scope, &past.request_id)? || made)
            })
        })?;
        self.settle(owner)?;
        Ok(made)
    }

    /// Returns true where it is time to look for room of `owner`; it is remembered as done.
    fn looks_now(&self, owner: &Principal) -> bool {
        // Every change is one insert or retain: a panic leaves the map usable.
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

/// A key that is taken, until dropped.
struct UnderWay<'a> {
    keys: &'a IdempotencyStore,
    scope: KeyScope,
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.keys.under_way.lock().remove(&self.scope);
    }
}

/// The oldest of what is kept at `now`.
pub fn oldest_kept(now: WallTime) -> WallTime {
    WallTime { epoch_ms: now.epoch_ms.saturating_sub(KEPT.as_millis() as i64) }
}

/// Time until a record from `at` is older than those of `oldest`.
fn until_over(at: WallTime, oldest: WallTime) -> Duration {
    let left_ms = at.epoch_ms.saturating_sub(oldest.epoch_ms);
    Duration::from_millis(u64::try_from(left_ms).unwrap_or(0))
}

#[cfg(test)]
mod tests;
