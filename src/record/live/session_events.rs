//! Output of a media worker about one session, taken on the worker thread without blocking.
//!
//! Counts, times and decides about frames, and keeps the decisions until they are recorded; under load
//! pictures are dropped, never a signal. After a codec change the session resumes in another worker slot.

mod pictures;

use std::{
    collections::VecDeque,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use bytes::Bytes;
use gate::{Decision, GateState};
use media::{Dimensions, ErrorKind, Signal, Timestamp, WallTime};
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::{Notify, mpsc};
use worker::{
    ClipSampler, ClipSpec, EncodedImage, FrameChunk, FrameImages as Made, FrameRecord, FrameView,
    WireError, WorkerError, WorkerSessionEvent,
};

use pictures::LeftOut;
pub use pictures::Pictures;

use super::{description_worker::DescribeJob, publisher_state::PublisherSignals};
use crate::{
    base::metrics::{Metrics, ShedReason, Work},
    record::recorder::{Recorder, SIGNALS_MAX, STILLS_BYTES_MAX},
    runs::{registry::JobToken, summary::Shape},
};

/// Worker outputs that may wait for a session's task.
const WAITING: usize = 32;
/// Queue slots reserved for output that ends a session.
const KEPT_FREE: usize = 4;
/// Bytes of pictures that may wait; an output of any size is accepted while none wait.
const WAITING_BYTES: usize = STILLS_BYTES_MAX;
/// Pictures tracked between their last packet and their decision.
const UNDECIDED_MAX: usize = 512;

/// Output of a media worker that the session's task handles.
#[derive(Debug)]
pub enum SessionOutput {
    View(DescribeJob),
    Clip(DescribeJob),
    /// The worker has sent all output; the name of the decoder.
    Closed(String),
    /// Too many signals wait to be recorded.
    Behind,
    /// The worker gave the session up, or its process ended; the reason, for the owner.
    Failed(String),
}

/// Presentation time and JPEG of a clip's picture.
pub type Shot = (i64, Bytes);

impl SessionOutput {
    fn bytes(&self) -> usize {
        let (SessionOutput::View(look) | SessionOutput::Clip(look)) = self else { return 0 };
        let novelty = look.novelty.as_ref().map_or(0, |novelty| novelty.picture.rgb.len());
        look.pictures.iter().map(|(_, jpeg)| jpeg.len()).sum::<usize>() + novelty
    }
}

/// Receiving end of a session's queue, held by its task.
pub struct Heard {
    said: mpsc::Receiver<(SessionOutput, usize)>,
    shared: Arc<SessionProgress>,
}

/// Sending end of a session's queue, for one worker slot.
#[derive(Clone)]
pub struct SessionOutputSender {
    said: mpsc::Sender<(SessionOutput, usize)>,
    shared: Arc<SessionProgress>,
    /// Number of the worker slot that this sender is for.
    place: u64,
}

/// State shared by both ends of the queue.
pub struct SessionProgress {
    pub(super) metrics: Arc<Metrics>,
    /// Counters of the owner.
    work: Arc<Work>,
    pub(super) turns: Arc<PublisherSignals>,
    frames: AtomicU64,
    /// Job that shows the session's progress, once its run exists.
    job: OnceLock<JobToken>,
    /// Recorder of the session's frames, once its run exists.
    recorder: OnceLock<Mutex<Recorder>>,
    /// Signals a pending event, or many pending signals, to record.
    recordable: Notify,
    /// Bytes of the pictures in the queue.
    waiting: AtomicUsize,
    state: Mutex<State>,
    shape: Mutex<Shape>,
    left_out: LeftOut,
}

#[derive(Default)]
struct State {
    /// Number of the current worker slot; output of others is dropped.
    place: u64,
    /// Time at which the publisher connected, until its first picture is decided about.
    connected_at: Option<Instant>,
    /// Presentation time in ms and arrival of the last packet of each undecided picture, oldest first.
    undecided: VecDeque<(i64, Instant)>,
    came_at: Option<Instant>,
    /// Wall-clock time of media time 0 by the sender's first report.
    reported_start: Option<WallTime>,
    /// Time from last packet to decision of the last picture.
    waited: Duration,
    /// Clip sampler of the current worker slot.
    clipper: Option<ClipSampler<Shot>>,
    /// Dimensions of the first still.
    extent: Option<Dimensions>,
}

pub fn inbox(metrics: Arc<Metrics>, work: Arc<Work>) -> (SessionOutputSender, Heard) {
    let (said, queue) = mpsc::channel(WAITING);
    let shared = Arc::new(SessionProgress {
        metrics,
        work,
        turns: Arc::default(),
        frames: AtomicU64::new(0),
        job: OnceLock::new(),
        recorder: OnceLock::new(),
        recordable: Notify::new(),
        waiting: AtomicUsize::new(0),
        state: Mutex::default(),
        shape: Mutex::default(),
        left_out: LeftOut::default(),
    });
    let words = Heard { said: queue, shared: Arc::clone(&shared) };
    (SessionOutputSender { said, shared, place: 0 }, words)
}

impl Heard {
    /// Returns the next output; `None` once all senders are gone.
    pub async fn recv(&mut self) -> Option<SessionOutput> {
        let (said, bytes) = self.said.recv().await?;
        self.shared.waiting.fetch_sub(bytes, Relaxed);
        Some(said)
    }
}

impl SessionOutputSender {
    pub fn shared(&self) -> &Arc<SessionProgress> {
        &self.shared
    }

    /// Returns a sender for the next worker slot, and the state that the session resumes from
    /// there; later output of earlier slots is dropped.
    pub fn renewed(&self) -> (SessionOutputSender, Option<(Signal, GateState)>) {
        let recorder = self.shared.recorder();
        let mut state = self.shared.state.lock();
        (state.place, state.clipper) = (state.place + 1, None);
        let resume = recorder.and_then(|recorder| recorder.last());
        (SessionOutputSender { place: state.place, ..self.clone() }, resume)
    }

    /// Cuts clips by `spec` out of the frames of this slot.
    pub fn cut_clips(&self, spec: Option<ClipSpec>) {
        self.shared.state.lock().clipper = spec.map(ClipSampler::new);
    }

    /// Handles an event of the worker; fails on a picture that was not requested.
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
            // An exhausted resource is not a fault of the pictures.
            WorkerSessionEvent::Failed(fault) if fault.kind() == ErrorKind::Exhausted => {
                self.end(SessionOutput::Failed(fault.to_string()));
            }
            WorkerSessionEvent::Failed(fault) => {
                self.end(SessionOutput::Failed(format!("the pictures cannot be decoded: {fault}")));
            }
        }
        Ok(())
    }

    pub fn worker_ended(&self, error: &WorkerError) {
        if self.shared.state.lock().place == self.place {
            self.end(SessionOutput::Failed(format!("the media worker ended: {error}")));
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
            // The log is slower than the frames arrive: the session ends.
            self.end(SessionOutput::Behind);
        }
        if !decision.selected && (still.is_some() || view.is_some() || novelty.is_some()) {
            return Err(WireError::Unexpected("picture"));
        }
        self.decided(&signal, &decision);
        self.clip(clip, before);
        // Every selected frame has a still, unless a device was lost along with its picture.
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
            let (last_frame, pictures) = (frame_index, vec![(pts_ms, jpeg)]);
            let look = DescribeJob { frame_index, last_frame, pictures, is_looping, novelty };
            self.pass_on(SessionOutput::View(look), ShedReason::Keyframes);
        }
        Ok(())
    }

    /// Offers the frame, with its picture, to the clip sampler; returns the clip completed before it.
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

    /// Queues a clip for the session's task, unless all its pictures were lost.
    fn clip(&self, clip: Option<FrameChunk<Shot>>, is_looping: bool) {
        let Some(FrameChunk { first_frame, frames, views: pictures, .. }) =
            clip.filter(|clip| !clip.views.is_empty())
        else {
            return;
        };
        let (frame_index, last_frame) = (first_frame, first_frame + frames.saturating_sub(1));
        let look = DescribeJob { frame_index, last_frame, pictures, is_looping, novelty: None };
        self.pass_on(SessionOutput::Clip(look), ShedReason::Clips);
    }

    /// Counts and times a frame that the gate decided about.
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
            shape.kept(signal.pts_ms, &decision.reason.event_type());
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
        // Only one worker's thread adds: meanwhile `waiting` can only shrink.
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

    /// Queues output that ends the session in a reserved slot; fails only if the session is over.
    fn end(&self, said: SessionOutput) {
        self.said.try_send((said, 0)).ok();
    }
}

