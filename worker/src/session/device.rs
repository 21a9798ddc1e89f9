//! The thread of a worker that measures the pictures of all sessions on the device.
//!
//! Pool threads hand frames over and go on; the measurements go back to the pool. If the device is late, lost
//! or full, frames are handed back and the CPU measures them with the same integers. Batches for which the
//! device is late are measured by the CPU here, on this thread.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
        mpsc::{Receiver, SyncSender, TrySendError, sync_channel},
    },
    thread,
    time::{Duration, Instant},
};

use gate::{FrameMeasurements, MeasureBackend};
use media::Frame;

use super::pool::{ExitOnPanic, PoolItem, PoolTask, SESSIONS_MAX, SessionSlot};
use crate::{JobFault, WorkerSessionEvent, gate_device::GateMeasurement, job::bytes_to_send};

/// Pictures of a full batch: one of each session of a full worker. A unit with more is a batch of its own.
const PICTURES_MAX: usize = SESSIONS_MAX;

/// Bytes of a full batch's pictures, as many as a device takes at once.
const BYTES_MAX: u64 = 32 << 20;

/// Longest time that a picture waits for others: a sixth of the time between pictures of a common camera, and
/// of a live session's latency.
const AGE_MAX: Duration = Duration::from_millis(5);

/// Most bytes of pictures that are on their way to the device and back: a batch there and one being gathered.
const HELD_BYTES_MAX: u64 = 2 * BYTES_MAX;

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

struct Offered {
    decoded: DecodedUnit,
    held: InFlightBytes,
    since: Instant,
}

/// Reservation of a unit's bytes, released on drop.
pub(super) struct InFlightBytes {
    all: Arc<AtomicU64>,
    bytes: u64,
}

/// Handle to the thread, which ends with it.
pub(super) struct DeviceQueue {
    /// At most one unit of each session waits.
    units: SyncSender<Offered>,
    measuring: GateMeasurement,
    held: Arc<AtomicU64>,
}

impl DeviceQueue {
    /// Starts the thread; units are sent to `done` with their measurements.
    pub fn start(
        measuring: GateMeasurement,
        done: SyncSender<PoolItem>,
    ) -> io::Result<DeviceQueue> {
        let (units, waiting) = sync_channel(SESSIONS_MAX);
        let of_thread = measuring.clone();
        thread::Builder::new()
            .name("gate-batches".to_owned())
            .spawn(move || measure_off(&of_thread, &waiting, &done))?;
        Ok(DeviceQueue { units, measuring, held: Arc::default() })
    }

