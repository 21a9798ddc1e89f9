//! One live session from its offer to its last event: a task that owns everything it holds.
//!
//! Promises that a session ends once, that its run then ends with one event that says how, and
//! that its place in a worker, its memory and its connection come back. Only the task records what
//! is decided about its frames; descriptions come from workers of its own that end with it. Long because
//! it is the whole life of a session.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use media::{Codec, ErrorKind, RequestId, SessionId};
use timeline::{Event, JsonText, RunCompleted, RunDeleted, RunFailed};
use tokio::{
    sync::{mpsc, watch},
    task::JoinSet,
    time::{MissedTickBehavior, timeout, timeout_at},
};
use tokio_util::sync::CancellationToken;
use transport::webrtc::{FragmentError, Restarted, SessionEvent, SessionHandle as Link};
use worker::{Chunk, SessionSpec, WorkerError};

use super::{
    budget::Reservation,
    describe::{Handle, Instruction, Look},
    health::{Health, Sample, Samples},
    inbox::{Heard, Inbox, Said, Shared, Shot, View},
    intake::Intake,
    orders::{Orders, PromptError},
    recording::LiveRecording,
    tally::Packets,
    turns::{Happened, Turns},
    workers::{Seat, Workers},
};
use crate::{
    base::{
        blocking::blocking,
        keys::Principal,
        metrics::{Metrics, SessionEnd, Shed},
    },
    record::runner::SHUTDOWN,
    runs::{
        registry::{JobGuard, Run},
        summary::Shape,
    },
};

/// Longest wait for the remaining output of a session once its pictures have ended.
const LAST_WORDS: Duration = Duration::from_secs(2);
/// Time from one write of signals that nothing follows from to the next.
const RECORD_EVERY: Duration = Duration::from_secs(1);

/// Reason of a session's end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// Its publisher asked for it.
    Deleted(RequestId),
    /// Its publisher closed the connection.
    Closed,
    /// Its publisher fell silent.
    Lost,
    /// Its publisher never came.
    NeverConnected,
    /// Its run was stopped or deleted, or has expired.
    RunOver,
    /// The server shuts down.
    Shutdown,
    /// It cannot go on, in words for its owner.
    Failed(String),
}

/// Reason that a fragment is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PatchError {
    /// A restart has to say which ICE session it ends.
    #[error("an ICE restart needs If-Match: the ETag of the session, or *")]
    TagMissing,
    /// It is of another ICE session.
    #[error("precondition failed: the condition does not match the current state")]
    TagOther,
    /// It cannot be used.
    #[error(transparent)]
    Fragment(#[from] FragmentError),
}

impl PatchError {
    /// The closed kind that decides what the caller is told.
    pub fn kind(&self) -> ErrorKind {
        match self {
            PatchError::TagMissing | PatchError::TagOther => ErrorKind::Conflict,
            PatchError::Fragment(error) => error.kind(),
        }
    }
}

/// A session as its routes see it.
pub struct Session {
    id: SessionId,
    run: Arc<Run>,
    /// The connection, until the session ends.
    link: Mutex<Option<Link>>,
    ends: mpsc::Sender<End>,
    /// Prompt updates for each worker that describes.
    orders: Orders,
    over: watch::Receiver<bool>,
    packets: Packets,
    shared: Arc<Shared>,
    samples: Mutex<Samples>,
}

/// Parts of a session's task.
pub struct Task {
    pub(super) session: Arc<Session>,
    pub(super) recording: LiveRecording,
    pub(super) guard: JobGuard,
    pub(super) metrics: Arc<Metrics>,
    pub(super) workers: Arc<Workers>,
    pub(super) spec: SessionSpec,
    pub(super) inbox: Inbox,
    pub(super) intake: Arc<Intake>,
    pub(super) inlets: Inlets,
    pub(super) describers: Describers,
    pub(super) draining: CancellationToken,
    pub(super) over: watch::Sender<bool>,
    pub(super) memory: Reservation,
}

/// Channels that feed a session's task.
pub struct Inlets {
    pub(super) said: Heard,
    pub(super) turns: Arc<Turns>,
    pub(super) ends: mpsc::Receiver<End>,
}

