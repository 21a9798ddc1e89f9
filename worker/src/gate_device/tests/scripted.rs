//! A scripted device for tests: gives the reference's integers unless its script fails or delays a batch.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        mpsc::{Receiver, SyncSender, sync_channel},
    },
    thread,
    time::Duration,
};

use gate::{FrameMeasurements, MeasureBackend, MeasureError, ReferenceBackend};
use media::Frame;

use super::{DeviceTimeouts, GateMeasurement};

/// Sizes of the batches given to a device, including one that fails.
#[derive(Clone, Default)]
pub(crate) struct RecordedBatches(Arc<Mutex<Vec<usize>>>);

impl RecordedBatches {
    pub fn sizes(&self) -> Vec<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Keeps a hanging device hanging until dropped.
pub(crate) struct HangGuard(#[expect(dead_code, reason = "its end is what counts")] SyncSender<()>);

/// Outcome of a batch, given the number of batches before it.
type Script = Box<dyn FnMut(usize) -> Result<(), MeasureError> + Send>;

struct Scripted {
    given: RecordedBatches,
    script: Script,
}

/// Timeouts that are never reached, however slow the machine.
const PATIENT: DeviceTimeouts =
    DeviceTimeouts { late: Duration::from_secs(3600), gone: Duration::from_secs(3600) };

/// Creates a device that is lost after `batches` batches.
pub(crate) fn lost_after(batches: usize) -> (GateMeasurement, RecordedBatches) {
    let lost = move |batch| if batch < batches { Ok(()) } else { Err(unplugged()) };
    scripted(Box::new(lost), PATIENT)
}

/// Creates a device that refuses every third batch with `error`, and goes on.
pub(crate) fn refusing(error: MeasureError) -> (GateMeasurement, RecordedBatches) {
    let refuses = move |batch| if batch % 3 == 1 { Err(error.clone()) } else { Ok(()) };
    scripted(Box::new(refuses), PATIENT)
}

/// Creates a device that is late with its second batch only.
pub(crate) fn late_once() -> (GateMeasurement, RecordedBatches) {
    // Other batches are in time on all but the slowest machine.
    let late = Duration::from_millis(200);
    let slow = move |batch| {
        if batch == 1 {
            thread::sleep(5 * late);
        }
        Ok(())
    };
    scripted(Box::new(slow), DeviceTimeouts { late, ..PATIENT })
}

/// Creates a device that hangs after `batches` batches, until the guard is dropped.
pub(crate) fn hanging_after(batches: usize) -> (GateMeasurement, RecordedBatches, HangGuard) {
    let (hold, held): (SyncSender<()>, Receiver<()>) = sync_channel(0);
    let hangs = move |batch| {
        if batch >= batches {
            // Fails when the guard is dropped.
            held.recv().ok();
        }
        Ok(())
    };
    let short = Duration::from_millis(20);
    let (measuring, given) = scripted(Box::new(hangs), DeviceTimeouts { late: short, gone: short });
    (measuring, given, HangGuard(hold))
}

fn unplugged() -> MeasureError {
    MeasureError::DeviceLost("scripted", "unplugged".to_owned())
}

fn scripted(script: Script, patience: DeviceTimeouts) -> (GateMeasurement, RecordedBatches) {
    let given = RecordedBatches::default();
    let device = Box::new(Scripted { given: given.clone(), script });
    (GateMeasurement::on(device, "of a test", patience).expect("a thread"), given)
}

impl MeasureBackend for Scripted {
    fn name(&self) -> &'static str {
        "scripted"
    }

    fn measure(
        &mut self,
        frames: &[Frame],
        out: &mut Vec<FrameMeasurements>,
    ) -> Result<(), MeasureError> {
        if frames.is_empty() {
            return Ok(());
        }
        let batch = {
            let mut given = self.given.0.lock().unwrap_or_else(PoisonError::into_inner);
            given.push(frames.len());
            given.len() - 1
        };
        (self.script)(batch)?;
        ReferenceBackend.measure(frames, out)
    }
}
