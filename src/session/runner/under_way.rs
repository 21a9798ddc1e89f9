//! Which jobs are under way, durably: what a crash cuts off is told at the next start.
//!
//! A job is noted before it begins and struck out behind its last event. A crash between those
//! two leaves a note of a job that is over: its last event in the log tells.

use std::sync::Arc;

use media::{RequestId, RunId};
use redb::{ReadableTable, TableDefinition};
use timeline::{Event, EventKind, RunFailed, Timeline, TimelineError};

use super::{IngestError, Runner, in_background};
use crate::ledger::{self, Ledger, LedgerError};

/// The reason of a `run_failed` of a job whose server ended without one: it was killed, or the
/// machine was.
const INTERRUPTED: &str = "interrupted";

/// Run and request.
const JOBS: TableDefinition<'_, ([u8; 16], [u8; 8]), ()> = TableDefinition::new("jobs");

/// The jobs under way; every call waits for the disk.
#[derive(Clone)]
pub(super) struct UnderWay(Ledger);

impl UnderWay {
    /// Those noted in `ledger`.
    pub(super) fn new(ledger: Ledger) -> UnderWay {
        UnderWay(ledger)
    }

    /// Notes that the job of `request` begins on `run`.
    pub(super) fn note(&self, run: RunId, request: RequestId) -> Result<(), LedgerError> {
        self.0.write(|change| {
            change.open_table(JOBS)?.insert((*run.as_bytes(), *request.as_bytes()), ())?;
            Ok(())
        })
    }

    /// Strikes it out.
    pub(super) fn strike(&self, run: RunId, request: RequestId) -> Result<(), LedgerError> {
        self.0.write(|change| {
            change.open_table(JOBS)?.remove((*run.as_bytes(), *request.as_bytes()))?;
            Ok(())
        })
    }

    /// Every job that is noted.
    pub(super) fn noted(&self) -> Result<Vec<(RunId, RequestId)>, LedgerError> {
        self.0.read(|view| {
            let mut noted = Vec::new();
            let Some(table) = ledger::table(view, JOBS)? else { return Ok(noted) };
            for row in table.iter()? {
                let (run, request) = row?.0.value();
                noted.push((RunId::from_bytes(run), RequestId::from_bytes(request)));
            }
            Ok(noted)
        })
    }
}

/// Whether the last event of the job of `request` is on the timeline of `run`.
fn is_over(timeline: &Timeline, run: RunId, request: RequestId) -> Result<bool, TimelineError> {
    let Some(last) = timeline.latest(run, EventKind::FramesDecoded) else { return Ok(false) };
    match timeline.get_parts(last.seq)?.map(|parts| parts.decode()).transpose()? {
        Some(Event::FramesDecoded(decoded)) => Ok(decoded.request_id == request),
        _ => Ok(false),
    }
}

impl Runner {
    /// Ends the runs whose jobs were under way when the server last ended without a word; before
    /// there are new jobs.
    pub async fn tell_interrupted(self: &Arc<Self>) -> Result<(), IngestError> {
        let under_way = self.under_way.clone();
        let noted = in_background(move || under_way.noted()).await??;
        for (id, request_id) in noted {
            let (runner, registry) = (Arc::clone(self), &self.parts.registry);
            let over = move || {
                let timeline = runner.parts.registry.timeline();
                is_over(timeline, id, request_id)
            };
            let run = registry.run(id).filter(|run| run.lifecycle().is_active());
            if let Some(run) = run
                && !in_background(over).await??
            {
                let reason = INTERRUPTED.to_owned();
                let failed = RunFailed { request_id: Some(request_id), reason };
                registry.commit(&run, vec![Event::RunFailed(failed)]).await?;
                tracing::warn!(%request_id, run = %id, "a job was cut off by the server's end");
            }
            let under_way = self.under_way.clone();
            in_background(move || under_way.strike(id, request_id)).await??;
        }
        Ok(())
    }
}
