//! One live session from its offer to its last event: a task that owns all resources of the session.
//!
//! Promises that a session ends once, that its run then ends with one event that says how, and that its
//! worker slot, memory and connection are released. Only this task records the gate's decisions; descriptions
//! come from separate tasks that end with it. Long because it is the whole life of a session.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use media::{Codec, RequestId, SessionId};
use parking_lot::Mutex;
use timeline::{Event, JsonText, RunCompleted, RunDeleted};
use tokio::{
    sync::mpsc,
    task::JoinSet,
    time::{timeout, timeout_at},
};
use tokio_util::sync::CancellationToken;
use transport::webrtc::{IceRestartAnswer, SdpFragError, SessionEvent, SessionHandle as Link};
use worker::{SessionSpec, WorkerError};

use super::{
    description_worker::{DescriptionHandle, Instruction},
    frame_router::FrameRouter,
    health::{Health, Sample, Samples},
    prompt_updates::{PromptError, PromptUpdater},
    publisher_state::PublisherChanges,
    recording::LiveRecording,
    session_events::{Heard, SessionOutput, SessionOutputSender, SessionProgress},
    transport_metrics::PacketCounters,
    worker_pool::{LiveWorkerPool, WorkerSlot},
};
use crate::{
    base::{
        blocking::blocking,
        every,
        keys::Principal,
        metrics::{Metrics, SessionEnd, ShedReason},
    },
    record::{MemoryReservation, recording::failed, runner::SHUTDOWN},
    runs::{
        registry::{JobGuard, Run},
        summary::Shape,
    },
};

/// Longest wait for the remaining output of a session after its end.
const LAST_WORDS: Duration = Duration::from_secs(2);
/// Interval of writes of signals while no event is pending.
const RECORD_EVERY: Duration = Duration::from_secs(1);

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EndReason {
    /// The publisher deleted the session with this request.
    Deleted(RequestId),
    Closed,
    Lost,
    NeverConnected,
    /// The run was stopped or deleted, or has expired.
    RunOver,
    Shutdown,
    /// The session failed; the reason, for its owner.
    Failed(String),
}

pub struct LiveSession {
    pub id: SessionId,
    pub run: Arc<Run>,
    /// The connection, until the session ends.
    link: Mutex<Option<Link>>,
    /// Closed once the session's task has ended.
    ends: mpsc::Sender<EndReason>,
    prompts: PromptUpdater,
    packets: PacketCounters,
    shared: Arc<SessionProgress>,
    samples: Mutex<Samples>,
}

pub struct SessionTask {
    pub(super) session: Arc<LiveSession>,
    pub(super) recording: LiveRecording,
    pub(super) guard: JobGuard,
    pub(super) metrics: Arc<Metrics>,
    pub(super) workers: Arc<LiveWorkerPool>,
    pub(super) spec: SessionSpec,
    pub(super) inbox: SessionOutputSender,
    pub(super) intake: Arc<FrameRouter>,
    pub(super) said: Heard,
    pub(super) ends: mpsc::Receiver<EndReason>,
    pub(super) describers: DescriptionWorkers,
    pub(super) draining: CancellationToken,
    pub(super) memory: MemoryReservation,
}

pub struct DescriptionWorkers {
    pub(super) keyframes: DescriptionHandle,
    pub(super) clips: Option<DescriptionHandle>,
    pub(super) tasks: JoinSet<()>,
    pub(super) end: CancellationToken,
    pub(super) cut: CancellationToken,
}

impl LiveSession {
    pub(super) fn new(
        id: SessionId,
        run: Arc<Run>,
        link: Link,
        prompts: PromptUpdater,
        shared: Arc<SessionProgress>,
    ) -> (LiveSession, mpsc::Receiver<EndReason>) {
        let (ends, ended) = mpsc::channel(1);
        let (link, packets) = (Mutex::new(Some(link)), PacketCounters::default());
        let samples = Mutex::default();
        (LiveSession { id, run, link, ends, prompts, packets, shared, samples }, ended)
    }

    pub fn owner(&self) -> &Principal {
        &self.run.origin().principal
    }

    /// Returns the number of frames decided about, and their distribution over the session.
    pub fn shape(&self) -> (u64, Shape) {
        (self.shared.frames(), self.shared.shape().clone())
    }

    pub fn health(&self) -> Health {
        let now = self.counted();
        self.samples.lock().health(now)
    }

    pub(super) fn sample(&self) {
        let now = self.counted();
        self.samples.lock().add(now);
    }