impl SessionProgress {
    pub fn show_in(&self, job: &JobToken) {
        self.job.get_or_init(|| job.clone());
    }

    /// Sets the recorder that decides about the session's frames.
    pub fn record_by(&self, recorder: Recorder) {
        self.recorder.get_or_init(|| Mutex::new(recorder));
    }

    /// Recorder of the session's frames; `None` before its run exists.
    pub fn recorder(&self) -> Option<MutexGuard<'_, Recorder>> {
        // After a panic a frame may be decided about and not recorded.
        Some(self.recorder.get()?.lock())
    }

    /// Waits until something has to be recorded at once.
    pub async fn recordable(&self) {
        self.recordable.notified().await;
    }

    pub fn extent(&self) -> Option<Dimensions> {
        self.state.lock().extent
    }

    /// Notes that a picture, whose last packet arrived at `came`, was sent to the worker.
    pub fn sent(&self, pts_ms: i64, came: Instant) {
        let mut state = self.state.lock();
        if state.undecided.len() >= UNDECIDED_MAX {
            state.undecided.pop_front();
        }
        state.undecided.push_back((pts_ms, came));
    }

    pub fn connected(&self, now: Instant) {
        self.state.lock().connected_at = Some(now);
    }

    pub fn frames(&self) -> u64 {
        self.frames.load(Relaxed)
    }
}

impl State {
    /// Returns the arrival of the last packet of the picture with presentation time `pts_ms`.
    /// Decisions come in presentation order: earlier pictures still waiting were not decoded.
    fn came(&mut self, pts_ms: i64) -> Option<Instant> {
        let came = self.undecided.iter().find(|(sent, _)| *sent == pts_ms).map(|(_, came)| *came);
        self.undecided.retain(|(sent, _)| *sent > pts_ms);
        came
    }
}

#[cfg(test)]
mod tests;
