//! The records of used keys in the ledger, and the bounds on them.

use media::{Seq, WallTime};
use redb::{ReadTransaction, ReadableTable, TableDefinition, WriteTransaction};

use super::{Answer, BYTES_MAX, Fingerprint, Interrupted, RECORDS_MAX, Scope};
use crate::ledger;

type Result<T> = std::result::Result<T, redb::Error>;

/// Owner and scope.
type Key = (&'static str, [u8; 32]);
/// Time in epoch ms, fingerprint, request, head of the log, status (0 is begun), headers, body.
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
/// Owner, time and scope to the bytes of the record: which are the oldest, and how large.
const AGES: TableDefinition<'static, (&str, i64, [u8; 32]), u64> =
    TableDefinition::new("idempotency_ages");

/// What is known of a key.
pub(super) struct Record {
    pub at: WallTime,
    pub state: State,
}

/// How far its request has come.
pub(super) enum State {
    Begun(Interrupted),
    Answered(Fingerprint, Answer),
}

/// The record of `scope`.
pub(super) fn find(view: &ReadTransaction, scope: &Scope) -> Result<Option<Record>> {
    let Some(table) = ledger::table(view, RECORDS)? else { return Ok(None) };
    let found = table.get((scope.owner.as_str(), scope.digest))?;
    Ok(found.map(|value| {
        let (epoch_ms, fingerprint, request_id, head, status, headers, body) = value.value();
        let fingerprint = fingerprint.map(Fingerprint);
        let state = match fingerprint.filter(|_| status > 0) {
            Some(fingerprint) => {
                let owned = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
                let headers = headers.into_iter().map(owned).collect();
                State::Answered(fingerprint, Answer { status, headers, body: body.to_owned() })
            }
            None => {
                let request_id = request_id.to_owned();
                State::Begun(Interrupted { fingerprint, request_id, after: Seq(head) })
            }
        };
        Record { at: WallTime { epoch_ms }, state }
    }))
}

/// Writes the record of `scope` and forgets the owner's oldest ones where there are too many.
pub(super) fn put(
    change: &WriteTransaction,
    scope: &Scope,
    at: WallTime,
    state: &State,
) -> Result<()> {
    remove(change, scope)?;
    let bytes = {
        let mut records = change.open_table(RECORDS)?;
        let (key, at) = ((scope.owner.as_str(), scope.digest), at.epoch_ms);
        match state {
            State::Begun(Interrupted { fingerprint, request_id, after }) => {
                let fingerprint = fingerprint.map(|fingerprint| fingerprint.0);
                let value = (at, fingerprint, &**request_id, after.0, 0, Vec::new(), &[][..]);
                records.insert(key, value)?;
                0
            }
            State::Answered(fingerprint, answer) => {
                let headers = answer.headers.iter().map(|(name, value)| (&**name, &**value));
                let (headers, body) = (headers.collect::<Vec<_>>(), answer.body.as_slice());
                let value = (at, Some(fingerprint.0), "", 0, answer.status, headers, body);
                records.insert(key, value)?;
                body.len() as u64
            }
        }
    };
    change.open_table(AGES)?.insert((scope.owner.as_str(), at.epoch_ms, scope.digest), bytes)?;
    bound(change, scope)
}

/// Forgets the record of `scope`.
pub(super) fn remove(change: &WriteTransaction, scope: &Scope) -> Result<()> {
    let owner = scope.owner.as_str();
    let mut records = change.open_table(RECORDS)?;
    let removed = records.remove((owner, scope.digest))?.map(|value| value.value().0);
    if let Some(at) = removed {
        change.open_table(AGES)?.remove((owner, at, scope.digest))?;
    }
    Ok(())
}

/// Forgets the oldest records of the owner of `newest`, which stays, until the rest is in bounds.
fn bound(change: &WriteTransaction, newest: &Scope) -> Result<()> {
    let owner = newest.owner.as_str();
    let mut ages = change.open_table(AGES)?;
    let (mut count, mut bytes, mut surplus) = (0, 0, Vec::new());
    for entry in ages.range((owner, i64::MIN, [0; 32])..=(owner, i64::MAX, [255; 32]))?.rev() {
        let (key, size) = entry?;
        let (_, at, digest) = key.value();
        (count, bytes) = (count + 1, bytes + size.value());
        if (count > RECORDS_MAX || bytes > BYTES_MAX) && digest != newest.digest {
            surplus.push((at, digest));
        }
    }
    let mut records = change.open_table(RECORDS)?;
    for (at, digest) in surplus {
        ages.remove((owner, at, digest))?;
        records.remove((owner, digest))?;
    }
    Ok(())
}

/// Forgets every record from before `oldest`.
pub(super) fn expire_all(change: &WriteTransaction, oldest: WallTime) -> Result<()> {
    let mut ages = change.open_table(AGES)?;
    let mut records = change.open_table(RECORDS)?;
    let mut over = Vec::new();
    for entry in ages.iter()? {
        let key = entry?.0;
        let (owner, at, digest) = key.value();
        if at < oldest.epoch_ms {
            over.push((owner.to_owned(), at, digest));
        }
    }
    for (owner, at, digest) in over {
        ages.remove((&*owner, at, digest))?;
        records.remove((&*owner, digest))?;
    }
    Ok(())
}