    fn counted(&self) -> Sample {
        let packets = self.link.lock().as_ref().map(Link::counts).unwrap_or_default();
        let at = Instant::now();
        Sample { at, packets, pictures: self.shared.pictures(at) }
    }

    /// Applies an SDP fragment of the publisher, as [`Link::patch`] does.
    pub fn patch(
        &self,
        fragment: &str,
        tag: Option<&[u8]>,
    ) -> Result<Option<IceRestartAnswer>, SdpFragError> {
        self.link.lock().as_ref().ok_or(SdpFragError::Ended)?.patch(fragment, tag)
    }

    /// Adds the connection's counts since the last call to `metrics`.
    pub(super) fn tell(&self, metrics: &Metrics) {
        if let Some(link) = &*self.link.lock() {
            self.packets.tell(link.counts(), metrics);
        }
    }

    fn request_keyframe(&self) {
        if let Some(link) = &*self.link.lock() {
            link.request_keyframe();
        }
    }

    /// Sets `instruction` for every description worker; returns the first frame that all of them apply it to.
    pub fn instruct(&self, instruction: &Instruction) -> Result<u64, PromptError> {
        self.prompts.give(instruction)
    }

    /// Ends the session, and waits until its run has ended.
    pub async fn end(&self, end: EndReason) {
        // The send fails only if another end came first, or the session is over.
        self.ends.try_send(end).ok();
        self.ends.closed().await;
    }
}

impl SessionTask {
    pub async fn run(mut self) {
        let mut seat = None;
        let end = self.serve(&mut seat).await;
        self.intake.shut();
        self.session.tell(&self.metrics);
        // Dropping the handle closes the connection.
        drop(self.session.link.lock().take());
        self.drain_worker(seat.as_deref(), &end).await;
        self.drain_descriptions().await;
        self.record(&end).await;
        tracing::info!(session = %self.session.id, run = %self.session.run.id(), ?end,
            "a live session ended");
        let SessionTask { intake, guard, memory, ends, .. } = self;
        // Dropping a slot may wait for a worker that ends with it.
        if blocking(move || drop((seat, intake))).await.is_err() {
            tracing::error!("task that closes a worker session panicked");
        }
        // In this order: whoever waits for the end finds the rest released.
        drop((guard, memory, ends));
    }

    /// Serves the session until something ends it; returns the reason.
    async fn serve(&mut self, seat: &mut Option<Arc<WorkerSlot>>) -> EndReason {
        let stopped = self.guard.token.waiting.clone();
        let shared = Arc::clone(self.inbox.shared());
        let mut tick = every(RECORD_EVERY);
        loop {
            tokio::select! {
                Some(end) = self.ends.recv() => return end,
                () = self.draining.cancelled() => return EndReason::Shutdown,
                () = stopped.cancelled() => {
                    // A server shutdown cancels every job too.
                    let is_shutdown = self.draining.is_cancelled();
                    return if is_shutdown { EndReason::Shutdown } else { EndReason::RunOver };
                }
                happened = shared.turns.next() => {
                    if let Some(end) = self.turn(happened, seat).await {
                        // A delete by the publisher wins over a loss found at the same time.
                        return self.ends.try_recv().unwrap_or(end);
                    }
                }
                Some(said) = self.said.recv() => {
                    if let Some(end) = self.hear(said).await {
                        return end;
                    }
                }
                () = async { tokio::select! { () = shared.recordable() => {}, _ = tick.tick() => {} } } => {
                    if let Err(end) = self.recording.write(&shared).await {
                        return end;
                    }
                }
            }
        }
    }