/// The workers that describe, and what ends them.
pub struct Describers {
    pub(super) keyframes: Handle,
    pub(super) clips: Option<Handle>,
    pub(super) tasks: JoinSet<()>,
    pub(super) end: CancellationToken,
    pub(super) cut: CancellationToken,
}

impl Session {
    pub(super) fn new(
        id: SessionId,
        run: Arc<Run>,
        link: Link,
        orders: Orders,
        shared: Arc<Shared>,
    ) -> (Session, mpsc::Receiver<End>, watch::Sender<bool>) {
        let (ends, ended) = mpsc::channel(1);
        let (tell, over) = watch::channel(false);
        let (link, packets) = (Mutex::new(Some(link)), Packets::default());
        let samples = Mutex::default();
        (Session { id, run, link, ends, orders, over, packets, shared, samples }, ended, tell)
    }

    /// The session's name.
    pub fn id(&self) -> SessionId {
        self.id
    }

    /// Its owner.
    pub fn owner(&self) -> &Principal {
        &self.run.origin().principal
    }

    /// Its run.
    pub fn run(&self) -> &Arc<Run> {
        &self.run
    }

    /// Number of the frames that were decided about, and their distribution over its duration.
    pub fn shape(&self) -> (u64, Shape) {
        (self.shared.frames(), self.shared.shape().clone())
    }

    /// Health of the session now.
    pub fn health(&self) -> Health {
        let now = self.counted();
        self.samples().health(now)
    }

    /// Remembers what it has counted by now.
    pub(super) fn sample(&self) {
        let now = self.counted();
        self.samples().add(now);
    }

    fn counted(&self) -> Sample {
        let packets = self.link().as_ref().map(Link::counts).unwrap_or_default();
        let at = Instant::now();
        Sample { at, packets, pictures: self.shared.pictures(at) }
    }

    fn samples(&self) -> MutexGuard<'_, Samples> {
        // A panic leaves a sample more or less.
        self.samples.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a fragment of the publisher's: candidates, or an ICE restart, whose other side is
    /// returned. `tag` is the entity tag that the publisher knows; `*` is any.
    pub fn patch(
        &self,
        fragment: &str,
        tag: Option<&[u8]>,
    ) -> Result<Option<Restarted>, PatchError> {
        let link = self.link();
        let link = link.as_ref().ok_or(FragmentError::Ended)?;
        let restarts = link.is_restart(fragment);
        match tag {
            None if restarts => return Err(PatchError::TagMissing),
            Some(tag) if tag != b"*" && tag != link.etag().as_bytes() => {
                return Err(PatchError::TagOther);
            }
            _ => {}
        }
        if restarts {
            return Ok(Some(link.restart(fragment)?));
        }
        link.trickle(fragment)?;
        Ok(None)
    }

    /// Adds to `metrics` what the connection has counted since the last call.
    pub(super) fn tell(&self, metrics: &Metrics) {
        if let Some(link) = &*self.link() {
            self.packets.tell(link.counts(), metrics);
        }
    }

    fn request_keyframe(&self) {
        if let Some(link) = &*self.link() {
            link.request_keyframe();
        }
    }

    fn link(&self) -> MutexGuard<'_, Option<Link>> {
        // The only change is to close it: a panic leaves it whole.
        self.link.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes every worker ask by `instruction` from now on; returns the first frame it holds for.
    pub async fn instruct(&self, instruction: Instruction) -> Result<u64, PromptError> {
        self.orders.give(instruction).await
    }

    /// Ends the session, and waits until its run has ended.
    pub async fn end(&self, end: End) {
        // Refused only where another end came first, or the session is over.
        self.ends.try_send(end).ok();
        // An error means that the task is gone.
        self.over.clone().wait_for(|over| *over).await.ok();
    }
}

impl Task {
    /// Carries the session out, to its end.
    pub async fn run(mut self) {
        let mut seat = None;
        let end = self.serve(&mut seat).await;
        self.intake.shut();
        self.session.tell(&self.metrics);
        // Dropping it closes the connection.
        drop(self.session.link().take());
        self.hear_out(seat.as_deref(), &end).await;
        self.describe_out().await;
        self.record(&end).await;
        self.metrics.live_ends.of(SessionEnd::from(&end)).inc();
        tracing::info!(session = %self.session.id, run = %self.session.run.id(), ?end,
            "a live session ended");
        let Task { intake, guard, over, memory, .. } = self;
        // Leaving a place waits for a worker that ends with it.
        if blocking(move || drop((seat, intake))).await.is_err() {
            tracing::error!("task that closes a worker session panicked");
        }
        drop((guard, memory));
        over.send_replace(true);
    }

