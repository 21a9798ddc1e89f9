//! Cuts a part of a source into a file of its own, in a worker, while it is sent.
//!
//! Waits for other excerpts, not for jobs. The client sets the pace, within time limits; the worker ends when
//! the client goes away.

use std::{fs::File, ops::ControlFlow, ops::Range, sync::Arc, time::Duration};

use decode::ExcerptStart;
use tokio::{
    runtime::Handle,
    sync::mpsc::{Receiver, channel},
    time::timeout,
};
use tokio_util::sync::DropGuard;
use tracing::Instrument;
use worker::{ExcerptEvent, ExcerptSpec, WorkerError, WorkerLimits};

use super::{IngestError, JobRunner, probe::until_ended};
use crate::base::keys::Principal;

pub const EXCERPT_MS_MAX: u64 = 600_000;
/// Time limit for sending an excerpt: twice the playing time of the longest.
pub const EXCERPT_TIME: Duration = Duration::from_secs(1200);
/// Longest time that a piece may wait for the client.
pub const EXCERPT_IDLE: Duration = Duration::from_secs(60);
/// Pieces that may wait, of at most 64 KiB each.
const PIECES: usize = 4;

/// Next piece of an excerpt, or the reason for its end.
type Told = Result<ExcerptEvent, WorkerError>;

/// Excerpt that is being cut; dropping it cancels the worker.
pub struct Excerpt {
    pub start: ExcerptStart,
    pub first: Vec<u8>,
    pub rest: Rest,
}

pub struct Rest {
    pieces: Receiver<Told>,
    _end: DropGuard,
}

impl Rest {
    /// Returns the next piece; `None` after the last one.
    pub async fn next(&mut self) -> Option<Told> {
        self.pieces.recv().await
    }
}

impl JobRunner {
    /// Begins to cut `span`, in milliseconds of media time, out of a file of `owner`.
    pub async fn excerpt(
        self: &Arc<Self>,
        owner: &Principal,
        file: File,
        span: Range<i64>,
    ) -> Result<Excerpt, IngestError> {
        let ended = self.closing.child_token();
        let end = ended.clone().drop_guard();
        let entering = ended.run_until_cancelled(self.excerpts.enter(owner)).await;
        let place = entering.ok_or(IngestError::Shutdown)??;
        let (tell, pieces) = channel(PIECES);
        let limits = WorkerLimits { wall: EXCERPT_TIME, ..WorkerLimits::default() };
        let spec = ExcerptSpec { file, span, limits };
        let supervisor = self.parts.supervisor.clone();
        let paced = ended.clone();
        let work = async move {
            let working = until_ended(&ended, move |cancel| {
                let _place = place;
                let runtime = Handle::current();
                // Sends at the client's pace.
                let send = |told: Told| {
                    let sending = timeout(EXCERPT_IDLE, tell.send(told));
                    match runtime.block_on(paced.run_until_cancelled(sending)) {
                        Some(Ok(Ok(()))) => ControlFlow::Continue(()),
                        _ => ControlFlow::Break(()),
                    }
                };
                match supervisor.excerpt(spec, cancel, &mut |event| send(Ok(event))) {
                    // The client is gone.
                    Ok(()) | Err(WorkerError::Cancelled) => ControlFlow::Break(()),
                    Err(error) => send(Err(error)),
                }
            });
            working.await
        };
        // A drain cancels the task: nothing has to be kept.
        drop(self.jobs.spawn(work.in_current_span()));
        let mut rest = Rest { pieces, _end: end };
        let (mut start, mut next) = (None, rest.pieces.recv().await);
        if let Some(Ok(ExcerptEvent::Begins(begun))) = next {
            start = Some(begun);
            next = rest.pieces.recv().await;
        }
        match (start, next) {
            (Some(start), Some(Ok(ExcerptEvent::Bytes(first)))) => {
                Ok(Excerpt { start, first, rest })
            }
            _ if self.closing.is_cancelled() => Err(IngestError::Shutdown),
            (_, Some(Err(error))) => Err(IngestError::Worker(error)),
            _ => Err(IngestError::Lost),
        }
    }
}