    /// Handles changes of the publisher; returns a reason if the session must end.
    async fn turn(
        &mut self,
        happened: PublisherChanges,
        seat: &mut Option<Arc<WorkerSlot>>,
    ) -> Option<EndReason> {
        let PublisherChanges { coded, is_broken, has_connected, end } = happened;
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
            Err(error) => Some(EndReason::Failed(error.to_string())),
        }
    }

    /// Opens a worker slot for access units of `codec`, in place of `before`.
    async fn open(
        &mut self,
        codec: Codec,
        before: Option<Arc<WorkerSlot>>,
    ) -> Result<Arc<WorkerSlot>, WorkerError> {
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

    /// Handles the worker's output; returns a reason if the session must end.
    async fn hear(&mut self, said: SessionOutput) -> Option<EndReason> {
        match said {
            SessionOutput::View(look) => {
                // Records the frame before its description, which refers to it.
                let written = self.recording.write(self.inbox.shared()).await;
                self.describers.keyframes.show(look);
                written.err()
            }
            SessionOutput::Clip(look) => {
                if let Some(clips) = &self.describers.clips {
                    clips.show(look);
                }
                None
            }
            // The session did not ask the worker to close: there is nothing to do.
            SessionOutput::Closed(_) => None,
            SessionOutput::Behind => {
                Some(EndReason::Failed("the log is too slow for its frames".to_owned()))
            }
            SessionOutput::Failed(reason) => Some(EndReason::Failed(reason)),
        }
    }

    /// Handles the remaining output of the media worker, for at most `LAST_WORDS`.
    async fn drain_worker(&mut self, seat: Option<&WorkerSlot>, end: &EndReason) {
        // A failed session, or a worker that has ended, sends no more output.
        let speaks =
            !matches!(end, EndReason::Failed(_)) && seat.is_some_and(|seat| seat.close().is_ok());
        if !speaks {
            return;
        }
        // The timeout covers only the receive: a cancelled write would go on and end after the
        // event that ends the run.
        let until = tokio::time::Instant::now() + LAST_WORDS;
        while let Ok(said) = timeout_at(until, self.said.recv()).await {
            match said {
                Some(SessionOutput::Closed(decoder)) => return self.recording.decoded_by(decoder),
                Some(SessionOutput::Failed(_)) | None => return,
                // The session is ending already: a further reason is ignored.
                Some(said) => drop(self.hear(said).await),
            }
        }
        self.metrics.live_shed.of(ShedReason::LastWords).inc();
        tracing::warn!(session = %self.session.id, "worker output incomplete after the session's end; the remaining events are dropped");
    }

    /// Waits for the description workers, for at most `LAST_WORDS`.
    async fn drain_descriptions(&mut self) {
        self.describers.end.cancel();
        let tasks = &mut self.describers.tasks;
        let described = async { while tasks.join_next().await.is_some() {} };
        if timeout(LAST_WORDS, described).await.is_err() {
            self.describers.cut.cancel();
            while self.describers.tasks.join_next().await.is_some() {}
        }
    }

    /// Ends the recording and the run, each as `end` says, and counts the end.
    async fn record(&mut self, end: &EndReason) {
        use SessionEnd as E;
        let (frames, markers) = self.recording.end(self.inbox.shared());
        let index_name = self.recording.index_name().cloned();
        let stream_id = (frames > 0).then(|| self.recording.stream_id().clone());
        let completed = |request_id| {
            Event::RunCompleted(RunCompleted {
                request_id,
                stream_id,
                frames,
                markers,
                index_name,
                ..RunCompleted::default()
            })
        };
        let failed = |reason: &str| failed(None, reason);
        let deleted = || {
            let reclaim = JsonText::parse(r#"{"reason":"never_connected"}"#);
            Event::RunDeleted(RunDeleted { request_id: None, reclaim })
        };
        let lost = "the publisher was lost: nothing came from it for 10 s";
        let never = "its publisher never came";
        let (counted, last, cut) = match end {
            EndReason::Deleted(request) => (E::Deleted, Some(completed(Some(*request))), None),
            EndReason::Closed => (E::Closed, Some(completed(None)), None),
            EndReason::Lost => (E::Lost, Some(failed(lost)), Some("its publisher was lost")),
            EndReason::NeverConnected => (E::NeverConnected, Some(deleted()), Some(never)),
            EndReason::Shutdown => (E::Shutdown, Some(failed(SHUTDOWN)), Some(SHUTDOWN)),
            EndReason::Failed(reason) => (E::Failed, Some(failed(reason)), Some(reason.as_str())),
            EndReason::RunOver => (E::RunOver, None, Some("stopped")),
        };
        self.recording.close(self.inbox.shared(), cut, last).await;
        self.metrics.live_ends.of(counted).inc();
    }
}

/// Maps a connection event to the reason that ends the session; `None` for `Connected`.
fn ended(told: SessionEvent) -> Option<EndReason> {
    match told {
        SessionEvent::Connected => None,
        SessionEvent::Closed => Some(EndReason::Closed),
        SessionEvent::Lost => Some(EndReason::Lost),
        SessionEvent::NeverConnected => Some(EndReason::NeverConnected),
        SessionEvent::Failed(failure) => Some(EndReason::Failed(failure.to_string())),
    }
}