    /// Until something ends the session.
    async fn serve(&mut self, seat: &mut Option<Arc<Seat>>) -> End {
        let stopped = self.guard.token().waiting.clone();
        let shared = Arc::clone(self.inbox.shared());
        let mut tick = tokio::time::interval(RECORD_EVERY);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                Some(end) = self.inlets.ends.recv() => return end,
                () = self.draining.cancelled() => return End::Shutdown,
                () = stopped.cancelled() => {
                    // A server that shuts down ends every job too.
                    let is_shutdown = self.draining.is_cancelled();
                    return if is_shutdown { End::Shutdown } else { End::RunOver };
                }
                happened = self.inlets.turns.next() => {
                    if let Some(end) = self.turn(happened, seat).await {
                        // A publisher that has ended the session is not lost, though both be found at once.
                        return self.inlets.ends.try_recv().unwrap_or(end);
                    }
                }
                Some(said) = self.inlets.said.recv() => {
                    if let Some(end) = self.hear(said).await {
                        return end;
                    }
                }
                () = async { tokio::select! { () = shared.recordable() => {}, _ = tick.tick() => {} } } => {
                    if let Some(end) = self.recording.write(&shared).await {
                        return end;
                    }
                }
            }
        }
    }

    /// Handles changes of the publisher; returns an end where one ends the session.
    async fn turn(&mut self, happened: Happened, seat: &mut Option<Arc<Seat>>) -> Option<End> {
        let Happened { coded, is_broken, has_connected, end } = happened;
        if has_connected {
            self.metrics.live_connected.inc();
        }
        if let Some(told) = end {
            return ended(told);
        }
        if is_broken {
            self.session.request_keyframe();
        }
        match self.open(coded?, seat.take()).await {
            Ok(opened) => {
                *seat = Some(opened);
                None
            }
            Err(error) => Some(End::Failed(error.to_string())),
        }
    }

    /// A place in a worker for pictures of `codec`, instead of the one `before`.
    async fn open(
        &mut self,
        codec: Codec,
        before: Option<Arc<Seat>>,
    ) -> Result<Arc<Seat>, WorkerError> {
        let mut resume = None;
        if before.is_some() {
            (self.inbox, resume) = self.inbox.renewed();
        }
        self.inbox.cut_clips(self.spec.clip);
        let (workers, owner) = (Arc::clone(&self.workers), self.session.owner().clone());
        let (spec, inbox) =
            (SessionSpec { codec, resume, ..self.spec.clone() }, self.inbox.clone());
        let intake = Arc::clone(&self.intake);
        let opened = blocking(move || {
            drop(before);
            let seat = Arc::new(workers.open(&owner, spec, &inbox)?);
            intake.attach(codec, &seat);
            Ok(seat)
        });
        opened.await.unwrap_or(Err(WorkerError::Ended))
    }

    /// Handles the worker's output; returns an end where it ends the session.
    async fn hear(&mut self, said: Said) -> Option<End> {
        match said {
            Said::View(view) => {
                // What is said of the frame comes behind it.
                let end = self.recording.write(self.inbox.shared()).await;
                self.show(view);
                end
            }
            Said::Clip(clip, is_looping) => {
                self.show_clip(clip, is_looping);
                None
            }
            // The worker has no more to say, and the session has not asked it to end.
            Said::Closed(_) => None,
            Said::Behind => Some(End::Failed("the log is too slow for its frames".to_owned())),
            // What is used up is no matter of the pictures.
            Said::Failed(fault) if fault.kind() == ErrorKind::Exhausted => {
                Some(End::Failed(fault.to_string()))
            }
            Said::Failed(fault) => {
                Some(End::Failed(format!("the pictures cannot be decoded: {fault}")))
            }
            Said::WorkerEnded(reason) => {
                Some(End::Failed(format!("the media worker ended: {reason}")))
            }
        }
    }

    fn show(&self, view: View) {
        let View { frame_index, pts_ms, jpeg, novelty, is_looping } = view;
        let pictures = vec![(pts_ms, jpeg)];
        let look = Look { frame_index, last_frame: frame_index, pictures, is_looping, novelty };
        self.describers.keyframes.show(look);
    }

    fn show_clip(&self, clip: Chunk<Shot>, is_looping: bool) {
        let Some(clips) = &self.describers.clips else { return };
        let (frame_index, frames) = (clip.first_frame, clip.frames);
        let last_frame = frame_index + frames.saturating_sub(1);
        let pictures = clip.views;
        clips.show(Look { frame_index, last_frame, pictures, is_looping, novelty: None });
    }

    /// Hears what the media worker still has to say, for so long and no longer.
    async fn hear_out(&mut self, seat: Option<&Seat>, end: &End) {
        // One that failed says nothing, nor does one that has ended.
        let speaks =
            !matches!(end, End::Failed(_)) && seat.is_some_and(|seat| seat.close().is_ok());
        if !speaks {
            return;
        }
        // Only waits are cut off: a write that nobody awaits goes on, and ends behind the event that ends the run.
        let until = tokio::time::Instant::now() + LAST_WORDS;
        while let Ok(said) = timeout_at(until, self.inlets.said.recv()).await {
            match said {
                Some(Said::Closed(decoder)) => return self.recording.decoded_by(decoder),
                Some(Said::Failed(_) | Said::WorkerEnded(_)) | None => return,
                // Whatever ends it now, it is ending already.
                Some(said) => drop(self.hear(said).await),
            }
        }
        self.metrics.live_shed.of(Shed::LastWords).inc();
        tracing::warn!(session = %self.session.id, "worker output incomplete after the session's end; the remaining events are dropped");
    }

    /// Lets the describing workers finish, for so long and no longer.
    async fn describe_out(&mut self) {
        self.describers.end.cancel();
        let tasks = &mut self.describers.tasks;
        let described = async { while tasks.join_next().await.is_some() {} };
        if timeout(LAST_WORDS, described).await.is_err() {
            self.describers.cut.cancel();
            while self.describers.tasks.join_next().await.is_some() {}
        }
    }

    /// Closes the recording with the event that says how the session ended.
    async fn record(&mut self, end: &End) {
        let (frames, markers) = self.recording.end(self.inbox.shared());
        let index_name = self.recording.index_name().cloned();
        let completed = |request_id| {
            Event::RunCompleted(RunCompleted {
                request_id,
                stream_id: None,
                frames,
                markers,
                index_name,
                semantic: None,
                reason: None,
            })
        };
        let failed = |reason: &str| {
            Event::RunFailed(RunFailed { request_id: None, reason: reason.to_owned() })
        };
        let last = match end {
            End::Deleted(request_id) => Some(completed(Some(*request_id))),
            End::Closed => Some(completed(None)),
            End::Lost => Some(failed("the publisher was lost: nothing came from it for 10 s")),
            End::NeverConnected => Some(Event::RunDeleted(RunDeleted {
                request_id: None,
                reclaim: JsonText::parse(r#"{"reason":"never_connected"}"#),
            })),
            End::Shutdown => Some(failed(SHUTDOWN)),
            End::Failed(reason) => Some(failed(reason)),
            End::RunOver => None,
        };
        let cut = match end {
            End::Deleted(_) | End::Closed => None,
            End::Lost => Some("its publisher was lost"),
            End::NeverConnected => Some("its publisher never came"),
            End::RunOver => Some("stopped"),
            End::Shutdown => Some(SHUTDOWN),
            End::Failed(reason) => Some(reason.as_str()),
        };
        self.recording.close(self.inbox.shared(), cut, last).await;
    }
}

/// The end that the publisher's side brings; none where it has just come.
fn ended(told: SessionEvent) -> Option<End> {
    match told {
        SessionEvent::Connected => None,
        SessionEvent::Closed => Some(End::Closed),
        SessionEvent::Lost => Some(End::Lost),
        SessionEvent::NeverConnected => Some(End::NeverConnected),
        SessionEvent::Failed(failure) => Some(End::Failed(failure.to_string())),
    }
}
