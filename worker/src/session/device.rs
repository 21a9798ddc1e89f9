//! The thread of a worker that measures pictures of all sessions on the device.
//!
//! Whoever decodes hands frames over and goes on; what was measured goes back to those threads. Where
//! the device is late, lost, or has enough, frames are given back and the CPU measures them with the
//! same integers. What the device is late with the CPU measures here: a batch is a few of its frames.

use std::{
    io, mem,
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
        mpsc::SyncSender,
    },
    thread,
    time::{Duration, Instant},
};

use gate::{FrameMeasurements, MeasureBackend};
use media::Frame;

use super::{
    gate_batcher::{BatchSize, FlushPolicy, GateBatcher},
    pool::{ExitOnPanic, PoolItem, PoolTask, SessionSlot},
};
use crate::{
    JobFault, WorkerSessionEvent, gate_device::GateMeasurement, job::bytes_to_send,
    protocol::WorkerReply,
};

/// A frame of every session of a full worker, or as many bytes as a device takes at once.
const RULE: FlushPolicy = FlushPolicy {
    full: BatchSize { pictures: 64, bytes: 32 << 20 },
    // A sixth of the time between pictures of a common camera, and of what a live session takes.
    age: Duration::from_millis(5),
};

/// Bytes of pictures that are on their way to the device and back, at most: a batch there and one
/// that gathers.
pub(super) const HELD_BYTES_MAX: u64 = 2 * RULE.full.bytes;

/// Decoded unit on its way to its decisions.
pub(super) struct DecodedUnit {
    pub number: u32,
    pub slot: SessionSlot,
    pub frames: Vec<Frame>,
    /// Events to send before those that follow from the frames.
    pub events: Vec<WorkerSessionEvent>,
    /// The session has no more.
    pub is_last: bool,
}

/// Unit that was offered and taken.
struct Offered {
    decoded: DecodedUnit,
    held: InFlightBytes,
}

/// Bytes of those that may be on their way, until dropped.
pub(super) struct InFlightBytes {
    all: Arc<AtomicU64>,
    bytes: u64,
}

/// Takes what there is to say of the device.
pub(super) type DeviceEventCallback = Box<dyn Fn(&WorkerReply) + Send + Sync>;

/// The way to the thread.
#[derive(Clone)]
pub(super) struct DeviceQueue(Arc<Shared>);

struct Shared {
    state: Mutex<State>,
    wake: Condvar,
    measuring: GateMeasurement,
    held: Arc<AtomicU64>,
    tell: DeviceEventCallback,
    is_loss_told: AtomicBool,
}

struct State {
    batches: GateBatcher<Offered>,
    is_closed: bool,
}

impl DeviceQueue {
    /// Starts the thread; what it measures goes to `done`.
    pub fn start(
        measuring: GateMeasurement,
        done: SyncSender<PoolItem>,
        tell: DeviceEventCallback,
    ) -> io::Result<DeviceQueue> {
        let state = State { batches: GateBatcher::new(RULE), is_closed: false };
        let shared = Arc::new(Shared {
            state: Mutex::new(state),
            wake: Condvar::new(),
            measuring,
            held: Arc::default(),
            tell,
            is_loss_told: AtomicBool::new(false),
        });
        let of_thread = Arc::clone(&shared);
        thread::Builder::new()
            .name("gate-batches".to_owned())
            .spawn(move || measure_off(&of_thread, &done))?;
        Ok(DeviceQueue(shared))
    }

    /// Hands frames over, or gives them back where the device is not to have them now.
    pub fn offer(&self, decoded: DecodedUnit) -> Result<(), DecodedUnit> {
        if !self.0.measuring.takes() {
            self.0.tell_loss();
            return Err(decoded);
        }
        let (pictures, bytes) =
            (decoded.frames.len(), decoded.frames.iter().map(bytes_to_send).sum());
        let Some(held) = InFlightBytes::of(&self.0.held, bytes) else { return Err(decoded) };
        let offered = Offered { decoded, held };
        self.0.state().batches.push(offered, BatchSize { pictures, bytes }, Instant::now());
        self.0.wake.notify_one();
        Ok(())
    }

    /// Ends the thread; what waits is of no interest any more.
    pub fn close(&self) {
        self.0.state().is_closed = true;
        self.0.wake.notify_one();
    }
}

