//! The thread of a worker that measures the pictures of all sessions on the device.
//!
//! Pool threads hand frames over and go on; the measurements go back to the pool. If the device is late, lost
//! or full, frames are handed back and the CPU measures them with the same integers. Batches for which the
//! device is late are measured by the CPU here, on this thread.

use std::{
    io,
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
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
use crate::{JobFault, WorkerSessionEvent, gate_device::GateMeasurement, job::bytes_to_send};

/// Full batch: a frame of each session of a full worker, or the bytes that a device takes at once.
const RULE: FlushPolicy = FlushPolicy {
    full: BatchSize { pictures: 64, bytes: 32 << 20 },
    // A sixth of the time between pictures of a common camera, and of a live session's latency.
    age: Duration::from_millis(5),
};

/// Most bytes of pictures that are on their way to the device and back: a batch there and one being gathered.
pub(super) const HELD_BYTES_MAX: u64 = 2 * RULE.full.bytes;

/// Decoded unit whose frames are to be measured and decided.
pub(super) struct DecodedUnit {
    pub number: u32,
    pub slot: SessionSlot,
    pub frames: Vec<Frame>,
    /// Events to send before those of the frames.
    pub events: Vec<WorkerSessionEvent>,
    /// True if it is the session's last.
    pub is_last: bool,
}

/// Unit that was accepted for the device.
struct Offered {
    decoded: DecodedUnit,
    held: InFlightBytes,
}

/// Reservation of a unit's bytes, released on drop.
pub(super) struct InFlightBytes {
    all: Arc<AtomicU64>,
    bytes: u64,
}

/// Handle to the thread.
#[derive(Clone)]
pub(super) struct DeviceQueue(Arc<Shared>);

struct Shared {
    state: Mutex<State>,
    wake: Condvar,
    measuring: GateMeasurement,
    held: Arc<AtomicU64>,
}

struct State {
    batches: GateBatcher<Offered>,
    is_closed: bool,
}

impl DeviceQueue {
    /// Starts the thread; units are sent to `done` with their measurements.
    pub fn start(
        measuring: GateMeasurement,
        done: SyncSender<PoolItem>,
    ) -> io::Result<DeviceQueue> {
        let state = State { batches: GateBatcher::new(RULE), is_closed: false };
        let shared = Arc::new(Shared {
            state: Mutex::new(state),
            wake: Condvar::new(),
            measuring,
            held: Arc::default(),
        });
        let of_thread = Arc::clone(&shared);
        thread::Builder::new()
            .name("gate-batches".to_owned())
            .spawn(move || measure_off(&of_thread, &done))?;
        Ok(DeviceQueue(shared))
    }

    /// Hands frames over; returns them if the device is lost, late or full.
    pub fn offer(&self, decoded: DecodedUnit) -> Result<(), DecodedUnit> {
        if !self.0.measuring.takes() {
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

    /// Ends the thread; waiting units are dropped.
    pub fn close(&self) {
        self.0.state().is_closed = true;
        self.0.wake.notify_one();
    }
}

impl InFlightBytes {
    /// Reserves `bytes`; `None` if that would exceed [`HELD_BYTES_MAX`].
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

    /// Waits for the next batch; `None` once the queue is closed.
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
    while let Some(batch) = shared.next() {
        for (offered, measured) in measure(measurer.as_mut(), batch) {
            let Offered { decoded, held } = offered;
            let DecodedUnit { number, slot, frames, events, is_last } = decoded;
            let task = PoolTask::Measured { frames, measured, events, is_last, held };
            if done.send(PoolItem { number, slot, task }).is_err() {
                return;
            }
        }
    }
}

/// Measurements of a unit's frames, or the reason that there are none.
type Measured = Result<Vec<FrameMeasurements>, JobFault>;

/// Measures a batch at once; if that fails, each unit alone, so that a bad frame fails only its own session.
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
