//! Records of used keys in the ledger, and their limits.

use media::{Seq, WallTime};
use redb::{ReadOnlyTable, ReadableTable, TableDefinition, WriteTransaction};

use super::{BYTES_MAX, BodyDigest, Interrupted, KeyScope, RECORDS_MAX, StoredResponse};
use crate::base::{
    keys::Principal,
    meta_store::{MetaStore, MetaStoreError},
};

type Result<T, E = redb::Error> = std::result::Result<T, E>;

type Key = (&'static str, [u8; 32]);
/// Time in epoch ms, body digest, request id, head of the log, status (0 if begun), headers, body.
type Value = (
    i64,
    Option<[u8; 32]>,
    &'static str,
    u64,
    u16,
    Vec<(&'static str, &'static str)>,
    &'static [u8],
);
const RECORDS: TableDefinition<'static, Key, Value> = TableDefinition::new("idempotency");
/// Owner, time and scope.
type AgeKey = (&'static str, i64, [u8; 32]);
/// Bytes of the responses: an index by age.
const AGES: TableDefinition<'static, AgeKey, u64> = TableDefinition::new("idempotency_ages");

pub(super) struct KeyRecord {
    pub at: WallTime,
    pub state: KeyState,
}

pub(super) enum KeyState {
    Begun(Interrupted),
    Answered(BodyDigest, StoredResponse),
}

pub(super) fn find(
    ledger: &MetaStore,
    scope: &KeyScope,
) -> Result<Option<KeyRecord>, MetaStoreError> {
    ledger.read(RECORDS, |records| {
        let found = records.get((scope.owner.as_str(), scope.digest))?;
        Ok(found.map(|value| {
            let (epoch_ms, fingerprint, request_id, head, status, headers, body) = value.value();
            let fingerprint = fingerprint.map(BodyDigest);
            let state = match fingerprint.filter(|_| status > 0) {
                Some(fingerprint) => {
                    let owned = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
                    let headers = headers.into_iter().map(owned).collect();
                    let answer = StoredResponse { status, headers, body: body.to_owned() };
                    KeyState::Answered(fingerprint, answer)
                }
                None => {
                    let request_id = request_id.to_owned();
                    KeyState::Begun(Interrupted { fingerprint, request_id, after: Seq(head) })
                }
            };
            KeyRecord { at: WallTime { epoch_ms }, state }
        }))
    })
}

pub(super) fn put(
    change: &WriteTransaction,
    scope: &KeyScope,
    at: WallTime,
    state: &KeyState,
) -> Result<()> {
    remove(change, scope)?;
    let bytes = {
        let mut records = change.open_table(RECORDS)?;
        let (key, at) = ((scope.owner.as_str(), scope.digest), at.epoch_ms);
        match state {
            KeyState::Begun(Interrupted { fingerprint, request_id, after }) => {
                let fingerprint = fingerprint.map(|fingerprint| fingerprint.0);
                let value = (at, fingerprint, &**request_id, after.0, 0, Vec::new(), &[][..]);
                records.insert(key, value)?;
                0
            }
            KeyState::Answered(fingerprint, answer) => {
                let headers = answer.headers.iter().map(|(name, value)| (&**name, &**value));
                let (headers, body) = (headers.collect::<Vec<_>>(), answer.body.as_slice());
                let value = (at, Some(fingerprint.0), "", 0, answer.status, headers, body);
                records.insert(key, value)?;
                body.len() as u64
            }
        }
    };
    change.open_table(AGES)?.insert((scope.owner.as_str(), at.epoch_ms, scope.digest), bytes)?;
    Ok(())
}

pub(super) fn remove(change: &WriteTransaction, scope: &KeyScope) -> Result<()> {
    let owner = scope.owner.as_str();
    let mut records = change.open_table(RECORDS)?;
    let removed = records.remove((owner, scope.digest))?.map(|value| value.value().0);
    if let Some(at) = removed {
        change.open_table(AGES)?.remove((owner, at, scope.digest))?;
    }
    Ok(())
}

/// Removes the record of `scope` if it is still that of `request_id` and unanswered; returns true
/// if it was.
pub(super) fn remove_begun(
    change: &WriteTransaction,
    scope: &KeyScope,
    request_id: &str,
) -> Result<bool> {
    let found = change.open_table(RECORDS)?.get((scope.owner.as_str(), scope.digest))?.is_some_and(
        |value| {
            let (_, _, request, _, status, ..) = value.value();
            status == 0 && request == request_id
        },
    );
    if found {
        remove(change, scope)?;
    }
    Ok(found)
}

/// Returns the time of the oldest record of `owner` since `oldest`, if the owner has the maximum
/// number or bytes of records.
pub(super) fn oldest_of_full(
    ledger: &MetaStore,
    owner: &Principal,
    oldest: WallTime,
) -> Result<Option<WallTime>, MetaStoreError> {
    ledger.read(AGES, |ages| oldest_if_full(ages, owner, oldest))
}

/// Puts the record of a new key, unless its owner's table is full: then returns as [`oldest_of_full`] does.
pub(super) fn put_new(
    change: &WriteTransaction,
    scope: &KeyScope,
    at: WallTime,
    state: &KeyState,
    oldest: WallTime,
) -> Result<Option<WallTime>> {
    let full = oldest_if_full(&change.open_table(AGES)?, &scope.owner, oldest)?;
    if full.is_none() {
        put(change, scope, at, state)?;
    }
    Ok(full)
}

fn oldest_if_full(
    ages: &impl ReadableTable<AgeKey, u64>,
    owner: &Principal,
    oldest: WallTime,
) -> Result<Option<WallTime>> {
    let owner = owner.as_str();
    let (mut count, mut bytes, mut first) = (0, 0, None);
    for entry in ages.range((owner, oldest.epoch_ms, [0; 32])..=(owner, i64::MAX, [255; 32]))? {
        let (key, size) = entry?;
        (count, bytes) = (count + 1, bytes + size.value());
        first.get_or_insert(WallTime { epoch_ms: key.value().1 });
    }
    Ok(first.filter(|_| count >= RECORDS_MAX || bytes >= BYTES_MAX))
}

/// Approximate bytes of a record on disk, without its response.
const RECORD_BYTES: u64 = 256;

pub(super) fn bytes_of(ledger: &MetaStore, owner: &Principal) -> Result<u64, MetaStoreError> {
    let owner = owner.as_str();
    ledger.read(AGES, |ages| {
        let own = ages.range((owner, i64::MIN, [0; 32])..=(owner, i64::MAX, [255; 32]))?;
        own.map(|entry| Ok(entry?.1.value() + RECORD_BYTES)).sum()
    })
}

pub(super) fn owners(ledger: &MetaStore) -> Result<Vec<Principal>, MetaStoreError> {
    ledger.read(AGES, owners_in)
}

fn owners_in(ages: &ReadOnlyTable<AgeKey, u64>) -> Result<Vec<Principal>> {
    let (mut owners, mut from) = (Vec::<Principal>::new(), String::new());
    // Skips the rest of each owner: no name contains a NUL.
    while let Some(entry) = ages.range((from.as_str(), i64::MIN, [0; 32])..)?.next() {
        let owner = entry?.0.value().0.to_owned();
        from = format!("{owner}\0");
        owners.push(Principal::named(&owner));
    }
    Ok(owners)
}

/// Returns the unanswered requests of `owner`, at most [`RECORDS_MAX`].
pub(super) fn begun_of(
    ledger: &MetaStore,
    owner: &Principal,
) -> Result<Vec<(KeyScope, Interrupted)>, MetaStoreError> {
    ledger.read(RECORDS, |records| {
        let mut begun = Vec::new();
        for entry in records.range((owner.as_str(), [0; 32])..=(owner.as_str(), [255; 32]))? {
            let (key, value) = entry?;
            let (_, fingerprint, request_id, head, status, ..) = value.value();
            if status == 0 && begun.len() < RECORDS_MAX {
                let scope = KeyScope { owner: owner.clone(), digest: key.value().1 };
                let (fingerprint, request_id) =
                    (fingerprint.map(BodyDigest), request_id.to_owned());
                begun.push((scope, Interrupted { fingerprint, request_id, after: Seq(head) }));
            }
        }
        Ok(begun)
    })
}

/// Entry of the age index: owner, time and scope.
pub(super) type AgeIndexEntry = (String, i64, [u8; 32]);

/// Returns up to `limit` records from before `oldest`.
pub(super) fn before(
    ledger: &MetaStore,
    oldest: WallTime,
    limit: usize,
) -> Result<Vec<AgeIndexEntry>, MetaStoreError> {
    let (first, end) = (i64::MIN, oldest.epoch_ms);
    ledger.read(AGES, |ages| {
        let mut over = Vec::new();
        // An owner's records are in the order of their age.
        for owner in owners_in(ages)? {
            let owner = owner.as_str();
            for entry in ages.range((owner, first, [0; 32])..(owner, end, [0; 32]))? {
                let key = entry?.0;
                let (_, at, digest) = key.value();
                over.push((owner.to_owned(), at, digest));
                if over.len() == limit {
                    return Ok(over);
                }
            }
        }
        Ok(over)
    })
}

/// Removes these records, except those that were begun again since.
pub(super) fn forget(change: &WriteTransaction, over: &[AgeIndexEntry]) -> Result<()> {
    let mut ages = change.open_table(AGES)?;
    let mut records = change.open_table(RECORDS)?;
    for (owner, at, digest) in over {
        // A record that was begun again has another age entry, and stays.
        if ages.remove((&**owner, *at, *digest))?.is_some() {
            records.remove((&**owner, *digest))?;
        }
    }
    Ok(())
}