impl InFlightBytes {
    /// So many bytes of all, where there is room for them.
    fn of(all: &Arc<AtomicU64>, bytes: u64) -> Option<InFlightBytes> {
        let room = |held: u64| held.checked_add(bytes).filter(|after| *after <= HELD_BYTES_MAX);
        all.fetch_update(Relaxed, Relaxed, room).ok()?;
        Some(InFlightBytes { all: Arc::clone(all), bytes })
    }
}

impl Drop for InFlightBytes {
    fn drop(&mut self) {
        self.all.fetch_sub(self.bytes, Relaxed);
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells once that the device was given up, if it was.
    fn tell_loss(&self) {
        let Some(reason) = self.measuring.lost() else { return };
        if !self.is_loss_told.swap(true, Relaxed) {
            (self.tell)(&WorkerReply::GateLost { reason });
        }
    }

    /// The next batch when it is due; `None` once nobody offers any more.
    fn next(&self) -> Option<Vec<Offered>> {
        let mut state = self.state();
        loop {
            if state.is_closed {
                return None;
            }
            let now = Instant::now();
            if let Some(batch) = state.batches.take(now) {
                return Some(batch);
            }
            let wait = state.batches.due().map(|due| due.saturating_duration_since(now));
            state = match wait {
                None => self.wake.wait(state).unwrap_or_else(PoisonError::into_inner),
                Some(wait) => {
                    let waited = self.wake.wait_timeout(state, wait);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
    }
}

fn measure_off(shared: &Shared, done: &SyncSender<PoolItem>) {
    let _mourner = ExitOnPanic;
    let mut measurer = shared.measuring.measurer();
    let mut late = shared.measuring.late();
    while let Some(batch) = shared.next() {
        let done_with = measure(measurer.as_mut(), batch);
        let told = mem::replace(&mut late, shared.measuring.late());
        (told..late).for_each(|_| (shared.tell)(&WorkerReply::GateLate));
        for (offered, measured) in done_with {
            let Offered { decoded, held } = offered;
            let DecodedUnit { number, slot, frames, events, is_last } = decoded;
            let task = PoolTask::Measured { frames, measured, events, is_last, held };
            if done.send(PoolItem { number, slot, task }).is_err() {
                return;
            }
        }
        shared.tell_loss();
    }
}

/// Measurements of a unit's frames, or the reason that there are none.
type Measured = Result<Vec<FrameMeasurements>, JobFault>;

/// Measures all of a batch at once; a frame that cannot be measured fails its own session alone.
fn measure(measurer: &mut dyn MeasureBackend, batch: Vec<Offered>) -> Vec<(Offered, Measured)> {
    let frames = |offered: &Offered| offered.decoded.frames.clone();
    let counts: Vec<usize> = batch.iter().map(|offered| offered.decoded.frames.len()).collect();
    let all: Vec<Frame> = batch.iter().flat_map(frames).collect();
    let mut measured = Vec::with_capacity(all.len());
    if measurer.measure(&all, &mut measured).is_err() {
        return batch.into_iter().map(|offered| alone(measurer, offered)).collect();
    }
    let mut rest = measured.into_iter();
    let own = counts.into_iter().map(|count| Ok(rest.by_ref().take(count).collect()));
    batch.into_iter().zip(own.collect::<Vec<_>>()).collect()
}

fn alone(measurer: &mut dyn MeasureBackend, offered: Offered) -> (Offered, Measured) {
    let frames = &offered.decoded.frames;
    let mut measured = Vec::with_capacity(frames.len());
    let outcome = measurer.measure(frames, &mut measured);
    (offered, outcome.map(|()| measured).map_err(JobFault::from))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_on_its_way_is_bounded_in_bytes_and_comes_back() {
        let all = Arc::default();
        let first = InFlightBytes::of(&all, HELD_BYTES_MAX - 10).expect("room");
        let second = InFlightBytes::of(&all, 10).expect("room");
        assert!(
            InFlightBytes::of(&all, 1).is_none() && InFlightBytes::of(&all, u64::MAX).is_none()
        );
        drop(second);
        assert!(InFlightBytes::of(&all, 11).is_none());
        drop(first);
        assert_eq!(all.load(Relaxed), 0);
        assert!(
            InFlightBytes::of(&all, HELD_BYTES_MAX + 1).is_none(),
            "one that is larger is the CPU's"
        );
    }
}
