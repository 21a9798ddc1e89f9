//! Output of a media worker about one session, taken on the worker's thread without ever waiting.
//!
//! Frames are counted, timed and decided about here, and wait with what follows from them to be recorded; load sheds
//! pictures, never a signal. Another codec has the session go on anew in a worker, as if it were the same.

mod pictures;
mod said;

use std::{
    collections::VecDeque,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use bytes::Bytes;
use gate::Decision;
use media::{Dimensions, Signal, Timestamp};
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::{Notify, mpsc};
use worker::{
    ClipSampler, ClipSpec, EncodedImage, FrameChunk, FrameImages as Made, FrameRecord, FrameView,
    SessionResume, WireError, WorkerError, WorkerSessionEvent,
};

use pictures::LeftOut;
pub use pictures::Pictures;
pub use said::{LiveModelImage, SessionOutput, Shot};

use super::publisher_state::PublisherSignals;
use crate::{
    base::metrics::{Metrics, ShedReason, Work},
    record::recorder::{Recorder, SIGNALS_MAX, STILLS_BYTES_MAX},
    runs::{registry::JobToken, summary::Shape},
};

/// Views and clips that wait for a session's task.
const WAITING: usize = 32;
/// Slots among them that are left to what ends a session.
const KEPT_FREE: usize = 4;
/// Bytes of their pictures. One of any size is always taken.
const WAITING_BYTES: usize = STILLS_BYTES_MAX;
/// Pictures between their last packet and their decision.
const UNDECIDED_MAX: usize = 512;

/// The session's end of its queue.
pub struct Heard {
    said: mpsc::Receiver<(SessionOutput, usize)>,
    shared: Arc<SessionProgress>,
}

/// The worker's end of a session's queue, for one place in a worker.
#[derive(Clone)]
pub struct SessionOutputSender {
    said: mpsc::Sender<(SessionOutput, usize)>,
    shared: Arc<SessionProgress>,
    /// Number of the session's slot in a worker that it is for.
    place: u64,
}

/// State shared by both ends of the queue.
pub struct SessionProgress {
    metrics: Arc<Metrics>,
    /// Counters of the owner.
    work: Arc<Work>,
    turns: Arc<PublisherSignals>,
    frames: AtomicU64,
    /// Job that shows the session's progress, once its run exists.
    job: OnceLock<JobToken>,
    /// Recorder of its frames, once its run exists.
    recorder: OnceLock<Mutex<Recorder>>,
    /// Rings where something waits to be recorded that its readers wait for.
    recordable: Notify,
    /// Bytes in the queue.
    waiting: AtomicUsize,
    state: Mutex<State>,
    /// Distribution of the frames of the whole session.
    shape: Mutex<Shape>,
    left_out: LeftOut,
}

#[derive(Default)]
struct State {
    /// The place that is listened to.
    place: u64,
    /// Time at which the publisher connected, until its first picture is decided about.
    connected_at: Option<Instant>,
    /// Presentation time of each picture and when its last packet came, oldest first.
    undecided: VecDeque<(i64, Instant)>,
    came_at: Option<Instant>,
    /// Wait of the last picture for its decision.
    waited: Duration,
    /// Cuts the clips of the place.
    clipper: Option<ClipSampler<Shot>>,
    /// Size of the first still.
    extent: Option<Dimensions>,
}

/// A queue for one session.
pub fn inbox(
    metrics: Arc<Metrics>,
    work: Arc<Work>,
    turns: Arc<PublisherSignals>,
) -> (SessionOutputSender, Heard) {
    let (said, queue) = mpsc::channel(WAITING);
    let (frames, waiting) = (AtomicU64::new(0), AtomicUsize::new(0));
    let (job, state, shape) = (OnceLock::new(), Mutex::default(), Mutex::default());
    let left_out = LeftOut::default();
    let (recorder, recordable) = (OnceLock::new(), Notify::new());
    let shared = SessionProgress {
        metrics,
        work,
        turns,
        frames,
        job,
        recorder,
        recordable,
        waiting,
        state,
        shape,
        left_out,
    };
    let shared = Arc::new(shared);
    let words = Heard { said: queue, shared: Arc::clone(&shared) };
    (SessionOutputSender { said, shared, place: 0 }, words)
}

impl Heard {
    /// Next output; `None` once there can be no more.
    pub async fn recv(&mut self) -> Option<SessionOutput> {
        let next = self.said.recv().await?;
        Some(self.taken(next))
    }

    /// Next output, if there is one already.
    #[cfg(test)]
    fn try_recv(&mut self) -> Option<SessionOutput> {
        let next = self.said.try_recv().ok()?;
        Some(self.taken(next))
    }

    fn taken(&self, (said, bytes): (SessionOutput, usize)) -> SessionOutput {
        self.shared.waiting.fetch_sub(bytes, Relaxed);
        said
    }
}

impl SessionOutputSender {
    /// State shared by both ends.
    pub fn shared(&self) -> &Arc<SessionProgress> {
        &self.shared
    }

    /// Sender for another slot in a worker, and where the session goes on there; later output of the slots before is
    /// dropped.
    pub fn renewed(&self) -> (SessionOutputSender, Option<SessionResume>) {
        let recorder = self.shared.recorder();
        let mut state = self.shared.state.lock();
        (state.place, state.clipper) = (state.place + 1, None);
        let last = recorder.and_then(|recorder| recorder.last());
        let resume = last.map(|(last, gate)| SessionResume { last, gate });
        (SessionOutputSender { place: state.place, ..self.clone() }, resume)
    }

    /// Cuts clips by `spec` out of the frames of its slot.
    pub fn cut_clips(&self, spec: Option<ClipSpec>) {
        self.shared.state.lock().clipper = spec.map(ClipSampler::new);
    }

    /// Takes what the worker says; an error is a picture that nobody wanted.
    pub fn take(&self, event: WorkerSessionEvent) -> Result<(), WireError> {
        match event {
            WorkerSessionEvent::Frames(records) => {
                records.into_iter().try_for_each(|record| self.frame(record))?;
            }
            _ if self.shared.state.lock().place != self.place => {}
            WorkerSessionEvent::Damaged { detail } => {
                self.shared.metrics.live_damaged.inc();
                self.shared.left_out.damaged.fetch_add(1, Relaxed);
                tracing::debug!(detail, "a picture did not decode");
                self.shared.turns.broken();
            }
            WorkerSessionEvent::Closed { decoder, .. } => {
                let clip = self.shared.state.lock().clipper.as_mut().and_then(ClipSampler::finish);
                self.clip(clip, self.shared.recorder().is_some_and(|it| it.is_looping()));
                self.end(SessionOutput::Closed(decoder));
            }
            WorkerSessionEvent::Failed(fault) => self.end(SessionOutput::Failed(fault)),
        }
        Ok(())
    }

    /// The worker ended with the session in it.
    pub fn worker_ended(&self, error: &WorkerError) {
        if self.shared.state.lock().place == self.place {
            self.end(SessionOutput::WorkerEnded(error.to_string()));
        }
    }

    fn frame(&self, record: FrameRecord) -> Result<(), WireError> {
        let FrameRecord { signal, pts, pictures } = record;
        let Made { still, view, clip: shot, novelty } = pictures;
        let extent = still.as_ref().map(|still| still.extent);
        let still: Option<Bytes> = still.map(|still| still.jpeg.into());
        let Some(mut recorder) = self.shared.recorder() else { return Ok(()) };
        let mut state = self.shared.state.lock();
        if state.place != self.place {
            return Ok(());
        }
        let clip = self.cut(&mut state, pts.map(|pts| (pts, &signal)), shot)?;
        state.extent = state.extent.or(extent);
        drop(state);
        let before = recorder.is_looping();
        let has_room = still.as_ref().is_some_and(|still| recorder.pending().has_room(still));
        let decision = recorder.frame(signal, still.clone().filter(|_| has_room))?;
        let (is_looping, behind) = (recorder.is_looping(), recorder.pending().signals.len());
        if recorder.pending().tells() || behind >= SIGNALS_MAX / 8 {
            self.shared.recordable.notify_one();
        }
        drop(recorder);
        if behind > SIGNALS_MAX {
            // A log that is slower ends the session.
            self.end(SessionOutput::Behind);
        }
        if !decision.selected && (still.is_some() || view.is_some() || novelty.is_some()) {
            return Err(WireError::Unexpected("picture"));
        }
        self.decided(&signal, &decision);
        self.clip(clip, before);
        // A still is asked for of every selected frame: there is none where a device was lost with it.
        if decision.selected && !has_room {
            self.shed(ShedReason::Stills);
        }
        let jpeg = match view {
            Some(FrameView::Own(picture)) => Some(picture.jpeg.into()),
            Some(FrameView::Still) => still,
            None => None,
        };
        if let Some(jpeg) = jpeg {
            let Signal { frame_index, pts_ms, .. } = signal;
            let view = LiveModelImage { frame_index, pts_ms, jpeg, novelty, is_looping };
            self.pass_on(SessionOutput::View(view), ShedReason::Keyframes);
        }
        Ok(())
    }

    /// Counts the frame into the clips, with its picture; returns the one that is complete before it.
    fn cut(
        &self,
        state: &mut State,
        frame: Option<(Timestamp, &Signal)>,
        shot: Option<EncodedImage>,
    ) -> Result<Option<FrameChunk<Shot>>, WireError> {
        let unwanted = WireError::Unexpected("clip");
        let (Some(clipper), Some((pts, signal))) = (&mut state.clipper, frame) else {
            return if shot.is_none() { Ok(None) } else { Err(unwanted) };
        };
        let offered = clipper.offer(signal, pts);
        match shot {
            Some(_) if !offered.is_wanted => return Err(unwanted),
            Some(picture) => clipper.take((signal.pts_ms, picture.jpeg.into())),
            None => {}
        }
        Ok(offered.complete)
    }

    /// Passes a clip on; one whose pictures were all lost is none.
    fn clip(&self, clip: Option<FrameChunk<Shot>>, is_looping: bool) {
        if let Some(clip) = clip.filter(|clip| !clip.views.is_empty()) {
            self.pass_on(SessionOutput::Clip(clip, is_looping), ShedReason::Clips);
        }
    }

    /// Counts and times a frame that is decided about.
    fn decided(&self, signal: &Signal, decision: &Decision) {
        let SessionProgress { metrics, work, .. } = &*self.shared;
        let is_kept = u64::from(decision.selected);
        metrics.frames_analyzed.inc();
        metrics.keyframes_selected.inc_by(is_kept);
        work.decided(1, is_kept);
        let before = self.shared.frames.fetch_add(1, Relaxed);
        if let Some(job) = self.shared.job.get() {
            job.advance(before + 1, signal.pts_ms);
        }
        let mut shape = self.shared.shape();
        shape.measured(signal.pts_ms, signal.luma_mean);
        if decision.selected {
            shape.kept(signal.pts_ms, &decision.event_type);
        }
        drop(shape);
        let mut state = self.shared.state.lock();
        let now = Instant::now();
        if let Some(at) = state.connected_at.take() {
            metrics.live_first_decision_seconds.observe((now - at).as_secs_f64());
        }
        if let Some(came) = state.came(signal.pts_ms) {
            metrics.live_decision_seconds.observe((now - came).as_secs_f64());
            state.waited = now - came;
        }
    }

    fn shed(&self, shed: ShedReason) {
        self.shared.metrics.live_shed.of(shed).inc();
        self.shared.left_out.words.fetch_add(1, Relaxed);
    }

    fn pass_on(&self, said: SessionOutput, shed: ShedReason) {
        let (bytes, waiting) = (said.bytes(), &self.shared.waiting);
        // Only one worker's thread adds: what is there can only become less meanwhile.
        let before = waiting.load(Relaxed);
        let has_room =
            self.said.capacity() > KEPT_FREE && (before == 0 || before + bytes <= WAITING_BYTES);
        if has_room {
            waiting.fetch_add(bytes, Relaxed);
            if self.said.try_send((said, bytes)).is_ok() {
                return;
            }
            waiting.fetch_sub(bytes, Relaxed);
        }
        self.shed(shed);
    }

    /// There is a place left for this; the receiver is gone only when the session is over.
    fn end(&self, said: SessionOutput) {
        self.said.try_send((said, 0)).ok();
    }
}

impl SessionProgress {
    /// Shows in `job` how far the session has come, from now on.
    pub fn show_in(&self, job: &JobToken) {
        self.job.get_or_init(|| job.clone());
    }

    /// Has `recorder` decide about its frames, from now on.
    pub fn record_by(&self, recorder: Recorder) {
        self.recorder.get_or_init(|| Mutex::new(recorder));
    }

    /// Recorder of its frames; none before its run exists.
    pub fn recorder(&self) -> Option<MutexGuard<'_, Recorder>> {
        // A panic leaves a frame that is decided about and not told.
        Some(self.recorder.get()?.lock())
    }

    /// Resolves when something is to be recorded at once.
    pub async fn recordable(&self) {
        self.recordable.notified().await;
    }

    /// Size of the first still.
    pub fn extent(&self) -> Option<Dimensions> {
        self.state.lock().extent
    }

    /// A picture goes to the worker whose last packet came at `came`.
    pub fn sent(&self, pts_ms: i64, came: Instant) {
        let mut state = self.state.lock();
        if state.undecided.len() >= UNDECIDED_MAX {
            state.undecided.pop_front();
        }
        state.undecided.push_back((pts_ms, came));
    }

    /// The publisher has connected.
    pub fn connected(&self, now: Instant) {
        self.state.lock().connected_at = Some(now);
    }

    /// Frames that the gate decided about.
    pub fn frames(&self) -> u64 {
        self.frames.load(Relaxed)
    }
}

impl State {
    /// Arrival of the last packet of the picture shown at `pts_ms`. Decisions come in the order of
    /// presentation: a picture before that one which still waits was not decoded.
    fn came(&mut self, pts_ms: i64) -> Option<Instant> {
        let came = self.undecided.iter().find(|(sent, _)| *sent == pts_ms).map(|(_, came)| *came);
        self.undecided.retain(|(sent, _)| *sent > pts_ms);
        came
    }
}

#[cfg(test)]
mod tests;
