//! Output of a media worker about one session, taken on the worker's thread without ever waiting.
//!
//! Signals are counted, timed and decided about here, and wait with what follows from them to be recorded; load sheds
//! pictures, never a signal. Frames are numbered through the whole session, also where another codec has it begin
//! anew in a worker.

mod pictures;
mod said;

use std::{
    collections::VecDeque,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use bytes::Bytes;
use media::{Extent, Signal};
use tokio::sync::{Notify, mpsc};
use worker::{SelectedFrame, SelectedView, SessionEvent, Still, WorkerError};

use pictures::LeftOut;
pub use pictures::Pictures;
pub use said::{Said, View};

use super::turns::Turns;
use crate::{
    base::metrics::{Metrics, Shed, Work},
    record::recorder::{Kept, Recorder},
    runs::{registry::JobToken, summary::Shape},
};

/// Stills, views and clips that wait for a session's task.
const WAITING: usize = 32;
/// Slots among them that are left to what ends a session.
const KEPT_FREE: usize = 4;
/// Signals that wait to be recorded: five minutes of them. A log that is slower ends the session.
const SIGNALS_MAX: usize = 8192;
/// Bytes of their pictures: 32 of 1080p. One of any size is always taken.
const WAITING_BYTES: usize = 8 << 20;
/// Pictures between their last packet and their decision.
const UNDECIDED_MAX: usize = 512;
/// Selected frames whose signals have not come: a worker says both within three frames.
const SELECTED_MAX: usize = 8;

/// The session's end of its queue.
pub struct Heard {
    said: mpsc::Receiver<(Said, usize)>,
    shared: Arc<Shared>,
}

/// The worker's end of a session's queue, for one place in a worker.
#[derive(Clone)]
pub struct Inbox {
    said: mpsc::Sender<(Said, usize)>,
    shared: Arc<Shared>,
    /// Number of the session's slot in a worker that it is for.
    place: u64,
    /// Frames of the places before.
    base: u64,
}

/// State shared by both ends of the queue.
pub struct Shared {
    metrics: Arc<Metrics>,
    /// Counters of the owner.
    work: Arc<Work>,
    turns: Arc<Turns>,
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
    /// Selected frames whose signals have not come yet, with their views.
    selected: VecDeque<(u64, Option<View>)>,
    /// The last still, which the frame's view may be.
    still: Option<Bytes>,
    /// Size of the first still.
    extent: Option<Extent>,
}

/// A queue for one session.
pub fn inbox(metrics: Arc<Metrics>, work: Arc<Work>, turns: Arc<Turns>) -> (Inbox, Heard) {
    let (said, queue) = mpsc::channel(WAITING);
    let (frames, waiting) = (AtomicU64::new(0), AtomicUsize::new(0));
    let (job, state, shape) = (OnceLock::new(), Mutex::default(), Mutex::default());
    let left_out = LeftOut::default();
    let (recorder, recordable) = (OnceLock::new(), Notify::new());
    let shared = Shared {
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
    (Inbox { said, shared, place: 0, base: 0 }, words)
}

impl Heard {
    /// Next output; `None` once there can be no more.
    pub async fn recv(&mut self) -> Option<Said> {
        let next = self.said.recv().await?;
        Some(self.taken(next))
    }

    /// Next output, if there is one already.
    #[cfg(test)]
    fn try_recv(&mut self) -> Option<Said> {
        let next = self.said.try_recv().ok()?;
        Some(self.taken(next))
    }

    fn taken(&self, (said, bytes): (Said, usize)) -> Said {
        self.shared.waiting.fetch_sub(bytes, Relaxed);
        said
    }
}

impl Inbox {
    /// State shared by both ends.
    pub fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Sender for another slot in a worker; later output of the slots before is dropped.
    pub fn renewed(&self) -> Inbox {
        let mut state = self.shared.state();
        let place = state.place + 1;
        let State { connected_at, came_at, extent, .. } = *state;
        let undecided = std::mem::take(&mut state.undecided);
        *state = State { place, connected_at, undecided, came_at, extent, ..State::default() };
        Inbox { place, base: self.shared.frames(), ..self.clone() }
    }

    /// Takes what the worker says.
    pub fn take(&self, event: SessionEvent) {
        if self.shared.state().place != self.place {
            return;
        }
        match event {
            SessionEvent::Signals(signals) => self.decided(&signals),
            SessionEvent::Still(still) => self.selected(still),
            SessionEvent::Selected(frame) => self.shown(frame),
            SessionEvent::Clip(mut clip) => {
                clip.first_frame += self.base;
                let is_looping = self.shared.recorder().is_some_and(|it| it.is_looping());
                self.pass_on(Said::Clip(clip, is_looping), Shed::Clips);
            }
            SessionEvent::Damaged { detail } => {
                self.shared.metrics.live_damaged.inc();
                self.shared.left_out.damaged.fetch_add(1, Relaxed);
                tracing::debug!(detail, "a picture did not decode");
                self.shared.turns.broken();
            }
            SessionEvent::Closed { decoder, .. } => self.end(Said::Closed(decoder)),
            SessionEvent::Failed(fault) => self.end(Said::Failed(fault)),
        }
    }

    /// The worker ended with the session in it.
    pub fn worker_ended(&self, error: &WorkerError) {
        if self.shared.state().place == self.place {
            self.end(Said::WorkerEnded(error.to_string()));
        }
    }

    fn selected(&self, still: Still) {
        let Still { frame_index, pts_ms, event_type, reason, jpeg, extent, .. } = still;
        let (frame_index, jpeg) = (self.base + frame_index, Bytes::from(jpeg));
        self.shared.metrics.keyframes_selected.inc();
        self.shared.work.decided(0, 1);
        self.shared.shape().kept(pts_ms, &event_type);
        let mut state = self.shared.state();
        if state.selected.len() >= SELECTED_MAX {
            state.selected.pop_front();
        }
        state.selected.push_back((frame_index, None));
        state.still = Some(jpeg.clone());
        state.extent.get_or_insert(extent);
        drop(state);
        let Some(mut recorder) = self.shared.recorder() else { return };
        let (stills, bytes) = recorder.pending_stills();
        let has_room = stills < WAITING && (bytes == 0 || bytes + jpeg.len() <= WAITING_BYTES);
        if has_room {
            recorder.still(Kept { frame_index, pts_ms, event_type, reason, jpeg });
        } else {
            drop(recorder);
            self.shed(Shed::Stills);
        }
    }

    fn shown(&self, frame: SelectedFrame) {
        let SelectedFrame { frame_index, pts, view, novelty, .. } = frame;
        let mut state = self.shared.state();
        let still = state.still.take();
        let jpeg = match view {
            Some(SelectedView::Own { jpeg, .. }) => Some(jpeg.into()),
            Some(SelectedView::Still) => still,
            None => None,
        };
        let (frame_index, pts_ms) = (self.base + frame_index, pts.as_millis());
        let view = jpeg.map(|jpeg| View { frame_index, pts_ms, jpeg, novelty, is_looping: false });
        // It waits for its signal, which tells whether it belongs to a loop.
        if let Some((last, waiting)) = state.selected.back_mut()
            && *last == frame_index
        {
            *waiting = view;
        }
    }

    fn decided(&self, signals: &[Signal]) {
        let metrics = &self.shared.metrics;
        metrics.frames_analyzed.inc_by(signals.len() as u64);
        self.shared.work.decided(signals.len() as u64, 0);
        let before = self.shared.frames.fetch_add(signals.len() as u64, Relaxed);
        if let (Some(job), Some(last)) = (self.shared.job.get(), signals.last()) {
            job.advance(before + signals.len() as u64, last.pts_ms);
        }
        let mut shape = self.shared.shape();
        signals.iter().for_each(|signal| shape.measured(signal.pts_ms, signal.luma_mean));
        drop(shape);
        let is_looping = self.record(signals);
        let mut state = self.shared.state();
        let now = Instant::now();
        if let Some(at) = state.connected_at.take_if(|_| !signals.is_empty()) {
            metrics.live_first_decision_seconds.observe((now - at).as_secs_f64());
        }
        for signal in signals {
            if let Some(came) = state.came(signal.pts_ms) {
                metrics.live_decision_seconds.observe((now - came).as_secs_f64());
                state.waited = now - came;
            }
            let frame_index = self.base + signal.frame_index;
            if state.selected.front().is_none_or(|(frame, _)| *frame != frame_index) {
                continue;
            }
            if let Some(view) = state.selected.pop_front().and_then(|(_, view)| view) {
                self.pass_on(Said::View(View { is_looping, ..view }), Shed::Keyframes);
            }
        }
    }

    /// Has `signals` decided about and recorded; returns true if the last of them belongs to a loop.
    fn record(&self, signals: &[Signal]) -> bool {
        let Some(mut recorder) = self.shared.recorder() else { return false };
        for signal in signals {
            let frame_index = self.base + signal.frame_index;
            recorder.frame(Signal { frame_index, ..*signal });
        }
        let (tells, behind) = (recorder.pending().tells(), recorder.pending().signals.len());
        if tells || behind >= SIGNALS_MAX / 8 {
            self.shared.recordable.notify_one();
        }
        if behind > SIGNALS_MAX {
            self.end(Said::Behind);
        }
        recorder.is_looping()
    }

    fn shed(&self, shed: Shed) {
        self.shared.metrics.live_shed.of(shed).inc();
        self.shared.left_out.words.fetch_add(1, Relaxed);
    }

    fn pass_on(&self, said: Said, shed: Shed) {
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
    fn end(&self, said: Said) {
        self.said.try_send((said, 0)).ok();
    }
}

impl Shared {
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
        Some(self.recorder.get()?.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Resolves when something is to be recorded at once.
    pub async fn recordable(&self) {
        self.recordable.notified().await;
    }

    /// Size of the first still.
    pub fn extent(&self) -> Option<Extent> {
        self.state().extent
    }

    /// A picture goes to the worker whose last packet came at `came`.
    pub fn sent(&self, pts_ms: i64, came: Instant) {
        let mut state = self.state();
        if state.undecided.len() >= UNDECIDED_MAX {
            state.undecided.pop_front();
        }
        state.undecided.push_back((pts_ms, came));
    }

    /// The publisher has connected.
    pub fn connected(&self, now: Instant) {
        self.state().connected_at = Some(now);
    }

    /// Frames that the gate decided about.
    pub fn frames(&self) -> u64 {
        self.frames.load(Relaxed)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A panic leaves queues that are whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
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
