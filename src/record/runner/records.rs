//! Job records in the ledger, keyed by run and job.

use media::{JobId, RequestId, RunId, WallTime};
use redb::{ReadableTable, TableDefinition, WriteTransaction};

use crate::{
    base::meta_store::{MetaStore, MetaStoreError},
    runs::registry::{JobKind, JobOrder, JobStatus, JobView},
};

type Result<T, E = redb::Error> = std::result::Result<T, E>;

/// Run id and job id.
type Key = ([u8; 16], [u8; 16]);
/// Kind, status, request id, start and end in epoch ms, frames done and total, ms of work.
type Value = (u8, u8, [u8; 8], i64, Option<i64>, u64, Option<u64>, u64);
const RECORDS: TableDefinition<'static, Key, Value> = TableDefinition::new("jobs_of_runs");

/// Ended jobs recorded per run; the oldest are removed first.
pub(super) const ENDED_MAX: usize = 1000;

/// Returns the position of `one`, which records keep.
fn code<T: PartialEq>(all: &[T], one: T) -> u8 {
    all.iter().position(|known| *known == one).unwrap_or(0) as u8
}

fn key(order: &JobOrder) -> Key {
    (*order.run.as_bytes(), *order.id.as_bytes())
}

fn view((run, id): Key, value: Value) -> Option<JobView> {
    let (kind, status, request, started, ended, frames_done, frames_total, worked_ms) = value;
    Some(JobView {
        order: JobOrder {
            id: JobId::from_bytes(id),
            kind: *JobKind::ALL.get(usize::from(kind))?,
            run: RunId::from_bytes(run),
            request: RequestId::from_bytes(request),
            started_at: WallTime { epoch_ms: started },
        },
        status: *JobStatus::ALL.get(usize::from(status))?,
        frames_done,
        frames_total,
        worked_ms,
        ended_at: ended.map(|epoch_ms| WallTime { epoch_ms }),
    })
}

pub(super) fn put(change: &WriteTransaction, job: &JobView) -> Result<()> {
    let order = &job.order;
    let value = (
        code(&JobKind::ALL, order.kind),
        code(&JobStatus::ALL, job.status),
        *order.request.as_bytes(),
        order.started_at.epoch_ms,
        job.ended_at.map(|at| at.epoch_ms),
        job.frames_done,
        job.frames_total,
        job.worked_ms,
    );
    change.open_table(RECORDS)?.insert(key(order), value)?;
    Ok(())
}

pub(super) fn remove(change: &WriteTransaction, order: &JobOrder) -> Result<()> {
    change.open_table(RECORDS)?.remove(key(order))?;
    Ok(())
}

/// Removes the oldest ended jobs of a run over the limit.
pub(super) fn bound(change: &WriteTransaction, run: RunId) -> Result<()> {
    let mut records = change.open_table(RECORDS)?;
    let mut ended = Vec::new();
    for entry in records.range(range(run))? {
        let (key, value) = entry?;
        if let Some(at) = value.value().4 {
            ended.push((at, key.value()));
        }
    }
    ended.sort_unstable();
    for (_, key) in ended.iter().take(ended.len().saturating_sub(ENDED_MAX)) {
        records.remove(key)?;
    }
    Ok(())
}

fn range(run: RunId) -> std::ops::RangeInclusive<Key> {
    let run = *run.as_bytes();
    (run, [0; 16])..=(run, [255; 16])
}

pub(super) fn of_run(ledger: &MetaStore, run: RunId) -> Result<Vec<JobView>, MetaStoreError> {
    ledger.read(RECORDS, |records| {
        let mut found = Vec::new();
        for entry in records.range(range(run))? {
            let (key, value) = entry?;
            found.extend(view(key.value(), value.value()));
        }
        Ok(found)
    })
}

pub(super) fn find(
    ledger: &MetaStore,
    run: RunId,
    id: JobId,
) -> Result<Option<JobView>, MetaStoreError> {
    let key = (*run.as_bytes(), *id.as_bytes());
    ledger.read(RECORDS, |records| Ok(records.get(key)?.and_then(|value| view(key, value.value()))))
}

/// Returns up to `limit` jobs of any run that satisfy `is_wanted`.
pub(super) fn all(
    ledger: &MetaStore,
    limit: usize,
    is_wanted: impl Fn(&JobView) -> bool,
) -> Result<Vec<JobView>, MetaStoreError> {
    ledger.read(RECORDS, |records| {
        let mut found = Vec::new();
        for entry in records.iter()? {
            let (key, value) = entry?;
            found.extend(view(key.value(), value.value()).filter(&is_wanted));
            if found.len() == limit {
                break;
            }
        }
        Ok(found)
    })
}