    /// Hands frames over; returns them if the device is lost, late or full.
    pub fn offer(&self, decoded: DecodedUnit) -> Result<(), DecodedUnit> {
        if !self.measuring.takes() {
            return Err(decoded);
        }
        let bytes = decoded.frames.iter().map(bytes_to_send).sum();
        let Some(held) = InFlightBytes::of(&self.held, bytes) else { return Err(decoded) };
        let offered = Offered { decoded, held, since: Instant::now() };
        self.units.try_send(offered).map_err(|refused| match refused {
            TrySendError::Full(offered) | TrySendError::Disconnected(offered) => offered.decoded,
        })
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

/// Main loop of the thread; ends with the handle or the pool.
fn measure_off(
    measuring: &GateMeasurement,
    waiting: &Receiver<Offered>,
    done: &SyncSender<PoolItem>,
) {
    let _mourner = ExitOnPanic;
    let (mut measurer, mut left_over) = (measuring.measurer(), None);
    while let Some(batch) = next_batch(waiting, &mut left_over) {
        for (offered, measured) in measure(measurer.as_mut(), batch) {
            let Offered { decoded, held, .. } = offered;
            let DecodedUnit { number, slot, frames, events, is_last } = decoded;
            let task = PoolTask::Measured { frames, measured, events, is_last, held };
            if done.send(PoolItem { number, slot, task }).is_err() {
                return;
            }
        }
    }
}

/// Waits for a unit and gathers those that come before it is of age, until the batch is full; `None` once the
/// handle is dropped. A unit that does not fit any more goes into `left_over`, for the next batch.
fn next_batch(
    waiting: &Receiver<Offered>,
    left_over: &mut Option<Offered>,
) -> Option<Vec<Offered>> {
    let first = left_over.take().or_else(|| waiting.recv().ok())?;
    let due = first.since + AGE_MAX;
    let (mut pictures, mut bytes) = (first.decoded.frames.len(), first.held.bytes);
    let mut batch = vec![first];
    while pictures < PICTURES_MAX
        && bytes < BYTES_MAX
        && let Ok(next) = waiting.recv_timeout(due.saturating_duration_since(Instant::now()))
    {
        pictures += next.decoded.frames.len();
        bytes += next.held.bytes;
        if pictures > PICTURES_MAX || bytes > BYTES_MAX {
            *left_over = Some(next);
            break;
        }
        batch.push(next);
    }
    Some(batch)
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
    use std::iter;

    use gate::conformance::TestPicture;

    use super::*;

    /// Returns a unit that has waited since `since`.
    fn offered(number: u32, (pictures, bytes): (usize, u64), since: Instant) -> Offered {
        let picture = TestPicture::new(8, 8).frame();
        let frames = vec![picture; pictures];
        let (slot, events) = (SessionSlot::default(), Vec::new());
        let decoded = DecodedUnit { number, slot, frames, events, is_last: false };
        let held = InFlightBytes::of(&Arc::default(), bytes).expect("room");
        Offered { decoded, held, since }
    }

    /// Returns the numbers of the units of each batch, up to the end of the queue.
    fn batches(waiting: &Receiver<Offered>) -> Vec<Vec<u32>> {
        let mut left_over = None;
        let next = iter::from_fn(|| next_batch(waiting, &mut left_over));
        let numbers =
            |batch: Vec<Offered>| batch.iter().map(|offered| offered.decoded.number).collect();
        next.map(numbers).collect()
    }

    #[test]
    fn a_batch_is_full_of_pictures_or_bytes_and_none_is_lost_or_reordered() {
        const HALF: u64 = BYTES_MAX / 2;
        // Pictures and bytes of the units that wait, and the number of units in each batch.
        type Row = (&'static str, &'static [(usize, u64)], &'static [u32]);
        let rows: [Row; 7] = [
            ("nothing", &[], &[]),
            ("all fit", &[(1, 1), (2, 0), (3, HALF)], &[3]),
            ("full of pictures", &[(63, 1), (1, 1), (1, 1)], &[2, 1]),
            ("with the next too many pictures", &[(60, 1), (5, 1), (1, 1)], &[1, 2]),
            ("full of bytes", &[(1, HALF), (1, HALF), (1, 1)], &[2, 1]),
            ("with the next too many bytes", &[(1, HALF + 1), (1, HALF), (1, 1)], &[1, 2]),
            ("more than a batch", &[(1, 1), (65, 1), (1, BYTES_MAX + 1), (1, 1)], &[1, 1, 1, 1]),
        ];
        for (name, units, sizes) in rows {
            let (offers, waiting) = sync_channel(SESSIONS_MAX);
            let since = Instant::now();
            for (number, &unit) in (0..).zip(units) {
                offers.send(offered(number, unit, since)).expect("room");
            }
            drop(offers);
            let mut numbers = 0..;
            let expected: Vec<Vec<u32>> =
                sizes.iter().map(|&size| numbers.by_ref().take(size as usize).collect()).collect();
            assert_eq!(batches(&waiting), expected, "{name}");
        }
    }

    #[test]
    fn a_lone_unit_waits_for_others_until_it_is_of_age() {
        let (offers, waiting) = sync_channel(SESSIONS_MAX);
        let since = Instant::now();
        offers.send(offered(0, (1, 1), since)).expect("room");
        let batch = next_batch(&waiting, &mut None).expect("a batch, while the queue goes on");
        assert!(batch.len() == 1 && since.elapsed() >= AGE_MAX, "{:?}", since.elapsed());
        // Both are of age, as if the device had been busy: the second goes along with the first.
        (1..3).for_each(|number| offers.send(offered(number, (1, 1), since)).expect("room"));
        assert_eq!(next_batch(&waiting, &mut None).map(|batch| batch.len()), Some(2));
    }

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
