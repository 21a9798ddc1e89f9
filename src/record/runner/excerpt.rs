//! A part of a source as a file of its own: cut by a worker while it is sent.
//!
//! It waits for other excerpts and for no job. Whoever takes it sets its pace, within bounds of time; the
//! worker ends with whoever takes it.

use std::{fs::File, ops::ControlFlow, ops::Range, pin::pin, sync::Arc, time::Duration};

use decode::ExcerptStart;
use tokio::{
    runtime::Handle,
    sync::mpsc::{Receiver, Sender, channel},
    time::timeout,
};
use tokio_util::sync::{CancellationToken, DropGuard};
use tracing::Instrument;
use worker::{CancelToken, ExcerptEvent, ExcerptSpec, WorkerError, WorkerLimits};

use super::{IngestError, JobRunner, in_background};
use crate::base::keys::Principal;

/// Longest part.
pub const EXCERPT_MS_MAX: u64 = 600_000;
/// Time in which a part must be taken: twice what the longest takes to play.
pub const EXCERPT_TIME: Duration = Duration::from_secs(1200);
/// Time for which its bytes may wait to be taken.
pub const EXCERPT_IDLE: Duration = Duration::from_secs(60);
/// Pieces that may wait, of 64 KiB at most.
const PIECES: usize = 4;

/// Next piece of an excerpt, or the reason for its end.
type Told = Result<ExcerptEvent, WorkerError>;

/// An excerpt that is being cut; dropping it ends that.
pub struct Excerpt {
    /// Start of the excerpt.
    pub start: ExcerptStart,
    /// Its first bytes.
    pub first: Vec<u8>,
    /// Bytes after those.
    pub rest: Rest,
}

/// The rest of an excerpt.
pub struct Rest {
    pieces: Receiver<Told>,
    _end: DropGuard,
}

impl Rest {
    /// The next that is told of it, `None` where nothing is any more.
    pub fn poll(&mut self, cx: &mut std::task::Context<'_>) -> std::task::Poll<Option<Told>> {
        self.pieces.poll_recv(cx)
    }
}

/// Excerpts at once, and those of one principal, where `jobs` may decode.
pub fn excerpts_max(jobs: usize) -> (usize, usize) {
    let own = jobs.max(2);
    (2 * own, own)
}

impl JobRunner {
    /// Begins to cut `span` out of a file of `owner`, in milliseconds of media time.
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
        let (supervisor, cancel) = (self.parts.supervisor.clone(), CancelToken::new());
        let (token, taker) = (cancel.clone(), Taker { tell, ended: ended.clone() });
        let work = async move {
            let working = in_background(move || {
                let _place = place;
                let runtime = Handle::current();
                let mut take = |event| taker.take(&runtime, Ok(event));
                match supervisor.excerpt(spec, &token, &mut take) {
                    // Nobody takes it any more.
                    Ok(()) | Err(WorkerError::Cancelled) => ControlFlow::Break(()),
                    Err(error) => taker.take(&runtime, Err(error)),
                }
            });
            let mut working = pin!(working);
            tokio::select! {
                done = &mut working => done.map(drop),
                () = ended.cancelled() => {
                    cancel.cancel();
                    working.await.map(drop)
                }
            }
        };
        // A drain ends it: nothing of it is kept.
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

/// Hands on what is told, at the pace of whoever takes it.
struct Taker {
    tell: Sender<Told>,
    ended: CancellationToken,
}

impl Taker {
    fn take(&self, runtime: &Handle, told: Told) -> ControlFlow<()> {
        let sending = timeout(EXCERPT_IDLE, self.tell.send(told));
        match runtime.block_on(self.ended.run_until_cancelled(sending)) {
            Some(Ok(Ok(()))) => ControlFlow::Continue(()),
            _ => ControlFlow::Break(()),
        }
    }
}
