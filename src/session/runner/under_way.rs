//! Which jobs are under way, durably: what a crash cuts off is told at the next start.
//!
//! A job is noted before it begins and struck out behind its last event. A crash between those
//! two leaves a note of a job that is over: its last event in the log tells. A note that the disk
//! keeps of a job that is over is struck out as soon as the disk takes it, and nothing new is
//! noted before.

use std::{
    collections::HashSet,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use media::{RequestId, RunId, Seq};
use redb::{ReadableTable, TableDefinition};
use timeline::{Event, EventKind, RunFailed, Timeline, TimelineError};
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

use super::{IngestError, Runner, in_background};
use crate::{
    ledger::{self, Ledger, LedgerError},
    session::admission::Stay,
};

/// The reason of a `run_failed` of a job whose server ended without one: it was killed, or the
/// machine was.
pub const INTERRUPTED: &str = "interrupted";
/// Heads of events looked at in one step.
const STEP: usize = 4096;
/// Time from one look for notes of jobs that are over to the next.
const SETTLE_EVERY: Duration = Duration::from_secs(10);

/// Run and request.
type Jobs = TableDefinition<'static, ([u8; 16], [u8; 8]), ()>;

/// What a job does, which tells how it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum JobKind {
    Ingest,
    Reasoning,
}

impl JobKind {
    const ALL: [JobKind; 2] = [JobKind::Ingest, JobKind::Reasoning];

    fn table(self) -> Jobs {
        TableDefinition::new(match self {
            JobKind::Ingest => "jobs",
            JobKind::Reasoning => "reasonings",
        })
    }

    /// Models decide how long a reasoning decodes: it waits for their answers.
    pub(super) fn stay(self) -> Stay {
        match self {
            JobKind::Ingest => Stay::Short,
            JobKind::Reasoning => Stay::Long,
        }
    }

    /// What comes last of a job that was not cut off.
    fn last_event(self) -> EventKind {
        match self {
            JobKind::Ingest => EventKind::FramesDecoded,
            JobKind::Reasoning => EventKind::RunCompleted,
        }
    }
}

/// A job as it is noted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Note {
    pub run: RunId,
    pub request: RequestId,
    pub kind: JobKind,
}

impl Note {
    fn key(&self) -> ([u8; 16], [u8; 8]) {
        (*self.run.as_bytes(), *self.request.as_bytes())
    }
}

/// The jobs under way; every call waits for the disk.
#[derive(Clone)]
pub(super) struct UnderWay {
    ledger: Ledger,
    /// Jobs that are over and may be noted; no more than were under way when the disk failed.
    over: Arc<Mutex<HashSet<Note>>>,
}

impl UnderWay {
    /// Those noted in `ledger`.
    pub(super) fn new(ledger: Ledger) -> UnderWay {
        UnderWay { ledger, over: Arc::default() }
    }

    /// Notes that a job begins; it must not where this fails.
    pub(super) fn note(&self, note: Note) -> Result<(), LedgerError> {
        self.settle()?;
        let noted = self.ledger.write(|change| {
            change.open_table(note.kind.table())?.insert(note.key(), ())?;
            Ok(())
        });
        if noted.is_err() {
            // It may be there later all the same.
            self.over().insert(note);
        }
        noted
    }

    /// Strikes out a job that is over, now or once the disk takes it.
    pub(super) fn strike(&self, note: Note) -> Result<(), LedgerError> {
        self.over().insert(note);
        self.settle()
    }

    /// Strikes out every job that is over.
    fn settle(&self) -> Result<(), LedgerError> {
        let over: Vec<Note> = self.over().iter().copied().collect();
        if over.is_empty() {
            return Ok(());
        }
        self.ledger.write(|change| {
            for note in &over {
                change.open_table(note.kind.table())?.remove(note.key())?;
            }
            Ok(())
        })?;
        let mut left = self.over();
        for note in &over {
            left.remove(note);
        }
        Ok(())
    }

    /// Every job that is noted.
    fn noted(&self) -> Result<Vec<Note>, LedgerError> {
        self.ledger.read(|view| {
            let mut noted = Vec::new();
            for kind in JobKind::ALL {
                let Some(table) = ledger::table(view, kind.table())? else { continue };
                for row in table.iter()? {
                    let (run, request) = row?.0.value();
                    let (run, request) = (RunId::from_bytes(run), RequestId::from_bytes(request));
                    noted.push(Note { run, request, kind });
                }
            }
            Ok(noted)
        })
    }

    fn over(&self) -> MutexGuard<'_, HashSet<Note>> {
        // Every change is one insert or remove: a panic leaves the set usable.
        self.over.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether the last event of a job that was not cut off is on the timeline.
fn is_over(timeline: &Timeline, note: Note) -> Result<bool, TimelineError> {
    let mut from = Seq(1);
    loop {
        let heads = timeline.heads_of(note.run, from, STEP);
        let Some(last) = heads.last() else { return Ok(false) };
        from = Seq(last.seq.0 + 1);
        for head in heads.iter().filter(|head| head.kind == note.kind.last_event()) {
            let Some(parts) = timeline.get_parts(head.seq)? else { continue };
            let request = match parts.decode()? {
                Event::FramesDecoded(decoded) => Some(decoded.request_id),
                Event::RunCompleted(completed) => completed.request_id,
                _ => None,
            };
            if request == Some(note.request) {
                return Ok(true);
            }
        }
    }
}

impl Runner {
    /// Strikes out now and then what the disk did not let go, until `stop`.
    pub async fn run(self: Arc<Self>, stop: CancellationToken) {
        let mut tick = tokio::time::interval(SETTLE_EVERY);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while stop.run_until_cancelled(tick.tick()).await.is_some() {
            self.settle().await;
        }
    }

    /// Strikes out the jobs that are over and may still be noted.
    pub(super) async fn settle(&self) {
        let under_way = self.under_way.clone();
        let settled = in_background(move || under_way.settle()).await;
        if let Err(error) = settled.and_then(|settled| Ok(settled?)) {
            tracing::warn!(%error, "jobs that are over stay noted");
        }
    }

    /// Ends the runs whose jobs were under way when the server last ended without a word; before
    /// there are new jobs.
    pub async fn tell_interrupted(self: &Arc<Self>) -> Result<(), IngestError> {
        let under_way = self.under_way.clone();
        let noted = in_background(move || under_way.noted()).await??;
        for note in noted {
            let (runner, registry) = (Arc::clone(self), &self.parts.registry);
            let over = move || is_over(runner.parts.registry.timeline(), note);
            let run = registry.run(note.run).filter(|run| run.lifecycle().is_active());
            if let Some(run) = run
                && !in_background(over).await??
            {
                let reason = INTERRUPTED.to_owned();
                let failed = RunFailed { request_id: Some(note.request), reason };
                registry.commit(&run, vec![Event::RunFailed(failed)]).await?;
                let Note { run, request, .. } = note;
                tracing::warn!(request_id = %request, %run, "a job was cut off by the server's end");
            }
            let under_way = self.under_way.clone();
            in_background(move || under_way.strike(note)).await??;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
